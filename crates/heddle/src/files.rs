//! Files: attached to messages, and kept once in the staging area of the home.
//!
//! ```
//! use heddle::{Heddle, Input};
//!
//! # async fn example(heddle: Heddle, thread: heddle::Thread) -> Result<(), Box<dyn std::error::Error>> {
//! // By its path: it is staged when the turn starts.
//! let turn = thread.turn(Input::from("Summarise this paper.").file("paper.pdf"));
//! turn.run().await?;
//!
//! // Staged before, by its content. A temporary one is removed with its last handle, unless a turn has used it.
//! let chart = heddle.files().stage_bytes("chart.csv", "day,users\n1,7\n").await?.temporary();
//! let turn = thread.turn(Input::from("Which day was the best?").attachment(&chart));
//! turn.run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! * The content of a file decides its kind, not its name: PNG, JPEG, GIF and WebP images, PDFs, and UTF-8 text of any
//!   format are accepted. Other files, and files larger than [`Limits`] allow, are refused with a [`StageError`].
//! * The staging area has one copy of each content, named by its SHA-256. The log of a thread has a [`FileReference`];
//!   each request has the content, as the provider takes it.
//! * A file that the provider does not accept, or that is missing or damaged when a request is made, is left out: the
//!   model reads why, and the user gets a warning. The turn goes on.
//! * [`Event::FileStaged`] comes before the turn starts, and
//!   [`Event::FileSent`] when an endpoint has taken the first request with the file.
//! * [`Files::clean_up`] removes the contents that no thread refers to; otherwise, nothing is removed. It searches the
//!   threads of this home only. A program that has got the path of a file ([`Attachment::path`]) can rely on it while
//!   the attachment exists, which is for the whole turn over every transport. After the turn, it needs the file no
//!   more: `codex` has copied the content into its own logs, and a heddle with another home has a copy of its own.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use log::Line;
use protocol::event::Event;
use runtime::Library;
use staging::{Area, LogScan, Search, Staged};
use store::Store;
use store::index::{Direction, Filter, List, Sort};
use tokio::runtime::Handle;

pub use protocol::file::{Digest, FileKind, FileReference};
pub use staging::{
    AreaError, CleanUp, Entry, Kept, Limits, Mentions, NotSupported, Progress, ReadError, Report,
    StageError, Unreadable,
};

use crate::error::Error;
use crate::host::blocking;
use crate::input::Input;
use crate::session::past::Stores;
use crate::transport::TransportError;
use crate::turn::EventSink;

/// The staged files of a home: stages, lists and cleans up. [`Heddle::files`](crate::Heddle::files) returns it.
#[derive(Clone, Debug)]
pub struct Files {
    home: PathBuf,
    directory: PathBuf,
    library: Library,
    stores: Stores,
    limits: Limits,
}

/// A staged file, to be attached to messages. Cheap to clone; while a clone exists, clean-up leaves the content alone.
#[derive(Clone, Debug)]
pub struct Attachment(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    staged: Staged,
    /// Whether a turn has reported it in an event.
    reported: AtomicBool,
}

impl Attachment {
    pub(crate) fn new(staged: Staged) -> Self {
        Self(Arc::new(Shared { staged, reported: AtomicBool::new(false) }))
    }

    /// Returns the reference: its digest, name, kind and size.
    pub fn reference(&self) -> &FileReference {
        self.0.staged.file()
    }

    /// Returns whether the same content was already in the staging area, so that nothing was written.
    pub fn is_reused(&self) -> bool {
        self.0.staged.is_reused()
    }

    /// Returns the path of the content in the staging area. Do not change the file.
    pub fn path(&self) -> PathBuf {
        self.0.staged.path()
    }

    /// Removes the content when the last clone is dropped, unless it was there before, another process uses it, or a turn
    /// has used it: then [`Files::clean_up`] removes it once no thread refers to it.
    #[must_use]
    pub fn temporary(self) -> Self {
        self.0.staged.make_temporary();
        self
    }
}

