//! Exports a thread to one self-contained file.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use log::kind;
use protocol::id::ThreadId;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::head::is_head;
use crate::line::{begin, seal};
use crate::read::ReadReport;
use crate::scan::{Body, scan};
use crate::store::{FileStore, StoreError};

/// A line with the fields that other programs add next to its payload.
#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow, default)]
    timestamp: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
}

impl FileStore {
    /// Writes a thread as one self-contained file: with all that it continues, renumbered, without damaged
    /// lines.
    pub fn export(&self, id: ThreadId, out: &mut dyn Write) -> Result<ReadReport, StoreError> {
        let files = self.files(id)?.ok_or(StoreError::NotFound(id))?;
        let chain = self.chain(&files)?;
        let part = chain.parts.last().expect("a chain ends in the thread's own file");
        let numbered = self.is_numbered(&chain)?;
        let io = |source| StoreError::io(&part.path, source);
        let mut next = numbered.then_some(0);
        let mut head = None;
        let file = part.open().map_err(io)?;
        scan(&*file, 0..u64::MAX, &mut |piece| {
            if let Body::Line { decoded, .. } = &piece.body
                && is_head(&decoded.line)
            {
                let payload = decoded.line.payload.get().to_owned();
                head = Some((decoded.line.timestamp.clone().into_owned(), payload));
                return std::ops::ControlFlow::Break(());
            }
            std::ops::ControlFlow::Continue(())
        })
        .map_err(io)?;
        let (timestamp, payload) = match head {
            Some(head) => head,
            None => {
                let meta = part.made_up(&*file, numbered).map_err(io)?;
                (meta.timestamp.clone(), serde_json::to_string(&meta).map_err(|e| io(e.into()))?)
            }
        };
        let payload = standing_alone(&payload);
        let head = Whole {
            timestamp: timestamp.into(),
            kind: kind::SESSION_META.into(),
            payload: &payload,
            metadata: None,
        };
        let output = Path::new("the output");
        let mut bytes = Vec::new();
        put(&head, &mut next, &mut bytes);
        let mut done = out.write_all(&bytes);
        let (report, _) = self.read_chain(&chain, &mut |_, given| {
            let dropped = matches!(&*given.line.kind, kind::SESSION_META | kind::TOMBSTONE);
            if dropped || done.is_err() {
                return;
            }
            // It was already parsed as a line, with fewer fields.
            if let Ok(whole) = serde_json::from_slice(given.bytes) {
                bytes.clear();
                put(&whole, &mut next, &mut bytes);
                done = out.write_all(&bytes);
            }
        })?;
        done.and_then(|()| out.flush()).map_err(|source| StoreError::io(output, source))?;
        Ok(report)
    }
}

/// Appends a line with the next ordinal.
fn put(line: &Whole<'_>, next: &mut Option<u64>, out: &mut Vec<u8>) {
    let quoted = |text: &str| serde_json::to_string(text).expect("text can be quoted");
    // Another program may have written anything there.
    let timestamp = quoted(&line.timestamp);
    let start = begin(&timestamp[1..timestamp.len() - 1], *next, out);
    // Writing to memory cannot fail.
    let _ = write!(out, "\"type\":{},\"payload\":{}", quoted(&line.kind), line.payload.get());
    if let Some(metadata) = line.metadata {
        let _ = write!(out, ",\"metadata\":{}", metadata.get());
    }
    seal(start, out);
    *next = next.map(|next| next + 1);
}

/// Removes references to other files from a head.
fn standing_alone(payload: &str) -> Box<RawValue> {
    let head = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(payload);
    let mut head = head.unwrap_or_default();
    for key in ["history_base", "forked_from_id", "forked_from_ordinal_exclusive"] {
        head.remove(key);
    }
    serde_json::value::to_raw_value(&head).expect("a head is plain data")
}
