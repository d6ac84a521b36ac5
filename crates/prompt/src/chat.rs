//! Parses requests of the Chat Completions API.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::read::tools::{Again, Tools, Words};
use crate::read::{Field, Node, Read, options, short};
use crate::refusal::Refusal;
use crate::request::{EchoedRequest, ITEMS_MAX, Message, PARTS_MAX, Request, STOPS_MAX};

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_choice: Option<&'a RawValue>,
    #[serde(borrow)]
    parallel_tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    functions: Option<&'a RawValue>,
    #[serde(borrow)]
    response_format: Option<&'a RawValue>,
    #[serde(borrow)]
    max_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    max_completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    temperature: Option<&'a RawValue>,
    #[serde(borrow)]
    top_p: Option<&'a RawValue>,
    #[serde(borrow)]
    seed: Option<&'a RawValue>,
    #[serde(borrow)]
    frequency_penalty: Option<&'a RawValue>,
    #[serde(borrow)]
    presence_penalty: Option<&'a RawValue>,
    #[serde(borrow)]
    stop: Option<&'a RawValue>,
    #[serde(borrow)]
    n: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    stream_options: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_effort: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    top_logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    logit_bias: Option<&'a RawValue>,
    #[serde(borrow)]
    modalities: Option<&'a RawValue>,
    #[serde(borrow)]
    web_search_options: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireStream<'a> {
    #[serde(borrow)]
    include_usage: Option<&'a RawValue>,
}

/// Parses a request. The daemon's own tools are not available here, because no field could show the result of
/// a call.
pub fn read(body: &[u8]) -> Result<Request, Refusal> {
    let root = Node::whole(body)?;
    let wire: Wire<'_> = root.object()?;
    let model = root.field("model", wire.model).need()?.name()?;
    refuse(root, &wire)?;
    let (mut messages, mut tools) = (Vec::new(), Tools::default());
    if let Some(list) = root.field("tools", wire.tools).get() {
        tools.read(list, Words::Wrapped, Again::Refuse)?;
    }
    if wire.web_search_options.is_some() {
        tools.leave_out("web_search");
    }
    let list = root.field("messages", wire.messages).need()?;
    for (number, raw) in list.list(ITEMS_MAX)?.into_iter().enumerate() {
        message(list.element(number, raw), &mut messages)?;
    }
    if messages.is_empty() {
        return Err(list.invalid("has nothing to answer"));
    }
    let format = root
        .field("response_format", wire.response_format)
        .opt(|node| options::format(node, true, &mut tools))?;
    let choice = root.field("tool_choice", wire.tool_choice);
    let chosen = tools.choose(choice, Words::Wrapped)?.check(choice)?;
    let parallel = root.field("parallel_tool_calls", wire.parallel_tool_calls);
    let tokens = options::tokens(root.field("max_tokens", wire.max_tokens))?;
    let all_tokens =
        options::tokens(root.field("max_completion_tokens", wire.max_completion_tokens))?;
    let stream_usage = match root.field("stream_options", wire.stream_options).get() {
        Some(stream) => {
            let WireStream { include_usage } = stream.object()?;
            stream.field("include_usage", include_usage).opt(Node::flag)?.unwrap_or_default()
        }
        None => false,
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
        format: format.map(|(format, _)| format).unwrap_or_default(),
        sampling: options::sampling(
            options::temperature(root.field("temperature", wire.temperature))?,
            options::top_p(root.field("top_p", wire.top_p))?,
            root.field("seed", wire.seed),
        )?,
        // The newer of the two names takes precedence.
        output_tokens_max: all_tokens.or(tokens),
        effort: options::effort(root.field("reasoning_effort", wire.reasoning_effort))?,
        stop: stop(root.field("stop", wire.stop))?,
        stream: root.field("stream", wire.stream).opt(Node::flag)?.unwrap_or_default(),
        stream_usage,
        cache_key: root.field("prompt_cache_key", wire.prompt_cache_key).opt(Node::name)?,
        metadata: root.field("metadata", wire.metadata).opt(options::metadata)?.unwrap_or_default(),
        asked: EchoedRequest::default(),
    })
}

