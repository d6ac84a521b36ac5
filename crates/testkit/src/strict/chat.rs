//! The rules for `messages` of Chat Completions.

use serde_json::Value;

use super::{At, DETAILS, NAME_CHARS_MAX, Refusal};

/// Checks the history of a request.
pub(super) fn check(body: &Value) -> Result<(), Refusal> {
    let messages = At::root(body).required("messages")?.list()?;
    // Calls of the previous message without an output.
    let mut waiting: Vec<&str> = Vec::new();
    for message in &messages {
        let role = message.required("role")?.one_of(&["system", "user", "assistant", "tool"])?;
        if role == "tool" {
            message.only(&["role", "tool_call_id", "content"])?;
            let id = message.required("tool_call_id")?;
            let text = id.text()?;
            let Some(at) = waiting.iter().position(|waiting| *waiting == text) else {
                return id.refuse("A message of a tool must follow the message with its call.");
            };
            waiting.swap_remove(at);
            message.required("content")?.text()?;
            continue;
        }
        if let Some(id) = waiting.first() {
            return message.refuse(format!("No message of a tool answers the call {id}."));
        }
        match role {
            "assistant" => waiting = assistant(message)?,
            "user" => user(message)?,
            _ => {
                message.only(&["role", "content"])?;
                message.required("content")?.words()?;
            }
        }
    }
    match waiting.first() {
        Some(id) => At::root(body).refuse(format!("No message of a tool answers the call {id}.")),
        None => Ok(()),
    }
}

/// Checks a message of the model and returns the ids of its calls.
fn assistant<'a>(message: &At<'a>) -> Result<Vec<&'a str>, Refusal> {
    message.only(&["role", "content", "tool_calls"])?;
    let content = message.field("content");
    if let Some(content) = &content {
        content.words()?;
    }
    let Some(calls) = message.field("tool_calls") else {
        if content.is_none() {
            return message.refuse("A message must have content or calls.");
        }
        return Ok(Vec::new());
    };
    let mut ids = Vec::new();
    for call in calls.list()? {
        call.only(&["id", "type", "function"])?;
        call.required("type")?.one_of(&["function"])?;
        let function = call.required("function")?;
        function.required("name")?.word(NAME_CHARS_MAX)?;
        function.required("arguments")?.arguments()?;
        let id = call.required("id")?;
        let text = id.short(ID_CHARS_MAX)?;
        if ids.contains(&text) {
            return id.refuse(format!("Duplicate call id {text}."));
        }
        ids.push(text);
    }
    if ids.is_empty() {
        return calls.refuse("Invalid array: must not be empty.");
    }
    Ok(ids)
}

fn user(message: &At<'_>) -> Result<(), Refusal> {
    message.only(&["role", "content"])?;
    let content = message.required("content")?;
    if content.value.is_string() {
        return content.words().map(drop);
    }
    let parts = content.list()?;
    if parts.is_empty() {
        return content.refuse("Invalid array: must not be empty.");
    }
    for part in parts {
        match part.required("type")?.one_of(&["text", "image_url"])? {
            "text" => drop(part.required("text")?.words()?),
            _ => {
                let image = part.required("image_url")?;
                image.required("url")?.image()?;
                if let Some(detail) = image.field("detail") {
                    detail.one_of(DETAILS)?;
                }
            }
        }
    }
    Ok(())
}

const ID_CHARS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::super::Strict;
    use serde_json::{Value, json};

    /// Checks a history; `want` is part of the error, or empty if it is accepted.
    #[track_caller]
    fn check(messages: Value, want: &str) {
        let got = Strict::default().check(&json!({ "messages": messages }));
        let got = got.err().map(|error| error.to_string()).unwrap_or_default();
        let fits = if want.is_empty() { got.is_empty() } else { got.contains(want) };
        assert!(fits, "want {want:?} got {got:?}");
    }

    fn calls(ids: &[&str], arguments: &str) -> Value {
        let function = json!({ "name": "f", "arguments": arguments });
        let call = |id: &&str| json!({ "id": id, "type": "function", "function": function });
        let calls: Vec<_> = ids.iter().map(call).collect();
        json!({ "role": "assistant", "content": null, "tool_calls": calls })
    }

    fn tool(id: &str) -> Value {
        json!({ "role": "tool", "tool_call_id": id, "content": "" })
    }

    fn user(content: Value) -> Value {
        json!({ "role": "user", "content": content })
    }

    #[test]
    fn messages() {
        check(json!([user(json!("hi")), { "role": "assistant", "content": "a" }]), "");
        check(json!([user(json!(" "))]), "messages[0].content");
        check(json!([user(json!([]))]), "must not be empty");
        check(json!([user(json!([{ "type": "text", "text": "a" }]))]), "");
        check(json!([{ "role": "assistant", "content": null }]), "content or calls");
        check(json!([{ "role": "developer", "content": "a" }]), "role");
        let image = json!([{ "type": "image_url", "image_url": { "url": "data:x" } }]);
        check(json!([user(image)]), "URL");
    }

    #[test]
    fn outputs_follow_their_calls() {
        check(json!([calls(&["a", "b"], "{}"), tool("b"), tool("a")]), "");
        check(json!([calls(&["a"], "{}")]), "answers the call a");
        check(json!([calls(&["a"], "{}"), user(json!("x")), tool("a")]), "messages[1]");
        check(json!([calls(&["a", "b"], "{}"), tool("a"), calls(&["c"], "{}")]), "call b");
        check(json!([tool("a")]), "must follow");
        check(json!([calls(&["a"], "{}"), tool("a"), tool("a")]), "must follow");
        check(json!([calls(&["a", "a"], "{}")]), "Duplicate");
        check(json!([calls(&[], "{}")]), "must not be empty");
        check(json!([calls(&["a"], "1")]), "not an object");
        check(json!([calls(&[&"x".repeat(41)], "{}")]), "too long");
    }
}
