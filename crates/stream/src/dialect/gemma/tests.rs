//! Gemma's calls, in chunks of every size.

use proptest::prelude::*;
use serde_json::Value;

use super::Gemma;
use crate::dialect::play::{
    Block, Style, arguments, calls, check_vectors, has_errors, line, play, play_all, tools,
};
use crate::dialect::{DEPTH_MAX, HELD_BYTES_MAX, NAME_BYTES_MAX, Tools};

const GEMMA: Block = Block {
    open: "<|tool_call>",
    close: "<tool_call|>",
    silent: false,
    body: || Box::new(Gemma::new(QUOTE)),
};
const FUNCTION: Block = Block {
    open: "<start_function_call>",
    close: "<end_function_call>",
    silent: false,
    body: || Box::new(Gemma::new("<escape>")),
};
const QUOTE: &str = "<|\"|>";

/// In inputs, `§` stands for the delimiter.
#[track_caller]
fn check(block: Block, input: &str, want: &str) {
    let quote = if block.open == GEMMA.open { QUOTE } else { "<escape>" };
    let input = input.replace('§', quote);
    let cuts: Vec<usize> = (0..input.len()).step_by(3).collect();
    assert_eq!(line(&play_all(&[block], &tools(), &input, &cuts)), want, "{input:?}");
}

/// Checks a call with both delimiters, up to the end of its block and with text after it.
#[track_caller]
fn call(body: &str, want: &str) {
    let (result, errors) = want
        .split_once(" !")
        .map_or((want, String::new()), |(result, error)| (result, format!(" !{error}")));
    let want = format!("{result}⟨ok⟩{errors}");
    check(GEMMA, &format!("<|tool_call>{body}<tool_call|>ok"), &want);
    check(FUNCTION, &format!("<start_function_call>{body}<end_function_call>ok"), &want);
}

#[test]
fn vectors() {
    check_vectors(&[GEMMA], include_str!("../../../tests/vectors/gemma4.json"));
    check_vectors(&[FUNCTION], include_str!("../../../tests/vectors/functiongemma.json"));
}

