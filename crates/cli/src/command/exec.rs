//! `heddle exec`: one turn, from flags to exit code.

use std::future::poll_fn;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use anyhow::{anyhow, bail};
use faces::exec_jsonl::ExecJsonl;
use faces::human::{Banner, Channel, Human, Piece, Terminals};
use faces::last_message::LastMessage;
use futures_util::Stream as _;
use heddle::error::ErrorClass;
use heddle::session::check_output_schema;
use heddle::session::given;
use heddle::session::settings::{self, Preferences};
use heddle::structured_output::{Schema, SchemaError};
use heddle::{
    ErrorKind, Heddle, Input, Mode, Notice, ReviewTarget, Thread, ThreadId, ThreadSpec, Turn,
};
use protocol::event::Event;
use protocol::usage::TurnUsage;
use serde_json::Value;
use stdx::visible;

use crate::answer_file::AnswerFile;
use crate::args::{
    ColorArg, ExecArgs, ExecCommand, ExecFlags, ForkArgs, ResumeArgs, ReviewArgs, SharedArgs,
    split_thread,
};
use crate::failure::{Failure, code, facts};
use crate::find;
use crate::host;
use crate::signals::{Signals, StartingSignals};
use crate::terminal::{Screen, note, print_line};
use crate::user_input;

/// `heddle review`, which is `heddle exec review`.
pub(crate) fn review(before: SharedArgs, review: Box<ReviewArgs>) -> Result<ExitCode, Failure> {
    let command = Some(ExecCommand::Review(review));
    run(before, ExecArgs { command, prompt: None, flags: ExecFlags::default() })
}

