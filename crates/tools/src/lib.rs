//! The tools a model can call, one file each.
//!
//! A [`Tool`] describes itself and answers calls with text that the model reads: its failures are results,
//! not errors of ours. It shows its progress to the user by sending [`Progress`]. Everything that starts a
//! process or writes a file passes the [`Gate`] of its [`Workspace`] first, and needs a permit from it.

mod carry_out;
mod checked;
mod exec;
mod foreign;
mod gate;
#[cfg(test)]
mod hostile;
mod image;
mod judge;
mod login;
mod output;
mod patch;
mod plan;
mod questions;
mod session;
mod shell;
mod spot;
mod tool;
mod user_shell;
mod view_image;

pub use checked::{ArgumentCheck, CheckedTool, Withdrawn};
pub use exec::{ExecCommand, WriteStdin};
pub use foreign::ForeignTool;
pub use gate::Gate;
pub use image::{ImageError, LoadedImage, PreparedImage, load_image};
pub use judge::{Judge, Opinion};
pub use login::LoginShell;
pub use patch::ApplyPatch;
pub use plan::UpdatePlan;
pub use questions::AskUser;
pub use session::{RunningCommand, Sessions};
pub use shell::{Shell, join};
pub use tool::{
    Annotations, HOST_SERVER, Progress, ProgressSender, Reply, Tool, ToolContext, ToolFuture,
    ToolInput, ToolOutput, ToolSpec, Workspace, progress_channel,
};
pub use user_shell::UserShell;
pub use view_image::ViewImage;
