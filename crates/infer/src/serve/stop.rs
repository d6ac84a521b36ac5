//! Finds stop strings in an answer, across token boundaries.

use prompt::Delta;

/// Searches the text of an answer for stop strings, and holds back what could become one.
#[derive(Debug)]
pub(crate) struct Stop {
    words: Vec<String>,
    /// Text that could be the beginning of a stop string.
    held: String,
    found: bool,
}

impl Stop {
    pub(crate) fn new(words: &[String]) -> Self {
        let words = words.iter().filter(|word| !word.is_empty()).cloned().collect();
        Self { words, held: String::new(), found: false }
    }

    /// Tells whether a stop string was found, which ends the answer.
    pub(crate) fn found(&self) -> bool {
        self.found
    }

    /// Forwards what is not, and cannot become, a stop string. Anything after one is dropped.
    pub(crate) fn push(&mut self, delta: Delta<'_>, give: &mut dyn FnMut(Delta<'_>)) {
        if self.found {
            return;
        }
        let Delta::Text(text) = delta else {
            self.flush(give);
            return give(delta);
        };
        if self.words.is_empty() {
            return give(delta);
        }
        self.held.push_str(text);
        let first = self.words.iter().filter_map(|word| self.held.find(word.as_str())).min();
        if let Some(at) = first {
            self.found = true;
            self.held.truncate(at);
            return self.flush(give);
        }
        let keep = self.words.iter().map(|word| overlap(&self.held, word)).max().unwrap_or(0);
        let give_up = self.held.len() - keep;
        if give_up > 0 {
            give(Delta::Text(&self.held[..give_up]));
            self.held.drain(..give_up);
        }
    }

    /// Forwards what was held back: nothing more comes that could complete it.
    pub(crate) fn flush(&mut self, give: &mut dyn FnMut(Delta<'_>)) {
        if !self.held.is_empty() {
            give(Delta::Text(&std::mem::take(&mut self.held)));
        }
    }
}

/// Returns how many bytes at the end of `text` could begin `word`.
fn overlap(text: &str, word: &str) -> usize {
    let longest = text.len().min(word.len() - 1);
    let fits = |length: &usize| text.as_bytes().ends_with(&word.as_bytes()[..*length]);
    // Hold back whole characters; a stop string begins with one.
    (1..=longest).rev().filter(|length| word.is_char_boundary(*length)).find(fits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use prompt::Delta;
    use proptest::prelude::*;

    use super::Stop;

    fn run(words: &[&str], pieces: &[&str]) -> (String, bool) {
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        let (mut stop, mut out) = (Stop::new(&words), String::new());
        let mut give = |delta: Delta<'_>| {
            if let Delta::Text(text) = delta {
                out.push_str(text);
            }
        };
        for piece in pieces {
            stop.push(Delta::Text(piece), &mut give);
        }
        stop.flush(&mut give);
        let found = stop.found();
        (out, found)
    }

    #[test]
    fn stop_words() {
        for (words, pieces, want, found) in [
            (&[][..], &["a", "b"][..], "ab", false),
            (&["END"], &["aEN", "Db"], "a", true),
            (&["END"], &["aEN", "Eb"], "aENEb", false),
            (&["END"], &["aEN"], "aEN", false),
            (&["aab"], &["aa", "ab"], "a", true),
            (&["x", "bx"], &["abx"], "a", true),
            (&["ä!"], &["a", "ä", "!"], "a", true),
            (&[""], &["a"], "a", false),
            (&["a"], &["a"], "", true),
        ] {
            assert_eq!(run(words, pieces), (want.to_owned(), found), "{words:?} {pieces:?}");
        }
    }

    proptest! {
        #[test]
        fn token_boundaries_do_not_matter(text in "[abä]{0,24}", word in "[abä]{1,4}", cuts: [u8; 6]) {
            let mut pieces = Vec::new();
            let mut rest = &text[..];
            for cut in cuts {
                let at = rest.floor_char_boundary(usize::from(cut % 8));
                let (piece, after) = rest.split_at(at);
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            let want = text.find(&word).map_or((text.clone(), false), |at| (text[..at].to_owned(), true));
            prop_assert_eq!(run(&[&word], &pieces), want);
        }
    }
}
