//! Errors in a request are reported with the path of the field.

use prompt::refusal::Refusal;
use prompt::reply::Api::{self, Chat, Responses};
use prompt::request::{
    DEPTH_MAX, ITEMS_MAX, Input, METADATA_BYTES_MAX, METADATA_MAX, NAME_BYTES_MAX, PARTS_MAX,
    REQUEST_BYTES_MAX, SCHEMA_BYTES_MAX, STOPS_MAX, TOOLS_MAX,
};
use protocol::error::ErrorClass;
use serde_json::{Value, json};
use stream::failure::{self, WireError};

use crate::read;

#[track_caller]
fn check_body(api: Api, body: &str, param: Option<&str>, words: &str) {
    let refusal = read(api, body.as_bytes()).expect_err("it is refused");
    let Refusal::Invalid { message, param: got } = &refusal else { panic!("{refusal:?}") };
    assert_eq!(got.as_deref(), param, "{message}");
    assert!(message.contains(words), "{message} lacks {words}");
    assert_eq!(refusal.status(), 400);
}

/// Checks a request that is valid except for these fields.
#[track_caller]
fn check(api: Api, fields: Value, param: &str, words: &str) {
    let mut body = match api {
        Responses => json!({"model": "m", "input": "hi"}),
        Chat => json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    };
    read(api, body.to_string().as_bytes()).expect("fine");
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    check_body(api, &body.to_string(), Some(param), words);
}

