//! Tools that the daemon runs itself: `echo`, `upper`, and commands that its user declares.
//!
//! Each has one timeout, which includes the wait for a free slot.
//!
//! The only way to run one is [`Tools::run`], which checks in this order: whether tools are on, whether this
//! one is on the user's list and offered in the request, whether the arguments are JSON, and whether they
//! match its schema. Any error becomes the output of the call, phrased so that the model can act on it.
//! Nothing is on unless the user of the daemon enables it.

mod command;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use jsonschema::Validator;
use prompt::request::{Input, Tool};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

pub use command::Place;

/// Default timeout of a tool.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_millis(2000);
/// Default limit for a tool's output.
pub const OUTPUT_BYTES_DEFAULT: usize = 8192;
/// Default limit for the memory of a tool's processes.
pub const MEMORY_BYTES_DEFAULT: u64 = 1024 * 1024 * 1024;
/// Longest arguments that are parsed.
pub const ARGUMENTS_BYTES_MAX: usize = 64 * 1024;
/// How many tools may run concurrently, for all requests together.
pub const RUNS_MAX: usize = 4;
/// How many tools can be declared.
pub const DECLARED_MAX: usize = 64;
/// How many schema violations are listed.
const MISFITS_MAX: usize = 3;
/// Longest description of a violation.
const MISFIT_BYTES_MAX: usize = 256;

/// The user's settings for tools.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether there are any.
    pub on: bool,
    /// The names of the only tools that may be run.
    pub allowed: Vec<String>,
    /// The timeout, including the wait for a slot.
    pub timeout: Duration,
    /// A delay before each run, so that tests can have a slow tool.
    pub test_delay: Duration,
    pub output_bytes_max: usize,
    pub declared: Vec<Declared>,
    /// Where commands run.
    pub place: Place,
}

impl Default for Settings {
    /// No tools.
    fn default() -> Self {
        Self {
            on: false,
            allowed: Vec::new(),
            timeout: TIMEOUT_DEFAULT,
            test_delay: Duration::ZERO,
            output_bytes_max: OUTPUT_BYTES_DEFAULT,
            declared: Vec::new(),
            place: Place::nowhere("no sandbox was set up"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    pub name: String,
    /// The description shown to the model.
    pub description: String,
    /// Program and arguments; it reads the call's arguments as JSON from stdin.
    pub command: Vec<String>,
    /// The JSON Schema of the arguments.
    pub parameters: Value,
}

/// Why the settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsError {
    #[error("there are two tools called `{name}`; rename one of them")]
    Twice { name: String },
    #[error("`{name}` cannot be the name of a tool; use 1 to 64 letters, digits, `_` and `-`")]
    Name { name: String },
    #[error("the tool `{name}` has no command; write `command = [\"program\", \"argument\"]`")]
    NoCommand { name: String },
    #[error("the parameters of the tool `{name}` are not a usable JSON Schema: {problem}")]
    Schema { name: String, problem: String },
    #[error("HEDDLE_ALLOWED_TOOLS lists `{name}`, which does not exist; available tools: {known}")]
    Unknown { name: String, known: String },
    #[error("{count} tools are declared; at most {DECLARED_MAX} can be")]
    TooMany { count: usize },
}

#[derive(Debug)]
pub struct Tools {
    settings: Settings,
    own: Vec<Own>,
    runs: Semaphore,
}

struct Own {
    tool: Tool,
    fits: Validator,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    Echo,
    Upper,
    Command(Vec<String>),
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub status: Status,
    /// What the model reads.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Completed,
    Off,
    /// This tool is not on the list.
    NotAllowed,
    /// The arguments are not JSON, or do not match the schema.
    BadArguments,
    TimedOut,
    /// It failed, or could not be started.
    Failed,
}

impl Status {
    /// Returns the name for logs and counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Off => "off",
            Self::NotAllowed => "not_allowed",
            Self::BadArguments => "bad_arguments",
            Self::TimedOut => "timeout",
            Self::Failed => "failed",
        }
    }
}

