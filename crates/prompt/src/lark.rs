//! Estimates the cost of a client's own grammar from its text.
//!
//! Rules cost as much as they are long. Terminals are patterns: one that is part of others is expanded in
//! each of them, and those that must or must not match together run side by side, like patterns of a schema.

use std::collections::HashMap;

use crate::schema::{CHOICES_MAX, choices_of};

/// Returns why a grammar is too expensive.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if text.len() > BYTES_MAX {
        return Err(format!("has {} bytes; a grammar can have {BYTES_MAX}", text.len()));
    }
    let mut scan = Scan::default();
    text.lines().for_each(|line| scan.line(line));
    if scan.conjunctions > 0 {
        let each = (1 + scan.choices).min(CHOICES_MAX);
        let all = each.saturating_pow(1 + scan.conjunctions);
        if all > CHOICES_MAX {
            return Err(
                "has too much in it that must match, or must not, at the same place".to_owned()
            );
        }
    }
    scan.expand()
}

#[derive(Default)]
struct Scan<'a> {
    /// Terminals: their length, and the terminals they contain.
    terminals: HashMap<&'a str, (usize, Vec<&'a str>)>,
    current: Option<&'a str>,
    conjunctions: u32,
    choices: u64,
}

impl<'a> Scan<'a> {
    fn line(&mut self, line: &'a str) {
        let mut rest = line;
        if let Some((name, body)) = definition(line) {
            self.current = Some(name);
            rest = body;
        }
        while let Some(first) = rest.chars().next() {
            if rest.starts_with("//") {
                return;
            }
            let length = match first {
                '"' | '/' => literal(rest, first),
                '&' | '~' => {
                    self.conjunctions = self.conjunctions.saturating_add(1);
                    1
                }
                letter if is_of_name(letter) => rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()),
                letter => letter.len_utf8(),
            };
            let (token, after) = rest.split_at(length);
            rest = after;
            self.choices += if first == '"' { 0 } else { choices_of(token) };
            let Some(current) = self.current else { continue };
            let entry = self.terminals.entry(current).or_default();
            match first {
                letter if letter.is_ascii_uppercase() => entry.1.push(token),
                letter if letter.is_whitespace() => {}
                _ => entry.0 += length,
            }
        }
    }

    /// Expands all terminals, up to the limits, counting only their length.
    fn expand(&self) -> Result<(), String> {
        let mut sizes: HashMap<&str, usize> =
            self.terminals.iter().map(|(name, (own, _))| (*name, *own)).collect();
        for _ in 0..NESTED_MAX {
            let mut next = HashMap::new();
            for (name, (own, parts)) in &self.terminals {
                let inner = parts.iter().filter(|part| is_terminal(part));
                let inner = inner.map(|part| sizes.get(part).copied().unwrap_or_default());
                let size = inner.fold(*own, usize::saturating_add);
                if size > TERMINAL_BYTES_MAX && is_terminal(name) {
                    let name: String = name.chars().take(64).collect();
                    return Err(format!(
                        "has a terminal `{name}` that is too long when it is written out"
                    ));
                }
                next.insert(*name, size.min(TERMINAL_BYTES_MAX + 1));
            }
            if next == sizes {
                return Ok(());
            }
            sizes = next;
        }
        Err(format!("nests terminals more than {NESTED_MAX} deep"))
    }
}

/// Returns the name that a line defines, and what follows the colon.
fn definition(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start().trim_start_matches(['?', '!']);
    let end = line.find(|c| !is_of_name(c))?;
    let (name, rest) = line.split_at(end);
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let colon = rest.find(':')?;
    let is_head = rest.starts_with([':', '[', '.', ' ', '\t', '{'])
        && !rest[..colon].contains(['"', '/', '|']);
    (begins && is_head).then(|| (name, &rest[colon + 1..]))
}

/// Returns the length of a literal.
fn literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        if letter == quote && !escaped {
            return at + 1;
        }
        escaped = letter == '\\' && !escaped;
    }
    text.len()
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn is_terminal(name: &str) -> bool {
    name.trim_start_matches('_').starts_with(|c: char| c.is_ascii_uppercase())
}

const BYTES_MAX: usize = 64 * 1024;
/// Largest expanded terminal, in bytes.
const TERMINAL_BYTES_MAX: usize = 16 * 1024;
/// Deepest nesting of terminals.
const NESTED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::check;

    #[track_caller]
    fn refused(grammar: &str, words: &str) {
        let error = check(grammar).expect_err(&grammar[..grammar.len().min(200)]);
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn expensive_grammars_are_refused() {
        let doubled: String =
            (1..30).map(|at| format!("T{at}: T{} T{}\n", at - 1, at - 1)).collect();
        refused(
            &format!("start: T29\nT0: \"a\" | /b/\n{doubled}"),
            "too long when it is written out",
        );
        let chain: String = (1..100).map(|at| format!("T{at}: T{} \"a\"\n", at - 1)).collect();
        refused(&format!("start: T99\nT0: /b/\n{chain}"), "32 deep");
        let windows: Vec<_> = (4..24).map(|at| format!("/(a|b)*a(a|b){{{at}}}/")).collect();
        refused(&format!("start: T\nT: {}", windows.join(" & ")), "at the same place");
        refused(&format!("start: T\nT: ~{}", windows.join("\n  & ~")), "at the same place");
        refused(&format!("start: \"{}\"", "a".repeat(70_000)), "65536");
    }

    #[test]
    fn grammars_in_use_are_accepted() {
        for grammar in [
            "start: begin hunk+ end\nbegin: \"*** Begin Patch\" LF\nhunk: /.+/ LF\nend: \"*** End\"\nLF: \"\\n\"",
            "start: WORD & ~/end/\nWORD: /[a-z]+/",
            "start: \"&&&&&&&&\" | \"~~~~~~~~\" // & ~ & ~ & ~ & ~ & ~ & ~\n",
            "?start: a\na[capture]: A B\nA.2: B | \"x\"\nB: /\\/\\/[a-z]+/i",
            "",
        ] {
            assert_eq!(check(grammar), Ok(()), "{grammar}");
        }
    }
}
