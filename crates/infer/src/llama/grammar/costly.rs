//! Tests of expensive schemas and grammars: they are refused quickly, with the field they come from, before a model
//! uses them; the accepted ones can be used at an acceptable cost.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use prompt::Facts;
use prompt::model::{Model, ModelOptions};
use prompt::refusal::Refusal;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

use super::{Grammars, Unusable};

/// The result of a request.
#[derive(Debug, PartialEq)]
enum Fate {
    /// It is refused because of this field.
    Refused(String),
    /// It compiles to a grammar that cannot be followed.
    Stuck(String),
    Fine,
}

const END: u32 = 256;

/// Bytes, and thousands of words to match patterns against.
static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| {
    let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    words.push(b"\xff</s>".to_vec());
    for a in b'a'..=b'z' {
        for b in b'a'..=b'z' {
            words.push(vec![a, b]);
            words.extend((b'a'..=b'z').map(|c| vec![a, b, c]));
        }
    }
    words.extend((10..1000).map(|number: u32| number.to_string().into_bytes()));
    let info = TokRxInfo::new(u32::try_from(words.len()).unwrap(), END);
    let words: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
    Grammars::of_words(&words).unwrap()
});

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    let template =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    let facts = Facts {
        architecture: "llama".to_owned(),
        template: Some(template.to_owned()),
        parameters: 7_000_000_000,
        ..Facts::default()
    };
    Model::new(facts, ModelOptions::default()).unwrap()
});

fn fate(body: &Value) -> Fate {
    let begun = Instant::now();
    let fate = fate_of(body);
    let took = begun.elapsed();
    assert!(took < TIME_MAX, "{took:?}: {fate:?}");
    fate
}

fn fate_of(body: &Value) -> Fate {
    let request = match prompt::responses::read(body.to_string().as_bytes(), &[]) {
        Ok(request) => request,
        Err(Refusal::Invalid { param: Some(param), .. }) => return Fate::Refused(param),
        Err(other) => panic!("{other:?}"),
    };
    let grammar = MODEL.compose(&request).unwrap().grammar.unwrap();
    let mut matcher = match GRAMMARS.read(&grammar, &request.trials, &|| true) {
        Ok(grammar) => grammar.matcher,
        Err(Unusable { param, reason }) => {
            return Fate::Refused(param.unwrap_or_else(|| panic!("without a field: {reason}")));
        }
    };
    for turn in 0..40_usize {
        matcher.consume_ff_tokens();
        if matcher.is_stopped() {
            break;
        }
        let mask = match matcher.compute_mask() {
            Ok(mask) => mask,
            Err(error) => return Fate::Stuck(error.to_string()),
        };
        let allowed: Vec<u32> = mask.to_list().into_iter().filter(|id| *id != END).collect();
        let Some(last) = allowed.len().checked_sub(1) else { break };
        if let Err(error) = matcher.consume_token(allowed[(turn * 6101 + 11) % (last + 1)]) {
            return Fate::Stuck(error.to_string());
        }
    }
    if matcher.stop_reason().is_ok() {
        Fate::Fine
    } else {
        Fate::Stuck(matcher.get_error().unwrap_or_default())
    }
}

/// Requests an answer that follows a schema.
fn answer(schema: &Value) -> Value {
    json!({"model": "m", "input": "hello", "text": {"format": {
        "type": "json_schema", "name": "n", "schema": schema}}})
}

/// Requests a tool call with the schema as a parameter.
fn tool(schema: &Value) -> Value {
    let mut parameters = json!({"type": "object", "required": ["a"], "properties": {"a": schema}});
    if let Some(definitions) = schema.get("$defs") {
        parameters["$defs"] = definitions.clone();
    }
    json!({"model": "m", "input": "hello", "tool_choice": "required", "tools": [
        {"type": "function", "name": "f", "parameters": parameters}]})
}

