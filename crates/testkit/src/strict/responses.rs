//! The rules for `input` of the Responses API.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{At, DETAILS, NAME_CHARS_MAX, Refusal, Strict};

/// Checks the history of a request.
pub(super) fn check(rules: &Strict, body: &Value) -> Result<(), Refusal> {
    let items = At::root(body).required("input")?.list()?;
    let mut seen = Seen::default();
    for item in &items {
        seen.item(rules, item)?;
    }
    seen.finish(&items)
}

/// State from the items so far.
#[derive(Default)]
struct Seen<'a> {
    ids: HashSet<&'a str>,
    /// Calls by id: their kind, and whether their output has come.
    calls: HashMap<&'a str, (Call, bool)>,
    /// Reasoning without the item that should follow it.
    reasoning: Option<At<'a>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Call {
    Function,
    Custom,
}

impl<'a> Seen<'a> {
    fn item(&mut self, rules: &Strict, item: &At<'a>) -> Result<(), Refusal> {
        let kind = match item.field("type") {
            Some(kind) => kind.text()?,
            None => return item.refuse("Missing required parameter: 'type'."),
        };
        if let Some(id) = item.field("id") {
            let text = id.word(ID_CHARS_MAX)?;
            if !self.ids.insert(text) {
                return id.refuse(format!("Duplicate item found with id {text}."));
            }
            if let Some(reasoning) = rules.requires.get(text)
                && !self.ids.contains(reasoning.as_str())
            {
                return id.refuse(format!(
                    "Item '{text}' of type '{kind}' was provided without its required 'reasoning' \
                     item: '{reasoning}'."
                ));
            }
        }
        let told = match kind {
            "message" => message(item)?,
            "reasoning" => {
                reasoning(rules, item)?;
                self.reasoning = Some(item.clone());
                return Ok(());
            }
            "function_call" => {
                item.only(&["type", "id", "namespace", "name", "arguments", "call_id", "status"])?;
                if let Some(namespace) = item.field("namespace") {
                    namespace.word(NAME_CHARS_MAX)?;
                }
                item.required("arguments")?.arguments()?;
                self.call(item, Call::Function)?
            }
            "custom_tool_call" => {
                item.only(&["type", "id", "call_id", "name", "input", "status"])?;
                item.required("input")?.text()?;
                self.call(item, Call::Custom)?
            }
            "function_call_output" => self.output(item, Call::Function)?,
            "custom_tool_call_output" => self.output(item, Call::Custom)?,
            "web_search_call" => {
                item.only(&["type", "id", "status", "action"])?;
                if let Some(status) = item.field("status") {
                    status.one_of(&["in_progress", "searching", "completed", "failed"])?;
                }
                if let Some(action) = item.field("action") {
                    action.required("type")?.text()?;
                }
                false
            }
            kind => return item.refuse(format!("Invalid value: '{kind}'.")),
        };
        if told {
            self.no_reasoning()?;
        }
        self.reasoning = None;
        Ok(())
    }

    fn call(&mut self, item: &At<'a>, kind: Call) -> Result<bool, Refusal> {
        item.required("name")?.word(NAME_CHARS_MAX)?;
        let id = item.required("call_id")?;
        let text = id.short(ID_CHARS_MAX)?;
        if self.calls.insert(text, (kind, false)).is_some() {
            return id.refuse(format!("Duplicate call_id {text}."));
        }
        Ok(false)
    }

    fn output(&mut self, item: &At<'a>, kind: Call) -> Result<bool, Refusal> {
        item.only(&["type", "id", "call_id", "output", "status"])?;
        let id = item.required("call_id")?;
        let text = id.text()?;
        match self.calls.get_mut(text) {
            Some((of, has_output @ false)) if *of == kind => *has_output = true,
            Some((_, true)) => return id.refuse(format!("Second output of call {text}.")),
            _ => {
                return id.refuse(format!("No tool call found for output with call_id {text}."));
            }
        }
        let output = item.required("output")?;
        if output.value.is_array() {
            let parts = output.list()?;
            if parts.is_empty() {
                return output.refuse("Invalid array: must not be empty.");
            }
            parts.iter().try_for_each(|item| part(item, &["input_text", "input_image"]))?;
        } else {
            output.text()?;
        }
        Ok(true)
    }

