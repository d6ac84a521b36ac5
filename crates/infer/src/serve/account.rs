//! Collects data about a request until it is finished, for the log and the counters.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::{Response, StatusCode};
use prompt::request::Usage;
use tokio::time::Instant;

use super::Server;
use super::body::Body;
use super::problem::Problem;
use super::route::Route;
use crate::log::{self, ClientIds, Entry, Level};
use crate::tools::Status;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Incomplete,
    Failed,
    Refused,
    /// The client disconnected; the default until something else is known.
    Cancelled,
}

/// The record of one request. It is written when it is dropped, however that happens.
pub(crate) struct Account {
    server: Arc<Server>,
    id: String,
    client: ClientIds,
    route: &'static str,
    quiet: bool,
    work: bool,
    begun: Instant,
    pub(crate) status: u16,
    pub(crate) outcome: Outcome,
    code: Option<&'static str>,
    pub(crate) stream: bool,
    queue: Option<Duration>,
    first_token: Option<Duration>,
    first_tokens: Vec<u32>,
    pub(crate) usage: Usage,
    tools: Vec<String>,
    pub(crate) profile: Option<&'static str>,
    pub(crate) left_out: usize,
}

impl Account {
    pub(crate) fn open(server: &Arc<Server>, id: String, client: ClientIds) -> Self {
        Self {
            server: Arc::clone(server),
            id,
            client,
            route: "other",
            quiet: false,
            work: false,
            begun: Instant::now(),
            status: LEFT,
            outcome: Outcome::Cancelled,
            code: None,
            stream: false,
            queue: None,
            first_token: None,
            first_tokens: Vec::new(),
            usage: Usage::default(),
            tools: Vec::new(),
            profile: None,
            left_out: 0,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Sets the route of the request.
    pub(crate) fn enter(&mut self, route: &Route) {
        self.route = route.name();
        // Monitoring requests would fill the log.
        self.quiet = matches!(route, Route::Health | Route::Metrics);
        if route.is_work() {
            self.work = true;
            self.server.busy.fetch_add(1, Ordering::Relaxed);
            self.server.used.send_replace(Instant::now());
        }
    }

    pub(crate) fn refused(&mut self, problem: &Problem) {
        self.status = problem.status.as_u16();
        self.outcome = Outcome::Refused;
        self.code = Some(problem.code);
    }

    pub(crate) fn answered(mut self, response: Response<Body>) -> Response<Body> {
        self.status = response.status().as_u16();
        self.outcome = Outcome::Completed;
        response
    }

    /// Records that the client gets an answer, though maybe not all of it.
    pub(crate) fn sent(&mut self) {
        self.status = StatusCode::OK.as_u16();
    }

    pub(crate) fn failed(&mut self, code: &'static str) {
        self.outcome = Outcome::Failed;
        self.code = Some(code);
    }

    /// Records when the answer left the queue; only the first time counts.
    pub(crate) fn begun(&mut self) {
        self.queue.get_or_insert_with(|| self.begun.elapsed());
    }

    /// Records when a token arrived; only the first time counts.
    pub(crate) fn token(&mut self, id: u32) {
        if self.first_tokens.len() < self.server.tokens_noted {
            self.first_tokens.push(id);
        }
        if self.first_token.is_none() {
            let after = self.begun.elapsed();
            self.first_token = Some(after);
            self.server.metrics.first_token(after);
        }
    }

    pub(crate) fn called(&mut self, name: &str) {
        if self.tools.len() < TOOLS_NAMED_MAX {
            self.tools.push(name.to_owned());
        }
    }

    /// Records a run of one of the daemon's tools.
    pub(crate) fn ran(&self, name: &str, status: Status, took: Duration, output_bytes: usize) {
        self.server.metrics.tool(status.name());
        let level = if status == Status::Completed { Level::Info } else { Level::Warn };
        let tool = self.server.tools.known_name(name);
        let ms = milliseconds(took);
        let outcome = status.name();
        let entry = Entry::Tool { request_id: &self.id, tool, outcome, ms, output_bytes };
        self.server.log.write(level, &entry);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let server = &self.server;
        let total = self.begun.elapsed();
        if self.work {
            server.busy.fetch_sub(1, Ordering::Relaxed);
            server.used.send_replace(Instant::now());
        }
        let (level, outcome) = match self.outcome {
            Outcome::Completed => (Level::Info, "completed"),
            Outcome::Incomplete => (Level::Info, "incomplete"),
            Outcome::Refused => (Level::Warn, "refused"),
            Outcome::Failed => (Level::Error, "failed"),
            Outcome::Cancelled => (Level::Info, "cancelled"),
        };
        server.metrics.request(self.route, self.status);
        if self.work {
            server.metrics.took(total);
        }
        server.metrics.tokens(self.usage);
        if self.outcome == Outcome::Cancelled {
            server.metrics.cancelled();
        }
        if self.quiet {
            return;
        }
        let line = log::Request {
            request_id: &self.id,
            client: &self.client,
            route: self.route,
            model: self.work.then_some(server.model.as_str()),
            status: self.status,
            outcome,
            code: self.code,
            stream: self.stream,
            queue_ms: self.queue.map(milliseconds),
            first_token_ms: self.first_token.map(milliseconds),
            total_ms: milliseconds(total),
            input_tokens: self.usage.input,
            cached_tokens: self.usage.cached,
            output_tokens: self.usage.output,
            reasoning_tokens: self.usage.reasoning,
            tools: &self.tools,
            profile: self.profile,
            left_out: self.left_out,
            first_tokens: &self.first_tokens,
        };
        server.log.write(level, &Entry::Request(&line));
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The conventional status for a client that disconnected before the response.
const LEFT: u16 = 499;
/// How many calls of one answer a log line names.
const TOOLS_NAMED_MAX: usize = 32;
