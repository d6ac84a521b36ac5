//! How each format writes a call and an answer, as data from which the long inputs of the benchmarks are
//! built.
//!
//! A template is the text of a call with `$name` and `$args`. `␣` marks where blanks may be inserted and `›`
//! the first byte of the first argument; both are removed, and their positions recorded, when the template is
//! filled.

use std::fmt::Write as _;

/// How one format writes.
pub(crate) struct Renderer {
    pub(crate) format: &'static str,
    /// An answer, with `$text` in it.
    answer: &'static str,
    call: Call,
    /// The delimiters of one level of a nested value.
    nest: (&'static str, &'static str),
}

enum Call {
    Template(&'static str, Args),
    /// A provider's frames: the name, the arguments, and how many bytes of them go into a frame.
    Wire(fn(&str, &str, usize) -> String),
}

/// How arguments are written.
#[derive(Clone, Copy)]
enum Args {
    /// As a JSON object.
    Json,
    /// One after the other, with a template of `$key` and `$value` and a separator.
    Each(&'static str, &'static str, Quote),
    /// Without keys: only the values.
    Plain,
}

#[derive(Clone, Copy)]
enum Quote {
    None,
    /// As a JSON string, which is also a valid Python string.
    Json,
}

#[derive(Clone)]
pub(crate) enum Value {
    Text(String),
    /// A JSON value other than a string.
    Json(String),
}

/// A text, and the positions that the template marks.
pub(crate) struct Rendered {
    pub(crate) text: String,
    /// Where blanks may be inserted.
    pub(crate) blanks: Vec<usize>,
    /// Where the first argument begins.
    pub(crate) first: Option<usize>,
}

impl Rendered {
    fn new(marked: &str) -> Self {
        let mut rendered = Self { text: String::new(), blanks: Vec::new(), first: None };
        for piece in marked.split_inclusive([BLANK, FIRST]) {
            let mark = piece.chars().next_back().filter(|&c| c == BLANK || c == FIRST);
            rendered.text.push_str(piece.strip_suffix([BLANK, FIRST]).unwrap_or(piece));
            let at = rendered.text.len();
            match mark {
                Some(BLANK) => rendered.blanks.push(at),
                Some(_) => rendered.first = rendered.first.or(Some(at)),
                None => {}
            }
        }
        rendered
    }
}

impl Renderer {
    /// Returns the renderer of a format, if there is one.
    pub(crate) fn for_format(format: &str) -> Option<&'static Self> {
        RENDERERS.iter().find(|renderer| renderer.format == format)
    }

    /// Tells whether this is a provider's format, whose smallest unit is a frame.
    pub(crate) fn is_wire(&self) -> bool {
        matches!(self.call, Call::Wire(_))
    }

    /// Tells whether the format has calls at all.
    pub(crate) fn has_calls(&self) -> bool {
        !matches!(self.call, Call::Template(_, Args::Plain))
    }

    pub(crate) fn answer(&self, text: &str) -> String {
        if !self.is_wire() {
            return self.answer.replace("$text", text);
        }
        let mut frames = String::new();
        for piece in pieces(text, FRAME_BYTES) {
            frames += &self.answer.replace("$text", &escaped(piece));
        }
        frames
    }

    pub(crate) fn call(&self, name: &str, args: &[(&str, Value)]) -> Rendered {
        self.call_by(name, args, FRAME_BYTES)
    }

    /// Renders a call; a provider's frames get this many bytes of the arguments each.
    pub(crate) fn call_by(&self, name: &str, args: &[(&str, Value)], frame: usize) -> Rendered {
        let (template, style) = match self.call {
            Call::Template(template, style) => (template, style),
            Call::Wire(frames) => {
                return Rendered::new(&frames(name, &Rendered::new(&json(args)).text, frame));
            }
        };
        let args = match style {
            Args::Json => json(args),
            Args::Plain => args.iter().map(|(_, value)| value.raw()).collect(),
            Args::Each(template, between, quote) => {
                let each = args.iter().map(|(key, value)| {
                    let value = match (quote, value) {
                        (Quote::Json, Value::Text(text)) => format!("\"{}\"", escaped(text)),
                        _ => value.raw().to_owned(),
                    };
                    template.replace("$key", key).replace("$value", &value)
                });
                each.collect::<Vec<_>>().join(between)
            }
        };
        Rendered::new(&template.replace("$name", name).replace("$args", &args))
    }

