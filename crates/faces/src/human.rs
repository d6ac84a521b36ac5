//! What a person reads while a turn runs: progress for stderr, the answer left out.
//!
//! The answer goes to stdout when the turn is over, so that it can be piped; here it is shown only
//! when more follows it.

use protocol::approval::{Answer, ApprovalRequest, Resolution, Subject};
use protocol::error::RetryAdvice;
use protocol::event::Event;
use protocol::item::{ChangeKind, Command, CompactionReason, Item, ItemBody, Status, StepStatus};
use protocol::repair;
use protocol::usage::Usage;

/// Lines of a command's output that are shown; the model sees more.
const OUTPUT_LINES_MAX: usize = 12;
/// Characters of such a line that are shown.
const OUTPUT_LINE_CHARS_MAX: usize = 400;

/// Renders events for a person.
#[derive(Debug)]
pub struct Human {
    colors: bool,
    reasoning: bool,
    /// A message that is the answer unless something follows it.
    pending: Option<String>,
}

/// What is said before a turn.
#[derive(Clone, Debug)]
pub struct Banner<'a> {
    /// The version of the program.
    pub version: &'a str,
    /// The working directory.
    pub workdir: &'a str,
    /// The model.
    pub model: &'a str,
    /// The provider.
    pub provider: &'a str,
    /// The sandbox mode.
    pub sandbox: &'a str,
}

impl Human {
    /// Makes a renderer; `reasoning` says whether summaries of it are shown.
    pub fn new(colors: bool, reasoning: bool) -> Self {
        Self { colors, reasoning, pending: None }
    }

    /// Renders what is said before a turn.
    pub fn banner(&self, banner: &Banner<'_>) -> String {
        let Banner { version, workdir, model, provider, sandbox } = banner;
        let title = self.paint(Style::Bold, &format!("heddle {version}"));
        let workdir = plain(workdir);
        format!("{title}\n{workdir}\n{model} from {provider}, sandbox {sandbox}\n")
    }

    /// Renders an event; nothing for those that a person need not see.
    pub fn render(&mut self, event: &Event) -> String {
        let text = match event {
            Event::Warning(message) => self.labelled(Style::Yellow, "warning", message),
            Event::HistoryRepaired(repairs) => {
                self.labelled(Style::Yellow, "warning", &repair::summary(repairs))
            }
            Event::ItemStarted(item) => self.started(item),
            Event::ItemUpdated(item) => self.todo(item),
            Event::ItemCompleted(item) => self.completed(item),
            Event::Retrying { attempt, limit, delay, reason } => {
                let wait = format!("{:.1}s", delay.as_secs_f64());
                let text = format!("{reason} ({attempt} of {limit}, in {wait})");
                self.labelled(Style::Yellow, "retrying", &text)
            }
            Event::TurnFailed(error) => {
                let more = match error.retry {
                    RetryAdvice::Never => String::new(),
                    RetryAdvice::Later => " (trying again later may help)".to_owned(),
                    RetryAdvice::After(delay) => {
                        format!(" (try again in {}s)", delay.as_secs().max(1))
                    }
                };
                self.labelled(Style::Red, "error", &format!("{}{more}", error.message))
            }
            Event::TurnInterrupted => self.labelled(Style::Yellow, "interrupted", ""),
            Event::TurnCompleted { usage } => self.usage(usage),
            Event::ThreadStarted(id) => self.paint(Style::Dim, &format!("thread {id}")) + "\n",
            Event::ApprovalRequested { request, .. } => self.question(request),
            Event::ApprovalResolved { resolution, .. } => {
                self.labelled(Style::Yellow, "approval", resolved(resolution))
            }
            Event::TurnStarted | Event::Delta { .. } | Event::ItemDiscarded(_) => String::new(),
        };
        // What was said before something else is shown was not the answer, but progress.
        let said = match event {
            Event::ItemCompleted(Item { body: ItemBody::AgentMessage { .. }, .. }) => String::new(),
            Event::ItemStarted(_) | Event::ItemUpdated(_) | Event::ItemCompleted(_)
                if !text.is_empty() =>
            {
                self.pending.take().map(|text| plain(&text) + "\n").unwrap_or_default()
            }
            _ => String::new(),
        };
        said + &text
    }

