//! Items of the Responses API round-trip, and variants that endpoints send are understood.

use proptest::prelude::*;
use protocol::open::Open;
use protocol::responses::{
    CallOutput, Content, ContentPart, CustomToolCall, FunctionCall, KnownItem, KnownPart, Message,
    OutputBody, Reasoning, ResponseItem, SummaryPart, WebSearchCall,
};

use serde_json::value::to_raw_value;

use crate::generate::{action, maybe_text, object, text};

/// Parses what an endpoint sent and compares what is sent back.
#[track_caller]
fn check(sent: &str, back: &str) {
    let item: ResponseItem = serde_json::from_str(sent).unwrap();
    assert!(matches!(item, Open::Known(_)), "{sent}");
    assert_eq!(serde_json::to_string(&item).unwrap(), back);
}

#[test]
fn what_endpoints_send() {
    check(
        r#"{"type":"message","role":"assistant","status":"completed","content":"bare"}"#,
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"bare"}]}"#,
    );
    check(
        r#"{"content":null,"type":"message","id":"m","role":"assistant","phase":"final_answer"}"#,
        r#"{"type":"message","id":"m","role":"assistant","content":[],"phase":"final_answer"}"#,
    );
    check(
        r#"{"type":"message","role":"a","content":[{"type":"output_text","text":"t","annotations":[],"logprobs":[]}]}"#,
        r#"{"type":"message","role":"a","content":[{"type":"output_text","text":"t"}]}"#,
    );
    check(
        r#"{"type":"reasoning"}"#,
        r#"{"type":"reasoning","summary":[],"content":null,"encrypted_content":null}"#,
    );
    check(
        r#"{"type":"reasoning","content":[{"type":"reasoning_text", "n":1.00}]}"#,
        r#"{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text", "n":1.00}],"encrypted_content":null}"#,
    );
    check(
        r#"{"type":"function_call","name":"f","id":null}"#,
        r#"{"type":"function_call","name":"f","arguments":"","call_id":""}"#,
    );
    check(
        r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"u"}]}"#,
        r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"u"}]}"#,
    );
    check(
        r#"{"type":"custom_tool_call","name":"p","status":"completed"}"#,
        r#"{"type":"custom_tool_call","call_id":"","name":"p","input":""}"#,
    );
    check(r#"{"type":"web_search_call","action":null}"#, r#"{"type":"web_search_call"}"#);
    let new = r#"{"type":"web_search_call","action":{"type":"hop","far":1.0}}"#;
    check(new, new);
}

proptest! {
    #[test]
    fn any_item_comes_back(item in item()) {
        let json = serde_json::to_string(&item).unwrap();
        let read: ResponseItem = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&read, &Open::Known(item));
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), json);
    }
}

fn item() -> impl Strategy<Value = KnownItem> {
    let summary = (text(), text()).prop_map(|(kind, text)| SummaryPart { kind, text });
    let clear = object().prop_map(|json| serde_json::from_str(&json).unwrap());
    let clear = prop::option::of(prop::collection::vec(clear, 0..3));
    prop_oneof![
        (maybe_text(), text(), parts(), maybe_text()).prop_map(|(id, role, parts, phase)| {
            KnownItem::Message(Message { id, role, content: Content(parts), phase })
        }),
        (maybe_text(), prop::collection::vec(summary, 0..3), clear, maybe_text()).prop_map(
            |(id, summary, content, encrypted_content)| {
                KnownItem::Reasoning(Reasoning { id, summary, content, encrypted_content })
            }
        ),
        (maybe_text(), maybe_text(), [text(), text(), text()]).prop_map(
            |(id, namespace, [name, arguments, call_id])| {
                KnownItem::FunctionCall(FunctionCall {
                    id,
                    namespace,
                    name,
                    arguments,
                    call_id,
                    status: None,
                })
            }
        ),
        (maybe_text(), [text(), text(), text()]).prop_map(|(id, [call_id, name, input])| {
            KnownItem::CustomToolCall(CustomToolCall { id, call_id, name, input, status: None })
        }),
        output().prop_map(KnownItem::FunctionCallOutput),
        output().prop_map(KnownItem::CustomToolCallOutput),
        (maybe_text(), maybe_text(), prop::option::of(action())).prop_map(
            |(id, status, action)| {
                let action = action.map(|action| to_raw_value(&action).unwrap().into());
                KnownItem::WebSearchCall(WebSearchCall { id, status, action })
            }
        ),
    ]
}

fn output() -> impl Strategy<Value = CallOutput> {
    let body = prop_oneof![text().prop_map(OutputBody::Text), parts().prop_map(OutputBody::Parts)];
    (text(), body).prop_map(|(call_id, output)| CallOutput::new(call_id, output))
}

fn parts() -> impl Strategy<Value = Vec<ContentPart>> {
    let known = prop_oneof![
        text().prop_map(|text| KnownPart::InputText { text }),
        text().prop_map(|text| KnownPart::OutputText { text }),
        text().prop_map(|refusal| KnownPart::Refusal { refusal }),
        (text(), maybe_text())
            .prop_map(|(image_url, detail)| KnownPart::InputImage { image_url, detail }),
    ];
    let part = prop_oneof![
        3 => known.prop_map(Open::Known),
        1 => object().prop_map(|json| Open::Unknown(serde_json::from_str(&json).unwrap())),
    ];
    prop::collection::vec(part, 0..4)
}