/// Checks that a schema is refused at this place, if any, wherever it is used.
#[track_caller]
fn check(schema: Value, refused_at: Option<&str>) {
    for (body, root) in [
        (answer(&schema), "text.format.schema"),
        (tool(&schema), "tools[0].parameters.properties.a"),
    ] {
        let want = match refused_at {
            // The target of the reference is elsewhere in the other one.
            Some(at) if at.starts_with(".$defs") && root.starts_with("tools") => {
                Fate::Refused(format!("tools[0].parameters{at}"))
            }
            Some(at) => Fate::Refused(format!("{root}{at}")),
            None => Fate::Fine,
        };
        let mut shown = schema.to_string();
        shown.truncate(shown.floor_char_boundary(300));
        assert_eq!(fate(&body), want, "{shown}");
    }
}

fn window(length: usize) -> String {
    format!("^(a|b)*a(a|b){{{length}}}$")
}

fn object<T: Into<Value>>(count: usize, field: impl Fn(usize) -> (String, T)) -> Value {
    (0..count).map(|at| (field(at).0, field(at).1.into())).collect::<Map<_, _>>().into()
}

fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

#[test]
fn patterns() {
    let one = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let all = |count: usize| json!({"allOf": list(count, |at| one(&window(24 - at)))});
    check(one(&window(24)), None);
    check(one("^[a-z]*a[a-z]{24}$"), None);
    check(one("a[a-z]{24}"), None);
    check(one("^((a{1000}){1000}){1000}$"), None);
    check(one("^(((a?){50}b?){50}c?){50}$"), None);
    check(one("^((a|b){0,1000}c?){0,1000}$"), None);
    check(one("(?i)^(abc|def|ghi)*a(abc|def|ghi){24}$"), None);
    check(one("^\\p{L}+\\p{N}*(\\p{Lu}|\\p{Ll}){1,100}$"), None);
    check(one("^(a+)+$"), None);
    check(one("^(?!a)b"), Some(""));
    check(one("a\\1"), Some(""));
    check(one("(((("), Some(""));
    check(one(&"(a|b)".repeat(2000)), Some(".pattern"));
    check(all(2), None);
    check(all(4), Some(".allOf[0]"));
    check(all(20), Some(".allOf[6].pattern"));
    check(
        json!({"allOf": [{"$ref": "#/$defs/w"}, all(9)], "$defs": {"w": one("a|b")}}),
        Some(".allOf[1].allOf[6].pattern"),
    );
    let mixed = json!({"type": "string", "format": "email", "minLength": 6,
        "pattern": "^\\w+([\\.-]?\\w+)*@\\w+([\\.-]?\\w+)*(\\.\\w{2,})+$"});
    check(mixed, None);
    let uri = json!({"type": "string", "format": "uri", "maxLength": 2000,
        "pattern": "^https://[a-z]+(\\.[a-z]+)*/.*$"});
    check(uri, None);
    // It is undecidable here whether such a text exists.
    let long = json!({"type": "string", "minLength": 1000, "maxLength": 100_000,
        "pattern": "^[a-z]+(-[a-z]+)*$"});
    check(long, Some(""));
    // Different values are independent.
    let apart = json!({"allOf": list(12, |at| json!({"type": "object", "properties": {
        format!("p{at}"): one("^\\d{4}-\\d{2}-\\d{2}(T\\d{2}:\\d{2})?$")}}))});
    check(apart, None);
    let same = json!({"allOf": list(12, |at| json!({"type": "object", "properties": {
        "p": one(&window(at + 9))}}))});
    check(same, Some(".allOf[6].properties.p.pattern"));
    let items =
        json!({"allOf": list(12, |at| json!({"type": "array", "items": one(&window(at + 9))}))});
    check(items, Some(".allOf[6].items.pattern"));
    check(
        json!({"type": "object", "properties": object(1000, |at| (format!("p{at}"), one(&format!("^[a-z]+{at}$"))))}),
        Some(".properties.p768"),
    );
}

