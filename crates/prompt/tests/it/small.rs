//! Small models see a few examples and the newest request, and what they do not see is reported.

use std::collections::HashMap;

use prompt::model::{Model, ModelOptions, Prompt};
use prompt::request::{Choice, Message, Request};
use prompt::{Ending, Facts};
use serde_json::{Value, json};

use crate::ours::{facts, read, request_of, shown, tokens};

fn model() -> Model {
    let facts = Facts { parameters: 135_000_000, ..facts("smollm2") };
    Model::new(facts, ModelOptions { ids: HashMap::new(), ..ModelOptions::default() }).unwrap()
}

fn runner() -> Value {
    json!({"name": "exec_command", "parameters": {"type": "object", "properties": {
        "cmd": {"type": "string"}, "tty": {"type": "boolean"}}, "required": ["cmd"]}})
}

fn request(tools: Value, asked: &str) -> Request {
    let mut request = request_of(json!({"tools": tools}));
    request.messages = vec![
        Message::System("Pages of rules.".repeat(500)),
        Message::User("<environment_context>".to_owned()),
        Message::User(asked.to_owned()),
    ];
    request
}

fn compose(request: &Request) -> Prompt {
    let prompt = model().compose(request).unwrap();
    assert_eq!(prompt.profile, "small");
    assert!(shown(&prompt.pieces).len() < 2000, "{}", shown(&prompt.pieces));
    prompt
}

#[test]
fn a_command() {
    let tools = json!([{"name": "plan", "parameters": {"type": "object"}}, runner()]);
    let prompt = compose(&request(tools, "make a folder called build"));
    let text = shown(&prompt.pieces);
    let end = "<|im_start|>user\ncreate a directory named src<|im_end|>\n<|im_start|>assistant\n{\"cmd\": \
               \"mkdir src\"}<|im_end|>\n<|im_start|>user\nmake a folder called build<|im_end|>\n\
               <|im_start|>assistant\n";
    assert!(text.ends_with(end), "{text}");
    assert_eq!(text.matches("{\"cmd\": ").count(), 6);
    assert_eq!(
        prompt.left_out,
        ["1 messages of instructions", "1 earlier messages", "the tools plan"]
    );
    assert!(prompt.grammar.as_ref().unwrap().contains("mkdir"));
    assert!(!prompt.grammar.as_ref().unwrap().contains("tty"));
    let answer = read(&model(), &prompt, tokens("{\"cmd\": \"mkdir build\"}"), Ending::Stop);
    let call = ("exec_command".to_owned(), "{\"cmd\": \"mkdir build\"}".to_owned(), true);
    assert_eq!((answer.text.as_str(), &answer.calls[..]), ("", &[call][..]));
    let cut = read(&model(), &prompt, tokens("{\"cmd\": \"mk"), Ending::Length);
    assert!(!cut.calls[0].2);
}

#[test]
fn a_list_of_words() {
    let tools = json!([{"name": "shell", "parameters": {"type": "object", "properties": {
        "command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"]}}]);
    let prompt = compose(&request(tools, "list the files"));
    let text = shown(&prompt.pieces);
    assert!(text.contains("{\"command\": [\"bash\", \"-lc\", \"ls\"]}"), "{text}");
}

#[test]
fn no_command() {
    let prompt = compose(&request(json!([runner()]), "hello"));
    assert!(
        shown(&prompt.pieces)
            .ends_with("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    );
    assert_eq!(prompt.grammar, None);
    let mut forced = request(json!([runner()]), "hello");
    forced.choice = Choice::Required;
    assert!(compose(&forced).grammar.is_some());
}

/// Reasoning is not part of the answer, even if the template cannot disable it.
#[test]
fn no_reasoning_in_the_answer() {
    let always = crate::ours::template("smollm2")
        .replace("{{ '<|im_start|>assistant\n' }}", "{{ '<|im_start|>assistant\n' }}{# <think> #}");
    for (template, end) in
        [(crate::ours::template("qwen"), "</think>\n\n"), (&always, "assistant\n")]
    {
        let template = Some(template.to_owned());
        let facts = Facts { parameters: 600_000_000, template, ..facts("qwen") };
        let model = Model::new(facts, ModelOptions::default()).unwrap();
        let prompt = model.compose(&request(json!([runner()]), "hello")).unwrap();
        let text = shown(&prompt.pieces);
        assert!(text.ends_with(end), "{text}");
        if end == "assistant\n" {
            let said = tokens("<think>\nhm\n</think>\n\nHello!");
            let answer = read(&model, &prompt, said, Ending::Stop);
            assert_eq!(answer.text.trim(), "Hello!");
        }
    }
}

#[test]
fn after_an_output() {
    let mut request = request(json!([runner()]), "list the files");
    request.messages.push(Message::Call {
        id: "c".to_owned(),
        name: "exec_command".to_owned(),
        arguments: "{\"cmd\":\"ls\"}".to_owned(),
        free: false,
    });
    request.messages.push(Message::Output { call_id: "c".to_owned(), text: "a".repeat(5000) });
    let prompt = compose(&request);
    let text = shown(&prompt.pieces);
    assert!(text.contains("`ls` ended well and printed:\naaa"), "{text}");
    assert!(prompt.left_out.iter().any(|left| left.contains("output")), "{:?}", prompt.left_out);
    // What our own tools report about a command is parsed, not shown.
    let facts = "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code";
    for (output, want) in [
        (
            format!("{facts} 0\nOriginal token count: 0\nOutput:\n"),
            "`ls` ended well and printed nothing.",
        ),
        (format!("{facts} 2\nOutput:\nno\n"), "`ls` failed and printed:\nno"),
        (format!("{facts} x\nOutput:\nno\n"), "`ls` ended well and printed:\nChunk ID"),
        (String::new(), "`ls` ended well and printed nothing."),
    ] {
        let last = request.messages.len() - 1;
        request.messages[last] = Message::Output { call_id: "c".to_owned(), text: output };
        let text = shown(&compose(&request).pieces);
        assert!(text.contains(want), "{text}");
    }
    let answer = read(&model(), &prompt, tokens("It listed the files."), Ending::Stop);
    assert_eq!((answer.text.as_str(), answer.calls.len()), ("It listed the files.", 0));
}

#[test]
fn without_a_runner() {
    let tool = |name: &str| {
        json!({"name": name, "parameters": {"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}})
    };
    let tools = json!([tool("t1"), tool("t2"), tool("t3"), tool("t4")]);
    let prompt = compose(&request(tools.clone(), "do it"));
    assert!(prompt.left_out.contains(&"the tools t4".to_owned()), "{:?}", prompt.left_out);
    let grammar = prompt.grammar.as_ref().unwrap();
    assert!(!grammar.contains("t4"), "{grammar}");
    let mut named = request(tools, "do it");
    named.choice = Choice::Named("t4".to_owned());
    let prompt = compose(&named);
    assert!(shown(&prompt.pieces).contains("\"t4\""));
    assert!(!shown(&prompt.pieces).contains("\"t1\""));
}