pub(crate) fn run(before: SharedArgs, args: ExecArgs) -> Result<ExitCode, Failure> {
    let ExecRequest { flags, from, prompt, review } = asked(before, args);
    if let Some(review) = &review {
        check_review(review, prompt.as_deref(), &flags).map_err(Failure::usage)?;
    }
    for (flag, given) in
        [("--include-deltas", flags.include_deltas), ("--include-refused", flags.include_refused)]
    {
        if given && !flags.json {
            return Err(Failure::usage(anyhow!("{flag} requires --json")));
        }
    }
    if flags.output_retries.is_some() && flags.output_schema.is_none() {
        return Err(Failure::usage(anyhow!("--output-retries requires --output-schema")));
    }
    let heddle = host::heddle(flags.shared.directory.as_deref())?;
    let preferences =
        Preferences { ignore_file: flags.ignore_user_config, ..flags.shared.preferences() };
    // Problems of the configuration are reported before stdin is read.
    let settings = settings::load(heddle.host(), preferences)?;
    if let Some(path) = &flags.output_last_message {
        // Checked before anything is done, and again when it is known where commands may write.
        AnswerFile::check(path).map_err(Failure::usage)?;
    }
    if flags.plan && flags.output_schema.is_some() {
        return Err(Failure::usage(anyhow!(
            "--plan and --output-schema exclude each other: a plan is Markdown; carry it out with --output-schema"
        )));
    }
    if flags.plan && review.is_some() {
        return Err(Failure::usage(anyhow!(
            "--plan and review exclude each other: a review changes nothing"
        )));
    }
    if flags.plan && matches!(from, StartFrom::Plan { .. }) {
        return Err(Failure::usage(anyhow!("--plan and --implement exclude each other")));
    }
    let mut start = start(&heddle, &from)?;
    // A fork without a prompt only forks, and a change that git knows needs no words.
    let only_forks = matches!(from, StartFrom::Fork(_)) && prompt.is_none();
    let words = if only_forks || matches!(review, Some(Reviewed::Named(_))) {
        None
    } else if let (StartFrom::Plan { fresh, .. }, Start::Resume(thread)) = (&from, &start) {
        let plan = last_plan(&heddle, *thread)?;
        if *fresh {
            start = Start::New;
        }
        let asked = match prompt.as_deref() {
            None => None,
            stated => Some(user_input::prompt(stated).map_err(Failure::usage)?),
        };
        Some(plan_to_do(&plan, asked.as_deref()))
    } else {
        let read = user_input::prompt(prompt.as_deref());
        let read = read.map_err(|error| match flags.images.last() {
            // The flag takes every argument after it.
            Some(taken) if prompt.is_none() && !taken.exists() => anyhow!(
                "{error}; `{}` was parsed as an image: put `--` between the images and the prompt",
                taken.display()
            ),
            _ => error,
        });
        Some(read.map_err(Failure::usage)?)
    };
    let work = match (review, words) {
        (Some(Reviewed::Named(target)), _) => Work::Review(target),
        (Some(Reviewed::AsSaid), instructions) => {
            Work::Review(ReviewTarget::Custom { instructions: instructions.unwrap_or_default() })
        }
        (None, Some(prompt)) => Work::Say(input(prompt, &flags.images)),
        (None, None) => Work::Nothing,
    };
    if matches!(work, Work::Nothing) && !flags.files.is_empty() {
        return Err(Failure::usage(anyhow!(
            "--file needs a prompt to attach to; add one, or omit --file"
        )));
    }
    if matches!(work, Work::Nothing) && flags.ephemeral {
        return Err(Failure::usage(anyhow!(
            "an ephemeral fork needs a prompt; add one, or omit --ephemeral"
        )));
    }
    let schema = flags.output_schema.as_deref().map(read_schema).transpose()?;
    let format = schema.map(|schema| AnswerFormat { schema, retries: flags.output_retries });
    let trusted =
        flags.skip_git_repo_check || flags.shared.dangerously_bypass_approvals_and_sandbox;
    if !trusted && !heddle.is_in_repository() {
        return Err(Failure::usage(anyhow!(
            // Clients match the first words.
            "Not inside a trusted directory: {} is not inside a git repository, so changes could not be \
             undone. Run it in one, or add --skip-git-repo-check",
            heddle.directory().display()
        )));
    }
    let async_runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let done = async_runtime.block_on(async {
        // Before anything is opened: a file that cannot be attached is like a flag that cannot be read.
        let mut work = work;
        let here = std::env::current_dir().unwrap_or_default();
        for path in &flags.files {
            let attachment = heddle.files().stage(here.join(path)).await?;
            work = match work {
                Work::Say(input) => Work::Say(input.attachment(&attachment)),
                work => work,
            };
        }
        let spec = match start {
            Start::New => ThreadSpec::new(),
            Start::Resume(thread) => ThreadSpec::resume(thread),
            Start::Fork(thread) => ThreadSpec::fork(thread),
        };
        let spec = spec
            .directory(heddle.directory())
            .settings(settings)
            .ephemeral(flags.ephemeral)
            .ignore_rules(flags.ignore_rules)
            .originator(host::EXEC)
            .on_notice(|notice| host::print_notice(&notice));
        let spec = match (flags.plan, &from) {
            (true, _) => spec.mode(Mode::Plan),
            (false, StartFrom::Plan { .. }) => spec.mode(Mode::Default),
            (false, _) => spec,
        };
        let signals = Signals::start().map_err(Failure::failed)?;
        let thread = heddle.start(spec).await?;
        let file = flags.output_last_message.as_deref();
        let facts = facts(&thread)?;
        let profile = &facts.profile;
        let roots = profile.writable_roots.iter().chain(&profile.temporary_roots);
        let roots: Vec<_> = roots.cloned().collect();
        let file = file.map(|path| AnswerFile::open(path, &roots)).transpose();
        let file = file.map_err(Failure::usage)?;
        let face = if flags.json {
            let face = ExecJsonl::default()
                .with_deltas(flags.include_deltas)
                .with_refused(flags.include_refused);
            Face::Json(Box::new(face))
        } else {
            let colors = match flags.color {
                Some(ColorArg::Always) => true,
                Some(ColorArg::Never) => false,
                Some(ColorArg::Auto) | None => Screen::of_stderr().colors,
            };
            let terminals =
                Terminals { stdout: stdout().is_terminal(), stderr: stderr().is_terminal() };
            Face::Human(Human::new(colors, !facts.hide_reasoning, terminals))
        };
        let deltas = match &face {
            Face::Json(_) => flags.include_deltas,
            Face::Human(_) => stdout().is_terminal() || stderr().is_terminal(),
        };
        let (last, output) = (LastMessage::default(), Output::default());
        let mut run = Run { face, deltas, last, output };
        run.turn(&thread, work, format, file, signals).await
    });
    // A pending DNS lookup no longer matters.
    async_runtime.shutdown_background();
    done
}

