//! Shared memory and message queues of the machine, which belong to no file system.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::sys::{Outcome, call, text, void};

/// Objects that the prover creates; `None` if the kernel does not support the kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ipc {
    memory: Option<i64>,
    messages: Option<i64>,
    /// The name of a POSIX message queue.
    queue: Option<String>,
}

impl Ipc {
    /// Creates one object of each kind.
    pub(super) fn make(root: &Path) -> Self {
        let private = libc::IPC_PRIVATE;
        let name = root.file_name().map(|name| name.to_string_lossy().into_owned());
        let attributes = [0_u64, 4, 64, 0, 0, 0, 0, 0];
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
        let queue = name.filter(|name| {
            let queue = call!(libc::SYS_mq_open, &text(name), flags, 0o600, &attributes[..]);
            queue.map(super::sys::own).is_ok()
        });
        Self {
            memory: call!(libc::SYS_shmget, private, 4096, 0o600).ok(),
            messages: call!(libc::SYS_msgget, private, 0o600).ok(),
            queue,
        }
    }

    /// Determines whether another process has used one of the objects.
    pub(super) fn damage(&self) -> Option<&'static str> {
        if let Some(id) = self.memory {
            // In `shmid_ds` the time of the last attachment follows permissions and size; it is zero until
            // it is attached.
            let mut state = [0_u8; 512];
            let read = call!(libc::SYS_shmctl, id, libc::IPC_STAT, &mut state[..]);
            let at = std::mem::offset_of!(libc::shmid_ds, shm_atime);
            if read.is_err() || state[at..at + 8] != [0; 8] {
                return Some("shared memory of the machine was attached");
            }
        }
        if let Some(id) = self.messages {
            let mut buffer = [0_u8; 64];
            let taken = call!(libc::SYS_msgrcv, id, &mut buffer[..], 32, 0, libc::IPC_NOWAIT);
            if taken.is_ok() {
                return Some("a message queue of the machine was written to");
            }
        }
        None
    }

    pub(super) fn remove(&self) {
        // What is already gone needs no removal.
        if let Some(id) = self.memory {
            let _ = call!(libc::SYS_shmctl, id, libc::IPC_RMID, 0);
        }
        if let Some(id) = self.messages {
            let _ = call!(libc::SYS_msgctl, id, libc::IPC_RMID, 0);
        }
        if let Some(name) = &self.queue {
            let _ = call!(libc::SYS_mq_unlink, &text(name));
        }
    }

    pub(super) fn attach(&self) -> Outcome {
        let Some(id) = self.memory else { return void("no System V shared memory here") };
        call!(libc::SYS_shmat, id, 0, 0)?;
        Ok("attached shared memory of the machine".into())
    }

    pub(super) fn send(&self) -> Outcome {
        let Some(id) = self.messages else { return void("no System V messages here") };
        // A type, and then the text.
        let message = [1_u64, 0];
        call!(libc::SYS_msgsnd, id, &message[..], 8, libc::IPC_NOWAIT)?;
        Ok("sent a message to a queue of the machine".into())
    }

    pub(super) fn open(&self) -> Outcome {
        let Some(name) = &self.queue else { return void("no POSIX message queues here") };
        call!(libc::SYS_mq_open, &text(name), libc::O_WRONLY | libc::O_CLOEXEC, 0, 0)?;
        Ok("opened a POSIX message queue of the machine".into())
    }
}
