//! Finds a term in the messages of a thread, ignoring case (pure).

use schemars::JsonSchema;
use serde::Serialize;

use crate::message::RpcError;
use crate::page::{Page, turn_cursor};
use crate::request::{PageOf, UserInput};
use crate::wire::{Body, Turn};

/// Occurrences per page if the client sets no limit.
const LIMIT_DEFAULT: u32 = 25;
/// Most occurrences per page.
const LIMIT_MAX: u32 = 100;
/// Longest search term, in characters.
const TERM_CHARS_MAX: usize = 1000;
/// Characters of context on either side of an occurrence.
const CONTEXT_CHARS: usize = 80;

/// An occurrence of the term in a message of the user or the model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ThreadSearchOccurrence")]
pub struct Occurrence {
    turn_id: String,
    item_id: String,
    /// The occurrence with the text around it.
    snippet: String,
    /// Position of the occurrence within the snippet.
    snippet_match_range: Utf16Range,
    /// The cursor for `thread/turns/list` to start with the turn of this occurrence.
    turn_cursor: String,
}

/// A range in UTF-16 code units, as JavaScript counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ThreadSearchTextRange")]
pub struct Utf16Range {
    start: usize,
    end: usize,
}

/// Returns a page of occurrences of `term`, oldest message first.
pub fn occurrences(
    turns: &[Turn],
    term: &str,
    page: &PageOf,
) -> Result<Page<Occurrence>, RpcError> {
    let wanted: Vec<char> = term.chars().map(folded).collect();
    if term.trim().is_empty() {
        return Err(RpcError::invalid("thread/searchOccurrences requires a non-empty searchTerm"));
    }
    if wanted.len() > TERM_CHARS_MAX {
        let long = format!("searchTerm has more than {TERM_CHARS_MAX} characters: search for less");
        return Err(RpcError::invalid(long));
    }
    let skipped = match &page.cursor {
        None => 0,
        Some(text) => text
            .parse::<usize>()
            .map_err(|_| RpcError::invalid(format!("invalid cursor: {text:.100}")))?,
    };
    let limit = page.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX) as usize;
    let (mut seen, mut data) = (0, Vec::new());
    for turn in turns {
        for (item_id, text) in turn.items.iter().flat_map(|item| texts(&item.body)) {
            for (begin, end) in find(text, &wanted) {
                seen += 1;
                if seen <= skipped {
                    continue;
                }
                if data.len() == limit {
                    let next_cursor = Some((skipped + limit).to_string());
                    return Ok(Page { data, next_cursor, backwards_cursor: None });
                }
                let (snippet, snippet_match_range) = snippet(text, begin, end);
                data.push(Occurrence {
                    turn_id: turn.id.clone(),
                    item_id: item_id.to_owned(),
                    snippet,
                    snippet_match_range,
                    turn_cursor: turn_cursor(&turn.id),
                });
            }
        }
    }
    Ok(Page { data, next_cursor: None, backwards_cursor: None })
}

/// Returns the texts of a message.
fn texts(body: &Body) -> Vec<(&str, &str)> {
    match body {
        Body::UserMessage { id, content, .. } => {
            let mut texts = Vec::new();
            for part in content {
                if let UserInput::Text { text, .. } = part {
                    texts.push((id.as_str(), text.as_str()));
                }
            }
            texts
        }
        Body::AgentMessage { id, text, .. } => vec![(id, text)],
        _ => Vec::new(),
    }
}

/// Folds the case of a character to a single character, so that positions stay the same.
fn folded(char: char) -> char {
    char.to_lowercase().next().unwrap_or(char)
}

