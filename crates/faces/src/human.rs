//! Human-readable output of a turn: progress on stderr, and the answer as it streams if there is a terminal
//! to show it on.
//!
//! If stdout is not a terminal it gets the answer when the turn is over, so that it can be piped; the caller
//! writes that. Text of the model is shown once on a terminal: on stdout if that is one, else on stderr if
//! that is one. Without a terminal only commentary before the answer is shown.

use protocol::approval::{Answer, ApprovalRequest, Resolution, Subject};
use protocol::error::RetryAdvice;
use protocol::event::Event;
use protocol::file::FileReference;
use protocol::id::{ApprovalId, ItemId};
use protocol::item::{
    ChangeKind, Command, CompactionReason, Item, ItemBody, Place, Status, StepStatus,
};
use protocol::repair;
use protocol::usage::Usage;
use stdx::visible;

use crate::size::size;

/// Most lines of a command's output that are shown; the model sees more.
const OUTPUT_LINES_MAX: usize = 12;
/// Most characters of such a line that are shown.
const OUTPUT_LINE_CHARS_MAX: usize = 400;

/// Renders events for a person.
#[derive(Debug)]
pub struct Human {
    colors: bool,
    reasoning: bool,
    terminals: Terminals,
    /// A message that is the answer unless something follows it.
    pending: Option<String>,
    /// Messages that are shown as they stream.
    live: Vec<Live>,
    /// The message whose last line has no line break yet.
    open_line: Option<ItemId>,
    /// What the last line is about.
    about: About,
    /// The open questions, as they were shown.
    questions: Vec<(ApprovalId, String)>,
}

/// What a line is about, so that what belongs to it can follow without saying so. Calls can run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct About {
    /// The call that runs, or is typed into.
    item: Option<ItemId>,
    question: Option<ApprovalId>,
}

impl About {
    /// Returns what the lines of an event are about.
    fn event(event: &Event) -> Self {
        let (item, question) = match event {
            Event::ItemStarted(item) | Event::ItemCompleted(item) => (Some(item.id), None),
            Event::Typed { item, .. } => (*item, None),
            Event::ApprovalRequested { id, item, .. } => (*item, Some(*id)),
            _ => (None, None),
        };
        Self { item, question }
    }
}

/// Which of the two streams are terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminals {
    pub stdout: bool,
    pub stderr: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// For the answer.
    Stdout,
    /// For everything else.
    Stderr,
}

/// A text to write, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub channel: Channel,
    /// Written verbatim.
    pub text: String,
}

/// A partially received message.
#[derive(Debug)]
struct Live {
    item: ItemId,
    /// As received; the complete message is compared with it.
    text: String,
    visible: visible::Stream,
}

/// What is shown before a turn.
#[derive(Clone, Debug)]
pub struct Banner<'a> {
    pub version: &'a str,
    pub workdir: &'a str,
    pub model: &'a str,
    pub provider: &'a str,
    pub sandbox: &'a str,
}

impl Human {
    /// Creates a renderer; `reasoning` enables reasoning summaries.
    pub fn new(colors: bool, reasoning: bool, terminals: Terminals) -> Self {
        Self {
            colors,
            reasoning,
            terminals,
            pending: None,
            live: Vec::new(),
            open_line: None,
            about: About::default(),
            questions: Vec::new(),
        }
    }

    /// Renders the banner before a turn.
    pub fn banner(&self, banner: &Banner<'_>) -> String {
        let Banner { version, workdir, model, provider, sandbox } = banner;
        let title = self.paint(Style::Bold, &format!("heddle {version}"));
        let [model, provider] = [model, provider].map(|text| visible::line(text));
        let workdir = visible::exact_line(workdir);
        format!("{title}\n{workdir}\n{model} from {provider}, sandbox {sandbox}\n")
    }

    /// Renders an event: nothing for those that people need not see.
    pub fn render(&mut self, event: &Event) -> Vec<Piece> {
        let mut pieces = Vec::new();
        match event {
            Event::ItemStarted(Item { id, body: ItemBody::AgentMessage { .. }, .. })
                if self.screen().is_some() =>
            {
                let (text, visible) = (String::new(), visible::Stream::default());
                self.live.push(Live { item: *id, text, visible });
            }
            Event::Delta { item, text, .. } => self.stream(*item, text, &mut pieces),
            Event::ItemDiscarded(id) => self.cut_off(*id, &mut pieces),
            Event::ItemCompleted(Item { id, body: ItemBody::AgentMessage { text }, .. }) => {
                self.said(*id, text, &mut pieces);
            }
            event => {
                // A message before another item was not the answer, but progress.
                let of_item = matches!(
                    event,
                    Event::ItemStarted(_) | Event::ItemUpdated(_) | Event::ItemCompleted(_)
                );
                let before = self.about;
                if of_item && self.pending.is_some() {
                    self.about = About::default();
                }
                let text = self.progress(event);
                if text.is_empty() {
                    self.about = before;
                    return pieces;
                }
                // The answer to a question is as much about its call as the question.
                if !matches!(event, Event::ApprovalResolved { .. }) {
                    self.about = About::event(event);
                }
                let said = if of_item { self.pending.take() } else { None };
                let said = said.map(|text| visible::lines(&text).into_owned() + "\n");
                if self.terminals.stderr {
                    self.end_line(&mut pieces);
                }
                put(&mut pieces, Channel::Stderr, said.unwrap_or_default() + &text);
            }
        }
        pieces
    }

