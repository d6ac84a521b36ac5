//! How messages begin that stand in the user's place and that no user wrote. Whoever writes such a
//! message takes its first words from here, so that they are known again when the log is read.

/// Opens what is said about the place of work.
pub const ENVIRONMENT: &str = "<environment_context>";
/// Opens the rules of a project.
pub const AGENTS_MD: &str = "# AGENTS.md instructions";
/// Opens the rules of a project in older files.
pub const USER_INSTRUCTIONS: &str = "<user_instructions>";
/// Opens what the model is told about a turn that was interrupted.
pub const TURN_ABORTED: &str = "<turn_aborted>";

/// Stands before a summary.
pub const SUMMARY_PREFIX: &str = "\
The earlier part of this conversation was replaced by the following summary of it. The work described as done \
is done: continue from here and do not repeat it.";

/// Stands in place of a summary that could not be had.
pub const SUMMARY_MISSING: &str = "\
The earlier part of this conversation was dropped to make room, and no summary of it could be made. Look at the \
workspace to see what has already been done before you continue.";

/// How Codex opens a summary.
const SUMMARY_OF_CODEX: &str = "Another language model started to solve this problem";
/// How Codex opens a report about an agent that another one started.
const NOTICE_OF_CODEX: &str = "<subagent_notification>";

/// Tells whether a message that begins with this is a summary of what was said before it.
pub fn is_summary(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with(SUMMARY_PREFIX) || text.starts_with(SUMMARY_OF_CODEX)
}

/// Openings of what was set up.
pub(crate) const SETUP: &[&str] = &[ENVIRONMENT, AGENTS_MD, USER_INSTRUCTIONS];
/// Openings of what came about in a turn.
pub(crate) const TURN: &[&str] =
    &[SUMMARY_PREFIX, SUMMARY_MISSING, TURN_ABORTED, SUMMARY_OF_CODEX, NOTICE_OF_CODEX];
