//! `heddle exec`: one turn, from flags to exit code.

use std::future::poll_fn;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use anyhow::anyhow;
use faces::exec_jsonl::ExecJsonl;
use faces::human::{Banner, Channel, Human, Piece, Terminals};
use faces::last_message::LastMessage;
use files::FileError;
use futures_util::Stream as _;
use heddle::session::check_output_schema;
use heddle::session::settings::{self, Preferences};
use heddle::{Heddle, Input, Notice, Thread, ThreadId, ThreadSpec, Turn, TurnError};
use protocol::error::TurnErrorCause;
use protocol::event::Event;
use serde_json::Value;
use stdx::visible;

use crate::answer_file::AnswerFile;
use crate::args::{ColorArg, ExecArgs, ExecCommand, ExecFlags, SharedArgs};
use crate::failure::{Failure, code};
use crate::find;
use crate::host;
use crate::signals::Signals;
use crate::terminal::{Screen, note, print_line};
use crate::user_input;

pub(crate) fn run(before: SharedArgs, args: ExecArgs) -> Result<ExitCode, Failure> {
    let ExecRequest { flags, from, prompt } = asked(before, args);
    for (flag, given) in
        [("--include-deltas", flags.include_deltas), ("--include-refused", flags.include_refused)]
    {
        if given && !flags.json {
            return Err(Failure::usage(anyhow!("{flag} requires --json")));
        }
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
    let start = start(&heddle, &from)?;
    // A fork without a prompt only forks.
    let input = if matches!(from, StartFrom::Fork(_)) && prompt.is_none() {
        None
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
        Some(input(read.map_err(Failure::usage)?, &flags.images))
    };
    if input.is_none() && flags.ephemeral {
        return Err(Failure::usage(anyhow!(
            "an ephemeral fork needs a prompt; add one, or omit --ephemeral"
        )));
    }
    let schema = flags.output_schema.as_deref().map(read_schema).transpose()?;
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
        let thread = heddle.start(spec).await?;
        let file = flags.output_last_message.as_deref();
        let profile = &thread.facts().profile;
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
            Face::Human(Human::new(colors, !thread.facts().hide_reasoning, terminals))
        };
        let deltas = match &face {
            Face::Json(_) => flags.include_deltas,
            Face::Human(_) => stdout().is_terminal() || stderr().is_terminal(),
        };
        let (last, output) = (LastMessage::default(), Output::default());
        let mut run = Run { face, deltas, last, output };
        run.turn(&thread, input, schema, file).await
    });
    // A pending DNS lookup no longer matters.
    async_runtime.shutdown_background();
    done
}

struct ExecRequest {
    flags: ExecFlags,
    from: StartFrom,
    prompt: Option<String>,
}

/// Where to start from, as the user gave it.
enum StartFrom {
    Nothing,
    Thread(String),
    Last {
        all: bool,
    },
    /// A thread is needed, but none is named.
    Unnamed,
    Fork(String),
}

fn asked(before: SharedArgs, args: ExecArgs) -> ExecRequest {
    let ExecArgs { command, prompt, mut flags } = args;
    flags.shared = flags.shared.merge_over(before);
    match command {
        None => ExecRequest { flags, from: StartFrom::Nothing, prompt },
        Some(ExecCommand::Resume(mut resume)) => {
            let (thread, own) = resume.split();
            let from = match thread {
                Some(thread) => StartFrom::Thread(thread),
                None if resume.last => StartFrom::Last { all: resume.all },
                None => StartFrom::Unnamed,
            };
            ExecRequest { flags: resume.flags.merge_over(flags), from, prompt: own.or(prompt) }
        }
        Some(ExecCommand::Fork(fork)) => ExecRequest {
            flags: fork.flags.merge_over(flags),
            from: StartFrom::Fork(fork.thread),
            prompt: fork.prompt.or(prompt),
        },
    }
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
        StartFrom::Thread(text) => {
            let found = find::thread(heddle, text);
            // Text with blanks is more likely a prompt than a thread.
            Start::Resume(found.map_err(|failure| match text.contains(char::is_whitespace) {
                true => failure.with_advice(
                    "if that is what to do, add --last, which takes the newest thread",
                ),
                false => failure,
            })?)
        }
        StartFrom::Unnamed => {
            return Err(Failure::usage(anyhow!(
                "which thread? name one (`heddle threads list` shows them), or add --last for the newest of this \
                 directory"
            )));
        }
        StartFrom::Fork(text) => Start::Fork(find::thread(heddle, text)?),
        StartFrom::Last { all } => Start::Resume(find::last(heddle, *all)?),
    })
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
        input: Option<Input>,
        schema: Option<Value>,
        output: Option<AnswerFile>,
    ) -> Result<ExitCode, Failure> {
        let facts = thread.facts();
        if let Face::Human(human) = &self.face {
            let banner = human.banner(&Banner {
                version: env!("CARGO_PKG_VERSION"),
                workdir: &thread.directory().display().to_string(),
                model: &facts.model,
                provider: &facts.provider,
                sandbox: thread.sandbox().name(),
            });
            say(&banner);
        }
        let mut shown = self.show(&Event::ThreadStarted(thread.id()));
        for event in thread.notices().iter().filter_map(Notice::to_event) {
            if shown.is_continue() {
                shown = self.show(&event);
            }
        }
        if shown.is_break() {
            return Ok(ExitCode::from(code::FAILED));
        }
        let Some(input) = input else {
            if let Face::Human(_) = self.face {
                print_line(&thread.id().to_string()).map_err(Failure::failed)?;
            }
            thread.close().await;
            return Ok(ExitCode::SUCCESS);
        };
        let mut turn = thread.turn(input);
        if let Some(schema) = schema {
            turn = turn.output_schema(&schema)?;
        }
        let signals = Signals::listen(turn.handle(), thread.clone()).map_err(Failure::failed)?;
        let seen = self.watch(&mut turn).await;
        let stopped = thread.close().await;
        let result = turn.result();
        // Interrupting a turn interrupts its commands, too.
        if !matches!(result, Err(TurnError::Interrupted { .. })) {
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
            Err(TurnError::Interrupted { .. }) if seen.is_continue() => {
                Ok(ExitCode::from(signals.received()))
            }
            Err(TurnError::Failed { failure, .. }) => Ok(ExitCode::from(match failure.cause {
                TurnErrorCause::Limit => code::LIMIT,
                TurnErrorCause::Answer => {
                    // The human-readable output has already shown it.
                    if let Face::Json(_) = self.face {
                        note(&failure.message);
                    }
                    code::FAILED
                }
                _ => code::FAILED,
            })),
            Err(_) => Ok(ExitCode::from(code::FAILED)),
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
            && let Some(answer) = answer
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
    let text = files::read_given(path, heddle::session::SCHEMA_BYTES_MAX as u64, SCHEMA_PATIENCE)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| FileError::NotText))
        .map_err(|error| {
            Failure::usage(anyhow!("--output-schema {shown} cannot be read: {error}"))
        })?;
    let read = check_output_schema(&text).map_err(|error| anyhow!("{error}"));
    read.and_then(|()| Ok(serde_json::from_str(&text)?))
        .map_err(|error| Failure::usage(anyhow!("--output-schema {shown}: {error}")))
}

/// Writes to stderr.
fn say(text: &str) {
    // Progress that cannot be shown is no reason to stop.
    let _ = stderr().write_all(text.as_bytes());
}