    fn question(&self, request: &ApprovalRequest) -> String {
        let what = match &request.subject {
            Subject::Command { argv, outside, .. } => {
                let place = if *outside { " without a sandbox" } else { "" };
                format!("run {:?}{place}?", argv.last().map_or("", String::as_str))
            }
            Subject::Write { paths } => {
                let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                format!("write {}?", paths.join(", "))
            }
        };
        let reason = request.reason.as_ref().map(|reason| format!(" ({reason})"));
        self.labelled(Style::Yellow, "approval", &(what + &reason.unwrap_or_default()))
    }

    fn started(&self, item: &Item) -> String {
        match &item.body {
            ItemBody::Command(command) => self.labelled(Style::Cyan, "run", &command.command),
            ItemBody::WebSearch { query, .. } => self.labelled(Style::Cyan, "search", query),
            ItemBody::TodoList { .. } => self.todo(item),
            ItemBody::Compaction { reason } => {
                let why = match reason {
                    CompactionReason::Requested => "the history, as you wished",
                    CompactionReason::NearlyFull => "the context window is nearly full",
                    CompactionReason::Refused => "the endpoint finds the history too long",
                };
                self.labelled(Style::Yellow, "compacting", why)
            }
            _ => String::new(),
        }
    }

    fn completed(&mut self, item: &Item) -> String {
        match &item.body {
            ItemBody::AgentMessage { text } => {
                let earlier = self.pending.replace(text.clone());
                earlier.map(|text| plain(&text) + "\n").unwrap_or_default()
            }
            ItemBody::Reasoning { summary } if self.reasoning => {
                let text = summary.join("\n");
                if text.trim().is_empty() {
                    return String::new();
                }
                self.paint(Style::Dim, &plain(text.trim())) + "\n"
            }
            ItemBody::Command(command) => self.command(command),
            ItemBody::FileChange { changes, status } => {
                let mut text = String::new();
                for change in changes {
                    let letter = match change.kind {
                        ChangeKind::Add => "A",
                        ChangeKind::Delete => "D",
                        ChangeKind::Update => "M",
                    };
                    let style = match status {
                        Status::Failed | Status::Declined => Style::Red,
                        Status::InProgress | Status::Completed => Style::Green,
                    };
                    text += &self.labelled(style, letter, &change.path);
                }
                if *status == Status::Declined {
                    text += &self.labelled(Style::Yellow, "declined", "the patch was not applied");
                }
                if *status == Status::Failed {
                    text += &self.labelled(Style::Red, "failed", "the patch was not applied");
                }
                text
            }
            _ => String::new(),
        }
    }

    fn command(&self, command: &Command) -> String {
        if command.status == Status::Declined {
            return self.labelled(Style::Yellow, "declined", "the command was not run");
        }
        let mut text = String::new();
        if command.exit_code != Some(0) {
            let code = command.exit_code.map_or("?".to_owned(), |code| code.to_string());
            text += &self.labelled(Style::Red, "exit", &code);
        }
        let lines: Vec<_> = command.output.lines().collect();
        let shown = &lines[..lines.len().min(OUTPUT_LINES_MAX)];
        for line in shown {
            let line: String = plain(line).chars().take(OUTPUT_LINE_CHARS_MAX).collect();
            text += &self.paint(Style::Dim, &format!("  {line}"));
            text.push('\n');
        }
        if lines.len() > shown.len() {
            let rest = format!("  … {} more lines", lines.len() - shown.len());
            text += &self.paint(Style::Dim, &rest);
            text.push('\n');
        }
        text
    }

    fn todo(&self, item: &Item) -> String {
        let ItemBody::TodoList { steps } = &item.body else { return String::new() };
        let mut text = String::new();
        for step in steps {
            let (style, mark) = match step.status {
                StepStatus::Pending => (Style::Dim, "[ ]"),
                StepStatus::InProgress => (Style::Cyan, "[>]"),
                StepStatus::Completed => (Style::Green, "[x]"),
            };
            text += &self.labelled(style, mark, &step.text);
        }
        text
    }

