//! Throughput of arguments and of prose, next to published parsers.

use std::thread;
use std::time::Duration;

use stream::dialect::Format;

#[cfg(feature = "peers")]
use crate::measure::time;
use crate::measure::{Emitted, best, cut, push, push_str, rate};
use crate::payload::{self, TOOL};
use crate::render::{Renderer, Value};
use crate::{Options, Report};

/// Measures the formats that peers support, and some more.
pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new(
        "throughput: MB/s of 1 MiB, best of several; peers that are slow get less to read",
        &[
            "format, payload",
            "push",
            "push",
            "push_str",
            "target",
            "",
            "dynamo-parsers-v2",
            "tool-parser",
            "of KiB",
            "ours / best",
            "target",
            "",
        ],
    );
    for subject in SUBJECTS.iter().filter(|subject| options.wants(subject.format)) {
        for payload in [Payload::Source, Payload::Rows, Payload::Prose] {
            for size in [8, 1, 64, usize::MAX] {
                measure(subject, payload, size, options.runs, &mut report);
            }
        }
    }
    if !cfg!(feature = "peers") {
        report.notes.push("built without peers".to_owned());
    }
    report
}

fn measure(subject: &Subject, payload: Payload, size: usize, runs: usize, report: &mut Report) {
    let (Some(format), Some(renderer)) =
        (Format::named(subject.format), Renderer::for_format(subject.format))
    else {
        return;
    };
    let dialect = payload::dialect(format);
    let text = payload.text(renderer, BYTES);
    let pieces = cut(&text, size);
    let gated = size == 8;
    let floor = match payload {
        Payload::Source if subject.json => Some(FLOOR),
        Payload::Rows => Some(FLOOR_ROWS),
        _ => None,
    };
    let floor = floor.filter(|_| gated);
    let (mut by_push, mut by_push_str) = (Emitted::default(), Emitted::default());
    let (mut ours, mut ours_str) = (0.0_f64, 0.0_f64);
    for round in 0..ROUNDS {
        // A slow result may be caused by another process, so wait and retry.
        if round > 0 {
            thread::sleep(PAUSE);
        }
        let took = best(
            runs,
            &mut [&mut || by_push = push(&dialect, &text, size), &mut || {
                by_push_str = push_str(&dialect, &pieces);
            }],
        );
        ours = ours.max(rate(text.len(), took[0]));
        ours_str = ours_str.max(rate(text.len(), took[1]));
        if floor.is_none_or(|floor| ours >= floor) {
            break;
        }
    }
    for came in [by_push, by_push_str] {
        assert!(came.args + came.text >= BYTES, "{}: {came:?} is not all", subject.format);
    }
    let mut row = vec![
        format!("{}, {}", subject.format, payload.name()),
        if size == usize::MAX { "whole".to_owned() } else { size.to_string() },
        format!("{ours:.0}"),
        format!("{ours_str:.0}"),
        floor.map_or(String::new(), |floor| format!("≥ {floor}")),
        floor.map_or(String::new(), |floor| {
            report.target(ours >= floor, || {
                format!("throughput: {}, {} at {ours:.0} MB/s", subject.format, payload.name())
            })
        }),
    ];
    let peers = peers(subject, payload, size, runs);
    let cell = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
    row.extend([cell(peers.dynamo), cell(peers.tool_parser)]);
    row.push(if peers.bytes == 0 { String::new() } else { (peers.bytes >> 10).to_string() });
    let theirs = peers.dynamo.into_iter().chain(peers.tool_parser).reduce(f64::max);
    // Peers take strings, so the comparison uses strings too.
    let times = theirs.map(|theirs| ours_str / theirs);
    row.push(times.map_or(String::new(), |times| format!("{times:.1}")));
    let gate = times.filter(|_| gated);
    row.push(gate.map_or(String::new(), |_| format!("≥ {TIMES}")));
    row.push(gate.map_or(String::new(), |times| {
        report.target(times >= TIMES, || {
            format!("throughput: {}, {}: {times:.1} × a peer", subject.format, payload.name())
        })
    }));
    report.rows.push(row);
}