/// The staged files of a home, and where they are mentioned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The contents, in the order of their last use, the newest first.
    pub files: Vec<(Entry, Mentions)>,
    /// Logs that could not be searched for mentions.
    pub unreadable: Vec<Unreadable>,
}

impl Files {
    pub(crate) fn new(home: &Path, directory: &Path, library: Library, stores: Stores) -> Self {
        let (home, directory) = (home.to_owned(), directory.to_owned());
        Self { home, directory, library, stores, limits: Limits::default() }
    }

    /// Returns a copy that stages files with other limits than the default ones.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Stages a file; a relative path is below the working directory of the [`Heddle`](crate::Heddle).
    pub async fn stage(&self, path: impl AsRef<Path>) -> Result<Attachment, Error> {
        let path = self.directory.join(path);
        self.work(move |area, limits| area.stage(&path, limits)).await
    }

    /// Stages a content from memory. The model and the user see it under this name.
    pub async fn stage_bytes(
        &self,
        name: impl Into<String>,
        content: impl Into<Vec<u8>>,
    ) -> Result<Attachment, Error> {
        let (name, content) = (name.into(), content.into());
        self.work(move |area, limits| area.stage_bytes(&name, &content, limits)).await
    }

    async fn work(
        &self,
        stage: impl FnOnce(&Area, &Limits) -> Result<Staged, StageError> + Send + 'static,
    ) -> Result<Attachment, Error> {
        let (area, limits) = (self.library.area().clone(), self.limits);
        blocking(move |_| Ok(stage(&area, &limits).map(Attachment::new)?)).await
    }