    /// Returns where messages are streamed, if anywhere.
    fn screen(&self) -> Option<Channel> {
        match self.terminals {
            Terminals { stdout: true, .. } => Some(Channel::Stdout),
            Terminals { stderr: true, .. } => Some(Channel::Stderr),
            Terminals { stdout: false, stderr: false } => None,
        }
    }

    /// Shows a part of a message.
    fn stream(&mut self, item: ItemId, text: &str, pieces: &mut Vec<Piece>) {
        let Some(screen) = self.screen() else { return };
        let Some(at) = self.live.iter().position(|live| live.item == item) else { return };
        if self.open_line.is_some_and(|open| open != item) {
            self.end_line(pieces);
        }
        let live = &mut self.live[at];
        live.text.push_str(text);
        let mut shown = String::with_capacity(text.len());
        live.visible.push(text, &mut shown);
        self.put_part(item, screen, shown, pieces);
    }

    fn put_part(&mut self, item: ItemId, screen: Channel, text: String, pieces: &mut Vec<Piece>) {
        if !text.is_empty() {
            self.open_line = (!text.ends_with('\n')).then_some(item);
            if self.terminals.stderr {
                self.about = About::default();
            }
            put(pieces, screen, text);
        }
    }

    /// Shows that a partial message will never be completed.
    fn cut_off(&mut self, item: ItemId, pieces: &mut Vec<Piece>) {
        let Some(screen) = self.screen() else { return };
        let Some(at) = self.live.iter().position(|live| live.item == item) else { return };
        if !self.live.swap_remove(at).text.is_empty() {
            self.end_line(pieces);
            let note = self.labelled(Style::Yellow, "cut off", "the text above is incomplete");
            self.about = About::default();
            put(pieces, screen, note);
        }
    }

    /// Shows the rest of a message.
    fn said(&mut self, item: ItemId, text: &str, pieces: &mut Vec<Piece>) {
        if let Some(screen) = self.screen() {
            let at = self.live.iter().position(|live| live.item == item);
            let live = at.map(|at| self.live.swap_remove(at)).unwrap_or(Live {
                item,
                text: String::new(),
                visible: visible::Stream::default(),
            });
            let (rest, mut visible) = match text.strip_prefix(live.text.as_str()) {
                Some(rest) => (rest, live.visible),
                // The text differs from the streamed parts.
                None => {
                    self.end_line(pieces);
                    (text, visible::Stream::default())
                }
            };
            if !rest.is_empty() && self.open_line.is_some_and(|open| open != item) {
                self.end_line(pieces);
            }
            let mut shown = String::with_capacity(rest.len());
            visible.push(rest, &mut shown);
            visible.finish(&mut shown);
            self.put_part(item, screen, shown, pieces);
            if self.open_line == Some(item) {
                self.end_line(pieces);
            }
        }
        // A stderr that is not a terminal has not shown it yet.
        if !self.terminals.stderr
            && let Some(earlier) = self.pending.replace(text.to_owned())
        {
            self.about = About::default();
            put(pieces, Channel::Stderr, visible::lines(&earlier).into_owned() + "\n");
        }
    }

    /// Ends the unfinished line of a message.
    fn end_line(&mut self, pieces: &mut Vec<Piece>) {
        if self.open_line.take().is_some()
            && let Some(screen) = self.screen()
        {
            put(pieces, screen, "\n".to_owned());
        }
    }

