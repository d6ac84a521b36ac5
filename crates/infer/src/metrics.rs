//! Counters of the daemon, in Prometheus format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prompt::request::Usage;

use crate::engine::Stats;

/// Histogram buckets, in seconds.
const BUCKETS: [f64; 8] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// All counters, or nothing if metrics are off.
#[derive(Debug)]
pub struct Metrics(Option<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// By route and status. Both come from fixed lists, so there are few.
    requests: BTreeMap<(&'static str, u16), u64>,
    cancelled: u64,
    tokens: Usage,
    tools: BTreeMap<&'static str, u64>,
    first_token: Histogram,
    total: Histogram,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        for (count, bound) in self.buckets.iter_mut().zip(BUCKETS) {
            *count += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += seconds;
    }

    fn render(&self, name: &str, help: &str, out: &mut String) {
        head(name, help, "histogram", out);
        for (count, bound) in self.buckets.iter().zip(BUCKETS) {
            line(out, format_args!("{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
        line(out, format_args!("{name}_bucket{{le=\"+Inf\"}} {}", self.count));
        line(out, format_args!("{name}_sum {}", self.sum));
        line(out, format_args!("{name}_count {}", self.count));
    }
}

/// Gauges, read on demand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The engine's activity; zero while there is none.
    pub engine: Stats,
    /// Requests in progress, of any kind.
    pub requests: usize,
    pub connections: usize,
    /// Memory of this process.
    pub resident_bytes: u64,
    pub uptime: Duration,
}

impl Metrics {
    /// Creates counters at zero, or none.
    pub fn new(on: bool) -> Self {
        Self(on.then(Mutex::default))
    }

    /// Counts a finished request.
    pub fn request(&self, route: &'static str, status: u16) {
        self.count(|counts| *counts.requests.entry((route, status)).or_default() += 1);
    }

    /// Records the duration of an answer.
    pub fn took(&self, total: Duration) {
        self.count(|counts| counts.total.add(total));
    }

    /// Counts a client that disconnected.
    pub fn cancelled(&self) {
        self.count(|counts| counts.cancelled += 1);
    }

    /// Records the time to the first token.
    pub fn first_token(&self, after: Duration) {
        self.count(|counts| counts.first_token.add(after));
    }

    /// Counts the tokens of an answer.
    pub fn tokens(&self, usage: Usage) {
        self.count(|Counts { tokens: sum, .. }| {
            sum.input += usage.input;
            sum.cached += usage.cached;
            sum.output += usage.output;
            sum.reasoning += usage.reasoning;
        });
    }

    pub fn tool(&self, outcome: &'static str) {
        self.count(|counts| *counts.tools.entry(outcome).or_default() += 1);
    }

    /// Renders everything in the text format of Prometheus; `None` if metrics are off.
    pub fn render(&self, now: &Now) -> Option<String> {
        let counts = self.lock()?;
        let mut out = String::new();
        let name = "heddle_requests_total";
        head(name, "Requests that are over, by route and status.", "counter", &mut out);
        for ((route, status), count) in &counts.requests {
            line(&mut out, format_args!("{name}{{route=\"{route}\",status=\"{status}\"}} {count}"));
        }
        let name = "heddle_tool_runs_total";
        head(name, "Runs of the daemon's own tools, by outcome.", "counter", &mut out);
        for (outcome, count) in &counts.tools {
            line(&mut out, format_args!("{name}{{outcome=\"{outcome}\"}} {count}"));
        }
        let name = "heddle_tokens_total";
        head(name, "Tokens of answers that are over, by kind.", "counter", &mut out);
        let Usage { input, cached, output, reasoning } = counts.tokens;
        for (kind, count) in
            [("input", input), ("cached", cached), ("output", output), ("reasoning", reasoning)]
        {
            line(&mut out, format_args!("{name}{{kind=\"{kind}\"}} {count}"));
        }
        let cancelled = counts.cancelled;
        counts.first_token.render(
            "heddle_first_token_seconds",
            "Time from a request to the first token of its answer.",
            &mut out,
        );
        counts.total.render(
            "heddle_request_seconds",
            "Time from a request for an answer to its end.",
            &mut out,
        );
        drop(counts);
        let Now { engine, requests, connections, resident_bytes, uptime } = now;
        for (name, help, kind, value) in [
            ("heddle_cancelled_total", "Clients that left early.", "counter", cancelled),
            ("heddle_running", "Answers that are being made.", "gauge", engine.running as u64),
            ("heddle_waiting", "Answers that wait.", "gauge", engine.waiting as u64),
            ("heddle_requests", "Requests that are being worked on.", "gauge", *requests as u64),
            ("heddle_connections", "Open connections.", "gauge", *connections as u64),
            (
                "heddle_engine_prompt_tokens_total",
                "Tokens of prompts that the engine read.",
                "counter",
                engine.prompt_tokens,
            ),
            (
                "heddle_engine_cached_tokens_total",
                "Tokens of prompts that it still knew.",
                "counter",
                engine.cached_tokens,
            ),
            (
                "heddle_engine_output_tokens_total",
                "Tokens that it made.",
                "counter",
                engine.output_tokens,
            ),
            (
                "heddle_engine_memory_bytes",
                "Memory of the model and of what it read.",
                "gauge",
                engine.memory_bytes,
            ),
            ("heddle_resident_memory_bytes", "Memory of the process.", "gauge", *resident_bytes),
            ("heddle_uptime_seconds", "Time since the start.", "gauge", uptime.as_secs()),
        ] {
            head(name, help, kind, &mut out);
            line(&mut out, format_args!("{name} {value}"));
        }
        Some(out)
    }

    fn count(&self, add: impl FnOnce(&mut Counts)) {
        if let Some(mut counts) = self.lock() {
            add(&mut counts);
        }
    }

    /// A lock poisoned by a panic still holds whole numbers.
    fn lock(&self) -> Option<MutexGuard<'_, Counts>> {
        Some(self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the resident memory of this process, if the system reports it.
pub fn resident_bytes() -> u64 {
    let pages = || -> Option<u64> {
        std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()
    };
    pages().unwrap_or_default() * rustix::param::page_size() as u64
}

fn head(name: &str, help: &str, kind: &str, out: &mut String) {
    line(out, format_args!("# HELP {name} {help}"));
    line(out, format_args!("# TYPE {name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prompt::request::Usage;

    use super::{Metrics, Now};

    #[test]
    fn counters_are_shown() {
        let metrics = Metrics::new(true);
        metrics.request("/v1/responses", 200);
        metrics.request("/v1/responses", 200);
        metrics.request("/health", 404);
        metrics.took(Duration::from_millis(70));
        metrics.took(Duration::from_secs(100));
        metrics.took(Duration::ZERO);
        metrics.first_token(Duration::from_millis(300));
        metrics.tokens(Usage { input: 3, cached: 2, output: 5, reasoning: 1 });
        metrics.tokens(Usage { input: 1, ..Usage::default() });
        metrics.tool("timeout");
        let text = metrics.render(&Now { connections: 7, ..Now::default() }).unwrap();
        for line in [
            "heddle_requests_total{route=\"/v1/responses\",status=\"200\"} 2",
            "heddle_requests_total{route=\"/health\",status=\"404\"} 1",
            "heddle_request_seconds_bucket{le=\"0.05\"} 1",
            "heddle_request_seconds_bucket{le=\"0.1\"} 2",
            "heddle_request_seconds_bucket{le=\"60\"} 2",
            "heddle_request_seconds_bucket{le=\"+Inf\"} 3",
            "heddle_first_token_seconds_count 1",
            "heddle_tokens_total{kind=\"input\"} 4",
            "heddle_tokens_total{kind=\"reasoning\"} 1",
            "heddle_tool_runs_total{outcome=\"timeout\"} 1",
            "heddle_connections 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        let off = Metrics::new(false);
        off.request("/v1/responses", 200);
        assert_eq!(off.render(&Now::default()), None);
    }
}
