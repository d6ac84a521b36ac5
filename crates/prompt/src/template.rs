//! Chat templates of model files, rendered as in the library they were written for.
//!
//! A template is tried out once when it is loaded: whether it shows tools, calls and outputs, where it
//! accepts a system message, and whether it has a developer role. What it cannot show is expressed in another
//! way ([`crate::turns`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde_json::json;

use crate::date::Date;

/// Steps that a template may take per byte of input, and at least: an endless loop is an error.
const FUEL_PER_BYTE: u64 = 64;
const FUEL_MIN: u64 = 1 << 22;

/// Longest template, in bytes. Those of models have at most a tenth of that, and expressions may be nested as deeply as there are
/// bytes.
pub const TEMPLATE_BYTES_MAX: usize = 256 << 10;

/// A chat template, and what it supports.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    environment: Arc<Environment<'static>>,
    source: Arc<str>,
    begin: String,
    end: String,
    pub(crate) can: Abilities,
}

/// What a template was found to support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Tools, calls and outputs.
    pub(crate) tools: bool,
    /// A system message at the beginning.
    pub(crate) system: bool,
    /// A system message later on.
    pub(crate) system_later: bool,
    /// The developer role.
    pub(crate) developer: bool,
    /// Several calls in one turn.
    pub(crate) several: bool,
    /// Arguments that are not an object.
    pub(crate) odd_arguments: bool,
    /// A user message after an output.
    pub(crate) user_after_output: bool,
    /// Reasoning before the answer, always or on request.
    pub(crate) thinks: bool,
}

/// The input of a template.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) messages: &'a [serde_json::Value],
    pub(crate) tools: Option<&'a serde_json::Value>,
    pub(crate) today: Option<Date>,
    pub(crate) thinking: bool,
    pub(crate) effort: &'a str,
}

impl Template {
    /// Parses a template and tries it out.
    pub(crate) fn new(source: &str, begin: &str, end: &str) -> Result<Self, String> {
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("it has more than {TEMPLATE_BYTES_MAX} bytes"));
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| describe(&error))?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_recursion_limit(200);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_filter("tojson", to_json);
        let source = rewrite(source);
        environment.add_template_owned("chat", source.clone()).map_err(|error| describe(&error))?;
        let mut template = Self {
            environment: Arc::new(environment),
            source: source.into(),
            begin: begin.to_owned(),
            end: end.to_owned(),
            can: Abilities::default(),
        };
        template.can = template.try_out()?;
        Ok(template)
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Renders messages, and the beginning of the answer.
    pub(crate) fn render(&self, input: &Input<'_>) -> Result<String, String> {
        let mut context = BTreeMap::new();
        let messages = Value::from(Serde(input.messages));
        let tools = input.tools.map(|tools| Value::from(Serde(tools)));
        let size = input.messages.iter().chain(input.tools).map(|value| value.to_string().len());
        let size: usize = size.sum();
        context.insert("messages", messages);
        context.insert("tools", tools.unwrap_or(Value::from(())));
        context.insert("add_generation_prompt", Value::from(true));
        context.insert("bos_token", Value::from(&self.begin));
        context.insert("eos_token", Value::from(&self.end));
        context.insert("enable_thinking", Value::from(input.thinking));
        context.insert("thinking", Value::from(input.thinking));
        context.insert("reasoning_effort", Value::from(input.effort));
        // Llama 3 puts tools into the first user message unless this is set.
        context.insert("tools_in_user_message", Value::from(false));
        if let Some(today) = input.today {
            let now = Value::from_function(move |format: &str| today.format(format));
            context.insert("strftime_now", now);
            context.insert("date_string", Value::from(today.format("%d %b %Y")));
        }
        // The limit depends on the input, and is a property of an environment.
        let mut environment = (*self.environment).clone();
        environment.set_fuel(Some(FUEL_MIN + FUEL_PER_BYTE * size as u64));
        let template = environment.get_template("chat").map_err(|error| describe(&error))?;
        template.render(context).map_err(|error| describe(&error))
    }

    /// Determines what the template supports.
    fn try_out(&self) -> Result<Abilities, String> {
        let render = |messages: &[serde_json::Value], tools: Option<&serde_json::Value>| {
            let today = Date::new(2026, 1, 1);
            self.render(&Input { messages, tools, today, thinking: true, effort: "medium" })
        };
        let shows = |messages: &[serde_json::Value], words: &[&str]| {
            render(messages, None).is_ok_and(|text| words.iter().all(|word| text.contains(word)))
        };
        let user = |text: &str| json!({"role": "user", "content": text});
        render(&[user("q1")], None)?;
        let system = json!({"role": "system", "content": "rule1"});
        let answer = json!({"role": "assistant", "content": "answer1"});
        let tool = json!([{"type": "function", "function": {
            "name": "tool1", "description": "does1", "parameters": {
                "type": "object", "properties": {"field1": {"type": "string", "description": "d"}},
                "required": ["field1"]
            }
        }}]);
        let call = json!({"role": "assistant", "content": "", "tool_calls": [{
            "id": "call00001", "type": "function",
            "function": {"name": "tool1", "arguments": {"field1": "value1"}}
        }]});
        let output = json!({"role": "tool", "tool_call_id": "call00001", "name": "tool1", "content": "out1"});
        let offers = render(&[user("q1")], Some(&tool)).is_ok_and(|text| text.contains("field1"));
        let takes = |messages: &[serde_json::Value]| render(messages, Some(&tool)).is_ok();
        let mut two = call.clone();
        let one = two["tool_calls"][0].clone();
        two["tool_calls"] = json!([one, one]);
        let mut odd = call.clone();
        odd["tool_calls"][0]["function"]["arguments"] = "{\"half".into();
        let several = takes(&[user("q1"), two, output.clone(), output.clone()]);
        let odd_arguments = takes(&[user("q1"), odd, output.clone()]);
        let user_after_output = takes(&[user("q1"), call.clone(), output.clone(), user("q2")]);
        let loops = render(&[user("q1"), call, output], Some(&tool))
            .is_ok_and(|text| ["value1", "out1"].iter().all(|word| text.contains(word)));
        let later = [user("q1"), answer, system.clone(), user("q2")];
        Ok(Abilities {
            tools: offers && loops,
            system: shows(&[system, user("q1")], &["rule1", "q1"]),
            system_later: shows(&later, &["rule1", "q1", "answer1", "q2"]),
            developer: self.source.contains("developer"),
            several,
            odd_arguments,
            user_after_output,
            thinks: ["<think>", "[THINK]"].iter().any(|mark| self.source.contains(mark)),
        })
    }
}