#[test]
fn names_of_properties() {
    let properties = |count, pattern: fn(usize) -> String| json!({"type": "object", "patternProperties": object(count, |at| (pattern(at), json!({"type": "integer"})))});
    check(properties(20, |at| format!("^p{at}(a|b)*a(a|b){{24}}$")), None);
    check(properties(200, |at| format!("^p{at}_[a-z]+$")), Some(""));
    check(properties(2, |at| format!("(a|b)*a(a|b){{{}}}", 24 - at)), Some(""));
    check(properties(1, |_| "a|".repeat(4096)), Some(".patternProperties"));
    let named = json!({"type": "object", "properties": {"abababababababababababababababab": {"type": "string"}},
        "patternProperties": {window(24): {"type": "string"}}, "additionalProperties": {"type": "integer"}});
    check(named, None);
    let plain = |at: usize| (format!("p{at}"), json!({"type": "string"}));
    check(json!({"type": "object", "properties": object(1000, plain)}), None);
    check(json!({"type": "object", "properties": object(20_000, plain)}), Some(".properties"));
    check(
        json!({"type": "object", "required": list(20_000, |at| at.to_string().into())}),
        Some(".properties"),
    );
}

#[test]
fn numbers() {
    let integer = |more: Value| {
        let mut schema = json!({"type": "integer"});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    check(
        integer(json!({"multipleOf": 1000, "minimum": 3, "maximum": 1_000_000_000_000_i64})),
        None,
    );
    check(integer(json!({"multipleOf": 60})), None);
    check(integer(json!({"multipleOf": 999_999_937})), Some(".multipleOf"));
    check(integer(json!({"multipleOf": 0.000_001_7})), Some(".multipleOf"));
    check(
        integer(json!({"allOf": [{"multipleOf": 97}, {"multipleOf": 89}, {"multipleOf": 83}]})),
        Some(".allOf[2].multipleOf"),
    );
    check(integer(json!({"multipleOf": 9973})), None);
    check(
        integer(
            json!({"multipleOf": 9973, "minimum": 123_456_789, "maximum": 9_123_456_789_012_345_i64}),
        ),
        Some(".multipleOf"),
    );
    let fields = |count, step: fn(usize) -> usize| {
        json!({"type": "object", "properties": object(count, |at| {
            (format!("p{at}"), integer(json!({"multipleOf": step(at)})))
        })})
    };
    check(fields(100, |at| at + 1), None);
    check(fields(100, |at| 9000 + at), Some(".properties.p97.multipleOf"));
    check(json!({"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 99.99}), None);
    check(
        integer(
            json!({"minimum": -9_007_199_254_740_991_i64, "maximum": 9_007_199_254_740_991_i64}),
        ),
        None,
    );
    check(integer(json!({"minimum": -1e30})), Some(".minimum"));
    check(integer(json!({"exclusiveMaximum": 1e300})), Some(".exclusiveMaximum"));
    check(json!({"type": "number", "minimum": 1e-300}), Some(".minimum"));
    check(json!({"type": "number", "minimum": 0.1, "maximum": 1.234_567_890_123_456_7}), None);
    check(
        json!({"type": "string", "minLength": 18_000_000_000_000_000_000_u64}),
        Some(".minLength"),
    );
    check(json!({"type": "string", "minLength": 100_000, "maxLength": 1_000_000}), None);
    check(
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 100_000, "maxItems": 1_000_000}),
        None,
    );
    check(json!({"type": "array", "maxItems": u64::MAX}), Some(".maxItems"));
    check(json!({"type": "object", "minProperties": u64::MAX}), Some(".minProperties"));
}

#[test]
fn alternatives() {
    check(json!({"enum": list(40_000, |at| format!("w{at}").into())}), None);
    check(json!({"enum": list(1000, |at| json!({"a": at, "b": [at, at]}))}), None);
    check(json!({"enum": list(9000, |at| json!({"a": at}))}), Some(".enum"));
    check(
        json!({"type": "string", "pattern": "7$", "enum": list(10_000, |at| format!("w{at}").into())}),
        Some(""),
    );
    let kinds = |count| {
        json!({"oneOf": list(count, |at| json!({"type": "object", "required": ["kind"],
        "properties": {"kind": {"const": format!("k{at}")}}}))})
    };
    check(kinds(900), None);
    check(kinds(3000), Some(""));
    let any = |count, pattern: fn(usize) -> String| json!({"anyOf": list(count, |at| json!({"type": "string", "pattern": pattern(at)}))});
    check(
        json!({"allOf": [any(60, |at| format!("^a{at}")), any(60, |at| format!("b{at}$"))]}),
        Some(".allOf[1]"),
    );
    check(json!({"allOf": list(6, |_| any(10, |at| format!("^a{at}")))}), Some(".allOf[3]"));
    let next = |at: usize| format!("#/$defs/d{}", at + 1);
    // Many alternatives at every level, all with the same result.
    for (levels, ways) in [(8, 64), (64, 8), (3, 500), (200, 30)] {
        let option = |at: usize, way: usize| {
            json!({"type": "object", "properties": {
            format!("a{way}"): {"$ref": next(at)}}})
        };
        let level = |at: usize| match at + 1 == levels {
            true => json!({"type": "string"}),
            false => json!({"anyOf": list(ways, |way| option(at, way))}),
        };
        let wide = json!({"$ref": "#/$defs/d0", "$defs": object(levels, |at| (format!("d{at}"), level(at)))});
        check(wide, None);
    }
    let tree = |ways| {
        json!({"$ref": "#/$defs/t", "$defs": {"t": {"anyOf": list(ways, |way| json!({
        "type": "object", "properties": {format!("p{way}"): {"$ref": "#/$defs/t"}}}))}}})
    };
    check(tree(500), None);
    check(any(250, |at| format!("^[a-z]{{{},}}x{at}", at % 50)), None);
    check(any(400, |at| format!("^[a-z]{{{},}}x{at}", at % 50)), Some(".anyOf[143]"));
    let plain = |at: usize| (format!("p{at}"), json!({"type": "string"}));
    let big = json!({"allOf": [{"type": "object", "properties": object(900, plain)},
        {"anyOf": list(900, |at| json!({"required": [format!("p{at}")]}))}]});
    check(big, Some(""));
    let chain = json!({"$ref": "#/$defs/d0", "$defs": object(200, |at| (format!("d{at}"), match at {
        199 => json!({"type": "string"}),
        _ => json!({"type": "object", "properties": {"a": {"$ref": next(at)}, "b": {"$ref": next(at)}}}),
    }))});
    check(chain, None);
    let doubled = json!({"allOf": [{"$ref": "#/$defs/d0"}, {"type": "object"}], "$defs": object(20, |at| (format!("d{at}"), match at {
        19 => json!({"type": "object"}),
        _ => json!({"anyOf": [{"$ref": next(at)}, {"$ref": next(at)}]}),
    }))});
    let refused = [answer(&doubled), tool(&doubled)].map(|body| fate(&body));
    assert!(
        refused.iter().all(|fate| matches!(fate, Fate::Refused(at) if at.contains(".$defs.d"))),
        "{refused:?}"
    );
    let tree = |at: usize| {
        (
            format!("t{at}"),
            json!({"type": "object", "properties": {"c": {"$ref": format!("#/$defs/t{at}")}}}),
        )
    };
    let trees = json!({"allOf": [{"$ref": "#/$defs/t0"}, {"$ref": "#/$defs/t1"}], "$defs": object(2, tree)});
    check(trees, Some(".$defs.t0.properties.c"));
    // No such value exists.
    let never = answer(&json!({"type": "object", "properties": {"a": false}, "required": ["a"]}));
    assert_eq!(fate(&never), Fate::Refused("text.format.schema".to_owned()));
}

/// Constants and names of any length: each character is a state.
#[test]
fn long_texts() {
    let text = |letter: &str, count: usize| letter.repeat(count);
    let named = |name: String| json!({"type": "object", "properties": {name.clone(): {}}, "required": [name]});
    check(json!({"const": text("x", 60_000)}), None);
    check(json!({"const": text("x", 200_000)}), Some(".const"));
    check(json!({"const": text("\u{1f9f5}", 50_000)}), Some(".const"));
    check(json!({"enum": [text("x", 30_000), text("y", 30_000)]}), None);
    check(json!({"enum": [text("x", 100_000), text("y", 100_000)]}), Some(".enum"));
    check(
        json!({"enum": list(40, |at| format!("{at}{}", text("x", 5_000)).into())}),
        Some(".enum"),
    );
    // A shared prefix counts once.
    check(json!({"enum": list(10, |at| (text("x", 20_000) + &at.to_string()).into())}), None);
    check(json!({"const": {"a": [{"b": text("word ", 40_000)}]}}), Some(".const"));
    check(json!({"const": {text("k", 200_000): 1}}), Some(".const"));
    check(json!({"enum": list(40_000, |at| json!(at * 7_919))}), Some(".enum"));
    check(named(text("k", 10_000)), None);
    check(named(text("k", 200_000)), Some(".properties"));
    let required = json!({"type": "object", "required": [text("k", 200_000)]});
    check(required, Some(".required"));
    let within =
        json!({"type": "array", "items": {"anyOf": [{"type": "null"}, named(text("k", 200_000))]}});
    check(within, Some(".items.anyOf[1].properties"));
    let referred = json!({"$ref": "#/$defs/d", "$defs": {"d": {"const": text("x", 200_000)}}});
    assert_eq!(
        fate(&answer(&referred)),
        Fate::Refused("text.format.schema.$defs.d.const".to_owned())
    );
    // Properties named like keywords.
    check(
        json!({"type": "object", "properties": {"const": {"type": "string"}, "enum": {"type": "string"}}}),
        None,
    );
    let many = json!({"type": "object", "properties": object(60, |at| {
        let name = format!("{at}{}", text("k", 2_000));
        (name, json!({"type": "integer"}))
    })});
    check(many, Some(".properties"));
}

/// A panic in the middle of an answer ends that answer, and no other.
#[test]
fn panics_are_errors() {
    let read = || GRAMMARS.read("start: /[a-z]+/", &[], &|| true).unwrap();
    let (mut spoiled, mut other) = (read(), read());
    let error = super::fault(spoiled.matcher.test_trigger_lexer_error().unwrap_err());
    assert_eq!(error, "panic: synthetic error");
    // Nor a second time.
    assert_eq!(spoiled.complete(), Err(error.clone()));
    assert_eq!(crate::panics::contain(|| spoiled.accepts()), Ok(Err(error)));
    other.matcher.consume_token(u32::from(b'a')).unwrap();
    read().matcher.consume_token(u32::from(b'b')).unwrap();
}

/// A schema that no value satisfies is refused before anything is generated.
#[test]
fn schemas_of_nothing() {
    let text = |more: Value| {
        let mut schema = json!({"type": "string"});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let itself = |at: Value| json!({"$ref": "#/$defs/t", "$defs": {"t": at}});
    let inner = json!({"$ref": "#/$defs/t"});
    for schema in [
        json!(false),
        json!({"enum": []}),
        json!({"anyOf": []}),
        json!({"anyOf": [false, {"enum": []}]}),
        json!({"type": []}),
        text(json!({"pattern": "^$", "minLength": 1})),
        text(json!({"pattern": "^a{5}$", "maxLength": 4})),
        text(json!({"minLength": 5, "maxLength": 4})),
        text(json!({"const": 5})),
        text(json!({"enum": ["a"], "pattern": "^b"})),
        text(json!({"enum": ["abc"], "maxLength": 2})),
        text(json!({"format": "date", "maxLength": 3})),
        text(json!({"format": "ipv4", "pattern": "^x"})),
        text(json!({"allOf": [{"pattern": "^a"}, {"pattern": "^b"}]})),
        json!({"type": "integer", "minimum": 5, "maximum": 4}),
        json!({"type": "integer", "minimum": 1.2, "maximum": 1.8}),
        json!({"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 5}),
        json!({"type": "number", "minimum": 5, "maximum": 4.5}),
        json!({"type": "number", "exclusiveMinimum": 4, "maximum": 4}),
        json!({"type": "integer", "multipleOf": 10, "minimum": 1, "maximum": 9}),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"allOf": [{"const": 1}, {"const": 2}]}),
        json!({"allOf": [{"enum": [1, 2]}, {"enum": ["a"]}]}),
        json!({"type": "array", "minItems": 3, "maxItems": 2}),
        json!({"type": "array", "minItems": 1, "items": false}),
        json!({"type": "array", "minItems": 1, "items": {"enum": []}}),
        json!({"type": "array", "minItems": 1, "prefixItems": [false]}),
        json!({"type": "array", "minItems": 3, "prefixItems": [{}, {}], "items": false}),
        json!({"type": "object", "minProperties": 3, "maxProperties": 2}),
        json!({"type": "object", "minProperties": 1, "additionalProperties": false}),
        json!({"type": "object", "required": ["a"], "properties": {"a": false}}),
        json!({"type": "object", "required": ["a"], "additionalProperties": false}),
        json!({"type": "object", "required": ["b"], "properties": {"a": {}}, "additionalProperties": false}),
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}}}),
        json!({"type": "object", "required": ["a"], "properties": {"a": {"anyOf": [{"enum": []}, false]}}}),
        // They are infinite.
        itself(json!({"type": "object", "required": ["t"], "properties": {"t": inner.clone()}})),
        itself(json!({"type": "array", "minItems": 1, "items": inner.clone()})),
        itself(json!({"type": "array", "prefixItems": [inner.clone()], "minItems": 1})),
        itself(json!({"anyOf": [{"type": "array", "minItems": 1, "items": inner.clone()},
            {"type": "object", "required": ["t"], "properties": {"t": inner.clone()}}]})),
    ] {
        for body in [answer(&schema), tool(&schema)] {
            let fate = fate(&body);
            assert!(matches!(fate, Fate::Refused(_)), "{schema}: {fate:?}");
        }
    }
}