/// Finds all occurrences that do not overlap, as byte ranges, in time linear in the text (Knuth-Morris-Pratt).
fn find(text: &str, wanted: &[char]) -> Vec<(usize, usize)> {
    let mut borders = vec![0; wanted.len()];
    let mut border = 0;
    for at in 1..wanted.len() {
        while border > 0 && wanted[at] != wanted[border] {
            border = borders[border - 1];
        }
        border += usize::from(wanted[at] == wanted[border]);
        borders[at] = border;
    }
    let (mut found, mut matched) = (Vec::new(), 0);
    // Where each of the last characters begins, as many as the term has.
    let mut begins = vec![0; wanted.len()];
    for (number, (at, char)) in text.char_indices().enumerate() {
        begins[number % wanted.len()] = at;
        let char_folded = folded(char);
        while matched > 0 && wanted[matched] != char_folded {
            matched = borders[matched - 1];
        }
        matched += usize::from(wanted[matched] == char_folded);
        if matched == wanted.len() {
            found.push((begins[(number + 1) % wanted.len()], at + char.len_utf8()));
            matched = 0;
        }
    }
    found
}

/// Cuts out an occurrence with the text around it, and returns its position in that snippet.
fn snippet(text: &str, begin: usize, end: usize) -> (String, Utf16Range) {
    let from = text[..begin].char_indices().rev().nth(CONTEXT_CHARS - 1).map_or(0, |(at, _)| at);
    let after = text[end..].char_indices().nth(CONTEXT_CHARS);
    let to = after.map_or(text.len(), |(at, _)| end + at);
    let units = |text: &str| text.encode_utf16().count();
    let start = units(&text[from..begin]);
    let range = Utf16Range { start, end: start + units(&text[begin..end]) };
    (text[from..to].to_owned(), range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Item;

    #[track_caller]
    fn check(text: &str, term: &str, want: &[&str]) {
        let wanted: Vec<char> = term.chars().map(folded).collect();
        let found: Vec<_> =
            find(text, &wanted).iter().map(|(from, to)| &text[*from..*to]).collect();
        assert_eq!(found, want, "{term} in {text}");
    }

    #[test]
    fn places() {
        check("one Three thREE", "three", &["Three", "thREE"]);
        check("aaaa", "aa", &["aa", "aa"]);
        check("aabaab", "aab", &["aab", "aab"]);
        check("ÄRGER ärger", "Ärger", &["ÄRGER", "ärger"]);
        check("日本", "本", &["本"]);
        check("", "x", &[]);
    }

    #[test]
    fn pages() {
        let body = Body::agent_message("m".into(), format!("{}x👩 hit", "long ".repeat(40)));
        let item = Item { body, started_at_ms: None, completed_at_ms: None };
        let turn = Turn { items: vec![item.clone(), item], ..Turn::new("t1".into()) };
        let page = |limit, cursor: Option<&str>| {
            let page = PageOf { limit: Some(limit), cursor: cursor.map(str::to_owned) };
            occurrences(std::slice::from_ref(&turn), "HIT", &page).unwrap()
        };
        let first = page(1, None);
        assert_eq!((first.data.len(), first.next_cursor.as_deref()), (1, Some("1")));
        let Occurrence { snippet, snippet_match_range: Utf16Range { start, end }, .. } =
            &first.data[0];
        let units: Vec<_> = snippet.encode_utf16().collect();
        assert_eq!(String::from_utf16(&units[*start..*end]).unwrap(), "hit");
        assert!(snippet.chars().count() < 100, "{snippet}");
        let second = page(1, Some("1"));
        assert_eq!((second.data.len(), second.next_cursor), (1, None));
        assert!(page(9, Some("2")).data.is_empty());
        for (term, cursor) in [(" ", None), ("x", Some("x".to_owned())), (&*"x".repeat(2000), None)]
        {
            let page = PageOf { limit: None, cursor };
            assert!(occurrences(&[], term, &page).is_err(), "{term:.9}");
        }
    }

    proptest! {
        /// The standard library finds the same matches where case folding changes no lengths.
        #[test]
        fn ascii_is_found(text in "[abAB]{0,40}", term in "[abAB]{1,4}") {
            let wanted: Vec<char> = term.chars().map(folded).collect();
            let lower = text.to_lowercase();
            let want: Vec<_> = lower.match_indices(&term.to_lowercase()).map(|(at, _)| at).collect();
            let found: Vec<_> = find(&text, &wanted).iter().map(|(from, _)| *from).collect();
            prop_assert_eq!(found, want);
        }
    }
}
