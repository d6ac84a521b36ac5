//! A plan: its text, and the content that was parsed from it.

use std::fmt;

use crate::lines::Blocks;
use crate::outline::{Outline, Step};
use crate::read::Document;
use crate::section::{self, Section};
use crate::words;

/// A plan as it is in a file. Any text is a plan; [`Plan::problems`] lists what is missing.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) text: String,
    pub(crate) blocks: Blocks,
    pub(crate) sections: Vec<Section>,
    pub(crate) titled: Option<usize>,
    outline: Outline,
}

/// Why no step was found by its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("no step is called `{name}`: name it by its number, or by how its text begins")]
    Missing { name: String },
    #[error("`{name}` can mean {}: say more of its text, or its number", listed(.candidates))]
    Ambiguous { name: String, candidates: Vec<Candidate> },
}

/// A step that an ambiguous name could refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub handle: String,
    pub text: String,
}

impl Plan {
    pub fn parse(text: impl Into<String>) -> Plan {
        let text = text.into();
        let blocks = Blocks::read(&text);
        let (sections, titled) = section::sections(&text, &blocks);
        let document = Document { text: &text, blocks: &blocks, sections: &sections, titled };
        let outline = document.outline();
        Plan { text, blocks, sections, titled, outline }
    }

    /// The document, byte for byte.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    pub fn steps(&self) -> &[Step] {
        &self.outline.steps
    }

    /// Finds a step by its handle, by its position (`#3`), or by the beginning of its text, and returns its index. A
    /// complete text takes precedence over a beginning, and whole words over parts of words.
    pub fn step(&self, name: &str) -> Result<usize, StepError> {
        let steps = self.steps();
        let name = name.trim();
        let place = name.strip_prefix('#').and_then(|place| place.parse::<usize>().ok());
        if let Some(place) = place {
            let missing = || StepError::Missing { name: shown(name) };
            return place.checked_sub(1).filter(|at| *at < steps.len()).ok_or_else(missing);
        }
        let is_handle = |step: &Step| step.handle.eq_ignore_ascii_case(name);
        if let Some(at) = steps.iter().position(is_handle) {
            return Ok(at);
        }
        let wanted = words::plain(name);
        let texts: Vec<_> = steps.iter().map(|step| words::plain(&step.text)).collect();
        let ranks = [
            |text: &str, wanted: &str| text == wanted,
            |text: &str, wanted: &str| {
                text.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(' '))
            },
            |text: &str, wanted: &str| text.starts_with(wanted),
        ];
        for rank in ranks.iter().filter(|_| !wanted.is_empty()) {
            let mut found = (0..steps.len()).filter(|at| rank(&texts[*at], &wanted));
            let Some(first) = found.next() else { continue };
            let candidate = |at: usize| Candidate {
                handle: steps[at].handle.clone(),
                text: shown(&steps[at].text),
            };
            let others: Vec<_> = found.take(CANDIDATES_MAX - 1).map(candidate).collect();
            if others.is_empty() {
                return Ok(first);
            }
            let candidates = std::iter::once(candidate(first)).chain(others).collect();
            return Err(StepError::Ambiguous { name: shown(name), candidates });
        }
        Err(StepError::Missing { name: shown(name) })
    }

    pub(crate) fn document(&self) -> Document<'_> {
        let Plan { text, blocks, sections, titled, .. } = self;
        Document { text, blocks, sections, titled: *titled }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Shortens a text for a message.
pub(crate) fn shown(text: &str) -> String {
    let line = words::joined(words::cut(text, SHOWN_BYTES_MAX));
    let safe = stdx::visible::line(&line);
    if text.len() > SHOWN_BYTES_MAX { format!("{safe}…") } else { safe.into_owned() }
}

fn listed(candidates: &[Candidate]) -> String {
    let one = |it: &Candidate| format!("{} ({})", it.handle, it.text);
    candidates.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Most steps that are listed when a name is ambiguous.
pub const CANDIDATES_MAX: usize = 10;
pub(crate) const SHOWN_BYTES_MAX: usize = 60;
