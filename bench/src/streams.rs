//! Thousands of concurrent streams compared with a single one.
//!
//! There is one thread per core. First each thread does what the single one does, one stream after the other:
//! the result is the throughput per thread, which should not drop since nothing is shared. Then 10,000
//! streams get one push each in turn, as in a server, so that none finds its state in the nearest cache.
//! Rates are relative to the CPU time of a thread, so other processes do not count.
//!
//! Two cores of a machine do not necessarily do twice the work of one, for example if they are two threads of
//! the same physical core. So a control alternates with the streams: arithmetic in registers, which shares
//! nothing. The throughput of the control per thread is the upper limit for streams. Everything is measured
//! on threads of the same kind, after a warm-up: the first thread of a process has a different allocator
//! arena.

use std::fs;
use std::hint::black_box;
use std::thread;

use stream::dialect::{Dialect, Format, Parser};
use stream::document::{Document, Path};
use stream::event::{Event, Sink};
use stream::parser::{DocumentParser, StreamParser};

use crate::measure::{Emitted, rate, time};
use crate::payload::{self, TOOL};
use crate::render::Renderer;
use crate::{Options, Report};

pub(crate) fn run(options: &Options) -> Report {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut report = Report::new(
        "streams: a stream on each core's thread, and 10,000 in turn, against one alone",
        &[
            "format",
            "push",
            "one MB/s",
            "per thread MB/s",
            "per thread / one",
            "of the control",
            "of that",
            "target",
            "",
            "threads",
            "10,000 in turn, per thread MB/s",
            "per thread / one",
            "bytes per stream",
        ],
    );
    let mut subjects = Vec::new();
    for name in FORMATS.iter().filter(|name| options.wants(name)) {
        // A document is rendered in the dialect that is a document.
        let written = if *name == DOCUMENT { "toolcall_v2" } else { name };
        if let (Some(format), Some(renderer)) =
            (Format::named(written), Renderer::for_format(written))
        {
            let text = renderer.call(TOOL, &payload::source(STREAM_BYTES)).text;
            let dialect = (*name != DOCUMENT).then(|| payload::dialect(format));
            subjects.push((name, Subject(dialect), text));
        }
    }
    // Before anything else, and all at once: reused memory would not show up in the resident size.
    let halves: Vec<_> =
        subjects.iter().map(|(_, subject, text)| half_read(subject, text)).collect();
    let memory: Vec<_> = halves.iter().map(|(_, bytes)| *bytes).collect();
    drop(halves);
    for ((name, subject, text), memory) in subjects.iter().zip(memory) {
        for size in [8, 64] {
            let (mut one, mut each, mut crowd) = (0.0_f64, 0.0_f64, 0.0_f64);
            let (mut control_one, mut control_each) = (0.0_f64, 0.0_f64);
            for _ in 0..options.runs * ROUNDS {
                one = one.max(slowest(1, || alone(subject, text, size)));
                control_one = control_one.max(slowest(1, control));
                each = each.max(slowest(threads, || alone(subject, text, size)));
                control_each = control_each.max(slowest(threads, control));
            }
            for _ in 0..options.runs {
                crowd =
                    crowd.max(slowest(threads, || in_turn(subject, text, size, STREAMS / threads)));
            }
            let possible = (control_each / control_one).min(1.0);
            let share = each / one / possible;
            let verdict = report.target(share >= SHARE_MIN, || {
                format!(
                    "streams: {name} by {size} gets {:.2} of one stream on each thread, and {possible:.2} can be had",
                    each / one
                )
            });
            report.rows.push(vec![
                (**name).to_owned(),
                size.to_string(),
                format!("{one:.0}"),
                format!("{each:.0}"),
                format!("{:.2}", each / one),
                format!("{possible:.2}"),
                format!("{share:.2}"),
                format!("≥ {SHARE_MIN}"),
                verdict,
                threads.to_string(),
                format!("{crowd:.0}"),
                format!("{:.2}", crowd / one),
                memory.map_or("?".to_owned(), |bytes| bytes.to_string()),
            ]);
        }
    }
    report
}

/// How streams are parsed: with a dialect, or as documents.
struct Subject(Option<Dialect>);

/// The parser of one stream.
#[expect(clippy::large_enum_variant, reason = "each measurement has only one kind")]
enum Either {
    Text(Parser),
    Document(DocumentParser),
}

