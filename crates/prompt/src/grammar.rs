//! Builds the grammar that constrains a model's answer, in Lark notation for `llguidance`.
//!
//! Text is free except for what would open a call; a call is constrained to one of the tools and to the
//! schema of its arguments; an answer can be constrained to a schema, too. Marks are matched by token id if
//! it is known, since a vocabulary may have them as special or as ordinary tokens, and by their characters
//! otherwise.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use stream::dialect::Tools;

use crate::request::{Choice, Format, Input, Request, Tool};
use crate::schema;
use crate::style::Style;
use crate::turns::parameters;

mod fields;

/// Messages of reasoning and the like before the final one, in families that have messages.
const ASIDES_MAX: u32 = 8;

pub(crate) type Ids = HashMap<String, u32>;

/// How an answer begins with respect to reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thinking {
    Never,
    /// The model may open it with the first mark, and closes it with the second.
    May(&'static str, &'static str),
    /// The prompt has already opened it.
    Open(&'static str),
}

/// The tools and formats of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrammarRequest<'a> {
    pub(crate) tools: &'a [Tool],
    pub(crate) choice: &'a Choice,
    pub(crate) parallel: bool,
    pub(crate) format: &'a Format,
}

impl<'a> GrammarRequest<'a> {
    pub(crate) fn new(request: &'a Request) -> Self {
        Self {
            tools: &request.tools,
            choice: &request.choice,
            parallel: request.parallel_calls,
            format: &request.format,
        }
    }

    /// Returns the tools that may be called.
    pub(crate) fn callable(&self) -> Vec<&'a Tool> {
        match self.choice {
            Choice::None => Vec::new(),
            Choice::Named(name) => self.tools.iter().filter(|tool| tool.name == *name).collect(),
            Choice::Auto | Choice::Required => self.tools.iter().collect(),
        }
    }

    /// Tells whether a call is required.
    fn forced(&self) -> bool {
        matches!(self.choice, Choice::Required | Choice::Named(_))
    }

    /// Returns the schema of the answer, if it has one.
    fn answer(&self) -> Option<Value> {
        match self.format {
            Format::Text => None,
            Format::Json => Some(json!({"type": "object"})),
            Format::Schema(schema) => Some(schema::normalise(schema)),
        }
    }
}

/// Builds the grammar for families that write plain text; `None` if answers are unconstrained.
pub(crate) fn of_text(
    wanted: &GrammarRequest<'_>,
    style: Style,
    thinking: Thinking,
    ids: &Ids,
) -> Option<String> {
    let tools = wanted.callable();
    let answer = wanted.answer();
    if wanted.tools.is_empty() && answer.is_none() {
        return None;
    }
    let mut lark = Lark::new(ids);
    let think = lark.think(thinking);
    let opener = style.opener();
    let without: String =
        style.openers().iter().map(|opener| format!(" & ~{}", containing(opener))).collect();
    let text = match (&answer, style) {
        (Some(schema), _) => lark.json("answer", schema, Blanks::Some),
        (None, Style::Llama3) => {
            let start = "/[^{ \\t\\r\\n](.|\\n)*/";
            lark.line(&format!("TEXT: {start}{without}"));
            "TEXT?".to_owned()
        }
        (None, _) => {
            lark.line(&format!("TEXT: {ANYTHING}{without}"));
            "TEXT?".to_owned()
        }
    };
    if tools.is_empty() {
        lark.line(&format!("start: {think} {text}"));
        return Some(lark.out);
    }
    let calls = lark.calls(style, &tools, wanted.parallel);
    let open = lark.mark(opener);
    let open = if style == Style::Llama3 { format!("({open})?") } else { open };
    let blank = if thinking == Thinking::Never { "" } else { "/\\n{0,2}/" };
    let start = match (wanted.forced(), &answer) {
        (true, _) => format!("{think} {blank} {open} {calls}"),
        (false, Some(_)) => format!("{think} ({blank} {open} {calls} | {text})"),
        (false, None) if style == Style::Llama3 => format!("{think} ({open} {calls} | {text})"),
        (false, None) => match ids.get(opener) {
            Some(id) => format!("{think} TEXT? (<[{id}]> {calls})?"),
            None => {
                let others = style.openers().iter().filter(|other| **other != opener);
                let without: String =
                    others.map(|other| format!(" & ~{}", containing(other))).collect();
                lark.line(&format!("LEAD: {ANYTHING}{without}"));
                lark.line(&format!("lead[suffix={}]: LEAD", literal(opener)));
                format!("{think} (lead {calls} | TEXT?)")
            }
        },
    };
    lark.line(&format!("start: {start}"));
    Some(lark.out)
}

