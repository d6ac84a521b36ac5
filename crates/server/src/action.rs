//! Inputs and actions of a connection.

use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::usage::Usage;
use protocol::user::UserInput;
use serde_json::value::RawValue;

use crate::message::{RequestId, RpcError};
use crate::request::{Settings, TurnsList};
use crate::wire::{Thread, ThreadSettings};

/// What a connection knows about the program it belongs to.
#[derive(Clone, Debug)]
pub struct Facts {
    pub version: String,
    /// The directory with our files.
    pub home: String,
    /// The operating system, such as `linux`.
    pub os: String,
    /// The processor architecture, such as `x86_64`.
    pub arch: String,
    /// Validates the text of a schema for answers.
    pub check_schema: fn(&str) -> Result<(), String>,
}

/// Everything that can happen to a connection.
#[derive(Debug)]
pub enum Input<'a> {
    /// A line from the client.
    Line(&'a [u8]),
    /// The beginning of a line that is too long to be read.
    Overlong(&'a [u8]),
    /// A thread was opened, or could not be.
    Opened {
        /// The request that asked for it.
        request: RequestId,
        loading: Loading,
        result: Result<Box<OpenedThread>, RpcError>,
    },
    /// A thread was read, or could not be.
    Read {
        /// The request that asked for it.
        request: RequestId,
        thread: ThreadId,
        reading: Reading,
        result: Result<Box<Thread>, RpcError>,
    },
    /// A request has its response.
    Answered {
        /// The request to respond to.
        request: RequestId,
        result: Result<Box<RawValue>, RpcError>,
    },
    /// A thread was archived, or could not be.
    Archived {
        /// The request that asked for it.
        request: RequestId,
        thread: ThreadId,
        result: Result<(), RpcError>,
    },
    /// An event of a turn.
    Event {
        /// The thread of the turn.
        thread: ThreadId,
        event: &'a Event,
    },
    /// A thread was closed.
    Closed(ThreadId),
    /// The client is gone, or the program is shutting down.
    End,
}

/// What the caller must do for a connection.
#[derive(Debug)]
pub enum Action {
    Send(String),
    /// Print a note for the operator of the program.
    Note(String),
    /// Create or load a thread; report `Opened`.
    Open {
        /// The request that asks for it.
        request: RequestId,
        loading: Loading,
        settings: Box<Settings>,
        /// The name of the client.
        client: String,
    },
    /// Read a thread; report `Read`.
    Read {
        /// The request that asks for it.
        request: RequestId,
        thread: ThreadId,
        reading: Reading,
        /// Whether to include its turns.
        turns: bool,
        /// Whether a turn is running in it.
        running: bool,
    },
    /// Read turns; report `Answered`.
    List {
        /// The request that asks for it.
        request: RequestId,
        asked: TurnsList,
        /// Whether a turn is running in the thread.
        running: bool,
    },
    /// Archive a thread; report `Archived`.
    Archive {
        /// The request that asks for it.
        request: RequestId,
        thread: ThreadId,
    },
    /// Restore a thread from the archive and read it; report `Read`.
    Unarchive {
        /// The request that asks for it.
        request: RequestId,
        thread: ThreadId,
    },
    /// Run a turn; report every `Event` of it.
    Run {
        thread: ThreadId,
        turn: String,
        input: Vec<UserInput>,
        /// The client's id for the message.
        client_id: Option<String>,
        /// The text of a schema that the answer must match.
        schema: Option<String>,
    },
    /// Interrupt the running turn.
    Interrupt(ThreadId),
    /// Close a thread without a running turn; report `Closed`.
    Close(ThreadId),
    /// Exit: no thread is loaded any more.
    Exit,
}

/// How a thread is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// As a new thread.
    Start,
    /// Continue it.
    Resume {
        thread: ThreadId,
        /// Whether to return its turns.
        turns: bool,
    },
    /// Continue from it in a new thread.
    Fork {
        thread: ThreadId,
        /// Whether to return the turns.
        turns: bool,
    },
}

/// Why a thread is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// To show it.
    Show,
    /// For a client that resumes a thread that is already loaded.
    Resume,
    /// After it was restored from the archive.
    Unarchive,
}

#[derive(Clone, Debug)]
pub struct OpenedThread {
    pub id: ThreadId,
    /// The thread, with turns if they were requested.
    pub thread: Thread,
    pub running: ThreadSettings,
    pub usage: Usage,
    /// Size of the model's context window.
    pub window: Option<u64>,
    /// Warnings for the user about it.
    pub told: Vec<String>,
    pub config_warnings: Vec<String>,
}
