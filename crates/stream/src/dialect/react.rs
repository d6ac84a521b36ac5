//! ReAct: thoughts, actions and answers as labelled lines.
//!
//! ```text
//! Thought: …
//! Action: NAME
//! Action Input: {…}
//! Observation:
//! Final Answer: …
//! ```
//!
//! A label counts only at the very beginning of a line, and not after the final answer has begun. A thought is
//! reasoning up to the next label. An input is one JSON object or array, which may span lines and begin on the
//! next one, or otherwise the trimmed rest of the line; the end of the stream ends a line too. An action without
//! an input is a call without arguments. Everything after an observation is ignored: the harness writes
//! observations, and a model that does makes them up.

use std::ops::Range;

use crate::dialect::lexical::{self, Scan};
use crate::dialect::{Engine, HELD_BYTES_MAX, NAME_BYTES_MAX};
use crate::event::{ErrorKind, Event, Sink};

#[derive(Clone, Debug)]
pub(crate) struct React {
    state: State,
    /// Whether a label may begin here, or has begun.
    at_line_start: bool,
    /// The matched prefix of a label, as the table writes it.
    label: &'static str,
    /// The index of the open or next call.
    index: u32,
    /// The line of an action, and where its label began.
    name: String,
    name_start: u64,
    /// Blanks that may turn out to be insignificant.
    blanks: String,
    blanks_start: u64,
    /// The preceding blanks were too many to hold.
    blanks_flow: bool,
    scan: lexical::Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    Reasoning,
    /// On the line of an action.
    Name,
    /// After that line.
    AfterName,
    /// Before an input; tells whether its line is over.
    Input(bool),
    Json,
    Plain,
    AfterJson,
    Answer,
    /// After an observation; tells whether anything came.
    Dropped(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Thought,
    Action,
    Input,
    Observation,
    Answer,
}

impl React {
    /// Parses text that may begin with a label.
    pub(crate) fn new() -> Self {
        Self::beginning_with(State::Text)
    }

    /// Parses what follows a prompt that ends with `Thought:`.
    pub(crate) fn in_reasoning() -> Self {
        Self { at_line_start: false, ..Self::beginning_with(State::Reasoning) }
    }

    fn beginning_with(state: State) -> Self {
        Self {
            state,
            at_line_start: true,
            label: "",
            index: 0,
            name: String::new(),
            name_start: 0,
            blanks: String::new(),
            blanks_start: 0,
            blanks_flow: false,
            scan: lexical::Value::default(),
        }
    }

    /// Tells whether a label counts at the beginning of a line.
    fn reads_labels(&self) -> bool {
        match self.state {
            State::Text | State::Reasoning | State::AfterName | State::Input(_) => true,
            State::Json => !self.scan.in_string(),
            State::Name | State::Plain | State::AfterJson | State::Answer | State::Dropped(_) => {
                false
            }
        }
    }

    /// Reads on in a label; returns how many bytes belong to it.
    fn read_label(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        let start = at.saturating_sub(self.label.len() as u64);
        for (used, byte) in text.bytes().enumerate() {
            let had = self.label.len();
            let goes_on = |word: &str| {
                word.as_bytes().get(had) == Some(&byte) && word.starts_with(self.label)
            };
            match LABELS.iter().find(|(word, _)| goes_on(word)) {
                Some(&(word, label)) if word.len() == had + 1 => {
                    (self.label, self.at_line_start) = ("", false);
                    self.begin(label, word, start..start + word.len() as u64, sink);
                    return used + 1;
                }
                Some((word, _)) => self.label = &word[..=had],
                None => {
                    // The matched prefix, from earlier pushes or this one, is content.
                    self.at_line_start = false;
                    let held = std::mem::take(&mut self.label);
                    self.all_content(held, start, sink);
                    return used;
                }
            }
        }
        text.len()
    }

    /// Begins the section of a label.
    fn begin(&mut self, label: Label, word: &'static str, range: Range<u64>, sink: &mut dyn Sink) {
        match self.state {
            State::AfterName if label == Label::Input => return self.state = State::Input(false),
            State::AfterName | State::Input(_) => self.end_call(true, range.start, sink),
            State::Json => {
                self.end_call(false, range.start, sink);
                error(sink, ErrorKind::InvalidJson, "an input is not whole", range.start);
            }
            _ => {}
        }
        self.blanks.clear();
        match label {
            Label::Thought => self.state = State::Reasoning,
            Label::Action => {
                self.name.clear();
                self.name_start = range.start;
                self.state = State::Name;
            }
            Label::Input => {
                error(sink, ErrorKind::MalformedCall, "an input without an action", range.start);
                self.content(word, range.start, sink);
            }
            Label::Observation => self.state = State::Dropped(false),
            Label::Answer => self.state = State::Answer,
        }
    }

