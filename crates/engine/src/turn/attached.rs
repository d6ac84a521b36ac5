//! Files of the user's messages: who is told what became of them, and how often.

use std::collections::HashSet;

use protocol::event::Event;
use protocol::file::{Digest, FilePart, FileReference};
use protocol::open::Open;
use protocol::responses::{KnownItem, KnownPart};

use super::Turn;
use crate::prompt;

/// What an endpoint that took a request got of an attached file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOutcome {
    pub file: FileReference,
    /// Why the model reads a text instead of it, if so.
    pub left_out: Option<String>,
}

/// Files of this turn that no endpoint has taken yet.
#[derive(Debug, Default)]
pub(super) struct Attached(Vec<FileReference>);

impl Attached {
    /// Notes the files of a message. Content that is attached twice is sent once, as far as anyone is told.
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

    /// Returns the event for a file that was sent, the first time.
    fn sent(&mut self, sha256: Digest) -> Option<Event> {
        let at = self.0.iter().position(|file| file.sha256 == sha256)?;
        Some(Event::FileSent(self.0.remove(at)))
    }
}

impl Turn {
    /// Tells the user which files were sent, and once per loaded thread which were not.
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

/// The files that users were warned about.
pub(crate) type LeftOut = HashSet<Digest>;
