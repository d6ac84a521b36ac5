//! A loaded thread: the task that runs its turns, and the clients that follow it.
//!
//! ```text
//! idle ──turn/start──▶ running ──its end──▶ idle        running ──turn/start, turn/steer──▶ running, with more input
//!  └──archive, delete, the end of the server──▶ closing ◀──interrupted──┘   ──▶ gone
//! ```
//!
//! The task waits for turns and passes on their events. A thread is closed when no client has followed it for a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use heddle::tools::{ToolHandle, Tools};
use heddle::{Input, Thread, ThreadId, Turn, TurnHandle};
use protocol::event::Event;
use protocol::item::ItemBody;
use tokio::sync::{Notify, mpsc, watch};

use crate::ask::Asked;
use crate::hub::Hub;
use crate::message::RpcError;
use crate::method::{goal, queue};
use crate::missed::Missed;
use crate::notification::Notification;
use crate::past::preview;
use crate::peer::{Message, Peer, PeerId};
use crate::request::{DynamicToolSpec, GitChanges, Settings};
use crate::turn::{Told, TurnFace};
use crate::wire::{self, Status, ThreadSettings};

/// How long a thread stays loaded without followers.
const UNFOLLOWED_MAX: Duration = Duration::from_secs(10 * 60);
/// The first number of a loaded thread's notifications is the time in milliseconds times this, so numbers keep growing when
/// the thread is loaded again, and JavaScript still represents them exactly.
const NUMBERS_PER_MS: u64 = 1000;
/// How long questions and tool calls wait for a follower when the last one has left.
const RECONNECT_TIME_MAX: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct LoadedThread {
    pub(crate) id: ThreadId,
    /// Its questions to clients.
    pub(crate) asked: Arc<Asked>,
    state: Mutex<ThreadState>,
    missed: Mutex<Missed>,
    /// Whether it is closed, which means that its log may be opened again.
    gone: watch::Sender<bool>,
    /// Signals that the list of followers has changed.
    followers_changed: Notify,
    /// Signals that clients were notified of the end of a turn.
    turn_told: Notify,
}

#[derive(Debug)]
pub(crate) struct ThreadState {
    pub(crate) open: Thread,
    /// The settings and tools that it was opened with.
    pub(crate) opening: Opening,
    /// Whether it must be opened again before its next turn, because its settings have changed.
    pub(crate) is_outdated: bool,
    thread: wire::Thread,
    pub(crate) settings: ThreadSettings,
    window: Option<u64>,
    raw_reasoning: bool,
    /// Whether its log is on disk.
    saved: bool,
    failed: bool,
    /// Whether its last turn was interrupted, so that no turn starts by itself.
    interrupted: bool,
    /// Whether its goal is active.
    pub(crate) pursues: bool,
    pub(crate) goal_tool: Option<ToolHandle>,
    turn: Option<RunningTurn>,
    /// The channel for new turns; `None` while the thread is closing.
    turns: Option<mpsc::UnboundedSender<Turn>>,
    followers: BTreeMap<PeerId, Arc<Peer>>,
    was_followed: bool,
}

#[derive(Debug)]
struct RunningTurn {
    face: TurnFace,
    handle: TurnHandle,
    /// Why it accepts no input, if so.
    closed: Option<Closed>,
    /// Whether its input came from the queue.
    is_queued: bool,
}

/// Why a turn accepts no input from the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    Compaction,
    Review,
}

/// What a thread is opened with, and opened again with when settings change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    pub(crate) settings: Settings,
    /// Tools that clients run.
    pub(crate) dynamic_tools: Vec<DynamicToolSpec>,
    /// The name of the client that opened it.
    pub(crate) client: String,
    /// The tools that report on the goal, while there is one.
    pub(crate) goal_tools: Tools,
    /// A reference to the thread for its tools, set once it is loaded.
    pub(crate) owner: Owner,
}

/// The thread that a tool belongs to; set once the thread is loaded.
pub(crate) type Owner = Arc<OnceLock<Weak<LoadedThread>>>;

