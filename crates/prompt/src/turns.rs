//! Arranges a conversation in the order and form that chat templates accept.
//!
//! Adjacent messages of one kind become one turn. What a template cannot show is expressed in another way:
//! instructions as a user message, tools and calls as text in the Hermes format.

use std::collections::HashMap;
use std::mem;

use serde_json::{Value, json};

use crate::guard::Names;
use crate::request::{Input, Message, Tool};
use crate::template::{Abilities, write_json};

/// Converts messages to template input; `words` describes tools if the template does not show them.
pub(crate) fn turns(
    messages: &[Message],
    words: &str,
    can: Abilities,
    names: &Names,
) -> Vec<Value> {
    let mut turns = Turns { list: Vec::new(), calls: HashMap::new(), can, names };
    if !words.is_empty() {
        turns.rules(String::new(), "system");
    }
    for message in messages {
        turns.push(message);
    }
    turns.finish(words)
}

/// Describes the available tools, for templates without support for them.
pub(crate) fn tool_words(tools: &[Tool], names: &Names) -> String {
    if tools.is_empty() {
        return String::new();
    }
    let mut words = String::from(
        "# Tools\n\nYou can call the tools below. Each line has the name of a tool, what it does, and the \
         JSON schema of its arguments.\n",
    );
    for tool in tools {
        let line = names.guard_value(&json!({
            "name": tool.name,
            "description": tool.description,
            "parameters": parameters(&tool.input),
        }));
        words.push('\n');
        write_json(&line, None, 0, &mut words);
    }
    words.push_str(
        "\n\nTo call a tool, write this and nothing after it; the output comes back in <tool_response>:\n\
         <tool_call>\n{\"name\": \"NAME\", \"arguments\": {}}\n</tool_call>\n\
         If no tool is needed, answer in plain text.",
    );
    words
}

/// Returns the list of tools as templates expect it.
pub(crate) fn tool_list(tools: &[Tool], names: &Names) -> Value {
    let function = |tool: &Tool| {
        names.guard_value(&json!({"type": "function", "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": listed(parameters(&tool.input)),
        }}))
    };
    tools.iter().map(function).collect()
}

/// Ensures that a schema lists properties, which templates iterate over unconditionally: those of its
/// reference, or none.
fn listed(mut schema: Value) -> Value {
    if schema.get("properties").is_some_and(Value::is_object) {
        return schema;
    }
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|at| at.strip_prefix('#'));
    let target = target.and_then(|pointer| schema.pointer(pointer)).and_then(Value::as_object);
    let target = target.cloned().unwrap_or_default();
    let Value::Object(fields) = &mut schema else { return schema };
    for (key, value) in target {
        fields.entry(key).or_insert(value);
    }
    if !fields.get("properties").is_some_and(Value::is_object) {
        fields.insert("properties".to_owned(), json!({}));
    }
    schema
}

/// Returns the schema of a tool's arguments; free text becomes a field.
pub(crate) fn parameters(input: &Input) -> Value {
    match input {
        Input::Json(schema) => schema.clone(),
        Input::Text { .. } => json!({
            "type": "object",
            "properties": { FREE: {"type": "string"} },
            "required": [FREE],
            "additionalProperties": false,
        }),
    }
}

/// The field that holds free text in dialects that only have JSON.
pub(crate) const FREE: &str = "input";

struct Turns<'a> {
    list: Vec<Turn>,
    /// By call id, the id that templates see and the name of the tool.
    calls: HashMap<&'a str, (String, &'a str)>,
    can: Abilities,
    names: &'a Names,
}

enum Turn {
    /// From `system` or `developer`.
    Rules {
        role: &'static str,
        text: String,
    },
    User(String),
    Assistant {
        text: String,
        reasoning: String,
        calls: Vec<Value>,
    },
    Output {
        id: String,
        name: String,
        text: String,
    },
}

impl<'a> Turns<'a> {
    fn push(&mut self, message: &'a Message) {
        match message {
            Message::System(text) => self.rules(self.names.guard(text), "system"),
            Message::Developer(text) => {
                let role = if self.can.developer { "developer" } else { "system" };
                self.rules(self.names.guard(text), role);
            }
            Message::User(text) => self.user(self.names.guard(text)),
            // Templates have no other place for commentary.
            Message::Assistant(more) | Message::Commentary(more) => {
                let more = self.names.guard(more);
                let (text, _, _) = self.assistant();
                join(text, &more);
            }
            Message::Reasoning(more) => {
                let more = self.names.guard(more);
                let (_, reasoning, _) = self.assistant();
                join(reasoning, &more);
            }
            Message::Call { id, name, arguments, free } => self.call(id, name, arguments, *free),
            Message::Output { call_id, text } => self.output(call_id, text),
        }
    }

    /// Later instructions become a user message if a template accepts them only at the beginning.
    fn rules(&mut self, more: String, role: &'static str) {
        match self.list.last_mut() {
            Some(Turn::Rules { role: last, text }) if *last == role || !self.can.system_later => {
                join(text, &more);
            }
            None => self.list.push(Turn::Rules { role, text: more }),
            Some(_) if self.can.system_later => self.list.push(Turn::Rules { role, text: more }),
            Some(_) => self.user(more),
        }
    }

    fn user(&mut self, more: String) {
        match self.list.last_mut() {
            Some(Turn::User(text)) => join(text, &more),
            _ => self.list.push(Turn::User(more)),
        }
    }

