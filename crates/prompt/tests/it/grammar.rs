//! Everything a grammar allows is a valid call; what models write is allowed; invalid calls are not.
//!
//! There are two byte-level vocabularies: one has the marks as special tokens, the other as ordinary ones, as
//! llama.cpp has some of them.

use std::collections::HashMap;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use prompt::Ending;
use prompt::model::{Model, Prompt};
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

use crate::ours::{SPECIALS, model, read, request_of, tokens};

const STYLES: [&str; 8] =
    ["harmony", "qwen", "qwen_coder", "llama3", "mistral", "mistral_v11", "granite", "smollm2"];

/// How a vocabulary represents the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    Special,
    Ordinary,
}

fn environment(marks: Marks) -> TokEnv {
    let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    for name in SPECIALS {
        let ends = ["<|end|>", "<|call|>", "<|return|>", "</s>"].contains(&name);
        let mut word = if marks == Marks::Special || ends { vec![0xff] } else { Vec::new() };
        word.extend(name.as_bytes());
        words.push(word);
    }
    let end = 256 + SPECIALS.iter().position(|name| *name == "</s>").unwrap() as u32;
    let info = TokRxInfo::new(words.len() as u32, end);
    Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)))
}

fn ids() -> HashMap<String, u32> {
    SPECIALS.iter().enumerate().map(|(at, name)| ((*name).to_owned(), 256 + at as u32)).collect()
}

fn matcher(environment: &TokEnv, prompt: &Prompt) -> Matcher {
    let mut factory = ParserFactory::new_simple(environment).unwrap();
    factory.quiet();
    let grammar = prompt.grammar.clone().unwrap();
    let parser = factory.create_parser(TopLevelGrammar::from_lark(grammar.clone()));
    let matcher = Matcher::new(parser);
    assert_eq!(matcher.get_error(), None, "{grammar}");
    matcher
}

fn tools() -> Value {
    json!([
        {"name": "run", "parameters": {
            "$schema": "x", "type": "object", "properties": {
                "cmd": {"type": "string", "description": "d"},
                "shell": {"type": "string", "enum": ["bash", "sh"]},
                "wait": {"type": "integer", "minimum": 0, "maximum": 99},
                "tty": {"type": "boolean"},
                "env": {"type": "array", "items": {"type": "object", "properties": {
                    "key": {"type": "string", "maxLength": 5}}, "required": ["key"]}, "maxItems": 2}
            }, "required": ["cmd", "shell"]
        }},
        {"name": "now", "parameters": {"type": "object", "properties": {}}}
    ])
}