    /// Renders a value of this nesting depth in the format's syntax.
    pub(crate) fn nested(&self, depth: usize) -> Value {
        let (open, close) = self.nest;
        Value::Json(format!("{}1{}", open.repeat(depth), close.repeat(depth)))
    }

    /// Returns how many bytes one level of nesting takes.
    pub(crate) fn nest_bytes(&self) -> usize {
        self.nest.0.len() + self.nest.1.len()
    }
}

impl Value {
    fn raw(&self) -> &str {
        match self {
            Self::Text(text) | Self::Json(text) => text,
        }
    }
}

/// Renders arguments as a JSON object, with marks.
fn json(args: &[(&str, Value)]) -> String {
    let mut text = format!("{FIRST}{{");
    for (at, (key, value)) in args.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let value = match value {
            Value::Text(text) => format!("\"{}\"", escaped(text)),
            Value::Json(text) => text.clone(),
        };
        // One mark of each kind is enough.
        let blank = if at == 0 { "␣" } else { "" };
        let _ = write!(text, "{comma}{blank}\"{}\"{blank}: {blank}{value}", escaped(key));
    }
    text + "␣}"
}

/// Escapes a text for the inside of a JSON string.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 32);
    for c in text.chars() {
        match c {
            '"' => escaped += "\\\"",
            '\\' => escaped += "\\\\",
            '\n' => escaped += "\\n",
            '\t' => escaped += "\\t",
            c if c < ' ' => _ = write!(escaped, "\\u{:04x}", u32::from(c)),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Splits a text into pieces of at least this many bytes.
fn pieces(text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = bytes.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, more) = rest.split_at(end);
        rest = more;
        Some(piece).filter(|piece| !piece.is_empty())
    })
}

/// Renders each piece of the arguments with a template, the first one marked.
fn deltas(template: &str, args: &str, frame: usize) -> String {
    let mut frames = String::new();
    for (at, piece) in pieces(args, frame).enumerate() {
        let mark = if at == 0 { "›" } else { "" };
        frames += &template.replace("$piece", &format!("{mark}{}", escaped(piece)));
    }
    frames
}

fn chat(name: &str, args: &str, frame: usize) -> String {
    let start = r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"$name","arguments":""}}]}}]}"#;
    let delta = "data:␣ {\"choices\":␣[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"$piece\"}}]}}]}␣\n\n";
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    format!("{}\n\n{}{end}", start.replace("$name", name), deltas(delta, args, frame))
}

fn chat_legacy(name: &str, args: &str, frame: usize) -> String {
    let start = r#"data: {"choices":[{"index":0,"delta":{"function_call":{"name":"$name","arguments":""}}}]}"#;
    let delta = "data: {\"choices\":␣[{\"index\":0,\"delta\":{\"function_call\":{\"arguments\":\"$piece\"}}}]}\n\n";
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"function_call\"}]}\n\ndata: [DONE]\n\n";
    format!("{}\n\n{}{end}", start.replace("$name", name), deltas(delta, args, frame))
}

fn responses(name: &str, args: &str, frame: usize) -> String {
    let start = r#"data: {"type":"response.output_item.added","output_index":0,"item":{"id":"f","type":"function_call","call_id":"c1","name":"$name","arguments":""}}"#;
    let delta = "data: {\"type\":␣\"response.function_call_arguments.delta\",\"item_id\":\"f\",\"output_index\":0,\"delta\":\"$piece\"}\n\n";
    let end = "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"id\":\"f\",\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"$name\",\"arguments\":\"$all\"}}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\"}}\n\n";
    let end = end.replace("$name", name).replace("$all", &escaped(args));
    format!("{}\n\n{}{end}", start.replace("$name", name), deltas(delta, args, frame))
}