pub(crate) struct Opened {
    pub(crate) open: Thread,
    pub(crate) opening: Opening,
    pub(crate) asked: Arc<Asked>,
    pub(crate) thread: wire::Thread,
    pub(crate) settings: ThreadSettings,
    pub(crate) window: Option<u64>,
    pub(crate) raw_reasoning: bool,
    pub(crate) saved: bool,
}

impl LoadedThread {
    /// Takes over an opened thread, and starts its task.
    pub(crate) fn start(hub: &Hub, id: ThreadId, opened: Opened) -> Arc<Self> {
        let Opened { open, opening, asked, thread, settings, window, raw_reasoning, saved } =
            opened;
        let owner = Arc::clone(&opening.owner);
        let (turns, waiting) = mpsc::unbounded_channel();
        let state = ThreadState {
            open,
            opening,
            is_outdated: false,
            thread,
            settings,
            window,
            raw_reasoning,
            saved,
            failed: false,
            interrupted: false,
            pursues: false,
            goal_tool: None,
            turn: None,
            turns: Some(turns),
            followers: BTreeMap::new(),
            was_followed: false,
        };
        let loaded = Arc::new(Self {
            id,
            asked,
            state: Mutex::new(state),
            // Beyond every number that the thread had when it was loaded before.
            missed: Mutex::new(Missed::after(heddle::now_ms().saturating_mul(NUMBERS_PER_MS))),
            gone: watch::Sender::new(false),
            followers_changed: Notify::new(),
            turn_told: Notify::new(),
        });
        // No tool can have been called before.
        let _ = owner.set(Arc::downgrade(&loaded));
        tokio::spawn(run(hub.clone(), Arc::clone(&loaded), waiting));
        loaded
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn follow(&self, peer: &Arc<Peer>) {
        let mut state = self.lock();
        state.followers.insert(peer.id(), Arc::clone(peer));
        state.was_followed = true;
        drop(state);
        self.followers_changed.notify_one();
    }

    /// Removes a follower. Returns whether the client was a follower.
    pub(crate) fn unfollow(&self, peer: PeerId) -> bool {
        let mut state = self.lock();
        let followed = state.followers.remove(&peer).is_some();
        drop(state);
        self.followers_changed.notify_one();
        followed
    }

    pub(crate) fn is_followed_by(&self, peer: PeerId) -> bool {
        self.lock().followers.contains_key(&peer)
    }

    pub(crate) fn has_followers(&self) -> bool {
        !self.lock().followers.is_empty()
    }

    /// Waits for a moment, and returns whether the thread has a follower then.
    pub(crate) async fn is_followed_again(&self) -> bool {
        tokio::time::sleep(RECONNECT_TIME_MAX).await;
        self.has_followers()
    }

    pub(crate) fn followers(&self) -> Vec<Arc<Peer>> {
        self.lock().followers.values().cloned().collect()
    }

    /// Waits until clients were notified of the end of a turn that is over; does not wait for a turn that is still running.
    pub(crate) async fn turn_told(&self) {
        loop {
            let told = self.turn_told.notified();
            tokio::pin!(told);
            // From here on, nothing is missed.
            told.as_mut().enable();
            if self.lock().handle().is_none_or(|handle| !handle.is_over()) {
                return;
            }
            told.await;
        }
    }

    /// Refuses new turns and interrupts the running one; the task then closes the thread.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.turns = None;
        if let Some(turn) = &state.turn {
            turn.handle.interrupt();
        }
        drop(state);
        self.asked.give_up();
    }

