//! A Markdown fence around calls: the line after the backticks says what is in it.

use crate::dialect::NAME_BYTES_MAX;
use crate::dialect::body::{Body, Out, Step};

/// Reads the rest of a fence's first line, then the calls in the fence.
pub(crate) struct Fenced {
    /// The words that announce calls.
    words: &'static [&'static str],
    line: Option<String>,
    inner: Box<dyn Body + Send>,
}

impl Fenced {
    pub(crate) fn new(words: &'static [&'static str], inner: Box<dyn Body + Send>) -> Self {
        Self { words, line: Some(String::new()), inner }
    }
}

impl Body for Fenced {
    fn push(&mut self, text: &str, at: u64, out: &mut Out<'_>) -> Step {
        let mut pos = 0;
        if let Some(line) = &mut self.line {
            let end = text.find('\n');
            let piece = &text[..end.unwrap_or(text.len())];
            line.push_str(piece);
            let word = line.trim();
            let may = match end {
                Some(_) => self.words.iter().any(|known| known.eq_ignore_ascii_case(word)),
                None => self.words.iter().any(|known| {
                    known.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word))
                }),
            };
            let long = line.len() > NAME_BYTES_MAX;
            pos = end.map_or(text.len(), |end| end + 1);
            let room = out.held.push(&text[..pos], at);
            if !may || long || !room {
                return Step::Fail(pos);
            }
            if end.is_none() {
                return Step::More;
            }
            self.line = None;
        }
        match self.inner.push(&text[pos..], at + pos as u64, out) {
            Step::More => Step::More,
            Step::Done(used) => Step::Done(pos + used),
            Step::Closed(used) => Step::Closed(pos + used),
            Step::Fail(used) => Step::Fail(pos + used),
        }
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        if self.line.is_none() {
            self.inner.finish(at, out);
        }
    }
}