#[test]
fn bodies() {
    for api in [Responses, Chat] {
        check_body(api, "", None, "not JSON");
        check_body(api, "{", None, "not JSON");
        check_body(api, "{} {}", None, "not JSON");
        check_body(api, "[]", None, "the body must be an object, not a list");
        check_body(api, "null", None, "not null");
        check_body(api, r#"{"model":"a","model":"b"}"#, None, "duplicate field");
        check_body(api, "{}", Some("model"), "is missing");
        check_body(api, r#"{"model":null}"#, Some("model"), "is missing");
        check_body(api, r#"{"model":""}"#, Some("model"), "empty");
        check_body(api, r#"{"model":"\ud800"}"#, Some("model"), "cannot be read");
        let deep = format!(r#"{{"model":"m","x":{}1{}}}"#, "[".repeat(9999), "]".repeat(9999));
        let missing = if api == Chat { "messages" } else { "input" };
        check_body(api, &deep, Some(missing), "is missing");
        let refusal = read(api, b"{\"model\":\"\xff\"}").expect_err("not UTF-8");
        assert!(refusal.to_string().contains("utf-8"), "{refusal}");
    }
}

#[test]
fn fields_of_the_responses_api() {
    let check = |fields, param, words| check(Responses, fields, param, words);
    check(json!({"model": 1}), "model", "a string, not this number");
    check(json!({"input": 1}), "input", "a list");
    check(json!({"input": []}), "input", "nothing to answer");
    check(json!({"input": ["x"]}), "input[0]", "an object, not a string");
    check(json!({"input": [{}]}), "input[0].type", "is missing");
    check(json!({"input": [{"type": "hologram"}]}), "input[0].type", "`hologram` is unknown");
    check(json!({"input": [{"type": 3}]}), "input[0].type", "a string");
    check(json!({"input": [{"role": "king", "content": "x"}]}), "input[0].role", "`king`");
    check(json!({"input": [{"role": "user"}]}), "input[0].content", "is missing");
    check(json!({"input": [{"role": "user", "content": 1}]}), "input[0].content", "parts");
    check(
        json!({"input": [{"role": "user", "content": [{"type": "smell"}]}]}),
        "input[0].content[0].type",
        "`smell`",
    );
    check(
        json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]}),
        "input[0].content[0].text",
        "a string",
    );
    let call = json!({"type": "function_call", "name": "f", "call_id": "c"});
    check(json!({"input": [call]}), "input[0].arguments", "is missing");
    let call = json!({"type": "function_call", "name": "f", "arguments": "{}"});
    check(json!({"input": [call]}), "input[0].call_id", "is missing");
    let call = json!({"type": "function_call", "name": "f", "call_id": "c", "arguments": {}});
    check(json!({"input": [call]}), "input[0].arguments", "a string, not an object");
    let output = json!({"type": "function_call_output", "call_id": "c"});
    check(json!({"input": [output]}), "input[0].output", "is missing");
    check(json!({"instructions": []}), "instructions", "a string");
    check(json!({"previous_response_id": "resp_1"}), "previous_response_id", "whole `input`");
    check(json!({"conversation": {"id": "c"}}), "conversation", "whole `input`");
    check(json!({"prompt": {"id": "p"}}), "prompt", "stored");
    check(json!({"input": [{"id": "msg_1"}]}), "input[0]", "whole `input`");
    let reference = json!({"type": "item_reference", "id": "msg_1"});
    check(json!({"input": [{"role": "user", "content": "x"}, reference]}), "input[1]", "whole");
    check(json!({"background": true}), "background", "leave it out");
    check(json!({"truncation": "auto"}), "truncation", "in silence");
    check(json!({"truncation": "some"}), "truncation", "`some`");
    check(json!({"top_logprobs": 2}), "top_logprobs", "leave it out");
    check(json!({"include": ["message.output_text.logprobs"]}), "include[0]", "leave it out");
    check(json!({"max_output_tokens": 0}), "max_output_tokens", "from 1");
    check(json!({"max_output_tokens": 1.5}), "max_output_tokens", "an integer");
    check(json!({"max_output_tokens": 5_000_000_000_u64}), "max_output_tokens", "from 1 to");
    check(json!({"temperature": 2.1}), "temperature", "from 0 to 2");
    check(json!({"temperature": "warm"}), "temperature", "a number, not a string");
    check(json!({"top_p": -0.1}), "top_p", "from 0 to 1");
    check(json!({"stream": "yes"}), "stream", "a boolean");
    check(json!({"store": 1}), "store", "a boolean");
    check(json!({"parallel_tool_calls": 1}), "parallel_tool_calls", "a boolean");
    check(json!({"metadata": {"a": 1}}), "metadata", "strings");
    check(json!({"metadata": []}), "metadata", "an object");
    check(json!({"reasoning": {"effort": "heroic"}}), "reasoning.effort", "`heroic`");
    check(json!({"reasoning": "high"}), "reasoning", "an object");
    check(json!({"text": {"format": {"type": "xml"}}}), "text.format.type", "`xml`");
    check(json!({"text": {"format": {"type": "json_schema"}}}), "text.format.schema", "missing");
    let format = json!({"type": "json_schema", "schema": []});
    check(json!({"text": {"format": format}}), "text.format.schema", "an object");
}

#[test]
fn tools_of_the_responses_api() {
    let tool = |more: Value| {
        let mut tool = json!({"type": "function", "name": "f", "parameters": {}});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"tools": [tool]})
    };
    let check = |fields, param, words| check(Responses, fields, param, words);
    check(json!({"tools": {}}), "tools", "a list");
    check(json!({"tools": [{}]}), "tools[0].type", "is missing");
    check(tool(json!({"name": null})), "tools[0].name", "is missing");
    check(tool(json!({"name": "a b"})), "tools[0].name", "letters");
    check(tool(json!({"name": "a.b"})), "tools[0].name", "letters");
    check(tool(json!({"parameters": "x"})), "tools[0].parameters", "an object");
    check(tool(json!({"strict": "x"})), "tools[0].strict", "a boolean");
    check(tool(json!({"description": 1})), "tools[0].description", "a string");
    let custom = |format: Value| tool(json!({"type": "custom", "format": format}));
    check(custom(json!({"type": "bnf"})), "tools[0].format.type", "`bnf`");
    check(custom(json!({"type": "grammar"})), "tools[0].format.definition", "is missing");
    let grammar = json!({"type": "grammar", "definition": "x", "syntax": "bnf"});
    check(custom(grammar), "tools[0].format.syntax", "`bnf`");
    let grammar = json!({"type": "grammar", "definition": "start: %json {}", "syntax": "lark"});
    check(custom(grammar), "tools[0].format.definition", "offer a function");
    let one = tool(json!({}))["tools"][0].clone();
    check(json!({"tools": [one, one]}), "tools[1].name", "another tool");
    let space = json!({"type": "namespace", "name": "n", "tools": [one, {"type": "function"}]});
    check(json!({"tools": [space]}), "tools[0].tools[1].name", "is missing");
    let choose = |choice: Value| json!({"tools": [one], "tool_choice": choice});
    check(choose(json!("maybe")), "tool_choice", "`maybe`");
    check(choose(json!(1)), "tool_choice", "an object");
    check(
        choose(json!({"type": "function", "name": "g"})),
        "tool_choice.name",
        "does not name a tool",
    );
    check(choose(json!({"type": "web_search_preview"})), "tool_choice.type", "is not supported");
    let allowed = json!({"type": "allowed_tools", "mode": "none", "tools": []});
    check(choose(allowed), "tool_choice.mode", "`none`");
    let allowed = json!({"type": "allowed_tools", "mode": "auto",
        "tools": [{"type": "function", "name": "g"}]});
    check(choose(allowed), "tool_choice.tools[0].name", "does not name a tool");
    check(json!({"tool_choice": "required"}), "tool_choice", "nothing to call");
    let search = json!({"tools": [{"type": "web_search"}], "tool_choice": "required"});
    check(search, "tool_choice", "`web_search` is not available");
}

