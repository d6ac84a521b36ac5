//! The queue of a thread: input from clients, each of which starts a turn when the thread is idle (pure).
//!
//! ```text
//! add ─▶ waiting ──begin──▶ sent in a turn ──settle: it was sent──▶ removed
//!           ▲                      │
//!           └────it was not sent───┘
//! ```
//!
//! An entry stays in the queue until its message is in the thread's log, so it is neither lost nor sent twice, even if the
//! server is killed.

use protocol::id::ThreadId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::RpcError;
use crate::request::UserInput;

/// Most entries of a queue.
pub const QUEUED_MAX: usize = 256;
/// Most bytes of the entries of a queue, as JSON.
pub const QUEUE_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Queue {
    entries: Vec<Entry>,
    /// How many entries were ever added, so that ids are never reused.
    added: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    queued: Queued,
    /// The turn that sends the entry, or was to send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<String>,
}

/// Input that waits until the thread is idle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "QueuedSubmission")]
pub(crate) struct Queued {
    pub(crate) id: String,
    pub(crate) input: Vec<UserInput>,
    /// The client's id for the message.
    pub(crate) client_user_message_id: String,
}

impl Queue {
    /// Returns whether nothing was ever queued.
    pub(crate) fn is_unused(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the waiting entries, in order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Queued> {
        self.entries.iter().filter(|entry| entry.turn.is_none()).map(|entry| &entry.queued)
    }

    /// Returns the turns that send entries, or were to send them.
    pub(crate) fn turns(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| entry.turn.as_deref())
    }

    /// Adds input at the end.
    pub(crate) fn add(
        &mut self,
        input: Vec<UserInput>,
        client_user_message_id: String,
        now_ms: u64,
    ) -> Result<Queued, RpcError> {
        if self.entries.len() >= QUEUED_MAX {
            return Err(RpcError::invalid(format!(
                "{QUEUED_MAX} inputs are queued, which is as many as can be: wait, or delete some"
            )));
        }
        self.added += 1;
        let mut number = [0; 10];
        number[2..].copy_from_slice(&self.added.to_be_bytes());
        // A UUID like those of threads, as clients expect.
        let id = ThreadId::new(now_ms, number).to_string();
        let queued = Queued { id, input, client_user_message_id };
        self.entries.push(Entry { queued: queued.clone(), turn: None });
        self.check_bytes()?;
        Ok(queued)
    }

    /// Replaces the input of a waiting entry.
    pub(crate) fn update(&mut self, id: &str, input: Vec<UserInput>) -> Result<Queued, RpcError> {
        let queued = &mut self.find(Some(id))?.queued;
        queued.input = input;
        let queued = queued.clone();
        self.check_bytes()?;
        Ok(queued)
    }