fn anthropic(name: &str, args: &str, frame: usize) -> String {
    let start = r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"$name","input":{}}}"#;
    let delta = "data: {\"type\":␣\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"$piece\"}}\n\n";
    let end = "data: {\"type\":\"content_block_stop\",\"index\":0}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    format!("{}\n\n{}{end}", start.replace("$name", name), deltas(delta, args, frame))
}

/// Gemini sends arguments as an object, whole in one frame.
fn gemini(name: &str, args: &str, _frame: usize) -> String {
    let frame = "data: {\"candidates\":␣[{\"content\":{\"role\":\"model\",\"parts\":[{\"functionCall\":{\"name\":\"$name\",\"args\":›$args}}]},\"index\":0,\"finishReason\":\"STOP\"}]}\n\n";
    frame.replace("$name", name).replace("$args", args)
}

const BLANK: char = '␣';
const FIRST: char = '›';

/// How much text a provider puts into a frame.
const FRAME_BYTES: usize = 16;

const fn json_call(format: &'static str, template: &'static str) -> Renderer {
    Renderer { format, answer: "$text", call: Call::Template(template, Args::Json), nest: JSON }
}

const fn tags(format: &'static str, template: &'static str, param: &'static str) -> Renderer {
    let args = Args::Each(param, "␣\n", Quote::None);
    Renderer { format, answer: "$text", call: Call::Template(template, args), nest: JSON }
}

const fn python(format: &'static str, template: &'static str) -> Renderer {
    let args = Args::Each("$key␣=␣›$value", "␣,␣ ", Quote::Json);
    Renderer { format, answer: "$text", call: Call::Template(template, args), nest: JSON }
}

const fn wire(
    format: &'static str,
    answer: &'static str,
    frames: fn(&str, &str, usize) -> String,
) -> Renderer {
    Renderer { format, answer, call: Call::Wire(frames), nest: JSON }
}

const JSON: (&str, &str) = ("[", "]");

const CHAT_ANSWER: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"$text\"}}]}\n\n";

const QWEN_PARAM: &str = "<parameter=$key>\n›$value\n</parameter>";
const INVOKE_PARAM: &str = "<parameter␣ name=\"$key\">›$value</parameter>";
const ARG_PARAM: &str = "<arg_key>$key</arg_key>␣\n<arg_value>›$value</arg_value>";
const DSML_PARAM: &str = "<｜DSML｜parameter name=\"$key\"␣>›$value</｜DSML｜parameter>";
const DEEPSEEK_V31: &str = "<｜tool▁calls▁begin｜>␣<｜tool▁call▁begin｜>$name<｜tool▁sep｜>␣$args␣<｜tool▁call▁end｜>␣<｜tool▁calls▁end｜>";

