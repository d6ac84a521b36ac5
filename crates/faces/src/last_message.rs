//! The answer: the last message of the model, and the plan that it proposes.

use std::sync::Arc;

use protocol::event::Event;
use protocol::item::ItemBody;

/// Remembers the last message of a turn, and its last plan.
#[derive(Clone, Debug, Default)]
pub struct LastMessage {
    message: Option<Arc<str>>,
    plan: Option<Arc<str>>,
}

impl LastMessage {
    pub fn observe(&mut self, event: &Event) {
        let Event::ItemCompleted(item) = event else { return };
        if let ItemBody::AgentMessage { text } = &item.body {
            self.message = Some(Arc::clone(text));
        } else if let ItemBody::Plan { text } = &item.body {
            self.plan = Some(Arc::clone(text));
        }
    }

    /// Returns the last message; if there is none, the plan.
    pub fn get(&self) -> Option<&str> {
        self.message.as_deref().or(self.plan())
    }

    /// Returns the plan that was proposed last.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }
}