    /// Reads content up to where a label may begin; returns its length.
    fn content(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        let range = at..at + text.len() as u64;
        match self.state {
            State::Text | State::Reasoning => {
                let used = self.seek_label(text);
                let (piece, range) = (&text[..used], at..at + used as u64);
                let is_text = self.state == State::Text;
                sink.event(
                    if is_text { Event::Text(piece) } else { Event::Reasoning(piece) },
                    range,
                );
                used
            }
            State::Answer => {
                sink.event(Event::Text(text), range);
                text.len()
            }
            State::Name => self.name(text, at, sink),
            State::AfterName | State::Input(_) | State::AfterJson => self.blank(text, at, sink),
            State::Json => self.json(text, at, sink),
            State::Plain => self.plain(text, at, sink),
            State::Dropped(told) => {
                let blank = text.len() - text.trim_start().len();
                if !told && blank < text.len() {
                    self.state = State::Dropped(true);
                    let detail = "text after an observation";
                    error(sink, ErrorKind::UnexpectedData, detail, at + blank as u64);
                }
                text.len()
            }
        }
    }

    /// Reads content without a line in which a label may begin.
    fn all_content(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let mut used = 0;
        while used < text.len() {
            used += self.content(&text[used..], at + used as u64, sink);
        }
    }

    /// Returns how far text extends until a label may begin, and remembers whether one does there.
    fn seek_label(&mut self, text: &str) -> usize {
        let newlines = memchr::memchr_iter(b'\n', text.as_bytes()).map(|newline| newline + 1);
        let line = newlines.into_iter().find(|line| may_be_label(&text[*line..]));
        self.at_line_start = line.is_some();
        line.unwrap_or(text.len())
    }

    /// Reads the line of an action.
    fn name(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        let newline = memchr::memchr(b'\n', text.as_bytes());
        let line = newline.unwrap_or(text.len());
        self.name.push_str(&text[..line]);
        if self.name.len() > NAME_BYTES_MAX {
            error(sink, ErrorKind::Limit, "the name of an action is too long", self.name_start);
            self.give_back(sink);
            return line;
        }
        if newline.is_none() {
            return line;
        }
        let name = self.name.trim();
        if name.is_empty() {
            error(sink, ErrorKind::MalformedCall, "an action without a name", self.name_start);
            // The newline is text as well, and a label may follow it.
            self.give_back(sink);
            return line;
        }
        let (index, end) = (self.index, at + line as u64);
        let event = Event::ToolStart { index, name, id: None, signature: None };
        sink.event(event, self.name_start..end);
        self.state = State::AfterName;
        self.at_line_start = true;
        line + 1
    }

    /// Shows an action that is not one.
    fn give_back(&mut self, sink: &mut dyn Sink) {
        let label = "Action:";
        let middle = self.name_start + label.len() as u64;
        sink.event(Event::Text(label), self.name_start..middle);
        if !self.name.is_empty() {
            let end = middle + self.name.len() as u64;
            sink.event(Event::Text(&self.name), middle..end);
        }
        self.name.clear();
        self.state = State::Text;
    }

    /// Reads blanks around the parts of a call, and what ends it.
    fn blank(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        let line = memchr::memchr(b'\n', text.as_bytes()).unwrap_or(text.len());
        let blank = line - text[..line].trim_start().len();
        // Blanks between a label and its input are never significant.
        if self.state != State::Input(false) {
            self.hold(&text[..blank], at);
        }
        if self.blanks.len() > HELD_BYTES_MAX {
            self.end_before_text(at + blank as u64, sink);
            return blank;
        }
        match text.as_bytes().get(blank) {
            None => {}
            Some(b'\n') => {
                self.blanks.clear();
                self.at_line_start = true;
                self.state = match self.state {
                    State::Input(_) => State::Input(true),
                    State::AfterJson => State::Text,
                    state => state,
                };
                return blank + 1;
            }
            Some(b'{' | b'[') if matches!(self.state, State::Input(_)) => {
                self.blanks.clear();
                self.scan = lexical::Value::default();
                self.state = State::Json;
            }
            Some(_) if self.state == State::Input(false) => self.state = State::Plain,
            Some(_) => self.end_before_text(at + blank as u64, sink),
        }
        blank
    }