/// Builds the grammar for the Harmony family, whose answers begin after `<|start|>assistant`.
pub(crate) fn of_harmony(wanted: &GrammarRequest<'_>, ids: &Ids) -> String {
    let tools = wanted.callable();
    let mut lark = Lark::new(ids);
    let free = lark.free();
    let token = |name: &str| match ids.get(name) {
        Some(id) => format!("<[{id}]>"),
        None => name.to_owned(),
    };
    let (start, channel, message) =
        (token("<|start|>"), token("<|channel|>"), token("<|message|>"));
    let (end, constrain) = (token("<|end|>"), token("<|constrain|>"));
    lark.line(&format!(
        "thought: {channel} \"analysis\" {message} {free} {end} {start} \"assistant\""
    ));
    let mut said = Vec::new();
    for (at, tool) in tools.iter().enumerate() {
        let to = literal(&format!(" to=functions.{}", tool.name));
        let (kind, body) = match &tool.input {
            Input::Json(schema) => {
                let body =
                    lark.json(&format!("args{at}"), &schema::arguments(schema), Blanks::Some);
                (format!("(\" \"? {constrain} \"json\")?"), body)
            }
            Input::Text { lark: Some(grammar) } => (String::new(), nested(grammar)),
            Input::Text { lark: None } => (String::new(), free.clone()),
        };
        lark.line(&format!(
            "call{at}: ({to} {channel} \"commentary\" | {channel} \"commentary\" {to}) {kind} {message} {body}"
        ));
        said.push(format!("call{at}"));
    }
    let mut asides = "thought".to_owned();
    if !wanted.forced() || tools.is_empty() {
        let body = match wanted.answer() {
            Some(schema) => {
                let answer = lark.json("answer", &schema, Blanks::Some);
                format!("(\" \"? {constrain} \"json\")? {message} {answer}")
            }
            None => format!("{message} {free}"),
        };
        lark.line(&format!("final: {channel} \"final\" {body}"));
        said.push("final".to_owned());
        if !tools.is_empty() && wanted.answer().is_none() {
            lark.line(&format!(
                "preamble: {channel} \"commentary\" {message} {free} {end} {start} \"assistant\""
            ));
            asides.push_str(" | preamble");
        }
    }
    lark.line(&format!("start: ({asides}){{0,{ASIDES_MAX}}} ({})", said.join(" | ")));
    lark.out
}

/// Builds the grammar for one call of one tool, written as nothing but its arguments.
pub(crate) fn of_arguments(schema: &Value) -> String {
    let mut lark = Lark { out: String::new(), ids: &Ids::new() };
    let args = lark.json("args", schema, Blanks::None);
    lark.line(&format!("start: {args}"));
    lark.out
}

/// Whitespace allowed in JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blanks {
    /// Line breaks and indentation.
    Some,
    /// One blank after a comma or a colon, as in Python.
    None,
}

struct Lark<'a> {
    out: String,
    ids: &'a Ids,
}

impl<'a> Lark<'a> {
    fn new(ids: &'a Ids) -> Self {
        Self { out: String::new(), ids }
    }

