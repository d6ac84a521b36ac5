//! Every model gets prompts in its own format, or the error says what to do.

use std::collections::HashMap;

use prompt::Ending;
use prompt::model::{Model, ModelError, ModelOptions};
use prompt::refusal::Refusal;
use prompt::reply::Api;
use prompt::request::Message;
use serde_json::json;

use crate::ours::{facts, model, read, request, request_of, shown, tokens};

#[test]
fn families() {
    let want = [
        ("smollm2", "template"),
        ("phi", "template"),
        ("gemma", "template"),
        ("qwen", "hermes"),
        ("qwen_coder", "qwen3_coder"),
        ("llama3", "llama3_json"),
        ("mistral", "mistral"),
        ("mistral_v11", "mistral_v11"),
        ("granite", "granite"),
        ("harmony", "harmony"),
    ];
    for (name, family) in want {
        assert_eq!(model(name, HashMap::new()).family(), family, "{name}");
    }
}

#[test]
fn without_a_template() {
    let mut facts = facts("smollm2");
    facts.template = None;
    let compose = |facts| {
        let model = Model::new(facts, ModelOptions::default()).unwrap();
        shown(&model.compose(&request_of(json!({}))).unwrap().pieces)
    };
    assert_eq!(
        compose(facts.clone()),
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    );
    facts.specials.clear();
    assert_eq!(compose(facts), "<s>User: hello\n\nAssistant:");
}

/// A reasoning mark counts only where reasoning can begin, and is text elsewhere.
#[test]
fn where_reasoning_begins() {
    let check = |effort: Option<&str>, said: &str, reasoning: &str, text: &str| {
        let mut request = request_of(json!({"tools": [{"name": "f"}]}));
        request.effort = effort.map(str::to_owned);
        let model = model("qwen", HashMap::new());
        let prompt = model.compose(&request).unwrap();
        let answer = read(&model, &prompt, tokens(said), Ending::Stop);
        assert_eq!((answer.reasoning.trim(), answer.text.trim()), (reasoning, text), "{said}");
    };
    check(None, "<think>\nhm\n</think>\n\nYes.", "hm", "Yes.");
    check(None, "A <think> tag opens it.", "", "A <think> tag opens it.");
    check(Some("none"), "<think> is a tag.", "", "<think> is a tag.");
    check(Some("minimal"), "So: <think>", "", "So: <think>");
}

/// Consecutive messages do not run together.
#[test]
fn messages_stay_apart() {
    let check = |said: &str, reasoning: &str, commentary: &str, text: &str| {
        let model = model("harmony", HashMap::new());
        let prompt = model.compose(&request_of(json!({"tools": [{"name": "f"}]}))).unwrap();
        let answer = read(&model, &prompt, tokens(said), Ending::Stop);
        let got = [&answer.reasoning, &answer.commentary, &answer.text];
        assert_eq!(got, [reasoning, commentary, text], "{said}");
    };
    let say = |channel: &str, text: &str| format!("<|channel|>{channel}<|message|>{text}");
    let next = "<|end|><|start|>assistant";
    let (look, done) = (say("commentary", "I look."), say("final", "Done."));
    check(&format!("{look}{next}{done}"), "", "I look.", "Done.");
    check(&format!("{look}{next}{look}{next}{done}"), "", "I look.\n\nI look.", "Done.");
    check(&look, "", "I look.", "");
    let hm = say("analysis", "Hm.");
    check(&format!("{hm}{next}{hm}{next}{done}"), "Hm.\n\nHm.", "", "Done.");
    check(&format!("{hm}{next}{look}{next}{done}"), "Hm.", "I look.", "Done.");
    check(&done, "", "", "Done.");
}

/// The instructions tell a model once that something was left out, whatever it was and whatever the family.
#[test]
fn omissions_are_reported_once() {
    let compose = |name: &str, messages: Vec<Message>| {
        let prompt = model(name, HashMap::new()).compose(&request(messages)).unwrap();
        shown(&prompt.pieces)
    };
    let user = |text: &str| Message::User(text.to_owned());
    let rules = Message::System("Be brief.".to_owned());
    let note = "were left out of this conversation";
    for part in [
        json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}),
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        json!({"type": "input_file", "filename": "a.pdf"}),
        json!({"type": "input_file", "file_id": "f"}),
    ] {
        let said = json!({"type": "message", "role": "user", "content": [part]});
        let body = json!({"model": "m", "input": [said]});
        let messages = crate::read(Api::Responses, body.to_string().as_bytes()).unwrap().messages;
        for name in ["harmony", "qwen", "smollm2", "mistral", "gemma", "phi"] {
            let again = messages[0].clone();
            let all = vec![rules.clone(), user("hello"), again.clone(), again];
            let text = compose(name, all);
            assert_eq!(text.matches(note).count(), 1, "{name} {part}: {text}");
            let (at, asked) = (text.find(note).unwrap(), text.find("hello").unwrap());
            assert!(at < asked, "{name}: {text}");
            assert!(!compose(name, vec![rules.clone(), user("hello")]).contains(note), "{name}");
        }
    }
    let text = compose("harmony", vec![rules, user(NO_PICTURE)]);
    assert!(
        text.contains("developer‖<|message|>‖# Instructions\n\nBe brief.\n\nPictures"),
        "{text}"
    );
}