/// Validates a few JSON Schema keywords, enough for the tools here.
fn validates(value: &Value, schema: &Value) -> bool {
    let kind = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    let listed = schema["enum"].as_array().is_none_or(|list| list.contains(value));
    let range = value.as_i64().is_none_or(|number| {
        schema["minimum"].as_i64().is_none_or(|least| number >= least)
            && schema["maximum"].as_i64().is_none_or(|most| number <= most)
    });
    let length = value.as_str().is_none_or(|text| {
        schema["maxLength"].as_u64().is_none_or(|most| text.chars().count() as u64 <= most)
    });
    let fields = value.as_object().is_none_or(|fields| {
        let required = schema["required"].as_array().into_iter().flatten();
        required.into_iter().all(|key| fields.contains_key(key.as_str().unwrap()))
            && fields.iter().all(|(key, value)| validates(value, &schema["properties"][key]))
    });
    let items = value.as_array().is_none_or(|list| {
        list.iter().all(|item| validates(item, &schema["items"]))
            && schema["maxItems"].as_u64().is_none_or(|most| list.len() as u64 <= most)
    });
    kind && listed && range && length && fields && items
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Walks randomly through what a grammar allows, with occasional hints towards an end.
fn walk(
    matcher: &mut Matcher,
    trie: &TokTrie,
    random: &mut Random,
    steps: usize,
) -> Option<Vec<u32>> {
    const HINTS: [&str; 8] =
        ["</parameter>", "\"", "}", "]", "</think>", "{", "<|message|>", "<|end|>"];
    let mut said = Vec::new();
    for _ in 0..steps {
        if matcher.is_stopped() || (matcher.is_accepting().unwrap() && random.below(3) == 0) {
            return Some(said);
        }
        let hint = HINTS[random.below(HINTS.len())];
        let hint: Vec<u32> = match SPECIALS.iter().position(|name| *name == hint) {
            Some(at) => vec![256 + at as u32],
            None => hint.bytes().map(u32::from).collect(),
        };
        if random.below(3) == 0 && matcher.validate_tokens(&hint).unwrap() == hint.len() {
            matcher.consume_tokens(&hint).unwrap();
            said.extend(hint);
            continue;
        }
        let mask = matcher.compute_mask().unwrap();
        let allowed: Vec<u32> = (0..trie.vocab_size() as u32)
            .filter(|id| mask.is_allowed(*id) && *id != trie.eos_token())
            .collect();
        if allowed.is_empty() {
            return Some(said);
        }
        let id = allowed[random.below(allowed.len())];
        matcher.consume_token(id).unwrap();
        said.push(id);
    }
    None
}

fn words(said: &[u32]) -> Vec<(u32, Vec<u8>, bool)> {
    let word = |id: &u32| match *id {
        byte @ 0..256 => (*id, vec![byte as u8], false),
        mark => (*id, SPECIALS[mark as usize - 256].as_bytes().to_vec(), true),
    };
    said.iter().map(word).collect()
}

/// Random answers with a required call produce complete, valid calls and no text.
#[test]
fn forced_calls() {
    for style in STYLES {
        for marks in [Marks::Special, Marks::Ordinary] {
            let environment = environment(marks);
            let model = model(style, ids());
            let about = json!({"tools": tools(), "choice": "required", "parallel": true});
            let prompt = model.compose(&request_of(about)).unwrap();
            let first = matcher(&environment, &prompt);
            let mut whole = 0;
            for seed in 1..25 {
                let mut matcher = first.deep_clone();
                let mut random = Random((seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                let said = walk(&mut matcher, environment.tok_trie(), &mut random, 600);
                let Some(said) = said else { continue };
                whole += 1;
                let words = words(&said);
                let tokens =
                    words.iter().map(|(id, bytes, special)| (*id, bytes.as_slice(), *special));
                let answer = read(&model, &prompt, tokens, Ending::Stop);
                let shown: String =
                    words.iter().map(|word| String::from_utf8_lossy(&word.1)).collect();
                check_calls(&answer, &format!("{style} {marks:?} {seed}: {shown:?}"));
            }
            assert!(whole >= 12, "{style} {marks:?}: {whole} walks came to an end");
        }
    }
}

#[track_caller]
fn check_calls(answer: &crate::ours::Answer, what: &str) {
    assert!(answer.text.trim().is_empty(), "{what}: text {:?}", answer.text);
    assert!(!answer.calls.is_empty(), "{what}: no call");
    let tools = tools();
    for (name, arguments, complete) in &answer.calls {
        assert!(*complete, "{what}: half a call");
        let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == *name).unwrap();
        let arguments: Value =
            serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(validates(&arguments, &tool["parameters"]), "{what}: {arguments}");
    }
}

/// Tells how much of an answer a grammar accepts: all of it with a possible end, all of it, or not all.
fn takes(environment: &TokEnv, prompt: &Prompt, answer: &str) -> &'static str {
    let mut matcher = matcher(environment, prompt);
    let tokens: Vec<u32> = tokens(answer).iter().map(|(id, ..)| *id).collect();
    let taken = matcher.try_consume_tokens(&tokens).unwrap();
    match (taken == tokens.len(), matcher.is_accepting().unwrap_or(false) || matcher.is_stopped()) {
        (true, true) => "whole",
        (true, false) => "open",
        (false, _) => "refused",
    }
}

#[track_caller]
fn check(style: &str, about: Value, answer: &str, want: &str) {
    let mut about = about;
    about["tools"] = tools();
    let model = model(style, ids());
    let prompt = model.compose(&request_of(about)).unwrap();
    for marks in [Marks::Special, Marks::Ordinary] {
        assert_eq!(
            takes(&environment(marks), &prompt, answer),
            want,
            "{style} {marks:?}: {answer}"
        );
    }
}

/// Answers in the formats that models use.
#[test]
fn known_answers() {
    let call = r#"{"name": "run", "arguments": {"cmd": "ls", "shell": "sh"}}"#;
    let hermes = format!("<tool_call>\n{call}\n</tool_call>");
    for style in ["qwen", "smollm2"] {
        check(style, json!({}), &hermes, "whole");
        check(style, json!({}), &format!("I look.\n{hermes}"), "whole");
        check(style, json!({}), "Nothing to run.", "whole");
        check(style, json!({"choice": "required"}), &hermes, "whole");
        check(style, json!({"choice": "required"}), "Nothing", "refused");
        check(style, json!({"choice": "none"}), "Text.", "whole");
        check(style, json!({"choice": "none"}), &hermes, "refused");
        check(style, json!({"choice": "now"}), &hermes, "refused");
        check(style, json!({"parallel": true}), &format!("{hermes}\n{hermes}"), "whole");
        check(style, json!({}), &format!("{hermes}\n{hermes}"), "refused");
        check(style, json!({}), "<tool_call>\n{\"name\": \"rm\"", "refused");
        check(style, json!({}), &hermes.replace("\"sh\"", "\"zsh\""), "refused");
        check(style, json!({}), &hermes.replace(", \"shell\": \"sh\"", ""), "refused");
    }
    check("qwen", json!({}), &format!("<think>\nhm\n</think>\n\n{hermes}"), "whole");
    check(
        "qwen",
        json!({"choice": "required"}),
        &format!("<think>\nhm\n</think>\n\n{hermes}"),
        "whole",
    );
    let tagged = "<tool_call>\n<function=run>\n<parameter=cmd>\nls\n</parameter>\n<parameter=shell>\n\
                  sh\n</parameter>\n</function>\n</tool_call>";
    check("qwen_coder", json!({}), tagged, "whole");
    check("qwen_coder", json!({}), &format!("So: {tagged}"), "whole");
    check("qwen_coder", json!({}), &tagged.replace("\nsh\n", "\nzsh\n"), "refused");
    let llama = r#"{"name": "run", "parameters": {"cmd": "ls", "shell": "sh"}}"#;
    check("llama3", json!({}), llama, "whole");
    check("llama3", json!({}), &format!("<|python_tag|>{llama}"), "whole");
    check("llama3", json!({}), "Hello {you}", "whole");
    check("llama3", json!({}), "{\"name\": \"rm\"", "refused");
    check("llama3", json!({"choice": "none"}), llama, "refused");
    check("mistral", json!({}), &format!("[TOOL_CALLS] [{call}]"), "whole");
    check("mistral", json!({"parallel": true}), &format!("[TOOL_CALLS][{call}, {call}]"), "whole");
    check("mistral_v11", json!({}), "[TOOL_CALLS]now[ARGS]{}", "whole");
    check("mistral_v11", json!({}), "[TOOL_CALLS]never[ARGS]{}", "refused");
    check("granite", json!({}), &format!("<|tool_call|>[{call}]"), "whole");
    let thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
    let arguments = r#"{"cmd":"ls","shell":"sh"}"#;
    let harmony = format!(
        "{thought}<|channel|>commentary to=functions.run <|constrain|>json<|message|>{arguments}"
    );
    check("harmony", json!({}), &harmony, "whole");
    check("harmony", json!({"choice": "required"}), &harmony, "whole");
    check("harmony", json!({"choice": "none"}), &harmony, "refused");
    check("harmony", json!({"choice": "now"}), &harmony, "refused");
    check("harmony", json!({}), &format!("{thought}<|channel|>final<|message|>Done."), "whole");
    check("harmony", json!({"choice": "required"}), "<|channel|>final<|message|>Done.", "refused");
    check("harmony", json!({}), "Done.", "refused");
    check("harmony", json!({}), thought, "open");
    let first =
        format!(" to=functions.run<|channel|>commentary <|constrain|>json<|message|>{arguments}");
    check("harmony", json!({}), &first, "whole");
}

/// Text that the reader would parse as a call is not allowed as text.
#[test]
fn text_cannot_open_a_call() {
    for (style, opener) in [("qwen_coder", "<function="), ("granite", "<tool_call>")] {
        check(style, json!({}), &format!("See {opener}x"), "refused");
        check(style, json!({}), "See <b", "whole");
        // Also if marks are known only by their characters.
        let prompt =
            model(style, HashMap::new()).compose(&request_of(json!({"tools": tools()}))).unwrap();
        let mut matcher = matcher(&environment(Marks::Special), &prompt);
        let bytes: Vec<u32> = format!("See {opener}x").bytes().map(u32::from).collect();
        assert!(matcher.try_consume_tokens(&bytes).unwrap() < bytes.len(), "{style}");
    }
}

/// The grammar and the reader agree on which tagged parameters are text and which are JSON.
#[test]
fn tagged_parameters() {
    let check = |schema: Value, said: &[(&str, &str)], want: Option<Value>| {
        let about = json!({"choice": "required", "tools": [{"name": "f", "parameters": schema}]});
        let model = model("qwen_coder", ids());
        let prompt = model.compose(&request_of(about)).unwrap();
        let mut answer = "<tool_call>\n<function=f>\n".to_owned();
        for (key, value) in said {
            answer += &format!("<parameter={key}>\n{value}\n</parameter>\n");
        }
        answer += "</function>\n</tool_call>";
        let taken = takes(&environment(Marks::Special), &prompt, &answer);
        assert_eq!(taken == "whole", want.is_some(), "{taken} {schema} {answer}");
        if let Some(want) = want {
            let answer = read(&model, &prompt, tokens(&answer), Ending::Stop);
            let got: Value = serde_json::from_str(&answer.calls[0].1).unwrap();
            assert_eq!(got, want, "{schema}");
        }
    };
    let field = |schema: Value| {
        json!({"properties": {"a": schema}, "required": ["a"], "$defs": {
            "text": {"type": "string"}, "word": {"enum": ["x", "y"]}, "count": {"type": "integer"}}})
    };
    for text in [
        json!({"$ref": "#/$defs/text"}),
        json!({"allOf": [{"$ref": "#/$defs/text"}]}),
        json!({"anyOf": [{"$ref": "#/$defs/text"}, {"type": "integer"}]}),
        json!({"type": ["string", "null"]}),
    ] {
        check(field(text.clone()), &[("a", "b \"c\"")], Some(json!({"a": "b \"c\""})));
        check(field(text), &[("a", "\"c\"")], Some(json!({"a": "\"c\""})));
    }
    for word in [json!({"$ref": "#/$defs/word"}), json!({"enum": ["x", 1]}), json!({"const": "x"})]
    {
        check(field(word.clone()), &[("a", "x")], Some(json!({"a": "x"})));
        check(field(word.clone()), &[("a", "\"x\"")], None);
        check(field(word), &[("a", "z")], None);
    }
    check(field(json!({"$ref": "#/$defs/count"})), &[("a", "5")], Some(json!({"a": 5})));
    check(field(json!({"$ref": "#/$defs/count"})), &[("a", "five")], None);
    check(field(json!({})), &[("a", "\"b\"")], Some(json!({"a": "b"})));
    let object =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let referred = json!({"$ref": "#/$defs/o", "$defs": {"o": object}});
    check(referred.clone(), &[("a", "b")], Some(json!({"a": "b"})));
    check(referred, &[], None);
    let either =
        json!({"anyOf": [object, {"properties": {"n": {"type": "integer"}}, "required": ["n"]}]});
    check(either.clone(), &[("a", "b")], Some(json!({"a": "b"})));
    check(either.clone(), &[("n", "1")], Some(json!({"n": 1})));
    check(either, &[], None);
    check(json!({"required": ["x"], "properties": {}}), &[("x", "[1]")], Some(json!({"x": [1]})));
}

/// An answer under a schema always validates.
#[test]
fn answers_under_a_schema() {
    let schema = json!({"type": "object", "properties": {
        "ok": {"type": "boolean"}, "why": {"type": "string", "maxLength": 9}}, "required": ["ok"]});
    for style in STYLES {
        let model = model(style, ids());
        let prompt = model.compose(&request_of(json!({"schema": schema}))).unwrap();
        let environment = environment(Marks::Special);
        let first = matcher(&environment, &prompt);
        let mut whole = 0;
        for seed in 1..13 {
            let mut random = Random((seed as u64).wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
            let said = walk(&mut first.deep_clone(), environment.tok_trie(), &mut random, 600);
            let Some(said) = said else { continue };
            whole += 1;
            let words = words(&said);
            let tokens = words.iter().map(|(id, bytes, special)| (*id, bytes.as_slice(), *special));
            let answer = read(&model, &prompt, tokens, Ending::Stop);
            let value: Value = serde_json::from_str(&answer.text)
                .unwrap_or_else(|error| panic!("{style}: {error}: {:?}", answer.text));
            assert!(validates(&value, &schema), "{style}: {value}");
            assert!(answer.calls.is_empty());
        }
        assert!(whole >= 6, "{style}: {whole} walks came to an end");
    }
}

/// Free text reaches its tool unchanged, constrained by the client's grammar if there is one.
#[test]
fn free_text() {
    let about = json!({"choice": "required", "tools": [
        {"name": "patch", "lark": "start: \"*** Begin\\n\" LINE+ \"*** End\"\nLINE: /[a-z]+\\n/"}]});
    let harmony = model("harmony", ids());
    let prompt = harmony.compose(&request_of(about.clone())).unwrap();
    let environment = environment(Marks::Ordinary);
    let head = "<|channel|>commentary to=functions.patch<|message|>";
    assert_eq!(takes(&environment, &prompt, &format!("{head}*** Begin\nab\n*** End")), "whole");
    assert_eq!(takes(&environment, &prompt, &format!("{head}*** Begin\n*** End")), "refused");
    // What begins like an object need not be one.
    let about_text = json!({"choice": "required", "tools": [{"name": "patch"}]});
    let prompt = harmony.compose(&request_of(about_text)).unwrap();
    let answer = read(&harmony, &prompt, tokens(&format!("{head}{{ half")), Ending::Stop);
    assert_eq!(answer.calls, [("patch".to_owned(), "{ half".to_owned(), true)]);
    let cut = read(&harmony, &prompt, tokens(&format!("{head}{{}}")), Ending::Length);
    assert_eq!(cut.calls, [("patch".to_owned(), "{}".to_owned(), false)]);
    let qwen = model("qwen", ids());
    let prompt = qwen.compose(&request_of(about)).unwrap();
    let said =
        "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": \"a\\nb\"}}\n</tool_call>";
    assert_eq!(takes(&environment, &prompt, said), "whole");
    let answer = read(&qwen, &prompt, tokens(said), Ending::Stop);
    assert_eq!(answer.calls, [("patch".to_owned(), "a\nb".to_owned(), true)]);
}

/// Without ids, marks are matched by their characters.
#[test]
fn without_ids() {
    let tools = json!({"tools": tools()});
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let spelled = |model: &Model, text: &str| {
        let prompt = model.compose(&request_of(tools.clone())).unwrap();
        let mut matcher = matcher(&environment(Marks::Special), &prompt);
        let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
        assert_eq!(matcher.try_consume_tokens(&bytes).unwrap(), bytes.len(), "{text}");
        let tokens = text.as_bytes().chunks(1).map(|byte| (u32::from(byte[0]), byte, false));
        read(model, &prompt, tokens, Ending::Stop)
    };
    let model = model("smollm2", HashMap::new());
    let answer = spelled(&model, &format!("Well. {call}"));
    assert_eq!(answer.calls, [("now".to_owned(), "{}".to_owned(), true)]);
    assert_eq!(answer.text.trim(), "Well.");
}

/// Small models may write commands that begin like examples, or one short sentence.
#[test]
fn small_models() {
    use prompt::model::ModelOptions;
    use prompt::request::{Message, Request};

    let facts = prompt::Facts { parameters: 135_000_000, ..crate::ours::facts("smollm2") };
    let model = Model::new(facts, ModelOptions::default()).unwrap();
    let environment = environment(Marks::Ordinary);
    let check = |request: &Request, rows: &[(&str, &str)]| {
        let prompt = model.compose(request).unwrap();
        for (answer, want) in rows {
            assert_eq!(takes(&environment, &prompt, answer), *want, "{answer}");
        }
    };
    let asked = |tool: Value, text: &str| {
        let mut request = request_of(json!({ "tools": [tool] }));
        request.messages = vec![Message::User(text.to_owned())];
        request
    };
    let field = |name: &str, kind: Value| {
        json!({"name": "shell", "parameters": {
            "type": "object", "properties": {name: kind, "tty": {"type": "boolean"}}, "required": [name]}})
    };
    let text = field("cmd", json!({"type": "string"}));
    let list = field("command", json!({"type": "array", "items": {"type": "string"}}));
    check(
        &asked(text.clone(), "copy a/x.c to b/y.c"),
        &[
            ("{\"cmd\": \"cp a/x.c b/y.c\"}", "whole"),
            ("{\"cmd\": \"cp a/x.c z.c\"}", "whole"),
            ("{\"cmd\": \"curl x\"}", "refused"),
            ("{\"cmd\": \"cpx\"}", "refused"),
            ("{\"tty\": true", "refused"),
            ("Sure.", "refused"),
        ],
    );
    check(
        &asked(list, "delete old.log"),
        &[
            ("{\"command\": [\"bash\", \"-lc\", \"rm old.log\"]}", "whole"),
            ("{\"command\": [\"bash\", \"-lc\", \"rm old.log\", \"x\"]}", "refused"),
            ("{\"command\": [\"rm\"", "refused"),
        ],
    );
    let mut forced = asked(text.clone(), "do something");
    forced.choice = prompt::request::Choice::Required;
    check(&forced, &[("{\"cmd\": \"make -j2\"}", "whole"), ("{\"cmd\": \"\"}", "refused")]);
    let mut told = asked(text, "list the files");
    told.messages.push(Message::Output { call_id: "c".to_owned(), text: "a".to_owned() });
    check(
        &told,
        &[
            ("It listed a.txt and b/c.", "whole"),
            ("It listed a.txt", "open"),
            ("One. Two.", "refused"),
            ("{\"cmd\"", "refused"),
        ],
    );
}