    /// Ends a call because text follows; blanks before that are part of the text.
    fn end_before_text(&mut self, at: u64, sink: &mut dyn Sink) {
        if self.state != State::AfterJson {
            self.end_call(true, at.saturating_sub(self.blanks.len() as u64), sink);
        }
        self.state = State::Text;
        if !self.blanks.is_empty() {
            sink.event(Event::Text(&self.blanks), self.blanks_start..at);
            self.blanks.clear();
        }
    }

    fn hold(&mut self, blanks: &str, at: u64) {
        if self.blanks.is_empty() {
            self.blanks_start = at;
        }
        self.blanks.push_str(blanks);
    }

    fn json(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        let index = self.index;
        let mut used = 0;
        // Outside strings no line of JSON begins like a label, so each line is examined separately.
        while used < text.len() {
            let line = memchr::memchr(b'\n', &text.as_bytes()[used..]);
            let next = line.map_or(text.len(), |feed| used + feed + 1);
            if let Scan::End(end) = self.scan.scan(&text.as_bytes()[used..next], 0) {
                let end = used + end;
                let args = Event::ToolArgs { index, text: &text[..end] };
                sink.event(args, at..at + end as u64);
                self.end_call(true, at + end as u64, sink);
                self.state = State::AfterJson;
                return end;
            }
            used = next;
            if line.is_some() && !self.scan.in_string() && may_be_label(&text[used..]) {
                self.at_line_start = true;
                break;
            }
        }
        sink.event(Event::ToolArgs { index, text: &text[..used] }, at..at + used as u64);
        used
    }

    /// Reads an input that is the rest of its line.
    fn plain(&mut self, text: &str, at: u64, sink: &mut dyn Sink) -> usize {
        let index = self.index;
        let newline = memchr::memchr(b'\n', text.as_bytes());
        let line = &text[..newline.unwrap_or(text.len())];
        let kept = line.trim_end().len();
        if kept > 0 {
            self.release(sink);
            self.blanks_flow = false;
            let args = Event::ToolArgs { index, text: &line[..kept] };
            sink.event(args, at..at + kept as u64);
        }
        self.hold(&line[kept..], at + kept as u64);
        if self.blanks_flow || self.blanks.len() > HELD_BYTES_MAX {
            self.blanks_flow = true;
            self.release(sink);
        }
        let Some(newline) = newline else { return text.len() };
        self.blanks.clear();
        self.blanks_flow = false;
        self.end_call(true, at + newline as u64, sink);
        self.state = State::Text;
        self.at_line_start = true;
        newline + 1
    }

    /// Emits blanks that are part of an input after all.
    fn release(&mut self, sink: &mut dyn Sink) {
        if !self.blanks.is_empty() {
            let end = self.blanks_start + self.blanks.len() as u64;
            let args = Event::ToolArgs { index: self.index, text: &self.blanks };
            sink.event(args, self.blanks_start..end);
            self.blanks.clear();
        }
    }

    fn end_call(&mut self, complete: bool, at: u64, sink: &mut dyn Sink) {
        sink.event(Event::ToolEnd { index: self.index, complete }, at..at);
        self.index += 1;
        self.state = State::Text;
    }
}

impl Engine for React {
    fn push(&mut self, text: &str, at: u64, sink: &mut dyn Sink) {
        let mut used = 0;
        while used < text.len() {
            let (rest, here) = (&text[used..], at + used as u64);
            used += if self.at_line_start && self.reads_labels() {
                self.read_label(rest, here, sink)
            } else {
                self.at_line_start = false;
                self.content(rest, here, sink)
            };
        }
    }

