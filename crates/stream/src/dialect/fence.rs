//! A Markdown fence around calls: the info string tells what it contains.

use crate::dialect::NAME_BYTES_MAX;
use crate::dialect::body::{Body, Out, Step};

/// Reads the rest of a fence's first line, then the calls in the fence.
pub(crate) struct Fenced {
    /// The info strings that announce calls.
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
        while let Some(line) = &mut self.line {
            let Some(next) = text[pos..].chars().next() else { return Step::More };
            let used = pos + next.len_utf8();
            let ends = next == '\n';
            if !ends {
                line.push(next);
            }
            let word = line.trim();
            let may = self.words.iter().any(|known| {
                known.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word))
                    && (!ends || known.len() == word.len())
            });
            // The deciding character is not consumed: it may begin something else.
            if !may || line.len() > NAME_BYTES_MAX {
                return Step::Fail(pos);
            }
            if !out.held.push(&text[pos..used], at + pos as u64) {
                return Step::Fail(used);
            }
            pos = used;
            if ends {
                self.line = None;
            }
        }
        match self.inner.push(&text[pos..], at + pos as u64, out) {
            Step::More => Step::More,
            Step::Done(used) => Step::Done(pos + used),
            Step::Broken(used) => Step::Broken(pos + used),
            Step::Closed(used) => Step::Closed(pos + used),
            Step::Text(used) => Step::Text(pos + used),
            Step::Fail(used) => Step::Fail(pos + used),
        }
    }

    fn finish(&mut self, at: u64, out: &mut Out<'_>) {
        if self.line.is_none() {
            self.inner.finish(at, out);
        }
    }
}