/// What the answer must look like.
struct AnswerFormat {
    schema: Value,
    /// How often a wrong one is requested again, if the user says.
    retries: Option<u32>,
}

struct ExecRequest {
    flags: ExecFlags,
    from: StartFrom,
    prompt: Option<String>,
    /// What is to be reviewed, if that is to be done.
    review: Option<Reviewed>,
}

/// What is to be reviewed.
enum Reviewed {
    Named(ReviewTarget),
    /// What the prompt says.
    AsSaid,
}

/// What the turn is to do.
enum Work {
    Say(Input),
    Review(ReviewTarget),
    /// There is no turn.
    Nothing,
}

/// Where to start from, as the user gave it.
enum StartFrom {
    Nothing,
    Resume(NamedThread),
    Fork(NamedThread),
    /// From the last plan of a thread, to carry it out.
    Plan {
        of: NamedThread,
        /// Whether in a new thread.
        fresh: bool,
    },
}

/// A thread, as the user named it.
enum NamedThread {
    Text(String),
    Last {
        all: bool,
    },
    /// A thread is needed, but none is named.
    Nothing,
}

impl NamedThread {
    fn new(thread: Option<String>, last: bool, all: bool) -> Self {
        match thread {
            Some(thread) => Self::Text(thread),
            None if last => Self::Last { all },
            None => Self::Nothing,
        }
    }
}

fn asked(before: SharedArgs, args: ExecArgs) -> ExecRequest {
    let ExecArgs { command, prompt, mut flags } = args;
    flags.shared = flags.shared.merge_over(before);
    match command {
        None => ExecRequest { flags, from: StartFrom::Nothing, prompt, review: None },
        Some(ExecCommand::Resume(resume)) => {
            let ResumeArgs { thread, prompt: own, last, all, implement, fresh, flags: after } =
                *resume;
            let (thread, own) = split_thread(last, thread, own);
            let named = NamedThread::new(thread, last, all);
            let from = match implement {
                true => StartFrom::Plan { of: named, fresh },
                false => StartFrom::Resume(named),
            };
            let flags = after.merge_over(flags);
            ExecRequest { flags, from, prompt: own.or(prompt), review: None }
        }
        Some(ExecCommand::Fork(fork)) => {
            let ForkArgs { thread, prompt: own, last, all, flags: after } = *fork;
            let (thread, own) = split_thread(last, thread, own);
            let from = StartFrom::Fork(NamedThread::new(thread, last, all));
            let flags = after.merge_over(flags);
            ExecRequest { flags, from, prompt: own.or(prompt), review: None }
        }
        Some(ExecCommand::Review(review)) => {
            let ReviewArgs { prompt: own, uncommitted, base, commit, title, flags: after } =
                *review;
            let target = match (uncommitted, base, commit) {
                (_, Some(branch), _) => Some(ReviewTarget::BaseBranch { branch }),
                (_, None, Some(sha)) => Some(ReviewTarget::Commit { sha, title }),
                (true, None, None) => Some(ReviewTarget::UncommittedChanges),
                (false, None, None) => None,
            };
            ExecRequest {
                flags: after.merge_over(flags),
                from: StartFrom::Nothing,
                prompt: own.or(prompt),
                review: Some(target.map_or(Reviewed::AsSaid, Reviewed::Named)),
            }
        }
    }
}