    /// Renders everything except messages.
    fn progress(&mut self, event: &Event) -> String {
        match event {
            Event::Warning(message) => self.labelled(Style::Yellow, "warning", message),
            Event::HistoryRepaired(repairs) => {
                self.labelled(Style::Yellow, "warning", &repair::summary(repairs))
            }
            Event::ItemStarted(item) => self.started(item),
            Event::ItemUpdated(item) => self.todo(item),
            Event::Typed { text, .. } => {
                let text: String = text.chars().take(OUTPUT_LINE_CHARS_MAX).collect();
                self.labelled(Style::Cyan, "type", &visible::exact_lines(&text))
            }
            Event::ItemCompleted(item) => self.completed(item),
            Event::FileStaged { file, reused } => {
                let how = if *reused { ", which was staged already" } else { "" };
                self.labelled(Style::Dim, "attached", &format!("{}{how}", described(file)))
            }
            Event::FileSent(file) => self.labelled(Style::Dim, "sent", &described(file)),
            Event::TokensUsed { .. } => String::new(),
            Event::Waiting(since) => {
                let text = format!("for the model, silent for {} s", since.as_secs());
                self.labelled(Style::Dim, "waiting", &text)
            }
            Event::Retrying { attempt, limit, delay, reason } => {
                let wait = format!("{:.1}s", delay.as_secs_f64());
                let text = format!("{reason} ({attempt} of {limit}, in {wait})");
                self.labelled(Style::Yellow, "retrying", &text)
            }
            Event::TurnFailed { error, .. } => {
                let more = match error.retry {
                    RetryAdvice::Never => String::new(),
                    RetryAdvice::Later => " (retrying later may help)".to_owned(),
                    RetryAdvice::After(delay) => {
                        format!(" (try again in {}s)", delay.as_secs().max(1))
                    }
                };
                self.labelled(Style::Red, "error", &format!("{}{more}", error.message))
            }
            Event::TurnInterrupted { .. } => self.labelled(Style::Yellow, "interrupted", ""),
            Event::TurnCompleted { usage, turn_usage, .. } => self.usage(usage, turn_usage),
            Event::ThreadStarted(id) => self.paint(Style::Dim, &format!("thread {id}")) + "\n",
            Event::ApprovalRequested { id, request, .. } => {
                let question = question(request);
                self.questions.push((*id, question.clone()));
                self.labelled(Style::Yellow, "approval", &question)
            }
            Event::ApprovalResolved { id, resolution } => {
                let mut text = resolved(resolution).to_owned();
                let at = self.questions.iter().position(|(open, _)| open == id);
                let question = at.map(|at| self.questions.swap_remove(at).1);
                if self.about.question != Some(*id) {
                    self.about = About::default();
                    text.extend(question.map(|question| format!(": {question}")));
                }
                self.labelled(Style::Yellow, "approval", &text)
            }
            Event::TurnStarted { .. } | Event::Delta { .. } | Event::ItemDiscarded(_) => {
                String::new()
            }
        }
    }

    fn started(&self, item: &Item) -> String {
        match &item.body {
            ItemBody::Command(command) => {
                let run =
                    self.labelled(Style::Cyan, "run", &visible::exact_lines(&command.command));
                match lifting_rule(item) {
                    Some(rule) => format!("{run}  outside the sandbox, by {rule}\n"),
                    None => run,
                }
            }
            ItemBody::WebSearch { query, .. } => self.labelled(Style::Cyan, "search", query),
            ItemBody::ToolCall(call) => {
                let arguments: String =
                    call.arguments.chars().take(OUTPUT_LINE_CHARS_MAX).collect();
                let text = format!("{} of {}: {arguments}", call.tool, call.server);
                self.labelled(Style::Cyan, "remote call", &visible::exact_lines(&text))
            }
            ItemBody::TodoList { .. } => self.todo(item),
            ItemBody::Compaction { reason } => {
                let why = match reason {
                    CompactionReason::Requested => "the history, as requested",
                    CompactionReason::NearlyFull => "the context window is nearly full",
                    CompactionReason::Refused => "the endpoint refused the history as too long",
                };
                self.labelled(Style::Yellow, "compacting", why)
            }
            ItemBody::EnteredReview { hint, .. } => {
                self.labelled(Style::Cyan, "review", &visible::exact_lines(hint))
            }
            // These are shown once they are complete.
            ItemBody::AgentMessage { .. }
            | ItemBody::Reasoning { .. }
            | ItemBody::Plan { .. }
            | ItemBody::FileChange { .. }
            | ItemBody::RefusedCall(_) => String::new(),
            // What a reviewer found follows as a message.
            ItemBody::ExitedReview { .. } => String::new(),
            // They know what they said.
            ItemBody::UserMessage(_) => String::new(),
        }
    }

