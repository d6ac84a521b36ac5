//! Thousands of streams at once against one alone.
//!
//! Every stream gets one push in turn, as a server does it, so none finds its state in the nearest
//! cache. Two threads share the streams; the rate of each is that of its time on the processor, so that
//! a third who wants one does not count.

use std::fs;
use std::thread;

use stream::dialect::{Dialect, Format, Parser};
use stream::event::Event;

use crate::measure::{Came, rate, time};
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
    let mut subjects = Vec::new();
    for name in FORMATS.iter().filter(|name| options.wants(name)) {
        if let (Some(format), Some(renderer)) = (Format::named(name), Renderer::of(name)) {
            let text = renderer.call(TOOL, &payload::source(STREAM_BYTES)).text;
            subjects.push((name, payload::dialect(format), text));
        }
    }
    // Before anything else, and all at once: memory that was given back is not seen to be taken again.
    let halves: Vec<_> =
        subjects.iter().map(|(_, dialect, text)| half_read(dialect, text)).collect();
    let memory: Vec<_> = halves.iter().map(|(_, bytes)| *bytes).collect();
    drop(halves);
    for ((name, dialect, text), memory) in subjects.iter().zip(memory) {
        for size in [8, 64] {
            let (mut one, mut all) = (0.0_f64, 0.0_f64);
            for _ in 0..options.runs {
                one = one.max(alone(dialect, text, size));
                all = all.max(together(dialect, text, size));
            }
            let verdict = report.target(all >= SHARE_MIN * one, || {
                format!("streams: {name} by {size} gets {:.2} of one stream", all / one)
            });
            report.rows.push(vec![
                (**name).to_owned(),
                size.to_string(),
                format!("{one:.0}"),
                format!("{all:.0}"),
                format!("{:.2}", all / one),
                format!("≥ {SHARE_MIN}"),
                verdict,
                format!("{:.2}", all / one / THREADS as f64),
                memory.map_or("?".to_owned(), |bytes| bytes.to_string()),
            ]);
        }
    }
    report
}

/// Reads one stream after the other; returns megabytes per second.
fn alone(dialect: &Dialect, text: &str, size: usize) -> f64 {
    let took = time(|| {
        for _ in 0..ALONE {
            let came = read(&mut [Parser::new(dialect)], text, size);
            assert!(came.args >= STREAM_BYTES, "all of the arguments come out");
        }
    });
    rate(text.len() * ALONE, took)
}

/// Reads all streams in turn, on two threads; returns the megabytes per second of both.
fn together(dialect: &Dialect, text: &str, size: usize) -> f64 {
    let share = STREAMS / THREADS;
    let thread = move || {
        let mut parsers: Vec<_> = (0..share).map(|_| Parser::new(dialect)).collect();
        let took = time(|| {
            let came = read(&mut parsers, text, size);
            assert!(came.args >= STREAM_BYTES * share, "all of the arguments come out");
        });
        rate(text.len() * share, took)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(thread)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
    })
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

/// Brings all streams into the middle of their arguments; returns them, and how much memory each takes
/// where that can be known.
fn half_read(dialect: &Dialect, text: &str) -> (Vec<Parser>, Option<usize>) {
    let before = resident();
    let half = &text.as_bytes()[..text.len() / 2];
    let mut parsers: Vec<Parser> = (0..STREAMS).map(|_| Parser::new(dialect)).collect();
    for parser in &mut parsers {
        half.chunks(64).for_each(|piece| parser.push(piece, &mut |_: Event<'_>, _| ()));
    }
    let taken = resident().zip(before).map(|(after, before)| after.saturating_sub(before));
    (parsers, taken.map(|bytes| bytes / STREAMS))
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