    /// Waits until the thread is closed and its log may be opened again.
    pub(crate) async fn gone(&self) {
        // The sender is in `self`.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Sends a notification to the followers, and keeps it for clients that are disconnected.
    pub(crate) fn tell(&self, followers: &[Arc<Peer>], notification: Notification) {
        // Held until it is sent, so that every client gets them in the order of their numbers.
        let mut missed = self.missed();
        let message = Message::of_thread(notification, heddle::now_ms(), &mut missed);
        followers.iter().for_each(|peer| peer.send(&message));
    }

    pub(crate) fn missed(&self) -> MutexGuard<'_, Missed> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadState {
    pub(crate) fn status(&self) -> Status {
        match (&self.turn, self.failed) {
            (Some(turn), _) => turn.face.status(),
            (None, true) => Status::SystemError,
            (None, false) => Status::Idle,
        }
    }

    /// Returns the thread as clients see it, without turns.
    pub(crate) fn shown(&self) -> wire::Thread {
        wire::Thread { status: self.status(), ..self.thread.clone() }
    }

    pub(crate) fn is_saved(&self) -> bool {
        self.saved
    }

    /// Records that its log has lines that others can read.
    pub(crate) fn note_saved(&mut self) {
        self.saved |= !self.thread.ephemeral;
    }

    pub(crate) fn is_ephemeral(&self) -> bool {
        self.thread.ephemeral
    }

    /// Replaces the thread after it was opened again with other settings.
    pub(crate) fn replace(&mut self, opened: Opened) {
        let Opened { open, opening, thread, settings, window, raw_reasoning, .. } = opened;
        (self.open, self.opening, self.settings, self.window) = (open, opening, settings, window);
        (self.raw_reasoning, self.is_outdated) = (raw_reasoning, false);
        self.thread.model = thread.model;
        self.thread.model_provider = thread.model_provider;
        self.thread.cwd = thread.cwd;
        self.thread.environments = thread.environments;
    }

    pub(crate) fn set_name(&mut self, name: &str) {
        self.thread.name = Some(name.to_owned());
    }

    pub(crate) fn set_git(&mut self, changes: &GitChanges) {
        self.thread.git_info = changes.applied_to(self.thread.git_info.take());
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.turns.is_none()
    }

    pub(crate) fn turn_id(&self) -> Option<&str> {
        self.turn.as_ref().map(|turn| turn.face.id())
    }

    pub(crate) fn running_turn(&self) -> Option<&wire::Turn> {
        self.turn.as_ref().map(|turn| turn.face.turn())
    }

    /// Records that the turn that has just started accepts no input.
    pub(crate) fn takes_no_input(&mut self, closed: Closed) {
        if let Some(turn) = &mut self.turn {
            turn.closed = Some(closed);
            if closed == Closed::Review {
                turn.face.begins_with_review();
            }
        }
    }

    /// Records that the turn that has just started got its input from the queue.
    pub(crate) fn says_queued(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.is_queued = true;
        }
    }

    /// Returns whether a turn may count for a goal, without reading the goal from disk.
    fn counts(&self) -> bool {
        self.pursues || self.goal_tool.is_some()
    }

    /// Returns whether a turn may start by itself, from the queue or for the goal.
    pub(crate) fn may_go_on(&self) -> bool {
        self.turn.is_none() && !self.is_closing() && !self.interrupted
    }

    /// Records that a client wants the thread to continue after an interrupted turn.
    pub(crate) fn may_go_on_again(&mut self) {
        self.interrupted = false;
    }

    /// Returns whether the thread can have extras.
    pub(crate) fn may_have_extras(&self) -> bool {
        self.saved && !self.thread.ephemeral
    }

    /// Returns why the running turn accepts no input, if so.
    pub(crate) fn closed_to_input(&self) -> Option<Closed> {
        self.turn.as_ref().and_then(|turn| turn.closed)
    }

    pub(crate) fn handle(&self) -> Option<&TurnHandle> {
        self.turn.as_ref().map(|turn| &turn.handle)
    }