impl Output {
    fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

impl Tools {
    /// Builds the tools, and checks the declared ones.
    pub fn new(settings: Settings) -> Result<Self, ToolsError> {
        if settings.declared.len() > DECLARED_MAX {
            return Err(ToolsError::TooMany { count: settings.declared.len() });
        }
        let message = json!({
            "type": "object",
            "properties": { MESSAGE: { "type": "string" } },
            "required": [MESSAGE],
            "additionalProperties": false
        });
        let mut own = vec![
            Own::new("echo", "Returns the message.", message.clone(), Act::Echo)?,
            Own::new("upper", "Returns the message in capital letters.", message, Act::Upper)?,
        ];
        for Declared { name, description, command, parameters } in &settings.declared {
            if command.first().is_none_or(String::is_empty) {
                return Err(ToolsError::NoCommand { name: name.clone() });
            }
            let act = Act::Command(command.clone());
            own.push(Own::new(name, description, parameters.clone(), act)?);
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = own.iter().find(|own| !names.insert(own.tool.name.as_str())) {
            return Err(ToolsError::Twice { name: twice.tool.name.clone() });
        }
        if let Some(name) = settings.allowed.iter().find(|name| !names.contains(name.as_str())) {
            let known = names.into_iter().collect::<Vec<_>>().join(", ");
            return Err(ToolsError::Unknown { name: name.clone(), known });
        }
        Ok(Self { settings, own, runs: Semaphore::new(RUNS_MAX) })
    }

    /// Returns the tools that may be run, as they are offered to a model.
    pub fn offered(&self) -> impl Iterator<Item = &Tool> {
        self.own.iter().map(|own| &own.tool).filter(|tool| self.allows(&tool.name))
    }

    /// Tells whether a tool may be run.
    pub fn allows(&self, name: &str) -> bool {
        self.settings.on && self.settings.allowed.iter().any(|allowed| allowed == name)
    }

    /// Returns the name for logs: that of an existing tool, since a model can make up any other.
    pub fn known_name(&self, name: &str) -> &str {
        self.own.iter().map(|own| own.tool.name.as_str()).find(|own| *own == name).unwrap_or("?")
    }

    /// Runs a call, if it may and can be run; `offered` are the daemon's tools that its request allows.
    pub async fn run(&self, offered: &BTreeSet<String>, name: &str, arguments: &str) -> Output {
        let max = self.settings.output_bytes_max;
        let (own, value) = match self.check(offered, name, arguments) {
            Ok(checked) => checked,
            // The text of a refusal contains the model's own words, and is limited like any output.
            Err(Output { status, text }) => return Output::new(status, cut(&text, max)),
        };
        let deadline = Instant::now() + self.settings.timeout;
        let after = self.settings.timeout.as_millis();
        let late = |what: String| Output::new(Status::TimedOut, what);
        // A process needs a slot, which is released when this function returns or is dropped.
        let _place = match &own.act {
            Act::Echo | Act::Upper => None,
            Act::Command(_) => match timeout_at(deadline, self.runs.acquire()).await {
                // Never closed: it lives as long as we do.
                Ok(place) => place.ok(),
                Err(_) => {
                    return late(format!(
                        "the tool `{name}` was not run: within {after} ms no place was free, as \
                         {RUNS_MAX} tools were running; call it again later, or do without it"
                    ));
                }
            },
        };
        let run = async {
            if !self.settings.test_delay.is_zero() {
                sleep(self.settings.test_delay).await;
            }
            match &own.act {
                Act::Echo => Output::new(Status::Completed, cut(message_of(&value), max)),
                Act::Upper => {
                    Output::new(Status::Completed, cut(&message_of(&value).to_uppercase(), max))
                }
                Act::Command(argv) => {
                    self.settings.place.run(argv, arguments.as_bytes(), max).await
                }
            }
        };
        timeout_at(deadline, run).await.unwrap_or_else(|_| {
            late(format!(
                "the tool `{name}` was ended after {after} ms without an answer; ask it for less, \
                 or do without it"
            ))
        })
    }

    /// Checks everything that must hold before a tool runs.
    fn check(
        &self,
        offered: &BTreeSet<String>,
        name: &str,
        arguments: &str,
    ) -> Result<(&Own, Value), Output> {
        if !self.settings.on {
            return Err(Output::new(
                Status::Off,
                format!(
                    "the tool `{name}` was not run: this daemon runs no tools; its user can change \
                     that with HEDDLE_ALLOW_TOOLS=1 and HEDDLE_ALLOWED_TOOLS"
                ),
            ));
        }
        let own = self.own.iter().find(|own| own.tool.name == name);
        let may = |name: &str| self.allows(name) && offered.contains(name);
        let Some(own) = own.filter(|own| may(&own.tool.name)) else {
            let names = self.offered().map(|tool| tool.name.as_str());
            let offered: Vec<_> = names.filter(|name| may(name)).collect();
            let offered = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
            return Err(Output::new(
                Status::NotAllowed,
                format!(
                    "the tool `{}` is not among those that may be run here: {offered}",
                    cut(name, 64)
                ),
            ));
        };
        let bad = |problem: String| {
            Err(Output::new(
                Status::BadArguments,
                format!(
                    "the tool `{name}` was not run: {problem}; call it again with arguments after \
                     this schema: {}",
                    own.schema()
                ),
            ))
        };
        if arguments.len() > ARGUMENTS_BYTES_MAX {
            return bad(format!("its arguments are longer than {ARGUMENTS_BYTES_MAX} bytes"));
        }
        let mut value: Value = match serde_json::from_str(arguments) {
            Ok(value) => value,
            Err(error) => return bad(format!("its arguments are not JSON ({error})")),
        };
        if matches!(own.act, Act::Echo | Act::Upper) {
            rename_message(&mut value);
        }
        let misfits: Vec<_> = own.fits.iter_errors(&value).take(MISFITS_MAX).collect();
        if !misfits.is_empty() {
            let shown = misfits.iter().map(|misfit| {
                let misfit = match misfit.instance_path.as_str() {
                    "" => misfit.to_string(),
                    path => format!("at {path}: {misfit}"),
                };
                // It repeats the invalid value, and must leave room for the schema.
                cut(&misfit, MISFIT_BYTES_MAX)
            });
            return bad(shown.collect::<Vec<_>>().join("; "));
        }
        Ok((own, value))
    }
}

impl Own {
    fn new(name: &str, description: &str, schema: Value, act: Act) -> Result<Self, ToolsError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(ToolsError::Name { name: name.to_owned() });
        }
        let bad = |problem: String| ToolsError::Schema { name: name.to_owned(), problem };
        if !schema.is_object() {
            return Err(bad("it must be a JSON object".to_owned()));
        }
        let fits = jsonschema::validator_for(&schema).map_err(|error| bad(error.to_string()))?;
        let tool = Tool {
            name: name.to_owned(),
            description: description.to_owned(),
            input: Input::Json(schema),
        };
        Ok(Self { tool, fits, act })
    }