/// Checks that a review has something to review, and no more.
fn check_review(
    review: &Reviewed,
    prompt: Option<&str>,
    flags: &ExecFlags,
) -> Result<(), anyhow::Error> {
    let has_words = prompt.is_some_and(|prompt| !prompt.trim().is_empty());
    match review {
        Reviewed::Named(target) => target.clone().trimmed().map(drop)?,
        Reviewed::AsSaid if has_words => {}
        Reviewed::AsSaid => bail!(
            "what is to be reviewed? add --uncommitted, --base BRANCH or --commit SHA, or say it in words"
        ),
    }
    for (flag, given) in [
        ("--image", !flags.images.is_empty()),
        ("--file", !flags.files.is_empty()),
        ("--output-schema", flags.output_schema.is_some()),
    ] {
        if given {
            bail!("a review takes no {flag}: its request and its answer have a form of their own");
        }
    }
    Ok(())
}

/// Where to start from.
enum Start {
    New,
    Resume(ThreadId),
    Fork(ThreadId),
}

/// Builds the input from the prompt and the images, whose paths are relative to the user's directory.
fn input(prompt: String, images: &[PathBuf]) -> Input {
    let mut input = images.iter().fold(Input::default(), Input::image).text(prompt);
    let here = std::env::current_dir().unwrap_or_default();
    for warning in input.load(&here) {
        note(&format!("warning: {warning}"));
    }
    input
}

/// Finds the thread that the user refers to.
fn start(heddle: &Heddle, from: &StartFrom) -> Result<Start, Failure> {
    Ok(match from {
        StartFrom::Nothing => Start::New,
        StartFrom::Resume(named) => Start::Resume(named_thread(heddle, named)?),
        StartFrom::Fork(named) => Start::Fork(named_thread(heddle, named)?),
        StartFrom::Plan { of, .. } => Start::Resume(named_thread(heddle, of)?),
    })
}

/// Finds the plan that a thread has proposed last.
fn last_plan(heddle: &Heddle, thread: ThreadId) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(Failure::failed)?;
    let plan = runtime.block_on(heddle.threads().last_plan(thread))?;
    plan.ok_or_else(|| {
        Failure::usage(anyhow!(
            "thread {thread} has proposed no plan; `heddle exec resume {thread} --plan` asks for one"
        ))
    })
}

/// Returns the message that asks to carry out a plan. It names the whole plan, since messages of the user survive a
/// compaction.
fn plan_to_do(plan: &str, asked: Option<&str>) -> String {
    let asked = asked.map(|asked| format!("{}\n\n", asked.trim())).unwrap_or_default();
    format!("{asked}Carry out this plan:\n\n{}\n", plan.trim())
}

fn named_thread(heddle: &Heddle, named: &NamedThread) -> Result<ThreadId, Failure> {
    match named {
        NamedThread::Text(text) => {
            find::thread(heddle, text).map_err(|failure| match text.contains(char::is_whitespace) {
                // Text with blanks is more likely a prompt than a thread.
                true => failure.with_advice(
                    "if that is what to do, add --last, which takes the newest thread",
                ),
                false => failure,
            })
        }
        NamedThread::Nothing => Err(Failure::usage(anyhow!(
            "which thread? name one (`heddle threads list` shows them), or add --last for the newest of this \
             directory"
        ))),
        NamedThread::Last { all } => find::last(heddle, *all),
    }
}

/// One run and how it is shown.
struct Run {
    face: Face,
    /// Whether parts of items are shown; there may be very many of them.
    deltas: bool,
    last: LastMessage,
    output: Output,
}

enum Face {
    Json(Box<ExecJsonl>),
    Human(Human),
}