    fn completed(&self, item: &Item) -> String {
        match &item.body {
            ItemBody::Reasoning { summary, .. } => {
                let text = summary.join("\n");
                if !self.reasoning || text.trim().is_empty() {
                    return String::new();
                }
                self.paint(Style::Dim, &visible::lines(text.trim())) + "\n"
            }
            ItemBody::Plan { text } => {
                self.labelled(Style::Cyan, "plan", "") + &visible::lines(text.trim()) + "\n"
            }
            ItemBody::Command(command) => self.under_header(item, self.command(command)),
            ItemBody::ToolCall(call) => {
                let (style, word) = match call.status {
                    Status::Failed | Status::Declined => (Style::Red, "failed"),
                    Status::InProgress | Status::Completed => (Style::Green, "returned"),
                };
                let text = self.labelled(style, word, &call.tool) + &self.output(&call.output);
                self.under_header(item, text)
            }
            ItemBody::RefusedCall(call) => {
                let arguments: String =
                    call.arguments.chars().take(OUTPUT_LINE_CHARS_MAX).collect();
                let text = format!("{}: {arguments}", call.tool);
                self.labelled(Style::Yellow, "refused", &visible::exact_lines(&text))
                    + &self.output(&call.reason)
            }
            ItemBody::FileChange { changes, status, refusal } => {
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
                    let path = match &change.moved_to {
                        Some(to) => format!("{} → {to}", change.path),
                        None => change.path.clone(),
                    };
                    text += &self.labelled(style, letter, &visible::exact_line(&path));
                }
                if *status == Status::Declined {
                    text += &self.labelled(Style::Yellow, "declined", "the patch was not applied");
                }
                if *status == Status::Failed {
                    text += &self.labelled(Style::Red, "failed", "the patch was not applied");
                }
                text + &self.output(refusal.as_deref().unwrap_or_default())
            }
            // A message is streamed or kept for stdout, the user knows what they said, and the others were
            // shown when they started.
            ItemBody::AgentMessage { .. }
            | ItemBody::UserMessage(_)
            | ItemBody::WebSearch { .. }
            | ItemBody::TodoList { .. }
            | ItemBody::Compaction { .. }
            | ItemBody::EnteredReview { .. }
            | ItemBody::ExitedReview { .. } => String::new(),
        }
    }

    /// Repeats which call a text belongs to, if something else was shown since that was said.
    fn under_header(&self, item: &Item, text: String) -> String {
        if text.is_empty() || self.about.item == Some(item.id) {
            return text;
        }
        self.started(item) + &text
    }

    fn command(&self, command: &Command) -> String {
        if command.status == Status::Declined {
            let text = self.labelled(Style::Yellow, "declined", "the command was not run");
            return text + &self.output(&command.output);
        }
        let mut text = String::new();
        if command.exit_code != Some(0) {
            let code = command.exit_code.map_or("?".to_owned(), |code| code.to_string());
            text += &self.labelled(Style::Red, "exit", &code);
        }
        text + &self.output(&command.output)
    }

    /// Renders the beginning of an output.
    fn output(&self, output: &str) -> String {
        let mut text = String::new();
        let lines: Vec<_> = output.lines().collect();
        let shown = &lines[..lines.len().min(OUTPUT_LINES_MAX)];
        for line in shown {
            let line: String = visible::lines(line).chars().take(OUTPUT_LINE_CHARS_MAX).collect();
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

    fn usage(&self, thread: &Usage, turn: &Usage) -> String {
        let counts = |usage: &Usage| {
            let Usage { input_tokens, cached_input_tokens, output_tokens, .. } = usage;
            format!("{input_tokens} in ({cached_input_tokens} cached), {output_tokens} out")
        };
        let mut text = format!("tokens of this turn: {}", counts(turn));
        // In the first turn they are the same.
        if thread != turn {
            text += &format!("; of the thread: {}", counts(thread));
        }
        self.paint(Style::Dim, &text) + "\n"
    }

    /// Renders a line with a label. Further lines start with a bar, so that nothing in them can imitate a
    /// label.
    fn labelled(&self, style: Style, label: &str, text: &str) -> String {
        let text = visible::lines(text);
        let text = text.trim_end().replace('\n', "\n| ");
        let gap = if text.is_empty() { "" } else { " " };
        format!("{}{gap}{text}\n", self.paint(style, label))
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.colors { format!("\x1b[{}m{text}\x1b[0m", style as u8) } else { text.to_owned() }
    }
}

/// Phrases what a person is asked.
fn question(request: &ApprovalRequest) -> String {
    let what = match &request.subject {
        Subject::Command { argv, outside, .. } => {
            let place = if *outside { " without a sandbox" } else { "" };
            format!("run `{}`{place}?", visible::exact_line(argv.last().map_or("", String::as_str)))
        }
        Subject::Input { argv, outside, text, .. } => {
            let place = if *outside { ", which runs without a sandbox" } else { "" };
            let [text, into] =
                [text.as_str(), argv.last().map_or("", String::as_str)].map(visible::exact_line);
            format!("type `{text}` into `{into}`{place}?")
        }
        Subject::ToolCall { server, tool, arguments } => {
            let [server, tool, arguments] =
                [server, tool, arguments].map(|it| visible::exact_line(it));
            format!("call {server}.{tool} {arguments}?")
        }
        Subject::Write { paths } => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("write {}?", visible::exact_line(&paths.join(", ")))
        }
        Subject::Questions { questions, .. } => {
            let asked = questions.iter().map(|question| visible::exact_line(&question.question));
            asked.collect::<Vec<_>>().join(" ")
        }
    };
    let reason = request.reason.as_ref().map(|reason| format!(" ({reason})"));
    what + &reason.unwrap_or_default()
}

