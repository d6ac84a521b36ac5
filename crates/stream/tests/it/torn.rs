//! Truncated streams: no markup is shown, and missing calls are reported.

use stream::canonical::{Canonical, Collector, Kind};
use stream::dialect::{Dialect, Format, Options, Parser, Tools};

use crate::short;

fn read(dialect: &Dialect, input: &str) -> Vec<Canonical> {
    let (mut parser, mut events) = (Parser::new(dialect), Collector::default());
    parser.push(input.as_bytes(), &mut events);
    parser.finish(&mut events);
    events.into_events(true)
}

/// Returns what was shown, and whether truncation was reported.
fn shown(events: &[Canonical]) -> (String, bool) {
    let (mut shown, mut truncated) = (String::new(), false);
    for event in events {
        match &event.kind {
            Kind::Text { text } | Kind::Reasoning { text } => shown.push_str(text),
            Kind::Error { kind, .. } => truncated |= matches!(*kind, "truncated" | "invalid_json"),
            _ => {}
        }
    }
    (shown, truncated)
}

/// Formats that show the header of a truncated call: their markers are words that people write. So is
/// `<function=` without a block around it.
const SHOWN: &[&str] = &[
    "hermes",
    "granite",
    "granite4",
    "granite_20b_fc",
    "ernie45",
    "longcat",
    "xlam",
    "llama3_json",
    "pythonic",
    "json_fence",
    "gemma3",
    "toolcall_v2",
    "react",
    "command_a",
];

/// Formats whose calls are in a block or a list with its own end.
const BLOCKS: &[&str] = &[
    "mistral",
    "jamba",
    "hunyuan_a13b",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v32",
    "deepseek_v4",
    "kimi_k2",
    "kimi_k3",
    "minimax_m2",
    "minimax_m3",
    "hy_v3",
    "step3",
    "dots",
    "apertus",
    "command_a",
    "phi4_mini",
];

#[test]
fn vectors_cut_anywhere() {
    for vector in crate::vectors::load() {
        let (name, id) = (vector["format"].as_str().unwrap(), vector["id"].as_str().unwrap());
        let format = Format::named(name).unwrap();
        let Some(input) = vector["input"].as_str().filter(|input| input.len() < 4096) else {
            continue;
        };
        let calls = vector["expected"].to_string().contains("tool_start");
        let whole = !vector["expected"].to_string().contains("\"error\"");
        if !format.is_of_text() || !calls || !whole {
            continue;
        }
        let options: Options =
            serde_json::from_value(vector["options"].clone()).unwrap_or_default();
        let tools = Tools::from_json(&vector["tools"]).unwrap_or_default();
        let dialect = Dialect::new(format, &options, &tools);
        let all = read(&dialect, input);
        let (text, _) = shown(&all);
        let starts: Vec<u64> = all
            .iter()
            .filter(|event| matches!(event.kind, Kind::ToolStart { .. }))
            .map(|event| event.range.unwrap()[1])
            .collect();
        let ends: Vec<u64> = all
            .iter()
            .filter(|event| matches!(event.kind, Kind::ToolEnd { .. }))
            .map(|event| event.range.unwrap()[0])
            .collect();
        for (cut, _) in input.char_indices() {
            let events = read(&dialect, &input[..cut]);
            let (got, truncated) = shown(&events);
            let same = got.chars().zip(text.chars()).take_while(|(a, b)| a == b);
            let more = &got[same.map(|(a, _)| a.len_utf8()).sum::<usize>()..];
            // The beginning of an opening mark may be text.
            let torn = input[..cut].ends_with(more)
                && !(more.contains("<|") && more.contains('>'))
                && !more.contains("｜>");
            let prose = SHOWN.contains(&name) || more.starts_with("<function=");
            let torn = torn && (prose || !more.contains(['>', '{', '\n']));
            assert!(more.is_empty() || torn, "{id}: {more:?} of {:?} is shown", &input[..cut]);
            let cut = cut as u64;
            let inside = starts.iter().zip(&ends).any(|(start, end)| *start < cut && cut < *end);
            let between = BLOCKS.contains(&name)
                && starts.first().is_some_and(|start| cut >= *start)
                && starts.last().is_some_and(|start| cut < *start);
            let torn =
                |event: &Canonical| matches!(event.kind, Kind::ToolEnd { complete: false, .. });
            let inside = inside && events.iter().any(torn);
            assert!(
                truncated || !(inside || between),
                "{id}: nothing is said of {:?}",
                &input[..cut as usize]
            );
        }
    }
}

