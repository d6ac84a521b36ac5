//! Changes of a text: what it says afterwards, and that nothing else in it has changed.

use config::{Edit, EditError, KeyPath, Layer, Merge, apply};
use proptest::prelude::*;
use serde_json::{Value, json};

fn layer(text: &str) -> Layer {
    Layer { name: "config.toml".into(), text: text.to_owned() }
}

fn edit(path: &str, value: Value, merge: Merge) -> Edit {
    Edit { path: KeyPath::parse(path).unwrap(), value, merge }
}

/// Sets one value.
#[track_caller]
fn check(before: &str, path: &str, value: Value, want: &str) {
    let changed = apply(&layer(before), &[edit(path, value, Merge::Replace)]).unwrap();
    assert_eq!(changed, want, "{path}");
}

#[track_caller]
fn check_upsert(before: &str, path: &str, value: Value, want: &str) {
    let changed = apply(&layer(before), &[edit(path, value, Merge::Upsert)]).unwrap();
    assert_eq!(changed, want, "{path}");
}

#[test]
fn values() {
    check("", "model", json!("m"), "model = \"m\"\n");
    check("model = 'a' # why\n", "model", json!("b"), "model = \"b\" # why\n");
    check("  model='a'", "model", json!("b"), "  model=\"b\"\n");
    check("# a\nx = 1\n[t]\ny = 1\n", "z", json!(true), "# a\nx = 1\nz = true\n[t]\ny = 1\n");
    check("[t]\ny = 1\n\n# end\n", "t.z", json!(1.0), "[t]\ny = 1\nz = 1.0\n\n# end\n");
    check("a = [\n  1, # one\n]\n", "a", json!([1]), "a = [\n  1, # one\n]\n");
    check("a = [\n  1, # one\n]\n", "a", json!([1, 2]), "a = [1, 2]\n");
    check("a = 0x10\n", "a", json!(16), "a = 0x10\n");
    check("", "x", json!("a\n\"b\" \u{1}é\\"), "x = \"\"\"\na\n\"b\" \\u0001é\\\\\"\"\"\n");
}

#[test]
fn tables() {
    check("", "a.b.c", json!(1), "[a.b]\nc = 1\n");
    check("x = 1\n", "a", json!({"b": {"c": 1}, "d": 2}), "x = 1\n\n[a]\nd = 2\n\n[a.b]\nc = 1\n");
    check("", "a", json!({}), "[a]\n");
    check(
        "",
        "projects.\"/a.b\".trust_level",
        json!("trusted"),
        "[projects.\"/a.b\"]\ntrust_level = \"trusted\"\n",
    );
    // Keys that stay are as they were written.
    let text = "[p.x]\nname='a' # n\nold=1\n[q]\n";
    check(text, "p.x", json!({"name": "a", "new": 2}), "[p.x]\nname='a' # n\nnew = 2\n[q]\n");
    check_upsert(text, "p.x", json!({"new": 2}), "[p.x]\nname='a' # n\nold=1\nnew = 2\n[q]\n");
    check_upsert(text, "p", json!({"x": {"name": "b"}}), "[p.x]\nname=\"b\" # n\nold=1\n[q]\n");
    // A table in the place of a value, and the other way round.
    check("a = 1 # one\nb = 2\n", "a", json!({"c": 1}), "a = { c = 1 } # one\nb = 2\n");
    check("[a]\nb = 1\n[a.c]\nd = 1\n[e]\n", "a.c", json!(1), "[a]\nb = 1\nc = 1\n[e]\n");
}

#[test]
fn tables_on_one_line() {
    let text = "# t\ntools = { view_image = true } # inline\n";
    check(
        text,
        "tools.web_search",
        json!({"context_size": "low"}),
        "# t\ntools = { view_image = true, web_search = { context_size = \"low\" } } # inline\n",
    );
    check(text, "tools.view_image", json!(false), "# t\ntools = { view_image = false } # inline\n");
    check(text, "tools.view_image", Value::Null, "# t\ntools = {} # inline\n");
    check("t = { a = 1, b = 2 }\n", "t.b", Value::Null, "t = { a = 1 }\n");
    check("t = { a = 1, b = 2 }\n", "t.a", Value::Null, "t = { b = 2 }\n");
    check("t = {a=1}\n", "t.b", json!(2), "t = {a=1, b = 2 }\n");
    let dotted = "s.a = true # a\ns.b = true\nx = 1\n";
    check(dotted, "s.a", json!(false), "s.a = false # a\ns.b = true\nx = 1\n");
    check(dotted, "s.c", json!(["/a"]), "s.a = true # a\ns.b = true\ns.c = [\"/a\"]\nx = 1\n");
    check(dotted, "s.d.e", json!(1), "s.a = true # a\ns.b = true\ns.d = { e = 1 }\nx = 1\n");
    check("s.a = 1\n", "s.a", Value::Null, "s = {}\n");
}

