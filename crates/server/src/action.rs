//! What a connection is told, and what it wants done.

use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::usage::Usage;
use serde_json::value::RawValue;

use crate::message::{RequestId, RpcError};
use crate::request::{Settings, TurnsList, UserInput};
use crate::wire::{Thread, ThreadSettings};

/// What a connection is told about the program it belongs to.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Our version.
    pub version: String,
    /// Where our files are.
    pub home: String,
    /// The operating system, such as `linux`.
    pub os: String,
    /// The processor, such as `x86_64`.
    pub arch: String,
    /// Says what is wrong with the text of a schema for answers.
    pub check_schema: fn(&str) -> Result<(), String>,
}

/// Everything that can happen to a connection.
#[derive(Debug)]
pub enum Input<'a> {
    /// A line came from the client.
    Line(&'a [u8]),
    /// A line came that is too long to be read.
    Overlong,
    /// A thread was opened, or could not be.
    Opened {
        /// Who asked.
        request: RequestId,
        /// What for.
        loading: Loading,
        /// What came of it.
        result: Result<Box<OpenedThread>, RpcError>,
    },
    /// A thread was read, or could not be.
    Read {
        /// Who asked.
        request: RequestId,
        /// The thread.
        thread: ThreadId,
        /// What for.
        reading: Reading,
        /// What came of it.
        result: Result<Box<Thread>, RpcError>,
    },
    /// A request has its answer.
    Answered {
        /// Who asked.
        request: RequestId,
        /// The answer.
        result: Result<Box<RawValue>, RpcError>,
    },
    /// A thread was put away, or could not be.
    Archived {
        /// Who asked.
        request: RequestId,
        /// The thread.
        thread: ThreadId,
        /// What came of it.
        result: Result<(), RpcError>,
    },
    /// Something happened in a turn.
    Event {
        /// The thread.
        thread: ThreadId,
        /// What.
        event: &'a Event,
    },
    /// A thread was let go of.
    Closed(ThreadId),
    /// The client has gone, or the program is to end.
    End,
}

/// What a connection wants done.
#[derive(Debug)]
pub enum Action {
    /// Send a line.
    Send(String),
    /// Say something to whoever runs the program.
    Note(String),
    /// Make or load a thread; report `Opened`.
    Open {
        /// Who asks.
        request: RequestId,
        /// What for.
        loading: Loading,
        /// With what.
        settings: Box<Settings>,
        /// The name of the client.
        client: String,
    },
    /// Read a thread; report `Read`.
    Read {
        /// Who asks.
        request: RequestId,
        /// The thread.
        thread: ThreadId,
        /// What for.
        reading: Reading,
        /// Whether with its turns.
        turns: bool,
        /// Whether a turn runs in it.
        running: bool,
    },
    /// Read turns; report `Answered`.
    List {
        /// Who asks.
        request: RequestId,
        /// Which.
        asked: TurnsList,
        /// Whether a turn runs in the thread.
        running: bool,
    },
    /// Put a thread away; report `Archived`.
    Archive {
        /// Who asks.
        request: RequestId,
        /// The thread.
        thread: ThreadId,
    },
    /// Take a thread back, and read it; report `Read`.
    Unarchive {
        /// Who asks.
        request: RequestId,
        /// The thread.
        thread: ThreadId,
    },
    /// Run a turn; report every `Event` of it.
    Run {
        /// The thread.
        thread: ThreadId,
        /// The turn.
        turn: String,
        /// What the user says.
        input: Vec<UserInput>,
        /// The text of a schema that the answer must follow.
        schema: Option<String>,
    },
    /// Interrupt the turn that runs.
    Interrupt(ThreadId),
    /// Let go of a thread in which no turn runs; report `Closed`.
    Close(ThreadId),
    /// End: nothing is loaded any more.
    Exit,
}

/// What a thread is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// To be a new one.
    Start,
    /// To go on with it.
    Resume {
        /// The thread.
        thread: ThreadId,
        /// Whether its turns are wanted.
        turns: bool,
    },
    /// To go on from it in another.
    Fork {
        /// The thread.
        thread: ThreadId,
        /// Whether the turns are wanted.
        turns: bool,
    },
}

/// What a thread is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// To be shown.
    Show,
    /// To be shown to a client that asked to load what is loaded.
    Resume,
    /// To be shown after it was taken back.
    Unarchive,
}

/// A thread that was opened.
#[derive(Clone, Debug)]
pub struct OpenedThread {
    /// Its id.
    pub id: ThreadId,
    /// The thread, with turns if they were asked for.
    pub thread: Thread,
    /// What it runs with.
    pub running: ThreadSettings,
    /// Tokens it has used.
    pub usage: Usage,
    /// What fits into the model's context window.
    pub window: Option<u64>,
    /// What the user should know about it.
    pub told: Vec<String>,
    /// What is odd about the configuration.
    pub config_warnings: Vec<String>,
}
