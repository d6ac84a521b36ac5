//! Edge cases of dialects: half of something, too much of something, and lookalikes.
//!
//! The vectors contain what everyone expects; these rows record our decisions where they are silent.

use serde_json::json;
use stream::dialect::{Options, Tools};

use crate::short::read;

#[track_caller]
fn check_with(name: &str, options: Options, input: &str, want: &str) {
    let place = json!({ "type": "object", "properties": { "item": { "type": "string" } } });
    let tools = json!([
        { "name": "search", "parameters": {
            "type": "object",
            "properties": {
                "q": { "type": "string" },
                "limit": { "type": "integer" },
                "exact": { "type": "boolean" },
                "note": { "type": ["string", "null"] },
                "tags": { "type": "array", "items": { "type": "string" } },
                "obj": { "$ref": "#/$defs/place" },
                "kind": { "enum": ["a", "b"] },
            },
            "$defs": { "place": place },
        } },
        { "name": "open", "parameters": {
            "type": "object", "additionalProperties": { "type": "string" },
        } },
        { "name": "ping", "parameters": { "type": "object", "properties": {} } },
    ]);
    let tools = Tools::from_json(&tools).unwrap();
    for size in [1, 2, 7, input.len().max(1)] {
        assert_eq!(read(name, &options, &tools, input, size), want, "{name} by {size}: {input}");
    }
}

#[track_caller]
fn check(name: &str, input: &str, want: &str) {
    check_with(name, Options::default(), input, want);
}

