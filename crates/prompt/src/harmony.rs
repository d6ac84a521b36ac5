//! Renders Harmony, the prompt format of the gpt-oss family.
//!
//! ```text
//! system      identity, date, reasoning effort, channels
//! developer   instructions, how to call tools, the tools
//! user, assistant and tool messages, in order
//! <|start|>assistant
//! ```
//!
//! Reasoning is dropped once its answer was given, but kept while calls are in progress. The tokens match
//! OpenAI's own renderer (`tests/data/harmony`).

use std::collections::HashMap;

use crate::Piece;
use crate::date::Date;
use crate::guard::Names;
use crate::request::{Message, Tool};
use crate::typescript::tools_section;

/// Special tokens that a vocabulary must have.
pub const MARKERS: [&str; 7] = [
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
];

/// Our instructions for calling tools, placed after the user's if tools are available.
pub const CALLING: &str = include_str!("calling.md");

/// Renders a conversation, and the beginning of the answer.
pub(crate) fn render(
    messages: &[Message],
    tools: &[Tool],
    effort: Option<&str>,
    today: Option<Date>,
    names: &Names,
) -> Vec<Piece> {
    let mut out = Writer { pieces: Vec::new(), names };
    out.message("system", None, None, &system(tools, effort, today));
    let is_rule =
        |message: &&Message| matches!(message, Message::System(_) | Message::Developer(_));
    let first: Vec<&Message> = messages.iter().take_while(is_rule).collect();
    let rest = &messages[first.len()..];
    if let Some(text) = developer(&first, tools) {
        out.message("developer", None, None, &text);
    }
    let finals = finals(rest);
    let answered = finals.iter().rposition(|is_final| *is_final);
    let mut called = HashMap::new();
    for (at, message) in rest.iter().enumerate() {
        match message {
            Message::System(text) | Message::Developer(text) => {
                out.message("developer", None, None, &format!("# Instructions\n\n{text}"));
            }
            Message::User(text) => out.message("user", None, None, text),
            Message::Assistant(text) => {
                // Text before a call was not an answer.
                let channel = if finals[at] { "final" } else { "commentary" };
                out.message("assistant", None, Some(channel), text);
            }
            Message::Reasoning(_) if answered.is_some_and(|answer| at < answer) => {}
            Message::Reasoning(text) => out.message("assistant", None, Some("analysis"), text),
            Message::Commentary(text) => out.message("assistant", None, Some("commentary"), text),
            Message::Call { id, name, arguments, free } => {
                called.insert(id.as_str(), name.as_str());
                out.call(name, arguments, *free);
            }
            Message::Output { call_id, text } => {
                let name = called.get(call_id.as_str()).copied().unwrap_or("unknown");
                let author = format!("functions.{name}");
                out.message(&author, Some("assistant"), Some("commentary"), text);
            }
        }
    }
    out.special("<|start|>");
    out.text("assistant");
    out.pieces
}

/// Tells for each message whether it is a final answer; one followed by a call is not.
fn finals(messages: &[Message]) -> Vec<bool> {
    let mut finals = vec![false; messages.len()];
    let mut calls_next = false;
    for (at, message) in messages.iter().enumerate().rev() {
        match message {
            Message::Assistant(_) => finals[at] = !calls_next,
            Message::Reasoning(_) | Message::Commentary(_) => {}
            other => calls_next = matches!(other, Message::Call { .. }),
        }
    }
    finals
}

fn system(tools: &[Tool], effort: Option<&str>, today: Option<Date>) -> String {
    let effort = known_effort(effort);
    let today = today.map(|today| format!("\nCurrent date: {today}")).unwrap_or_default();
    let calls = match tools.is_empty() {
        true => "",
        false => "\nCalls to these tools must go to the commentary channel: 'functions'.",
    };
    format!(
        "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06{today}\n\n\
         Reasoning: {effort}\n\n\
         # Valid channels: analysis, commentary, final. Channel must be included for every message.{calls}"
    )
}

/// Maps the reasoning effort to one of the three words that models know.
pub(crate) fn known_effort(word: Option<&str>) -> &'static str {
    match word {
        Some("none" | "minimal" | "low") => "low",
        Some("high" | "xhigh" | "max") => "high",
        _ => "medium",
    }
}

fn developer(rules: &[&Message], tools: &[Tool]) -> Option<String> {
    let rules = rules.iter().filter_map(|message| match message {
        Message::System(text) | Message::Developer(text) => Some(text.as_str()),
        _ => None,
    });
    let mut rules: Vec<&str> = rules.filter(|text| !text.is_empty()).collect();
    if !tools.is_empty() {
        rules.push(CALLING);
    }
    let mut sections = Vec::new();
    if !rules.is_empty() {
        sections.push(format!("# Instructions\n\n{}", rules.join("\n\n")));
    }
    if !tools.is_empty() {
        sections.push(tools_section(tools));
    }
    (!sections.is_empty()).then(|| sections.join("\n\n"))
}

struct Writer<'a> {
    pieces: Vec<Piece>,
    names: &'a Names,
}

impl Writer<'_> {
    fn message(&mut self, author: &str, to: Option<&str>, channel: Option<&str>, text: &str) {
        self.special("<|start|>");
        self.text(author);
        if let Some(to) = to {
            self.text(&format!(" to={to}"));
        }
        if let Some(channel) = channel {
            self.special("<|channel|>");
            self.text(channel);
        }
        self.special("<|message|>");
        self.text(text);
        self.special("<|end|>");
    }

    fn call(&mut self, name: &str, arguments: &str, free: bool) {
        self.special("<|start|>");
        self.text("assistant");
        self.text(&format!(" to=functions.{name}"));
        self.special("<|channel|>");
        self.text("commentary");
        if !free {
            self.text(" ");
            self.special("<|constrain|>");
            self.text("json");
        }
        self.special("<|message|>");
        self.text(arguments);
        self.special("<|call|>");
    }

    fn special(&mut self, name: &str) {
        self.pieces.push(Piece::Special(name.to_owned()));
    }

    fn text(&mut self, text: &str) {
        self.names.text_pieces(text, &mut self.pieces);
    }
}