fn resolved(resolution: &Resolution) -> &str {
    match resolution {
        Resolution::Answered(Answer::Accept) => "accepted",
        Resolution::Answered(Answer::AcceptForSession) => "accepted for this session",
        Resolution::Answered(Answer::AcceptAndRemember(_)) => "accepted from now on",
        Resolution::Answered(Answer::Replied(_)) => "answered",
        Resolution::Answered(Answer::Decline) => "declined",
        Resolution::Answered(Answer::Cancel) => "declined, and the turn ends",
        Resolution::Answered(answer) => answer.refusal().unwrap_or("accepted"),
        Resolution::Withdrawn => "withdrawn",
    }
}

/// Terminal escape codes.
#[derive(Clone, Copy)]
enum Style {
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

/// Appends a text, to the last piece if that goes to the same stream.
/// Describes an attached file in a few words.
fn described(file: &FileReference) -> String {
    format!("{} ({}, {})", file.name, file.kind, size(file.bytes))
}

fn put(pieces: &mut Vec<Piece>, channel: Channel, text: String) {
    match pieces.last_mut() {
        Some(last) if last.channel == channel => last.text.push_str(&text),
        _ => pieces.push(Piece { channel, text }),
    }
}

/// Describes the rule that took a command out of the sandbox, if one did.
fn lifting_rule(item: &Item) -> Option<String> {
    let decision = item.decision.as_deref()?;
    let lifted = decision.place == Some(Place::Outside) && decision.rule.is_some();
    lifted.then(|| visible::exact_line(&decision.reason).into_owned())
}

#[cfg(test)]
mod tests {
    use protocol::approval::{Answer, ApprovalRequest, Resolution, Subject};
    use protocol::event::{DeltaPart, Event};
    use protocol::file::{Digest, FileKind, FileReference};
    use protocol::id::{ApprovalId, ItemId};
    use protocol::item::{
        Change, ChangeKind, Command, CommandSource, Decision, Item, ItemBody, Place, RuleSource,
        Status, ToolCall, Verdict,
    };
    use protocol::usage::Usage;
    use protocol::user::UserMessage;

    use super::{Channel, Human, Terminals};

    fn run(output: &str, exit_code: i32) -> Event {
        let body = ItemBody::Command(Command {
            command: "ls".into(),
            cwd: "/".into(),
            output: output.into(),
            exit_code: Some(exit_code),
            status: Status::Completed,
            source: CommandSource::Model,
        });
        Event::ItemCompleted(Item::new(ItemId(0), body))
    }

    fn said(text: &str) -> Event {
        let body = ItemBody::AgentMessage { text: text.into() };
        Event::ItemCompleted(Item::new(ItemId(1), body))
    }

    fn begun(id: u64) -> Event {
        let body = ItemBody::AgentMessage { text: String::new().into() };
        Event::ItemStarted(Item::new(ItemId(id), body))
    }

    fn part(id: u64, text: &str) -> Event {
        Event::Delta { item: ItemId(id), part: DeltaPart::Message, text: text.into() }
    }

    fn started(command: &str) -> Event {
        let Event::ItemCompleted(mut item) = run("", 0) else { unreachable!() };
        let ItemBody::Command(body) = &mut item.body else { unreachable!() };
        body.command = command.into();
        Event::ItemStarted(item)
    }

    #[track_caller]
    fn check(events: &[Event], want: &str) {
        check_on(Terminals::default(), events, "", want);
    }

    /// Plays events to terminals, and compares stdout and stderr.
    #[track_caller]
    fn check_on(terminals: Terminals, events: &[Event], stdout: &str, stderr: &str) {
        let mut human = Human::new(false, true, terminals);
        let mut got = [String::new(), String::new()];
        for piece in events.iter().flat_map(|event| human.render(event)) {
            got[usize::from(piece.channel == Channel::Stderr)] += &piece.text;
        }
        assert_eq!(got, [stdout, stderr]);
    }

