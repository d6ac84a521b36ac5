//! Runs parsers over texts and measures the time.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use stream::dialect::{Dialect, Parser};
use stream::event::Event;

/// How many bytes were emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Emitted {
    pub(crate) text: usize,
    pub(crate) args: usize,
}

impl Emitted {
    #[inline]
    pub(crate) fn count(&mut self, event: Event<'_>) {
        match event {
            Event::ToolArgs { text, .. } => self.args += black_box(text).len(),
            Event::Text(text)
            | Event::Reasoning(text)
            | Event::Commentary(text)
            | Event::Plan(text) => {
                self.text += black_box(text).len();
            }
            _ => {}
        }
    }
}

/// Parses a text in pushes of this many bytes.
pub(crate) fn push(dialect: &Dialect, text: &str, size: usize) -> Emitted {
    let (mut parser, mut came) = (Parser::new(dialect), Emitted::default());
    let mut sink = |event: Event<'_>, _| came.count(event);
    text.as_bytes().chunks(size).for_each(|piece| parser.push(piece, &mut sink));
    parser.finish(&mut sink);
    came
}

/// Parses a text that is already split.
pub(crate) fn push_str(dialect: &Dialect, pieces: &[&str]) -> Emitted {
    let (mut parser, mut came) = (Parser::new(dialect), Emitted::default());
    let mut sink = |event: Event<'_>, _| came.count(event);
    pieces.iter().for_each(|piece| parser.push_str(piece, &mut sink));
    parser.finish(&mut sink);
    came
}

/// Splits a text into pieces of at least this many bytes.
pub(crate) fn cut(text: &str, size: usize) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::with_capacity(text.len() / size.max(1) + 1), text);
    while !rest.is_empty() {
        let mut end = size.clamp(1, rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, more) = rest.split_at(end);
        pieces.push(piece);
        rest = more;
    }
    pieces
}

/// Returns the best time of each workload; they alternate, and a slow one gets fewer runs.
pub(crate) fn best(runs: usize, works: &mut [&mut dyn FnMut()]) -> Vec<Duration> {
    let mut best = vec![Duration::MAX; works.len()];
    let mut spent = vec![Duration::ZERO; works.len()];
    for run in 0..runs {
        for ((work, best), spent) in works.iter_mut().zip(&mut best).zip(&mut spent) {
            if run > 0 && *spent > BUDGET {
                continue;
            }
            let took = time(work);
            *best = took.min(*best);
            *spent += took;
        }
    }
    best
}

/// Returns the CPU time of a workload, which other processes hardly affect.
pub(crate) fn time(work: impl FnOnce()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
    };
    let start = now();
    work();
    now() - start
}

/// Returns megabytes per second.
pub(crate) fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

/// Time limit for one workload of a comparison.
const BUDGET: Duration = Duration::from_millis(400);
