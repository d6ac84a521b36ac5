//! Converts the events of a running turn to notifications, and to questions for clients.
//!
//! ```text
//! a command:  status waiting ─▶ item/started ─▶ question ─▶ resolved ─▶ status ─▶ item/completed
//! a patch:    item/started ─▶ status waiting ─▶ question ─▶ resolved ─▶ status ─▶ item/completed
//! ```
//!
//! A refused command completes before the status of the thread changes, and a withdrawn question is resolved after the end
//! of the turn: the reference sends its notifications in this order.

use std::collections::HashMap;
use std::path::Path;

use protocol::approval::{Answer, ApprovalRequest, Resolution, Subject};
use protocol::event::{DeltaPart, Event};
use protocol::id::{ApprovalId, ItemId};
use protocol::item::{Item as EngineItem, ItemBody, Status as ItemStatus, StepStatus, Verdict};
use serde_json::json;

use crate::diff::TurnDiff;
use crate::notification::{Notification, PlanStep, PlanStepStatus, TokenUsage};
use crate::question::{self, Question};
use crate::request::ItemsView;
use crate::wire::{ActiveFlag, Body, Item, Status, Turn, TurnError, TurnStatus};

/// Converts the events of one turn.
#[derive(Clone, Debug)]
pub struct TurnFace {
    thread: String,
    turn: Turn,
    started_ms: u64,
    open: HashMap<ItemId, Open>,
    last_message: Option<Item>,
    window: Option<u64>,
    diff: TurnDiff,
    raw_reasoning: bool,
    /// Questions that wait for an answer.
    asking: Vec<(ApprovalId, ActiveFlag)>,
    /// Questions that were withdrawn; they are resolved after the turn has ended.
    withdrawn: Vec<ApprovalId>,
    /// Whether `turn/started` is sent only after the first item, as the reference does for reviews.
    begins_with_review: bool,
    /// The notifications about the start that wait for that.
    held: Vec<Notification>,
    /// What the thread waits for, according to the last status that was sent.
    waiting: Vec<ActiveFlag>,
}

/// What an event causes for clients.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are notifications")]
pub enum Told {
    Notification(Notification),
    Question(Question),
    /// A question was answered or withdrawn.
    Resolved(ApprovalId),
}

impl From<Notification> for Told {
    fn from(notification: Notification) -> Self {
        Self::Notification(notification)
    }
}

/// An item that has started and not completed.
#[derive(Clone, Debug)]
struct Open {
    name: String,
    started_ms: u64,
    is_command: bool,
    /// The last part of its summary that was announced, if it is reasoning.
    summary_part: Option<u64>,
}