    /// Plays events to one terminal that shows both streams.
    #[track_caller]
    fn check_both(events: &[Event], want: &str) {
        let mut human = Human::new(false, true, Terminals { stdout: true, stderr: true });
        let pieces = events.iter().flat_map(|event| human.render(event));
        assert_eq!(pieces.map(|piece| piece.text).collect::<String>(), want);
    }

    #[test]
    fn rendering() {
        check(&[run("a\nb\n", 0)], "run ls\n  a\n  b\n");
        check(&[run("", 2)], "run ls\nexit 2\n");
        check(&[run("", 0)], "");
        check(&[run("\x1b]0;owned\x07x\r\n", 0)], "run ls\n  \\u{1b}]0;owned\\u{7}x\n");
        let Event::ItemCompleted(mut lifted) = run("", 0) else { return };
        lifted.decision = Some(Box::new(Decision {
            verdict: Verdict::Run,
            place: Some(Place::Outside),
            rule: Some(RuleSource { pattern: "ls".into(), source: "my.rules:1:1".into() }),
            reason: "the rule [ls] of my.rules:1:1".into(),
            refusal: None,
        }));
        check(
            &[Event::ItemStarted(lifted)],
            "run ls\n  outside the sandbox, by the rule [ls] of my.rules:1:1\n",
        );
        // The answer is printed elsewhere, but commentary is progress.
        check(&[said("on it"), run("", 2), said("done")], "on it\nrun ls\nexit 2\n");
        check(&[said("one"), said("two")], "one\n");
        let user = Item::new(ItemId(2), ItemBody::UserMessage(UserMessage::text("go")));
        check(&[Event::ItemStarted(user.clone()), Event::ItemCompleted(user)], "");
        let todo = ItemBody::TodoList { steps: Vec::new() };
        check(&[said("done"), Event::ItemCompleted(Item::new(ItemId(2), todo))], "");
        let many = "x\n".repeat(20);
        check(
            &[run(&many, 0)],
            &("run ls\n".to_owned() + &"  x\n".repeat(12) + "  … 8 more lines\n"),
        );
    }

    /// Whatever happens in between, every output stands under the line of its own call.
    #[test]
    fn outputs_stand_under_their_calls() {
        fn item(id: u64, command: &str, output: &str, exit_code: i32) -> Item {
            let Event::ItemCompleted(mut item) = run(output, exit_code) else { unreachable!() };
            let ItemBody::Command(body) = &mut item.body else { unreachable!() };
            body.command = command.into();
            item.id = ItemId(id);
            item
        }
        // A capital letter begins a call, a small one ends it; numbers are what else can be shown.
        let event = |step: char| match step {
            'A' => Event::ItemStarted(item(10, "one", "", 0)),
            'a' => Event::ItemCompleted(item(10, "one", "1\n", 0)),
            'B' => Event::ItemStarted(item(11, "two", "", 0)),
            'b' => Event::ItemCompleted(item(11, "two", "2\n", 3)),
            'C' => Event::ItemStarted(item(12, "silent", "", 0)),
            'c' => Event::ItemCompleted(item(12, "silent", "", 0)),
            'R' => Event::ItemStarted(call(13, "")),
            'r' => Event::ItemCompleted(call(13, "3\n")),
            '1' => Event::Warning("careful".into()),
            '2' => said("on it"),
            '3' => Event::Typed { item: Some(ItemId(10)), session: 1, text: "x".into() },
            '4' => Event::Typed { item: Some(ItemId(11)), session: 2, text: "y".into() },
            '5' => question(5, Some(10), "one"),
            '6' => answered(5),
            '7' => question(6, Some(11), "two"),
            '8' => answered(6),
            step => panic!("{step}"),
        };
        fn call(id: u64, output: &str) -> Item {
            let status = Status::Completed;
            let (server, tool) = ("s".into(), "t".into());
            let call =
                ToolCall { server, tool, arguments: "{}".into(), output: output.into(), status };
            Item::new(ItemId(id), ItemBody::ToolCall(call))
        }
        fn question(id: u64, item: Option<u64>, command: &str) -> Event {
            let argv = vec![command.to_owned()];
            let subject = Subject::Command { argv, cwd: "/w".into(), outside: false };
            let request = ApprovalRequest { subject, reason: None, scopes: Vec::new() };
            Event::ApprovalRequested { id: ApprovalId(id), item: item.map(ItemId), request }
        }
        fn answered(id: u64) -> Event {
            let resolution = Resolution::Answered(Answer::Accept);
            Event::ApprovalResolved { id: ApprovalId(id), resolution }
        }
        for (steps, want) in [
            ("Aa", "run one|  1"),
            ("AaBb", "run one|  1|run two|exit 3|  2"),
            ("ABab", "run one|run two|run one|  1|run two|exit 3|  2"),
            ("ABba", "run one|run two|exit 3|  2|run one|  1"),
            ("ACca", "run one|run silent|run one|  1"),
            ("ARra", "run one|remote call t of s: {}|returned t|  3|run one|  1"),
            (
                "ARar",
                "run one|remote call t of s: {}|run one|  1|remote call t of s: {}|returned t|  3",
            ),
            ("A1a", "run one|warning careful|run one|  1"),
            ("A2a", "run one|on it|run one|  1"),
            ("A3a", "run one|type x|  1"),
            ("AB3a", "run one|run two|type x|  1"),
            ("A4a", "run one|type y|run one|  1"),
            ("A56a", "run one|approval run `one`?|approval accepted|  1"),
            (
                "AB5768ab",
                "run one|run two|approval run `one`?|approval run `two`?|approval accepted: run `one`?|\
                 approval accepted: run `two`?|run one|  1|run two|exit 3|  2",
            ),
        ] {
            let events: Vec<_> = steps.chars().map(event).collect();
            check(&events, &(want.replace('|', "\n") + "\n"));
        }
        // Messages that stream to the same terminal come in between as well.
        check_both(
            &[event('A'), begun(1), part(1, "hm"), event('a')],
            "run one\nhm\nrun one\n  1\n",
        );
        // On another terminal they do not.
        let other = Terminals { stdout: true, stderr: false };
        check_on(other, &[event('A'), begun(1), part(1, "hm"), event('a')], "hm", "run one\n  1\n");
    }

