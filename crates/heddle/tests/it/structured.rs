//! Structured output: values that conform always decode, others are always reported, and values grow to the last one.

use futures_util::StreamExt as _;
use heddle::structured_output::{AnswerError, Schema, SchemaError};
use heddle::{ErrorKind, ThreadSpec};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::scripted::{Lab, message};

/// A type with all that derives write.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Everything {
    /// A number that is not negative.
    count: u32,
    small: i8,
    large: i64,
    ratio: f64,
    name: Option<String>,
    limit: Option<u16>,
    #[serde(default)]
    tags: Vec<String>,
    pair: (String, u8),
    letter: char,
    kind: Kind,
    shape: Shape,
    action: Action,
    /// A tree.
    tree: Node,
    next: Option<Box<Node>>,
    #[serde(flatten)]
    meta: Meta,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Plain,
    /// It has a comment.
    WithComment,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(tag = "type")]
enum Shape {
    Point,
    Circle { radius: u8 },
    Tagged(Meta),
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
enum Action {
    Wait,
    Say(String),
    Move { x: i16, y: Option<i16> },
    Both(u8, bool),
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Node {
    label: String,
    children: Vec<Node>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Meta {
    author: String,
    #[serde(default)]
    draft: bool,
}

fn meta() -> impl Strategy<Value = Meta> {
    ("\\PC{0,4}", any::<bool>()).prop_map(|(author, draft)| Meta { author, draft })
}

fn node() -> impl Strategy<Value = Node> {
    let leaf = "[a-c]{0,2}".prop_map(|label| Node { label, children: Vec::new() });
    leaf.prop_recursive(3, 8, 3, |inner| {
        ("[a-c]{0,2}", prop::collection::vec(inner, 0..3))
            .prop_map(|(label, children)| Node { label, children })
    })
}

fn everything() -> impl Strategy<Value = Everything> {
    let kind = prop_oneof![Just(Kind::Plain), Just(Kind::WithComment)];
    let shape = prop_oneof![
        Just(Shape::Point),
        any::<u8>().prop_map(|radius| Shape::Circle { radius }),
        meta().prop_map(Shape::Tagged),
    ];
    let action = prop_oneof![
        Just(Action::Wait),
        "\\PC{0,4}".prop_map(Action::Say),
        any::<(i16, Option<i16>)>().prop_map(|(x, y)| Action::Move { x, y }),
        any::<(u8, bool)>().prop_map(|(n, b)| Action::Both(n, b)),
    ];
    let numbers = (any::<u32>(), any::<i8>(), any::<i64>(), any::<i16>());
    let texts = (any::<Option<String>>(), prop::collection::vec("[a-z]{0,3}", 0..3), any::<char>());
    let rest = (any::<Option<u16>>(), any::<(String, u8)>(), prop::option::of(node()));
    (numbers, texts, rest, kind, shape, action, node(), meta()).prop_map(
        |(numbers, texts, rest, kind, shape, action, tree, meta)| {
            let (count, small, large, quarters) = numbers;
            let ratio = f64::from(quarters) / 4.0;
            let (name, tags, letter) = texts;
            let (limit, pair, next) = rest;
            let next = next.map(Box::new);
            Everything {
                count,
                small,
                large,
                ratio,
                name,
                limit,
                tags,
                pair,
                letter,
                kind,
                shape,
                action,
                tree,
                next,
                meta,
            }
        },
    )
}

/// Lists all places of a value, as JSON pointers.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    into.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), into);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                places(member, &format!("{at}/{name}"), into);
            }
        }
        _ => {}
    }
}

/// Values that replace others.
fn other() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!(-1)),
        Just(json!(1.0)),
        Just(json!(0.5)),
        Just(json!(300)),
        Just(json!(5_000_000_000u64)),
        Just(json!(1e20)),
        Just(json!("")),
        Just(json!("Wait")),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!({"type": "Point"})),
        Just(json!({"Say": "x"})),
        Just(json!(["x", 1])),
    ]
}

proptest! {
    /// Values of the type conform and are read back; whatever else conforms can be read, and what does not is reported.
    #[test]
    fn values_that_conform_decode(value in everything(), pick: prop::sample::Index, other in other()) {
        let answers = Schema::of::<Everything>().compile().unwrap();
        let written = serde_json::to_value(&value).unwrap();
        let text = written.to_string();
        prop_assert_eq!(answers.check(&text), Ok(()), "{}", text);
        prop_assert_eq!(&serde_json::from_str::<Everything>(&text).unwrap(), &value);
        let mut all = Vec::new();
        places(&written, "", &mut all);
        let place: &String = pick.get(&all);
        let mut changed = written.clone();
        *changed.pointer_mut(place).unwrap() = other;
        let text = changed.to_string();
        let mut result = heddle::TurnResult::default();
        result.final_response = Some(text.as_str().into());
        let read = result.json::<Everything>();
        match answers.check(&text) {
            Ok(()) => prop_assert!(read.is_ok(), "{text}: {read:?}"),
            Err(violations) => {
                for one in &violations.list {
                    prop_assert!(changed.pointer(&one.path).is_some(), "{one} in {text}");
                }
            }
        }
        if let Err(AnswerError::Mismatch { path, .. }) = &read {
            prop_assert!(changed.pointer(path).is_some(), "{path} in {text}");
        }
    }
}