const NO_PICTURE: &str = "[a picture was here, which this model cannot see]";

/// HTML tags are text, marks are not.
#[test]
fn marks() {
    for (name, want) in [
        ("<think>", true),
        ("</tool_call>", true),
        ("[ARGS]", true),
        ("<|im_end|>", true),
        ("<|channel|>", true),
        ("<h1>", false),
        ("</table>", false),
        ("[1]", false),
        ("<||>", false),
    ] {
        assert_eq!(prompt::model::is_mark(name), want, "{name}");
    }
}

/// Every answer gets a new seed unless the client sets one.
#[test]
fn seeds() {
    let check = |fields: serde_json::Value, want: (u32, bool)| {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let request = prompt::chat::read(body.to_string().as_bytes()).unwrap();
        for name in ["qwen", "harmony"] {
            let sampling = model(name, HashMap::new()).compose(&request).unwrap().sampling;
            assert_eq!((sampling.seed, sampling.any_seed), want, "{name} {fields}");
        }
    };
    check(json!({}), (0, true));
    check(json!({"temperature": 1}), (0, true));
    check(json!({"seed": 7}), (7, false));
}

#[test]
fn what_cannot_be_used() {
    let mut harmony = facts("harmony");
    harmony.specials.retain(|name| name != "<|channel|>");
    let missing = vec!["<|channel|>".to_owned()];
    let error = Model::new(harmony.clone(), ModelOptions::default()).unwrap_err();
    assert_eq!(error, ModelError::Harmony { missing });
    assert!(error.to_string().contains("raw decoding"), "{error}");
    let raw = Model::new(harmony, ModelOptions { raw: true, ..ModelOptions::default() }).unwrap();
    let prompt = raw.compose(&request_of(json!({"tools": [{"name": "f"}]}))).unwrap();
    assert_eq!((shown(&prompt.pieces).as_str(), prompt.profile), ("hello", "raw"));
    assert_eq!(prompt.left_out.len(), 1);
    let answer = read(&raw, &prompt, tokens("a<|end|>b"), Ending::Stop);
    assert_eq!(answer.text, "a<|end|>b");

    for source in [
        "{% if %}",
        "{% for x in range(100000) %}{% for y in range(100000) %}{% endfor %}{% endfor %}",
    ] {
        let mut facts = facts("smollm2");
        facts.template = Some(source.to_owned());
        let error = Model::new(facts, ModelOptions::default()).unwrap_err();
        assert!(matches!(error, ModelError::Template { .. }), "{error}");
    }
}

#[test]
fn refusals() {
    let model = model("qwen", HashMap::new());
    for about in [json!({"choice": "required"}), json!({"choice": "f", "tools": [{"name": "g"}]})] {
        let refusal = model.compose(&request_of(about)).unwrap_err();
        let Refusal::Invalid { param, .. } = refusal else { panic!("{refusal}") };
        assert_eq!(param.as_deref(), Some("tool_choice"));
    }
}

/// Without tools nothing is a call, and reasoning is separated from text.
#[test]
fn plain_answers() {
    let model = model("qwen", HashMap::new());
    let prompt = model.compose(&request_of(json!({}))).unwrap();
    let said = "<think>\nhm</think>\n\n<tool_call>{}</tool_call> <|im_end|>";
    let answer = read(&model, &prompt, tokens(said), Ending::Stop);
    assert_eq!((answer.reasoning.as_str(), answer.calls.len()), ("\nhm", 0));
    let answer = read(&model, &prompt, tokens("So <think> is a tag: é"), Ending::Stop);
    assert_eq!(answer.text, "So <think> is a tag: é");
    let mut reader = prompt.reader(&model);
    let mut bytes = |bytes: &[u8]| {
        reader.push(prompt::Token { id: 0, bytes, special: false }, &mut |_| {});
    };
    bytes(b"<think>a");
    bytes(b"b");
    bytes(b"</think>");
    bytes(b"c");
    assert_eq!(reader.reasoning_tokens(), 2);
}