    /// Prepares a turn, which starts when it is passed to [`ThreadState::send`]. Returns the turn as clients see it.
    pub(crate) fn begin(
        &mut self,
        turn: &Turn,
        preview: Option<String>,
        now_ms: u64,
    ) -> wire::Turn {
        let now = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
        self.saved |= !self.thread.ephemeral;
        (self.failed, self.interrupted) = (false, false);
        (self.thread.updated_at, self.thread.recency_at) = (now, now);
        if self.thread.preview.is_empty() {
            self.thread.preview = preview.unwrap_or_default();
        }
        let face = TurnFace::new(self.thread.id.clone(), turn.id().to_owned(), self.window)
            .raw_reasoning(self.raw_reasoning)
            .directory(self.open.directory());
        let shown = face.turn().clone();
        self.turn =
            Some(RunningTurn { face, handle: turn.handle(), closed: None, is_queued: false });
        shown
    }

    /// Returns a turn for the input that came too late for the last one, unless another turn was requested.
    fn follow_up(&mut self) -> Option<Turn> {
        if self.turn.is_some() || self.turns.is_none() || !self.open.has_unsaid() {
            return None;
        }
        let turn = self.open.turn(Input::default());
        self.begin(&turn, None, heddle::now_ms());
        Some(turn)
    }

    pub(crate) fn send(&mut self, turn: Turn) -> Result<(), RpcError> {
        let sent = self.turns.as_ref().is_some_and(|turns| turns.send(turn).is_ok());
        if sent {
            return Ok(());
        }
        self.turn = None;
        Err(RpcError::invalid("the thread is being closed"))
    }
}

/// Runs the turns of a thread one after the other until no more can be requested, then closes the thread.
async fn run(hub: Hub, loaded: Arc<LoadedThread>, mut turns: mpsc::UnboundedReceiver<Turn>) {
    let mut follow_up = None;
    while let Some(mut turn) = match follow_up.take() {
        Some(turn) => Some(turn),
        None => next(&loaded, &mut turns).await,
    } {
        let id = turn.id().to_owned();
        let is_queued = loaded.lock().turn.as_ref().is_some_and(|turn| turn.is_queued);
        let (mut is_answered, mut was_said) = (false, false);
        let mut collected = Collected::default();
        let mut counted = Instant::now();
        loop {
            let event = tokio::select! {
                biased;
                event = turn.next() => event,
                () = collected.is_due() => {
                    tell_collected(&hub, &loaded, &mut collected);
                    continue;
                }
            };
            let Some(event) = event else { break };
            is_answered = matches!(event, Event::TurnCompleted { .. });
            was_said |= is_user_message(&event);
            if let Some(what) = goal::happened(&event)
                && loaded.lock().counts()
            {
                goal::count(&hub, &loaded, &id, what, counted.elapsed()).await;
                counted = Instant::now();
            }
            if let Some(peer) = on_event(&hub, &loaded, &mut collected, &event) {
                // It is the only follower, so no other client is kept waiting.
                peer.has_room().await;
            }
        }
        // Unless the turn broke off without an end, there is nothing.
        tell_collected(&hub, &loaded, &mut collected);
        // A turn that could not even start has no events. After any other turn, the next one may have been requested.
        if loaded.lock().turn_id() == Some(&id) {
            let why = turn.result().err().map(|error| error.to_string()).unwrap_or_default();
            end_unstarted(&hub, &loaded, &why);
            loaded.turn_told.notify_waiters();
        } else {
            loaded.turn_told.notify_waiters();
            // So that the thread is free for what follows.
            drop(turn);
            if is_answered {
                follow_up = loaded.lock().follow_up();
            }
        }
        if is_queued {
            queue::ended(&hub, &loaded, id, was_said).await;
        }
        if follow_up.is_none() {
            go_on_later(&hub, &loaded);
        }
    }
    loaded.close();
    // A turn may have been requested at the very moment at which the time without followers was up.
    if turns.try_recv().is_ok() {
        end_unstarted(&hub, &loaded, "the thread was closed; resume it, and try again");
    }
    let open = loaded.lock().open.clone();
    open.close().await;
    drop(open);
    hub.forget(&loaded);
    loaded.gone.send_replace(true);
}

