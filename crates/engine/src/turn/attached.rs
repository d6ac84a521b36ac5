//! Files of the user's messages: reports once whether each was sent, or why it was left out.

use std::collections::HashSet;

use protocol::event::Event;
use protocol::file::{Digest, FilePart, FileReference};
use protocol::open::Open;
use protocol::responses::{KnownItem, KnownPart};

use super::Turn;
use crate::prompt;

/// Whether a request that an endpoint accepted had an attached file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOutcome {
    pub file: FileReference,
    /// Why the file was left out, so that the model read a text instead; none if it was sent.
    pub left_out: Option<String>,
}

/// Files of this turn that no endpoint has accepted yet.
#[derive(Debug, Default)]
pub(super) struct Attached(Vec<FileReference>);

impl Attached {
    /// Records the files of a message. A content that is attached twice is reported once.
    pub(super) fn note(&mut self, item: &KnownItem) {
        let KnownItem::Message(message) = item else { return };
        for part in &message.content.0 {
            if let Open::Known(KnownPart::File(FilePart(file))) = part
                && self.0.iter().all(|known| known.sha256 != file.sha256)
            {
                self.0.push(file.clone());
            }
        }
    }

    /// Returns the event for a file that was sent; none if the event was returned before.
    fn sent(&mut self, sha256: Digest) -> Option<Event> {
        let at = self.0.iter().position(|file| file.sha256 == sha256)?;
        Some(Event::FileSent(self.0.remove(at)))
    }
}

impl Turn {
    /// Emits an event for each file that was sent, and a warning for each that was left out, once per loaded thread.
    pub(super) fn on_files(&mut self, outcomes: Vec<FileOutcome>) {
        for FileOutcome { file, left_out } in outcomes {
            let event = match left_out {
                None => self.attached.sent(file.sha256),
                Some(why) => {
                    let new = self.context.left_out_files().insert(file.sha256);
                    new.then(|| Event::Warning(prompt::file_left_out(&file.name, &why)))
                }
            };
            event.into_iter().for_each(|event| self.emit(event));
        }
    }
}

/// Digests of the left-out files that the user was already warned about.
pub(crate) type LeftOut = HashSet<Digest>;