    fn finish(&mut self, at: u64, sink: &mut dyn Sink) {
        let label = std::mem::take(&mut self.label);
        let start = at.saturating_sub(label.len() as u64);
        self.at_line_start = false;
        // Half of an input label is half a call.
        let half = self.state == State::AfterName && label.len() > "Action".len();
        if !half {
            self.all_content(label, start, sink);
        }
        let truncated = match self.state {
            State::Name => {
                self.give_back(sink);
                true
            }
            State::AfterName => {
                self.end_call(!half, at, sink);
                half
            }
            State::Input(line_is_over) => {
                self.end_call(line_is_over, at, sink);
                !line_is_over
            }
            State::Json => {
                self.end_call(false, at, sink);
                true
            }
            State::Plain => {
                self.end_call(true, at, sink);
                false
            }
            State::Text
            | State::Reasoning
            | State::AfterJson
            | State::Answer
            | State::Dropped(_) => false,
        };
        if truncated {
            error(sink, ErrorKind::Truncated, "the stream ended inside an action", at);
        }
    }
}

/// Tells whether a line begins with a label, as far as it has arrived.
fn may_be_label(line: &str) -> bool {
    LABELS.iter().any(|(word, _)| line.starts_with(word) || word.starts_with(line))
}

fn error(sink: &mut dyn Sink, kind: ErrorKind, detail: &str, at: u64) {
    sink.event(Event::Error { kind, detail }, at..at);
}

const LABELS: [(&str, Label); 5] = [
    ("Thought:", Label::Thought),
    ("Action:", Label::Action),
    ("Action Input:", Label::Input),
    ("Observation:", Label::Observation),
    ("Final Answer:", Label::Answer),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::React;
    use crate::dialect::{HELD_BYTES_MAX, NAME_BYTES_MAX, trial};

    #[track_caller]
    fn check(input: &str, want: &[&str]) {
        trial::row(|| Box::new(React::new()), input, want);
    }

    /// Checks what follows an action named `f`.
    #[track_caller]
    fn after(input: &str, want: &[&str]) {
        let want: Vec<_> = ["call 0 f"].into_iter().chain(want.iter().copied()).collect();
        check(&format!("Action: f\n{input}"), &want);
    }

    #[test]
    fn vectors() {
        let file = include_str!("../../tests/vectors/react.json");
        trial::vectors(file, |_| Box::new(React::new()));
    }

    #[test]
    fn labels() {
        check("", &[]);
        check("Hello.\nThought: a", &["text \"Hello.\\n\"", "reasoning \" a\""]);
        check("Thought:a\nThought:b", &["reasoning \"a\\nb\""]);
        check("My Thought: a\n Action: b", &["text \"My Thought: a\\n Action: b\""]);
        check("thought: a\nAction : b", &["text \"thought: a\\nAction : b\""]);
        check("Thought: Action: f", &["reasoning \" Action: f\""]);
        check(
            "Thought: a\nFinal Answer: b\nThought: c\nAction: d\n",
            &["reasoning \" a\\n\"", "text \" b\\nThought: c\\nAction: d\\n\""],
        );
        check("Thought: a\r\nFinal Answer: b", &["reasoning \" a\\r\\n\"", "text \" b\""]);
        check("Actio", &["text \"Actio\""]);
        check("a\nFinal Ans", &["text \"a\\nFinal Ans\""]);
        check("Thought: é\nFinal é", &["reasoning \" é\\nFinal é\""]);
        check("Action Input: {}", &["text \"Action Input: {}\"", "! malformed_call"]);
        check(
            "Thought:\nAction Input: {}",
            &["reasoning \"\\nAction Input: {}\"", "! malformed_call"],
        );
        trial::row(
            || Box::new(React::in_reasoning()),
            " a\nAction: f\n",
            &["reasoning \" a\\n\"", "call 0 f", "end 0 true"],
        );
        trial::row(
            || Box::new(React::in_reasoning()),
            "Action: f\n",
            &["reasoning \"Action: f\\n\""],
        );
    }

    #[test]
    fn names() {
        check("Action:  a b \r\n", &["call 0 a b", "end 0 true"]);
        check("Action: f", &["text \"Action: f\"", "! truncated"]);
        check("Action:", &["text \"Action:\"", "! truncated"]);
        check(
            "Action: \nThought: a",
            &["text \"Action: \\n\"", "reasoning \" a\"", "! malformed_call"],
        );
        let name = "f".repeat(NAME_BYTES_MAX);
        check(&format!("Action:{name}\n"), &[&*format!("call 0 {name}"), "end 0 true"]);
        let input = format!("Action:{name}f\nThought: a");
        let text = trial::text("text", &format!("Action:{name}f\n"));
        check(&input, &[&text, "reasoning \" a\"", "! limit"]);
    }

    #[test]
    fn actions_without_input() {
        let end = "end 0 true";
        after("", &[end]);
        after("\n \n", &[end]);
        after("Thought: a", &[end, "reasoning \" a\""]);
        after("Observation:", &[end]);
        after("Final Answer: a", &[end, "text \" a\""]);
        after("Action: g\n", &[end, "call 1 g", "end 1 true"]);
        after("\n  text\n", &[end, "text \"  text\\n\""]);
        after("Act", &[end, "text \"Act\""]);
        after("Action Inp", &["end 0 false", "! truncated"]);
        after("Action Inpx", &[end, "text \"Action Inpx\""]);
        after("Action Input:", &["end 0 false", "! truncated"]);
        after("Action Input: \n", &[end]);
        after("Action Input:\n\nThought: a", &[end, "reasoning \" a\""]);
        after("Action Input:\n a", &[end, "text \" a\""]);
        after(
            "Action Input:\nAction Input: a",
            &[end, "text \"Action Input: a\"", "! malformed_call"],
        );
    }

    #[test]
    fn json_inputs() {
        let args = |text: &str| format!("args 0 {}", serde_json::json!(text));
        let end = "end 0 true";
        let many = "{\"a\": [\"}\", \"\\\"{\\\\\"],\n \"b\": {}\n}";
        after(&format!("Action Input: {many}"), &[&args(many), end]);
        after(
            &format!("Action Input:\n  {many}  \r\nThought: a"),
            &[&args(many), end, "reasoning \" a\""],
        );
        after(
            "Action Input: [1]\nAction: g\nAction Input: {}\n\na",
            &[&args("[1]"), end, "call 1 g", "args 1 \"{}\"", "end 1 true", "text \"\\na\""],
        );
        after(
            "Action Input: {} and so on\nThought: a",
            &[&args("{}"), end, "text \" and so on\\n\"", "reasoning \" a\""],
        );
        after("Action Input: {\"a\": \"é", &[&args("{\"a\": \"é"), "end 0 false", "! truncated"]);
        after(
            "Action Input: {\"a\": \"\nThought: b\"}",
            &[&args("{\"a\": \"\nThought: b\"}"), end],
        );
        after(
            "Action Input: {\"a\":\nThou",
            &[&args("{\"a\":\nThou"), "end 0 false", "! truncated"],
        );
        after(
            "Action Input: {a\nObservation: b",
            &[&args("{a\n"), "end 0 false", "! invalid_json", "! unexpected_data"],
        );
        after(
            "Action Input: {}\nAction Input: {}",
            &[&args("{}"), end, "text \"Action Input: {}\"", "! malformed_call"],
        );
    }

    #[test]
    fn plain_inputs() {
        let end = "end 0 true";
        after(
            "Action Input:\ta  b \t\r\nThought: c",
            &["args 0 \"a  b\"", end, "reasoning \" c\""],
        );
        after("Action Input: a", &["args 0 \"a\"", end]);
        after("Action Input: Thought: a\nb", &["args 0 \"Thought: a\"", end, "text \"b\""]);
        after("Action Input: \"a\" {}\n", &["args 0 \"\\\"a\\\" {}\"", end]);
        after("Action Input: 5 \n\n", &["args 0 \"5\"", end, "text \"\\n\""]);
    }

    #[test]
    fn nothing_follows_an_observation() {
        check("Observation:", &[]);
        check("a\nObservation: \n\n", &["text \"a\\n\""]);
        check("Observation: made up\nThought: b\nFinal Answer: c", &["! unexpected_data"]);
        after(
            "Action Input: {}\nObservation: made up\nAction: g\n",
            &["args 0 \"{}\"", "end 0 true", "! unexpected_data"],
        );
    }

    #[test]
    fn blanks_are_held_only_so_long() {
        let flood = " ".repeat(HELD_BYTES_MAX + 1);
        for (input, end) in [
            (format!("Action: f\n{flood}\nThought: a"), "text"),
            (format!("Action: f\nAction Input: {{}}{flood}\nThought: a"), "text"),
            (format!("Action: f\nAction Input: a{flood}\nThought: a"), "tool_args"),
            (format!("Action: f\nAction Input: a{flood}b  \nThought: a"), "tool_args"),
        ] {
            let whole = trial::run(&mut React::new(), input.as_bytes(), || usize::MAX);
            let given = whole.iter().find(|event| event["type"] == end).unwrap();
            assert!(given["text"].as_str().unwrap().contains(&flood));
            assert!(!given["text"].as_str().unwrap().ends_with("b  "));
            for size in [1, 1000] {
                assert!(trial::run(&mut React::new(), input.as_bytes(), || size) == whole);
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_chunking_does_not_matter(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "Action",
                    "\n", "\n", "\n", " ", "\r", "{", "}", "[", "]", "\"", "\\", "f", "é", "Final ",
                ]),
                0..40,
            ),
            seed in 1u64..1000,
        ) {
            let text = parts.concat();
            let whole = trial::run(&mut React::new(), text.as_bytes(), || usize::MAX);
            let mut random = trial::Random(seed);
            let cut = trial::run(&mut React::new(), text.as_bytes(), || random.below(9));
            prop_assert_eq!(whole, cut);
        }

        /// Without labels at the beginning of lines everything is text.
        #[test]
        fn text_is_lossless(text in "( ?[ATOFa-z:{}é]{0,4}\n?){0,12}") {
            let got: String = trial::run(&mut React::new(), text.as_bytes(), || 2)
                .iter()
                .filter_map(|event| event["text"].as_str())
                .collect();
            prop_assert_eq!(got, text);
        }
    }
}