#[track_caller]
fn check(name: &str, input: &str, want: &str) {
    for size in [1, 5, input.len()] {
        let got = short::read(name, &Options::default(), &Tools::default(), input, size);
        assert_eq!(got, want, "{name} by {size}: {input}");
    }
}

#[test]
fn heads_that_are_cut_off() {
    let ds = "<｜tool▁calls▁begin｜>";
    check("deepseek_v31", ds, " !truncated");
    check("deepseek_v31", &format!("a{ds}<｜tool▁call▁begin｜>sea"), "a !truncated");
    let call = "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>";
    check("deepseek_v31", &format!("{ds}{call}"), "⟨f({})⟩ !truncated");
    check("deepseek_v31", &format!("{ds}{call}<｜tool▁call▁begin｜>g"), "⟨f({})⟩ !truncated");
    check("deepseek_v31", &format!("{ds}{call}<｜tool▁calls▁end｜>"), "⟨f({})⟩");
    check("jamba", "<tool_calls>[{\"na", " !truncated");
    check("jamba", "<tool_calls>[{\"name\":\"f\",\"arguments\":{}}, {\"na", "⟨f({})⟩ !truncated");
    check("jamba", "<tool_calls>[{\"name\":\"f\",\"arguments\":{}}", "⟨f({})⟩ !truncated");
    check("mistral", "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}", "⟨f({})⟩ !truncated");
    check("mistral", "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}},", "⟨f({})⟩ !truncated");
    check("mistral", "[TOOL_CALLS][{\"na", " !truncated");
    check("mistral_v11", "[TOOL_CALLS]sea", " !truncated");
    check("minimax_m2", "a<minimax:tool_call>\n<invoke na", "a !truncated");
    check("internlm2", "a<|action_start|>", "a !truncated");
    check("glm45", "a<tool_call>sea", "a !truncated");
    // A tag that people also write does not prove a call.
    check("hermes", "a<tool_call>{\"na", "a<tool_call>{\"na !truncated");
    check("qwen3_coder", "a<tool_call>\n<function=\n", "a !truncated");
    check("qwen3_coder", "a<tool_call>\n<function=", "a !truncated");
    check("hermes", "<tool_call>[{\"name\":\"f\",\"arguments\":{}},{\"n", "⟨f({})⟩ !truncated");
    check("qwen3_coder", "a <function=foo", "a <function=foo !truncated");
    // Blanks between calls are not text.
    let two = "[{\"name\":\"f\",\"arguments\":{}}]";
    check("granite", &format!("<|tool_call|>{two}\n<|tool_call|>{two}"), "⟨f({})⟩⟨f({})⟩");
    check(
        "granite_20b_fc",
        "<function_call> {\"name\":\"f\",\"arguments\":{}}\n\n<function_call> {\"name\":\"f\",\"arguments\":{}}",
        "⟨f({})⟩⟨f({})⟩",
    );
    check("mistral_v11", "[TOOL_CALLS]f{}\n[TOOL_CALLS]f{}", "⟨f({})⟩⟨f({})⟩");
}

#[test]
fn ends_of_turns() {
    for (names, tokens) in ENDS {
        for name in *names {
            for token in *tokens {
                check(name, &format!("Hello.{token}"), "Hello.");
                check(name, &format!("Hello.\n{token}{token}"), "Hello.\n");
            }
        }
    }
    check(
        "qwen3_coder",
        "<tool_call>\n<function=f>\n</function>\n</tool_call><|im_end|>",
        "⟨f({})⟩",
    );
    check("hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}<|im_end|>", "⟨f({})⟩");
    check("glm45", "<tool_call>f\n</tool_call><|observation|>", "⟨f({})⟩");
    check("kimi_k2", "<|tool_calls_section_begin|><|im_end|>", " !truncated");
    check("muse", " to=user<|message|>a<|eom|><|eot|>", "a");
    check("muse", " to=user<|message|>a<|eot|>", "a");
    check("harmony", "<|channel|>final<|message|>a<|return|>", "a");
}