    fn usage(&self, usage: &Usage) -> String {
        let Usage { input_tokens, cached_input_tokens, output_tokens, .. } = usage;
        let text = format!(
            "tokens: {input_tokens} in ({cached_input_tokens} cached), {output_tokens} out"
        );
        self.paint(Style::Dim, &text) + "\n"
    }

    fn labelled(&self, style: Style, label: &str, text: &str) -> String {
        format!("{} {}\n", self.paint(style, label), plain(text))
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.colors { format!("\x1b[{}m{text}\x1b[0m", style as u8) } else { text.to_owned() }
    }
}

fn resolved(resolution: &Resolution) -> &'static str {
    match resolution {
        Resolution::Answered(Answer::Accept) => "accepted",
        Resolution::Answered(Answer::AcceptForSession) => "accepted for this session",
        Resolution::Answered(Answer::AcceptAndRemember(_)) => "accepted from now on",
        Resolution::Answered(Answer::Decline) => "declined",
        Resolution::Answered(Answer::Cancel) => "declined, and the turn ends",
        Resolution::Answered(Answer::TimedOut) => "nobody answered in time",
        Resolution::Answered(Answer::Disconnected) => "nobody is there to answer",
        Resolution::Answered(Answer::Invalid) => "the answer could not be understood",
        Resolution::Withdrawn => "withdrawn",
    }
}

/// Codes of the terminal.
#[derive(Clone, Copy)]
enum Style {
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

/// Takes control characters out of text that is not ours: it could drive the terminal.
pub fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use protocol::approval::{Answer, ApprovalRequest, Resolution, Subject};
    use protocol::event::Event;
    use protocol::id::{ApprovalId, ItemId};
    use protocol::item::{Command, Item, ItemBody, Status};

    use super::Human;

    fn run(output: &str, exit_code: i32) -> Event {
        Event::ItemCompleted(Item {
            id: ItemId(0),
            call_id: None,
            body: ItemBody::Command(Command {
                command: "ls".into(),
                cwd: "/".into(),
                output: output.into(),
                exit_code: Some(exit_code),
                status: Status::Completed,
            }),
        })
    }

    fn said(text: &str) -> Event {
        let body = ItemBody::AgentMessage { text: text.into() };
        Event::ItemCompleted(Item::new(ItemId(1), body))
    }

    #[track_caller]
    fn check(events: &[Event], want: &str) {
        let mut human = Human::new(false, true);
        let text: String = events.iter().map(|event| human.render(event)).collect();
        assert_eq!(text, want);
    }

    #[test]
    fn rendering() {
        check(&[run("a\nb\n", 0)], "  a\n  b\n");
        check(&[run("", 2)], "exit 2\n");
        check(&[run("\x1b]0;owned\x07x\n", 0)], "  ]0;ownedx\n");
        // The answer is printed elsewhere, but what was said on the way is progress.
        check(&[said("on it"), run("", 2), said("done")], "on it\nexit 2\n");
        check(&[said("one"), said("two")], "one\n");
        let todo = ItemBody::TodoList { steps: Vec::new() };
        check(&[said("done"), Event::ItemCompleted(Item::new(ItemId(2), todo))], "");
        let many = "x\n".repeat(20);
        check(&[run(&many, 0)], &("  x\n".repeat(12) + "  … 8 more lines\n"));
    }

    #[test]
    fn approvals() {
        let subject = Subject::Command {
            argv: vec!["/bin/bash".into(), "-lc".into(), "git push".into()],
            cwd: "/w".into(),
            outside: true,
        };
        let reason = Some("may I?".into());
        let request = ApprovalRequest { subject, reason, scopes: Vec::new() };
        let id = ApprovalId(0);
        let resolution = Resolution::Answered(Answer::Decline);
        check(
            &[
                Event::ApprovalRequested { id, item: None, request },
                Event::ApprovalResolved { id, resolution },
            ],
            "approval run \"git push\" without a sandbox? (may I?)\napproval declined\n",
        );
    }

    #[test]
    fn colors_only_when_asked() {
        let mut human = Human::new(true, true);
        assert_eq!(human.render(&run("", 2)), "\x1b[31mexit\x1b[0m 2\n");
    }
}
