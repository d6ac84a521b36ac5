//! Tools of the host program, which a model can call besides the built-in tools.
//!
//! [`tool_fn`] makes a tool of an asynchronous closure, with the schema of its arguments.
//! [`ThreadSpec::tool`](crate::ThreadSpec::tool) gives it to a thread:
//!
//! ```
//! use heddle::ThreadSpec;
//! use heddle::tools::tool_fn;
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Place {
//!     /// Name of the city.
//!     city: String,
//! }
//!
//! let look_up = tool_fn("look_up", "Returns the temperature in a city.", |place: Place, _| async move {
//!     format!("4 degrees in {}", place.city)
//! });
//! let spec = ThreadSpec::new().tool(look_up.read_only());
//! ```
//!
//! Tools that several threads share, or that are added and removed while threads run, are in a [`Tools`] registry.
//!
//! The turn goes on whatever a tool does: arguments that do not match the schema never reach it, a call that takes
//! longer than its time limit is stopped, and a panic is a failed call. The model reads what went wrong.

mod call;
mod function;
mod output;
mod registry;

pub use call::PendingCall;
pub use config::ToolProblem;
pub use function::{FnTool, tool_fn};
pub use output::{IntoToolOutput, Json};
pub use protocol::call::Report;
pub use protocol::responses::OutputBody;
pub use registry::{RegisteredTool, RegistrationError, TOOLS_MAX, ToolHandle, Tools};
pub use tools::{
    Annotations, HOST_SERVER, RunningCommand, Tool, ToolContext, ToolFuture, ToolInput, ToolOutput,
    ToolSpec,
};

pub(crate) use registry::checked;

/// Files that describe tools which are commands, as `heddle tools validate` checks them.
pub mod manifest {
    pub use config::{ConfigError, ManifestFormat, Place, Position, ToolManifest};
}
