//! The texts that heddle itself sends to a model, and the frames around what it passes on.
//!
//! Facts are passed in as values; nothing here reads a directory or a clock.

use std::fmt::Write as _;

// Readers of a log recognise messages by their first words.
use history::words;
pub use history::words::{SUMMARY_MISSING, SUMMARY_PREFIX};
use protocol::review::ReviewTarget;

pub const BASE: &str = include_str!("prompt/base.md");

/// The instructions of a reviewer.
pub const REVIEW: &str = include_str!("prompt/review.md");
/// How a message about the mode begins.
pub const MODE_BEGINS: &str = "<collaboration_mode>";

/// Tells the model of plan mode.
pub const PLAN_MODE: &str = include_str!("prompt/plan_mode.md");

/// Tells the model that it may work again, after plan mode.
pub const DEFAULT_MODE: &str = "\
Plan mode is over. Do what the user asks: change files and run commands as the sandbox allows. If they ask you to carry \
out a plan, the plan is the one they name, or else the last one that you proposed. Do not write <proposed_plan> tags.";

/// Frames what the model is told of a mode.
pub fn mode(text: &str) -> String {
    format!("{MODE_BEGINS}\n{}\n</collaboration_mode>", text.trim())
}

/// Requests the summary that replaces a history.
pub const SUMMARY_REQUEST: &str = "\
The conversation is about to be replaced by a summary, to make room in the context window. Write that \
summary now, for a colleague who takes over without having seen anything above. State: what the user wants, in \
their own terms, with every constraint they gave; what has been done and found out, with the paths, names, \
commands and results that matter; decisions and their reasons; what remains, in order, beginning with the very \
next step. Be complete and compact. Do not call tools.";

/// Tells the model that the user interrupted a turn.
pub const TURN_ABORTED: &str = "\
<turn_aborted>\nThe user interrupted the previous turn on purpose. Commands and edits that were under way may have \
been done in part; check before you rely on them.\n</turn_aborted>";

/// Tells the model that the program ended in the middle of a turn.
pub const PROCESS_ENDED: &str = "\
<turn_aborted>\nThe agent's process ended in the middle of the previous turn. Commands and edits that were under way \
may have been done in part or in whole; check before you do them again.\n</turn_aborted>";

/// Tells the model that the thread was forked in the middle of a turn.
pub const FORKED_MIDWAY: &str = "\
<turn_aborted>\nThis conversation was continued apart from the original in the middle of a turn. Commands and edits that \
were under way go on elsewhere or have been done in part; check before you do them again.\n</turn_aborted>";

/// Tells the user that the history was cut.
pub const COMPACTION_TRIMMED: &str = "\
no summary could be made, so the history was cut: only its newest part is sent from now on. The log is complete; \
`heddle threads undo-compaction` restores the history";

/// Tells the user that the compacted history was still too long.
pub const COMPACTION_BARE: &str = "\
the compacted history was still too long, so all messages of earlier turns were dropped. The log is complete; \
`heddle threads undo-compaction` restores the history";

/// Tells the user that a summary covers only the end of the history.
pub const COMPACTION_ABRIDGED: &str = "\
the history was too long to be summarised whole: its oldest part is not in the summary. The log has all of it; a model \
with a larger window can summarise it after `heddle threads undo-compaction`";

/// Tells the user that a turn cannot be made to fit.
pub const TURN_TOO_LONG: &str = "\
the setup and the input of this turn alone exceed the model's context window: send less at once, shorten the AGENTS.md \
files, or use a model with a larger window (-m)";

/// The reason if the model sent no summary.
pub const SUMMARY_EMPTY: &str = "the model wrote no summary";

/// Appends the reason for something, in the words of its cause.
pub fn because(what: &str, why: &str) -> String {
    format!("{what} (reason: {why})")
}

/// Tells the user that there is no summary, and that the history is unchanged.
pub fn not_summarised(why: &str) -> String {
    format!("the history could not be summarised and is unchanged: {why}")
}

/// Tells the user that their current messages were shortened.
pub const COMPACTION_SHORTENED: &str = "\
your input in this turn is too long for the context window: its middle was removed when the history was compacted";