    fn line(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    /// Matches a mark, by token id or by its characters.
    fn mark(&self, name: &str) -> String {
        match self.ids.get(name) {
            Some(id) => format!("({} | <[{id}]>)", literal(name)),
            None => literal(name),
        }
    }

    /// Matches text without special tokens.
    fn free(&mut self) -> String {
        let mut ids: Vec<_> = self.ids.values().collect();
        if ids.is_empty() {
            self.line(&format!("FREE: {ANYTHING}"));
            return "FREE?".to_owned();
        }
        ids.sort_unstable();
        let ids: Vec<_> = ids.into_iter().map(u32::to_string).collect();
        self.line(&format!("free: <[^{}]>*", ids.join(",")));
        "free".to_owned()
    }

    /// Matches reasoning at the beginning of an answer.
    fn think(&mut self, thinking: Thinking) -> String {
        let (open, close) = match thinking {
            Thinking::Never => return String::new(),
            Thinking::May(open, close) => (Some(open), close),
            Thinking::Open(close) => (None, close),
        };
        match self.ids.get(close) {
            Some(id) => {
                self.line(&format!("THOUGHT: {ANYTHING} & ~{}", containing(close)));
                self.line(&format!("thought: THOUGHT? <[{id}]>"));
            }
            None => self.line(&format!("thought[suffix={}]: {ANYTHING}", literal(close))),
        }
        match open {
            Some(open) => format!("({} thought)?", self.mark(open)),
            None => "thought".to_owned(),
        }
    }

    /// Matches a JSON value that follows a schema.
    fn json(&mut self, rule: &str, schema: &Value, blanks: Blanks) -> String {
        let mut schema = match schema {
            Value::Object(_) => schema.clone(),
            Value::Bool(false) => json!({"enum": []}),
            _ => json!({}),
        };
        schema["x-guidance"] = match blanks {
            Blanks::Some => json!({"whitespace_pattern": "[ \\n\\t]{1,40}", "coerce_one_of": true}),
            Blanks::None => json!({
                "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": ",
                "coerce_one_of": true,
            }),
        };
        self.line(&format!("{rule}: %json {schema}"));
        rule.to_owned()
    }

    /// Matches what follows the mark that opens a call, up to the end of the last call.
    fn calls(&mut self, style: Style, tools: &[&Tool], parallel: bool) -> String {
        let bodies: Vec<String> =
            tools.iter().enumerate().map(|(at, tool)| self.body(style, at, tool)).collect();
        self.line(&format!("call: {}", bodies.join(" | ")));
        let open = self.mark(style.opener());
        let (one, more) = match style {
            Style::Hermes | Style::Qwen3Coder => {
                let close = self.mark("</tool_call>");
                let one = format!("\"\\n\" call \"\\n\" {close}");
                let more = format!("(\"\\n\" {open} {one})*");
                (one, more)
            }
            Style::Llama3 => return "call".to_owned(),
            Style::MistralV11 => ("call".to_owned(), format!("({open} call)*")),
            Style::Mistral | Style::Granite => {
                let more = if parallel { "(\", \" call)*" } else { "" };
                let blank = if style == Style::Mistral { "\" \"? " } else { "" };
                return format!("{blank}\"[\" call {more} \"]\"");
            }
        };
        if parallel { format!("{one} {more}") } else { one }
    }

    fn body(&mut self, style: Style, at: usize, tool: &Tool) -> String {
        let schema = schema::arguments(&parameters(&tool.input));
        let name = Value::from(tool.name.as_str()).to_string();
        let args = format!("args{at}");
        match style {
            Style::Qwen3Coder => self.tagged(at, tool, &schema),
            Style::MistralV11 => {
                let separator = self.mark("[ARGS]");
                let args = self.json(&args, &schema, Blanks::Some);
                format!("{} {separator} {args}", literal(&tool.name))
            }
            Style::Hermes | Style::Mistral | Style::Granite | Style::Llama3 => {
                let key = if style == Style::Llama3 { "parameters" } else { "arguments" };
                let head = literal(&format!("{{\"name\": {name}, \"{key}\": "));
                let args = self.json(&args, &schema, Blanks::Some);
                format!("{head} {args} \"}}\"")
            }
        }
    }

    /// Matches a call with tagged parameters, in the order of the schema.
    fn tagged(&mut self, at: usize, tool: &Tool, schema: &Value) -> String {
        // The reader decides which values are text by the original schema.
        let known = json!([{"name": tool.name, "parameters": parameters(&tool.input)}]);
        let known = Tools::from_json(&known).expect("it has a name");
        let mut bodies = Vec::new();
        for (form, fields) in fields::forms(schema).into_iter().enumerate() {
            let mut body = String::new();
            for (place, field) in fields.into_iter().enumerate() {
                let rule = format!("field{at}x{form}x{place}");
                let open = literal(&format!("<parameter={}>\n", field.key));
                let is_text = known.takes_text(&tool.name, &field.key);
                let value = self.raw_value(&rule, &field.schema, schema, is_text);
                self.line(&format!("{rule}: {open} {value} \"\\n\""));
                let _ = write!(body, " {rule}{}", if field.required { "" } else { "?" });
            }
            bodies.push(body);
        }
        let open = literal(&format!("<function={}>\n", tool.name));
        let one = |body: &String| format!("{open}{body} \"</function>\"");
        bodies.iter().map(one).collect::<Vec<_>>().join(" | ")
    }

    /// Matches a parameter's value up to its close tag: text verbatim, everything else as JSON.
    fn raw_value(&mut self, rule: &str, property: &Value, root: &Value, is_text: bool) -> String {
        let close = "</parameter>";
        if is_text {
            let words = fields::allowed_words(property, root);
            if let Some(words) = words.filter(|words| !words.is_empty()) {
                let words: Vec<_> = words.iter().map(|word| literal(word)).collect();
                return format!("({}) {}", words.join(" | "), literal(&format!("\n{close}")));
            }
            self.line(&format!("{rule}v[suffix={}]: {ANYTHING}", literal(close)));
            return format!("{rule}v");
        }
        let mut schema = property.clone();
        if let Value::Object(fields) = &mut schema {
            // References resolve against the root.
            for key in ["$defs", "definitions"] {
                if let Some(definitions) = root.get(key) {
                    fields.insert(key.to_owned(), definitions.clone());
                }
            }
        }
        let value = self.json(&format!("{rule}v"), &schema, Blanks::Some);
        format!("{value} {}", literal(&format!("\n{close}")))
    }
}

/// Embeds a client's grammar into ours.
fn nested(grammar: &str) -> String {
    format!("%lark {{\n{grammar}\n}}")
}

const ANYTHING: &str = "/(.|\\n)*/";

/// Matches any text that contains `word`.
fn containing(word: &str) -> String {
    let mut out = String::from("/(.|\\n)*");
    for letter in word.chars() {
        if "\\.+*?()|[]{}^$#&-~/".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out + "(.|\\n)*/"
}

fn literal(text: &str) -> String {
    Value::from(text).to_string()
}
