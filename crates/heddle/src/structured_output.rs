//! Structured output: answers that match a type, checked with every model and over every transport.
//!
//! ```no_run
//! use heddle::{Heddle, ThreadSpec};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Report {
//!     /// The programming language that most of the project is written in.
//!     language: String,
//!     /// Number of files.
//!     files: u32,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let heddle = Heddle::from_env()?;
//! let thread = heddle.start(ThreadSpec::in_dir(".")).await?;
//! let report: Report = thread.turn("Report on the project in this directory.").json().await?;
//! println!("{} files, mostly {}", report.files, report.language);
//! # Ok(())
//! # }
//! ```
//!
//! [`Turn::json`](crate::Turn::json) is the short form. The long one gives the result of the turn as well:
//!
//! ```no_run
//! # #[derive(serde::Deserialize, schemars::JsonSchema)]
//! # struct Report {}
//! # async fn example(thread: heddle::Thread) -> Result<(), Box<dyn std::error::Error>> {
//! let result = thread.turn("Report on the project.").output::<Report>()?.output_retries(2)?.run().await?;
//! let report: Report = result.json()?;
//! println!("{} tokens", result.usage.output_tokens);
//! # Ok(())
//! # }
//! ```
//!
//! # How an answer is checked
//!
//! The schema goes to the provider, which may enforce it. Whether it does or not, the answer is checked when the turn
//! ends. If it does not conform, the model gets a message with the place, the expected and the actual value, and
//! answers again: once, or as often as [`Turn::output_retries`](crate::Turn::output_retries) says. Then the turn fails
//! with an error of the kind [`ErrorKind::Answer`](crate::ErrorKind::Answer); its message lists the differences, and so
//! does [`Error::violations`](crate::Error::violations). So the answer of a turn that completes always conforms, over
//! every [transport](crate::transport).
//!
//! # Schemas
//!
//! [`Turn::output`](crate::Turn::output) takes the schema of a type. [`Turn::output_schema`](crate::Turn::output_schema)
//! takes a [`Schema`]: of a type, of the builder, or JSON. [`Schema`] explains how it is converted for strict
//! providers, and [`SchemaFile`] writes it to a file for other programs.
//!
//! # While the answer grows
//!
//! ```no_run
//! # async fn example(thread: heddle::Thread) -> Result<(), Box<dyn std::error::Error>> {
//! use futures_util::StreamExt as _;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema, Default)]
//! #[serde(default)]
//! struct Recipe {
//!     title: String,
//!     steps: Vec<String>,
//! }
//!
//! let mut recipes = thread.turn("How do I make soup?").output::<Recipe>()?.partials::<Recipe>();
//! while let Some(recipe) = recipes.next().await {
//!     println!("{}: {} steps so far", recipe.title, recipe.steps.len());
//! }
//! let recipe: Recipe = recipes.result()?.json()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Partial`] does the same for code that reads the events of a turn itself.

mod answer;
mod builder;
mod file;
mod partial;
mod schema;

pub use answer::AnswerError;
pub use builder::{SchemaBuilder, kind};
pub use config::{
    NotStrict, OUTPUT_RETRIES_MAX, SCHEMA_BYTES_MAX, Unsupported, Violation, Violations,
};
pub use file::SchemaFile;
pub use partial::{Partial, PartialAnswers};
pub use schema::{CompiledSchema, Schema, SchemaError};
pub use stream::partial::{PartialError, PartialJson};

pub(crate) use answer::decode;
pub(crate) use schema::AnswerFormat;
