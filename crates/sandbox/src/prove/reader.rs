//! A process outside that reads a file repeatedly while an attempt replaces it.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BYTES_MAX: u64 = 64 * 1024;
/// How long the last read may take.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Reader {
    path: PathBuf,
    over: Arc<AtomicBool>,
    thread: JoinHandle<bool>,
}

impl Reader {
    /// Starts reading: carefully, as heddle does, or like a program that trusts what it finds.
    pub(super) fn start(path: &Path, trusting: bool) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (path, last) = (path.to_path_buf(), Arc::clone(&over));
        let name = path.clone();
        let thread = std::thread::spawn(move || {
            loop {
                // The final state is read too.
                let done = last.load(Ordering::Acquire);
                let endless = if trusting { read_trusting(&name) } else { read(&name) };
                if endless || done {
                    return endless;
                }
            }
        });
        Self { path, over, thread }
    }

    /// Stops, and returns what went wrong for the reader.
    pub(super) fn stop(self) -> Option<&'static str> {
        self.over.store(true, Ordering::Release);
        let begun = Instant::now();
        while !self.thread.is_finished() {
            if begun.elapsed() > PATIENCE {
                // The pipe it waits for may have no name any more, so nothing can end its wait; it ends with
                // this program.
                let _ = fs::remove_file(&self.path);
                return Some("a reader of the file was kept waiting");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let endless = self.thread.join().unwrap_or(true);
        let _ = fs::remove_file(&self.path);
        endless.then_some("a reader of the file got endless data")
    }
}

/// Reads as heddle does; returns whether it read more than there is.
fn read(path: &Path) -> bool {
    files::read(path, BYTES_MAX).is_ok_and(|bytes| bytes.len() > 1024)
}

fn read_trusting(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    read.is_ok() && bytes.len() as u64 == BYTES_MAX
}