impl Run {
    async fn turn(
        &mut self,
        thread: &Thread,
        work: Work,
        format: Option<AnswerFormat>,
        output: Option<AnswerFile>,
        signals: StartingSignals,
    ) -> Result<ExitCode, Failure> {
        let facts = facts(thread)?;
        if let Face::Human(human) = &self.face {
            let banner = human.banner(&Banner {
                version: env!("CARGO_PKG_VERSION"),
                workdir: &thread.directory().display().to_string(),
                model: &facts.model,
                provider: &facts.provider,
                sandbox: facts.profile.mode.name(),
            });
            say(&banner);
        }
        let mut shown = self.show(&Event::ThreadStarted(facts.id));
        for event in thread.notices().iter().filter_map(Notice::to_event) {
            if shown.is_continue() {
                shown = self.show(&event);
            }
        }
        if shown.is_break() {
            return Ok(ExitCode::from(code::FAILED));
        }
        let mut turn = match work {
            Work::Say(input) => thread.turn(input),
            Work::Review(target) => thread.review(target)?,
            Work::Nothing => {
                if let Face::Human(_) = self.face {
                    print_line(&facts.id.to_string()).map_err(Failure::failed)?;
                }
                thread.close().await;
                return Ok(ExitCode::SUCCESS);
            }
        };
        let given = format.as_ref().map(|format| format.schema.clone());
        if let Some(AnswerFormat { schema, retries }) = format {
            turn = turn.output_schema(schema)?;
            if let Some(retries) = retries {
                turn = turn.output_retries(retries)?;
            }
        }
        let signals = signals.interrupt(turn.handle(), thread.clone()).map_err(Failure::failed)?;
        let seen = self.watch(&mut turn).await;
        let stopped = thread.close().await;
        let result = turn.result();
        if let (Face::Json(face), Err(error)) = (&self.face, &result)
            && error.kind() == ErrorKind::Interrupted
            && let Some(so_far) = error.so_far()
        {
            let usage = TurnUsage { thread: so_far.thread_usage, turn: so_far.usage };
            let line = face.interrupted(usage).map(|line| line + "\n");
            let pieces = line.map(|text| Piece { channel: Channel::Stdout, text });
            pieces.into_iter().for_each(|piece| self.output.put(piece));
            // Who has interrupted it may be gone.
            let _ = self.output.flush();
        }
        // Interrupting a turn interrupts its commands, too.
        let interrupted = |error: &heddle::Error| error.kind() == ErrorKind::Interrupted;
        if !result.as_ref().is_err_and(interrupted) {
            for command in stopped {
                let command = visible::exact_line(&command);
                note(&format!(
                    "`{command}` was still running when the turn ended, and was stopped"
                ));
            }
        }
        if let Face::Json(face) = &self.face
            && face.hidden() > 0
        {
            note(&format!(
                "{} of the model's calls were refused or stopped and are not shown; --include-refused shows them",
                face.hidden()
            ));
        }
        match result {
            Ok(_) => {
                self.deliver(output)?;
                // A client that missed the end must not mistake this for success.
                Ok(if seen.is_break() { ExitCode::from(code::FAILED) } else { ExitCode::SUCCESS })
            }
            Err(error) => Ok(ExitCode::from(match error.kind() {
                ErrorKind::Interrupted if seen.is_continue() => signals.received(),
                ErrorKind::Limit => code::LIMIT,
                ErrorKind::Answer => {
                    // The human-readable output has already shown it.
                    if let Face::Json(_) = self.face {
                        note(&error.to_string());
                    }
                    code::FAILED
                }
                ErrorKind::Model(ErrorClass::InvalidRequest) => {
                    if let Some(advice) = given.as_ref().and_then(schema_advice) {
                        note(&format!("if it is about the output schema: {advice}"));
                    }
                    code::FAILED
                }
                _ => code::FAILED,
            })),
        }
    }

    /// Shows the events of a turn until its end; breaks when one of them could not be written.
    async fn watch(&mut self, turn: &mut Turn) -> ControlFlow<()> {
        let handle = turn.handle();
        let mut seen = ControlFlow::Continue(());
        poll_fn(|context| {
            loop {
                match Pin::new(&mut *turn).poll_next(context) {
                    Poll::Ready(Some(event)) => {
                        let last = event.is_terminal();
                        if self.show(&event).is_break() {
                            seen = ControlFlow::Break(());
                            // If output cannot be written, the rest is not wanted.
                            if !last {
                                handle.interrupt();
                            }
                        }
                    }
                    // Parts of a message are batched while more are available, and written before the turn
                    // waits for anything.
                    ended => {
                        // If the reader is gone, the next event fails as well.
                        let _ = self.output.flush();
                        return ended.map(drop);
                    }
                }
            }
        })
        .await;
        seen
    }