/// Removes constructs that Jinja ignores and our engine cannot parse.
fn rewrite(source: &str) -> String {
    // These mark the model's messages, for training.
    source.replace("{% generation %}", "").replace("{% endgeneration %}", "")
}

fn describe(error: &Error) -> String {
    let detail = error.detail().unwrap_or_default();
    match (error.kind(), error.line()) {
        (ErrorKind::OutOfFuel, _) => "it takes more steps than its input can need".to_owned(),
        // An error that the template itself raises about its input.
        (ErrorKind::InvalidOperation, _) if !detail.is_empty() => detail.to_owned(),
        (kind, Some(line)) if detail.is_empty() => format!("{kind} in line {line}"),
        (kind, Some(line)) => format!("{kind} in line {line}: {detail}"),
        (kind, None) => format!("{kind}: {detail}"),
    }
}

/// Serializes JSON as Python does: a blank after commas and colons, minimal escaping.
fn to_json(value: &Value, indent: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let given: Option<Value> = options.get("indent")?;
    for known in ["ensure_ascii", "sort_keys", "separators"] {
        let _: Option<Value> = options.get(known)?;
    }
    let indent = given.or_else(|| indent.first().cloned());
    let indent = match indent {
        Some(value) if value.kind() == ValueKind::Number => usize::try_from(value).ok(),
        _ => None,
    };
    let value = serde_json::to_value(value).map_err(|error| {
        Error::new(ErrorKind::BadSerialization, "a value that is not JSON").with_source(error)
    })?;
    let mut out = String::new();
    write_json(&value, indent, 0, &mut out);
    Ok(Value::from_safe_string(out))
}

/// Serializes a value like Python's `json.dumps`.
pub(crate) fn write_json(
    value: &serde_json::Value,
    indent: Option<usize>,
    level: usize,
    out: &mut String,
) {
    let line = |level: usize, out: &mut String| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * level));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value {
        serde_json::Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { comma } else { "" });
                line(level + 1, out);
                write_json(item, indent, level + 1, out);
            }
            line(level, out);
            out.push(']');
        }
        serde_json::Value::Object(fields) if !fields.is_empty() => {
            out.push('{');
            for (at, (key, item)) in fields.iter().enumerate() {
                out.push_str(if at > 0 { comma } else { "" });
                line(level + 1, out);
                out.push_str(&serde_json::Value::from(key.as_str()).to_string());
                out.push_str(": ");
                write_json(item, indent, level + 1, out);
            }
            line(level, out);
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}
