//! Parses what models and providers stream into events, incrementally and without I/O.
//!
//! Every decoder here takes bytes as they arrive and emits the same events however they are chunked. None of
//! them fails on garbage: what cannot be parsed is skipped, counted or returned as text.
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
//! * [`dialect`]: parses what models write, in any format of a table;
//! * [`event`] and [`canonical`]: the events, and their canonical form for printing and comparing;
//! * [`document`]: JSON documents with calls inside;
//! * [`toolcall`]: ToolCall_V2, one format for all calls;
//! * [`parser`] and [`error`]: the interface of all parsers, and their errors;
//! * [`partial`]: JSON values while they grow;
//! * [`face`]: an asynchronous interface;
//! * [`utf8`], [`json`], [`sse`]: characters, JSON, the framing of `text/event-stream`;
//! * [`responses`] and [`chat`]: complete items of the Responses API and of Chat Completions;
//! * [`failure`]: classifies a provider's error object.

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
pub mod partial;
pub mod responses;
mod shape;
pub mod sse;
pub mod toolcall;
pub mod utf8;
mod wire;
