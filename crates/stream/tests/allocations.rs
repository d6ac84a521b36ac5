//! Text and arguments are parsed without an allocation, in any dialect and chunking.

use stream::dialect::{Dialect, Format, Options, Parser, Tools};
use stream::event::Event;

/// Brings a parser into a state, then counts what it allocates for a megabyte of input in it.
#[track_caller]
fn check(name: &str, tools: &Tools, before: &str, repeated: &str) {
    let format = Format::named(name).expect("it is in the table");
    let dialect = Dialect::new(format, &Options::default(), tools);
    for chunk in [1, 8, 64] {
        let mut parser = Parser::new(&dialect);
        let mut bytes = 0;
        let mut sink = |event: Event<'_>, _| match event {
            Event::Text(text)
            | Event::Reasoning(text)
            | Event::Commentary(text)
            | Event::Plan(text)
            | Event::ToolArgs { text, .. } => {
                bytes += text.len();
            }
            _ => {}
        };
        parser.push(before.as_bytes(), &mut sink);
        // What is held back for the first time needs a buffer, which is kept; there are two, used in turn.
        for _ in 0..2 {
            repeated.as_bytes().chunks(chunk).for_each(|piece| parser.push(piece, &mut sink));
        }
        let counted = allocation_counter::measure(|| {
            for piece in repeated.as_bytes().chunks(chunk).cycle().take(4096) {
                parser.push(piece, &mut sink);
            }
        });
        assert_eq!(counted.count_total, 0, "{name} by {chunk} after {before:?}");
        assert!(bytes > 4096, "{name}: {bytes} bytes came out");
    }
}

#[test]
fn no_push_allocates_in_text_reasoning_or_arguments() {
    let tools = Tools::from_json(&serde_json::json!([
        { "name": "f", "parameters": { "properties": { "q": { "type": "string" } } } },
    ]))
    .expect("it is a list of tools");
    let prose = "a < b, [x] {y} and `z` \u{65e5}\u{672c}\n";
    for format in Format::all() {
        // A provider's frames are held until they are complete.
        let wire = ["openai_chat", "openai_chat_legacy", "openai_responses", "anthropic", "gemini"];
        let before = match format.name() {
            name if wire.contains(&name) => continue,
            "harmony" => "<|channel|>final<|message|>",
            "muse" => " to=user<|message|>",
            _ => "text ",
        };
        // If any brace may begin an envelope, each is examined.
        let text = if ["toolcall_v2", "auto"].contains(&format.name()) {
            "a < b, [x] and `z`\n"
        } else {
            prose
        };
        check(format.name(), &tools, before, text);
    }
    check("harmony", &tools, "<|channel|>analysis<|message|>", prose);
    check("harmony", &tools, "<|channel|>commentary to=functions.f<|message|>{\"q\":\"", "a < b ");
    check("react", &tools, "Action: f\nAction Input: {\"q\":\"", "some \\\" { ");
    check("plan", &tools, "<proposed_plan>\n", prose);
    let json = r#"some \"text\" </x> {[ "#;
    check("hermes", &tools, r#"<tool_call>{"name":"f","arguments":{"q":""#, json);
    check("hermes", &tools, "<think>", prose);
    check("granite4", &tools, r#"<tool_call>{"name":"f","arguments":"{"#, "plain text ");
    check("mistral_v11", &tools, r#"[TOOL_CALLS]f[ARGS]{"q":""#, json);
    check(
        "kimi_k2",
        &tools,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"q\":\"",
        json,
    );
    check("qwen3_coder", &tools, "<tool_call>\n<function=f>\n<parameter=q>\n", prose);
    check("glm45", &tools, "<tool_call>f\n<arg_key>q</arg_key>\n<arg_value>", prose);
    check("claude_xml", &tools, "<function_calls><invoke name=\"f\"><parameter name=\"q\">", prose);
    check(
        "deepseek_v32",
        &tools,
        "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"q\" string=\"true\">",
        prose,
    );
    check(
        "minimax_m3",
        &tools,
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<q>x",
        prose,
    );
}