/// Unsupported schemas are reported before a grammar is built.
#[test]
fn schemas() {
    let long = "é".repeat(60);
    let check = |schema: Value, at: &str, words: &str| {
        let tool = json!({"type": "function", "name": "f", "parameters": schema, "strict": true});
        check(Responses, json!({"tools": [tool]}), &format!("tools[0].parameters{at}"), words);
        let format = json!({"type": "json_schema", "schema": schema});
        check(
            Responses,
            json!({"text": {"format": format}}),
            &format!("text.format.schema{at}"),
            words,
        );
        let format = json!({"type": "json_schema", "json_schema": {"schema": schema}});
        let at = format!("response_format.json_schema.schema{at}");
        super::refused::check(Chat, json!({ "response_format": format }), &at, words);
    };
    for (key, words) in [
        ("minimum", "a number"),
        ("maximum", "a number"),
        ("exclusiveMinimum", "a number"),
        ("exclusiveMaximum", "a number"),
        ("multipleOf", "a number from"),
        ("minLength", "a whole number"),
        ("maxItems", "a whole number"),
        ("required", "a list of strings"),
        ("prefixItems", "a list"),
        ("anyOf", "a list"),
        ("enum", "a list"),
        ("properties", "an object"),
        ("patternProperties", "an object"),
        ("items", "a schema"),
        ("additionalProperties", "a schema"),
        ("type", "one or a list of `string`"),
        ("uniqueItems", "is not supported"),
    ] {
        let schema = json!({"properties": {"a": {"anyOf": [{key: long}]}}});
        check(schema, &format!(".properties.a.anyOf[0].{key}"), words);
    }
    for key in ["pattern", "$ref", "$anchor"] {
        check(json!({key: [long]}), &format!(".{key}"), "a string");
    }
    check(json!({"required": ["a", [long]]}), ".required", "a list of strings");
    check(json!({"multipleOf": 0}), ".multipleOf", "from");
    check(json!({"multipleOf": 1e-300}), ".multipleOf", "from");
    check(json!({"items": {"$id": "a"}}), ".items.$id", "is not supported");
    check(json!({"not": {"type": "null"}}), ".not", "is not supported");
    check(json!({"$ref": "#/$defs/a"}), ".$ref", "leads nowhere");
    for elsewhere in ["http://example.com/x", "file:///etc/passwd", "x.json#/$defs/a", "x"] {
        let defined = json!({"type": "integer"});
        check(
            json!({"$ref": elsewhere, "$defs": {"a": defined}}),
            ".$ref",
            "leads out of this schema",
        );
        let named =
            json!({"$id": "http://example.com/y", "$ref": elsewhere, "$defs": {"a": defined}});
        check(named, ".$ref", "leads out of this schema");
    }
    let endless = json!({"type": "array", "minItems": 1, "items": {"$ref": "#"}});
    check(endless, "", "has no end");
    // A reference can lead to something that is not a schema where it is.
    for reference in ["#/const", "#/%63onst"] {
        let schema = json!({"const": {"minimum": long}, "anyOf": [{"$ref": reference}]});
        check(schema, ".const.minimum", "a number");
    }
    let chain = |length: usize| {
        let next = |at: usize| json!({"$ref": format!("#/$defs/{}", at + 1)});
        let mut links: serde_json::Map<_, _> =
            (0..length).map(|at| (at.to_string(), next(at))).collect();
        links.insert(length.to_string(), json!({"type": "null"}));
        json!({ "$defs": links })
    };
    check(chain(257), ".$defs.256.$ref", "exceeds the limit of");
    let tool = json!({"type": "function", "name": "f", "parameters": chain(256)});
    let fine = json!({"model": "m", "input": "hi", "tools": [tool]}).to_string();
    read(Responses, fine.as_bytes()).expect("as many as can be");
}

