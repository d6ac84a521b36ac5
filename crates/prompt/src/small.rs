//! The prompt profile for small models: few tools, a few examples, and the newest part of the conversation.
//!
//! A model with less than a billion weights cannot follow pages of instructions, but it can continue a
//! pattern. So it sees a handful of requests like the newest one, each with the call that answers it
//! ([`worked`]), then the request itself; its answer is constrained to the arguments of one tool, or to a
//! short text. Everything it does not see is reported.

use serde_json::{Value, json};

use crate::grammar::{GrammarRequest, Thinking, of_arguments, of_text};
use crate::guard::cut;
use crate::model::{Model, Prompt, thinking};
use crate::reader::Plan;
use crate::refusal::Refusal;
use crate::request::{Choice, Input, Message, Request, Tool};
use crate::schema;
use crate::small::worked::find_examples;
use crate::style::Style;
use crate::template::{Template, write_json};
use crate::turns::{tool_words, turns};
use crate::{Facts, Sampling};

mod worked;

/// Models with fewer weights are small.
pub const PARAMETERS_MAX: u64 = 1_000_000_000;

/// Most tools that a small model is offered.
pub const TOOLS_MAX: usize = 3;

/// Most characters of a tool's output that a small model sees.
pub const OUTPUT_CHARS_MAX: usize = 800;

/// Most characters that a small model says about an output.
pub const WORDS_MAX: usize = 140;

/// Token limit of its answer.
pub const TOKENS_MAX: u32 = 256;

/// Tells whether this profile applies to a request.
pub(crate) fn applies(facts: &Facts, request: &Request) -> bool {
    let small = (1..PARAMETERS_MAX).contains(&facts.parameters);
    small && !request.tools.is_empty() && request.choice != Choice::None
}

/// Builds the prompt for a request.
pub(crate) fn compose(
    model: &Model,
    template: &Template,
    request: &Request,
) -> Result<Prompt, Refusal> {
    let runner =
        request.tools.iter().filter_map(Runner::from_tool).min_by_key(|runner| runner.rank);
    let runner = runner.filter(|runner| match &request.choice {
        Choice::Named(name) => runner.tool.name == *name,
        _ => true,
    });
    match runner {
        Some(runner) => with_runner(model, template, request, &runner),
        None => with_few(model, template, request),
    }
}

/// A tool that runs commands.
struct Runner<'a> {
    tool: &'a Tool,
    /// The field with the command.
    field: &'a str,
    /// Whether it is a list of words.
    is_list: bool,
    rank: usize,
}

impl<'a> Runner<'a> {
    /// Recognizes a tool whose only required field is a command.
    fn from_tool(tool: &'a Tool) -> Option<Self> {
        let Input::Json(schema) = &tool.input else { return None };
        let [required] = schema.get("required")?.as_array()?.as_slice() else { return None };
        let field = FIELDS.into_iter().find(|field| required.as_str() == Some(field))?;
        let is_list = match schema.pointer(&format!("/properties/{field}/type"))?.as_str()? {
            "string" => false,
            "array" => true,
            _ => return None,
        };
        let name = tool.name.rsplit('.').next().unwrap_or_default();
        let rank = NAMES.iter().position(|known| *known == name).unwrap_or(NAMES.len());
        Some(Self { tool, field, is_list, rank })
    }

    fn arguments(&self, command: &str) -> String {
        let command = match self.is_list {
            true => json!(["bash", "-lc", command]),
            false => json!(command),
        };
        let mut out = String::new();
        write_json(&json!({ self.field: command }), None, 0, &mut out);
        out
    }

    /// Constrains the command to a pattern.
    fn schema(&self, pattern: &str) -> Value {
        let Input::Json(schema) = &self.tool.input else { return Value::Null };
        let mut schema = schema::required_only(schema);
        let command = json!({"type": "string", "pattern": pattern});
        let field = match self.is_list {
            true => json!({
                "type": "array", "minItems": 3, "maxItems": 3, "items": false,
                "prefixItems": [{"const": "bash"}, {"const": "-lc"}, command],
            }),
            false => command,
        };
        schema["properties"][self.field] = field;
        schema
    }
}

const FIELDS: [&str; 2] = ["cmd", "command"];

/// Tools that run commands, most likely first.
const NAMES: [&str; 9] = [
    "exec_command",
    "shell_command",
    "shell",
    "local_shell",
    "bash",
    "run_command",
    "run_shell_command",
    "execute_command",
    "exec",
];

/// The pattern of a command if one is required and no example is similar to the request.
const COMMAND: &str = "^[a-z][ -~]{0,79}$";

const RULES: &str = "You turn requests into shell commands.";