/// Starts the next turn from the queue or for the goal, but only after pending requests about the thread: one of them may
/// be waiting for the thread to close.
fn go_on_later(hub: &Hub, loaded: &Arc<LoadedThread>) {
    if !loaded.lock().may_go_on() || !loaded.lock().may_have_extras() {
        return;
    }
    let (hub, loaded) = (hub.clone(), Arc::clone(loaded));
    tokio::spawn(async move {
        let _gate = hub.gate(loaded.id).await;
        queue::go_on(&hub, &loaded).await;
    });
}

/// Notifies the followers that a requested turn failed before it started.
fn end_unstarted(hub: &Hub, loaded: &LoadedThread, why: &str) {
    let (running, followers) = {
        let mut state = loaded.lock();
        let Some(running) = state.turn.take() else { return };
        // It would fail again for the same reason.
        (state.failed, state.interrupted) = (true, true);
        (running, state.followers.values().cloned().collect::<Vec<_>>())
    };
    for notification in running.face.never_started(why, heddle::now_ms()) {
        send(hub, loaded, &followers, notification);
    }
}

/// Waits for the next turn; `None` if the thread is to be closed.
async fn next(loaded: &LoadedThread, turns: &mut mpsc::UnboundedReceiver<Turn>) -> Option<Turn> {
    loop {
        let (followed, patience) = {
            let state = loaded.lock();
            // A thread that was never used is closed earlier, as nothing is lost with it.
            let is_useless = state.was_followed && !state.saved && !state.thread.ephemeral;
            let patience = if is_useless { RECONNECT_TIME_MAX } else { UNFOLLOWED_MAX };
            (!state.followers.is_empty(), patience)
        };
        tokio::select! {
            biased;
            turn = turns.recv() => return turn,
            () = loaded.followers_changed.notified() => {}
            () = tokio::time::sleep(patience), if !followed => return None,
        }
    }
}

/// Sends the notifications and questions for an event. Returns the follower if there is exactly one.
fn on_event(
    hub: &Hub,
    loaded: &Arc<LoadedThread>,
    collected: &mut Collected,
    event: &Event,
) -> Option<Arc<Peer>> {
    let mut state = loaded.lock();
    let told = match &mut state.turn {
        Some(turn) => turn.face.event(event),
        None => Vec::new(),
    };
    if state.thread.preview.is_empty()
        && let Event::ItemCompleted(item) = event
        && let ItemBody::UserMessage(message) = &item.body
    {
        // As it is read from the log.
        let content: Vec<_> = message.inputs().cloned().map(Into::into).collect();
        state.thread.preview = preview(&content);
    }
    if event.is_terminal() {
        state.turn = None;
        state.failed = matches!(event, Event::TurnFailed { .. });
        state.interrupted = matches!(event, Event::TurnInterrupted { .. });
    }
    let followers: Vec<_> = state.followers.values().cloned().collect();
    drop(state);
    for told in told {
        let told = match told {
            Told::Notification(notification) => {
                match collected.add(notification, followers.len()) {
                    None => continue,
                    Some(notification) => Told::Notification(notification),
                }
            }
            told => told,
        };
        if let Some(parts) = collected.take() {
            send(hub, loaded, &followers, parts);
        }
        match told {
            Told::Notification(notification) => send(hub, loaded, &followers, notification),
            Told::Question(question) => {
                let id = question.id;
                let request = hub.ask(loaded, &followers, question);
                loaded.asked.note_request(id, request);
            }
            Told::Resolved(id) => {
                if let Some(request_id) = loaded.asked.resolve(id) {
                    hub.forget_request(request_id);
                    let thread_id = loaded.id.to_string();
                    let resolved = Notification::RequestResolved { thread_id, request_id };
                    send(hub, loaded, &followers, resolved);
                }
            }
        }
    }
    match followers.as_slice() {
        [peer] => Some(Arc::clone(peer)),
        _ => None,
    }
}