    fn no_reasoning(&self) -> Result<(), Refusal> {
        match &self.reasoning {
            Some(item) => item.refuse(
                "Item of type 'reasoning' was provided without its required following item.",
            ),
            None => Ok(()),
        }
    }

    fn finish(&self, items: &[At<'a>]) -> Result<(), Refusal> {
        self.no_reasoning()?;
        for item in items {
            let id = item.value.get("call_id").and_then(Value::as_str);
            if let Some(id) = id.filter(|id| matches!(self.calls.get(id), Some((_, false)))) {
                return item.refuse(format!("No tool output found for function call {id}."));
            }
        }
        Ok(())
    }
}

/// Checks a message; returns whether it is addressed to the model.
fn message(item: &At<'_>) -> Result<bool, Refusal> {
    item.only(&["type", "id", "role", "content", "phase", "status"])?;
    let role = item.required("role")?.one_of(&["user", "assistant", "system", "developer"])?;
    let from_model = role == "assistant";
    if let Some(phase) = item.field("phase") {
        phase.one_of(&["commentary", "final_answer"])?;
        if !from_model {
            return phase.refuse("Unknown parameter: 'phase'.");
        }
    }
    let content = item.required("content")?;
    let parts = content.list()?;
    if parts.is_empty() {
        return content.refuse("Invalid array: must not be empty.");
    }
    let kinds: &[&str] = match role {
        "assistant" => &["output_text", "refusal"],
        "user" => &["input_text", "input_image"],
        _ => &["input_text"],
    };
    parts.iter().try_for_each(|item| part(item, kinds))?;
    Ok(!from_model)
}

fn part(part: &At<'_>, kinds: &[&str]) -> Result<(), Refusal> {
    match part.required("type")?.one_of(kinds)? {
        "refusal" => {
            part.only(&["type", "refusal"])?;
            part.required("refusal")?.words()?;
        }
        "input_image" => {
            part.only(&["type", "image_url", "detail"])?;
            part.required("image_url")?.image()?;
            if let Some(detail) = part.field("detail") {
                detail.one_of(DETAILS)?;
            }
        }
        _ => {
            part.only(&["type", "text", "annotations", "logprobs"])?;
            part.required("text")?.words()?;
        }
    }
    Ok(())
}

fn reasoning(rules: &Strict, item: &At<'_>) -> Result<(), Refusal> {
    item.only(&["type", "id", "summary", "content", "encrypted_content", "status"])?;
    for part in item.required("summary")?.list()? {
        part.only(&["type", "text"])?;
        part.required("type")?.one_of(&["summary_text"])?;
        part.required("text")?.text()?;
    }
    let content = match item.field("content") {
        Some(content) => content.list()?,
        None => Vec::new(),
    };
    for part in &content {
        part.only(&["type", "text"])?;
        part.required("type")?.one_of(&["reasoning_text", "text"])?;
        part.required("text")?.text()?;
    }
    let Some(sealed) = item.field("encrypted_content") else {
        if content.is_empty() {
            return item.refuse("Item not found. Items are not persisted when `store` is false.");
        }
        return Ok(());
    };
    let text = sealed.words()?;
    if rules.sealed_by.as_ref().is_some_and(|own| !text.starts_with(own.as_str())) {
        return sealed.refuse("The encrypted content could not be verified.");
    }
    Ok(())
}

const ID_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::Strict;
    use serde_json::{Value, json};

    /// Checks a history; `want` is part of the error, or empty if it is accepted.
    #[track_caller]
    fn check(items: Value, want: &str) {
        let rules = Strict {
            sealed_by: Some("own:".to_owned()),
            requires: [("fc_1".to_owned(), "rs_1".to_owned())].into(),
            ..Strict::default()
        };
        let got = rules.check(&json!({ "model": "m", "input": items }));
        let got = got.err().map(|error| error.to_string()).unwrap_or_default();
        let fits = if want.is_empty() { got.is_empty() } else { got.contains(want) };
        assert!(fits, "want {want:?} got {got:?}");
    }

