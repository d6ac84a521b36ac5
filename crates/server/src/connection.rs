//! One connection: its client, its loaded threads, and the state of each.
//!
//! ```text
//! silent ──initialize──▶ open ──End──▶ ended ──all closed──▶ Exit
//!
//! a thread:  ──Opened──▶ idle ──turn/start──▶ running ──its end──▶ idle
//!                          └──archive, End──▶ closing ◀──interrupted──┘   ──Closed──▶ gone
//! ```
//!
//! Pass inputs to [`Connection::handle`], then drain [`Connection::poll`]. The result of an action comes back
//! as an input; meanwhile other requests are handled.

use std::collections::{BTreeMap, HashSet, VecDeque};

use protocol::event::Event;
use protocol::id::ThreadId;
use protocol::usage::Usage;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::action::{Action, Facts, Input, Loading, OpenedThread, Reading};
use crate::lines::LINE_BYTES_MAX;
use crate::message::{Envelope, Incoming, RequestId, RpcError, answer, refusal};
use crate::notification::Notification;
use crate::past::preview;
use crate::request::{Initialize, Request, Resume, Settings, TurnStart, UserInput};
use crate::turn::TurnFace;
use crate::wire::{Status, Thread, ThreadSettings};

/// Most threads that can be loaded at once.
pub const THREADS_MAX: usize = 256;
/// Longest name and version of a client in bytes: they are sent in headers.
pub const CLIENT_BYTES_MAX: usize = 256;

pub struct Connection {
    facts: Facts,
    /// Generates turn ids.
    new_id: Box<dyn FnMut() -> String>,
    client: Option<Client>,
    ended: bool,
    threads: BTreeMap<ThreadId, LoadedThread>,
    /// Number of threads being opened.
    opening: usize,
    now_ms: u64,
    actions: VecDeque<Action>,
}

struct Client {
    name: String,
    opted_out: HashSet<String>,
}

struct LoadedThread {
    thread: Thread,
    running: ThreadSettings,
    usage: Usage,
    window: Option<u64>,
    /// Whether it has a file.
    saved: bool,
    turn: Option<TurnFace>,
    failed: bool,
    /// Whether it is closing, and which requests want it archived after that.
    closing: Option<Vec<RequestId>>,
}

impl LoadedThread {
    fn status(&self) -> Status {
        match (&self.turn, self.failed) {
            (Some(_), _) => Status::Active { active_flags: [] },
            (None, true) => Status::SystemError,
            (None, false) => Status::Idle,
        }
    }

    /// Returns the current thread, without turns.
    fn shown(&self) -> Thread {
        Thread { status: self.status(), ..self.thread.clone() }
    }
}

impl Connection {
    /// Creates a connection to a client that has not sent anything yet; `new_id` generates unique ids.
    pub fn new(facts: Facts, new_id: Box<dyn FnMut() -> String>) -> Self {
        Self {
            facts,
            new_id,
            client: None,
            ended: false,
            threads: BTreeMap::new(),
            opening: 0,
            now_ms: 0,
            actions: VecDeque::new(),
        }
    }

    /// Handles what happened at `now_ms` since 1970.
    pub fn handle(&mut self, now_ms: u64, input: Input<'_>) {
        self.now_ms = now_ms;
        match input {
            Input::Line(line) => self.line(line),
            Input::Overlong(head) => self.overlong(head),
            Input::Opened { request, loading, result } => self.opened(&request, loading, result),
            Input::Read { request, thread, reading, result } => {
                self.read(&request, thread, reading, result);
            }
            Input::Answered { request, result } => self.reply(&request, result),
            Input::Archived { request, thread, result } => {
                let done = result.is_ok();
                self.reply(&request, result.map(|()| json!({})));
                if done {
                    self.tell(&Notification::ThreadArchived { thread_id: thread.to_string() });
                }
            }
            Input::Event { thread, event } => self.event(thread, event),
            Input::Closed(thread) => self.closed(thread),
            Input::End => self.end(),
        }
    }