/// Returns whether the event says that a message of the user is in the log.
fn is_user_message(event: &Event) -> bool {
    matches!(event, Event::ItemCompleted(item) if matches!(item.body, ItemBody::UserMessage(_)))
}

/// Sends the collected deltas.
fn tell_collected(hub: &Hub, loaded: &LoadedThread, collected: &mut Collected) {
    if let Some(parts) = collected.take() {
        send(hub, loaded, &loaded.followers(), parts);
    }
}

/// Deltas of a text that are sent together. Each delta costs time for every follower, so deltas that arrive faster than
/// they can be sent are joined once for all followers. A single follower gets every delta.
#[derive(Debug, Default)]
struct Collected {
    parts: Option<Notification>,
    /// When deltas were last sent.
    sent: Option<Instant>,
    /// How long to collect since then.
    pause: Duration,
}

/// How long deltas are collected per follower, and at most: too short to notice.
const PAUSE_EACH: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);

impl Collected {
    /// Collects a delta, or returns a notification that must be sent now, after the collected ones.
    fn add(&mut self, notification: Notification, followers: usize) -> Option<Notification> {
        let Some(text) = notification.part_text().filter(|_| followers > 1) else {
            return Some(notification);
        };
        let now = Instant::now();
        match &mut self.parts {
            Some(parts) if parts.is_same_text(&notification) => {
                parts.add_text(text);
                // Events that come without a pause are looked at before the clock is.
                let is_due = self.sent.is_none_or(|sent| now >= sent + self.pause);
                return if is_due { self.take() } else { None };
            }
            Some(_) => return Some(notification),
            None => {}
        }
        let count = u32::try_from(followers).unwrap_or(u32::MAX);
        self.pause = PAUSE_EACH.saturating_mul(count).min(PAUSE_MAX);
        if self.sent.is_none_or(|sent| now >= sent + self.pause) {
            self.sent = Some(now);
            return Some(notification);
        }
        self.parts = Some(notification);
        None
    }

    /// Waits until the collected deltas are due; forever if there are none.
    async fn is_due(&self) {
        match (&self.parts, self.sent) {
            (Some(_), Some(sent)) => tokio::time::sleep_until((sent + self.pause).into()).await,
            _ => std::future::pending().await,
        }
    }

    fn take(&mut self) -> Option<Notification> {
        let parts = self.parts.take()?;
        self.sent = Some(Instant::now());
        Some(parts)
    }
}

/// Sends a change of status to all clients, and any other notification to the followers.
fn send(hub: &Hub, loaded: &LoadedThread, followers: &[Arc<Peer>], notification: Notification) {
    if let Notification::ThreadStatusChanged { .. } = notification {
        return hub.tell_all(notification);
    }
    loaded.tell(followers, notification);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(item: &str, text: &str) -> Notification {
        Notification::AgentMessageDelta {
            thread_id: "th".into(),
            turn_id: "tu".into(),
            item_id: item.into(),
            delta: text.into(),
        }
    }

    /// Adds deltas of two items for this many followers; returns what is sent.
    fn sent(followers: usize, parts: &[(&str, &str)]) -> Vec<String> {
        let mut collected = Collected::default();
        let mut sent = Vec::new();
        let mut send = |it: Notification| sent.push(it.part_text().unwrap().to_owned());
        for (item, text) in parts {
            if let Some(now) = collected.add(part(item, text), followers) {
                collected.take().into_iter().for_each(&mut send);
                send(now);
            }
            // Nothing is due within the test.
            collected.sent = Some(Instant::now() + Duration::from_secs(60));
        }
        collected.take().into_iter().for_each(send);
        sent
    }

    #[test]
    fn parts_are_collected_for_several_followers() {
        let parts = [("1", "a"), ("1", "b"), ("1", "c"), ("2", "d"), ("2", "e")];
        assert_eq!(sent(1, &parts), ["a", "b", "c", "d", "e"]);
        assert_eq!(sent(2, &parts), ["a", "bc", "d", "e"]);
    }
}
