//! Generated values and JSON text, for the properties of the other files.

use proptest::prelude::*;
use protocol::exec::FileUpdate;
use protocol::item::{ChangeKind, Status, WebSearchAction};
use protocol::usage::Usage;

/// Text with characters that JSON has to escape.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z\"\\\\\n\t\u{1}é\u{2028}😀]{0,8}"]
}

pub(crate) fn maybe_text() -> impl Strategy<Value = Option<String>> {
    prop::option::of(text())
}

pub(crate) fn usage() -> impl Strategy<Value = Usage> {
    any::<[u64; 5]>().prop_map(|[input, cached, cache_write, output, reasoning]| Usage {
        input_tokens: input,
        cached_input_tokens: cached,
        cache_write_input_tokens: cache_write,
        output_tokens: output,
        reasoning_output_tokens: reasoning,
    })
}

pub(crate) fn status() -> impl Strategy<Value = Status> {
    prop::sample::select(vec![
        Status::InProgress,
        Status::Completed,
        Status::Failed,
        Status::Declined,
    ])
}

pub(crate) fn change() -> impl Strategy<Value = FileUpdate> {
    let kind = prop::sample::select(vec![ChangeKind::Add, ChangeKind::Delete, ChangeKind::Update]);
    (text(), kind).prop_map(|(path, kind)| FileUpdate { path, kind })
}

pub(crate) fn action() -> impl Strategy<Value = WebSearchAction> {
    let queries = prop::option::of(prop::collection::vec(text(), 0..3));
    prop_oneof![
        (maybe_text(), queries)
            .prop_map(|(query, queries)| WebSearchAction::Search { query, queries }),
        maybe_text().prop_map(|url| WebSearchAction::OpenPage { url }),
        (maybe_text(), maybe_text())
            .prop_map(|(url, pattern)| WebSearchAction::FindInPage { url, pattern }),
        Just(WebSearchAction::Other),
    ]
}

/// The JSON text of an object of an unknown kind, with odd spellings of its content.
pub(crate) fn object() -> impl Strategy<Value = String> {
    let before = prop::collection::vec(field(), 0..3);
    let after = prop::collection::vec(field(), 0..3);
    (before, "x[a-z_.]{0,8}", after, space()).prop_map(|(before, kind, after, space)| {
        let mut fields = before;
        fields.push(format!(r#""type":{space}"{kind}""#));
        fields.extend(after);
        format!("{{{space}{}{space}}}", fields.join(&format!(",{space}")))
    })
}

/// A field with a name that no type here has.
fn field() -> impl Strategy<Value = String> {
    (r#"k[a-z é]{0,3}(\\u00e9)?"#, json()).prop_map(|(key, value)| format!(r#""{key}":{value}"#))
}

fn json() -> impl Strategy<Value = String> {
    let scalar = prop::sample::select(vec![
        "null",
        "true",
        "1.00",
        "-0",
        "-0.0",
        "1e5",
        "1E+2",
        "0.10",
        "12345678901234567890123",
        "1e999",
        r#""""#,
        r#""\u00e9\/\ud83d\ude00""#,
        r#""é 😀""#,
        r#"{"type":"message"}"#,
    ]);
    scalar.prop_map(str::to_owned).prop_recursive(4, 24, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4);
        let map = prop::collection::vec(inner, 0..4);
        prop_oneof![
            (list, space()).prop_map(|(list, space)| format!("[{space}{}]", list.join(","))),
            // Duplicate keys: nothing forbids them.
            (map, space()).prop_map(|(map, space)| {
                let fields: Vec<_> =
                    map.iter().map(|value| format!(r#""k"{space}:{value}"#)).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

fn space() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", " ", "\t", "  "]).prop_map(str::to_owned)
}