fn with_runner(
    model: &Model,
    template: &Template,
    request: &Request,
    runner: &Runner<'_>,
) -> Result<Prompt, Refusal> {
    let newest = Newest::from_messages(&request.messages);
    let mut left_out = newest.left_out();
    name_tools(&request.tools, |tool| tool.name == runner.tool.name, &mut left_out);
    if newest.output.is_some() && !forced(request) {
        return telling(model, template, request, &newest, left_out);
    }
    let examples = find_examples(newest.asked);
    if !examples.is_similar && !forced(request) {
        // It does not know how to do this, so it answers in text.
        let asked = [Message::User(newest.asked.to_owned())];
        return talking(model, template, request, &asked, None, left_out);
    }
    let mut messages = vec![Message::System(RULES.to_owned())];
    for worked in &examples.shown {
        messages.push(Message::User(worked.asked.to_owned()));
        messages.push(Message::Assistant(runner.arguments(worked.command)));
    }
    messages.push(Message::User(newest.asked.to_owned()));
    let turns = turns(&messages, "", template.can, model.names());
    let text = model.render(template, &turns, None, request)?;
    let pattern = if examples.is_similar { &examples.pattern } else { COMMAND };
    let grammar = of_arguments(&runner.schema(pattern));
    let plan = Plan::Arguments { tool: runner.tool.name.clone() };
    Ok(prompt(&text, Some(grammar), left_out, plan))
}

/// Makes the model report the result of a call.
fn telling(
    model: &Model,
    template: &Template,
    request: &Request,
    newest: &Newest<'_>,
    mut left_out: Vec<String>,
) -> Result<Prompt, Refusal> {
    let mut messages = vec![Message::System(TELLING_RULES.to_owned())];
    for (happened, told) in TOLD {
        messages.push(Message::User(happened.to_owned()));
        messages.push(Message::Assistant(told.to_owned()));
    }
    messages.push(Message::User(newest.happened(&mut left_out)));
    talking(model, template, request, &messages, Some(one_sentence()), left_out)
}

/// Makes the model answer in text, or in the format of the request.
fn talking(
    model: &Model,
    template: &Template,
    request: &Request,
    messages: &[Message],
    grammar: Option<String>,
    left_out: Vec<String>,
) -> Result<Prompt, Refusal> {
    let turns = turns(messages, "", template.can, model.names());
    let text = model.render(template, &turns, None, request)?;
    let wanted = GrammarRequest {
        tools: &[],
        choice: &Choice::None,
        parallel: false,
        format: &request.format,
    };
    // Some templates always open reasoning; our grammar leaves no room for it.
    let thinking = match grammar {
        Some(_) => Thinking::Never,
        None => thinking(&text, template),
    };
    let grammar = of_text(&wanted, Style::Hermes, thinking, model.ids()).or(grammar);
    Ok(prompt(&text, grammar, left_out, Plan::Plain { thinking }))
}

fn with_few(model: &Model, template: &Template, request: &Request) -> Result<Prompt, Refusal> {
    let newest = Newest::from_messages(&request.messages);
    let mut left_out = newest.left_out();
    let named = |tool: &&Tool| match &request.choice {
        Choice::Named(name) => tool.name == *name,
        _ => true,
    };
    let offered: Vec<&Tool> = request.tools.iter().filter(named).take(TOOLS_MAX).collect();
    name_tools(
        &request.tools,
        |tool| offered.iter().any(|kept| kept.name == tool.name),
        &mut left_out,
    );
    let tools: Vec<Tool> = offered.into_iter().map(reduced).collect();
    if newest.output.is_some() && !forced(request) {
        return telling(model, template, request, &newest, left_out);
    }
    let mut can = template.can;
    can.tools = false;
    let messages = [Message::User(newest.asked.to_owned())];
    let turns = turns(&messages, &tool_words(&tools, model.names()), can, model.names());
    let text = model.render(template, &turns, None, request)?;
    let wanted = GrammarRequest {
        tools: &tools,
        choice: &request.choice,
        parallel: false,
        format: &request.format,
    };
    let thinking = thinking(&text, template);
    let grammar = of_text(&wanted, Style::Hermes, thinking, model.ids());
    let plan = Plan::Dialect { style: Style::Hermes, tools: tools.clone(), thinking };
    Ok(prompt(&text, grammar, left_out, plan))
}

/// Reduces a tool to what its calls need.
fn reduced(tool: &Tool) -> Tool {
    let input = match &tool.input {
        Input::Json(schema) => Input::Json(schema::required_only(schema)),
        free @ Input::Text { .. } => free.clone(),
    };
    let description = tool.description.lines().next().unwrap_or_default();
    Tool { name: tool.name.clone(), description: description.chars().take(120).collect(), input }
}