impl TurnFace {
    pub fn new(thread: String, turn: String, window: Option<u64>) -> Self {
        Self {
            thread,
            turn: Turn::new(turn),
            started_ms: 0,
            open: HashMap::new(),
            last_message: None,
            window,
            diff: TurnDiff::default(),
            raw_reasoning: false,
            asking: Vec::new(),
            withdrawn: Vec::new(),
            begins_with_review: false,
            held: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Sets whether raw reasoning is also sent.
    #[must_use]
    pub fn raw_reasoning(mut self, shown: bool) -> Self {
        self.raw_reasoning = shown;
        self
    }

    /// Sets the directory that paths in diffs are relative to.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.diff = TurnDiff::new(directory.to_owned());
        self
    }

    /// Records that the turn is a review.
    pub fn begins_with_review(&mut self) {
        self.begins_with_review = true;
    }

    /// Returns the status of the thread, including what it waits for.
    pub fn status(&self) -> Status {
        Status::Active { active_flags: self.waiting.clone() }
    }

    pub fn id(&self) -> &str {
        &self.turn.id
    }

    /// Returns the current state of the turn, without items.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Returns the notifications for a turn that failed before it started.
    pub fn never_started(mut self, why: &str, now_ms: u64) -> Vec<Notification> {
        self.started_ms = now_ms;
        self.ended(now_ms, TurnStatus::Failed);
        let error = TurnError::new(why.to_owned(), json!("other"), None);
        self.turn.error = Some(error.clone());
        vec![self.status_note(Status::SystemError), self.error(error, false), self.completed()]
    }

    /// Converts an event to notifications and questions for clients.
    pub fn event(&mut self, event: &Event) -> Vec<Told> {
        match event {
            Event::ItemStarted(item) => return self.item_started(item),
            Event::ItemCompleted(item) => return self.item_completed(item),
            Event::ApprovalRequested { id, item, request } => {
                return self.asked(*id, *item, request);
            }
            Event::ApprovalResolved { id, resolution } => return self.resolved(*id, resolution),
            _ => {}
        }
        let mut told: Vec<Told> = self.plain_event(event).into_iter().map(Told::from).collect();
        if event.is_terminal() {
            // The review itself may not have been kept.
            told.splice(0..0, self.held.drain(..).map(Told::from));
            let open = std::mem::take(&mut self.asking).into_iter().map(|(id, _)| id);
            told.extend(self.withdrawn.drain(..).chain(open).map(Told::Resolved));
        }
        told
    }

    /// Returns the notifications for events that neither start nor end anything.
    fn plain_event(&mut self, event: &Event) -> Vec<Notification> {
        match event {
            Event::TurnStarted { at_ms } => self.started(*at_ms),
            Event::ItemUpdated(item) => self.plan(item).into_iter().collect(),
            Event::Delta { item, part, text } => self.delta(*item, *part, text),
            Event::Typed { item, session, text } => {
                // A command of an earlier turn has no item in this one.
                let open = item.and_then(|item| self.open.get(&item));
                let told = open.map(|open| Notification::TerminalInteraction {
                    thread_id: self.thread.clone(),
                    turn_id: self.turn.id.clone(),
                    item_id: open.name.clone(),
                    process_id: session.to_string(),
                    stdin: text.clone(),
                });
                told.into_iter().collect()
            }
            Event::ItemDiscarded(item) => {
                // This protocol has no notification for it: the item never completes.
                self.open.remove(item);
                Vec::new()
            }
            Event::Retrying { attempt, limit, reason, .. } => {
                let error = TurnError::new(
                    format!("Reconnecting... {attempt}/{limit}"),
                    json!({"responseStreamDisconnected": {"httpStatusCode": null}}),
                    Some(reason.clone()),
                );
                vec![self.error(error, true)]
            }
            Event::Warning(message) => vec![self.warning(message.clone())],
            Event::Waiting(since) => {
                let seconds = since.as_secs();
                vec![
                    self.warning(format!(
                        "the model has said nothing for {seconds} s; still waiting"
                    )),
                ]
            }
            Event::HistoryRepaired(repairs) => {
                let words: Vec<_> = repairs.iter().map(ToString::to_string).collect();
                vec![self.warning(words.join("\n"))]
            }
            Event::TokensUsed { usage, answer } => {
                let token_usage = TokenUsage {
                    total: (*usage).into(),
                    last: (*answer).into(),
                    model_context_window: self.window,
                };
                vec![Notification::TokenUsageUpdated {
                    thread_id: self.thread.clone(),
                    turn_id: self.turn.id.clone(),
                    token_usage,
                }]
            }
            Event::TurnCompleted { at_ms, .. } => {
                self.ended(*at_ms, TurnStatus::Completed);
                let end = [self.status_note(Status::Idle), self.completed()];
                self.diff_updated().into_iter().chain(end).collect()
            }
            Event::TurnFailed { error: cause, at_ms, .. } => {
                let error = TurnError::from_failure(cause);
                self.ended(*at_ms, TurnStatus::Failed);
                self.turn.error = Some(error.clone());
                vec![
                    self.status_note(Status::SystemError),
                    self.error(error, false),
                    self.completed(),
                ]
            }
            Event::TurnInterrupted { at_ms, .. } => {
                self.ended(*at_ms, TurnStatus::Interrupted);
                vec![self.status_note(Status::Idle), self.completed()]
            }
            // The handler that creates a thread sends its notification; the others are handled above.
            Event::ThreadStarted(_)
            | Event::ItemStarted(_)
            | Event::ItemCompleted(_)
            | Event::ApprovalRequested { .. }
            | Event::ApprovalResolved { .. } => Vec::new(),
            // This protocol has no notifications for these.
            Event::FileStaged { .. } | Event::FileSent(_) => Vec::new(),
        }
    }

    fn started(&mut self, now_ms: u64) -> Vec<Notification> {
        self.started_ms = now_ms;
        self.turn.started_at = Some(now_ms / 1000);
        let thread_id = self.thread.clone();
        let told = vec![
            self.status_note(self.status()),
            Notification::TurnStarted { thread_id, turn: self.turn.clone() },
        ];
        if self.begins_with_review {
            self.held = told;
            return Vec::new();
        }
        told
    }

    fn item_started(&mut self, item: &EngineItem) -> Vec<Told> {
        let name = item.name(&self.turn.id);
        let Some(body) = Body::from_item(name.clone(), &item.body, None) else {
            return self.plan(item).into_iter().map(Told::from).collect();
        };
        let is_command = matches!(item.body, ItemBody::Command(_));
        let started_ms = item.started_ms;
        self.open.insert(item.id, Open { name, started_ms, is_command, summary_part: None });
        let mut told = Vec::new();
        // Only for a command does the status change before the question comes up.
        if is_command && item.decision.as_ref().is_some_and(|it| it.verdict == Verdict::Ask) {
            told.extend(self.set_waiting(vec![ActiveFlag::WaitingOnApproval]));
        }
        told.push(self.begins(item.started_ms, begun(body)).into());
        told
    }

    fn item_completed(&mut self, item: &EngineItem) -> Vec<Told> {
        let open = self.open.remove(&item.id);
        let name = open.as_ref().map_or_else(|| item.name(&self.turn.id), |open| open.name.clone());
        let (started_ms, now_ms) = (item.started_ms, item.completed_ms.unwrap_or(item.started_ms));
        let duration_ms = now_ms.saturating_sub(started_ms);
        let mut told = Vec::new();
        if let Some(body) = Body::from_item(name, &item.body, Some(duration_ms)) {
            if matches!(body, Body::AgentMessage { .. }) {
                self.last_message = Some(timed(started_ms, Some(now_ms), body.clone()));
            }
            told.push(self.is_done(started_ms, now_ms, body).into());
        }
        if let ItemBody::EnteredReview { .. } = &item.body {
            told.extend(self.held.drain(..).map(Told::from));
        }
        if let ItemBody::FileChange { changes, status: ItemStatus::Completed, .. } = &item.body {
            self.diff.add(changes);
            told.extend(self.diff_updated().map(Told::from));
        }
        // After a refused command, `resolved` leaves the change of status to this place.
        told.extend(self.set_waiting(self.waits_for()));
        told
    }

    fn asked(
        &mut self,
        id: ApprovalId,
        item: Option<ItemId>,
        request: &ApprovalRequest,
    ) -> Vec<Told> {
        let open = item.and_then(|item| self.open.get(&item));
        let place = question::Place {
            thread_id: self.thread.clone(),
            turn_id: self.turn.id.clone(),
            item_id: open.map(|open| open.name.clone()).unwrap_or_default(),
            started_at_ms: open.map(|open| open.started_ms).unwrap_or_default(),
        };
        let question = Question::about(id, request, place);
        let flag = match request.subject {
            Subject::Questions { .. } => ActiveFlag::WaitingOnUserInput,
            Subject::Command { .. }
            | Subject::Input { .. }
            | Subject::ToolCall { .. }
            | Subject::Write { .. } => ActiveFlag::WaitingOnApproval,
        };
        self.asking.push((id, flag));
        let mut told: Vec<Told> = self.set_waiting(self.waits_for()).into_iter().collect();
        told.push(Told::Question(question));
        told
    }

    fn resolved(&mut self, id: ApprovalId, resolution: &Resolution) -> Vec<Told> {
        self.asking.retain(|(asked, _)| *asked != id);
        match resolution {
            Resolution::Withdrawn => {
                self.withdrawn.push(id);
                Vec::new()
            }
            Resolution::Answered(answer) => {
                let mut told = vec![Told::Resolved(id)];
                if *answer == Answer::Invalid {
                    let text = "the answer to an approval request has none of its availableDecisions, so it is a \
                                refusal; answer {\"decision\": …} with one of them";
                    told.push(self.warning(text.to_owned()).into());
                }
                let is_command = self.open.values().any(|open| open.is_command);
                if !is_command || answer.accepts() {
                    told.extend(self.set_waiting(self.waits_for()));
                }
                told
            }
        }
    }

    fn waits_for(&self) -> Vec<ActiveFlag> {
        let flags = [ActiveFlag::WaitingOnApproval, ActiveFlag::WaitingOnUserInput];
        let has = |flag: &ActiveFlag| self.asking.iter().any(|(_, asked)| asked == flag);
        flags.into_iter().filter(has).collect()
    }

    fn set_waiting(&mut self, waiting: Vec<ActiveFlag>) -> Option<Told> {
        if self.waiting == waiting {
            return None;
        }
        self.waiting = waiting;
        Some(self.status_note(self.status()).into())
    }

    fn delta(&mut self, item: ItemId, part: DeltaPart, text: &str) -> Vec<Notification> {
        let Some(open) = self.open.get_mut(&item) else { return Vec::new() };
        let (thread_id, turn_id) = (self.thread.clone(), self.turn.id.clone());
        let (item_id, delta) = (open.name.clone(), text.to_owned());
        match part {
            DeltaPart::Message => {
                vec![Notification::AgentMessageDelta { thread_id, turn_id, item_id, delta }]
            }
            DeltaPart::Plan => {
                vec![Notification::PlanDelta { thread_id, turn_id, item_id, delta }]
            }
            DeltaPart::Output => {
                vec![Notification::CommandOutputDelta { thread_id, turn_id, item_id, delta }]
            }
            DeltaPart::Summary(summary_index) => {
                let mut told = Vec::new();
                if open.summary_part.replace(summary_index) != Some(summary_index) {
                    told.push(Notification::SummaryPartAdded {
                        thread_id: thread_id.clone(),
                        turn_id: turn_id.clone(),
                        item_id: item_id.clone(),
                        summary_index,
                    });
                }
                told.push(Notification::SummaryTextDelta {
                    thread_id,
                    turn_id,
                    item_id,
                    delta,
                    summary_index,
                });
                told
            }
            DeltaPart::Reasoning(content_index) if self.raw_reasoning => {
                vec![Notification::ReasoningTextDelta {
                    thread_id,
                    turn_id,
                    item_id,
                    delta,
                    content_index,
                }]
            }
            // The completed item has the text.
            DeltaPart::Reasoning(_) => Vec::new(),
        }
    }

    fn plan(&self, item: &EngineItem) -> Option<Notification> {
        let ItemBody::TodoList { steps } = &item.body else { return None };
        let status = |status| match status {
            StepStatus::Pending => PlanStepStatus::Pending,
            StepStatus::InProgress => PlanStepStatus::InProgress,
            StepStatus::Completed => PlanStepStatus::Completed,
        };
        let step = |step: &protocol::item::Step| PlanStep {
            step: step.text.clone(),
            status: status(step.status),
        };
        Some(Notification::PlanUpdated {
            thread_id: self.thread.clone(),
            turn_id: self.turn.id.clone(),
            explanation: None,
            plan: steps.iter().map(step).collect(),
        })
    }

    fn diff_updated(&self) -> Option<Notification> {
        let diff = self.diff.text()?;
        let (thread_id, turn_id) = (self.thread.clone(), self.turn.id.clone());
        Some(Notification::DiffUpdated { thread_id, turn_id, diff })
    }

    fn ended(&mut self, now_ms: u64, status: TurnStatus) {
        self.turn.status = status;
        self.turn.completed_at = Some(now_ms / 1000);
        self.turn.duration_ms = Some(now_ms.saturating_sub(self.started_ms));
    }

    fn completed(&self) -> Notification {
        let mut turn = self.turn.clone();
        let answered = turn.status == TurnStatus::Completed;
        if let Some(message) = self.last_message.clone().filter(|_| answered) {
            turn.items = vec![message];
            turn.items_view = ItemsView::Summary;
        }
        Notification::TurnCompleted { thread_id: self.thread.clone(), turn }
    }

    fn status_note(&self, status: Status) -> Notification {
        Notification::ThreadStatusChanged { thread_id: self.thread.clone(), status }
    }

    fn error(&self, error: TurnError, will_retry: bool) -> Notification {
        let (thread_id, turn_id) = (self.thread.clone(), self.turn.id.clone());
        Notification::Error { error, will_retry, thread_id, turn_id }
    }

    fn warning(&self, message: String) -> Notification {
        Notification::Warning { thread_id: Some(self.thread.clone()), message }
    }

    fn begins(&self, now_ms: u64, body: Body) -> Notification {
        Notification::ItemStarted {
            item: timed(now_ms, None, body),
            thread_id: self.thread.clone(),
            turn_id: self.turn.id.clone(),
            started_at_ms: now_ms,
        }
    }

    fn is_done(&self, started_ms: u64, now_ms: u64, body: Body) -> Notification {
        Notification::ItemCompleted {
            item: timed(started_ms, Some(now_ms), body),
            thread_id: self.thread.clone(),
            turn_id: self.turn.id.clone(),
            completed_at_ms: now_ms,
        }
    }
}

fn timed(started_ms: u64, completed_ms: Option<u64>, body: Body) -> Item {
    Item { body, started_at_ms: Some(started_ms), completed_at_ms: completed_ms }
}

/// Removes the text of a starting item: it follows in deltas or with the completed item.
fn begun(body: Body) -> Body {
    match body {
        Body::AgentMessage { id, .. } => Body::agent_message(id, String::new()),
        Body::Plan { id, .. } => Body::Plan { id, text: String::new() },
        Body::Reasoning { id, .. } => {
            Body::Reasoning { id, summary: Vec::new(), content: Vec::new() }
        }
        body => body,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use protocol::approval::{Answer, Subject};
    use protocol::error::{ErrorClass, TurnError as Cause, TurnErrorCause};
    use protocol::item::{Command, CommandSource, Step};
    use protocol::usage::Usage;
    use protocol::user::{UserInput, UserMessage};
    use serde_json::Value;

    use super::*;

    fn item(id: u64, body: ItemBody) -> EngineItem {
        EngineItem::new(ItemId(id), body)
    }

    fn message(text: &str) -> ItemBody {
        ItemBody::AgentMessage { text: text.into() }
    }

    /// Plays events one second apart, and compares the notifications in short form.
    #[track_caller]
    fn check(events: &[Event], want: &[&str]) {
        check_face(TurnFace::new("th".into(), "tu".into(), Some(9)), events, want);
    }

    #[track_caller]
    fn check_face(mut face: TurnFace, events: &[Event], want: &[&str]) {
        let mut got = Vec::new();
        for (second, event) in (1..).zip(events) {
            for told in face.event(&at(event, second * 1000)) {
                let told = match told {
                    Told::Notification(told) => told,
                    Told::Question(question) => {
                        got.push(format!("{} {}", question.method, question.params["itemId"]));
                        continue;
                    }
                    Told::Resolved(id) => {
                        got.push(format!("resolved {}", id.0));
                        continue;
                    }
                };
                let line: Value = serde_json::from_str(&told.line(second * 1000)).unwrap();
                assert_eq!(line["method"], told.method(), "{line}");
                crate::published::check_notification(&line);
                got.push(short(&line));
            }
        }
        assert_eq!(got, want);
    }

    /// Gives an event the times that the engine would; items start one second before they end.
    fn at(event: &Event, now_ms: u64) -> Event {
        let mut event = event.clone();
        match &mut event {
            Event::TurnStarted { at_ms }
            | Event::TurnCompleted { at_ms, .. }
            | Event::TurnFailed { at_ms, .. }
            | Event::TurnInterrupted { at_ms } => *at_ms = now_ms,
            Event::ItemStarted(item) => item.started_ms = now_ms,
            Event::ItemCompleted(item) => {
                (item.started_ms, item.completed_ms) = (now_ms - 1000, Some(now_ms));
            }
            _ => {}
        }
        event
    }

    fn short(line: &Value) -> String {
        let (method, params) = (line["method"].as_str().unwrap(), &line["params"]);
        let item = &params["item"];
        let detail = match method {
            "item/started" | "item/completed" => format!(
                "{} {} {}{}{}",
                item["id"].as_str().unwrap(),
                item["type"].as_str().unwrap(),
                item["text"].as_str().unwrap_or_default(),
                item["status"].as_str().unwrap_or_default(),
                item["durationMs"].as_u64().map(|ms| format!(" {ms}")).unwrap_or_default(),
            ),
            "turn/completed" => format!(
                "{} {} {}",
                params["turn"]["status"].as_str().unwrap(),
                params["turn"]["items"].as_array().unwrap().len(),
                params["turn"]["durationMs"]
            ),
            "thread/status/changed" => {
                let flags = params["status"]["activeFlags"].as_array();
                let waits = flags.is_some_and(|flags| !flags.is_empty());
                let status = params["status"]["type"].as_str().unwrap();
                format!("{status}{}", if waits { " waiting" } else { "" })
            }
            "error" => format!("{} {}", params["willRetry"], params["error"]["codexErrorInfo"]),
            "turn/plan/updated" => params["plan"].to_string(),
            "thread/tokenUsage/updated" => params["tokenUsage"]["last"]["totalTokens"].to_string(),
            _ => format!("{}{}", params["itemId"], params["delta"]),
        };
        format!("{method} {detail}")
    }

    const BEGIN: [&str; 2] = ["thread/status/changed active", "turn/started nullnull"];

    #[track_caller]
    fn check_turn(events: Vec<Event>, want: &[&str]) {
        let all: Vec<_> = std::iter::once(Event::TurnStarted { at_ms: 0 }).chain(events).collect();
        check(&all, &[&BEGIN, want].concat());
    }

    #[test]
    fn a_review() {
        let entered = ItemBody::EnteredReview { hint: "commit 1".into(), target: None };
        let began = [
            Event::TurnStarted { at_ms: 0 },
            Event::ItemStarted(item(0, entered.clone())),
            Event::ItemCompleted(item(0, entered)),
            Event::ItemStarted(item(1, message(""))),
            Event::ItemDiscarded(ItemId(1)),
            Event::ItemCompleted(item(2, ItemBody::ExitedReview { review: None })),
            Event::TurnInterrupted { at_ms: 0 },
        ];
        let check = |events: &[Event], want: &[&str]| {
            let mut face = TurnFace::new("th".into(), "tu".into(), None);
            face.begins_with_review();
            check_face(face, events, want);
        };
        let end = ["thread/status/changed idle", "turn/completed interrupted 0"];
        let all = [
            "item/started tu-0 enteredReviewMode ",
            "item/completed tu-0 enteredReviewMode ",
            BEGIN[0],
            BEGIN[1],
            "item/started tu-1 agentMessage ",
            "item/completed tu-2 exitedReviewMode ",
            end[0],
            &format!("{} 6000", end[1]),
        ];
        check(&began, &all);
        // If its first item was not kept, the turn has begun and ended all the same.
        let unkept = [began[0].clone(), began[6].clone()];
        check(&unkept, &[BEGIN[0], BEGIN[1], end[0], &format!("{} 1000", end[1])]);
    }

    #[test]
    fn a_turn_with_an_answer() {
        let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
        check_turn(
            vec![
                Event::ItemStarted(item(
                    0,
                    ItemBody::Reasoning { summary: vec!["x".into()], content: Vec::new() },
                )),
                Event::Delta { item: ItemId(0), part: DeltaPart::Summary(0), text: "t".into() },
                Event::Delta { item: ItemId(0), part: DeltaPart::Summary(1), text: "u".into() },
                Event::ItemCompleted(item(
                    0,
                    ItemBody::Reasoning { summary: vec!["tu".into()], content: Vec::new() },
                )),
                Event::ItemStarted(item(1, message("early"))),
                Event::Delta { item: ItemId(1), part: DeltaPart::Message, text: "one".into() },
                Event::Delta {
                    item: ItemId(7),
                    part: DeltaPart::Message,
                    text: "of nothing".into(),
                },
                Event::ItemCompleted(item(1, message("one"))),
                Event::TokensUsed { usage, answer: usage },
                Event::TurnCompleted { usage, turn_usage: usage, at_ms: 0 },
            ],
            &[
                "item/started tu-0 reasoning ",
                r#"item/reasoning/summaryPartAdded "tu-0"null"#,
                r#"item/reasoning/summaryTextDelta "tu-0""t""#,
                r#"item/reasoning/summaryPartAdded "tu-0"null"#,
                r#"item/reasoning/summaryTextDelta "tu-0""u""#,
                "item/completed tu-0 reasoning ",
                "item/started tu-1 agentMessage ",
                r#"item/agentMessage/delta "tu-1""one""#,
                "item/completed tu-1 agentMessage one",
                "thread/tokenUsage/updated 5",
                "thread/status/changed idle",
                "turn/completed completed 1 10000",
            ],
        );
    }

    #[test]
    fn what_the_user_said() {
        let element = protocol::user::TextElement { byte_range: 0..2, placeholder: None };
        let message = UserMessage {
            client_id: Some("mine".into()),
            ..UserMessage::from_inputs([
                UserInput::Text { text: "look".into(), text_elements: vec![element] },
                UserInput::LocalImage { path: "/a.png".into(), detail: None },
            ])
        };
        let body = ItemBody::UserMessage(message);
        let said = EngineItem { user_number: Some(1), ..item(0, body) };
        let steered = ItemBody::UserMessage(UserMessage::text("and that"));
        let steered = EngineItem { user_number: Some(2), ..item(3, steered) };
        check_turn(
            vec![
                Event::ItemStarted(said.clone()),
                Event::ItemCompleted(said.clone()),
                Event::ItemStarted(steered.clone()),
                Event::ItemCompleted(steered),
            ],
            &[
                "item/started tu-user-1 userMessage ",
                "item/completed tu-user-1 userMessage ",
                "item/started tu-user-2 userMessage ",
                "item/completed tu-user-2 userMessage ",
            ],
        );
        let mut face = TurnFace::new("th".into(), "tu".into(), None);
        let told = face.event(&Event::ItemStarted(said));
        let Told::Notification(told) = &told[0] else { panic!("{told:?}") };
        let line: Value = serde_json::from_str(&told.line(0)).unwrap();
        assert_eq!(
            line["params"]["item"],
            json!({
                "type": "userMessage", "id": "tu-user-1", "clientId": "mine",
                "content": [
                    {"type": "text", "text": "look", "text_elements": [
                        {"byteRange": {"start": 0, "end": 2}, "placeholder": null},
                    ]},
                    {"type": "localImage", "detail": null, "path": "/a.png"},
                ],
                "startedAtMs": 0, "completedAtMs": null,
            })
        );
    }

    #[test]
    fn calls() {
        let command = |status| {
            let command = "/bin/sh -c ls".into();
            let (cwd, output) = (PathBuf::from("/w"), "out".into());
            let body = ItemBody::Command(Command {
                command,
                cwd,
                output,
                exit_code: None,
                status,
                source: CommandSource::Model,
            });
            EngineItem { call_id: Some("c1".into()), ..item(0, body) }
        };
        let steps = vec![Step { text: "a".into(), status: StepStatus::InProgress }];
        let todo = item(1, ItemBody::TodoList { steps });
        check_turn(
            vec![
                Event::ItemStarted(command(ItemStatus::InProgress)),
                Event::ItemCompleted(command(ItemStatus::Completed)),
                Event::ItemStarted(todo.clone()),
                Event::ItemUpdated(todo.clone()),
                Event::ItemCompleted(todo),
            ],
            &[
                "item/started c1 commandExecution inProgress",
                "item/completed c1 commandExecution completed 1000",
                r#"turn/plan/updated [{"step":"a","status":"inProgress"}]"#,
                r#"turn/plan/updated [{"step":"a","status":"inProgress"}]"#,
            ],
        );
    }

    /// Returns the events of a command or a patch that needs an approval.
    fn asking(body: ItemBody, resolution: Resolution, status: ItemStatus) -> Vec<Event> {
        let decision = protocol::item::Decision {
            verdict: Verdict::Ask,
            place: None,
            rule: None,
            reason: "r".into(),
            refusal: None,
        };
        let begun = EngineItem {
            call_id: Some("c1".into()),
            decision: Some(Box::new(decision)),
            ..item(0, body.clone())
        };
        let subject = match &body {
            ItemBody::Command(_) => {
                Subject::Command { argv: vec!["ls".into()], cwd: "/w".into(), outside: true }
            }
            _ => Subject::Write { paths: Vec::new() },
        };
        let body = match body {
            ItemBody::Command(command) => ItemBody::Command(Command { status, ..command }),
            body => body,
        };
        let request = ApprovalRequest { subject, reason: None, scopes: Vec::new() };
        let (id, item) = (ApprovalId(4), Some(ItemId(0)));
        vec![
            Event::ItemStarted(begun.clone()),
            Event::ApprovalRequested { id, item, request },
            Event::ApprovalResolved { id, resolution },
            Event::ItemCompleted(EngineItem { body, ..begun }),
        ]
    }

    #[test]
    fn questions() {
        let command = || {
            let (command, cwd) = ("/bin/sh -c ls".into(), PathBuf::from("/w"));
            let status = ItemStatus::InProgress;
            ItemBody::Command(Command {
                command,
                cwd,
                output: String::new(),
                exit_code: None,
                status,
                source: CommandSource::Model,
            })
        };
        let patch = || ItemBody::FileChange {
            changes: Vec::new(),
            status: ItemStatus::Completed,
            refusal: None,
        };
        let accepted = || Resolution::Answered(Answer::Accept);
        check_turn(
            asking(command(), accepted(), ItemStatus::Completed),
            &[
                "thread/status/changed active waiting",
                "item/started c1 commandExecution inProgress",
                r#"item/commandExecution/requestApproval "c1""#,
                "resolved 4",
                "thread/status/changed active",
                "item/completed c1 commandExecution completed 1000",
            ],
        );
        for refused in [Answer::Decline, Answer::Cancel, Answer::Invalid, Answer::TimedOut] {
            // The client that gave no decision has to learn why its answer was a refusal.
            let warned = (refused == Answer::Invalid).then_some("warning nullnull");
            let begun = [
                "thread/status/changed active waiting",
                "item/started c1 commandExecution inProgress",
                r#"item/commandExecution/requestApproval "c1""#,
                "resolved 4",
            ];
            let ended = [
                "item/completed c1 commandExecution declined 1000",
                "thread/status/changed active",
            ];
            let want: Vec<_> = begun.into_iter().chain(warned).chain(ended).collect();
            check_turn(
                asking(command(), Resolution::Answered(refused), ItemStatus::Declined),
                &want,
            );
        }
        for answer in [Answer::Accept, Answer::Decline] {
            check_turn(
                asking(patch(), Resolution::Answered(answer), ItemStatus::Completed),
                &[
                    "item/started c1 fileChange completed",
                    "thread/status/changed active waiting",
                    r#"item/fileChange/requestApproval "c1""#,
                    "resolved 4",
                    "thread/status/changed active",
                    "item/completed c1 fileChange completed",
                ],
            );
        }
        // A question that is withdrawn is resolved after the end.
        let mut events = asking(command(), Resolution::Withdrawn, ItemStatus::Declined);
        events[3] = Event::TurnInterrupted { at_ms: 0 };
        check_turn(
            events,
            &[
                "thread/status/changed active waiting",
                "item/started c1 commandExecution inProgress",
                r#"item/commandExecution/requestApproval "c1""#,
                "thread/status/changed idle",
                "turn/completed interrupted 0 4000",
                "resolved 4",
            ],
        );
    }

    #[test]
    fn turns_without_an_answer() {
        let retrying =
            Event::Retrying { attempt: 1, limit: 5, delay: Duration::ZERO, reason: "r".into() };
        let full = TurnErrorCause::Sample(ErrorClass::ContextFull);
        let error = Cause { attempts: 1, ..Cause::new(full, "full") };
        let failed = Event::TurnFailed { error, at_ms: 0 };
        check_turn(
            vec![
                Event::ItemStarted(item(0, message(""))),
                Event::ItemDiscarded(ItemId(0)),
                retrying,
                failed,
            ],
            &[
                "item/started tu-0 agentMessage ",
                r#"error true {"responseStreamDisconnected":{"httpStatusCode":null}}"#,
                "thread/status/changed systemError",
                r#"error false "contextWindowExceeded""#,
                "turn/completed failed 0 4000",
            ],
        );
        check_turn(
            vec![Event::TurnInterrupted { at_ms: 0 }],
            &["thread/status/changed idle", "turn/completed interrupted 0 1000"],
        );
    }
}