#[test]
fn many_tools() {
    let tools = list(64, |at| {
        json!({"type": "function", "name": format!("f{at}"), "parameters": {
        "type": "object", "properties": object(12, |at| (format!("p{at}"), json!({"type": "string", "pattern": window(at)})))}})
    });
    let body = json!({"model": "m", "input": "hello", "tools": tools});
    assert_eq!(fate(&body), Fate::Refused("tools[21].parameters.properties.p5".to_owned()));
}

#[test]
fn grammars_of_clients() {
    let custom = |syntax: &str, definition: &str| {
        fate(
            &json!({"model": "m", "input": "hello", "tool_choice": "required", "tools": [{"type": "custom", "name": "f",
            "format": {"type": "grammar", "syntax": syntax, "definition": definition}}]}),
        )
    };
    let refused = || Fate::Refused("tools[0].format.definition".to_owned());
    assert_eq!(custom("lark", "start: WORD+\nWORD: /[a-z]+ /"), Fate::Fine);
    assert_eq!(custom("regex", &window(24)), Fate::Fine);
    assert_eq!(custom("regex", "(a|b)*a(a|b){24}"), Fate::Fine);
    let windows: Vec<_> = (4..24).map(|at| format!("/(a|b)*a(a|b){{{at}}}/")).collect();
    assert_eq!(custom("lark", &format!("start: T\nT: {}", windows.join(" & "))), refused());
    let doubled: String = (1..40).map(|at| format!("T{at}: T{0} T{0}\n", at - 1)).collect();
    assert_eq!(custom("lark", &format!("start: T39\nT0: /a|b/\n{doubled}")), refused());
    let rules: String = (1..60).map(|at| format!("r{at}: r{0} r{0}\n", at - 1)).collect();
    assert_eq!(custom("lark", &format!("start: r59\nr0: \"a\"\n{rules}")), Fate::Fine);
    assert_eq!(custom("lark", "start: ((\"a\"{1000}){1000}){1000}"), Fate::Fine);
    assert_eq!(custom("lark", "start: nothing"), refused());
    for (syntax, definition, is_fine) in [
        ("lark", "start: s\ns: s s s | s s | \"a\" |".to_owned(), true),
        ("lark", "start: (((A*)*)*)*\nA: /a*/".to_owned(), true),
        ("lark", "start: \"a\"{1000000000}".to_owned(), true),
        ("lark", "start: x{0,100000}\nx: \"a\" | \"b\" y\ny: \"c\"{0,100000}".to_owned(), true),
        ("lark", "start: T\nT: /(a|b)*a(a|b){4000}/".to_owned(), true),
        ("lark", "start: a\na[lazy]: /.*x.{500}y/".to_owned(), true),
        ("lark", "start: a b\na[suffix=\"end\"]: /(.|\\n)*/\nb: a a a a".to_owned(), true),
        (
            "lark",
            "start: a\na[capture,max_tokens=1000000000,temperature=1e30]: /.*/".to_owned(),
            true,
        ),
        ("lark", "start: T\nT: ~/(a|b)*a(a|b){24}/ & /(a|b)*/".to_owned(), true),
        (
            "lark",
            format!("start: T\nT: %regex {{\"substring_words\": \"{}\"}}", "word ".repeat(2000)),
            true,
        ),
        (
            "lark",
            "%llguidance {\"no_forcing\": true, \"allow_initial_skip\": true}\nstart: /a*/"
                .to_owned(),
            true,
        ),
        ("lark", "%ignore /(a|b)*a(a|b){24}/\nstart: \"x\" \"y\" \"z\"".to_owned(), true),
        ("lark", "start: <[0-100000000]>*".to_owned(), false),
        ("lark", "start: <[^0]>{1000000}".to_owned(), true),
        ("lark", "start: start".to_owned(), false),
        ("lark", "start: a\na: b\nb: a".to_owned(), false),
        ("lark", "start:".to_owned(), true),
        (
            "lark",
            "start: a::0\na::_: \"x\" a::incr(_) %if lt(_, 1000000000)\n   | \"y\"".to_owned(),
            true,
        ),
        ("lark", format!("start: {}\"a\"{}", "(".repeat(20_000), ")".repeat(20_000)), false),
        ("lark", format!("start: {}\"a\"{}", "(".repeat(20_000), ")?".repeat(20_000)), false),
        (
            "lark",
            format!("start: a\na: {}%lark {{ start: /a/ }}", "%lark { start: ".repeat(300)),
            false,
        ),
        (
            "lark",
            format!(
                "start: ({})*\n{}",
                (0..1500).map(|at| format!("T{at}")).collect::<Vec<_>>().join(" | "),
                (0..1500).map(|at| format!("T{at}: /[a-z]{{{}}}x/\n", at % 90)).collect::<String>()
            ),
            true,
        ),
        ("regex", format!("{}a{}", "(".repeat(20_000), ")".repeat(20_000)), false),
        ("regex", (0..6000).map(|at| format!("w{at}")).collect::<Vec<_>>().join("|"), true),
        ("regex", "a?".repeat(5000) + &"a".repeat(5000), false),
        ("regex", "[\\w\\s\\p{L}]{1,9999}(x|y){1,9999}".to_owned(), true),
        ("regex", "(((a{1,1000}){1,1000}){1,1000}){1,1000}".to_owned(), true),
    ] {
        let shown = &definition[..definition.floor_char_boundary(60)];
        let want = if is_fine { Fate::Fine } else { refused() };
        assert_eq!(custom(syntax, &definition), want, "{shown}");
    }
    assert_eq!(custom("lark", "start: start \"a\" | start start | \"\""), Fate::Fine);
}