    /// Shows an event; breaks when output can no longer be written.
    fn show(&mut self, event: &Event) -> ControlFlow<()> {
        if !self.deltas && matches!(event, Event::Delta { .. }) {
            return ControlFlow::Continue(());
        }
        self.last.observe(event);
        match &mut self.face {
            Face::Json(face) => {
                for mut text in face.lines(event) {
                    text.push('\n');
                    self.output.put(Piece { channel: Channel::Stdout, text });
                }
            }
            Face::Human(human) => {
                human.render(event).into_iter().for_each(|piece| self.output.put(piece));
            }
        }
        let waits =
            matches!(event, Event::Delta { .. }) && self.output.bytes() < GATHERED_BYTES_MAX;
        if !waits && self.output.flush().is_err() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Delivers the answer of a completed turn.
    fn deliver(&self, output: Option<AnswerFile>) -> Result<(), Failure> {
        let answer = self.last.get();
        // The file first: the reader of the rest may be gone. If it fails, the rest is all that is left.
        let written = output.map_or(Ok(()), |file| {
            if answer.is_none() {
                say("heddle: warning: the turn had no message, so the output file is empty\n");
            }
            file.write(answer.unwrap_or_default().as_bytes()).map_err(Failure::failed)
        });
        // A terminal has already shown it; a program gets it verbatim.
        if let Face::Human(_) = self.face
            && !stdout().is_terminal()
            && let Some(answer) = self.last.plan().or(answer)
        {
            print_line(answer).map_err(Failure::failed)?;
        }
        written
    }
}

/// Pending output, in order.
#[derive(Default)]
struct Output {
    pieces: Vec<Piece>,
}

impl Output {
    fn put(&mut self, piece: Piece) {
        match self.pieces.last_mut() {
            Some(last) if last.channel == piece.channel => last.text.push_str(&piece.text),
            _ => self.pieces.push(piece),
        }
    }

    fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.text.len()).sum()
    }

    /// Writes everything; fails if stdout cannot be written to.
    fn flush(&mut self) -> std::io::Result<()> {
        for Piece { channel, text } in self.pieces.drain(..) {
            match channel {
                Channel::Stdout => {
                    let mut stdout = stdout().lock();
                    stdout.write_all(text.as_bytes())?;
                    stdout.flush()?;
                }
                Channel::Stderr => say(&text),
            }
        }
        Ok(())
    }
}

/// Most bytes of message parts that are batched before they are written.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// How long the writer of a schema pipe may take.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(10);

fn read_schema(path: &Path) -> Result<Value, Failure> {
    let shown = path.display();
    let text = given::read_given(path, heddle::session::SCHEMA_BYTES_MAX as u64, SCHEMA_PATIENCE)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| given::FileError::NotText))
        .map_err(|error| {
            Failure::usage(anyhow!("--output-schema {shown} cannot be read: {error}"))
        })?;
    let read = check_output_schema(&text).map_err(|error| anyhow!("{error}"));
    read.and_then(|()| Ok(serde_json::from_str(&text)?))
        .map_err(|error| Failure::usage(anyhow!("--output-schema {shown}: {error}")))
}

/// Says what a strict provider would have against a schema, which goes out as it is; none if nothing.
fn schema_advice(schema: &Value) -> Option<String> {
    match Schema::from(schema).strict().compile() {
        Ok(strict) if strict.sent() == schema => None,
        Ok(strict) => {
            let sent = strict.sent().to_string();
            let shown =
                if sent.len() <= SHOWN_BYTES_MAX { sent } else { "too long to show".to_owned() };
            Some(format!(
                "many providers take schemas only in a strict form (closed objects, all properties required); that of \
                 this one is {}",
                visible::exact_line(&shown)
            ))
        }
        // Without what a program would do about it.
        Err(SchemaError::NotStrict(problems)) => {
            Some(visible::exact_line(&problems.to_string()).into_owned())
        }
        Err(error) => Some(visible::exact_line(&error.to_string()).into_owned()),
    }
}

/// Longest strict form that is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 4096;

/// Writes to stderr.
fn say(text: &str) {
    // Progress that cannot be shown is no reason to stop.
    let _ = stderr().write_all(text.as_bytes());
}
