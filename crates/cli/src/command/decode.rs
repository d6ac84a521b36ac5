//! `heddle debug decode`: decodes raw model output to events, or the body of an answer as a turn does.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use heddle::decode::AnswerDecoder;
use heddle::decode::canonical::{Canonical, Collector};
use heddle::decode::chat::Setup;
use heddle::decode::dialect::{Dialect, Format, Options, Parser, Tools};
use heddle::decode::event::{Event, Sink};
use heddle::session::given;
use protocol::error::SampleError;
use protocol::responses::{Completion, ResponseItem, StreamEvent};
use protocol::usage::Usage;
use serde::Serialize;
use serde_json::Value;

use crate::args::{AnswerApi, DecodeArgs};
use crate::failure::Failure;
use crate::terminal::shown;

pub(crate) fn run(args: &DecodeArgs) -> Result<ExitCode, Failure> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    if args.list {
        return shown(list(&mut stdout));
    }
    let dialect = dialect(args).map_err(Failure::usage)?;
    let decoder = args.api.map(|api| answer_decoder(api, dialect.clone())).transpose();
    let decoder = decoder.map_err(Failure::usage)?;
    let input: Box<dyn Read> = match args.file.as_deref() {
        Some(path) if path != Path::new("-") => {
            let file = File::open(path);
            let file = file.with_context(|| format!("cannot read {}", path.display()));
            Box::new(file.map_err(Failure::usage)?)
        }
        _ => Box::new(io::stdin().lock()),
    };
    match (decoder, dialect) {
        (Some(decoder), _) => shown(decode_answer(args, decoder, input, &mut stdout)),
        (None, Some(dialect)) => shown(decode(args, &dialect, input, &mut stdout)),
        // `clap` asks for one of them.
        (None, None) => Err(Failure::usage(anyhow!("--format or --api says what to decode"))),
    }
}

/// Chooses the decoder that a turn would run.
fn answer_decoder(api: AnswerApi, dialect: Option<Dialect>) -> anyhow::Result<AnswerDecoder> {
    match api {
        AnswerApi::Chat => Ok(AnswerDecoder::chat(&Setup { dialect, ..Setup::default() })),
        AnswerApi::Responses if dialect.is_none() => Ok(AnswerDecoder::responses()),
        AnswerApi::Responses => bail!(
            "--format does not go with --api responses, whose calls are never in the text; leave one of them out"
        ),
    }
}

fn list(out: &mut impl Write) -> io::Result<()> {
    let width = Format::all().iter().map(|format| format.name().len()).max().unwrap_or_default();
    for format in Format::all() {
        writeln!(out, "{:width$}  {}", format.name(), format.title())?;
    }
    out.flush()
}

/// Largest list of tools, in bytes.
const TOOLS_BYTES_MAX: u64 = 16 * 1024 * 1024;

fn dialect(args: &DecodeArgs) -> anyhow::Result<Option<Dialect>> {
    let Some(name) = args.format.as_deref() else {
        if args.options.is_some() || args.tools.is_some() {
            bail!("--options and --tools are for a format: add --format");
        }
        return Ok(None);
    };
    let format = Format::named(name).ok_or_else(|| {
        let alike = |format: &&Format| {
            let shared = format.name().bytes().zip(name.bytes()).take_while(|(a, b)| a == b);
            shared.count() >= 3
        };
        let near: Vec<_> = Format::all().iter().filter(alike).map(Format::name).collect();
        let near = match near.is_empty() {
            true => String::new(),
            false => format!(" Did you mean {}?", near.join(" or ")),
        };
        anyhow!("there is no format `{name}`.{near} `heddle debug decode --list` names them all")
    })?;
    let options = match &args.options {
        None => Options::default(),
        Some(json) => {
            let (options, unknown) = Options::from_json(json)
                .with_context(|| format!("--options must be a JSON object of options: {json}"))?;
            if let Some(name) = unknown.first() {
                bail!("there is no option `{name}`");
            }
            options
        }
    };
    let tools = match &args.tools {
        None => Tools::default(),
        Some(path) => {
            let text = given::read_text(path, TOOLS_BYTES_MAX)
                .with_context(|| format!("cannot read the tools in {}", path.display()))?;
            let list: Value = serde_json::from_str(&text)
                .with_context(|| format!("the tools in {} are not JSON", path.display()))?;
            Tools::from_json(&list).with_context(|| format!("in {}", path.display()))?
        }
    };
    Ok(Some(Dialect::new(format, &options, &tools)))
}

fn decode(
    args: &DecodeArgs,
    dialect: &Dialect,
    mut input: impl Read,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut parser = Parser::new(dialect);
    let mut buffer = vec![0; READ_BYTES];
    let mut collector = Collector::default();
    let mut deltas = Deltas { out, ranges: args.ranges, error: None };
    while let Some(read) = read(&mut input, &mut buffer)? {
        let chunk = args.chunk.map_or(read, |chunk| chunk as usize);
        for piece in buffer[..read].chunks(chunk) {
            if args.deltas {
                parser.push(piece, &mut deltas);
            } else {
                parser.push(piece, &mut collector);
            }
        }
        deltas.flush()?;
    }
    if args.deltas {
        parser.finish(&mut deltas);
    } else {
        parser.finish(&mut collector);
    }
    if let Some(found) = parser.detected() {
        let (name, confidence) = (found.format.name(), found.confidence);
        // If stderr cannot be written, there is nowhere to report that.
        let _ = writeln!(io::stderr(), "heddle: detected {name} ({confidence} % confidence)");
    }
    if args.deltas {
        return deltas.flush();
    }
    for event in collector.into_events(args.ranges) {
        line(out, &event)?;
    }
    out.flush()
}

