//! Extras of threads: the old or the new ones, whatever fails.

use protocol::id::ThreadId;
use store::{EXTRAS_BYTES_MAX, FileStore, StoreError};

use crate::disk::{EIO, Fault, What};
use crate::record::{empty_home, id, store};
use crate::threads::{begin, other};

/// Adds a word to the extras of a thread.
fn add(store: &FileStore, id: ThreadId, word: &str) -> Result<(), StoreError> {
    store.change_extras(id, |extras| {
        let mut extras = extras.unwrap_or_default();
        extras.extend_from_slice(word.as_bytes());
        Ok(Some(extras))
    })
}

fn text(store: &FileStore, id: ThreadId) -> Option<String> {
    store.extras(id).unwrap().map(|extras| String::from_utf8(extras).unwrap())
}

#[test]
fn extras_of_a_thread() {
    let disk = empty_home();
    let store = store(&disk);
    begin(&disk, id(), "a");
    assert_eq!(text(&store, id()), None);
    add(&store, id(), "one ").unwrap();
    add(&store, id(), "two").unwrap();
    add(&store, other(1), "else").unwrap();
    store.change_extras(id(), |_| Ok::<_, StoreError>(None)).unwrap();
    store.change_extras(id(), |_| Err(StoreError::NotFound(id()))).unwrap_err();
    assert_eq!(text(&store, id()).as_deref(), Some("one two"));
    // They are of a thread wherever it is, until it is deleted.
    store.archive(id()).unwrap();
    assert_eq!(text(&store, id()).as_deref(), Some("one two"));
    store.delete(id()).unwrap();
    assert_eq!(text(&store, id()), None);
    assert_eq!(text(&store, other(1)).as_deref(), Some("else"));

    let too_long = "x".repeat(EXTRAS_BYTES_MAX + 1);
    add(&store, id(), &too_long).unwrap_err();
    assert_eq!(text(&store, id()), None);
    disk.put(format!("/h/thread-extras/{}.json", id()), too_long.as_bytes());
    store.extras(id()).unwrap_err();
}

/// A change that fails at any call, or is interrupted by a power cut, leaves the old extras or the new ones; one that succeeded
/// has left the new ones.
#[test]
fn changes_cut_short() {
    for at in 1.. {
        let disk = empty_home();
        add(&store(&disk), id(), "old").unwrap();
        let disk = disk.settled();
        disk.fail(Some(Fault { at, what: What::Errno(EIO), stays: true }));
        let done = add(&store(&disk), id(), " new");
        disk.fail(None);
        for disk in [disk.clone(), disk.reboot(at)] {
            let store = store(&disk);
            let left = text(&store, id());
            let whole = matches!(left.as_deref(), Some("old" | "old new"));
            assert!(
                whole && (done.is_err() || left.as_deref() == Some("old new")),
                "{at}: {left:?}"
            );
            // What is left of the change is in nobody's way.
            add(&store, id(), "!").unwrap();
            assert_eq!(text(&store, id()), left.map(|left| left + "!"), "{at}");
        }
        if done.is_ok() {
            break;
        }
    }
}