/// A schema may refer to itself inside a value, but not for the same value.
#[test]
fn schemas_that_refer_to_themselves() {
    let format = |schema: &Value| json!({"text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}});
    let check = |schema: Value, at: &str| {
        let at = format!("text.format.schema{at}");
        check(Responses, format(&schema), &at, "refers to itself with nothing in between");
    };
    let fine = |schema: Value| {
        let mut body = format(&schema);
        body["model"] = "m".into();
        body["input"] = "hi".into();
        let read = read(Responses, body.to_string().as_bytes());
        assert!(read.is_ok(), "{schema}: {read:?}");
    };
    check(json!({"$ref": "#"}), ".$ref");
    check(json!({"$ref": "#", "type": "object"}), ".$ref");
    for key in ["allOf", "anyOf", "oneOf"] {
        check(json!({key: [{"$ref": "#"}]}), &format!(".{key}[0].$ref"));
        check(json!({key: [{"type": "null"}, {"$ref": "#"}]}), &format!(".{key}[1].$ref"));
    }
    let defs = |a: Value, b: Value| json!({"$ref": "#/$defs/a", "$defs": {"a": a, "b": b}});
    let to = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
    check(defs(to("b"), to("a")), ".$defs.a.$ref");
    check(defs(json!({"allOf": [to("b")]}), json!({"anyOf": [to("a")]})), ".$defs.a.allOf[0].$ref");
    // Unreachable, but present.
    check(json!({"$defs": {"a": to("a")}}), ".$defs.a.$ref");
    check(json!({"items": {"$anchor": "x", "$ref": "#x"}}), ".items.$ref");
    check(
        json!({"items": {"$ref": "#x"}, "$defs": {"a": {"$anchor": "x", "anyOf": [{"$ref": "#x"}]}}}),
        ".$defs.a.anyOf[0].$ref",
    );
    fine(json!({"type": "array", "items": {"$ref": "#"}}));
    fine(
        json!({"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}),
    );
    fine(defs(json!({"anyOf": [to("b"), to("b")]}), json!({"type": "array", "items": to("a")})));
    fine(
        json!({"items": {"$ref": "#x"}, "$defs": {"a": {"$anchor": "x", "items": {"$ref": "#x"}}}}),
    );
    // A schema with many paths through it is visited once.
    let step = |at: usize| {
        let next = to(&(at + 1).to_string());
        (at.to_string(), json!({"anyOf": [next, next, next]}))
    };
    let mut ways: serde_json::Map<_, _> = (0..200).map(step).collect();
    ways.insert("200".to_owned(), json!({"type": "null"}));
    fine(json!({"$ref": "#/$defs/0", "$defs": ways.clone()}));
    ways.insert("200".to_owned(), to("0"));
    check(json!({"$ref": "#/$defs/0", "$defs": ways}), ".$defs.0.anyOf[0].$ref");
}

/// Tools of many servers have such schemas, and validate their arguments themselves.
#[test]
fn tools_that_are_not_strict_are_constrained_as_far_as_possible() {
    let tags = json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true});
    let schema = json!({"type": "object", "properties": {"tags": tags}, "not": {"required": ["a"]},
        "if": {"required": ["tags"]}, "then": {"minProperties": 2}});
    let tool = |strict: Value| json!({"type": "function", "name": "f", "parameters": schema, "strict": strict});
    for loose in [json!(false), Value::Null] {
        let body = json!({"model": "m", "input": "hi", "tools": [tool(loose)]}).to_string();
        let request = read(Responses, body.as_bytes()).expect("taken");
        assert_eq!(request.tools[0].input, Input::Json(schema.clone()), "the model is told all");
    }
    let strict = json!({"tools": [tool(json!(true))]});
    check(Responses, strict, "tools[0].parameters.properties.tags.uniqueItems", "is not supported");
}

#[test]
fn fields_of_chat_completions() {
    let check = |fields, param, words| check(Chat, fields, param, words);
    let say = |message: Value| json!({"messages": [message]});
    check(json!({"messages": "hi"}), "messages", "a list");
    check(json!({"messages": []}), "messages", "nothing to answer");
    check(say(json!({})), "messages[0].role", "is missing");
    check(say(json!({"role": "king", "content": ""})), "messages[0].role", "`king`");
    check(say(json!({"role": "user"})), "messages[0].content", "is missing");
    check(say(json!({"role": "tool", "content": "x"})), "messages[0].tool_call_id", "missing");
    check(say(json!({"role": "function", "content": "x"})), "messages[0].name", "missing");
    check(say(json!({"role": "assistant"})), "messages", "nothing to answer");
    let calls = |call: Value| say(json!({"role": "assistant", "tool_calls": [call]}));
    check(calls(json!({"id": "c"})), "messages[0].tool_calls[0].function", "is missing");
    check(calls(json!({"id": "c", "type": "x"})), "messages[0].tool_calls[0].type", "`x`");
    let call = json!({"id": "c", "function": {"name": "f", "arguments": {}}});
    check(calls(call), "messages[0].tool_calls[0].function.arguments", "a string");
    check(json!({"n": 2}), "n", "can only be 1");
    check(json!({"n": 0}), "n", "from 1");
    check(json!({"logprobs": true}), "logprobs", "leave it out");
    check(json!({"top_logprobs": 1}), "top_logprobs", "leave it out");
    check(json!({"logit_bias": {"50256": -100}}), "logit_bias", "leave it out");
    check(json!({"logit_bias": []}), "logit_bias", "an object");
    check(json!({"frequency_penalty": 1}), "frequency_penalty", "leave it out");
    check(json!({"presence_penalty": 3}), "presence_penalty", "from -2 to 2");
    check(json!({"functions": []}), "functions", "send `tools`");
    check(json!({"modalities": ["text", "audio"]}), "modalities[1]", "only be `text`");
    check(json!({"stop": [""]}), "stop[0]", "empty");
    check(json!({"stop": 1}), "stop", "a list");
    check(json!({"seed": 1.5}), "seed", "an integer");
    check(json!({"max_tokens": 0}), "max_tokens", "from 1");
    check(json!({"max_completion_tokens": -1}), "max_completion_tokens", "from 1");
    check(json!({"stream_options": true}), "stream_options", "an object");
    check(json!({"reasoning_effort": 3}), "reasoning_effort", "a string");
    check(json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema", "");
    check(json!({"tools": [{"type": "function"}]}), "tools[0].function", "is missing");
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": 1}});
    check(json!({"tools": [tool]}), "tools[0].function.parameters", "an object");
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let choice = json!({"type": "function", "function": {"name": "g"}});
    let fields = json!({"tools": [tool], "tool_choice": choice});
    check(fields, "tool_choice.function.name", "does not name a tool");
}

#[test]
fn bounds() {
    let long = vec![b' '; REQUEST_BYTES_MAX + 1];
    let refusal = read(Responses, &long).expect_err("too large");
    assert_eq!(refusal, Refusal::TooLarge { limit: REQUEST_BYTES_MAX });
    let check = |fields, param, words| check(Responses, fields, param, words);
    let item = json!({"role": "user", "content": ""});
    check(json!({"input": vec![item; ITEMS_MAX + 1]}), "input", "more than");
    let part = json!({"type": "input_text", "text": ""});
    let item = json!({"role": "user", "content": vec![part; PARTS_MAX + 1]});
    check(json!({"input": [item]}), "input[0].content", "more than");
    let tool = |n: usize| json!({"type": "function", "name": format!("f{n}")});
    let tools: Vec<_> = (0..=TOOLS_MAX).map(tool).collect();
    check(json!({"tools": tools}), "tools", "more than");
    // Those in a namespace count as well.
    let space = json!({"type": "namespace", "name": "n", "tools": tools[..TOOLS_MAX]});
    let last = format!("tools[0].tools[{}]", TOOLS_MAX - 1);
    check(json!({"tools": [space]}), &last, "exceeds the limit of");
    let half = json!({"description": "x".repeat(SCHEMA_BYTES_MAX / 2)});
    let tool = |name: &str| json!({"type": "function", "name": name, "parameters": half});
    check(json!({"tools": [tool("a"), tool("b")]}), "tools[1].parameters", "together");
    let nested = |levels| (1..levels).fold(json!({}), |inner, _| json!({ "items": inner }));
    let tool = |levels| json!([{"type": "function", "name": "f", "parameters": nested(levels)}]);
    check(json!({"tools": tool(DEPTH_MAX + 1)}), "tools[0].parameters", "deeper");
    let fine = json!({"model": "m", "input": "hi", "tools": tool(DEPTH_MAX)}).to_string();
    read(Responses, fine.as_bytes()).expect("as deep as can be");
    check(json!({"model": "x".repeat(NAME_BYTES_MAX + 1)}), "model", "longer than");
    check(json!({"prompt_cache_key": "x".repeat(NAME_BYTES_MAX + 1)}), "prompt_cache_key", "");
    let entries = |n| (0..n).map(|n| (n.to_string(), json!(""))).collect::<serde_json::Map<_, _>>();
    check(json!({"metadata": entries(METADATA_MAX + 1)}), "metadata", "more than");
    check(json!({"metadata": {"a": "x".repeat(METADATA_BYTES_MAX)}}), "metadata", "longer than");
    super::refused::check(Chat, json!({"stop": vec!["x"; STOPS_MAX + 1]}), "stop", "more than");
}

#[test]
fn our_own_client_understands() {
    let full = Refusal::ContextFull { used: 9, wanted: 1, limit: 8 };
    let invalid = Refusal::Invalid { message: "no".to_owned(), param: Some("a.b".to_owned()) };
    for (refusal, status, class, retry_after) in [
        (invalid, 400, ErrorClass::InvalidRequest, None),
        (full, 400, ErrorClass::ContextFull, None),
        (Refusal::FarTooLong { counted: 64, limit: 8 }, 400, ErrorClass::ContextFull, None),
        (Refusal::TooLarge { limit: 8 }, 413, ErrorClass::InvalidRequest, None),
        (Refusal::UnknownModel { model: "m".to_owned() }, 404, ErrorClass::ModelNotFound, None),
        (Refusal::Busy { waiting: 3 }, 429, ErrorClass::RateLimited, Some(2)),
    ] {
        assert_eq!(refusal.status(), status, "{refusal:?}");
        assert_eq!(refusal.retry_after_seconds(), retry_after, "{refusal:?}");
        let body: Value = serde_json::from_slice(&refusal.to_body()).unwrap();
        let fields: Vec<_> = body["error"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["message", "type", "param", "code"]);
        let error = failure::classify(&WireError::read(&body["error"].to_string()).unwrap());
        assert_eq!(error.class, class, "{body}");
        assert_eq!(error.retry_after.map(|after| after.as_secs()), retry_after, "{body}");
        assert!(error.message.contains(&refusal.to_string()), "{}", error.message);
    }
}
