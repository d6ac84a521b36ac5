//! `heddle debug decode`: decodes raw model output to events.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use heddle::decode::canonical::{Canonical, Collector};
use heddle::decode::dialect::{Dialect, Format, Options, Parser, Tools};
use heddle::decode::event::{Event, Sink};
use serde_json::Value;

use crate::args::DecodeArgs;
use crate::failure::Failure;
use crate::terminal::shown;

pub(crate) fn run(args: &DecodeArgs) -> Result<ExitCode, Failure> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    if args.list {
        return shown(list(&mut stdout));
    }
    let dialect = dialect(args).map_err(Failure::usage)?;
    let input: Box<dyn Read> = match args.file.as_deref() {
        Some(path) if path != Path::new("-") => {
            let file = File::open(path);
            let file = file.with_context(|| format!("cannot read {}", path.display()));
            Box::new(file.map_err(Failure::usage)?)
        }
        _ => Box::new(io::stdin().lock()),
    };
    shown(decode(args, &dialect, input, &mut stdout))
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

fn dialect(args: &DecodeArgs) -> anyhow::Result<Dialect> {
    let name = args.format.as_deref().unwrap_or_default();
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
            let text = files::read_text(path, TOOLS_BYTES_MAX)
                .with_context(|| format!("cannot read the tools in {}", path.display()))?;
            let list: Value = serde_json::from_str(&text)
                .with_context(|| format!("the tools in {} are not JSON", path.display()))?;
            Tools::from_json(&list).with_context(|| format!("in {}", path.display()))?
        }
    };
    Ok(Dialect::new(format, &options, &tools))
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
    loop {
        let read = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
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
