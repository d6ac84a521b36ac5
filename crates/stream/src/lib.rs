//! Bytes to events, incrementally, without I/O.
//!
//! Every decoder here takes bytes as they come and gives the same events however they were cut.
//! None of them fails on garbage: what cannot be read is skipped, counted or given back as text.
//!
//! ```
//! use stream::dialect::{Dialect, Format, Options, Parser, Tools};
//! use stream::event::Event;
//!
//! let format = Format::named("hermes").expect("it is in the table");
//! let dialect = Dialect::new(format, &Options::default(), &Tools::default());
//! let mut parser = Parser::new(&dialect);
//! let mut arguments = String::new();
//! let mut sink = |event: Event<'_>, _range| {
//!     if let Event::ToolArgs { text, .. } = event {
//!         arguments.push_str(text);
//!     }
//! };
//! for piece in ["I look.<tool", "_call>{\"name\":\"ls\",\"argu", "ments\":{\"all\":true}}</tool_call>"] {
//!     parser.push(piece.as_bytes(), &mut sink);
//! }
//! parser.finish(&mut sink);
//! assert_eq!(arguments, r#"{"all":true}"#);
//! ```
//!
//! * [`dialect`]: what models write, in any of the formats of a table;
//! * [`event`] and [`canonical`]: what it comes to, and the form in which that is printed and compared;
//! * [`document`]: JSON documents with calls inside;
//! * [`toolcall`]: ToolCall_V2, the one form that all calls can be written in;
//! * [`parser`] and [`error`]: what every parser can do, and what can be wrong with its input;
//! * [`face`]: the events of an asynchronous source;
//! * [`utf8`], [`json`], [`sse`]: characters, JSON, the framing of `text/event-stream`;
//! * [`responses`] and [`chat`]: whole items for the engine, of the Responses API and of Chat Completions;
//! * [`failure`]: what a provider's error object means.

#![warn(missing_docs)]

#[doc = include_str!("../../../docs/parser.md")]
#[cfg(doctest)]
pub struct Guide;

pub mod canonical;
pub mod chat;
pub mod dialect;
pub mod document;
pub mod error;
mod escape;
pub mod event;
pub mod face;
pub mod failure;
mod find;
pub mod json;
pub mod parser;
pub mod responses;
mod shape;
pub mod sse;
pub mod toolcall;
pub mod utf8;
mod wire;
