//! Parses requests of the Responses API.
//!
//! Nothing is stored between requests, so whatever would need that is refused with advice. Fields that matter
//! only to hosted endpoints are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::read::tools::{Again, Tools, Words, qualified};
use crate::read::{Node, Read, options, short};
use crate::refusal::Refusal;
use crate::request::{EchoedRequest, ITEMS_MAX, Message, PARTS_MAX, Request, Tool};

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_choice: Option<&'a RawValue>,
    #[serde(borrow)]
    parallel_tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    max_output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    temperature: Option<&'a RawValue>,
    #[serde(borrow)]
    top_p: Option<&'a RawValue>,
    #[serde(borrow)]
    top_logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    store: Option<&'a RawValue>,
    #[serde(borrow)]
    include: Option<&'a RawValue>,
    #[serde(borrow)]
    previous_response_id: Option<&'a RawValue>,
    #[serde(borrow)]
    conversation: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    background: Option<&'a RawValue>,
    #[serde(borrow)]
    truncation: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireText<'a> {
    #[serde(borrow)]
    format: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireReasoning<'a> {
    #[serde(borrow)]
    effort: Option<&'a RawValue>,
}

/// Parses a request. Besides the client's tools it offers those of `own`, which run in the daemon.
pub fn read(body: &[u8], own: &[Tool]) -> Result<Request, Refusal> {
    let root = Node::whole(body)?;
    let wire: Wire<'_> = root.object()?;
    let model = root.field("model", wire.model).need()?.name()?;
    refuse(root, &wire)?;
    let (mut messages, mut tools) = (Vec::new(), Tools::default());
    let instructions = root.field("instructions", wire.instructions).opt(Node::string)?;
    messages.extend(instructions.clone().map(Message::System));
    if let Some(list) = root.field("tools", wire.tools).get() {
        tools.read(list, Words::Flat, Again::Refuse)?;
    }
    let input = root.field("input", wire.input).need()?;
    if input.is_text() {
        messages.push(Message::User(input.string()?));
    } else {
        for (number, raw) in input.list(ITEMS_MAX)?.into_iter().enumerate() {
            item(input.element(number, raw), &mut messages, &mut tools)?;
        }
    }
    if messages.is_empty() {
        return Err(input.invalid("has nothing to answer"));
    }
    let format = match root.field("text", wire.text).get() {
        Some(text) => {
            let WireText { format } = text.object()?;
            text.field("format", format).opt(|node| options::format(node, false, &mut tools))?
        }
        None => None,
    };
    let (format, title) = format.unwrap_or_default();
    let effort = match root.field("reasoning", wire.reasoning).get() {
        Some(reasoning) => {
            let WireReasoning { effort } = reasoning.object()?;
            options::effort(reasoning.field("effort", effort))?
        }
        None => None,
    };
    tools.add_own(own);
    let choice = root.field("tool_choice", wire.tool_choice);
    let chosen = tools.choose(choice, Words::Flat)?.check(choice)?;
    let parallel = root.field("parallel_tool_calls", wire.parallel_tool_calls);
    let asked = EchoedRequest {
        instructions: options::repeated(instructions),
        temperature: options::temperature(root.field("temperature", wire.temperature))?,
        top_p: options::top_p(root.field("top_p", wire.top_p))?,
        is_listed: chosen.is_listed,
        title,
    };
    Ok(Request {
        model,
        messages,
        tools: chosen.tools,
        own: chosen.own,
        left_out: chosen.left_out,
        choice: chosen.choice,
        trials: chosen.trials,
        parallel_calls: parallel.opt(Node::flag)?.unwrap_or(true),
        format,
        sampling: options::sampling(asked.temperature, asked.top_p, root.field("seed", None))?,
        output_tokens_max: options::tokens(
            root.field("max_output_tokens", wire.max_output_tokens),
        )?,
        effort,
        stop: Vec::new(),
        stream: root.field("stream", wire.stream).opt(Node::flag)?.unwrap_or_default(),
        stream_usage: false,
        cache_key: root.field("prompt_cache_key", wire.prompt_cache_key).opt(Node::name)?,
        metadata: root.field("metadata", wire.metadata).opt(options::metadata)?.unwrap_or_default(),
        asked,
    })
}

const SEND_ALL: &str = "is of no use, since nothing is kept here; send the whole `input`";