/// Refuses unsupported requests before anything is done.
fn refuse(root: Node<'_>, wire: &Wire<'_>) -> Read<()> {
    const NOT_HERE: &str = "is not supported here; leave it out";
    if let Some(node) = root.field("n", wire.n).get()
        && node.integer(1..=128)? != 1
    {
        return Err(node.invalid("can only be 1; ask again for another answer"));
    }
    if let Some(node) = root.field("logprobs", wire.logprobs).get()
        && node.flag()?
    {
        return Err(node.invalid(NOT_HERE));
    }
    if let Some(node) = root.field("top_logprobs", wire.top_logprobs).get()
        && node.integer(0..=20)? > 0
    {
        return Err(node.invalid(NOT_HERE));
    }
    if let Some(node) = root.field("logit_bias", wire.logit_bias).get() {
        let Empty {} = node.object()?;
        // An object with at least one field contains a colon.
        if node.json().bytes().any(|byte| byte == b':') {
            return Err(node.invalid(NOT_HERE));
        }
    }
    for (name, raw) in
        [("frequency_penalty", wire.frequency_penalty), ("presence_penalty", wire.presence_penalty)]
    {
        if let Some(node) = root.field(name, raw).get()
            && node.number(-2.0..=2.0)? != 0.0
        {
            return Err(node.invalid(NOT_HERE));
        }
    }
    root.field("functions", wire.functions).refuse("is deprecated; send `tools`")?;
    if let Some(list) = root.field("modalities", wire.modalities).get() {
        for (number, raw) in list.list(PARTS_MAX)?.into_iter().enumerate() {
            let node = list.element(number, raw);
            if node.text()? != "text" {
                return Err(node.invalid("can only be `text`"));
            }
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Empty {}

fn stop(field: Field<'_>) -> Read<Vec<String>> {
    let Some(node) = field.get() else { return Ok(Vec::new()) };
    if node.is_text() {
        return Ok(vec![node.name()?]);
    }
    let list = node.list(STOPS_MAX)?.into_iter().enumerate();
    list.map(|(number, raw)| node.element(number, raw).name()).collect()
}

#[derive(Deserialize)]
struct WireMessage<'a> {
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireCall<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    function: Option<&'a RawValue>,
    #[serde(borrow)]
    custom: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireCalled<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

fn message(node: Node<'_>, messages: &mut Vec<Message>) -> Read<()> {
    let wire: WireMessage<'_> = node.object()?;
    let role = node.field("role", wire.role).need()?;
    let name = node.field("name", wire.name);
    let content = node.field("content", wire.content);
    let of: fn(String) -> Message = match &*role.text()? {
        "assistant" => return assistant(node, &wire, messages),
        "tool" => {
            let call_id = node.field("tool_call_id", wire.tool_call_id).need()?.string()?;
            messages.push(Message::Output { call_id, text: content.need()?.content()? });
            return Ok(());
        }
        // Calls had no ids in this older form.
        "function" => {
            let text = content.opt(Node::content)?.unwrap_or_default();
            messages.push(Message::Output { call_id: name.need()?.name()?, text });
            return Ok(());
        }
        "system" => Message::System,
        "developer" => Message::Developer,
        "user" => Message::User,
        other => return Err(role.invalid(format_args!("`{}` is unknown", short(other)))),
    };
    name.opt(Node::string)?;
    messages.push(content.need()?.content().map(of)?);
    Ok(())
}

/// Splits one assistant message into reasoning, text and calls, in this order.
fn assistant(node: Node<'_>, wire: &WireMessage<'_>, messages: &mut Vec<Message>) -> Read<()> {
    let thought = node.field("reasoning_content", wire.reasoning_content).opt(Node::content)?;
    let thought = match thought {
        None => node.field("reasoning", wire.reasoning).opt(Node::content)?,
        thought => thought,
    };
    let content = node.field("content", wire.content).opt(Node::content)?;
    let refusal = node.field("refusal", wire.refusal).opt(Node::string)?;
    let is_said = |text: &String| !text.is_empty();
    messages.extend(thought.filter(is_said).map(Message::Reasoning));
    messages.extend(content.filter(is_said).map(Message::Assistant));
    messages.extend(refusal.filter(is_said).map(Message::Assistant));
    if let Some(list) = node.field("tool_calls", wire.tool_calls).get() {
        for (number, raw) in list.list(ITEMS_MAX)?.into_iter().enumerate() {
            messages.push(call(list.element(number, raw))?);
        }
    }
    if let Some(function) = node.field("function_call", wire.function_call).get() {
        let (name, arguments) = called(function, false)?;
        messages.push(Message::Call { id: name.clone(), name, arguments, free: false });
    }
    Ok(())
}

fn call(node: Node<'_>) -> Read<Message> {
    let wire: WireCall<'_> = node.object()?;
    let id = node.field("id", wire.id).need()?.string()?;
    let kind = node.field("type", wire.kind);
    let free = match kind.opt(Node::text)?.as_deref() {
        // Many clients omit it, since there was only one kind for a long time.
        None | Some("function") => false,
        Some("custom") => true,
        Some(other) => {
            return Err(kind.need()?.invalid(format_args!("`{}` is unknown", short(other))));
        }
    };
    let inner = match free {
        true => node.field("custom", wire.custom),
        false => node.field("function", wire.function),
    };
    let (name, arguments) = called(inner.need()?, free)?;
    Ok(Message::Call { id, name, arguments, free })
}

fn called(node: Node<'_>, free: bool) -> Read<(String, String)> {
    let wire: WireCalled<'_> = node.object()?;
    let arguments = match free {
        true => node.field("input", wire.input),
        false => node.field("arguments", wire.arguments),
    };
    Ok((node.field("name", wire.name).need()?.name()?, arguments.need()?.string()?))
}