/// Reads some bytes; returns how many, or nothing at the end.
fn read(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match input.read(buffer) {
            Ok(0) => return Ok(None),
            Ok(read) => return Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Decodes the body of an answer up to its end or its failure, as a turn does.
fn decode_answer(
    args: &DecodeArgs,
    mut decoder: AnswerDecoder,
    mut input: impl Read,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut printed = AnswerLines { out, deltas: args.deltas, held: None };
    while let Some(read) = read(&mut input, &mut buffer)? {
        let chunk = args.chunk.map_or(read, |chunk| chunk as usize);
        for piece in buffer[..read].chunks(chunk) {
            let mut events = Vec::new();
            let read = decoder.push(piece, &mut events);
            if printed.events(events)?.is_break() {
                return printed.out.flush();
            }
            if let Err(error) = read {
                return printed.last(&error);
            }
        }
        printed.out.flush()?;
    }
    let mut events = Vec::new();
    let error = decoder.finish(&mut events);
    if printed.events(events)?.is_break() { printed.out.flush() } else { printed.last(&error) }
}

/// Writes what a turn gets of an answer.
struct AnswerLines<'a, W: Write> {
    out: &'a mut W,
    deltas: bool,
    /// Pieces of one text, which are written as one line.
    held: Option<AnswerLine>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnswerLine {
    Created,
    ItemAdded { item: ResponseItem },
    Text { text: String },
    Summary { part: u64, text: String },
    Reasoning { part: u64, text: String },
    Item { item: ResponseItem },
    Unreadable,
    Completed { usage: Usage, total_tokens: u64, end_turn: Option<bool> },
    Failed { message: String, can_retry: bool },
}

impl From<StreamEvent> for AnswerLine {
    fn from(event: StreamEvent) -> Self {
        match event {
            StreamEvent::Created => Self::Created,
            StreamEvent::ItemAdded(item) => Self::ItemAdded { item },
            StreamEvent::TextDelta(text) => Self::Text { text },
            StreamEvent::SummaryDelta { part, text } => Self::Summary { part, text },
            StreamEvent::ReasoningDelta { part, text } => Self::Reasoning { part, text },
            StreamEvent::ItemDone(item) => Self::Item { item },
            StreamEvent::Unreadable => Self::Unreadable,
            StreamEvent::Completed(Completion { usage, total_tokens, end_turn }) => {
                Self::Completed { usage, total_tokens, end_turn }
            }
            StreamEvent::Failed(error) => Self::from(&error),
        }
    }
}

impl From<&SampleError> for AnswerLine {
    fn from(error: &SampleError) -> Self {
        Self::Failed { message: error.message.clone(), can_retry: error.class.can_retry() }
    }
}

impl AnswerLine {
    /// Appends a piece of the same text; returns it if it belongs to another one.
    fn append(&mut self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Text { text }, Self::Text { text: more }) => text.push_str(&more),
            (Self::Summary { part, text }, Self::Summary { part: same, text: more })
                if *part == same =>
            {
                text.push_str(&more);
            }
            (Self::Reasoning { part, text }, Self::Reasoning { part: same, text: more })
                if *part == same =>
            {
                text.push_str(&more);
            }
            (_, next) => return Some(next),
        }
        None
    }
}

impl<W: Write> AnswerLines<'_, W> {
    /// Writes events; breaks after the one that ends the answer.
    fn events(&mut self, events: Vec<StreamEvent>) -> io::Result<ControlFlow<()>> {
        for event in events {
            let ends = matches!(event, StreamEvent::Completed(_) | StreamEvent::Failed(_));
            let next = AnswerLine::from(event);
            let next = match &mut self.held {
                Some(held) if !self.deltas => held.append(next),
                _ => Some(next),
            };
            if let Some(next) = next {
                self.release()?;
                self.held = Some(next);
            }
            if ends {
                self.release()?;
                return Ok(ControlFlow::Break(()));
            }
        }
        if self.deltas {
            self.release()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn release(&mut self) -> io::Result<()> {
        self.held.take().map_or(Ok(()), |held| line(self.out, &held))
    }

    /// Writes why the answer broke off.
    fn last(mut self, error: &SampleError) -> io::Result<()> {
        self.release()?;
        line(self.out, &AnswerLine::from(error))?;
        self.out.flush()
    }
}

/// Writes events as they are found.
struct Deltas<'a, W: Write> {
    out: &'a mut W,
    ranges: bool,
    error: Option<io::Error>,
}

impl<W: Write> Deltas<'_, W> {
    fn flush(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }
}

impl<W: Write> Sink for Deltas<'_, W> {
    fn event(&mut self, event: Event<'_>, range: Range<u64>) {
        let range = self.ranges.then_some([range.start, range.end]);
        let one = Canonical { kind: event.into(), range };
        if self.error.is_none()
            && let Err(error) = line(self.out, &one)
        {
            self.error = Some(error);
        }
    }
}

fn line(out: &mut impl Write, event: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, event)?;
    out.write_all(b"\n")
}

/// How much is read at a time by default.
const READ_BYTES: usize = 64 * 1024;