/// Refuses unsupported requests before anything is done.
fn refuse(root: Node<'_>, wire: &Wire<'_>) -> Read<()> {
    root.field("previous_response_id", wire.previous_response_id).refuse(SEND_ALL)?;
    root.field("conversation", wire.conversation).refuse(SEND_ALL)?;
    root.field("prompt", wire.prompt)
        .refuse("names a stored prompt, and none are here; send `instructions` and `input`")?;
    if let Some(node) = root.field("background", wire.background).get()
        && node.flag()?
    {
        return Err(node.invalid("is not supported, since nothing is stored here; leave it out"));
    }
    if let Some(node) = root.field("truncation", wire.truncation).get() {
        match &*node.text()? {
            "disabled" => {}
            "auto" => {
                let what = "cannot be `auto`: nothing is cut in silence here; send less";
                return Err(node.invalid(what));
            }
            other => return Err(node.invalid(format_args!("`{}` is unknown", short(other)))),
        }
    }
    if let Some(node) = root.field("top_logprobs", wire.top_logprobs).get()
        && node.integer(0..=20)? > 0
    {
        return Err(node.invalid("is not supported here; leave it out"));
    }
    root.field("store", wire.store).opt(Node::flag)?;
    if let Some(include) = root.field("include", wire.include).get() {
        for (number, raw) in include.list(PARTS_MAX)?.into_iter().enumerate() {
            let node = include.element(number, raw);
            if node.text()? == "message.output_text.logprobs" {
                return Err(
                    node.invalid("asks for something that is not supported here; leave it out")
                );
            }
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct WireItem<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    encrypted_content: Option<&'a RawValue>,
    #[serde(borrow)]
    phase: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    server_label: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    action: Option<&'a RawValue>,
    #[serde(borrow)]
    operation: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

/// Kinds of items that contain nothing a local model could read: what a hosted endpoint did itself or has
/// encrypted.
const SILENT: &[&str] = &[
    "code_interpreter_call",
    "compaction",
    "compaction_summary",
    "compaction_trigger",
    "computer_call",
    "computer_call_output",
    "configuration_update",
    "context_compaction",
    "file_search_call",
    "ghost_snapshot",
    "image_generation_call",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_list_tools",
    "program",
    "program_output",
    "tool_search_call",
    "web_search_call",
];

fn item(node: Node<'_>, messages: &mut Vec<Message>, tools: &mut Tools) -> Read<()> {
    let wire: WireItem<'_> = node.object()?;
    let kind = match (wire.kind, wire.role, wire.id) {
        (None, Some(_), _) => "message".into(),
        (None, None, Some(_)) => "item_reference".into(),
        (kind, ..) => node.field("type", kind).need()?.text()?,
    };
    messages.push(match &*kind {
        "message" => message(node, &wire)?,
        "reasoning" => match reasoning(node, &wire)? {
            Some(thought) => thought,
            None => return Ok(()),
        },
        "function_call" => {
            let arguments = node.field("arguments", wire.arguments).need()?.string()?;
            call(node, &wire, None, arguments)?
        }
        "custom_tool_call" => {
            let input = node.field("input", wire.input).need()?.string()?;
            free(call(node, &wire, None, input)?)
        }
        "local_shell_call" | "shell_call" => {
            let action = node.field("action", wire.action).need()?;
            let name = kind.trim_end_matches("_call");
            call(node, &wire, Some(name), action.json().to_owned())?
        }
        "apply_patch_call" => {
            let operation = node.field("operation", wire.operation).need()?;
            call(node, &wire, Some("apply_patch"), operation.json().to_owned())?
        }
        "function_call_output" | "custom_tool_call_output" => {
            let text = node.field("output", wire.output).need()?.content()?;
            Message::Output { call_id: call_id(node, &wire)?, text }
        }
        "local_shell_call_output" | "shell_call_output" | "apply_patch_call_output" => {
            let output = node.field("output", wire.output).get();
            // For a patch, often only its status is given.
            let said = output.or(node.field("status", wire.status).get());
            let text = said.map(text_or_json).transpose()?.unwrap_or_default();
            Message::Output { call_id: call_id(node, &wire)?, text }
        }
        "mcp_call" => return mcp_call(node, &wire, messages),
        "additional_tools" | "tool_search_output" => {
            if let Some(list) = node.field("tools", wire.tools).get() {
                tools.read(list, Words::Flat, Again::Replace)?;
            }
            return Ok(());
        }
        "item_reference" => return Err(node.invalid(SEND_ALL)),
        kind if SILENT.contains(&kind) => return Ok(()),
        other => {
            let at = node.field("type", wire.kind).need()?;
            return Err(at.invalid(format_args!("`{}` is unknown", short(other))));
        }
    });
    Ok(())
}

fn message(node: Node<'_>, wire: &WireItem<'_>) -> Read<Message> {
    let role = node.field("role", wire.role).need()?;
    let content = node.field("content", wire.content).need()?;
    let of: fn(String) -> Message = match &*role.text()? {
        "system" => Message::System,
        "developer" => Message::Developer,
        "user" => Message::User,
        "assistant" if is_commentary(node, wire)? => Message::Commentary,
        "assistant" => Message::Assistant,
        other => return Err(role.invalid(format_args!("`{}` is unknown", short(other)))),
    };
    content.content().map(of)
}

/// Tells whether a message is commentary on the way to an answer.
fn is_commentary(node: Node<'_>, wire: &WireItem<'_>) -> Read<bool> {
    let phase = node.field("phase", wire.phase).opt(Node::string)?;
    Ok(phase.as_deref() == Some("commentary"))
}

/// Returns reasoning in plain text, or its summary; encrypted reasoning is dropped.
///
/// Our own commentary is an item with only a summary, and becomes commentary again.
fn reasoning(node: Node<'_>, wire: &WireItem<'_>) -> Read<Option<Message>> {
    let content = node.field("content", wire.content).opt(Node::content)?;
    let summary = node.field("summary", wire.summary).opt(Node::content)?;
    let is_said = |text: &String| !text.is_empty();
    let is_locked = node.field("encrypted_content", wire.encrypted_content).get().is_some();
    Ok(match (content.filter(is_said), summary.filter(is_said)) {
        (Some(text), _) => Some(Message::Reasoning(text)),
        (None, Some(text)) if is_locked => Some(Message::Reasoning(text)),
        (None, Some(text)) => Some(Message::Commentary(text)),
        (None, None) => None,
    })
}

fn call(
    node: Node<'_>,
    wire: &WireItem<'_>,
    name: Option<&str>,
    arguments: String,
) -> Read<Message> {
    let name = match name {
        Some(name) => name.to_owned(),
        None => {
            let namespace = node.field("namespace", wire.namespace).opt(Node::name)?;
            let name = node.field("name", wire.name).need()?.name()?;
            qualified(namespace.as_deref(), &name)
        }
    };
    Ok(Message::Call { id: call_id(node, wire)?, name, arguments, free: false })
}

fn free(call: Message) -> Message {
    match call {
        Message::Call { id, name, arguments, .. } => {
            Message::Call { id, name, arguments, free: true }
        }
        other => other,
    }
}

/// Returns the id that a call and its output share. The output of a local shell has it as its own id.
fn call_id(node: Node<'_>, wire: &WireItem<'_>) -> Read<String> {
    match node.field("call_id", wire.call_id).opt(Node::string)? {
        Some(id) => Ok(id),
        None if wire.id.is_some() => node.field("id", wire.id).need()?.string(),
        None => node.field("call_id", None).need().and_then(Node::string),
    }
}

fn text_or_json(node: Node<'_>) -> Read<String> {
    if node.is_text() { node.string() } else { Ok(node.json().to_owned()) }
}

/// A call made by a hosted endpoint contains its own output.
fn mcp_call(node: Node<'_>, wire: &WireItem<'_>, messages: &mut Vec<Message>) -> Read<()> {
    let id = call_id(node, wire)?;
    let server = node.field("server_label", wire.server_label).need()?.name()?;
    let name = node.field("name", wire.name).need()?.name()?;
    let arguments = node.field("arguments", wire.arguments).need()?.string()?;
    let output = node.field("output", wire.output).get().or(node.field("error", wire.error).get());
    let text = output.map(text_or_json).transpose()?.unwrap_or_default();
    let name = qualified(Some(&server), &name);
    messages.push(Message::Call { id: id.clone(), name, arguments, free: false });
    messages.push(Message::Output { call_id: id, text });
    Ok(())
}
