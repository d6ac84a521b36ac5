//! The head of a file, and the replacement for a lost one.

use std::io;
use std::ops::ControlFlow;

use log::{Line, PAGINATED, SessionMeta, TurnContext, kind};

use crate::disk::DiskFile;
use crate::part::Part;
use crate::scan::{Body, scan};

impl Part {
    /// Reconstructs a head from the rest of the open file.
    pub(crate) fn made_up(&self, file: &dyn DiskFile, numbered: bool) -> io::Result<SessionMeta> {
        let mut cwd = None;
        let mut said = SessionMeta::default();
        let mut at_start = true;
        scan(file, 0..self.end_byte, &mut |piece| {
            match &piece.body {
                // A line with a wrong checksum may still be readable.
                Body::Broken { bytes, .. } if at_start => said = damaged_head(bytes),
                Body::Line { decoded, .. } if decoded.line.kind == kind::TURN_CONTEXT => {
                    let context = serde_json::from_str::<TurnContext>(decoded.line.payload.get());
                    cwd = context.ok().map(|context| context.cwd).filter(|cwd| !cwd.is_empty());
                }
                _ => {}
            }
            at_start = false;
            let done = cwd.is_some() || !said.cwd.is_empty();
            if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
        // Other programs refuse a head without a directory.
        let cwd = cwd.unwrap_or_else(|| "/".to_owned());
        let forked_from = self.base.as_ref().map(|base| base.thread_id);
        Ok(SessionMeta {
            id: Some(self.thread),
            session_id: match said.id {
                Some(_) => said.session_id,
                None => Some(self.thread.to_string()),
            },
            timestamp: or(said.timestamp, &self.made),
            cwd: or(said.cwd, &cwd),
            originator: or(said.originator, "heddle"),
            cli_version: or(said.cli_version, env!("CARGO_PKG_VERSION")),
            history_mode: numbered.then(|| PAGINATED.to_owned()),
            forked_from_id: said
                .forked_from_id
                .or_else(|| forked_from.filter(|id| *id != self.thread)),
            history_base: self.base.clone().filter(|base| base.end_byte_offset != u64::MAX),
            ..said
        })
    }
}

/// Returns whether a line can be the head of a file.
pub(crate) fn is_head(line: &Line<'_>) -> bool {
    line.kind == kind::SESSION_META
        && serde_json::from_str::<SessionMeta>(line.payload.get()).is_ok()
}

/// Reads the fields of a head that is damaged but still JSON.
fn damaged_head(bytes: &[u8]) -> SessionMeta {
    let line = serde_json::from_slice::<Line<'_>>(bytes).ok();
    let line = line.filter(|line| line.kind == kind::SESSION_META);
    line.and_then(|line| serde_json::from_str(line.payload.get()).ok()).unwrap_or_default()
}
