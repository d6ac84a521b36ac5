//! Recognizes messages with the role `user` that the user did not write, by how they begin.
//!
//! Writers of such messages take their beginning from here. Readers that count the user's messages call
//! [`is_users`], so that all of them count the same.

use std::borrow::Cow;

use serde::Deserialize;

/// Who wrote a user-role message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    User,
    /// We did, before the user's first message: the environment, project rules.
    Setup,
    /// We did, during a turn: a summary, a notice.
    Turn,
    /// Not the user; its position determines which of the above it is.
    Program,
}

/// Begins the description of the environment.
pub const ENVIRONMENT: &str = "<environment_context>";
/// Begins the rules of a project.
pub const AGENTS_MD: &str = "# AGENTS.md instructions";
/// Begins the rules of a project in older files.
pub const USER_INSTRUCTIONS: &str = "<user_instructions>";
/// Begins the message to the model about an interrupted turn.
pub const TURN_ABORTED: &str = "<turn_aborted>";

/// Precedes a summary.
pub const SUMMARY_PREFIX: &str = "\
The earlier part of this conversation was replaced by the following summary of it. The work described as done \
is done: continue from here and do not repeat it.";

/// Replaces a summary that could not be made.
pub const SUMMARY_MISSING: &str = "\
The earlier part of this conversation was dropped to make room, and no summary of it could be made. Look at the \
workspace to see what has already been done before you continue.";

/// How Codex begins a summary.
const SUMMARY_OF_CODEX: &str = "Another language model started to solve this problem";
/// How Codex begins a report about a subagent.
const NOTICE_OF_CODEX: &str = "<subagent_notification>";

/// Begins the message to the model about a command that the user ran.
pub const USER_COMMAND: &str = "<user_shell_command>";

/// Begins the message to the model about a review.
pub const REVIEW: &str = "<user_action>";
/// Begins what a program says to the model instead of the user.
pub const PROGRAM: &str = "<codex_internal_context";

/// Returns whether a message that begins with this is a summary.
pub fn is_summary(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with(SUMMARY_PREFIX) || text.starts_with(SUMMARY_OF_CODEX)
}

/// Returns whether a user-role message is the user's own. `kinds` is what the log says about its parts, if
/// anything: see [`kinds`].
pub fn is_users<S: AsRef<str>>(text: &str, kinds: &[S]) -> bool {
    author(text, kinds) == Author::User
}

/// Returns who wrote a message that begins with `text`. `kinds` is what the log says about its parts.
pub fn author<S: AsRef<str>>(text: &str, kinds: &[S]) -> Author {
    let text = text.trim_start();
    let opens = |openings: &[&str]| openings.iter().any(|words| text.starts_with(words));
    let has = |wanted: fn(&str) -> bool| kinds.iter().any(|kind| wanted(kind.as_ref()));
    if has(|kind| kind.starts_with("user.")) {
        return Author::User;
    }
    if opens(SETUP) {
        return Author::Setup;
    }
    if opens(TURN) {
        return Author::Turn;
    }
    // Parts of unknown kind may be anyone's.
    let others = !kinds.is_empty() && !has(|kind| kind == "unknown");
    if others { Author::Program } else { Author::User }
}

/// Reads what a log says about the parts of a message, one word each. Only newer files of Codex have it.
pub fn kinds(item: &str) -> Vec<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow, rename = "internal_chat_message_metadata_passthrough")]
        marks: Marks<'a>,
    }
    #[derive(Deserialize)]
    struct Marks<'a> {
        #[serde(borrow)]
        content_item_kinds: Vec<Cow<'a, str>>,
    }
    if !item.contains(r#""content_item_kinds""#) {
        return Vec::new();
    }
    serde_json::from_str::<Item<'_>>(item).map_or(Vec::new(), |item| item.marks.content_item_kinds)
}

/// First words of setup messages.
const SETUP: &[&str] = &[ENVIRONMENT, AGENTS_MD, USER_INSTRUCTIONS];
/// First words of messages during a turn.
const TURN: &[&str] = &[
    SUMMARY_PREFIX,
    SUMMARY_MISSING,
    TURN_ABORTED,
    SUMMARY_OF_CODEX,
    NOTICE_OF_CODEX,
    USER_COMMAND,
    REVIEW,
    PROGRAM,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authors_of_messages() {
        let check = |text: &str, kinds: &[&str], want: Author| {
            assert_eq!(author(text, kinds), want, "{text} {kinds:?}");
        };
        check("fix it", &[], Author::User);
        check("<b>fix</b> it", &["unknown"], Author::User);
        check("\n<environment_context>", &[], Author::Setup);
        check("<turn_aborted>", &["unknown"], Author::Turn);
        check("<user_shell_command>ls", &[], Author::Turn);
        check("<user_action>\n<context>", &["unknown"], Author::Turn);
        check("<codex_internal_context source=\"goal\">go on", &[], Author::Turn);
        check("Another language model started to solve this problem and", &[], Author::Turn);
        // What the log says takes precedence.
        check("<environment_context> is what I ask about", &["user.text"], Author::User);
        check("something", &["compaction.summary"], Author::Program);
        check("something", &["plugin.note", "user.image"], Author::User);
    }

    #[test]
    fn what_the_log_says() {
        let item = r#"{"x":1,"internal_chat_message_metadata_passthrough":{"content_item_kinds":["user.text"]}}"#;
        assert_eq!(kinds(item), ["user.text"]);
        assert!(kinds(r#"{"content_item_kinds":3}"#).is_empty());
        assert!(kinds("{}").is_empty());
    }
}