    fn schema(&self) -> String {
        match &self.tool.input {
            Input::Json(schema) => schema.to_string(),
            Input::Text { .. } => String::new(),
        }
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("tool", &self.tool).field("act", &self.act).finish()
    }
}

/// The only argument of `echo` and `upper`.
const MESSAGE: &str = "msg";
/// Its former name.
const MESSAGE_BEFORE: &str = "text";

/// Accepts the argument of `echo` and `upper` under its former name.
fn rename_message(arguments: &mut Value) {
    if let Value::Object(map) = arguments
        && !map.contains_key(MESSAGE)
        && let Some(text) = map.remove(MESSAGE_BEFORE)
    {
        map.insert(MESSAGE.to_owned(), text);
    }
}

/// Returns the message from valid arguments of `echo` and `upper`.
fn message_of(arguments: &Value) -> &str {
    arguments[MESSAGE].as_str().unwrap_or_default()
}

/// Truncates an output at a character boundary, and says how much is missing.
fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let kept = &text[..text.floor_char_boundary(bytes_max)];
    format!("{kept}\n[{} more bytes were cut]", text.len() - kept.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{Declared, Output, RUNS_MAX, Settings, Status, Tools, ToolsError, cut};

    fn declared(name: &str, command: &[&str], parameters: serde_json::Value) -> Declared {
        Declared {
            name: name.to_owned(),
            description: String::new(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            parameters,
        }
    }

    async fn run(on: bool, allowed: &[&str], max: usize, name: &str, arguments: &str) -> Output {
        let allowed = allowed.iter().map(|&name| name.to_owned()).collect();
        let declared = vec![declared("hello", &["true"], json!({"type": "object"}))];
        let settings =
            Settings { on, allowed, declared, output_bytes_max: max, ..Settings::default() };
        let tools = Tools::new(settings).unwrap();
        let offered = tools.offered().map(|tool| tool.name.clone()).collect();
        tools.run(&offered, name, arguments).await
    }

    #[tokio::test]
    async fn every_call_is_checked() {
        use Status::*;
        let both = &["echo", "upper"][..];
        let text = r#"{"msg":"häß"}"#;
        for (on, allowed, name, arguments, status, says) in [
            (true, both, "echo", text, Completed, "häß"),
            (true, both, "upper", text, Completed, "HÄSS"),
            (true, both, "echo", r#"{"msg":"1234567äx"}"#, Completed, "1234567\n[3 more bytes"),
            // The former name is accepted in place of the other, not next to it.
            (true, both, "echo", r#"{"text":"häß"}"#, Completed, "häß"),
            (true, both, "upper", r#"{"text":"häß"}"#, Completed, "HÄSS"),
            (
                true,
                both,
                "upper",
                r#"{"msg":"a","text":"b"}"#,
                BadArguments,
                "'text' was unexpected",
            ),
            (false, both, "echo", text, Off, "HEDDLE_ALLOW_TOOLS=1"),
            (true, &[][..], "echo", text, NotAllowed, "run here: none"),
            (true, &["upper"][..], "echo", text, NotAllowed, "run here: upper"),
            (true, both, "hello", "{}", NotAllowed, "echo, upper"),
            (true, both, "rm", "{}", NotAllowed, "echo, upper"),
            (true, both, "echo", "{", BadArguments, "not JSON"),
            (true, both, "echo", "", BadArguments, "not JSON"),
            (true, both, "echo", "[]", BadArguments, "\"required\":[\"msg\"]"),
            (true, both, "echo", "{}", BadArguments, "\"msg\" is a required property"),
            (true, both, "echo", r#"{"msg":1}"#, BadArguments, "at /msg: 1 is not"),
            (true, both, "echo", r#"{"text":1}"#, BadArguments, "at /msg: 1 is not"),
            (true, both, "echo", r#"{"msg":"a","x":1}"#, BadArguments, "'x' was unexpected"),
            (true, &["hello"][..], "hello", "{}", Failed, "no sandbox"),
        ] {
            let max = if status == Completed { 8 } else { 8192 };
            let output = run(on, allowed, max, name, arguments).await;
            assert_eq!(output.status, status, "{name} {arguments}: {}", output.text);
            assert!(output.text.contains(says), "{name} {arguments}: {}", output.text);
        }
    }

    /// Whatever the result of a call, the model reads no more of it than the limit.
    #[tokio::test]
    async fn outputs_and_refusals_have_the_same_bound() {
        const MAX: usize = 64;
        let mark = "\n[123456 more bytes were cut]".len();
        let long = "x".repeat(super::ARGUMENTS_BYTES_MAX);
        let both = &["echo", "upper"][..];
        for (on, allowed, name, arguments) in [
            (true, both, "echo", format!(r#"{{"text":"{}"}}"#, &long[..9000])),
            (true, both, "echo", format!(r#"{{"text":"{long}"}}"#)),
            (true, both, "echo", format!(r#"{{"text":["{}"]}}"#, &long[..9000])),
            (true, both, "echo", format!(r#"{{"text":"a","{}":1}}"#, &long[..9000])),
            (true, both, "echo", "{".to_owned()),
            (true, both, &long, "{}".to_owned()),
            (true, &[], "echo", "{}".to_owned()),
            (false, both, &long, "{}".to_owned()),
        ] {
            let output = run(on, allowed, MAX, name, &arguments).await;
            assert!(output.text.len() <= MAX + mark, "{:?} {}", output.status, output.text);
        }
        // The description of a violation leaves room for the schema.
        let arguments = format!(r#"{{"text":["{}"]}}"#, &long[..9000]);
        let output = run(true, both, 1000, "echo", &arguments).await;
        assert!(output.text.contains("\"required\":[\"msg\"]"), "{}", output.text);
    }

    /// The built-in tools have the same timeout as commands, which includes the wait for a slot.
    #[tokio::test(start_paused = true)]
    async fn every_tool_has_a_timeout() {
        for (name, delay_ms, busy, status, says) in [
            ("echo", 0, false, Status::Completed, "a"),
            ("echo", 400, false, Status::Completed, "a"),
            ("upper", 400, true, Status::Completed, "A"),
            ("echo", 600, false, Status::TimedOut, "was ended after 500 ms"),
            ("upper", 600, false, Status::TimedOut, "was ended after 500 ms"),
            ("hello", 600, false, Status::TimedOut, "was ended after 500 ms"),
            ("hello", 0, true, Status::TimedOut, "within 500 ms no place was free"),
        ] {
            let allowed = ["echo", "upper", "hello"].map(str::to_owned).to_vec();
            let settings = Settings {
                on: true,
                allowed,
                declared: vec![declared("hello", &["true"], json!({"type": "object"}))],
                timeout: Duration::from_millis(500),
                test_delay: Duration::from_millis(delay_ms),
                ..Settings::default()
            };
            let tools = Tools::new(settings).unwrap();
            let offered = tools.offered().map(|tool| tool.name.clone()).collect();
            let places = u32::try_from(RUNS_MAX).unwrap();
            let taken =
                if busy { Some(tools.runs.acquire_many(places).await.unwrap()) } else { None };
            let begun = tokio::time::Instant::now();
            let output = tools.run(&offered, name, r#"{"msg":"a"}"#).await;
            assert_eq!(output.status, status, "{name} {delay_ms} {busy}: {}", output.text);
            assert!(output.text.contains(says), "{name} {delay_ms} {busy}: {}", output.text);
            assert!(begun.elapsed() <= Duration::from_millis(510), "{:?}", begun.elapsed());
            drop(taken);
            // Calls that waited or were killed have left nothing behind.
            assert_eq!(tools.runs.available_permits(), RUNS_MAX);
        }
    }

    /// Waiting for a slot uses up part of the timeout; only the rest is left for the run.
    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_slot_uses_up_the_timeout() {
        let settings = Settings {
            on: true,
            allowed: vec!["hello".to_owned()],
            declared: vec![declared("hello", &["true"], json!({"type": "object"}))],
            timeout: Duration::from_millis(500),
            test_delay: Duration::from_millis(300),
            ..Settings::default()
        };
        let tools = Tools::new(settings).unwrap();
        let offered = tools.offered().map(|tool| tool.name.clone()).collect();
        let taken = tools.runs.acquire_many(u32::try_from(RUNS_MAX).unwrap()).await.unwrap();
        let begun = tokio::time::Instant::now();
        let free = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            drop(taken);
        };
        let (output, ()) = tokio::join!(tools.run(&offered, "hello", "{}"), free);
        assert_eq!(output.status, Status::TimedOut, "{}", output.text);
        assert!(begun.elapsed() <= Duration::from_millis(510), "{:?}", begun.elapsed());
    }

    #[test]
    fn settings_are_checked() {
        let object = || json!({"type": "object"});
        let check = |declared: Vec<Declared>, allowed: &[&str]| {
            let allowed = allowed.iter().map(|&name| name.to_owned()).collect();
            Tools::new(Settings { declared, allowed, ..Settings::default() }).map(drop)
        };
        assert_eq!(check(vec![declared("a", &["x"], object())], &["a", "echo"]), Ok(()));
        for (declared, allowed, want) in [
            (vec![declared("echo", &["x"], object())], &[][..], "two tools called `echo`"),
            (vec![declared("a b", &["x"], object())], &[], "cannot be the name"),
            (vec![declared("a", &[], object())], &[], "has no command"),
            (vec![declared("a", &["x"], json!([]))], &[], "must be a JSON object"),
            (vec![declared("a", &["x"], json!({"type": 5}))], &[], "not a usable JSON Schema"),
            (vec![], &["b"], "available tools: echo, upper"),
            (vec![declared("a", &["x"], object()); 65], &[], "65 tools"),
        ] {
            let error: ToolsError = check(declared, allowed).unwrap_err();
            assert!(error.to_string().contains(want), "{error}");
        }
    }

    #[test]
    fn cuts() {
        for (text, max, want) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "abc\n[1 more bytes were cut]"),
            ("aä", 2, "a\n[2 more bytes were cut]"),
            ("ä", 0, "\n[2 more bytes were cut]"),
            ("", 0, ""),
        ] {
            assert_eq!(cut(text, max), want, "{text} {max}");
        }
    }
}
