//! Code in place of a call: it is the argument of a built-in tool.

use crate::dialect::body::{Body, Out, Step};
use crate::event::ErrorKind;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeSpec {
    /// The tool that runs it.
    pub(crate) tool: &'static str,
    /// Close markers; the end of the stream also ends it, if so configured.
    pub(crate) close: &'static [&'static str],
    pub(crate) ends_with_stream: bool,
}

/// Reads code up to its end.
#[derive(Debug)]
pub(crate) struct Code {
    spec: CodeSpec,
    index: Option<u32>,
    /// A possible prefix of a close marker.
    partial: String,
}

impl Code {
    pub(crate) fn new(spec: CodeSpec) -> Self {
        Self { spec, index: None, partial: String::new() }
    }
}

impl Body for Code {
    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
        let mut pos = 0;
        // Leading blanks are not code yet.
        let index = match self.index {
            Some(index) => index,
            None => {
                pos = text.len() - text.trim_start().len();
                if !out.held.push(&text[..pos], at) {
                    return Step::Fail(pos);
                }
                if pos == text.len() {
                    return Step::More;
                }
                let index = out.start(self.spec.tool, None, at + pos as u64);
                self.index = Some(index);
                index
            }
        };
        while pos < text.len() {
            let (rest, here) = (&text[pos..], at + pos as u64);
            if self.partial.is_empty() {
                let end = memchr::memchr(b'<', rest.as_bytes()).unwrap_or(rest.len());
                out.args(index, &rest[..end], here..here + end as u64);
                pos += end;
                if end < rest.len() {
                    self.partial.push('<');
                    pos += 1;
                }
                continue;
            }
            let Some(next) = rest.chars().next() else { break };
            self.partial.push(next);
            if self.spec.close.contains(&self.partial.as_str()) {
                let end = here + next.len_utf8() as u64;
                out.end(index, true, end);
                return Step::Closed(pos + next.len_utf8());
            }
            if self.spec.close.iter().any(|close| close.starts_with(&self.partial)) {
                pos += next.len_utf8();
                continue;
            }
            self.partial.pop();
            let start = here - self.partial.len() as u64;
            out.args(index, &self.partial, start..here);
            self.partial.clear();
        }
        Step::More
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        let Some(index) = self.index else { return };
        out.args(index, &self.partial, at - self.partial.len() as u64..at);
        out.end(index, self.spec.ends_with_stream, at);
        if !self.spec.ends_with_stream {
            out.error(ErrorKind::Truncated, "the stream ends inside code", at);
        }
    }
}
