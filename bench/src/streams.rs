//! Thousands of streams at once against one alone.
//!
//! Every stream gets one push in turn, as a server does it, so none finds its state in the nearest
//! cache. Two threads share the streams.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use stream::dialect::{Dialect, Format, Parser};
use stream::event::Event;

use crate::measure::{Came, rate};
use crate::payload::{self, TOOL};
use crate::render::Renderer;
use crate::{Options, Report};

/// Measures some formats.
pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new(
        "streams: 10,000 parsers in turn on two threads, against one parser on one thread",
        &[
            "format",
            "push",
            "one MB/s",
            "all MB/s",
            "all / one",
            "target",
            "",
            "per thread",
            "bytes per stream",
        ],
    );
    for name in FORMATS.iter().filter(|name| options.wants(name)) {
        let (Some(format), Some(renderer)) = (Format::named(name), Renderer::of(name)) else {
            continue;
        };
        let dialect = payload::dialect(format);
        let text = renderer.call(TOOL, &payload::source(STREAM_BYTES)).text;
        for size in [8, 64] {
            let (mut one, mut all) = (Duration::MAX, Duration::MAX);
            for _ in 0..options.runs {
                one = one.min(alone(&dialect, &text, size));
                all = all.min(together(&dialect, &text, size));
            }
            let one = rate(text.len() * ALONE, one);
            let all = rate(text.len() * STREAMS, all);
            let verdict = report.target(all >= SHARE_MIN * one, || {
                format!("streams: {name} by {size} gets {:.2} of one stream", all / one)
            });
            report.rows.push(vec![
                (*name).to_owned(),
                size.to_string(),
                format!("{one:.0}"),
                format!("{all:.0}"),
                format!("{:.2}", all / one),
                format!("≥ {SHARE_MIN}"),
                verdict,
                format!("{:.2}", all / one / THREADS as f64),
                memory(&dialect, &text).map_or("?".to_owned(), |bytes| bytes.to_string()),
            ]);
        }
    }
    report
}

/// Reads one stream after the other.
fn alone(dialect: &Dialect, text: &str, size: usize) -> Duration {
    let start = Instant::now();
    for _ in 0..ALONE {
        let came = read(&mut [Parser::new(dialect)], text, size);
        assert!(came.args >= STREAM_BYTES, "all of the arguments come out");
    }
    start.elapsed()
}

/// Reads all streams in turn, on two threads.
fn together(dialect: &Dialect, text: &str, size: usize) -> Duration {
    let share = STREAMS / THREADS;
    let mut parsers: Vec<Vec<Parser>> = Vec::new();
    for _ in 0..THREADS {
        parsers.push((0..share).map(|_| Parser::new(dialect)).collect());
    }
    let start = Instant::now();
    thread::scope(|scope| {
        for parsers in &mut parsers {
            scope.spawn(move || {
                let came = read(parsers, text, size);
                assert!(came.args >= STREAM_BYTES * share, "all of the arguments come out");
            });
        }
    });
    start.elapsed()
}

/// Gives each of some parsers the next piece of the same text in turn.
fn read(parsers: &mut [Parser], text: &str, size: usize) -> Came {
    let mut came = Came::default();
    let mut sink = |event: Event<'_>, _| came.count(event);
    for piece in text.as_bytes().chunks(size) {
        parsers.iter_mut().for_each(|parser| parser.push(piece, &mut sink));
    }
    parsers.iter_mut().for_each(|parser| parser.finish(&mut sink));
    came
}

/// Returns how much memory a stream takes in the middle of its arguments, where that can be known.
fn memory(dialect: &Dialect, text: &str) -> Option<usize> {
    let before = resident()?;
    let half = &text.as_bytes()[..text.len() / 2];
    let mut parsers: Vec<Parser> = (0..STREAMS).map(|_| Parser::new(dialect)).collect();
    for parser in &mut parsers {
        half.chunks(64).for_each(|piece| parser.push(piece, &mut |_: Event<'_>, _| ()));
    }
    let after = resident()?;
    drop(parsers);
    Some(after.saturating_sub(before) / STREAMS)
}

/// Returns the memory of this process, on Linux.
fn resident() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

const FORMATS: [&str; 4] = ["hermes", "kimi_k2", "qwen3_coder", "glm45"];
const STREAMS: usize = 10_000;
const THREADS: usize = 2;
/// The argument of each stream.
const STREAM_BYTES: usize = 2048;
/// How many streams are read alone, one after the other.
const ALONE: usize = 500;
/// Within five per cent.
const SHARE_MIN: f64 = 0.95;