/// Results of the peers.
#[derive(Default)]
struct Peers {
    dynamo: Option<f64>,
    tool_parser: Option<f64>,
    /// The input size of the slowest of them.
    bytes: usize,
}

#[cfg(feature = "peers")]
fn peers(subject: &Subject, payload: Payload, size: usize, runs: usize) -> Peers {
    use crate::peers;

    let mut smallest = None;
    let mut measure = |read: Option<peers::Read>, format: &str| {
        let (rate, bytes) = peer(&read?, Renderer::for_format(format)?, payload, size, runs);
        smallest = Some(smallest.map_or(bytes, |smallest: usize| smallest.min(bytes)));
        rate
    };
    let dynamo = measure(peers::dynamo(subject.format), subject.format);
    let reads = subject.tool_parser_reads;
    let tool_parser = measure(peers::tool_parser(reads), reads);
    Peers { dynamo, tool_parser, bytes: smallest.unwrap_or_default() }
}

/// Measures a peer; also returns the size of its input.
///
/// A peer that takes more than linear time would not finish, so it is measured at a smaller size, where it
/// looks better than it is.
#[cfg(feature = "peers")]
fn peer(
    read: &crate::peers::Read,
    renderer: &Renderer,
    payload: Payload,
    size: usize,
    runs: usize,
) -> (Option<f64>, usize) {
    let mut result = (None, 0);
    for bytes in [16 << 10, 128 << 10, BYTES] {
        let text = payload.text(renderer, bytes);
        let pieces = cut(&text, size);
        let mut came = 0;
        let mut took = time(|| came = read(&pieces));
        if took < PATIENCE {
            took = took.min(best(runs.min(5), &mut [&mut || came = read(&pieces)])[0]);
        }
        // A peer that emits nothing did not parse its input.
        result = ((came > 0).then(|| rate(text.len(), took)), bytes);
        if took > PATIENCE / 8 {
            break;
        }
    }
    result
}

#[cfg(not(feature = "peers"))]
fn peers(_: &Subject, _: Payload, _: usize, _: usize) -> Peers {
    Peers::default()
}

/// A format to measure.
struct Subject {
    format: &'static str,
    /// Whether its arguments are JSON.
    json: bool,
    /// The corresponding format of the other peer.
    #[cfg_attr(not(feature = "peers"), expect(dead_code, reason = "only the peers use it"))]
    tool_parser_reads: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Payload {
    Source,
    Rows,
    Prose,
}

impl Payload {
    fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Rows => "rows",
            Self::Prose => "prose",
        }
    }

    fn text(self, renderer: &Renderer, bytes: usize) -> String {
        let args: Vec<(&str, Value)> = match self {
            Self::Prose => return renderer.answer(&payload::prose(bytes)),
            Self::Source => payload::source(bytes),
            Self::Rows => payload::rows(bytes),
        };
        renderer.call(TOOL, &args).text
    }
}

const fn subject(format: &'static str, json: bool) -> Subject {
    Subject { format, json, tool_parser_reads: format }
}

const SUBJECTS: [Subject; 8] = [
    subject("hermes", true),
    subject("kimi_k2", true),
    // It reads the array format of older models.
    Subject { tool_parser_reads: "mistral", ..subject("mistral_v11", true) },
    subject("deepseek_v31", true),
    // Not in the JSON family: its arguments are searched for markers too.
    subject("harmony", false),
    subject("qwen3_coder", false),
    subject("glm45", false),
    subject("minimax_m2", false),
];

const BYTES: usize = 1 << 20;
/// How often a slow result is measured again, and how long to wait before.
const ROUNDS: usize = 8;
const PAUSE: Duration = Duration::from_millis(300);
/// Time limit for one run of a peer, before its input is made smaller.
#[cfg(feature = "peers")]
const PATIENCE: Duration = Duration::from_millis(400);
/// Required megabytes per second of JSON arguments in pushes of eight bytes.
const FLOOR: f64 = 300.0;
/// The same for many small values, which are parsed one by one.
const FLOOR_ROWS: f64 = 200.0;
/// Required speedup over the fastest peer.
const TIMES: f64 = 3.0;