impl Subject {
    fn parser(&self) -> Either {
        match &self.0 {
            Some(dialect) => Either::Text(Parser::new(dialect)),
            None => Either::Document(DocumentParser::new(Document::new(Path::built_in(), 0))),
        }
    }
}

impl Either {
    fn push(&mut self, piece: &[u8], sink: &mut dyn Sink) {
        match self {
            Self::Text(parser) => parser.push(piece, sink),
            Self::Document(parser) => parser.push(piece, sink).expect("it is JSON"),
        }
    }

    fn finish(&mut self, sink: &mut dyn Sink) {
        match self {
            Self::Text(parser) => parser.finish(sink),
            Self::Document(parser) => parser.finish(sink).expect("it is whole"),
        }
    }
}

/// Parses one stream after the other; returns megabytes per second.
fn alone(subject: &Subject, text: &str, size: usize) -> f64 {
    for _ in 0..WARM {
        black_box(read(&mut [subject.parser()], text, size));
    }
    let took = time(|| {
        for _ in 0..ALONE {
            let came = read(&mut [subject.parser()], text, size);
            assert!(came.args >= STREAM_BYTES, "all of the arguments come out");
        }
    });
    rate(text.len() * ALONE, took)
}

/// Parses several streams in turn; returns megabytes per second.
fn in_turn(subject: &Subject, text: &str, size: usize, count: usize) -> f64 {
    let mut parsers: Vec<_> = (0..count).map(|_| subject.parser()).collect();
    let took = time(|| {
        let came = read(&mut parsers, text, size);
        assert!(came.args >= STREAM_BYTES * count, "all of the arguments come out");
    });
    rate(text.len() * count, took)
}

/// Does arithmetic in registers; returns the number of steps per second.
fn control() -> f64 {
    let mut state = black_box(1_u64);
    let took = time(|| {
        for _ in 0..CONTROL {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        black_box(state);
    });
    rate(CONTROL, took)
}

/// Measures on several threads at once; returns the result of the slowest.
fn slowest(threads: usize, measure: impl Fn() -> f64 + Sync) -> f64 {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(&measure)).collect();
        let rates = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        rates.fold(f64::INFINITY, f64::min)
    })
}

/// Gives each parser the next piece of the same text in turn.
fn read(parsers: &mut [Either], text: &str, size: usize) -> Emitted {
    let mut came = Emitted::default();
    let mut sink = |event: Event<'_>, _| came.count(event);
    for piece in text.as_bytes().chunks(size) {
        parsers.iter_mut().for_each(|parser| parser.push(piece, &mut sink));
    }
    parsers.iter_mut().for_each(|parser| parser.finish(&mut sink));
    came
}

/// Advances all streams to the middle of their arguments; returns them, and the memory of each if it can be
/// determined.
fn half_read(subject: &Subject, text: &str) -> (Vec<Either>, Option<usize>) {
    let before = resident();
    let half = &text.as_bytes()[..text.len() / 2];
    let mut parsers: Vec<_> = (0..STREAMS).map(|_| subject.parser()).collect();
    for parser in &mut parsers {
        half.chunks(64).for_each(|piece| parser.push(piece, &mut |_: Event<'_>, _| ()));
    }
    let taken = resident().zip(before).map(|(after, before)| after.saturating_sub(before));
    (parsers, taken.map(|bytes| bytes / STREAMS))
}

/// Returns the resident memory of this process, on Linux.
fn resident() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

const FORMATS: [&str; 6] = ["hermes", "kimi_k2", "qwen3_coder", "glm45", "toolcall_v2", DOCUMENT];
/// JSON documents with calls inside, parsed by the library's own document parser.
const DOCUMENT: &str = "document";
const STREAMS: usize = 10_000;
/// Size of each stream's argument.
const STREAM_BYTES: usize = 2048;
/// How many streams are parsed one after the other.
const ALONE: usize = 500;
/// How many streams are parsed as a warm-up.
const WARM: usize = 50;
/// How often streams and the control alternate in each run: the rounds are short.
const ROUNDS: usize = 5;
/// Steps of the control, which take about as long as the streams.
const CONTROL: usize = 3_000_000;
/// Required share: within five percent.
const SHARE_MIN: f64 = 0.95;