/// No work is done for a disconnected client.
#[test]
fn compiling_is_quick() {
    let trials = [];
    let read = GRAMMARS.read("start: \"never read before\"", &trials, &|| false);
    assert_eq!(read.map(drop), Err(super::unusable(super::UNWANTED.to_owned())));
    // Those that wait for a slot give up, too.
    let places: Vec<_> = (0..super::READ_AT_ONCE).map(|_| GRAMMARS.place(&|| true)).collect();
    assert!(GRAMMARS.place(&|| false).is_none());
    drop(places);
    assert!(GRAMMARS.place(&|| false).is_some());
}

fn pattern() -> impl Strategy<Value = String> {
    let atom = prop::sample::select(vec![
        "a", "b", ".", "[a-z]", "[^a]", "\\d", "\\w", "(a|b)", "(a|ab)", "x{3,9}", "\\p{L}",
        "(?i)q", "\\.", "^", "$",
    ]);
    let count = prop::sample::select(vec!["", "", "*", "+", "?", "{24}", "{0,1000}", "{9,}"]);
    let run = prop::collection::vec((atom, count), 1..7).prop_map(|parts| {
        parts.into_iter().map(|(atom, count)| format!("{atom}{count}")).collect::<String>()
    });
    run.prop_recursive(3, 12, 3, |inner| {
        (prop::collection::vec(inner, 1..4), prop::sample::select(vec!["", "*", "{5}", "{0,50}"]))
            .prop_map(|(parts, count)| format!("({}){count}", parts.join("|")))
    })
}