    /// Lists the staged files. This searches all logs for mentions of them, and reports its progress to `progress`.
    pub async fn list(
        &self,
        mut progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Listing, Error> {
        let this = self.clone();
        blocking(move |runtime| {
            let mut entries = this.library.area().entries().map_err(Error::storage)?;
            entries.sort_by_key(|entry| (std::cmp::Reverse(entry.used), entry.sha256));
            let mut logs = LogScan::new(&this.home, entries.iter().map(|entry| entry.sha256));
            this.search(runtime, &mut logs, &mut progress);
            let mentioned = |entry: Entry| {
                let mentions = logs.mentions(entry.sha256).cloned().unwrap_or_default();
                (entry, mentions)
            };
            let files = entries.into_iter().map(mentioned).collect();
            Ok(Listing { files, unreadable: logs.unreadable().to_vec() })
        })
        .await
    }

    /// Removes the contents that no thread refers to, that no process uses and that were not used for some time.
    ///
    /// If a log cannot be read, nothing is removed, because that log could refer to any content.
    pub async fn clean_up(
        &self,
        clean_up: CleanUp,
        mut progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Report, Error> {
        let this = self.clone();
        blocking(move |runtime| {
            let scan = |logs: &mut LogScan| this.search(runtime, logs, &mut progress);
            this.library.area().clean_up(&this.home, &clean_up, scan).map_err(Error::storage)
        })
        .await
    }

    /// Searches the logs of all stores.
    fn search(&self, runtime: &Handle, logs: &mut LogScan, progress: &mut dyn FnMut(Progress)) {
        for store in self.stores.without_files() {
            runtime.block_on(search_store(store, logs));
        }
        // The files are searched last, as an ephemeral thread may have been forked into a file meanwhile.
        logs.update(progress);
    }
}

/// Searches the logs of a store through its interface, as they may be anywhere.
async fn search_store(store: &dyn Store, logs: &mut LogScan) {
    if logs.wanted().is_empty() {
        return;
    }
    let wanted = logs.wanted().clone();
    for archived in [false, true] {
        let mut list = List {
            filter: Filter { archived, ..Filter::default() },
            sort: Sort::Created,
            direction: Direction::Newest,
            limit: PAGE,
            cursor: None,
        };
        loop {
            let page = match store.list(list.clone()).await {
                Ok(page) => page,
                Err(error) => {
                    let why = format!("its threads cannot be listed: {error}");
                    return logs.note_unreadable(PathBuf::from("the thread store"), why);
                }
            };
            for thread in page.threads {
                let mut search = Search::new(&wanted);
                let sink = &mut |line: &Line<'_>| {
                    search.push(line.payload.get().as_bytes());
                    search.push(b"\n");
                };
                match store.read(thread.id, sink).await {
                    Ok(_) => {}
                    // Deleted since it was listed.
                    Err(store::StoreError::NotFound(_)) => continue,
                    Err(error) => {
                        let path = PathBuf::from(format!("thread {}", thread.id));
                        logs.note_unreadable(path, error.to_string());
                    }
                }
                logs.note(search.finish());
            }
            match page.next {
                Some(next) => list.cursor = Some(next),
                None => break,
            }
        }
    }
}

/// How many threads are listed at once.
const PAGE: usize = 100;

/// Stages the files of a message and reads its images, on a thread for blocking work. Returns the message, its
/// attachments, and warnings about images.
pub(crate) async fn prepare(
    input: Input,
    library: &Library,
    directory: &Path,
    load_images: bool,
) -> Result<(Input, Vec<Attachment>, Vec<String>), StageError> {
    if !input.has_files(load_images) {
        let attached = input.attachments();
        return Ok((input, attached, Vec::new()));
    }
    let (area, directory) = (library.area().clone(), directory.to_owned());
    let preparing = tokio::task::spawn_blocking(move || {
        let mut input = input;
        input.stage(&area, &directory)?;
        let warnings = if load_images { input.load(&directory) } else { Vec::new() };
        let attached = input.attachments();
        Ok((input, attached, warnings))
    });
    match preparing.await {
        Ok(prepared) => prepared,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and this turn with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Reads attached texts, for transports that can send them only as text of the message.
pub(crate) async fn read_texts(
    attached: &[Attachment],
    library: &Library,
) -> Result<HashMap<Digest, String>, TransportError> {
    let texts = attached.iter().map(Attachment::reference);
    let texts: Vec<_> = texts.filter(|file| file.kind == FileKind::Text).cloned().collect();
    if texts.is_empty() {
        return Ok(HashMap::new());
    }
    let area = library.area().clone();
    let failed = |reason: String| TransportError::NotPrepared { reason };
    let reading = tokio::task::spawn_blocking(move || {
        let read = |file: FileReference| {
            let bytes = area.read(&file, file.bytes);
            let bytes = bytes.map_err(|error| format!("{}: {error}", file.name))?;
            let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
            Ok((file.sha256, text))
        };
        texts.into_iter().map(read).collect::<Result<_, String>>()
    });
    reading.await.map_err(|ended| failed(ended.to_string()))?.map_err(failed)
}

/// Reports the files of a message to the events of its turn, each content once. From now on a log may refer to them.
pub(crate) fn report(attached: &[Attachment], events: &EventSink) {
    let mut reported = HashSet::new();
    for attachment in attached {
        attachment.0.staged.keep();
        let file = attachment.reference();
        if reported.insert(file.sha256) {
            let before = attachment.0.reported.swap(true, Ordering::SeqCst);
            let reused = before || attachment.is_reused();
            events.push(Event::FileStaged { file: file.clone(), reused });
        }
    }
}

/// Files of a thread that is in memory only, where the clean-up of another process cannot see that it refers to them.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<Digest, Attachment>>);

impl Leases {
    /// Keeps at most [`LEASES_MAX`] files until this is dropped. A clean-up spares the others while their last use is
    /// recent.
    pub(crate) fn keep(&self, attached: &[Attachment]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for attachment in attached {
            if kept.len() < LEASES_MAX {
                kept.entry(attachment.reference().sha256).or_insert_with(|| attachment.clone());
            }
        }
    }
}

/// Most files that an ephemeral thread has open.
const LEASES_MAX: usize = 64;