/// Tokens that have a meaning only in calls or around reasoning are not text elsewhere.
#[test]
fn tokens_out_of_place() {
    for (names, tokens) in TOKENS {
        for name in *names {
            for token in *tokens {
                check(name, &format!("a{token}b"), "ab");
                check(name, &format!("a\n{token}{token}\n b"), "a\n\n b");
            }
        }
    }
    // Neither are those of a failed header, nor those next to text where calls should be.
    check("kimi_k2", "a<|tool_call_begin|>b c<|tool_call_end|>d", "ab cd !malformed_call");
    check("granite", "a<|tool_call|>b", "ab !malformed_call");
    check("gemma4", "a<|tool_call>b c<tool_call|>d", "ab cd !malformed_call");
    check(
        "deepseek_v32",
        "a<｜DSML｜function_calls>b</｜DSML｜function_calls>c",
        "abc !malformed_call",
    );
    check(
        "kimi_k2",
        "a<|tool_calls_section_begin|>b<|tool_call_argument_begin|><|im_end|>c<|tool_calls_section_begin|>",
        "abc !unexpected_data !truncated",
    );
    // A lookalike is text.
    check("kimi_k3", "a<|open|b<|sep>c", "a<|open|b<|sep>c");
    check("kimi_k3", "a<|open|>thi", "a !truncated");
}