fn leaf() -> impl Strategy<Value = Value> {
    let number =
        prop_oneof![any::<f64>(), -1e6..1e6, Just(0.0), (1..100_000_i32).prop_map(f64::from)];
    let count = prop_oneof![0..50_u64, 0..u64::MAX];
    prop_oneof![
        4 => pattern().prop_map(|pattern| json!({"type": "string", "pattern": pattern})),
        1 => (pattern(), count.clone(), count.clone()).prop_map(|(pattern, a, b)| json!({"pattern": pattern, "minLength": a, "maxLength": b})),
        1 => (pattern(), prop::sample::select(vec!["uri", "email", "ipv6", "date-time", "uuid"])).prop_map(|(pattern, format)| json!({"pattern": pattern, "format": format})),
        1 => (number.clone(), number.clone(), number).prop_map(|(a, b, c)| json!({"type": "number", "minimum": a, "maximum": b, "multipleOf": c})),
        1 => (1..1_000_000_000_i64, any::<i64>()).prop_map(|(a, b)| json!({"type": "integer", "multipleOf": a, "minimum": b})),
        1 => (1..3000_usize).prop_map(|count| json!({"enum": list(count, |at| format!("{at}w").into())})),
        1 => Just(json!({"$ref": "#/$defs/x"})),
        1 => Just(json!({"$ref": "#"})),
        1 => Just(json!(true)),
        1 => count.prop_map(|count| json!({"type": "array", "maxItems": count})),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 40, 6, |inner| {
        let some = prop::collection::vec(inner.clone(), 1..6);
        let fields = prop::collection::btree_map("[a-d]{1,2}", inner.clone(), 1..6);
        let named = prop::collection::btree_map(pattern(), inner.clone(), 1..4);
        prop_oneof![
            3 => some.clone().prop_map(|parts| json!({"allOf": parts})),
            2 => some.clone().prop_map(|parts| json!({"anyOf": parts})),
            1 => some.clone().prop_map(|parts| json!({"oneOf": parts})),
            1 => some.prop_map(|parts| json!({"type": "array", "prefixItems": parts})),
            2 => fields.clone().prop_map(|fields| json!({"type": "object", "properties": fields})),
            1 => (fields, named, inner.clone()).prop_map(|(fields, named, rest)| json!({
                "properties": fields, "patternProperties": named, "additionalProperties": rest})),
            1 => inner.prop_map(|items| json!({"items": items, "minItems": 2})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Every request is refused or completed within the available time, memory and stack.
    #[test]
    fn any_schema_is_followed_or_refused(schema in schema(), definition in schema(), as_tool: bool) {
        let mut schema = schema;
        if let Value::Object(fields) = &mut schema {
            fields.insert("$defs".to_owned(), json!({"x": definition}));
        }
        let _ = fate(&if as_tool { tool(&schema) } else { answer(&schema) });
        prop_assert!(memory_bytes() < MEMORY_BYTES_MAX, "{} bytes: {schema}", memory_bytes());
    }
}

fn cases() -> u32 {
    std::env::var("HEDDLE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(256)
}

/// The peak memory of this process.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

/// Ten times what the worst case takes on a quiet machine.
const TIME_MAX: Duration = Duration::from_secs(20);
/// The tests of this crate may run in one process.
const MEMORY_BYTES_MAX: u64 = 2 << 30;
