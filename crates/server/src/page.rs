//! Splits the turns and items of a thread into pages, with cursors in both directions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::RpcError;
use crate::request::{Direction, ItemsList, TurnsList};
use crate::wire::{Item, Turn};

/// Entries per page if the client sets no limit.
pub const LIMIT_DEFAULT: u32 = 25;
/// Most entries per page.
pub const LIMIT_MAX: u32 = 100;

/// A page of turns, or of items.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub data: Vec<T>,
    /// The cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
    /// The cursor for reading in the opposite order; that page starts with the first entry of this one.
    pub backwards_cursor: Option<String>,
}

/// An item and the turn that it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ThreadItemEntry")]
pub struct ItemEntry {
    pub turn_id: String,
    pub item: Item,
    pub started_at_ms: Option<u64>,
    pub completed_at_ms: Option<u64>,
}

/// A position in a list of turns or items. It is opaque to clients.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cursor {
    turn_id: String,
    /// Only in lists of items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    item_id: Option<String>,
    include_anchor: bool,
}

/// Returns the requested page of the turns of a thread, oldest first.
pub fn page(turns: Vec<Turn>, asked: &TurnsList) -> Result<Page<Turn>, RpcError> {
    let place = |turn: &Turn| (turn.id.clone(), None);
    let direction = asked.sort_direction.unwrap_or_default();
    cut(turns, direction, asked.cursor.as_deref(), asked.limit, place)
}

/// Returns the requested page of the items of a thread, oldest turn first.
pub fn items(turns: Vec<Turn>, asked: &ItemsList) -> Result<Page<ItemEntry>, RpcError> {
    let entries = entries(turns, asked.turn_id.as_deref());
    let place = |entry: &ItemEntry| (entry.turn_id.clone(), Some(entry.item.body.id().to_owned()));
    let direction = asked.sort_direction.unwrap_or(Direction::Asc);
    cut(entries.collect(), direction, asked.cursor.as_deref(), asked.limit, place)
}

/// Returns the cursors of the newest turn and the newest item, from which ascending lists continue.
pub fn ends(turns: &[Turn]) -> (Option<String>, Option<String>) {
    let turn = turns.last().map(|turn| turn_cursor(&turn.id));
    let item = turns.iter().rev().find_map(|turn| Some((turn, turn.items.last()?)));
    let item = item.map(|(turn, item)| {
        let (turn_id, item_id) = (turn.id.clone(), Some(item.body.id().to_owned()));
        let cursor = Cursor { turn_id, item_id, include_anchor: true };
        serde_json::to_string(&cursor).expect("a cursor is plain data")
    });
    (turn, item)
}

/// Returns the items of all turns, or of one turn.
pub fn entries(turns: Vec<Turn>, of: Option<&str>) -> impl Iterator<Item = ItemEntry> {
    let wanted = move |turn: &Turn| of.is_none_or(|id| id == turn.id);
    turns.into_iter().filter(wanted).flat_map(|turn| {
        let turn_id = turn.id;
        turn.items.into_iter().map(move |item| ItemEntry {
            turn_id: turn_id.clone(),
            started_at_ms: item.started_at_ms,
            completed_at_ms: item.completed_at_ms,
            item,
        })
    })
}

/// Cuts a page out of a list that is sorted oldest first.
fn cut<T>(
    mut all: Vec<T>,
    direction: Direction,
    cursor: Option<&str>,
    limit: Option<u32>,
    place: impl Fn(&T) -> (String, Option<String>),
) -> Result<Page<T>, RpcError> {
    if direction == Direction::Desc {
        all.reverse();
    }
    let start = match cursor {
        None => 0,
        Some(text) => {
            let garbage = || RpcError::invalid(format!("invalid cursor: {}", short(text)));
            let Cursor { turn_id, item_id, include_anchor } =
                serde_json::from_str(text).map_err(|_| garbage())?;
            let anchor = (turn_id, item_id);
            let found = all.iter().position(|entry| place(entry) == anchor);
            found.ok_or_else(garbage)? + usize::from(!include_anchor)
        }
    };
    let limit = limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
    let mut data = all.split_off(start);
    let more = data.len() > limit as usize;
    data.truncate(limit as usize);
    let cursor = |entry: &T, include_anchor| {
        let (turn_id, item_id) = place(entry);
        let cursor = Cursor { turn_id, item_id, include_anchor };
        serde_json::to_string(&cursor).expect("a cursor is plain data")
    };
    Ok(Page {
        next_cursor: data.last().filter(|_| more).map(|entry| cursor(entry, false)),
        backwards_cursor: data.first().map(|entry| cursor(entry, true)),
        data,
    })
}

/// Returns the cursor of a list of turns that starts with this turn.
pub fn turn_cursor(turn_id: &str) -> String {
    let cursor = Cursor { turn_id: turn_id.to_owned(), item_id: None, include_anchor: true };
    serde_json::to_string(&cursor).expect("a cursor is plain data")
}

fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(100)]
}

#[cfg(test)]
mod tests {
    use protocol::id::ThreadId;

    use super::*;
    use crate::wire::Body;

    fn asked(limit: Option<u32>, cursor: Option<String>, direction: Direction) -> TurnsList {
        let thread_id = ThreadId::new(0, [0; 10]);
        let sort_direction = Some(direction);
        TurnsList { thread_id, limit, cursor, sort_direction, items_view: None }
    }

    fn turns(count: usize) -> Vec<Turn> {
        (1..=count).map(|number| Turn::new(format!("t{number}"))).collect()
    }

    /// Reads `count` turns page by page, and compares the pages.
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

    #[test]
    fn pages_of_items() {
        let message = |id: &str| Item {
            body: Body::agent_message(id.to_owned(), String::new()),
            started_at_ms: Some(1),
            completed_at_ms: Some(2),
        };
        let turn = |id: &str, items: &[&str]| Turn {
            items: items.iter().map(|id| message(id)).collect(),
            ..Turn::new(id.to_owned())
        };
        // Ids of items come again in another turn.
        let turns = || vec![turn("t1", &["a", "b"]), turn("t2", &["a", "c"])];
        let asked = |turn_id: Option<&str>, cursor, sort_direction| ItemsList {
            thread_id: ThreadId::new(0, [0; 10]),
            turn_id: turn_id.map(str::to_owned),
            limit: Some(2),
            cursor,
            sort_direction,
        };
        let names = |page: &Page<ItemEntry>| -> Vec<String> {
            page.data.iter().map(|it| format!("{} {}", it.turn_id, it.item.body.id())).collect()
        };
        let first = items(turns(), &asked(None, None, None)).unwrap();
        assert_eq!(names(&first), ["t1 a", "t1 b"]);
        let second = items(turns(), &asked(None, first.next_cursor, None)).unwrap();
        assert_eq!(
            (names(&second), &second.next_cursor),
            (vec!["t2 a".into(), "t2 c".into()], &None)
        );
        let back = asked(None, second.backwards_cursor, Some(Direction::Desc));
        assert_eq!(names(&items(turns(), &back).unwrap()), ["t2 a", "t1 b"]);
        let one = items(turns(), &asked(Some("t2"), None, None)).unwrap();
        assert_eq!(names(&one), ["t2 a", "t2 c"]);
        assert!(items(turns(), &asked(None, Some("{}".into()), None)).is_err());
    }
}
