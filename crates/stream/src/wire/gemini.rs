//! Gemini's answers, as events, as one array or as lines.
//!
//! A call comes as one object, or its arguments come value by value. A finish reason may come with every
//! chunk, so the last one counts, and is reported at the end.

use protocol::usage::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::NAME_BYTES_MAX;
use crate::event::{ErrorKind, FinishReason};
use crate::wire::call::{Call, End};
use crate::wire::partial_args::{Misplaced, Value, Writer};
use crate::wire::{CALLS_MAX, Out, Provider, arguments, failure, number, part, text, word};

/// Parses the chunks of one answer.
#[derive(Debug, Default)]
pub(crate) struct Gemini {
    open: Option<Open>,
    reason: String,
    limit_reported: bool,
}

/// A call whose arguments come value by value.
#[derive(Debug)]
struct Open {
    name: String,
    id: String,
    call: Call,
    writer: Writer,
    /// A value could not be written.
    is_broken: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow, alias = "promptFeedback")]
    prompt_feedback: Option<&'a RawValue>,
    #[serde(borrow, alias = "usageMetadata")]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Some wrap the chunk in another object.
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Feedback<'a> {
    #[serde(borrow, alias = "blockReason")]
    block_reason: Option<&'a RawValue>,
    #[serde(borrow, alias = "blockReasonMessage")]
    block_reason_message: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Candidate<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow, alias = "finishReason")]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow, alias = "finishMessage")]
    finish_message: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Option<Vec<Part<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    thought: Option<bool>,
    #[serde(borrow, alias = "functionCall")]
    function_call: Option<&'a RawValue>,
    #[serde(borrow, alias = "thoughtSignature")]
    thought_signature: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FunctionCall<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow, alias = "partialArgs")]
    partial_args: Option<Vec<PartialArg<'a>>>,
    #[serde(alias = "willContinue")]
    will_continue: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialArg<'a> {
    #[serde(borrow, alias = "jsonPath")]
    json_path: Option<&'a RawValue>,
    #[serde(borrow, alias = "stringValue")]
    string_value: Option<&'a RawValue>,
    #[serde(borrow, alias = "numberValue")]
    number_value: Option<&'a RawValue>,
    #[serde(alias = "boolValue")]
    bool_value: Option<bool>,
    #[serde(alias = "willContinue")]
    will_continue: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireUsage {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl Provider for Gemini {
    fn read(&mut self, name: &str, json: &str, out: &mut Out<'_>) -> serde_json::Result<()> {
        let mut chunk: Chunk<'_> = serde_json::from_str(json)?;
        if let (None, Some(inner)) = (&chunk.candidates, chunk.response) {
            chunk = serde_json::from_str(inner.get())?;
        }
        if let Some(error) = failure(chunk.error) {
            out.upstream(&error);
        } else if name == "error" {
            out.upstream(json);
        }
        for candidate in chunk.candidates.iter().flatten() {
            if number(candidate.index).unwrap_or_default() == 0 {
                self.candidate(candidate, out);
            }
        }
        let feedback: Feedback<'_> = part(chunk.prompt_feedback);
        let blocked = text(feedback.block_reason);
        if !blocked.is_empty() {
            // A refused prompt has no answer, so that it must not look like an empty one.
            if self.reason != BLOCKED {
                let message = text(feedback.block_reason_message);
                let why = if message.is_empty() { &blocked } else { &message };
                out.upstream(&format!("the prompt was blocked: {why}"));
            }
            self.stop(BLOCKED);
        }
        if let Some(usage) = chunk.usage_metadata
            && let Ok(usage) = serde_json::from_str::<WireUsage>(usage.get())
        {
            out.reported.usage = Some(usage.into());
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<'_>) {
        // A model that stopped normally is finished, even if the end of a call is missing.
        self.end(if self.reason == "STOP" { End::Said } else { End::Cut }, out);
        let reason = match self.reason.as_str() {
            "" => return,
            "STOP" => out.stopped(),
            "MAX_TOKENS" => FinishReason::Length,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION"
            | "MODEL_ARMOR" => FinishReason::ContentFilter,
            "MALFORMED_FUNCTION_CALL" => FinishReason::Error,
            other => FinishReason::Other(other),
        };
        out.finish(reason);
    }
}

/// The finish reason of an answer to a blocked prompt.
const BLOCKED: &str = "PROHIBITED_CONTENT";

impl Gemini {
    fn candidate(&mut self, candidate: &Candidate<'_>, out: &mut Out<'_>) {
        let content = candidate.content.as_ref();
        for part in content.and_then(|content| content.parts.as_ref()).into_iter().flatten() {
            self.part(part, out);
        }
        let reason = text(candidate.finish_reason);
        if reason == "MALFORMED_FUNCTION_CALL" && self.reason != reason {
            let message = text(candidate.finish_message);
            let detail =
                if message.is_empty() { "the model wrote no valid call" } else { &message };
            out.error(ErrorKind::MalformedCall, detail);
        }
        self.stop(&reason);
    }

    fn part(&mut self, part: &Part<'_>, out: &mut Out<'_>) {
        let (said, signature) = (text(part.text), text(part.thought_signature));
        if part.thought == Some(true) {
            out.reasoning(&said);
        } else {
            out.text(&said);
        }
        match part.function_call {
            Some(raw) => match serde_json::from_str(raw.get()) {
                Ok(call) => self.call(&call, &signature, out),
                Err(_) => out.error(ErrorKind::MalformedCall, raw.get()),
            },
            None => out.signature(&signature),
        }
    }

    fn call(&mut self, wire: &FunctionCall<'_>, signature: &str, out: &mut Out<'_>) {
        let (name, id) = (text(wire.name), word(wire.id));
        let goes_on = self.open.as_ref().is_some_and(|open| {
            (name.is_empty() || name == open.name) && (id.is_empty() || id == open.id)
        });
        if !name.is_empty() && !goes_on {
            // The name of the next call ends the one before.
            self.end(End::Said, out);
            if out.reported.calls as usize >= CALLS_MAX {
                if !self.limit_reported {
                    self.limit_reported = true;
                    out.error(ErrorKind::Limit, "the answer has too many calls");
                }
                return;
            }
            if name.len() > NAME_BYTES_MAX || id.len() > NAME_BYTES_MAX {
                return out.error(ErrorKind::Limit, "the name or the id of a call is too long");
            }
            let some_id = (!id.is_empty()).then_some(&*id);
            let signature = (!signature.is_empty()).then_some(signature);
            let mut call = Call::start(&name, some_id, signature, out);
            call.args(&arguments(wire.args), out);
            let (name, id) = (name.into_owned(), id.into_owned());
            self.open = Some(Open { name, id, call, writer: Writer::default(), is_broken: false });
        } else if !goes_on {
            // A repeated end carries no information.
            if wire.args.is_some() || wire.partial_args.is_some() {
                out.error(ErrorKind::MalformedCall, "a call has no name");
            }
            return;
        } else {
            out.signature(signature);
        }
        if let Some(open) = &mut self.open {
            wire.partial_args.iter().flatten().for_each(|arg| open.value(arg, out));
        }
        if wire.will_continue != Some(true) {
            self.end(End::Said, out);
        }
    }

    fn end(&mut self, end: End, out: &mut Out<'_>) {
        let Some(Open { mut call, mut writer, is_broken, .. }) = self.open.take() else { return };
        if end == End::Said && !is_broken {
            let mut json = String::new();
            writer.finish(&mut json);
            call.args(&json, out);
        }
        call.end(if is_broken { End::Broken } else { end }, out);
    }

    /// Keeps a finish reason, unless a worse one is known.
    fn stop(&mut self, reason: &str) {
        if self.reason.is_empty() || !matches!(reason, "" | "STOP") {
            reason.clone_into(&mut self.reason);
        }
    }
}

impl Open {
    fn value(&mut self, arg: &PartialArg<'_>, out: &mut Out<'_>) {
        if self.is_broken {
            return;
        }
        let string = text(arg.string_value);
        let value = match arg {
            PartialArg { string_value: Some(_), .. } => Value::Text(&string),
            PartialArg { number_value: Some(raw), .. } => Value::Raw(raw.get()),
            PartialArg { bool_value: Some(true), .. } => Value::Raw("true"),
            PartialArg { bool_value: Some(false), .. } => Value::Raw("false"),
            // `nullValue` is the only one left, and it has no value.
            _ => Value::Missing,
        };
        let (path, goes_on) = (text(arg.json_path), arg.will_continue == Some(true));
        let mut json = String::new();
        let (kind, detail) = match self.writer.value(&path, value, goes_on, &mut json) {
            Ok(()) => return self.call.args(&json, out),
            Err(Misplaced::Path) => (ErrorKind::MalformedCall, "the path of an argument is none"),
            Err(Misplaced::Again) => (ErrorKind::DuplicateKey, "an argument came twice"),
            Err(Misplaced::Limit) => (ErrorKind::Limit, "the path of an argument is too long"),
        };
        self.is_broken = true;
        out.error(kind, detail);
    }
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let count = |count: Option<u64>| count.unwrap_or_default();
        let thoughts = count(wire.thoughts_token_count);
        Self {
            input_tokens: count(wire.prompt_token_count)
                .saturating_add(count(wire.tool_use_prompt_token_count)),
            cached_input_tokens: count(wire.cached_content_token_count),
            cache_write_input_tokens: 0,
            output_tokens: count(wire.candidates_token_count).saturating_add(thoughts),
            reasoning_output_tokens: thoughts,
        }
    }
}