/// Tells the user that compaction does not help.
pub const COMPACTION_FUTILE: &str = "\
the history was compacted and still fills the context window: raise model_auto_compact_token_limit, or take a model with \
a larger window";

/// Tells the user that a turn ends without an answer.
pub const ANSWER_EMPTY: &str = "\
the model answered nothing: its last answer has neither text nor a call";

/// Tells the model that the rules of a project are gone.
pub fn agents_md_gone(cwd: &str) -> String {
    format!(
        "{} for {cwd}\n\n<INSTRUCTIONS>\nThere are no rules any more; those given before do not hold.\n</INSTRUCTIONS>",
        words::AGENTS_MD
    )
}

/// Tells the model that its answer does not match the schema.
pub fn answer_rejected(why: &str) -> String {
    format!(
        "Your answer does not follow the schema that the user gave for it: {why}. Give the whole answer again, as one \
         JSON value that follows the schema, without any text or code fence around it."
    )
}

/// Tells the user that the model does not get a file.
pub fn file_left_out(name: &str, why: &str) -> String {
    format!("the model does not get the file {name}: {why}")
}

/// Tells the model that it does not get a file.
pub fn file_missing(name: &str, why: &str) -> String {
    format!("[the attached file {name} was left out: {why}]")
}

/// Tells the model which file the next part is.
pub fn file_follows(name: &str) -> String {
    format!("[attached file {name}]")
}

/// Gives the model a file that is text. The fence is one that does not occur in it.
pub fn file_text(name: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{}\n{fence}\n{text}{end}{fence}", file_follows(name))
}

/// Tells the user that an answer is requested again.
pub fn answer_asked_again(why: &str) -> String {
    format!("the answer does not match the output schema and is requested again: {why}")
}

/// Tells the user that the answer is wrong, even though the model could correct it this often.
pub fn answer_wrong(why: &str, corrections: u32) -> String {
    let after = match corrections {
        0 => String::new(),
        1 => ", even after a second request".to_owned(),
        more => format!(", even after {more} more requests"),
    };
    format!("the answer does not match the output schema{after}: {why}")
}

/// Tells the user that a limit was reached, and how to go on.
pub fn limit_reached(what: &str) -> String {
    format!("{what}; another turn goes on from where this one ended")
}

/// Begins the message to the model about an allowed prefix.
pub(crate) const PREFIX_SAVED: &str = "The user allowed all commands that begin with";

/// Tells the model that the user allowed every command with a prefix from now on.
pub fn prefix_saved(prefix: &[String]) -> String {
    let words = serde_json::to_string(prefix).expect("words are plain data");
    format!(
        "{PREFIX_SAVED} {words} from now on: they run outside of the sandbox and need no approval."
    )
}

/// Tells the model of a command that the user ran, with its result as the tool put it.
pub fn user_command(command: &str, result: &str) -> String {
    let (begin, end) = (words::USER_COMMAND, "</user_shell_command>");
    format!("{begin}\n<command>\n{command}\n</command>\n<result>\n{result}\n</result>\n{end}")
}

/// Asks a reviewer for a review.
pub fn review_request(target: &ReviewTarget) -> String {
    match target {
        ReviewTarget::UncommittedChanges => {
            "Review all uncommitted changes of this repository: what is staged, what is not, and files that are not \
             tracked."
                .to_owned()
        }
        ReviewTarget::BaseBranch { branch } => format!(
            "Review what the current branch would bring into `{branch}`. `git merge-base HEAD {branch}` finds the commit \
             where they part; if `{branch}` has an upstream that is ahead of it, take that instead. `git diff` against \
             that commit is the change."
        ),
        ReviewTarget::Commit { sha, title: Some(title) } => {
            format!("Review the commit {sha} (\"{title}\").")
        }
        ReviewTarget::Commit { sha, title: None } => format!("Review the commit {sha}."),
        ReviewTarget::Custom { instructions } => instructions.clone(),
    }
}