    fn assistant(&mut self) -> (&mut String, &mut String, &mut Vec<Value>) {
        if !matches!(self.list.last(), Some(Turn::Assistant { .. })) {
            let (text, reasoning, calls) = Default::default();
            self.list.push(Turn::Assistant { text, reasoning, calls });
        }
        match self.list.last_mut() {
            Some(Turn::Assistant { text, reasoning, calls }) => (text, reasoning, calls),
            _ => unreachable!("it was pushed above"),
        }
    }

    fn call(&mut self, id: &'a str, name: &'a str, arguments: &str, free: bool) {
        // Some templates require ids of exactly nine letters and digits.
        let shown = format!("call{:05}", self.calls.len() % 100_000);
        self.calls.insert(id, (shown.clone(), name));
        let arguments = match serde_json::from_str::<Value>(arguments) {
            _ if free => json!({ FREE: arguments }),
            Ok(arguments @ Value::Object(_)) => arguments,
            // Invalid arguments of an earlier model are shown unchanged, if possible.
            _ if self.can.odd_arguments || !self.can.tools => Value::from(arguments),
            _ if arguments.trim().is_empty() => json!({}),
            _ => json!({"arguments": arguments}),
        };
        let arguments = self.names.guard_value(&arguments);
        let name = self.names.guard(name);
        let native = self.can.tools;
        let (text, _, calls) = self.assistant();
        if native {
            let function = json!({"name": name, "arguments": arguments});
            calls.push(json!({"id": shown, "type": "function", "function": function}));
        } else {
            let mut words = String::from("<tool_call>\n");
            write_json(&json!({"name": name, "arguments": arguments}), None, 0, &mut words);
            words.push_str("\n</tool_call>");
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&words);
        }
    }

    fn output(&mut self, call_id: &str, text: &str) {
        let text = self.names.guard(text);
        let (id, name) = match self.calls.get(call_id) {
            Some((id, name)) => (id.clone(), self.names.guard(name)),
            None => ("call99999".to_owned(), String::new()),
        };
        if self.can.tools {
            self.list.push(Turn::Output { id, name, text });
        } else {
            self.user(format!("<tool_response>\n{text}\n</tool_response>"));
        }
    }

    fn finish(mut self, words: &str) -> Vec<Value> {
        if let Some(Turn::Rules { text, .. }) = self.list.first_mut() {
            join(text, words);
            if !self.can.system {
                let Turn::Rules { text, .. } = self.list.remove(0) else {
                    unreachable!("it is one")
                };
                match self.list.first_mut() {
                    Some(Turn::User(first)) => *first = format!("{text}\n\n{first}"),
                    _ => self.list.insert(0, Turn::User(text)),
                }
            }
        }
        if self.can.tools && !self.can.several {
            self.list = one_by_one(self.list);
        }
        if self.can.tools && !self.can.user_after_output {
            self.list = bridged(self.list);
        }
        self.list.into_iter().map(Turn::into_value).collect()
    }
}

/// Puts every call into its own turn, before its output.
fn one_by_one(turns: Vec<Turn>) -> Vec<Turn> {
    let mut list = Vec::new();
    let mut turns = turns.into_iter().peekable();
    while let Some(turn) = turns.next() {
        let Turn::Assistant { mut text, mut reasoning, calls } = turn else {
            list.push(turn);
            continue;
        };
        if calls.len() < 2 {
            list.push(Turn::Assistant { text, reasoning, calls });
            continue;
        }
        let mut outputs = Vec::new();
        while let Some(output) = turns.next_if(|turn| matches!(turn, Turn::Output { .. })) {
            outputs.push(Some(output));
        }
        let mut places = HashMap::new();
        for (place, output) in outputs.iter().enumerate() {
            if let Some(Turn::Output { id, .. }) = output {
                places.entry(id.clone()).or_insert(place);
            }
        }
        for call in calls {
            let place = call["id"].as_str().and_then(|id| places.get(id));
            let output = place.and_then(|place| outputs[*place].take());
            let (text, reasoning) = (mem::take(&mut text), mem::take(&mut reasoning));
            list.push(Turn::Assistant { text, reasoning, calls: vec![call] });
            list.extend(output);
        }
        list.extend(outputs.into_iter().flatten());
    }
    list
}

/// Inserts an assistant message before the user speaks again.
fn bridged(turns: Vec<Turn>) -> Vec<Turn> {
    let mut list: Vec<Turn> = Vec::new();
    for turn in turns {
        let is_open = match list.last() {
            Some(Turn::Output { .. }) => true,
            Some(Turn::Assistant { calls, .. }) => !calls.is_empty(),
            _ => false,
        };
        if is_open && matches!(turn, Turn::User(_)) {
            let (text, reasoning, calls) = (BRIDGE.to_owned(), String::new(), Vec::new());
            list.push(Turn::Assistant { text, reasoning, calls });
        }
        list.push(turn);
    }
    list
}

/// What the assistant says if a template does not accept a user message after an output.
const BRIDGE: &str = "I see.";

impl Turn {
    fn into_value(self) -> Value {
        match self {
            Self::Rules { role, text } => json!({"role": role, "content": text}),
            Self::User(text) => json!({"role": "user", "content": text}),
            Self::Assistant { text, reasoning, calls } => {
                let mut turn = json!({"role": "assistant", "content": text});
                if !reasoning.is_empty() {
                    turn["reasoning_content"] = reasoning.into();
                }
                if !calls.is_empty() {
                    turn["tool_calls"] = calls.into();
                }
                turn
            }
            Self::Output { id, name, text } => {
                json!({"role": "tool", "tool_call_id": id, "name": name, "content": text})
            }
        }
    }
}

/// Joins consecutive texts with a blank line.
fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}
