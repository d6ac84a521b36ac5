//! Evidence that a step is done, as it is written in a plan.
//!
//! ```text
//! - [x] the parser reads front matter
//!   - evidence: `cargo test -p plans` exits 0
//!   - evidence: `docs/plans.md` sha256 `2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae`
//! ```
//!
//! Nested items stay where they are when a formatter wraps or aligns the document.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stdx::visible;

use crate::words;

/// A fact that can be checked again to see whether a step is still done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Evidence {
    /// The command ends with this exit code.
    Command { command: String, exit: i32 },
    /// The file has this content.
    File { path: String, digest: Digest },
}

/// A SHA-256, written in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 has 64 hexadecimal digits, and this is `{text}`")]
pub struct DigestError {
    text: String,
}

impl Evidence {
    /// Reads a list of evidence; `None` if the text contains anything else.
    pub(crate) fn read_all(text: &str) -> Option<Vec<Evidence>> {
        let mut all = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (one, behind) = Evidence::read(rest)?;
            all.push(one);
            let behind = behind.trim_start_matches([' ', ';', ',', '.']);
            rest = behind.strip_prefix("and ").unwrap_or(behind);
        }
        (!all.is_empty()).then_some(all)
    }

    fn read(text: &str) -> Option<(Evidence, &str)> {
        let (code, rest) = code_span(text)?;
        let rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix("sha256") {
            let rest = rest.trim_start_matches([' ', ':', '`']);
            let (digits, rest) = rest.split_at_checked(64)?;
            let digest = digits.parse().ok()?;
            return Some((
                Evidence::File { path: code, digest },
                rest.strip_prefix('`').unwrap_or(rest),
            ));
        }
        const VERBS: [&str; 5] = ["exits with", "exited with", "exit code", "exits", "exit"];
        let rest = VERBS.iter().find_map(|verb| rest.strip_prefix(verb))?.trim_start();
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(sign + digits);
        let exit = number.parse().ok()?;
        if rest.starts_with(|c: char| c.is_alphanumeric()) {
            return None;
        }
        Some((Evidence::Command { command: code, exit }, rest))
    }

    /// Returns whether the evidence stays the same when it is written and read again.
    pub(crate) fn can_be_written(&self) -> bool {
        let code = match self {
            Evidence::Command { command, .. } => command,
            Evidence::File { path, .. } => path,
        };
        code.len() <= words::TEXT_BYTES_MAX
            && visible::exact_line(code) == *code
            && Evidence::read_all(&self.to_string()).as_deref() == Some(std::slice::from_ref(self))
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Command { command, exit } => write!(f, "{} exits {exit}", as_code(command)),
            Evidence::File { path, digest } => write!(f, "{} sha256 `{digest}`", as_code(path)),
        }
    }
}

/// Quotes a text as code, with more backticks than it contains.
fn as_code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest + 1);
    let padded = text.starts_with('`') || text.ends_with('`');
    let pad = if padded { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// Reads the code span at the beginning of a text, and returns the text after it.
fn code_span(text: &str) -> Option<(String, &str)> {
    let length = text.bytes().take_while(|byte| *byte == b'`').count();
    if length == 0 {
        return None;
    }
    let mut at = length;
    loop {
        at += text[at..].find('`')?;
        let run = text[at..].bytes().take_while(|byte| *byte == b'`').count();
        if run == length {
            break;
        }
        at += run;
    }
    let inner = &text[length..at];
    let stripped = inner.strip_prefix(' ').and_then(|inner| inner.strip_suffix(' '));
    let code = stripped.filter(|_| inner.contains('`')).unwrap_or(inner);
    Some((code.to_owned(), &text[at + length..]))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Digest, DigestError> {
        let wrong = || DigestError { text: words::cut(text, 80).to_owned() };
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut digest = [0; 32];
        for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Digest(digest))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Digest, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

    fn command(command: &str, exit: i32) -> Evidence {
        Evidence::Command { command: command.to_owned(), exit }
    }

    #[track_caller]
    fn check(text: &str, want: Option<&[Evidence]>) {
        assert_eq!(Evidence::read_all(text).as_deref(), want, "{text}");
        for evidence in want.into_iter().flatten() {
            assert!(evidence.can_be_written(), "{evidence}");
        }
    }

    #[test]
    fn forms() {
        let file = Evidence::File { path: "a b.md".into(), digest: HEX.parse().unwrap() };
        check("`cargo test` exits 0", Some(&[command("cargo test", 0)]));
        check("`cargo test` exit code 0.", Some(&[command("cargo test", 0)]));
        check("`a` exits 1; `b` exited with -1", Some(&[command("a", 1), command("b", -1)]));
        check("`a` exits 0 and `b` exits 0", Some(&[command("a", 0), command("b", 0)]));
        check("`` echo `date` `` exits 0", Some(&[command("echo `date`", 0)]));
        check("`` ` `` exits 0", Some(&[command("`", 0)]));
        check(&format!("`a b.md` sha256 `{HEX}`"), Some(std::slice::from_ref(&file)));
        check(&format!("`a b.md` sha256: {HEX}"), Some(&[file]));
        check("`a b.md` sha256 12ab", None);
        check("`cargo test` passes", None);
        check("`cargo test` exits 0, I think", None);
        check("`cargo test` exits 0x", None);
        check("cargo test exits 0", None);
        check("`open", None);
        check("", None);
    }

    #[test]
    fn what_cannot_be_tried_again_is_not_written() {
        for odd in ["", "a\nb", "a\u{1b}[2J", "a\u{202e}b", "  "] {
            let written = command(odd, 0).can_be_written();
            assert_eq!(written, odd == "  ", "{odd:?}");
        }
    }
}
