//! [`Restored`]: the settings of a saved thread's last turn, as its log records them (pure).
//!
//! Which of them apply again when the thread is loaded follows the observed behavior of the reference. A sandbox with a
//! writable workspace is restored as a mode only; its directories and its network access are those of the settings.

use log::{EventKind, Line, LogEvent, Replay, Step, TurnContext};
use protocol::open::Raw;

use crate::request::{Approval, Settings};

#[derive(Debug, Default)]
pub struct Restored {
    replay: Replay,
    context: TurnContext,
    provider: Option<String>,
}

impl Restored {
    /// Adds the next line of its log.
    pub fn line(&mut self, line: &Line<'_>) {
        match self.replay.line(line) {
            Step::Head(head) => {
                self.provider = head.read().and_then(|head| head.model_provider);
            }
            Step::Context(context) => self.context = context.read().unwrap_or_default(),
            Step::Event(event) if event.kind() == EventKind::ThreadSettingsApplied => {
                if let Some(LogEvent::ThreadSettingsApplied(applied)) = event.read() {
                    let provider = applied.thread_settings.model_provider_id;
                    self.provider = provider.or(self.provider.take());
                }
            }
            _ => {}
        }
    }

    /// Returns the working directory of the last turn.
    pub fn directory(&self) -> Option<&str> {
        Some(&*self.context.cwd).filter(|cwd| !cwd.is_empty())
    }

    /// Completes the settings that a client gives to resume a thread. `provider` is the one in the settings: a model
    /// belongs to its provider, and an effort to its model.
    pub fn resumed(&self, given: Settings, provider: Option<&str>) -> Settings {
        let same = provider.unwrap_or(PROVIDER_DEFAULT);
        let is_open = given.model.is_none() && !says(&given, "model");
        let mut settings = self.forked(given);
        if is_open && self.provider.as_deref() == Some(same) && !self.context.model.is_empty() {
            settings.model = Some(self.context.model.clone());
            if !says(&settings, "model_reasoning_effort") {
                settings.effort = settings.effort.or_else(|| self.context.effort.clone());
            }
        }
        settings
    }

    /// Completes the settings that a client gives to fork a thread. The model is the one in the settings.
    pub fn forked(&self, given: Settings) -> Settings {
        let mut settings = given;
        if settings.cwd.is_none() {
            settings.cwd = self.directory().map(str::to_owned);
        }
        if settings.approval_policy.is_none() && !says(&settings, "approval_policy") {
            let policy = self.context.approval_policy.as_ref();
            settings.approval_policy =
                policy.and_then(|it| serde_json::from_str::<Approval>(it.as_str()).ok());
        }
        let has_sandbox = settings.sandbox.is_some() || settings.sandbox_policy.is_some();
        if !has_sandbox && !says(&settings, "sandbox_mode") {
            let mode = self.context.sandbox_policy.as_ref().and_then(Raw::kind);
            settings.sandbox =
                mode.and_then(|mode| serde_json::from_value(mode.as_ref().into()).ok());
        }
        settings
    }
}

/// Returns whether the client overrides this key.
fn says(settings: &Settings, key: &str) -> bool {
    settings.config.as_ref().is_some_and(|config| config.contains_key(key))
}

/// The provider if the settings name none.
const PROVIDER_DEFAULT: &str = "openai";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Reads a log and completes what a client gives; compares model, effort, cwd, approval and sandbox.
    #[track_caller]
    fn check(fork: bool, provider: Option<&str>, given: Value, want: Value) {
        let context = |cwd: &str, model: &str, approval: Value, sandbox: &str| {
            json!({"type": "turn_context", "payload": {
                "cwd": cwd, "model": model, "effort": "low", "approval_policy": approval,
                "sandbox_policy": {"type": sandbox, "writable_roots": ["/r"]},
            }})
        };
        let applied = json!({"type": "event_msg", "payload": {
            "type": "thread_settings_applied", "thread_settings": {"model_provider_id": "mock"},
        }});
        let lines = [
            json!({"type": "session_meta", "payload": {"model_provider": "openai"}}),
            context("/old", "first", json!("never"), "read-only"),
            applied,
            context("/w", "m", json!("untrusted"), "workspace-write"),
        ];
        let mut restored = Restored::default();
        for (number, mut line) in lines.into_iter().enumerate() {
            line["timestamp"] = json!("2026-11-16T03:37:16.000Z");
            line["ordinal"] = json!(number);
            let text = line.to_string();
            restored.line(&serde_json::from_str(&text).unwrap());
        }
        let given: Settings = serde_json::from_value(given).unwrap();
        let settings =
            if fork { restored.forked(given) } else { restored.resumed(given, provider) };
        let Settings { model, effort, cwd, approval_policy, sandbox, .. } = settings;
        let sandbox = sandbox.map(|it| format!("{it:?}"));
        assert_eq!(json!([model, effort, cwd, approval_policy, sandbox]), want);
    }

    #[test]
    fn what_holds_again() {
        let (resumed, forked) = (false, true);
        let mock = Some("mock");
        let all = json!(["m", "low", "/w", "untrusted", "WorkspaceWrite"]);
        check(resumed, mock, json!({}), all);
        let others = json!([null, null, "/w", "untrusted", "WorkspaceWrite"]);
        check(forked, mock, json!({}), others.clone());
        // Models of another provider have other names.
        check(resumed, None, json!({}), others.clone());
        check(resumed, Some("other"), json!({}), others.clone());
        // What the client says holds, however it says that.
        check(resumed, mock, json!({"config": {"model": "x"}}), others);
        check(
            resumed,
            mock,
            json!({"model": "x"}),
            json!(["x", null, "/w", "untrusted", "WorkspaceWrite"]),
        );
        check(
            resumed,
            mock,
            json!({"cwd": "/x", "approvalPolicy": "never", "sandbox": "read-only", "effort": "high"}),
            json!(["m", "high", "/x", "never", "ReadOnly"]),
        );
        check(
            forked,
            mock,
            json!({"sandboxPolicy": {"type": "readOnly"}}),
            json!([null, null, "/w", "untrusted", null]),
        );
        let config = json!({
            "sandbox_mode": "read-only", "approval_policy": "never", "model_reasoning_effort": "high",
        });
        check(resumed, mock, json!({"config": config}), json!(["m", null, "/w", null, null]));
    }
}