    fn user(text: &str) -> Value {
        json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] })
    }

    fn said(part: Value) -> Value {
        json!({ "type": "message", "role": "assistant", "content": [part] })
    }

    fn call(id: &str) -> Value {
        json!({ "type": "function_call", "name": "f", "arguments": "{}", "call_id": id })
    }

    fn output(id: &str) -> Value {
        json!({ "type": "function_call_output", "call_id": id, "output": "" })
    }

    fn with(mut item: Value, key: &str, value: Value) -> Value {
        item[key] = value;
        item
    }

    fn thought(sealed: Value) -> Value {
        json!({ "type": "reasoning", "id": "rs_1", "summary": [], "content": null, "encrypted_content": sealed })
    }

    #[test]
    fn messages() {
        check(json!([]), "");
        check(json!([user("hi"), said(json!({ "type": "output_text", "text": "a" }))]), "");
        check(json!([said(json!({ "type": "refusal", "refusal": "no" }))]), "");
        check(json!([user("")]), "input[0].content[0].text");
        check(json!([with(user("a"), "role", json!("tool"))]), "input[0].role");
        check(json!([with(user("a"), "extra", json!(1))]), "Unknown parameter: 'extra'");
        check(json!([with(user("a"), "content", json!([]))]), "must not be empty");
        check(json!([with(user("a"), "id", json!("a b"))]), "input[0].id");
        check(json!([with(user("a"), "phase", json!("commentary"))]), "phase");
        check(json!([said(json!({ "type": "input_text", "text": "a" }))]), "content[0].type");
        check(json!([{ "role": "user" }]), "'type'");
        check(json!([{ "type": "new" }]), "Invalid value: 'new'");
        let twice = with(user("a"), "id", json!("m"));
        check(json!([twice, twice]), "Duplicate item");
    }

    #[test]
    fn calls() {
        check(json!([call("a"), call("b"), output("b"), output("a")]), "");
        check(json!([call("a"), user("x"), output("a")]), "");
        check(json!([call("a")]), "No tool output found");
        check(json!([output("a")]), "No tool call found");
        check(json!([output("a"), call("a")]), "No tool call found");
        check(json!([call("a"), output("a"), output("a")]), "Second output");
        check(json!([call("a"), call("a"), output("a")]), "Duplicate call_id");
        check(json!([call("")]), "call_id");
        check(json!([call(&"x".repeat(65))]), "too long");
        check(json!([with(call("a"), "name", json!("a.b"))]), "pattern");
        check(json!([with(call("a"), "arguments", json!("{"))]), "Invalid arguments");
        check(json!([with(call("a"), "arguments", json!("[]"))]), "not an object");
        let custom =
            json!({ "type": "custom_tool_call", "name": "p", "input": "", "call_id": "a" });
        check(json!([custom, output("a")]), "No tool call found");
        check(json!([custom, with(output("a"), "type", json!("custom_tool_call_output"))]), "");
        check(json!([call("a"), with(output("a"), "output", json!([]))]), "must not be empty");
        check(json!([call("a"), with(output("a"), "output", json!({}))]), "a string");
    }

    #[test]
    fn images() {
        let look = |url: &str| {
            json!([with(
                user("a"),
                "content",
                json!([{ "type": "input_image", "image_url": url }])
            )])
        };
        check(look("https://example.com/a.png"), "");
        check(look("data:image/png;base64,iVBORw0KGgo="), "");
        check(look("data:image/jpeg;base64,iVBORw0KGgo="), "no jpeg");
        check(look("data:image/png;base64,iVBORw0KGgo"), "not base64");
        check(look("data:image/tiff;base64,iVBORw0KGgo="), "URL");
        check(look("file:///a.png"), "URL");
    }

    #[test]
    fn reasoning() {
        let said = said(json!({ "type": "output_text", "text": "a" }));
        check(json!([thought(json!("own:1")), said]), "");
        check(json!([thought(json!("own:1"))]), "following item");
        check(json!([thought(json!("own:1")), user("a")]), "following item");
        check(json!([thought(json!("other:1")), said]), "could not be verified");
        check(json!([thought(Value::Null), said]), "not persisted");
        let content = json!([{ "type": "reasoning_text", "text": "hm" }]);
        check(json!([with(thought(Value::Null), "content", content), said]), "");
        let named = with(call("a"), "id", json!("fc_1"));
        check(json!([thought(json!("own:1")), named, output("a")]), "");
        check(json!([named, output("a")]), "without its required 'reasoning'");
    }
}
