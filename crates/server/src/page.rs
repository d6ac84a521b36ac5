//! Splits the turns of a thread into pages, with cursors in both directions.

use serde::{Deserialize, Serialize};

use crate::message::RpcError;
use crate::request::{Direction, TurnsList};
use crate::wire::Turn;

/// Default number of turns per page.
pub const LIMIT_DEFAULT: u32 = 25;
/// Most turns per page.
pub const LIMIT_MAX: u32 = 100;

/// A page of turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    pub data: Vec<Turn>,
    /// Where the next page starts; none at the end.
    pub next_cursor: Option<String>,
    /// Where the opposite direction starts: with it, and the other order, a page starts with the first turn
    /// of this one.
    pub backwards_cursor: Option<String>,
}

/// A position in a list of turns. It is opaque to clients.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cursor {
    turn_id: String,
    include_anchor: bool,
}

/// Returns the requested page of the turns of a thread, oldest first.
pub fn page(mut turns: Vec<Turn>, asked: &TurnsList) -> Result<Page, RpcError> {
    if asked.sort_direction.unwrap_or_default() == Direction::Desc {
        turns.reverse();
    }
    let start = match &asked.cursor {
        None => 0,
        Some(text) => {
            let garbage = || RpcError::invalid(format!("invalid cursor: {}", short(text)));
            let cursor: Cursor = serde_json::from_str(text).map_err(|_| garbage())?;
            let anchor = turns.iter().position(|turn| turn.id == cursor.turn_id);
            anchor.ok_or_else(garbage)? + usize::from(!cursor.include_anchor)
        }
    };
    let limit = asked.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
    let mut data = turns.split_off(start);
    let more = data.len() > limit as usize;
    data.truncate(limit as usize);
    let cursor = |turn: &Turn, include_anchor| {
        let cursor = Cursor { turn_id: turn.id.clone(), include_anchor };
        serde_json::to_string(&cursor).expect("a cursor is plain data")
    };
    Ok(Page {
        next_cursor: data.last().filter(|_| more).map(|turn| cursor(turn, false)),
        backwards_cursor: data.first().map(|turn| cursor(turn, true)),
        data,
    })
}

fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(100)]
}

#[cfg(test)]
mod tests {
    use protocol::id::ThreadId;

    use super::*;

    fn asked(limit: Option<u32>, cursor: Option<String>, direction: Direction) -> TurnsList {
        let thread = ThreadId::new(0, [0; 10]);
        let sort_direction = Some(direction);
        TurnsList { thread, limit, cursor, sort_direction, items_view: None }
    }

    fn turns(count: usize) -> Vec<Turn> {
        (1..=count).map(|number| Turn::new(format!("t{number}"))).collect()
    }

    /// Pages through `count` turns; compares the pages.
    #[track_caller]
    fn check(count: usize, limit: u32, direction: Direction, want: &[&str]) {
        let mut got = Vec::new();
        let mut cursor = None;
        loop {
            let page = page(turns(count), &asked(Some(limit), cursor, direction)).unwrap();
            got.push(page.data.iter().map(|turn| turn.id.as_str()).collect::<Vec<_>>().join(" "));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(got, want);
    }

    #[test]
    fn pages() {
        check(0, 2, Direction::Desc, &[""]);
        check(5, 2, Direction::Desc, &["t5 t4", "t3 t2", "t1"]);
        check(4, 2, Direction::Asc, &["t1 t2", "t3 t4"]);
        check(2, 0, Direction::Asc, &["t1", "t2"]);
        let all = page(turns(150), &asked(Some(u32::MAX), None, Direction::Asc)).unwrap();
        assert_eq!(all.data.len(), LIMIT_MAX as usize);
        let some = page(turns(150), &asked(None, None, Direction::Asc)).unwrap();
        assert_eq!(some.data.len(), LIMIT_DEFAULT as usize);
    }

    #[test]
    fn pages_can_be_read_backwards() {
        let first = page(turns(5), &asked(Some(2), None, Direction::Desc)).unwrap();
        let second = page(turns(5), &asked(Some(2), first.next_cursor, Direction::Desc)).unwrap();
        let back = asked(Some(9), second.backwards_cursor, Direction::Asc);
        let ids: Vec<_> =
            page(turns(5), &back).unwrap().data.into_iter().map(|turn| turn.id).collect();
        assert_eq!(ids, ["t3", "t4", "t5"]);
    }

    #[test]
    fn garbage_is_refused() {
        for cursor in ["garbage", "{}", r#"{"turnId":"nope","includeAnchor":true}"#] {
            let asked = asked(None, Some(cursor.into()), Direction::Asc);
            assert!(page(turns(1), &asked).unwrap_err().message.starts_with("invalid cursor"));
        }
    }
}