    #[test]
    fn tokens_say_whose_they_are() {
        let usage = |input_tokens| Usage { input_tokens, output_tokens: 5, ..Usage::default() };
        for (thread, turn, want) in [
            (7, 7, "tokens of this turn: 7 in (0 cached), 5 out\n"),
            (
                9,
                7,
                "tokens of this turn: 7 in (0 cached), 5 out; of the thread: 9 in (0 cached), 5 out\n",
            ),
        ] {
            let (usage, turn_usage) = (usage(thread), usage(turn));
            check(&[Event::TurnCompleted { usage, turn_usage, at_ms: 0 }], want);
        }
    }

    #[test]
    fn attached_files() {
        let file = |name: &str, bytes| FileReference {
            sha256: Digest::new([0; Digest::BYTES]),
            name: name.to_owned(),
            kind: FileKind::Pdf,
            bytes,
        };
        for (event, want) in [
            (
                Event::FileStaged { file: file("a.pdf", 1_234_567), reused: false },
                "attached a.pdf (application/pdf, 1.2 MB)\n",
            ),
            (
                Event::FileStaged { file: file("a.pdf", 9), reused: true },
                "attached a.pdf (application/pdf, 9 B), which was staged already\n",
            ),
            (Event::FileSent(file("a\u{1b}[2K", 9)), "sent a\\u{1b}[2K (application/pdf, 9 B)\n"),
        ] {
            check(&[event], want);
        }
    }

    /// A model's text can neither imitate a line of ours nor be displayed in another order than it runs.
    #[test]
    fn model_text_cannot_imitate_our_output() {
        for (event, want) in [
            (started("ls\nexit 0\nrun rm"), "run ls\n| exit 0\n| run rm\n"),
            (started("ls\r\x1b[2K\u{202e}fr mr"), "run ls\\r\\u{1b}[2K\\u{202e}fr mr\n"),
            (started("ls\u{2028}rm\u{200b}"), "run ls\\u{2028}rm\\u{200b}\n"),
            (
                started("ls\u{2800}\u{3000}\u{a0}❤\u{fe0f}\u{200d}x"),
                "run ls\\u{2800}\\u{3000}\\u{a0}❤\\u{fe0f}\\u{200d}x\n",
            ),
            (
                Event::Warning("1\u{a0}km ❤\u{fe0f} ⠿\u{2800}".into()),
                "warning 1\u{a0}km ❤\u{fe0f} ⠿\u{2800}\n",
            ),
            (Event::Warning("a\nerror: b\n".into()), "warning a\n| error: b\n"),
            (run("a\u{2066}b\n", 0), "run ls\n  a\\u{2066}b\n"),
        ] {
            check(&[event], want);
        }
        let path = "a\nA b\u{202e}".to_owned();
        let (moved_to, diff) = (None, "".into());
        let changes = vec![Change { path, kind: ChangeKind::Add, moved_to, diff }];
        let body = ItemBody::FileChange { changes, status: Status::Completed, refusal: None };
        check(&[Event::ItemCompleted(Item::new(ItemId(0), body))], "A a\\nA b\\u{202e}\n");
    }