    /// Removes an entry. Returns false if it is not waiting.
    pub(crate) fn delete(&mut self, id: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.turn.is_some() || entry.queued.id != id);
        self.entries.len() < before
    }

    /// Changes the order; `ids` must contain every waiting entry once. Returns false if the order is the same as before.
    pub(crate) fn reorder(&mut self, ids: &[String]) -> Result<bool, RpcError> {
        let now: Vec<_> = self.waiting().map(|queued| queued.id.clone()).collect();
        let sorted = |mut ids: Vec<String>| {
            ids.sort_unstable();
            ids
        };
        if sorted(now.clone()) != sorted(ids.to_vec()) {
            return Err(RpcError::invalid(
                "queue reorder must include every queued submission exactly once",
            ));
        }
        let place = |entry: &Entry| ids.iter().position(|id| *id == entry.queued.id);
        // What is being said is in no list, and comes first.
        self.entries.sort_by_key(place);
        Ok(now != ids)
    }

    /// Returns the first waiting entry, or the one with this id.
    pub(crate) fn next(&mut self, id: Option<&str>) -> Result<Queued, RpcError> {
        Ok(self.find(id)?.queued.clone())
    }

    /// Records the turn that is about to send an entry.
    pub(crate) fn begin(&mut self, id: &str, turn: &str) -> Result<(), RpcError> {
        self.find(Some(id))?.turn = Some(turn.to_owned());
        Ok(())
    }

    /// Settles the turns that were to send entries: entries that were sent are removed, the others wait again.
    pub(crate) fn settle(&mut self, was_said: impl Fn(&str) -> Option<bool>) {
        self.entries.retain_mut(|entry| {
            let said = entry.turn.as_deref().and_then(&was_said);
            if said == Some(false) {
                entry.turn = None;
            }
            said != Some(true)
        });
    }

    fn find(&mut self, id: Option<&str>) -> Result<&mut Entry, RpcError> {
        let mut waiting = self.entries.iter_mut().filter(|entry| entry.turn.is_none());
        match id {
            None => waiting.next().ok_or_else(|| RpcError::invalid("queue is empty")),
            Some(id) => waiting.find(|entry| entry.queued.id == id).ok_or_else(|| {
                RpcError::invalid(format!("queued submission not found: {id:.100}"))
            }),
        }
    }

    fn check_bytes(&self) -> Result<(), RpcError> {
        let bytes = serde_json::to_vec(&self.entries).expect("a queue is plain data").len();
        if bytes > QUEUE_BYTES_MAX {
            let most = QUEUE_BYTES_MAX >> 20;
            return Err(RpcError::invalid(format!(
                "the queue would have more than {most} MiB: wait, or refer to images by their files"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &str) -> Vec<UserInput> {
        vec![UserInput::Text { text: text.to_owned(), text_elements: Vec::new() }]
    }

    enum Step {
        Add(&'static str),
        Update(&'static str, &'static str),
        Delete(&'static str),
        Reorder(&'static str),
        /// The text of the entry, or `None` for the first one; and the turn.
        Begin(Option<&'static str>, &'static str),
        /// The turn, and whether it sent its message.
        Settle(&'static str, bool),
        /// The server is killed and starts again.
        Restart,
    }
    use Step::*;

    /// Runs the steps; each comes with the entries that wait after it, or the expected error.
    #[track_caller]
    fn check(steps: &[(Step, Result<&str, &str>)]) {
        let mut queue = Queue::default();
        for (number, (step, want)) in steps.iter().enumerate() {
            let text_of = |queued: &Queued| match &queued.input[0] {
                UserInput::Text { text, .. } => text.clone(),
                other => panic!("{other:?}"),
            };
            let id_of = |text: &str| {
                let found = queue.entries.iter().find(|entry| text_of(&entry.queued) == text);
                found.map_or_else(|| text.to_owned(), |entry| entry.queued.id.clone())
            };
            let before = queue.clone();
            let done = match step {
                Add(text) => queue.add(input(text), "c".into(), 1).map(drop),
                Update(text, to) => queue.update(&id_of(text), input(to)).map(drop),
                Delete(text) => {
                    let id = id_of(text);
                    let there = queue.waiting().any(|queued| queued.id == id);
                    assert_eq!(queue.delete(&id), there);
                    Ok(())
                }
                Reorder(texts) => {
                    let ids: Vec<_> = texts.split_whitespace().map(id_of).collect();
                    queue.reorder(&ids).map(|changed| assert_eq!(changed, queue != before))
                }
                Begin(text, turn) => {
                    let id = text.map(id_of);
                    queue.next(id.as_deref()).and_then(|next| queue.begin(&next.id, turn))
                }
                Settle(turn, said) => {
                    queue.settle(|it| (it == *turn).then_some(*said));
                    Ok(())
                }
                Restart => {
                    queue = serde_json::from_slice(&serde_json::to_vec(&queue).unwrap()).unwrap();
                    Ok(())
                }
            };
            match (done, want) {
                (Ok(()), Ok(want)) => {
                    let waiting: Vec<_> = queue.waiting().map(text_of).collect();
                    assert_eq!(waiting.join(" "), *want, "step {number}");
                }
                (Err(error), Err(want)) => assert!(error.message.contains(want), "{error:?}"),
                (done, want) => panic!("step {number}: {done:?}, and not {want:?}"),
            }
        }
    }

    #[test]
    fn queues() {
        check(&[
            (Begin(None, "t0"), Err("queue is empty")),
            (Add("a"), Ok("a")),
            (Add("b"), Ok("a b")),
            (Add("c"), Ok("a b c")),
            (Update("b", "B"), Ok("a B c")),
            (Update("b", "x"), Err("not found: b")),
            (Reorder("c a"), Err("exactly once")),
            (Reorder("c a a"), Err("exactly once")),
            (Reorder("c a B"), Ok("c a B")),
            (Reorder("c a B"), Ok("c a B")),
            (Delete("a"), Ok("c B")),
            (Delete("a"), Ok("c B")),
            (Begin(Some("a"), "t1"), Err("not found: a")),
            (Begin(Some("B"), "t1"), Ok("c")),
            (Settle("t1", true), Ok("c")),
            (Begin(None, "t2"), Ok("")),
            (Begin(None, "t3"), Err("queue is empty")),
        ]);
    }

    /// An entry whose turn did not send it waits again, in its old place.
    #[test]
    fn nothing_is_lost() {
        check(&[
            (Add("a"), Ok("a")),
            (Add("b"), Ok("a b")),
            (Add("c"), Ok("a b c")),
            (Begin(None, "t1"), Ok("b c")),
            (Update("a", "x"), Err("not found")),
            (Delete("a"), Ok("b c")),
            (Restart, Ok("b c")),
            (Reorder("c b"), Ok("c b")),
            (Settle("t2", true), Ok("c b")),
            (Settle("t1", false), Ok("a c b")),
            (Begin(None, "t3"), Ok("c b")),
            (Restart, Ok("c b")),
            (Settle("t3", true), Ok("c b")),
            (Restart, Ok("c b")),
        ]);
    }

    #[test]
    fn queues_have_bounds() {
        let mut queue = Queue::default();
        let mut ids = std::collections::HashSet::new();
        for _ in 0..QUEUED_MAX {
            assert!(ids.insert(queue.add(input("a"), "c".into(), 1).unwrap().id));
        }
        let full = queue.add(input("a"), "c".into(), 1).unwrap_err();
        assert!(full.message.contains("as many as can be"), "{full:?}");
        let long = "x".repeat(QUEUE_BYTES_MAX);
        let mut queue = Queue::default();
        let refused = queue.add(input(&long), "c".into(), 1).unwrap_err();
        assert!(refused.message.contains("16 MiB"), "{refused:?}");
    }
}