#[test]
fn removed() {
    check("a = 1\n# about b\nb = 2\nc = 3\n", "b", Value::Null, "a = 1\nc = 3\n");
    check("[a.b]\nc = 1\n", "a.b", Value::Null, "[a]\n");
    check("[a.b]\nc = 1\n", "a.b.c", Value::Null, "[a.b]\n");
    check("a = 1\n[t]\nb = 1\n", "t", Value::Null, "a = 1\n");
    for gone in ["b", "b.c", "a.b", "t.x.y"] {
        let text = "a = 1 # a\n[t]\n";
        check(text, gone, Value::Null, text);
    }
}

#[test]
fn lists_of_tables() {
    let text = "[[s.c]]\nname = 'a' # a\n\n[[s.c]]\nname = 'b'\n\n[t]\n";
    let (a, b, c) = (json!({"name": "a"}), json!({"name": "b"}), json!({"name": "c"}));
    check(text, "s.c", json!([a, b]), text);
    check(text, "s.c", json!([a]), "[[s.c]]\nname = 'a' # a\n\n[t]\n");
    check(text, "s.c", json!([b, a]), "\n[[s.c]]\nname = 'b'\n[[s.c]]\nname = 'a' # a\n\n[t]\n");
    check(
        text,
        "s.c",
        json!([a, b, c]),
        "[[s.c]]\nname = 'a' # a\n\n[[s.c]]\nname = 'b'\n\n[[s.c]]\nname = \"c\"\n\n[t]\n",
    );
    check(text, "s.c", json!([]), "[s]\nc = []\n\n[t]\n");
    check("", "s.c", json!([a]), "[s]\nc = [{ name = \"a\" }]\n");
}

#[test]
fn ends_of_lines_and_marks_stay() {
    check("a = 1\r\n# b\r\n", "b", json!(2), "a = 1\r\nb = 2\r\n# b\r\n");
    check("\u{feff}a = 1\n", "a", json!(2), "\u{feff}a = 2\n");
}

#[test]
fn edits_are_made_in_their_order_or_not_at_all() {
    let set = |path, value| edit(path, value, Merge::Replace);
    let all = [set("a", json!(1)), set("a", json!({"b": 1})), set("a.b", json!(2))];
    assert_eq!(apply(&layer(""), &all).unwrap(), "a = { b = 2 }\n");
    let last = [set("a", json!(1)), set("a.b", json!(2))];
    let parent = "a".to_owned();
    assert_eq!(apply(&layer(""), &last), Err(EditError::NotATable { parent }));
}

#[test]
fn refused() {
    let refused = |path: &str, value: Value| {
        let merge = Merge::Upsert;
        let path = KeyPath::parse(path).unwrap();
        apply(&layer("a = 1\nl = [{ x = 1 }]\n"), &[Edit { path, value, merge }]).unwrap_err()
    };
    for (path, value, words) in [
        ("x", json!({"y": null}), "`x.y` is null"),
        ("x", json!([1, null]), "`x.1` is null"),
        ("x.y", json!(u64::MAX), "`x.y` is a number"),
        ("a.b", json!(1), "`a` is not a table"),
        ("l.0", json!(1), "`l` is not a table"),
        ("a.\"b c\".d", json!(1), "`a` is not a table"),
    ] {
        let error = refused(path, value).to_string();
        assert!(error.starts_with(words), "{path}: {error}");
    }
    let broken = apply(&layer("a = \n"), &[edit("b", json!(1), Merge::Replace)]).unwrap_err();
    assert!(broken.to_string().starts_with("config.toml:1:"), "{broken}");
}