/// Tells the model of a review that the user wanted, and what came of it, if anything.
pub fn review_result(hint: &str, text: Option<&str>) -> String {
    let (begin, end) = (words::REVIEW, "</user_action>");
    let result = text.unwrap_or("None: the reviewer did not finish.");
    format!(
        "{begin}\n<action>review</action>\n<context>The user had a separate reviewer look at this: {hint}. You have not seen \
         its work. The user may refer to its findings; check one before you act on it.</context>\n<results>\n{result}\n\
         </results>\n{end}"
    )
}

/// What the model is told about its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pub cwd: String,
    pub shell: String,
    /// The date in words, such as `Sun, 15 Nov 2026`.
    pub date: String,
    /// The sandbox mode, as the user wrote it.
    pub sandbox_mode: String,
    /// Writable directories in addition to the working directory.
    pub writable_roots: Vec<String>,
    /// Whether commands may use the network.
    pub network: bool,
}

impl Environment {
    /// Renders the block for the first request.
    pub fn render(&self) -> String {
        let mut text = format!("{}\n", words::ENVIRONMENT);
        let mut line = |tag: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  <{tag}>{}</{tag}>", escape(value));
        };
        line("cwd", &self.cwd);
        line("shell", &self.shell);
        line("current_date", &self.date);
        line("sandbox_mode", &self.sandbox_mode);
        for root in &self.writable_roots {
            line("writable_root", root);
        }
        line("network_access", if self.network { "enabled" } else { "restricted" });
        line("approval_policy", "never: what would need approval is refused");
        text.push_str("</environment_context>");
        text
    }
}

/// The AGENTS.md files, as the model reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentsMd {
    pub text: String,
    /// How many of how many bytes are in it, if it was cut.
    pub cut: Option<(usize, usize)>,
}

/// Frames the AGENTS.md files that apply to `cwd`, outermost first; none if there are none.
///
/// Text beyond `bytes_max` is omitted, with a line that says so.
pub fn agents_md(cwd: &str, files: &[(String, String)], bytes_max: usize) -> Option<AgentsMd> {
    if files.iter().all(|(_, text)| text.trim().is_empty()) {
        return None;
    }
    let mut body = String::new();
    for (path, text) in files.iter().filter(|(_, text)| !text.trim().is_empty()) {
        if !body.is_empty() {
            body.push_str("\n\n");
        }
        let _ = write!(body, "--- {path} ---\n\n{}", text.trim_end());
    }
    let total = body.len();
    let cut = (total > bytes_max).then(|| (body.floor_char_boundary(bytes_max), total));
    if let Some((kept, total)) = cut {
        body.truncate(kept);
        let _ = write!(body, "\n[cut at {kept} of {total} bytes: project_doc_max_bytes]");
    }
    let opening = words::AGENTS_MD;
    let text = format!("{opening} for {cwd}\n\n<INSTRUCTIONS>\n{body}\n</INSTRUCTIONS>");
    Some(AgentsMd { text, cut })
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Environment, TURN_ABORTED, agents_md, words};

    #[test]
    fn interruption_messages_are_recognized() {
        assert!(TURN_ABORTED.starts_with(words::TURN_ABORTED));
    }

    #[test]
    fn a_directory_name_cannot_close_the_block() {
        let environment = Environment { cwd: "/a</cwd>".into(), ..Environment::default() };
        assert!(environment.render().contains("<cwd>/a&lt;/cwd&gt;</cwd>"));
    }

    #[test]
    fn agents_files() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        assert_eq!(agents_md("/w", &[], 99), None);
        assert_eq!(agents_md("/w", &[file("a", " \n")], 99), None);
        let both = agents_md("/w", &[file("a", "one\n"), file("b", "two\n")], 99);
        let both = both.expect("two files");
        let want = "--- a ---\n\none\n\n--- b ---\n\ntwo\n</INSTRUCTIONS>";
        assert!(both.text.contains(want) && both.cut.is_none(), "{both:?}");
        let cut = agents_md("/w", &[file("a", &"é".repeat(100))], 20).expect("a file");
        assert!(cut.text.contains("cut at 19 of 211 bytes"), "{cut:?}");
        assert_eq!(cut.cut, Some((19, 211)));
    }
}