fn prompt(text: &str, grammar: Option<String>, left_out: Vec<String>, plan: Plan) -> Prompt {
    let sampling = Sampling { repeat_penalty: 1.1, ..Sampling::default() };
    Prompt {
        pieces: cut(text),
        grammar,
        sampling,
        profile: "small",
        left_out,
        output_tokens_max: Some(TOKENS_MAX),
        plan,
    }
}

fn forced(request: &Request) -> bool {
    matches!(request.choice, Choice::Required | Choice::Named(_))
}

/// Constrains an answer to one short sentence.
fn one_sentence() -> String {
    format!("start: /[A-Z]([ -\\-\\/-~]|\\.[a-z]){{0,{WORDS_MAX}}}\\./\n")
}

/// The newest part of a conversation.
struct Newest<'a> {
    asked: &'a str,
    /// The last call after that, and its output.
    call: Option<&'a str>,
    output: Option<&'a str>,
    rules: usize,
    earlier: usize,
}

impl<'a> Newest<'a> {
    fn from_messages(messages: &'a [Message]) -> Self {
        let is_user = |message: &Message| matches!(message, Message::User(_));
        let at = messages.iter().rposition(is_user);
        let asked = match at.map(|at| &messages[at]) {
            Some(Message::User(text)) => text,
            _ => "",
        };
        let after = &messages[at.map_or(0, |at| at + 1)..];
        let is_rule =
            |message: &&Message| matches!(message, Message::System(_) | Message::Developer(_));
        let rules = messages.iter().filter(is_rule).count();
        let call = after.iter().rev().find_map(|message| match message {
            Message::Call { arguments, .. } => Some(arguments.as_str()),
            _ => None,
        });
        let output = match after.last() {
            Some(Message::Output { text, .. }) => Some(text.as_str()),
            _ => None,
        };
        let earlier =
            messages[..at.unwrap_or(0)].iter().filter(|message| !is_rule(message)).count();
        Self { asked, call, output, rules, earlier }
    }

    fn left_out(&self) -> Vec<String> {
        let mut left_out = Vec::new();
        if self.rules > 0 {
            left_out.push(format!("{} messages of instructions", self.rules));
        }
        if self.earlier > 0 {
            left_out.push(format!("{} earlier messages", self.earlier));
        }
        left_out
    }

    /// Describes what was run and what came back, as in [`TOLD`].
    fn happened(&self, left_out: &mut Vec<String>) -> String {
        let (code, output) = outcome(self.output.unwrap_or_default());
        let shown: String = output.chars().take(OUTPUT_CHARS_MAX).collect();
        if shown.len() < output.len() {
            left_out.push(format!("all but {OUTPUT_CHARS_MAX} characters of the newest output"));
        }
        let call = self.call.and_then(command).unwrap_or_default();
        let ended = if code.is_none_or(|code| code == 0) { "ended well" } else { "failed" };
        match shown.trim_end() {
            "" => format!("`{call}` {ended} and printed nothing."),
            shown => format!("`{call}` {ended} and printed:\n{shown}"),
        }
    }
}

/// Parses what our tools report about a command: its exit code, and its output.
fn outcome(output: &str) -> (Option<i32>, &str) {
    let apart = output.split_once("\nOutput:\n").and_then(|(facts, printed)| {
        let code = facts.lines().find_map(|line| line.strip_prefix("Process exited with code "))?;
        Some((Some(code.parse().ok()?), printed))
    });
    apart.unwrap_or((None, output))
}

const TELLING_RULES: &str = "You say in one short sentence what a command did.";

/// Results of commands, and how to report them.
const TOLD: [(&str, &str); 5] = [
    ("`ls` ended well and printed:\na.txt\nsrc", "There are a.txt and src."),
    (
        "`cat x.md` failed and printed:\ncat: x.md: No such file or directory",
        "There is no file x.md.",
    ),
    ("`wc -l big.csv` ended well and printed:\n12 big.csv", "It has 12 lines."),
    ("`rm tmp.txt` ended well and printed nothing.", "I deleted tmp.txt."),
    ("`mkdir docs` ended well and printed nothing.", "I made the folder docs."),
];

/// Returns what was run: the last string in a call's arguments.
fn command(arguments: &str) -> Option<String> {
    let arguments: Value = serde_json::from_str(arguments).ok()?;
    let field = FIELDS.into_iter().find_map(|field| arguments.get(field))?;
    let word = field.as_array().map_or(Some(field), |words| words.last())?;
    word.as_str().map(str::to_owned)
}

fn name_tools(tools: &[Tool], is_kept: impl Fn(&Tool) -> bool, left_out: &mut Vec<String>) {
    let names: Vec<&str> =
        tools.iter().filter(|tool| !is_kept(tool)).map(|tool| tool.name.as_str()).collect();
    if !names.is_empty() {
        left_out.push(format!("the tools {}", names.join(", ")));
    }
}
