//! Whether a shell other than bash parses a script as bash does.
//!
//! Scripts are parsed by the rules of bash. All of these shells agree on POSIX syntax; anything beyond it may
//! mean something else, or hide where a quote ends.

use crate::shell::Word;
use crate::wrap::base_name;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Bash,
    /// As POSIX specifies; beyond that, unknown.
    Posix,
    /// Like POSIX, but interactive zsh has no comments, and its options are unknown.
    Zsh,
}

impl Dialect {
    /// Returns how the scripts of a command are parsed; `outer` is the dialect of the command itself.
    pub(super) fn for_command(words: &[Word], outer: Self) -> Self {
        match words.first().and_then(Word::known).map(base_name) {
            Some("bash" | "rbash") => Self::Bash,
            Some("zsh") => Self::Zsh,
            Some("eval" | "trap" | "alias") => outer,
            _ => Self::Posix,
        }
    }

    /// Tells whether bash and this shell certainly agree on a script.
    pub(super) fn reads_as_bash(self, text: &str) -> bool {
        match self {
            Self::Bash => true,
            Self::Posix => is_plain(text, true),
            // An interactive zsh has no comments.
            Self::Zsh => is_plain(text, false),
        }
    }
}

/// Tells whether there is nothing but plain POSIX syntax outside quotes.
fn is_plain(text: &str, comments: bool) -> bool {
    // Quotes in here-documents and nested commands may not be closed where they seem to be, so there
    // everything counts.
    let nested = ["<<", "`", "$("].iter().any(|begin| text.contains(begin));
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut before = b'\n';
    // Whether only blanks separate this from where a command may begin.
    let mut begins = true;
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        if FOREIGN.iter().any(|foreign| rest.starts_with(foreign.as_bytes())) {
            return false;
        }
        let starts = b" \t\n;&|()".contains(&before);
        if starts && RESERVED.iter().any(|word| is_word(rest, word)) {
            return false;
        }
        // zsh runs what follows; as an argument it has no special meaning.
        if starts && begins && is_word(rest, "-") {
            return false;
        }
        begins = b"\n;&|({`".contains(&byte) || begins && b" \t".contains(&byte);
        // A brace that is neither a reserved word, nor `{}`, nor part of a parameter.
        let brace = byte == b'{' && before != b'$';
        if brace && !nested && rest.get(1).is_some_and(|next| !b" \t\n}".contains(next)) {
            return false;
        }
        if byte == b'#' && b"<>".contains(&before) {
            return false;
        }
        // A continued line does not change where a word begins.
        if rest.starts_with(b"\\\n") && !nested {
            at += 2;
            continue;
        }
        let length = match byte {
            b'\\' if !nested => 2,
            b'\'' if !nested => quoted(rest, |byte| byte == b'\''),
            b'"' if !nested => double_quoted(rest),
            b'#' if starts && !comments => return false,
            b'#' if starts && !nested => quoted(rest, |byte| byte == b'\n'),
            _ => 1,
        };
        before = if length == 1 { byte } else { b'x' };
        // A comment ends at the end of its line.
        if byte == b'#' && length > 1 {
            before = b'\n';
        }
        at += length;
    }
    true
}

fn is_word(rest: &[u8], word: &str) -> bool {
    rest.strip_prefix(word.as_bytes())
        .is_some_and(|after| after.first().is_none_or(|next| b" \t\n".contains(next)))
}

/// Returns the length up to the byte that ends the quote.
fn quoted(rest: &[u8], ends: impl Fn(u8) -> bool) -> usize {
    let length = rest.iter().skip(1).position(|byte| ends(*byte));
    length.map_or(rest.len(), |length| length + 2)
}

fn double_quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Syntax that other shells parse differently, or not at all.
const FOREIGN: [&str; 12] =
    ["$'", "$\"", "$[", "((", "<(", ">(", "=(", "&>", ">&|", "|&", "<<<", ";&"];

/// Words that are reserved in some shells only.
const RESERVED: [&str; 7] = ["[[", "function", "select", "coproc", "foreach", "repeat", "always"];