#[test]
fn what_has_no_strict_form_is_named() {
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Loose {
        sizes: std::collections::HashMap<String, u32>,
        rest: Value,
        fine: bool,
    }
    let Err(SchemaError::NotStrict(problems)) = Schema::of::<Loose>().compile() else { panic!() };
    let places: Vec<_> = problems.list.iter().map(|it| it.place.as_str()).collect();
    assert_eq!(places, ["/properties/sizes", "/properties/rest"], "{problems}");
    // The error names the fields and the way out.
    let error = Schema::of::<Loose>().compile().unwrap_err().to_string();
    for words in ["/properties/sizes", "/properties/rest", "as_written"] {
        assert!(error.contains(words), "{error}");
    }
    // Who has a provider that takes it sends it as it is.
    let answers = Schema::of::<Loose>().as_written().compile().unwrap();
    assert!(answers.check(r#"{"sizes": {"a": 1}, "rest": [], "fine": true}"#).is_ok());
    assert!(answers.check(r#"{"sizes": {"a": "x"}, "rest": [], "fine": true}"#).is_err());
}

/// Schemas of types keep what they refer to when they become parts of others.
#[test]
fn schemas_of_types_can_be_parts() {
    mod other {
        /// A type of the same name.
        #[derive(schemars::JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        pub(super) struct Outer {
            pub(super) node: Node,
        }
        #[derive(schemars::JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        pub(super) struct Node {
            pub(super) number: u8,
        }
    }
    let schema = Schema::object()
        .field("trees", Schema::list(Schema::of::<Node>()))
        .field("default", Schema::of::<other::Outer>())
        .optional("shape", Schema::any_of([Schema::of::<Shape>(), Schema::of::<Kind>()]));
    let answers = schema.compile().unwrap();
    let node = json!({"label": "a", "children": [{"label": "b", "children": []}]});
    let good = json!({"trees": [node], "default": {"node": {"number": 3}}, "shape": null});
    assert_eq!(answers.check(&good.to_string()), Ok(()), "{:#}", answers.sent());
    for (place, path) in [
        ("/trees/0/children/0/label", "/trees/0/children/0/label"),
        ("/default/node/number", "/default/node/number"),
    ] {
        let mut wrong = good.clone();
        *wrong.pointer_mut(place).unwrap() = json!([]);
        let violations = answers.check(&wrong.to_string()).unwrap_err();
        assert_eq!(violations.list[0].path, path, "{violations}");
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(default)]
struct Recipe {
    title: String,
    steps: Vec<String>,
}

const SOUP: &str = r#"{"title": "Soup", "steps": ["Stir.", "Wait."]}"#;

fn soup() -> Recipe {
    Recipe { title: "Soup".into(), steps: vec!["Stir.".into(), "Wait.".into()] }
}

#[tokio::test]
async fn answers_grow_and_end_as_the_result() {
    let lab = Lab::new();
    let answers = vec![vec![message("no JSON")], vec![message(SOUP)]];
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), answers)).await.unwrap();
    let turn = thread.turn("How do I make soup?").output::<Recipe>().unwrap();
    let mut recipes = turn.partials::<Recipe>();
    let mut last = None;
    while let Some(recipe) = recipes.next().await {
        last = Some(recipe);
    }
    let result = recipes.result().unwrap();
    assert_eq!(result.json(), Ok(soup()));
    assert_eq!(last, Some(soup()));
    let requests = lab.requests.lock().unwrap();
    let format = &requests[0]["text"]["format"];
    assert_eq!(
        (&format["strict"], &format["schema"]["additionalProperties"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(format["schema"]["required"], json!(["title", "steps"]));
}

#[tokio::test]
async fn a_turn_is_its_answer() {
    let lab = Lab::new();
    let wrong = message("{}");
    let answers = vec![
        vec![message(SOUP)],
        vec![wrong.clone()],
        vec![wrong.clone()],
        vec![wrong.clone()],
        vec![wrong],
    ];
    let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), answers)).await.unwrap();
    let recipe: Recipe = thread.turn("How do I make soup?").json().await.unwrap();
    assert_eq!(recipe, soup());
    let failed = thread.turn("And now?").json::<Recipe>().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Answer, "{failed:?}");
    let [first, second] = failed.violations().unwrap().list.as_slice() else { panic!("{failed}") };
    assert_eq!(
        (first.path.as_str(), &*first.expected, &*first.got),
        ("", "the property \"title\"", "{}")
    );
    assert_eq!(second.expected, "the property \"steps\"");
    let turn = thread.turn("At once").output::<Recipe>().unwrap().output_retries(0).unwrap();
    let error = turn.run().await.unwrap_err().to_string();
    assert!(
        error.starts_with("the answer does not match the output schema: at the whole"),
        "{error}"
    );
    assert_eq!(lab.requests.lock().unwrap().len(), 4);
    assert!(thread.turn("x").output_retries(11).is_err());
    let none = thread.turn("x").json::<Vec<String>>().await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Settings, "{none:?}");
}