const TOKENS: &[(&[&str], &[&str])] = &[
    (
        &["kimi_k2"],
        &[
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_section_end|>",
        ],
    ),
    (
        &["kimi_k3"],
        &[
            "<|sep|>",
            "<|open|>response<|sep|>",
            "<|close|>response<|sep|>",
            "<|close|>think<|sep|>",
            "<|close|>tools<|sep|>",
            "<|close|>message<|sep|>",
        ],
    ),
    (
        &["deepseek_v3", "deepseek_v31"],
        &["<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    ),
    (
        &["deepseek_v32", "deepseek_v4"],
        &[
            "</｜DSML｜parameter>",
            "</｜DSML｜invoke>",
            "</｜DSML｜function_calls>",
            "</｜DSML｜tool_calls>",
        ],
    ),
    (
        &["step3"],
        &["<｜tool_call_begin｜>", "<｜tool_sep｜>", "<｜tool_call_end｜>", "<｜tool_calls_end｜>"],
    ),
    (&["minimax_m3"], &["]<]minimax[>[", "]<]minimax[>[</tool_call>"]),
    (&["internlm2"], &["<|plugin|>", "<|interpreter|>", "<|action_end|>"]),
    (&["gigachat3"], &["<|role_sep|>", "<|message_sep|>"]),
    (&["command_a"], &["<|END_THINKING|>", "<|END_ACTION|>", "<|START_RESPONSE|>"]),
    (&["apertus"], &["<|tools_suffix|>", "<|inner_suffix|>"]),
    (&["lfm2"], &["<|tool_call_end|>"]),
    (&["pythonic"], &["<|python_end|>"]),
    (&["gemma4"], &["<tool_call|>", "<channel|>", "<|\"|>"]),
    (&["functiongemma"], &["<end_function_call>"]),
    (&["inkling"], &["<|content_text|>", "<|end_message|>"]),
];

/// A call whose block was not opened is accepted if it is unambiguous; otherwise it is text, and reported.
#[test]
fn calls_without_their_block() {
    let invoke = |prefix: &str| {
        format!(
            "<{prefix}invoke name=\"f\">\n<{prefix}parameter name=\"a\">b</{prefix}parameter>\n</{prefix}invoke>"
        )
    };
    let m3 =
        "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>b]<]minimax[>[</a>]<]minimax[>[</invoke>";
    let k3 = "<|open|>call tool=\"f\"<|sep|><|open|>argument key=\"a\" type=\"string\"<|sep|>b<|close|>argument<|sep|><|close|>call<|sep|>";
    let f = "⟨f({\"a\":\"b\"})⟩";
    for (name, call, close) in [
        ("deepseek_v32", &*invoke("｜DSML｜"), "</｜DSML｜function_calls>"),
        ("deepseek_v4", &*invoke("｜DSML｜"), "</｜DSML｜tool_calls>"),
        ("minimax_m2", &*invoke(""), "</minimax:tool_call>"),
        ("claude_xml", &*invoke(""), "</function_calls>"),
        ("dots", &*invoke(""), "</dots_function_call>"),
        ("minimax_m3", m3, "]<]minimax[>[</tool_call>"),
        ("kimi_k3", k3, "<|close|>tools<|sep|>"),
    ] {
        check(name, call, f);
        check(name, &format!("x\n{call}\n{close}\ny"), &format!("x\n{f}\ny"));
        check(name, &format!("x\n{call}\n{call}{close}y"), &format!("x\n{f}\n{f}y"));
        check(name, &format!("{call}\ny"), &format!("{f}\ny"));
    }
    check("muse", &format!(" to=f<|message|>{}<|eom|>", invoke("atem:")), f);
    check("auto", &format!("x {}y", invoke("｜DSML｜")), &format!("x {f}y"));
    check(
        "deepseek_v32",
        "x <｜DSML｜invoke name=\"f\">{\"a\":1}</｜DSML｜invoke>",
        "x ⟨f({\"a\":1})⟩",
    );
    check(
        "deepseek_v32",
        "x <｜DSML｜invoke of=\"f\">y",
        "x <｜DSML｜invoke of=\"f\">y !malformed_call",
    );
    check("deepseek_v32", "x <｜DSML｜invoke name=\"f", "x  !truncated");
    // Prose and code contain such tags too.
    for name in ["minimax_m2", "claude_xml", "dots"] {
        for text in [
            "Write <invoke name=\"f\">\n<parameter name=\"a\">b</parameter></invoke>.",
            "<invoked name=\"f\">",
            "<invoke>",
            "`<invoke name=\"f\">`",
        ] {
            check(name, text, text);
        }
        for text in [
            "<invoke name=\"f\"/>",
            "<invoke name=\"f\"> begins a call",
            "<invoke name=\"f\">\n<arg>b</arg></invoke>",
        ] {
            check(name, text, &format!("{text} !malformed_call"));
        }
        let torn = "<invoke name=\"f\">\n<para";
        check(name, torn, &format!("{torn} !truncated"));
        let tools = Tools::from_json(&serde_json::json!([{"name": "g"}])).unwrap();
        let call = invoke("");
        let got = short::read(name, &Options::default(), &tools, &call, 3);
        assert_eq!(got, format!("{call} !malformed_call"), "{name}");
    }
    let options = Options { namespace: Some("ns:".to_owned()), ..Options::default() };
    let got = short::read("claude_xml", &options, &Tools::default(), &invoke("ns:"), 2);
    assert_eq!(got, f);
}

/// Text in a section of calls is shown if there is no call, and not shown if there is one.
#[test]
fn text_where_calls_should_be() {
    for (name, open, call, close) in [
        (
            "kimi_k2",
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|>",
            "<|tool_calls_section_end|>",
        ),
        (
            "deepseek_v31",
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
        ),
        (
            "step3",
            "<｜tool_calls_begin｜>",
            "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\"></steptml:invoke><｜tool_call_end｜>",
            "<｜tool_calls_end｜>",
        ),
        (
            "kimi_k3",
            "<|open|>tools<|sep|>",
            "<|open|>call tool=\"f\"<|sep|><|close|>call<|sep|>",
            "<|close|>tools<|sep|>",
        ),
    ] {
        let f = if name == "kimi_k2" { "⟨f#f({})⟩" } else { "⟨f({})⟩" };
        check(name, &format!("a{open}\nb c\n{close}d"), "a\nb c\nd !unexpected_data");
        check(name, &format!("a{open} \n{close}d"), "ad");
        check(name, &format!("a{open}b c <"), "ab c < !unexpected_data !truncated");
        check(
            name,
            &format!("a{open}b{call}c{call}{close}d"),
            &format!("a{f}{f}d !unexpected_data !unexpected_data"),
        );
        check(name, &format!("a{open}{call}c"), &format!("a{f} !unexpected_data !truncated"));
        let long = "b ".repeat(stream::dialect::HELD_BYTES_MAX);
        let options = Options::default();
        let read = |size| {
            short::read(name, &options, &Tools::default(), &format!("{open}{long}{close}"), size)
        };
        assert!(read(4099) == format!("{long} !unexpected_data"), "{name}");
    }
    check("inkling", "<|message_model|>a<|end_message|>b", "ab !unexpected_data");
    check("inkling", "<|message_model|>a<|content_text|>b<|end_message|>", "b");
    check("inkling", "<|message_model|>a", " !truncated");
}

/// A failed call header does not swallow an end-of-turn token.
#[test]
fn ends_of_turns_in_heads() {
    for (name, opener) in [
        ("hermes", "<tool_call>"),
        ("qwen3_coder", "<function=write>"),
        ("kimi_k2", "<|tool_call_begin|>"),
        ("deepseek_v31", "<｜tool▁call▁begin｜>"),
        ("glm45", "<tool_call>"),
    ] {
        let tokens = ENDS.iter().filter(|(names, _)| names.contains(&name)).flat_map(|(_, it)| *it);
        for token in tokens {
            for (before, after) in [("", ""), ("y", ""), ("", " z"), ("y", "\nz")] {
                let input = format!("x{opener}{before}{token}{after}");
                let read =
                    |size| short::read(name, &Options::default(), &Tools::default(), &input, size);
                let shown = read(input.len());
                assert_eq!(read(1), shown, "{name}: {input}");
                assert!(!shown.contains(token), "{name}: {shown} of {input}");
            }
        }
    }
}

/// What ends a turn or a text in each format.
const ENDS: &[(&[&str], &[&str])] = &[
    (
        &["hermes", "granite4", "qwen3_coder", "olmo3", "lfm2", "xlam", "json_fence"],
        &["<|im_end|>", "<|endoftext|>"],
    ),
    (&["llama3_json"], &["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"]),
    (&["pythonic"], &["<|eot|>", "<|eom|>", "<|eot_id|>", "<|end_of_text|>"]),
    (
        &["mistral", "mistral_v11", "gigachat3", "ernie45", "apertus", "minicpm5", "internlm2"],
        &["</s>"],
    ),
    (
        &["deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4", "step3"],
        &["<｜end▁of▁sentence｜>"],
    ),
    (&["kimi_k2", "kimi_k3", "minicpm5", "internlm2"], &["<|im_end|>"]),
    (&["glm45", "glm47"], &["<|observation|>", "<|user|>", "<|endoftext|>"]),
    (&["granite", "granite4"], &["<|end_of_text|>"]),
    (&["granite_20b_fc", "jamba", "phi4_mini"], &["<|endoftext|>"]),
    (&["jamba"], &["<|eom|>"]),
    (&["hunyuan_a13b", "hy_v3"], &["<|eos|>"]),
    (&["command_a"], &["<|END_OF_TURN_TOKEN|>"]),
    (&["phi4_mini"], &["<|end|>"]),
    (&["gemma3", "functiongemma", "gemma4"], &["<end_of_turn>", "<eos>"]),
    (&["gemma4"], &["<turn|>"]),
    (&["seed_oss"], &["<seed:eos>"]),
    (&["dots"], &["<|endofresponse|>"]),
    (&["longcat"], &["</longcat_s>"]),
    (&["apertus"], &["<|assistant_end|>"]),
    (&["inkling"], &["<|end_message|>"]),
    (&["minimax_m2", "minimax_m3"], &["[e~["]),
    (&["kimi_k2", "kimi_k3"], &["[EOS]"]),
    (&["gemma4"], &["<|tool_response>"]),
    // Any model may write these.
    (
        &[
            "auto",
            "legacy",
            "legacy_json",
            "toolcall_v2",
            "json_fence",
            "claude_xml",
            "react",
            "plan",
        ],
        &["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<end_of_turn>"],
    ),
];

#[test]
fn every_format_of_text_has_its_end() {
    for format in Format::all().iter().filter(|format| format.is_of_text()) {
        let known = ENDS.iter().any(|(names, _)| names.contains(&format.name()));
        // Their turns end with message markers.
        let message = ["harmony", "muse"].contains(&format.name());
        assert!(known || message, "{} has no token that ends a turn", format.name());
    }
}

#[test]
fn ends_of_turns_after_calls() {
    for vector in crate::vectors::load() {
        let name = vector["format"].as_str().unwrap();
        let (Some(input), Some(format)) = (vector["input"].as_str(), Format::named(name)) else {
            continue;
        };
        let last = vector["expected"].as_array().unwrap().last().map(|event| &event["type"]);
        if !format.is_of_text() || last.is_none_or(|kind| kind != "tool_end") || input.len() > 4096
        {
            continue;
        }
        let options: Options =
            serde_json::from_value(vector["options"].clone()).unwrap_or_default();
        let tools = Tools::from_json(&vector["tools"]).unwrap_or_default();
        let dialect = Dialect::new(format, &options, &tools);
        let (want, _) = shown(&read(&dialect, input));
        for (names, tokens) in ENDS.iter().filter(|(names, _)| names.contains(&name)) {
            for token in *tokens {
                let (got, _) = shown(&read(&dialect, &format!("{input}{token}")));
                assert_eq!(got, want, "{names:?}: {input}{token}");
            }
        }
    }
    // Inside a value it is quoted.
    check(
        "react",
        "Action: f\nAction Input: {\"a\":\"<|im_end|>\"}<|im_end|>",
        "⟨f({\"a\":\"<|im_end|>\"})⟩",
    );
    check("plan", "a <|im_end|> b<|im_end|> \n", "a <|im_end|> b");
}

/// Streams truncated inside a character give the same as if truncated before it.
#[test]
fn characters_that_are_cut() {
    for vector in crate::vectors::load() {
        let name = vector["format"].as_str().unwrap();
        let (Some(input), Some(format)) = (vector["input"].as_str(), Format::named(name)) else {
            continue;
        };
        if !format.is_of_text() || input.is_ascii() || input.len() > 4096 {
            continue;
        }
        let dialect = Dialect::new(format, &Options::default(), &Tools::default());
        for cut in (0..input.len()).filter(|cut| !input.is_char_boundary(*cut)) {
            let (mut parser, mut events) = (Parser::new(&dialect), Collector::default());
            parser.push(&input.as_bytes()[..cut], &mut events);
            parser.finish(&mut events);
            let before = &input[..input.floor_char_boundary(cut)];
            let (want, was_truncated) = shown(&read(&dialect, before));
            let events = events.into_events(true);
            let (got, truncated) = shown(&events);
            let id = &vector["id"];
            assert!(truncated || !was_truncated, "{id}: {before:?} and half a character");
            // Half a character of a text is shown as what it is.
            let text = got.strip_suffix('\u{fffd}').unwrap_or(&got);
            assert_eq!(text, want, "{id}: {before:?} and half a character");
            let mark = input[before.len()..].starts_with(['｜', '▁']);
            assert!(
                !mark || !got.ends_with("<\u{fffd}") || want.ends_with('<'),
                "{id}: {before:?} and half a mark"
            );
        }
    }
    let dsml = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n<";
    for half in [&b"\xef"[..], b"\xef\xbd"] {
        let dialect = Dialect::new(
            Format::named("deepseek_v32").unwrap(),
            &Options::default(),
            &Tools::default(),
        );
        let (mut parser, mut events) = (Parser::new(&dialect), Collector::default());
        parser.push(&[dsml.as_bytes(), half].concat(), &mut events);
        parser.finish(&mut events);
        assert_eq!(shown(&events.into_events(true)), (String::new(), true));
    }
}

#[test]
fn a_prompt_that_is_blocked() {
    let input = "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n";
    check("gemini", input, " .content_filter !upstream");
}