    #[test]
    fn messages_are_shown_once_as_they_arrive() {
        let (one, both) =
            (Terminals { stdout: true, stderr: false }, Terminals { stdout: true, stderr: true });
        let only_stderr = Terminals { stdout: false, stderr: true };
        let answer = [begun(1), part(1, "Hel"), part(1, "lo"), said("Hello")];
        for events in [&answer[..], &[begun(1), said("Hello")], &[said("Hello")]] {
            check_on(both, events, "Hello\n", "");
            check_on(one, events, "Hello\n", "");
            check_on(only_stderr, events, "", "Hello\n");
            check_on(Terminals::default(), events, "", "");
        }
        // The first part is shown before the second arrives, and the line ends only once.
        let mut human = Human::new(false, true, both);
        let texts: Vec<_> =
            answer.iter().map(|event| human.render(event).pop().map(|piece| piece.text)).collect();
        let want = [None, Some("Hel"), Some("lo"), Some("\n")];
        assert_eq!(texts, want.map(|text| text.map(str::to_owned)));
        check_both(&[begun(1), part(1, "a\n"), said("a\n")], "a\n");
        // Commentary is shown between actions; a stderr without a terminal gets it, too.
        let way = [begun(1), part(1, "on it"), said("on it"), run("", 2), said("done")];
        check_both(&way, "on it\nrun ls\nexit 2\ndone\n");
        check_on(one, &way, "on it\ndone\n", "on it\nrun ls\nexit 2\n");
        // A command that starts during a message.
        let within = [begun(1), part(1, "a"), run("", 2), part(1, "b"), said("abc")];
        check_both(&within, "a\nrun ls\nexit 2\nbc\n");
        // Two messages at once.
        let two = [begun(1), part(1, "a"), begun(2), part(2, "b"), part(1, "c"), said("ac")];
        check_both(&two, "a\nb\nc\n");
        // A stream that broke off, and the same answer again.
        let cut = [
            begun(1),
            part(1, "Hel"),
            Event::ItemDiscarded(ItemId(1)),
            begun(2),
            part(2, "Hello"),
            Event::TurnInterrupted { at_ms: 0 },
        ];
        check_both(&cut, "Hel\ncut off the text above is incomplete\nHello\ninterrupted\n");
        check_both(&[begun(1), Event::ItemDiscarded(ItemId(1))], "");
        // The complete text differs from its parts.
        check_both(&[begun(1), part(1, "Hullo"), said("Hello")], "Hullo\nHello\n");
        // Escapes stay visible however they are chunked.
        let torn = [
            begun(1),
            part(1, "a\u{1b}"),
            part(1, "[31m\r"),
            part(1, "\nb"),
            said("a\u{1b}[31m\r\nb"),
        ];
        check_both(&torn, "a\\u{1b}[31m\nb\n");
    }

    #[test]
    fn calls_of_the_endpoint() {
        let call = |status, output: &str| {
            Item::new(
                ItemId(0),
                ItemBody::ToolCall(ToolCall {
                    server: "endpoint".into(),
                    tool: "echo".into(),
                    arguments: "{\"msg\":\n\"hi\"}".into(),
                    output: output.into(),
                    status,
                }),
            )
        };
        check(
            &[
                Event::ItemStarted(call(Status::InProgress, "")),
                Event::ItemCompleted(call(Status::Completed, "hi\x1b[0m\nyou")),
                Event::ItemCompleted(call(Status::Failed, "no")),
            ],
            "remote call echo of endpoint: {\"msg\":\n| \"hi\"}\nreturned echo\n  hi\\u{1b}[0m\n  you\n\
             failed echo\n  no\n",
        );
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
        for (answer, says) in [
            (Answer::Decline, "declined"),
            (Answer::TimedOut, "nobody answered in time"),
            (Answer::Failed("it panicked: \x1b[2J".to_owned()), "it panicked: \\u{1b}[2J"),
        ] {
            let request = request.clone();
            let resolution = Resolution::Answered(answer);
            let asked = Event::ApprovalRequested { id, item: None, request };
            let want =
                format!("approval run `git push` without a sandbox? (may I?)\napproval {says}\n");
            check(&[asked, Event::ApprovalResolved { id, resolution }], &want);
        }
    }

    #[test]
    fn colors_only_when_asked() {
        let mut human = Human::new(true, true, Terminals::default());
        let pieces = human.render(&run("", 2));
        assert_eq!(pieces[0].text, "\x1b[36mrun\x1b[0m ls\n\x1b[31mexit\x1b[0m 2\n");
    }
}