#[test]
fn calls_and_names() {
    for (body, want) in [
        ("call:ping{}", "ping{};"),
        (" call: ping { } \n", "ping{};"),
        ("call :ping{}", "ping{};"),
        ("ping{}", "ping{};"),
        ("call:ping()", "ping{};"),
        ("call:call{}", "call{};"),
        ("call{}", "call{};"),
        ("call:a.b-c:d/e{}", "a.b-c:d/e{};"),
        ("call:f{a:1,b:2,}", r#"f{"a":1,"b":2};"#),
        ("call:f{ a : 1 ,\n b : §x§ }", r#"f{"a":1,"b":"x"};"#),
        ("call:f(a=1, b=§x§)", r#"f{"a":1,"b":"x"};"#),
        ("call:f(a:1)", r#"f{"a":1};"#),
        ("call:f{a=1}", r#"f{"a":1};"#),
        ("call:f{§a b§:1,\"c\\\"d\":2,größe:3}", r#"f{"a b":1,"c\"d":2,"größe":3};"#),
        ("call:f({a:1,o:{b:2}})", r#"f{"a":1,"o":{"b":2}};"#),
        ("call:f{{a:1}}", r#"f{"a":1};"#),
    ] {
        call(body, want);
    }
}

#[test]
fn values() {
    for (value, json) in [
        ("§x§", r#""x""#),
        ("§§", r#""""#),
        ("§a \"b\" \\n {c},[d]:=(e)\n§", r#""a \"b\" \\n {c},[d]:=(e)\n""#),
        ("§<|<|\"<|\"|< <escape <esc§", r#""<|<|\"<|\"|< <escape <esc""#),
        ("§日本👩§", r#""日本👩""#),
        ("\"a\\n\\\"b\\u00e9\\ud83d\\ude00, }\"", r#""a\n\"bé😀, }""#),
        ("3", "3"),
        ("-2.5e3", "-2.5e3"),
        ("1_000", "1000"),
        ("true", "true"),
        ("False", "false"),
        ("None", "null"),
        ("null", "null"),
        ("[]", "[]"),
        ("{}", "{}"),
        ("[1,§a§,[2],{k:3},]", r#"[1,"a",[2],{"k":3}]"#),
        ("{k:{l:{m:[{}]}}}", r#"{"k":{"l":{"m":[{}]}}}"#),
        ("{§k§:§v§,\"l\":1}", r#"{"k":"v","l":1}"#),
        // Bare text.
        ("hello", r#""hello""#),
        ("hello world ", r#""hello world""#),
        ("truest", r#""truest""#),
        ("tru", r#""tru""#),
        ("3 apples", r#""3 apples""#),
        ("3 4", r#""3 4""#),
        ("2024-01-02", r#""2024-01-02""#),
        ("12:30", r#""12:30""#),
        ("a[0] {b}", r#""a[0] {b}""#),
        ("say \"hi\" < 3", r#""say \"hi\" < 3""#),
        ("[red, green]", r#"["red","green"]"#),
        ("Oslo, Norway", r#""Oslo, Norway""#),
        ("Oslo , in Norway ", r#""Oslo , in Norway""#),
        ("from 12:30, 13:30", r#""from 12:30, 13:30""#),
        ("größe, ü", r#""größe, ü""#),
    ] {
        call(&format!("call:f{{v:{value}}}"), &format!("f{{\"v\":{json}}};"));
        call(&format!("call:f(v={value})"), &format!("f{{\"v\":{json}}};"));
        let want = format!("f{{\"a\":[{json}],\"b\":1}};");
        if !value.contains(", ") || value.contains(['§', '[', '"']) {
            call(&format!("call:f{{a:[{value}],b:1}}"), &want);
        }
        call(&format!("call:f{{v:{value},b:1}}"), &format!("f{{\"v\":{json},\"b\":1}};"));
        call(&format!("call:f{{v:{value} , \"b\":1}}"), &format!("f{{\"v\":{json},\"b\":1}};"));
    }
}

#[test]
fn guesses_are_reported() {
    for (body, want) in [
        // Delimiters.
        ("call:f{q:weather in Tokyo§}", r#"f{"q":"weather in Tokyo"};"#),
        ("call:f{q:Tokyo, Japan §,n:1}", r#"f{"q":"Tokyo, Japan ","n":1};"#),
        ("call:f{q:3§}", r#"f{"q":"3"};"#),
        ("call:f{t:[a§,§b§]}", r#"f{"t":["a","b"]};"#),
        ("call:f{q:§a§b§,n:1}", r#"f{"q":"a","n":1};"#),
        ("call:f{q§:1,n:2}", r#"f{"n":2};"#),
        // Brackets.
        ("call:f{q:§x§]}", r#"f{"q":"x"};"#),
        ("call:f{n:3]}", r#"f{"n":3};"#),
        ("call:f{t:[1]],n:2}", r#"f{"t":[1],"n":2};"#),
        ("call:f{q:§x§}}", r#"f{"q":"x"};"#),
        ("call:f{q:§x§}]}", r#"f{"q":"x"};"#),
        ("call:f{q:§x§)}", r#"f{"q":"x"};"#),
        ("call:f(q=§x§})", r#"f{"q":"x"};"#),
        ("call:f{t:[§a§}", r#"f{"t":["a"]};"#),
        ("call:f{o:{t:[1},n:2}", r#"f{"o":{"t":[1]},"n":2};"#),
        ("call:f{q:§x§", r#"f{"q":"x"};"#),
        ("call:f{t:[§x§ ", r#"f{"t":["x"]};"#),
        ("call:f({q:§x§)", r#"f{"q":"x"};"#),
        // Commas, keys, values.
        ("call:f{q:§x§ n:1}", r#"f{"q":"x","n":1};"#),
        ("call:f{,a:1,,b:2}", r#"f{"a":1,"b":2};"#),
        ("call:f{t:[1,,§a§ x,2]}", r#"f{"t":[1,"a",2]};"#),
        ("call:f{a:,b:}", r#"f{"a":null,"b":null};"#),
        ("call:f{o:{a,§b§,\"c\"}}", r#"f{"o":{"a":null,"b":null,"c":null}};"#),
        ("call:f{§a§ x,b:1}", r#"f{"b":1};"#),
        ("call:f(§x§, 5)", r#"f{"arg0":"x","arg1":5};"#),
        ("call:f([1], \"a\")", r#"f{"arg0":[1],"arg1":"a"};"#),
        ("call:copy(1,2,3,4)", r#"copy{"to":1,"from":2,"force":3,"arg3":4};"#),
    ] {
        call(body, &format!("{want} !malformed_call"));
    }
    call("call:f{q:Oslo, }", r#"f{"q":"Oslo"};"#);
    call("call:copy(§a§, §b§)", r#"copy{"to":"a","from":"b"};"#);
    call("call:one{§x§}", r#"one{"only":"x"};"#);
}

#[test]
fn text_that_is_not_a_call() {
    for body in [
        "hello world",
        "{\"name\":1}",
        "call:{}",
        "call:5{}",
        "call:é{}",
        "",
        "call:ping",
        "call:f x{}",
    ] {
        let text = format!("<|tool_call>{body}<tool_call|>ok");
        check(GEMMA, &text, &format!("⟨{text}⟩ !malformed_call"));
    }
}

#[test]
fn the_stream_ends_inside() {
    for (input, want) in [
        ("call:f{", "f{…"),
        ("call:f{a", "f{…"),
        ("call:f{a:", r#"f{"a":…"#),
        ("call:f{a:§", r#"f{"a":"…"#),
        ("call:f{a:§abc", r#"f{"a":"abc…"#),
        ("call:f{a:§abc<", r#"f{"a":"abc<…"#),
        ("call:f{a:§abc}<tool_call|>", r#"f{"a":"abc}<tool_call|>…"#),
        ("call:f{a:§abc§", r#"f{"a":"abc"…"#),
        ("call:f{a:12", r#"f{"a":12…"#),
        ("call:f{a:tru", r#"f{"a":…"#),
        ("call:f{a:some text, and", r#"f{"a":"some text…"#),
        ("call:f{a:[1,{b:§x", r#"f{"a":[1,{"b":"x…"#),
        ("call:f{§a", "f{…"),
        ("call:f{a:\"x", r#"f{"a":"x…"#),
    ] {
        check(GEMMA, &format!("<|tool_call>{input}"), &format!("{want} !truncated"));
    }
    check(GEMMA, "<|tool_call>call:pi", "⟨<|tool_call>call:pi⟩ !truncated");
    check(GEMMA, "<|tool_call>call:ping{}", "ping{};");
    check(GEMMA, "<|tool_call>call:ping{} then", "ping{};⟨ then⟩");
}

#[test]
fn bounds() {
    let name = "n".repeat(NAME_BYTES_MAX);
    call(&format!("call:{name}{{}}"), &format!("{name}{{}};"));
    let text = format!("<|tool_call>call:{name}n{{}}");
    check(GEMMA, &text, &format!("⟨{text}⟩ !limit"));
    call(&format!("call:f{{{name}:1}}"), &format!("f{{\"{name}\":1}};"));
    for key in [format!("{name}nn"), format!("§{name}n§"), format!("\"{name}n\"")] {
        let text = key.replace(['§', '"'], "");
        let rest = if key.starts_with('n') { ": 1" } else { "" };
        let want = format!("f{{\"arg0\":\"{text}{rest}\"}}; !limit !malformed_call");
        call(&format!("call:f{{{key}{rest}}}"), &want);
    }
    let nested = |levels: usize, middle: &str| "[".repeat(levels) + middle + &"]".repeat(levels);
    let most = nested(DEPTH_MAX - 1, "");
    call(&format!("call:f{{v:{most}}}"), &format!("f{{\"v\":{most}}};"));
    let want = format!("f{{\"v\":{}}}; !limit", nested(DEPTH_MAX - 1, "\"[1, [2]]\""));
    call(&format!("call:f{{v:{}}}", nested(DEPTH_MAX - 1, "[1, [2]]")), &want);
}

/// Held text is bounded, and parsing is linear, even byte by byte.
#[test]
fn floods() {
    let blanks = " ".repeat(HELD_BYTES_MAX);
    let many = " ".repeat(1 << 16);
    for input in [
        format!("<|tool_call>{blanks}call:ping{{}}"),
        format!("<|tool_call>call:f{{a:1{many},b:2}}<tool_call|>"),
        format!("<|tool_call>call:f{{a:x,{many}b:2}}<tool_call|>"),
        format!("<|tool_call>call:f{{a:x{many}y}}<tool_call|>"),
        format!("<|tool_call>call:f{{a:x{}}}<tool_call|>", ", ".repeat(1 << 16)),
        format!("<|tool_call>call:f{{a:<|\"|>{}", "<|\"".repeat(1 << 16)),
        format!("<|tool_call>call:f{{a:{}", "[".repeat(1 << 16)),
        format!("<|tool_call>call:f{{a:[{}", "}".repeat(1 << 16)),
        format!("<|tool_call>call:f{{a:{}", "1".repeat(1 << 16)),
    ] {
        let cuts: Vec<usize> = (1..input.len()).collect();
        let whole = line(&play(&[GEMMA], &tools(), &input, &[]));
        let single = line(&play(&[GEMMA], &tools(), &input, &cuts));
        assert!(whole == single, "{}", &input[..40]);
    }
}

/// Renders a value as Gemma does, in one of many ways.
fn gemma(value: &Value, style: &mut Style) -> String {
    let blank = *style.pick(&[" ", "", "\n"]);
    match value {
        Value::String(text) => format!("{QUOTE}{text}{QUOTE}"),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| gemma(item, style)).collect();
            format!("[{blank}{}{blank}]", items.join(","))
        }
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let quote = *style.pick(&["", QUOTE, "\""]);
                format!("{quote}{key}{quote}{blank}:{}{blank}", gemma(value, style))
            });
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        scalar => scalar.to_string() + blank,
    }
}

const FRAGMENTS: &[&str] = &[
    "call:",
    "f",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ":",
    "=",
    ",",
    QUOTE,
    "<|",
    "<|\"",
    "<",
    "\"",
    "\\",
    "\\u",
    "a",
    "b",
    "1",
    "-",
    "true",
    " ",
    "\n",
    "é",
    "日",
    "<tool_call|>",
    "<|tool_call>",
    "k:",
    "'",
];

proptest! {
    #[test]
    fn generated_calls_parse_back(
        name in "[a-z_][a-z0-9_.]{0,9}",
        args in arguments("[a-zA-Z_][a-zA-Z0-9_]{0,8}"),
        style: u64,
        cuts in prop::collection::vec(0usize..200, 0..9),
    ) {
        prop_assume!(name != "call" && !args.to_string().contains("<|\\\"|>"));
        let body = gemma(&args, &mut Style(style));
        let input = format!("<|tool_call>call:{name}{body}<tool_call|>");
        let events = play_all(&[GEMMA], &Tools::default(), &input, &cuts);
        let (got_name, got, complete) = calls(&events).remove(0);
        let want: Value = serde_json::from_str(&args.to_string()).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&got).unwrap(), want, "{}", input);
        prop_assert!(complete && got_name == name && !has_errors(&events), "{}", line(&events));
    }

    #[test]
    fn nonsense_parses_the_same_in_any_chunking(
        pieces in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..24),
        cuts in prop::collection::vec(0usize..80, 0..9),
    ) {
        let input = pieces.concat();
        play_all(&[GEMMA], &tools(), &input, &cuts);
        play_all(&[GEMMA], &tools(), &format!("<|tool_call>call:f{{{input}"), &cuts);
        play_all(&[GEMMA], &tools(), &format!("<|tool_call>call:f(a={input}"), &cuts);
    }
}
