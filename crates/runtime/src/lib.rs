//! Performs the actions of the engine.
//!
//! A [`Thread`] holds what outlives a turn: the history, the tools and their sessions, the client of the
//! endpoint. [`Thread::run_turn`] drives one [`engine::Turn`] to its end. Everything that can wake the driver
//! is one enum; `engine` decides what to do about it.

pub mod approver;
pub mod attach;
mod clock;
mod decoder;
mod driver;
pub mod id;
mod journal;
pub mod judge;
mod model;
pub mod project;
mod thread;
mod toolset;

pub use approver::{ApprovalFuture, Approver};
pub use attach::{Accepts, Attached, Library};
pub use clock::Clock;
pub use decoder::AnswerDecoder;
pub use driver::Control;
pub use journal::Journal;
pub use model::{AnswerPart, AnswerStream, EndpointModel, Model, SampleFuture};
pub use thread::{OutputSchema, RequestOptions, ResumeState, TextDialect, Thread, ThreadOptions};
pub use toolset::{LiveTools, Toolset, TwoTools};