/// How the formats write, in the order of the format table.
pub(crate) static RENDERERS: &[Renderer] = &[
    json_call("auto", "<tool_call>␣\n{\"name\": \"$name\",␣ \"arguments\": $args␣}\n</tool_call>"),
    wire("openai_chat", CHAT_ANSWER, chat),
    wire("openai_chat_legacy", CHAT_ANSWER, chat_legacy),
    wire(
        "openai_responses",
        "data: {\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"output_index\":0,\"content_index\":0,\"delta\":\"$text\"}\n\n",
        responses,
    ),
    wire(
        "anthropic",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"$text\"}}\n\n",
        anthropic,
    ),
    wire(
        "gemini",
        "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"$text\"}]},\"index\":0}]}\n\n",
        gemini,
    ),
    Renderer {
        answer: "<|channel|>final<|message|>$text<|return|>",
        ..json_call(
            "harmony",
            "<|channel|>commentary␣ to=functions.$name␣ <|constrain|>json<|message|>␣$args␣<|call|>",
        )
    },
    json_call(
        "hermes",
        "<tool_call>␣\n{␣\"name\"␣:␣ \"$name\"␣,␣ \"arguments\"␣:␣ $args␣}␣\n</tool_call>␣",
    ),
    tags(
        "qwen3_coder",
        "<tool_call>␣\n<function=$name>␣\n$args␣\n</function>␣\n</tool_call>␣",
        QWEN_PARAM,
    ),
    json_call("llama3_json", "{␣\"name\"␣:␣ \"$name\",␣ \"parameters\"␣: $args␣}␣"),
    json_call("mistral", "[TOOL_CALLS]␣ [␣{␣\"name\": \"$name\",␣ \"arguments\": $args␣}␣]␣"),
    json_call("mistral_v11", "[TOOL_CALLS]␣$name␣[ARGS]␣$args␣"),
    json_call(
        "deepseek_v3",
        "<｜tool▁calls▁begin｜>␣<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name␣\n␣```json␣\n$args␣\n```␣<｜tool▁call▁end｜>␣<｜tool▁calls▁end｜>",
    ),
    json_call("deepseek_v31", DEEPSEEK_V31),
    tags(
        "deepseek_v32",
        "<｜DSML｜function_calls>␣\n<｜DSML｜invoke␣ name=\"$name\"␣>␣\n$args␣\n</｜DSML｜invoke>␣\n</｜DSML｜function_calls>",
        DSML_PARAM,
    ),
    tags(
        "deepseek_v4",
        "<｜DSML｜tool_calls>␣\n<｜DSML｜invoke␣ name=\"$name\"␣>␣\n$args␣\n</｜DSML｜invoke>␣\n</｜DSML｜tool_calls>",
        DSML_PARAM,
    ),
    json_call(
        "kimi_k2",
        "<|tool_calls_section_begin|>␣<|tool_call_begin|>␣functions.$name:0␣<|tool_call_argument_begin|>␣$args␣<|tool_call_end|>␣<|tool_calls_section_end|>",
    ),
    tags(
        "kimi_k3",
        "<|open|>tools<|sep|>␣<|open|>call␣ tool=\"$name\"␣ index=\"1\"<|sep|>␣$args␣<|close|>call<|sep|>␣<|close|>tools<|sep|>",
        "<|open|>argument␣ key=\"$key\" type=\"string\"<|sep|>›$value<|close|>argument<|sep|>",
    ),
    tags("glm45", "<tool_call>␣$name␣\n␣$args␣\n</tool_call>␣", ARG_PARAM),
    tags("glm47", "<tool_call>␣$name␣$args␣</tool_call>␣", ARG_PARAM),
    tags(
        "minimax_m2",
        "<minimax:tool_call>␣\n<invoke␣ name=\"$name\"␣>␣\n$args␣\n</invoke>␣\n</minimax:tool_call>",
        INVOKE_PARAM,
    ),
    Renderer {
        nest: ("]<]minimax[>[<a>", "]<]minimax[>[</a>"),
        ..tags(
            "minimax_m3",
            "]<]minimax[>[<tool_call>␣\n]<]minimax[>[<invoke␣ name=\"$name\"␣>␣$args␣]<]minimax[>[</invoke>␣\n]<]minimax[>[</tool_call>",
            "]<]minimax[>[<$key>›$value]<]minimax[>[</$key>",
        )
    },
    json_call("granite", "<|tool_call|>␣[␣{\"name\": \"$name\",␣ \"arguments\": $args␣}␣]␣"),
    json_call(
        "granite_20b_fc",
        "<function_call>␣ {␣\"name\": \"$name\",␣ \"arguments\": $args␣}␣<|endoftext|>",
    ),
    json_call(
        "granite4",
        "<tool_call>␣\n{\"name\": \"$name\",␣ \"arguments\": $args␣}\n</tool_call>",
    ),
    json_call(
        "jamba",
        "<tool_calls>␣[␣{\"name\": \"$name\",␣ \"arguments\": $args␣}␣]␣</tool_calls>",
    ),
    json_call(
        "command_a",
        "<|START_ACTION|>␣[␣\n    {\"tool_call_id\": \"0\",␣ \"tool_name\": \"$name\",␣ \"parameters\": $args␣}␣\n]␣<|END_ACTION|>",
    ),
    json_call("phi4_mini", "functools[{␣\"name\": \"$name\",␣ \"arguments\": $args␣}␣]␣"),
    json_call("xlam", "[␣{␣\"name\": \"$name\",␣ \"arguments\": $args␣}␣]␣"),
    json_call(
        "internlm2",
        "<|action_start|><|plugin|>␣\n{\"name\": \"$name\",␣ \"parameters\": $args␣}␣<|action_end|>",
    ),
    tags(
        "seed_oss",
        "<seed:tool_call>␣\n<function=$name>␣\n$args␣\n</function>␣\n</seed:tool_call>",
        QWEN_PARAM,
    ),
    tags(
        "step3",
        "<｜tool_calls_begin｜>␣\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke␣ name=\"$name\"␣>␣$args␣</steptml:invoke>␣<｜tool_call_end｜>␣\n<｜tool_calls_end｜>",
        "<steptml:parameter␣ name=\"$key\">›$value</steptml:parameter>",
    ),
    json_call(
        "hunyuan_a13b",
        "<tool_calls>␣[␣{\"name\": \"$name\",␣ \"arguments\": $args␣}␣]␣</tool_calls>",
    ),
    tags(
        "hy_v3",
        "<tool_calls>␣\n<tool_call>$name<tool_sep>␣\n$args␣\n</tool_call>␣\n</tool_calls>",
        ARG_PARAM,
    ),
    tags(
        "claude_xml",
        "<function_calls>␣\n<invoke␣ name=\"$name\"␣>␣\n$args␣\n</invoke>␣\n</function_calls>",
        INVOKE_PARAM,
    ),
    Renderer {
        answer: " to=user<|message|>$text<|eom|>",
        ..tags(
            "muse",
            "<|start|>assistant␣ to=$name␣<|message|>␣<atem:function_calls>␣\n<atem:invoke␣ name=\"$name\">␣\n$args␣\n</atem:invoke>␣\n</atem:function_calls>␣<|eom|>",
            "<atem:parameter␣ name=\"$key\">›$value</atem:parameter>",
        )
    },
    tags(
        "dots",
        "<dots_function_call>␣\n<invoke␣ name=\"$name\">␣\n$args␣\n</invoke>␣\n</dots_function_call>",
        INVOKE_PARAM,
    ),
    tags(
        "minicpm5",
        "<function␣ name=\"$name\"␣>␣$args␣</function>␣",
        "<param␣ name=\"$key\">›$value</param>",
    ),
    json_call(
        "ernie45",
        "<tool_call>␣\n{\"name\": \"$name\",␣ \"arguments\": $args␣}\n</tool_call>␣",
    ),
    json_call(
        "longcat",
        "<longcat_tool_call>␣\n{\"name\": \"$name\",␣ \"arguments\": $args␣}\n</longcat_tool_call>",
    ),
    json_call("apertus", "<|tools_prefix|>␣[␣{␣\"$name\"␣:␣ $args␣}␣]␣<|tools_suffix|>"),
    json_call(
        "inkling",
        "<|message_model|>$name␣<|content_invoke_tool_json|>␣{\"name\":\"$name\",␣\"args\":$args␣}␣<|end_message|>",
    ),
    json_call("gigachat3", "<|function_call|>␣{\"name\": \"$name\",␣ \"arguments\": $args␣}␣"),
    json_call("json_fence", "```json␣\n{␣\"name\": \"$name\",␣ \"arguments\": $args␣}␣\n␣```\n"),
    json_call(
        "react",
        "Thought: it is time.\nAction:␣ $name␣\nAction Input:␣ $args␣\nObservation:",
    ),
    Renderer {
        format: "plan",
        answer: "<proposed_plan>\n$text\n</proposed_plan>\n",
        call: Call::Template("␣<proposed_plan>␣\n›$args\n␣</proposed_plan>␣\n", Args::Plain),
        nest: JSON,
    },
    json_call("legacy", "␣{␣\"name\": \"$name\",␣ \"parameters\": $args␣}␣"),
    json_call("legacy_json", "␣{␣\"name\": \"$name\",␣ \"parameters\": $args␣}␣"),
    json_call("toolcall_v2", "{␣\"ToolCall_V2\"␣:␣{␣\"name\":\"$name\",␣\"arguments\":␣$args␣}␣}␣"),
    python("pythonic", "[␣$name␣(␣$args␣)␣]␣"),
    python("olmo3", "<function_calls>␣$name(␣$args␣)␣</function_calls>"),
    python("lfm2", "<|tool_call_start|>␣[␣$name(␣$args␣)␣]␣<|tool_call_end|>"),
    python("gemma3", "```tool_code␣\n$name(␣$args␣)␣\n```\n"),
    Renderer {
        format: "gemma4",
        answer: "$text",
        call: Call::Template(
            "<|tool_call>␣call:$name␣{␣$args␣}␣<tool_call|>",
            Args::Each("$key␣:␣<|\"|>›$value<|\"|>", "␣,␣", Quote::None),
        ),
        nest: ("{a:", "}"),
    },
    Renderer {
        format: "functiongemma",
        answer: "$text",
        call: Call::Template(
            "<start_function_call>␣call:$name␣{␣$args␣}␣<end_function_call>",
            Args::Each("$key␣:␣<escape>›$value<escape>", "␣,␣", Quote::None),
        ),
        nest: ("{a:", "}"),
    },
];