    /// Returns the next action.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn line(&mut self, line: &[u8]) {
        if self.ended {
            return;
        }
        match Incoming::parse(line) {
            Ok(Incoming::Request { id, method, params }) => {
                if let Err(error) = self.request(&id, &method, params.as_deref()) {
                    self.reply::<()>(&id, Err(error));
                }
            }
            Ok(Incoming::Notification { method }) if method == "initialized" => {}
            Ok(Incoming::Notification { method }) => {
                self.note(format!("skipped an unknown notification: {method:.100}"));
            }
            Ok(Incoming::Response { .. }) => {
                self.note("received a response without a matching request".to_owned());
            }
            // The reference is silent, too: clients do not expect responses without an id.
            Err(error) => self.note(format!("skipped a line: {error}{}", begins(line))),
        }
    }

    /// Refuses a request that is too long to be read, under its own id if that is near its beginning.
    fn overlong(&mut self, head: &[u8]) {
        let problem = format!("the line has more than {LINE_BYTES_MAX} bytes, so it was not read");
        self.note(format!("skipped a line: {problem}{}", begins(head)));
        let id = match Envelope::of_head(head) {
            // Nobody waits for a response to a response.
            Envelope::Response => return,
            Envelope::Request(id) => Some(id),
            Envelope::Unknown => None,
        };
        if !self.ended {
            let error = RpcError::invalid(format!("{problem}; send less at once"));
            self.actions.push_back(Action::Send(refusal(id.as_ref(), &error)));
        }
    }

    fn request(
        &mut self,
        id: &RequestId,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), RpcError> {
        match (method, &self.client) {
            ("initialize", Some(_)) => return Err(RpcError::invalid("Already initialized")),
            ("initialize", None) | (_, Some(_)) => {}
            (_, None) => return Err(RpcError::invalid("Not initialized")),
        }
        match Request::parse(method, params)? {
            Request::Initialize(who) => self.initialize(id, who),
            Request::ThreadStart(settings) => self.open(id, Loading::Start, settings),
            Request::ThreadResume(resume) => self.resume(id, resume),
            Request::ThreadFork(Resume { thread, turns, settings }) => {
                self.saved(thread)?;
                self.open(id, Loading::Fork { thread, turns }, settings)
            }
            Request::ThreadArchive(thread) => self.archive(id, thread),
            Request::ThreadUnarchive(thread) => {
                self.actions.push_back(Action::Unarchive { request: id.clone(), thread });
                Ok(())
            }
            Request::ThreadRead { thread, turns } => self.show(id, thread, turns),
            Request::TurnsList(asked) => {
                self.saved(asked.thread)?;
                let running = self.is_running(asked.thread);
                self.actions.push_back(Action::List { request: id.clone(), asked, running });
                Ok(())
            }
            Request::TurnStart(start) => self.turn_start(id, start),
            Request::TurnInterrupt { thread, turn } => self.interrupt(id, thread, &turn),
        }
    }

    fn initialize(&mut self, id: &RequestId, who: Initialize) -> Result<(), RpcError> {
        let Initialize { client_info, capabilities } = who;
        let plain = |text: &str| {
            text.len() <= CLIENT_BYTES_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        let (name, version) = (client_info.name, client_info.version);
        if name.trim().is_empty() || !plain(&name) || !plain(&version) {
            return Err(RpcError::invalid(format!(
                "clientInfo: the name and the version go into headers, so they are at most \
                 {CLIENT_BYTES_MAX} printable ASCII characters, and the name has one at least"
            )));
        }
        let Facts { version: ours, home, os, arch, .. } = &self.facts;
        let result = json!({
            "userAgent": format!("{name}/{ours} ({os}; {arch}) heddle ({name}; {version})"),
            "codexHome": home,
            "platformFamily": if os == "windows" { "windows" } else { "unix" },
            "platformOs": os,
        });
        let opted_out = capabilities.and_then(|it| it.opt_out_notification_methods);
        let opted_out = opted_out.unwrap_or_default().into_iter().collect();
        self.client = Some(Client { name, opted_out });
        self.reply(id, Ok(result));
        Ok(())
    }

    fn open(
        &mut self,
        id: &RequestId,
        loading: Loading,
        settings: Settings,
    ) -> Result<(), RpcError> {
        if self.threads.len() + self.opening >= THREADS_MAX {
            return Err(RpcError::invalid(format!(
                "{THREADS_MAX} threads are loaded, which is as many as can be; archive some, or \
                 start another server"
            )));
        }
        self.opening += 1;
        let client = self.client.as_ref().map(|client| client.name.clone()).unwrap_or_default();
        let (request, settings) = (id.clone(), Box::new(settings));
        self.actions.push_back(Action::Open { request, loading, settings, client });
        Ok(())
    }

    fn opened(
        &mut self,
        request: &RequestId,
        loading: Loading,
        result: Result<Box<OpenedThread>, RpcError>,
    ) {
        self.opening = self.opening.saturating_sub(1);
        let opened = match result {
            Ok(opened) => *opened,
            Err(error) => {
                self.reply::<()>(request, Err(error));
                return self.exit_if_done();
            }
        };
        let OpenedThread { id, thread, running, usage, window, told, config_warnings } = opened;
        let mut loaded = LoadedThread {
            thread,
            running,
            usage,
            window,
            saved: loading != Loading::Start,
            turn: None,
            failed: false,
            closing: None,
        };
        loaded.saved &= !loaded.thread.ephemeral;
        let shown = loaded.shown();
        self.reply(request, Ok(WithThread { thread: &shown, running: &loaded.running }));
        loaded.thread.turns = Vec::new();
        if !matches!(loading, Loading::Resume { .. }) {
            self.tell(&Notification::ThreadStarted { thread: Box::new(loaded.shown()) });
        }
        for summary in config_warnings {
            self.tell(&Notification::ConfigWarning { summary, details: None });
        }
        for message in told {
            self.tell(&Notification::Warning { thread_id: Some(id.to_string()), message });
        }
        if self.ended {
            loaded.closing = Some(Vec::new());
            self.actions.push_back(Action::Close(id));
        }
        self.threads.insert(id, loaded);
    }

    fn resume(&mut self, id: &RequestId, resume: Resume) -> Result<(), RpcError> {
        let Resume { thread, turns, settings } = resume;
        self.saved(thread)?;
        match self.threads.get(&thread) {
            None => self.open(id, Loading::Resume { thread, turns }, settings),
            Some(loaded) if !turns => {
                let line =
                    answer(id, &WithThread { thread: &loaded.shown(), running: &loaded.running });
                self.actions.push_back(Action::Send(line));
                Ok(())
            }
            Some(loaded) => {
                let running = loaded.turn.is_some();
                let (request, reading) = (id.clone(), Reading::Resume);
                self.actions.push_back(Action::Read { request, thread, reading, turns, running });
                Ok(())
            }
        }
    }

    fn show(&mut self, id: &RequestId, thread: ThreadId, turns: bool) -> Result<(), RpcError> {
        if let Some(loaded) = self.threads.get(&thread).filter(|loaded| !loaded.saved) {
            if turns && loaded.thread.ephemeral {
                return Err(RpcError::invalid("ephemeral threads do not support includeTurns"));
            }
            let shown = loaded.shown();
            self.reply(id, Ok(json!({"thread": shown})));
            return Ok(());
        }
        let running = self.is_running(thread);
        let (request, reading) = (id.clone(), Reading::Show);
        self.actions.push_back(Action::Read { request, thread, reading, turns, running });
        Ok(())
    }

    fn read(
        &mut self,
        request: &RequestId,
        thread: ThreadId,
        reading: Reading,
        result: Result<Box<Thread>, RpcError>,
    ) {
        let mut shown = match result {
            Ok(shown) => *shown,
            Err(error) => return self.reply::<()>(request, Err(error)),
        };
        let loaded = self.threads.get(&thread);
        if let Some(loaded) = loaded {
            shown.status = loaded.status();
            shown.environments.clone_from(&loaded.thread.environments);
            shown.can_accept_direct_input = loaded.thread.can_accept_direct_input;
        }
        match (reading, loaded) {
            (Reading::Resume, Some(loaded)) => {
                let line =
                    answer(request, &WithThread { thread: &shown, running: &loaded.running });
                self.actions.push_back(Action::Send(line));
            }
            (Reading::Resume, None) => {
                let error = RpcError::invalid(format!("thread {thread} was closed; resume again"));
                self.reply::<()>(request, Err(error));
            }
            (Reading::Show, _) => self.reply(request, Ok(json!({"thread": shown}))),
            (Reading::Unarchive, _) => {
                self.reply(request, Ok(json!({"thread": shown})));
                self.tell(&Notification::ThreadUnarchived { thread_id: thread.to_string() });
            }
        }
    }

    fn archive(&mut self, id: &RequestId, thread: ThreadId) -> Result<(), RpcError> {
        self.saved(thread)?;
        let Some(loaded) = self.threads.get_mut(&thread) else {
            self.actions.push_back(Action::Archive { request: id.clone(), thread });
            return Ok(());
        };
        loaded.closing = Some(vec![id.clone()]);
        self.actions.push_back(match loaded.turn {
            Some(_) => Action::Interrupt(thread),
            None => Action::Close(thread),
        });
        Ok(())
    }

    fn turn_start(&mut self, id: &RequestId, start: TurnStart) -> Result<(), RpcError> {
        let TurnStart { thread, input, client_user_message_id, output_schema } = start;
        let schema = output_schema.map(|schema| schema.to_string());
        let checked = schema.as_deref().map_or(Ok(()), self.facts.check_schema);
        checked.map_err(|why| RpcError::invalid(format!("outputSchema: {why}")))?;
        let loaded = self.loaded(thread)?;
        if input.iter().all(|part| matches!(part, UserInput::Mention { .. })) {
            return Err(RpcError::invalid("input is empty: say something"));
        }
        if let Some(turn) = &loaded.turn {
            return Err(RpcError::invalid(format!(
                "the turn {} is running, and this build cannot add to it yet; interrupt it, or wait",
                turn.id()
            )));
        }
        let turn = (self.new_id)();
        let now = i64::try_from(self.now_ms / 1000).unwrap_or(i64::MAX);
        let loaded = self.loaded(thread)?;
        loaded.saved |= !loaded.thread.ephemeral;
        loaded.failed = false;
        (loaded.thread.updated_at, loaded.thread.recency_at) = (now, now);
        if loaded.thread.preview.is_empty() {
            loaded.thread.preview = preview(&input);
        }
        let face = TurnFace::new(thread.to_string(), turn.clone(), loaded.window);
        let shown = json!({"turn": face.turn()});
        loaded.turn = Some(face);
        self.reply(id, Ok(shown));
        let input = input.into_iter().map(Into::into).collect();
        let client_id = client_user_message_id;
        self.actions.push_back(Action::Run { thread, turn, input, client_id, schema });
        Ok(())
    }

    fn interrupt(&mut self, id: &RequestId, thread: ThreadId, turn: &str) -> Result<(), RpcError> {
        let loaded = self.loaded(thread)?;
        let Some(active) = &loaded.turn else {
            return Err(RpcError::invalid("no active turn to interrupt"));
        };
        if !turn.is_empty() && turn != active.id() {
            let message = format!("expected active turn id {turn:.100} but found {}", active.id());
            return Err(RpcError::invalid(message));
        }
        self.reply(id, Ok(json!({})));
        self.actions.push_back(Action::Interrupt(thread));
        Ok(())
    }

    fn event(&mut self, thread: ThreadId, event: &Event) {
        let Some(loaded) = self.threads.get_mut(&thread) else { return };
        let Some(face) = &mut loaded.turn else { return };
        let told = face.event(event);
        if event.is_terminal() {
            loaded.turn = None;
            loaded.failed = matches!(event, Event::TurnFailed { .. });
            if let Event::TurnCompleted { usage, .. } = event {
                loaded.usage = *usage;
            }
        }
        let close = event.is_terminal() && loaded.closing.is_some();
        for notification in &told {
            self.tell(notification);
        }
        if close {
            self.actions.push_back(Action::Close(thread));
        }
    }

    fn closed(&mut self, thread: ThreadId) {
        let Some(loaded) = self.threads.remove(&thread) else { return };
        let status = Status::NotLoaded;
        self.tell(&Notification::ThreadStatusChanged { thread_id: thread.to_string(), status });
        for request in loaded.closing.into_iter().flatten() {
            self.actions.push_back(Action::Archive { request, thread });
        }
        self.exit_if_done();
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        for (thread, loaded) in &mut self.threads {
            if loaded.closing.is_some() {
                continue;
            }
            loaded.closing = Some(Vec::new());
            self.actions.push_back(match loaded.turn {
                Some(_) => Action::Interrupt(*thread),
                None => Action::Close(*thread),
            });
        }
        self.exit_if_done();
    }

    fn exit_if_done(&mut self) {
        if self.ended && self.threads.is_empty() && self.opening == 0 {
            self.actions.push_back(Action::Exit);
        }
    }

    /// Finds a loaded thread that is not closing.
    fn loaded(&mut self, thread: ThreadId) -> Result<&mut LoadedThread, RpcError> {
        let missing = || RpcError::invalid(format!("thread not found: {thread}"));
        self.threads.get_mut(&thread).filter(|it| it.closing.is_none()).ok_or_else(missing)
    }

    /// Refuses requests that need a file for threads without one, and all requests for closing ones.
    fn saved(&self, thread: ThreadId) -> Result<(), RpcError> {
        match self.threads.get(&thread) {
            Some(loaded) if loaded.closing.is_some() => {
                Err(RpcError::invalid(format!("thread {thread} is being archived")))
            }
            Some(loaded) if !loaded.saved => {
                Err(RpcError::invalid(format!("no rollout found for thread id {thread}")))
            }
            _ => Ok(()),
        }
    }

    fn is_running(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|loaded| loaded.turn.is_some())
    }

    fn reply<T: Serialize>(&mut self, id: &RequestId, result: Result<T, RpcError>) {
        if self.ended {
            return;
        }
        self.actions.push_back(Action::Send(match result {
            Ok(result) => answer(id, &result),
            Err(error) => refusal(Some(id), &error),
        }));
    }

    fn tell(&mut self, notification: &Notification) {
        let wanted = |client: &Client| !client.opted_out.contains(notification.method());
        // A client that ended the connection does not wait for notifications.
        if !self.ended && self.client.as_ref().is_some_and(wanted) {
            self.actions.push_back(Action::Send(notification.line(self.now_ms)));
        }
    }

    fn note(&mut self, text: String) {
        self.actions.push_back(Action::Note(text));
    }
}

/// Quotes the beginning of a line, for the log.
fn begins(line: &[u8]) -> String {
    if line.is_empty() {
        return String::new();
    }
    let head = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_SHOWN)]);
    format!("; it begins with `{head}`")
}

/// How much of a line that cannot be read is shown.
const LINE_BYTES_SHOWN: usize = 80;

/// A thread and its settings, as in results.
#[derive(Serialize)]
struct WithThread<'a> {
    thread: &'a Thread,
    #[serde(flatten)]
    running: &'a ThreadSettings,
}

#[cfg(test)]
mod tests;