#[test]
fn paths() {
    for (text, want) in [
        ("a", Ok("a")),
        ("a.b-c.d_1", Ok("a.b-c.d_1")),
        ("a.\"b.c\".d", Ok("a.\"b.c\".d")),
        ("\"a\\\"b\"", Ok("\"a\\\"b\"")),
        (" a", Ok("\" a\"")),
        ("", Err("has an empty part")),
        (".", Err("has an empty part")),
        ("a..b", Err("has an empty part")),
        ("a.", Err("has an empty part")),
        ("a.\"\"", Err("has an empty part")),
        ("a.\"b", Err("badly quoted")),
        ("a.\"b\"c", Err("badly quoted")),
        ("\"a\\", Err("badly quoted")),
    ] {
        let got = KeyPath::parse(text).map(|path| path.to_string()).map_err(|it| it.to_string());
        match (&got, want) {
            (Ok(path), Ok(want)) => assert_eq!(path, want),
            (Err(error), Err(words)) => assert!(error.contains(words), "{text}: {error}"),
            _ => panic!("{text}: {got:?}"),
        }
    }
    assert!(KeyPath::parse(&vec!["a"; config::KEY_PARTS_MAX].join(".")).is_ok());
    let deep = KeyPath::parse(&vec!["a"; config::KEY_PARTS_MAX + 1].join("."));
    assert!(matches!(deep, Err(EditError::TooDeep(_))), "{deep:?}");
}

/// Lines that are TOML in most orders.
const LINES: &[&str] = &[
    "a = 1 # one",
    "b = 'x'",
    "c = { d = 1, e.f = 2 }",
    "g.h = 1",
    "g.i.j = [1, { k = 2 }]",
    "[c]",
    "d = 2",
    "[a.b]",
    "[a]",
    "  [m.n] # header",
    "o = 1979-05-27",
    "[[l]]",
    "p = '''\nq\n'''",
    "# comment",
    "",
    "[g.i]",
    "e = inf",
];

fn text() -> impl Strategy<Value = String> {
    let lines = proptest::collection::vec(proptest::sample::select(LINES), 0..8);
    (lines, any::<bool>()).prop_map(|(lines, crlf)| lines.join(if crlf { "\r\n" } else { "\n" }))
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
    .prop_filter("no null", |value| !value.is_null());
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = proptest::sample::select(&["a", "b", "d", "x y", "é", ""][..]);
        let fields = proptest::collection::vec((key, inner.clone()), 0..4);
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            fields.prop_map(|it| it.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let key =
        proptest::sample::select(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "l", "m", "n"][..]);
    let path = proptest::collection::vec(key, 1..4).prop_map(|keys| keys.join("."));
    let value = prop_oneof![1 => Just(Value::Null), 3 => value()];
    let one = (path, value, any::<bool>()).prop_map(|(path, value, upsert)| {
        edit(&path, value, if upsert { Merge::Upsert } else { Merge::Replace })
    });
    proptest::collection::vec(one, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever a file looks like, an edit that is possible can be made: the text says what it asks for.
    #[test]
    fn what_can_be_said_is_said(text in text(), edits in edits()) {
        match apply(&layer(&text), &edits) {
            Ok(changed) => {
                // What was set last is there.
                let last = edits.last().unwrap();
                let again = apply(&layer(&changed), std::slice::from_ref(last)).unwrap();
                prop_assert_eq!(&again, &changed);
            }
            Err(EditError::Unfaithful { .. }) => prop_assert!(false, "{:?} {:?}", text, edits),
            Err(_) => {}
        }
    }

    #[test]
    fn other_lines_stay(value in value()) {
        let text = "# first\na = 1 # one\n\n# second\nb = [ 1,2 ]\n\n[t] # t\n  x = 'y'\n";
        let changed = apply(&layer(text), &[edit("new.key", value, Merge::Replace)]).unwrap();
        prop_assert!(changed.starts_with(text), "{}", changed);
    }

    #[test]
    fn a_path_never_panics(text in any::<String>()) {
        if let Ok(path) = KeyPath::parse(&text) {
            prop_assert!(path.keys().iter().all(|key| !key.is_empty()));
        }
    }
}
