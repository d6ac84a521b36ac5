//! The answer: the last message of the model.

use std::sync::Arc;

use protocol::event::Event;
use protocol::item::ItemBody;

/// Remembers the last message of a turn.
#[derive(Clone, Debug, Default)]
pub struct LastMessage(Option<Arc<str>>);

impl LastMessage {
    pub fn observe(&mut self, event: &Event) {
        if let Event::ItemCompleted(item) = event
            && let ItemBody::AgentMessage { text } = &item.body
        {
            self.0 = Some(Arc::clone(text));
        }
    }

    pub fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }
}
