//! The answer: the last thing the model said.

use std::sync::Arc;

use protocol::event::Event;
use protocol::item::ItemBody;

/// Remembers the last message of a turn.
#[derive(Clone, Debug, Default)]
pub struct LastMessage(Option<Arc<str>>);

impl LastMessage {
    /// Looks at an event.
    pub fn observe(&mut self, event: &Event) {
        if let Event::ItemCompleted(item) = event
            && let ItemBody::AgentMessage { text } = &item.body
        {
            self.0 = Some(Arc::clone(text));
        }
    }

    /// Returns the last message, if there was one.
    pub fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }
}