#[test]
fn json_values() {
    check(
        "hermes",
        r#"<tool_call>[{"name":"search","arguments":{"q":"x"}},{"name":"search","arguments":{"q":"x"}}]</tool_call>"#,
        r#"⟨search({"q":"x"})⟩⟨search({"q":"x"})⟩"#,
    );
    check(
        "hermes",
        "<tool_call>{\"name\":\"search\",\"arguments\":{\"q\":\"x\"}}\n{\"name\":\"search\",\"arguments\":{\"q\":\"x\"}}</tool_call>",
        r#"⟨search({"q":"x"})⟩⟨search({"q":"x"})⟩"#,
    );
    check(
        "hermes",
        "<tool_call>{\"name\":\"search\",\"arguments\":{\"q\":\"x\"}}\n<tool_call>{\"name\":\"search\",\"arguments\":{\"q\":\"x\"}}</tool_call>",
        "⟨search({\"q\":\"x\"})⟩⟨search({\"q\":\"x\"})⟩",
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":{"q":"x"}}</tool_call></tool_call> x"#,
        r#"⟨search({"q":"x"})⟩</tool_call> x"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":{"q":"x"}} words</tool_call> x"#,
        r#"⟨search({"q":"x"})⟩ words x !malformed_call"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":{"q":"x"}</tool_call> x"#,
        r#"⟨search({"q":"x"})⟩ x !malformed_call"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":{"q":"x"</tool_call> x"#,
        r#"⟨search({"q":"x"…⟩ x !malformed_call"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":{"q":<b>}}</tool_call> x"#,
        r#"⟨search({"q":<b>})⟩ x"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":{"q":"x"}}</tool_"#,
        r#"⟨search({"q":"x"})⟩"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":{"q":"x"}} <"#,
        r#"⟨search({"q":"x"})⟩"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":{"q":"x"}"#,
        r#"⟨search({"q":"x"}…⟩ !truncated"#,
    );
    check("hermes", r#"<tool_call>{"name":"search""#, "⟨search(…⟩ !truncated");
    check("hermes", r#"<tool_call>{"name":"search","arguments":"#, "⟨search(…⟩ !truncated");
    check(
        "hermes",
        r#"<tool_call>[{"name":"search","arguments":{"q":"x"}}, "#,
        r#"⟨search({"q":"x"})⟩ !truncated"#,
    );
    check("hermes", "<tool_call>", "<tool_call> !truncated");
    check("hermes", "<tool_call></tool_call>", "<tool_call></tool_call> !malformed_call");
    check("hermes", "<tool_call>{}</tool_call>", "<tool_call>{}</tool_call> !malformed_call");
    check(
        "hermes",
        r#"<tool_call>{"arguments":{}}</tool_call>"#,
        r#"<tool_call>{"arguments":{}}</tool_call> !malformed_call"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"a","name":"b","arguments":{}}</tool_call>"#,
        "⟨a({})⟩ !duplicate_key",
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"a","arguments":1,"arguments":[2]}</tool_call>"#,
        "⟨a(1)⟩ !duplicate_key",
    );
    check(
        "hermes",
        "<tool_call>{'name':'a'}</tool_call>",
        "<tool_call>{'name':'a'}</tool_call> !malformed_call",
    );
    check(
        "hermes",
        "<tool_call>{\"name\":\"a\",\"arguments\":\"{\\\"q\\\":\\\"\\u00e9\\\"}\"}</tool_call>",
        r#"⟨a({"q":"é"})⟩"#,
    );
    check("hermes", r#"<tool_call>{"name":"a","arguments":null}</tool_call>"#, "⟨a(null)⟩");
    check(
        "hermes",
        r#"<tool_call>{"function":{"name":"a","arguments":{}}}</tool_call>"#,
        "⟨a({})⟩",
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"","arguments":{}}</tool_call>"#,
        r#"<tool_call>{"name":"","arguments":{}}</tool_call> !malformed_call"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":1}</tool_call>"#,
        r#"<tool_call>{"name":1}</tool_call> !malformed_call"#,
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":{"q":"x"}}}}</tool_call>"#,
        r#"⟨search({"q":"x"})⟩ !malformed_call"#,
    );
    check(
        "hermes",
        r#"<tool_call>junk<tool_call>{"name":"search","arguments":{"q":"x"}}</tool_call>"#,
        r#"<tool_call>junk⟨search({"q":"x"})⟩ !malformed_call"#,
    );
    check("hermes", "a </think> b", "a </think> b");
    check("hermes", "<think>a", "[a] !truncated");
    check("hermes", "<think>a</think>{b", "[a]{b");
}

#[test]
fn bare_values() {
    check("llama3_json", "\n{\"name\":\"a\",\"parameters\":{}}<|eom_id|>", "\n⟨a({})⟩");
    check(
        "llama3_json",
        r#"{"name":"a","parameters":{}} and {"name":"b","parameters":{}}"#,
        r#"⟨a({})⟩ and {"name":"b","parameters":{}}"#,
    );
    check(
        "llama3_json",
        r#"{"name":"a","parameters":{}};{"name":"b","parameters":{}}"#,
        "⟨a({})⟩⟨b({})⟩",
    );
    check(
        "llama3_json",
        r#"<|python_tag|>brave_search.call(query="x")<|eom_id|>x"#,
        r#"⟨brave_search({"query":"x"})⟩x"#,
    );
    check("llama3_json", r#"<|python_tag|>{"a":1}<|eot_id|>"#, r#"⟨python({"a":1})⟩"#);
    check("llama3_json", "<|python_tag|>", " !truncated");
    check("llama3_json", r#"{"thought":"t","name":"a","parameters":{}}"#, "⟨a({})⟩");
    check("llama3_json", r#"<think>t</think>{"name":"a","parameters":{}}"#, "[t]⟨a({})⟩");
    check(
        "llama3_json",
        r#"so: {"name":"a","parameters":{}}"#,
        r#"so: {"name":"a","parameters":{}}"#,
    );
    check("phi4_mini", "functools[] x", " x");
    check("xlam", r#"[{"name":"a","arguments":{}}] x"#, "⟨a({})⟩ x");
    check("xlam", "<think>t</think>\n[{\"name\":\"a\",\"arguments\":{}}]", "[t]\n⟨a({})⟩");
    check(
        "json_fence",
        "```python\nx\n```\n{\"name\":\"a\",\"arguments\":{}}\n```json\n{\"a\":1}\n```\n```json\n{\"name\":\"a\",\"arguments\":{}}\n```",
        "```python\nx\n```\n{\"name\":\"a\",\"arguments\":{}}\n```json\n{\"a\":1}\n```\n⟨a({})⟩",
    );
    check(
        "json_fence",
        "```json\n{\"a\":1}\n```\n```\n{\"name\":\"a\",\"arguments\":{}}\n```",
        "```json\n{\"a\":1}\n```\n⟨a({})⟩",
    );
    check(
        "apertus",
        r#"<|tools_prefix|>[{"a":{},"b":[1]},{"":1}]x"#,
        r#"⟨a({})⟩⟨b([1])⟩,{"":1}]x !malformed_call"#,
    );
    check("gigachat3", "{}</s><|message_sep|>x", "{}x");
    check("ernie45", "a\n<response>\nb</response>c", "abc");
    check(
        "inkling",
        "<|message_model|>x<|content_thinking|>t<|end_message|><|message_model|>y<|content_text|>z<|end_message|>",
        "[t]z",
    );
}

#[test]
fn heads() {
    check("mistral_v11", r#"[TOOL_CALLS]search[ARGS]{"q":"x"} y"#, r#"⟨search({"q":"x"})⟩ y"#);
    check("mistral_v11", "[TOOL_CALLS]search[ARGS]", "⟨search(…⟩ !truncated");
    check("mistral_v11", "[TOOL_CALLS]search", " !truncated");
    check("mistral_v11", "[TOOL_CALLS]two words{}", "[TOOL_CALLS]two words{} !malformed_call");
    check("mistral_v11", "[TOOL_CALLS]a[CALL_ID]i[ARGS]{}</s>", "⟨a#i({})⟩");
    check("mistral_v11", "[TOOL_CALLS]a[X]{}", "[TOOL_CALLS]a[X]{} !malformed_call");
    check("mistral", "[TOOL_CALLS]", " !truncated");
    check("mistral", "[TOOL_CALLS] nothing more", "[TOOL_CALLS] nothing more !malformed_call");
    check("mistral", "[TOOL_CALLS] []x", "x");
    check("mistral", r#"[TOOL_CALLS][{"name":"a","arguments":{}}"#, "⟨a({})⟩ !truncated");
    check(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>not json<|tool_call_end|><|tool_calls_section_end|>y",
        "⟨a#functions.a:0(not json…⟩y !invalid_json",
    );
    check(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>a:b<|tool_call_argument_begin|><|tool_call_end|>",
        "⟨a:b#a:b()⟩ !truncated",
    );
    check("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.a", " !truncated");
    check("kimi_k2", "<|tool_calls_section_begin|>", " !truncated");
    check(
        "kimi_k2",
        "<|tool_calls_section_begin|>x<|tool_calls_section_end|>y",
        "xy !unexpected_data",
    );
    check(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>{}<|tool_call_end|>x<|tool_call_begin|>functions.a:1<|tool_call_argument_begin|>{} z",
        "⟨a#functions.a:0({})⟩⟨a#functions.a:1({})⟩ !unexpected_data !unexpected_data !truncated",
    );
    check(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>two words<|tool_call_argument_begin|>{}",
        "two words{} !malformed_call",
    );
    check("deepseek_v31", "<｜tool▁call▁begin｜>a<｜tool▁sep｜>{}<｜tool▁call▁end｜>x", "⟨a({})⟩x");
    check(
        "deepseek_v3",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>a\n```json\n{\"b\":1",
        r#"⟨a({"b":1…⟩ !truncated"#,
    );
    check(
        "internlm2",
        "<|action_start|><|interpreter|>\nprint(1 < 2)<|action_end|>x",
        "⟨python(print(1 < 2))⟩x",
    );
    check(
        "internlm2",
        "<|action_start|><|interpreter|>a<|action_end|>\n<|action_end|>x",
        "⟨python(a)⟩\nx",
    );
    check("internlm2", "<|action_start|><|interpreter|>print(1)", "⟨python(print(1)…⟩ !truncated");
}

#[test]
fn tags() {
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=q>\nabc\n</function>\n</tool_call>x",
        r#"⟨search({"q":"abc"})⟩x"#,
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=q>\nabc\n</function>\n",
        r#"⟨search({"q":"abc"})⟩"#,
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=q>\nabc\n</parameter>\n</tool_call>x",
        r#"⟨search({"q":"abc"})⟩x"#,
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=ping>\n</function>\nwords\n</tool_call>x",
        "⟨ping({})⟩\nwordsx !malformed_call",
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=q>\na\n</parameter>\n<parameter=q>\nb\n</parameter>\n</function>\n</tool_call>",
        r#"⟨search({"q":"a","q":"b"})⟩ !duplicate_key"#,
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=limit>\nabc\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=note>\nnull\n</parameter>\n<parameter=kind>\n12\n</parameter>\n</function>\n</tool_call>",
        r#"⟨search({"limit":"abc","exact":true,"note":null,"kind":"12"})⟩"#,
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=note>\nnullify\n</parameter>\n<parameter=exact>\n1\n</parameter>\n<parameter=other>\n{\"a\": [1]}\n</parameter>\n</function>\n</tool_call>",
        r#"⟨search({"note":"nullify","exact":"1","other":{"a": [1]}})⟩"#,
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=obj>\n{\"a\":1}\n</parameter>\n<parameter=tags>\nnot an array\n</parameter>\n</function>\n</tool_call>",
        r#"⟨search({"obj":{"a":1},"tags":"not an array"})⟩"#,
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=q></parameter>\n<parameter=limit></parameter></function>\n</tool_call>",
        r#"⟨search({"q":"","limit":""})⟩"#,
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\nwords <b> <parameter=q>\na <parameter=limit> b\n</parameter>\n</function>\n</tool_call>",
        r#"⟨search({"q":"a <parameter=limit> b"})⟩ !malformed_call"#,
    );
    check("qwen3_coder", "<tool_call>\n<function=sea", " !truncated");
    check("qwen3_coder", "<tool_call>\n", " !truncated");
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=q>\nx\n</parameter>",
        r#"⟨search({"q":"x"…⟩ !truncated"#,
    );
    check("qwen3_coder", "<tool_call>\n<function=search>\n", "⟨search(…⟩ !truncated");
    check(
        "qwen3_coder",
        "<tool_call>words</tool_call>",
        "<tool_call>words</tool_call> !malformed_call",
    );
    check("qwen3_coder", "use <function=> here", "use <function=> here !malformed_call");
    check(
        "qwen3_coder",
        "<function=open>\n<parameter=a>\n1\n</parameter>\n</function> x </tool_call>",
        r#"⟨open({"a":"1"})⟩ x  !malformed_call"#,
    );
    check(
        "glm45",
        "<tool_call>search\n<arg_key>q</arg_key>\n</tool_call>x",
        "⟨search({})⟩x !malformed_call",
    );
    check(
        "glm45",
        "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>x\n</tool_call>",
        "⟨search({\"q\":\"x\\n\"})⟩",
    );
    check("glm45", "<tool_call>search", " !truncated");
    check("glm45", "<tool_call></tool_call>", "<tool_call></tool_call> !malformed_call");
    check(
        "glm45",
        "<tool_call>two words</tool_call>",
        "<tool_call>two words</tool_call> !malformed_call",
    );
    check(
        "claude_xml",
        "The tag <function_calls> begins calls.",
        "The tag <function_calls> begins calls. !malformed_call",
    );
    check("claude_xml", "<function_calls>\n<invoke name=\"ping\">\n</invoke>\n", "⟨ping({})⟩");
    check(
        "claude_xml",
        "<function_calls>\n<invoke name=\"ping\">\n</invoke>\nwords</function_calls>x",
        "⟨ping({})⟩\nwordsx !malformed_call",
    );
    check(
        "claude_xml",
        "<function_calls>\n<invoke>\n</invoke>\n</function_calls>",
        "<function_calls>\n<invoke>\n</invoke>\n</function_calls> !malformed_call",
    );
    check(
        "claude_xml",
        "<function_calls>\n</function_calls>",
        "<function_calls>\n</function_calls> !malformed_call",
    );
    check(
        "claude_xml",
        "<function_calls><invoke name=\"open\"><parameter name=\"a\">1</parameter>\n<parameter name=\"b\">2",
        r#"⟨open({"a":"1","b":"2…⟩ !truncated"#,
    );
    check(
        "claude_xml",
        r#"<function_calls><invoke name="open">{"a": "b"}</invoke></function_calls>"#,
        r#"⟨open({"a": "b"})⟩"#,
    );
    check(
        "claude_xml",
        r#"<function_calls><invoke name="open">{"a": "b"</invoke></function_calls>x"#,
        r#"⟨open({"a": "b"…⟩x !malformed_call"#,
    );
    check(
        "minicpm5",
        r#"a <function> b <function name="search"><param name="q"><![CDATA[x ]] </param> ]]></param></function>"#,
        r#"a <function> b ⟨search({"q":"x ]] </param> "})⟩"#,
    );
    check(
        "kimi_k3",
        r#"<|open|>tools<|sep|><|open|>call tool="a&quot;b" index="1"<|sep|><|open|>argument key="k&amp;" type="string"<|sep|>x<|clo"#,
        r#"⟨a"b#1({"k&":"x<|clo…⟩ !truncated"#,
    );
    check(
        "hy_v3",
        "<tool_calls:opensource><tool_call:opensource>ping<tool_sep:opensource></tool_call:opensource></tool_calls:opensource>",
        "⟨ping({})⟩",
    );
    check(
        "minimax_m3",
        r#"]<] ]<]minimax[>[<tool_call>]<]minimax[>[<invoke name="search">]<]minimax[>[<obj>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[</obj>]<]minimax[>[<tags>]<]minimax[>[</tags>]<]minimax[>[</x>]<]minimax[>[<q> ]<]mini ]<]minimax[>[</invoke>]<]minimax[>[</tool_call>x"#,
        r#"]<] ⟨search({"obj":{"item":"a"},"tags":[],"q":" ]<]mini "})⟩x !malformed_call"#,
    );
}

#[test]
fn reasoning() {
    check_with(
        "qwen3_coder",
        Options { start_in_reasoning: true, tool_call_ends_reasoning: true, ..Options::default() },
        "a <tool_call> b</think>c",
        "[a <tool_call> b]c !malformed_call",
    );
    check_with(
        "qwen3_coder",
        Options { start_in_reasoning: true, tool_call_ends_reasoning: true, ..Options::default() },
        "a <tool_call>\n<function=ping>\n</function>\n</tool_call>b",
        "[a ]⟨ping({})⟩b",
    );
    check_with(
        "qwen3_coder",
        Options { start_in_reasoning: true, tool_call_ends_reasoning: true, ..Options::default() },
        "a <tool_call>",
        "[a ] !truncated",
    );
    check_with(
        "hermes",
        Options { start_in_reasoning: true, tool_call_ends_reasoning: true, ..Options::default() },
        "a <tool_call> b</think>c",
        "[a <tool_call> b]c !malformed_call",
    );
    check_with(
        "hermes",
        Options { start_in_reasoning: true, tool_call_ends_reasoning: true, ..Options::default() },
        r#"a<tool_call>{"name":"search","arguments":{"q":"x"}}</tool_call>b"#,
        r#"[a]⟨search({"q":"x"})⟩b"#,
    );
    check_with(
        "hermes",
        Options { start_in_reasoning: true, ..Options::default() },
        r#"a<tool_call>{"name":"search","arguments":{"q":"x"}}</tool_call></think>b"#,
        r#"[a<tool_call>{"name":"search","arguments":{"q":"x"}}</tool_call>]b"#,
    );
    check_with(
        "granite",
        Options { reasoning: Some("granite".to_owned()), ..Options::default() },
        "Here's my thought process: a Here's my response: b",
        "[ a ] b",
    );
    check_with(
        "claude_xml",
        Options { namespace: Some("ns:".to_owned()), ..Options::default() },
        r#"<ns:function_calls><ns:invoke name="ping"></ns:invoke></ns:function_calls>x"#,
        "⟨ping({})⟩x",
    );
    check("gemma4", "<|channel>thought\na<channel|>b", "[a]b");
}

#[test]
fn blocks_that_break() {
    check(
        "json_fence",
        "```json\n{\"name\":\"a\",\"arguments\":{}}\n{\"name\":\"b\",\"arguments\":{}}\n```",
        "⟨a({})⟩⟨b({})⟩",
    );
    check("pythonic", "[", "[");
    check_with("pythonic", Options { pythonic_anywhere: true, ..Options::default() }, "a [", "a [");
    check("xlam", "[]", "[]");
    check("json_fence", "```json\n[]\n```", "```json\n[]\n```");
    check("qwen3_coder", "<tool_call>\n<func", " !truncated");
    check("claude_xml", "<function_calls>\n<inv", " !truncated");
    check("kimi_k2", "<|tool_calls_section_begin|><|tool_call_be", " !truncated");
    check(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_sec",
        "⟨a#functions.a:0({})⟩ !truncated",
    );
    check("qwen3_coder", "<tool_call>\n<function=ping>\n</function>\n</tool_", "⟨ping({})⟩");
    check(
        "jamba",
        r#"<tool_calls>[{"name":"ping","arguments":{}}</tool_calls>x"#,
        "⟨ping({})⟩x !malformed_call",
    );
    check(
        "jamba",
        r#"<tool_calls>[{"name":"ping","arguments":{}},</tool_calls>x"#,
        "⟨ping({})⟩x !malformed_call",
    );
    check(
        "olmo3",
        "<function_calls>ping() junk</function_calls>t",
        "⟨ping({})⟩ junkt !malformed_call",
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"bad", oops</tool_call>tail"#,
        "⟨bad(…⟩oopstail !malformed_call",
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"a","arguments" {}}</tool_call>x"#,
        "⟨a(…⟩{}}x !malformed_call",
    );
    check(
        "kimi_k3",
        r#"<|open|>tools<|sep|><|open|>call tool="search" index="1"<|sep|><|close|>tools<|sep|>t"#,
        "⟨search#1({})⟩t",
    );
    check(
        "inkling",
        r#"<|content_invoke_tool_json|>{"name":"add","args":{"a":1}<|end_message|>x"#,
        r#"⟨add({"a":1})⟩x !malformed_call"#,
    );
    check(
        "inkling",
        r#"<|message_model|>add<|content_invoke_tool_json|>{"name":"add","args":{"a":1}<|end_message|>x"#,
        r#"⟨add({"a":1})⟩x !malformed_call"#,
    );
    check(
        "claude_xml",
        "<function_calls>\n<invoke name=\"search\"><parameter name=\"q\">ab</parameter>\n</function_calls>\n",
        "⟨search({\"q\":\"ab\"})⟩\n",
    );
    check(
        "claude_xml",
        "<function_calls>\n<invoke name=\"ping\">\n</invoke>\nnoise\n<invoke name=\"ping\">\n</invoke>\n</function_calls>x",
        "⟨ping({})⟩\nnoise⟨ping({})⟩x !malformed_call",
    );
    check(
        "claude_xml",
        "<function_calls>\n<invoke name=\"ping\">\n</invoke>\n<invoke>\n<invoke name=\"ping\">\n</invoke>\n</function_calls>x",
        "⟨ping({})⟩<invoke>⟨ping({})⟩x !malformed_call",
    );
    check(
        "claude_xml",
        "<function_calls>\n<invoke name=\"ping\">\n</invoke>\n<think>t</think><function_calls>\n<invoke name=\"ping\">\n</invoke>\n</function_calls>x",
        "⟨ping({})⟩\n[t]⟨ping({})⟩x",
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<tool_call>\n<function=ping>\n</function>\n</tool_call>",
        "<tool_call>\n⟨ping({})⟩ !malformed_call",
    );
    check_with(
        "kimi_k3",
        Options { start_in_reasoning: true, ..Options::default() },
        "go<|open|>response<|sep|>hi<|close|>response<|sep|>",
        "[go]hi",
    );
    check_with(
        "kimi_k3",
        Options { start_in_reasoning: true, ..Options::default() },
        "hm<|close|>message<|sep|>",
        "[hm]",
    );
    check(
        "deepseek_v31",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>",
        "⟨search(…⟩ !truncated",
    );
    check(
        "deepseek_v31",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>x",
        "⟨search()⟩x",
    );
    check("toolcall_v2", r#"{"ToolCall_V2":{"na"#, r#"{"ToolCall_V2":{"na !truncated"#);
    check("toolcall_v2", r#"{"ToolCall_V2":5}"#, r#"{"ToolCall_V2":5} !malformed_call"#);
    check(
        "toolcall_v2",
        r#"{"ToolCall_V2":{"arguments":{}}}"#,
        r#"{"ToolCall_V2":{"arguments":{}}} !malformed_call"#,
    );
    check(
        "minimax_m3",
        r#"]<]minimax[>[<tool_call>]<]minimax[>[<invoke name="search">]<]minimax[>[<q>x]<]minimax[>[<limit>3]<]minimax[>[</limit>]<]minimax[>[</tool_call>t"#,
        r#"⟨search({"q":"x","limit":3})⟩t !malformed_call"#,
    );
    check(
        "hermes",
        "<tool_call>{\"n\\u0061me\":\"search\",\"arguments\":{}}</tool_call>",
        "⟨search({})⟩",
    );
    check(
        "hermes",
        r#"<tool_call>{"name":"search","arguments":</tool_call>"#,
        "⟨search(…⟩ !malformed_call",
    );
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=\"q\">\nx\n</parameter>\n</function>\n</tool_call>",
        r#"⟨search({"q":"x"})⟩"#,
    );
    check(
        "json_fence",
        "```json\n{\"name\":\"a\",\"arguments\":{}}\n note\n```\n```json\n{\"name\":\"b\",\"arguments\":{}}\n```",
        "⟨a({})⟩\n note\n```\n⟨b({})⟩",
    );
    check("hermes", "<tool_call>\n{\"name\":\"a\",\"arguments\":{}}\n", "⟨a({})⟩");
    check_with(
        "hermes",
        Options { start_in_reasoning: true, ..Options::default() },
        "<think>hm</think>a",
        "[hm]a",
    );
    check_with(
        "hermes",
        Options { start_in_reasoning: true, ..Options::default() },
        "h<think>m</think>a",
        "[h<think>m]a",
    );
    check("command_a", r#"Action: ```json [{"tool_name":"a","parameters":{}}]```x"#, "⟨a({})⟩x");
    check("glm45", r#"<tool_call>{"name":"a","arguments":{}}</tool_call>x"#, "⟨a({})⟩x");
    // Text that did not match may begin with something that does.
    check(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<<parameter=q>\nx\n</parameter>\n</function>\n</tool_call>",
        r#"⟨search({"q":"x"})⟩ !malformed_call"#,
    );
    // A tag that prose contains too proves nothing by itself.
    check("qwen3_coder", "a <function=foo> b", "a <function=foo> b !malformed_call");
    check("qwen3_coder", "<function=ping>\n</function>x", "⟨ping({})⟩x");
    check("qwen3_coder", "<function=ping>\n", "<function=ping>\n !truncated");
    check("pythonic", r#"[search(q="x", q="y")]"#, r#"⟨search({"q":"x","q":"y"})⟩ !duplicate_key"#);
}

/// What looks like the end of a tag right after its prefix is text.
#[test]
fn a_prefix_without_its_tag() {
    let begin = "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"make\">";
    for rest in [
        "]<]minimax[>[>",
        "]<]minimax[>[",
        "]<]minimax[>[>x",
        "]<]minimax[>[<>",
        "]<]minimax[>[</>",
    ] {
        let input = format!("{begin}{rest}");
        crate::invariants::check(
            "minimax_m3",
            &Default::default(),
            &Default::default(),
            input.as_bytes(),
            1,
        );
    }
}

/// An overlong key is reported where it began, which does not depend on the chunking.
#[test]
fn keys_that_are_too_long() {
    let key = "k".repeat(9_000);
    for input in [
        format!("<|tool_call>call:make{{<|\"|>{key}<|\"|>:1}}<tool_call|>"),
        format!("<|tool_call>call:make{{\"{key}\":1}}<tool_call|>"),
        format!("<|tool_call>call:make{{{key}:1}}<tool_call|>"),
        format!("<|tool_call>call:make{{a:{{<|\"|>{key}<|\"|>:1}}}}<tool_call|>"),
    ] {
        let (options, tools) = Default::default();
        crate::invariants::check("gemma4", &options, &tools, input.as_bytes(), 1);
    }
}