#[cfg(test)]
mod tests {
    use stream::canonical::{Collector, Kind};
    use stream::dialect::{Dialect, Format, Options, Parser, Tools};

    use super::{RENDERERS, Renderer, Value};

    /// Parses a call back: its name and its arguments.
    fn read(format: &'static Format, text: &str) -> Option<(String, String)> {
        let dialect = Dialect::new(format, &Options::default(), &Tools::default());
        let (mut parser, mut events) = (Parser::new(&dialect), Collector::default());
        parser.push_str(text, &mut events);
        parser.finish(&mut events);
        let mut call = (String::new(), String::new());
        let mut complete = false;
        for event in events.into_events(false) {
            match event.kind {
                Kind::ToolStart { name, .. } => call.0 = name,
                Kind::ToolArgs { text, .. } => call.1 = text,
                Kind::ToolEnd { complete: whole, .. } => complete = whole,
                _ => {}
            }
        }
        complete.then_some(call)
    }

    #[test]
    fn every_format_reads_what_is_rendered_for_it() {
        for format in Format::all() {
            let renderer = Renderer::for_format(format.name())
                .unwrap_or_else(|| panic!("{} has no renderer", format.name()));
            if !renderer.has_calls() {
                continue;
            }
            let text = || Value::Text("say \"a\\b\"\nand <c>".to_owned());
            let rendered = renderer.call("write", &[("path", text()), ("content", text())]);
            let got = read(format, &rendered.text);
            let (name, args) =
                got.unwrap_or_else(|| panic!("{}: {}", format.name(), rendered.text));
            let want = serde_json::json!({
                "path": "say \"a\\b\"\nand <c>",
                "content": "say \"a\\b\"\nand <c>",
            });
            let args: serde_json::Value = serde_json::from_str(&args).unwrap();
            assert_eq!((name.as_str(), &args), ("write", &want), "{}", format.name());
            assert!(rendered.first.is_some(), "{}: where does the argument begin?", format.name());
            assert!(!rendered.blanks.is_empty(), "{}: where may blanks come?", format.name());
        }
    }

    #[test]
    fn no_format_is_rendered_twice() {
        for (at, one) in RENDERERS.iter().enumerate() {
            assert!(
                RENDERERS[..at].iter().all(|other| other.format != one.format),
                "{}",
                one.format
            );
        }
    }
}
