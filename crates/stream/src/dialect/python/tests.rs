//! Calls in Python syntax, in chunks of every size.

use proptest::prelude::*;
use serde_json::Value;

use super::{Python, Spec};
use crate::dialect::body::Body;
use crate::dialect::play::{
    Block, Style, arguments, calls, check_vectors, has_errors, line, play, play_all, tools,
};
use crate::dialect::{DEPTH_MAX, HELD_BYTES_MAX, NAME_BYTES_MAX, Tools};

const BARE: Block = Block { open: "[", close: "", silent: true, body: || body(Spec::Bare) };
const CALLS: Block =
    Block { open: "<calls>", close: "</calls>", silent: false, body: || body(Spec::Marked) };
const FENCE: Block =
    Block { open: "```tool_code\n", close: "```", silent: false, body: || body(Spec::Fence) };
const TAG: Block = Block { open: "<|tag|>", close: "", silent: true, body: || body(Spec::Builtin) };

fn body(spec: Spec) -> Box<dyn Body> {
    Box::new(Python::new(spec))
}

#[track_caller]
fn check(block: Block, input: &str, want: &str) {
    let cuts: Vec<usize> = (0..input.len()).step_by(3).collect();
    assert_eq!(line(&play_all(&[block], &tools(), input, &cuts)), want, "{input:?}");
}

/// Checks one value: `f(v=…)`.
#[track_caller]
fn value(python: &str, json: &str) {
    check(BARE, &format!("[f(v={python})]"), &format!("f{{\"v\":{json}}};"));
}

/// Checks a value that is only a guess.
#[track_caller]
fn guess(python: &str, json: &str) {
    check(BARE, &format!("[f(v={python})]"), &format!("f{{\"v\":{json}}}; !malformed_call"));
}

#[test]
fn vectors() {
    let marked = |open, close| Block { open, close, ..CALLS };
    let start = marked("<|python_start|>", "<|python_end|>");
    check_vectors(&[BARE, start], include_str!("../../../tests/vectors/pythonic.json"));
    let olmo3 = marked("<function_calls>", "</function_calls>");
    check_vectors(&[olmo3], include_str!("../../../tests/vectors/olmo3.json"));
    let lfm2 = marked("<|tool_call_start|>", "<|tool_call_end|>");
    check_vectors(&[lfm2], include_str!("../../../tests/vectors/lfm2.json"));
    check_vectors(&[FENCE], include_str!("../../../tests/vectors/gemma3.json"));
}

#[test]
fn bare_lists() {
    for (input, want) in [
        ("[ping()]", "ping{};"),
        ("[ping()] then", "ping{};⟨ then⟩"),
        ("[a.b.c(x=1), my-tool(y=2)]", r#"a.b.c{"x":1};my-tool{"y":2};"#),
        ("[\n  ping(),\n  ping(),\n]", "ping{};ping{};"),
        ("[ping()\nping()]", "ping{};ping{};"),
        ("[f( a = 1 , b = 2 , )]", r#"f{"a":1,"b":2};"#),
        ("[f(a=1, # one, two)\n b=2)]", r#"f{"a":1,"b":2};"#),
        ("[f(größe=1)]", r#"f{"größe":1};"#),
        // What is not a call is text immediately.
        ("[]", "⟨[]⟩"),
        ("[1] is a citation, [link](http://x) too", "⟨[1] is a citation, [link](http://x) too⟩"),
        ("[see (below)]", "⟨[see (below)]⟩"),
        ("[e.g.(x)] [a..b(x)] [x-(y)]", "⟨[e.g.(x)] [a..b(x)] [x-(y)]⟩"),
        ("[é(x=1)]", "⟨[é(x=1)]⟩"),
        ("[#1] [\"f\"(x)] [{\"name\":1}]", "⟨[#1] [\"f\"(x)] [{\"name\":1}]⟩"),
        ("[", "⟨[⟩"),
        ("[sear", "⟨[sear⟩"),
        ("[ ", "⟨[ ⟩"),
        // Without its end.
        ("[ping()", "ping{};"),
        ("[ping(), ", "ping{};"),
        ("[ping()<|eot|>", "ping{};⟨<|eot|>⟩"),
        ("[ping(), pi", "ping{};⟨, pi⟩ !truncated"),
        ("[ping() and so on", "ping{};⟨ and so on⟩ !malformed_call"),
        ("[ping(), 1]", "ping{};⟨, 1]⟩ !malformed_call"),
        ("[ping()))]", "ping{}; !malformed_call"),
        ("[f(a=1]", r#"f{"a":1}; !malformed_call"#),
        ("[f(a=[1, 2]]", r#"f{"a":[1,2]}; !malformed_call"#),
    ] {
        check(BARE, input, want);
    }
}

#[test]
fn calls_inside_of_markers() {
    for (input, want) in [
        ("<calls>[ping()]</calls>ok", "ping{};⟨ok⟩"),
        ("<calls> [ ping ( ) ] </calls>", "ping{};"),
        ("<calls>\nping()\nf(a=1)\n</calls>", r#"ping{};f{"a":1};"#),
        ("<calls>ping(); ping(), ping()</calls>", "ping{};ping{};ping{};"),
        ("<calls># first\nping() # second\nping()</calls>", "ping{};ping{};"),
        ("<calls>f(q=\"\"\"a\nb\"\"\")\nping()</calls>", r#"f{"q":"a\nb"};ping{};"#),
        ("<calls>f(q=\"a\nb</calls>\")</calls>", r#"f{"q":"a\nb</calls>"};"#),
        ("<calls>größe()</calls>", "größe{};"),
        ("<calls>[ping()</calls>x", "ping{};⟨x⟩"),
        ("<calls>[ping(),</calls>x", "ping{};⟨x⟩"),
        ("<calls>ping()\n", "ping{};"),
        // Blocks without calls.
        ("<calls></calls>x", "⟨<calls></calls>x⟩ !malformed_call"),
        ("<calls>[]</calls>x", "⟨<calls>[]</calls>x⟩ !malformed_call"),
        ("<calls>hello world</calls>", "⟨<calls>hello world</calls>⟩ !malformed_call"),
        ("<calls>[1]</calls>", "⟨<calls>[1]</calls>⟩ !malformed_call"),
        ("<calls>ping() so be it</calls>", "ping{};⟨ so be it</calls>⟩ !malformed_call"),
        ("<calls>print(ping())</calls>", r#"print{"arg0":"ping()"}; !malformed_call"#),
        ("<calls>", "⟨<calls>⟩ !truncated"),
        ("<calls>[pin", "⟨<calls>[pin⟩ !truncated"),
    ] {
        check(CALLS, input, want);
    }
}

#[test]
fn calls_in_a_fence() {
    for (input, want) in [
        ("```tool_code\nprint(ping())\n```", "ping{};"),
        ("```tool_code\nprint(ping(), ping())\n```x", "ping{};ping{};⟨x⟩"),
        ("```tool_code\nr = f(a=1)\nx=f(a=2)\n```", r#"f{"a":1};f{"a":2};"#),
        ("```tool_code\nprint(a.f(x=1))\nprint(g())```", r#"a.f{"x":1};g{};"#),
        ("```tool_code\nprint(\"hi\")\n```", "⟨```tool_code\nprint(\"hi\")\n```⟩ !malformed_call"),
        ("```tool_code\n```", "⟨```tool_code\n```⟩ !malformed_call"),
        ("```tool_code\nx = 5\n```", "⟨```tool_code\nx = 5\n```⟩ !malformed_call"),
        ("```tool_code\nprint(ping()", "ping{};"),
        ("```tool_code\nprint(pi", "⟨```tool_code\nprint(pi⟩ !truncated"),
    ] {
        check(FENCE, input, want);
    }
}

#[test]
fn built_in_tools() {
    for (input, want) in [
        ("<|tag|>brave_search.call(query=\"x\")", r#"brave_search{"query":"x"};"#),
        ("<|tag|>a.b.call(q=1)<|eom|>", r#"a.b{"q":1};⟨<|eom|>⟩"#),
        ("<|tag|>print(\"hi\")", "⟨<|tag|>print(\"hi\")⟩"),
        ("<|tag|>call(\"hi\")", "⟨<|tag|>call(\"hi\")⟩"),
        ("<|tag|>x.caller(1)", "⟨<|tag|>x.caller(1)⟩"),
        ("<|tag|>.call(1)", "⟨<|tag|>.call(1)⟩"),
        ("<|tag|>import os", "⟨<|tag|>import os⟩"),
        ("<|tag|>{\"name\": 1}", "⟨<|tag|>{\"name\": 1}⟩"),
        ("<|tag|>wolfram.call(query=\"x", r#"wolfram{"query":"x… !truncated"#),
        ("<|tag|>wolfram.ca", "⟨<|tag|>wolfram.ca⟩"),
    ] {
        check(TAG, input, want);
    }
}

#[test]
fn strings() {
    for (python, json) in [
        (r#""x""#, r#""x""#),
        (r#""""#, r#""""#),
        (r#"''"#, r#""""#),
        (r#"'it"s'"#, r#""it\"s""#),
        (r#""it's""#, r#""it's""#),
        (r#""a]b)c,d}e""#, r#""a]b)c,d}e""#),
        (r#""""a"b""c""""#, r#""a\"b\"\"c""#),
        (r#"'''a'b"c'''"#, r#""a'b\"c""#),
        (r#""""""""#, r#""""#),
        ("\"a\nb\tc\"", r#""a\nb\tc""#),
        (r#""a\nb\tc\\d\"e\'f\/g\r\b\f\v\a""#, r#""a\nb\tc\\d\"e'f/g\r\b\f\u000b\u0007""#),
        (r#""\x41\x00\x7f\xe9""#, "\"A\\u0000\u{7f}é\""),
        (r#""\0\101\1012\18""#, "\"\\u0000AA2\\u00018\""),
        (r#""\u00e9\U0001f600\u0022""#, r#""é😀\"""#),
        (r#""\ud83d\ude00!""#, r#""😀!""#),
        (r#""\ud83d""#, "\"\u{fffd}\""),
        (
            r#""\ud83dx\ude00\ud83d\n\ud83d\ud83d\ude00""#,
            "\"\u{fffd}x\u{fffd}\u{fffd}\\n\u{fffd}😀\"",
        ),
        (r#""\ud83d\u00e9\ud83d\x41""#, "\"\u{fffd}é\u{fffd}A\""),
        (r#""\N{BULLET} \d \. \é \(""#, r#""\\N{BULLET} \\d \\. \\é \\(""#),
        (r#""\xZ \x4 \u12 \U0011ffff \U00110000""#, r#""\\xZ \\x4 \\u12 \\U0011ffff \\U00110000""#),
        ("\"a\\\nb\\\r\nc\\\rd\"", r#""abcd""#),
        (r#"r"\d\"x\\""#, r#""\\d\\\"x\\\\""#),
        (r#"R'''\n'''"#, r#""\\n""#),
        (r#"b"x""#, r#""x""#),
        (r#"f"{x}""#, r#""{x}""#),
        (r#"rb"\x""#, r#""\\x""#),
        (r#"u'é'"#, r#""é""#),
        (r#""a" 'b' r"\c" """d""""#, r#""ab\\cd""#),
        ("(\"a\"\n  # and\n  \"b\")", r#""ab""#),
        (r#""日本👩""#, r#""日本👩""#),
    ] {
        value(python, json);
    }
}

#[test]
fn values() {
    for (python, json) in [
        ("True", "true"),
        ("false", "false"),
        ("None", "null"),
        ("null", "null"),
        ("1_000", "1000"),
        ("-.5", "-0.5"),
        ("5.", "5.0"),
        ("0x1F", "31"),
        ("+3", "3"),
        ("[]", "[]"),
        ("[1,2 , 3,]", "[1,2,3]"),
        ("()", "[]"),
        ("(1,)", "[1]"),
        ("(1, 'a')", r#"[1,"a"]"#),
        ("(1)", "1"),
        ("(('a'))", r#"["a"]"#),
        ("([1], 2)", "[[1],2]"),
        ("{}", "{}"),
        ("{1, 2}", "[1,2]"),
        ("{'a'}", r#"["a"]"#),
        ("{'a': 1, \"b\": [None], }", r#"{"a":1,"b":[null]}"#),
        (
            "{1: 'a', None: 'b', 2.5: 'c', True: 'd'}",
            r#"{"1":"a","null":"b","2.5":"c","true":"d"}"#,
        ),
        ("{'a' 'b': 1, 'c' 'd': 2}", r#"{"ab":1,"cd":2}"#),
        ("{'a': {'b': {'c': ()}}}", r#"{"a":{"b":{"c":[]}}}"#),
        ("[{'a': 1}, {'b': (2, 3)}]", r#"[{"a":1},{"b":[2,3]}]"#),
        ("[ # first\n 1, # second\n 2 ]", "[1,2]"),
        ("3 # three)\n", "3"),
    ] {
        value(python, json);
    }
}

#[test]
fn values_that_are_not_literals() {
    for (python, json) in [
        ("foo", r#""foo""#),
        ("foo ", r#""foo""#),
        ("date.today()", r#""date.today()""#),
        ("max(1, 2) + 3", r#""max(1, 2) + 3""#),
        ("1 + 2", r#""1 + 2""#),
        ("3j", r#""3j""#),
        ("007", r#""007""#),
        ("inf", r#""inf""#),
        ("float('nan')", r#""float('nan')""#),
        ("g(\"a,)\", '\\'', \"\"\"b\"c)\"\"\")", r#""g(\"a,)\", '\\'', \"\"\"b\"c)\"\"\")""#),
        ("x # y)\n", r#""x""#),
        ("[foo, bar]", r#"["foo","bar"]"#),
        ("{a: 1, b: 2}", r#"{"a":1,"b":2}"#),
        ("{'a': b}", r#"{"a":"b"}"#),
        ("{'x': 1, (1, 2): 3}", r#"{"x":1,"(1, 2)":3}"#),
        ("{**a}", r#"["**a"]"#),
        ("lambda: 1", r#""lambda: 1""#),
        ("-foo", r#""-foo""#),
        ("größe", r#""größe""#),
        ("", "null"),
        ("{'a':}", r#"{"a":null}"#),
        ("{'a': 1, 'b'}", r#"{"a":1,"b":null}"#),
        ("[1, , 2]", "[1,2]"),
        ("'a'.upper()", r#""a""#),
        ("'a' + 'b'", r#""a""#),
        ("'a' if x else (1, 2)", r#""a""#),
        ("'a' b'c' d", r#""ac""#),
        ("[1, 2}", "[1,2]"),
        ("[1, 2}]", "[1,2]"),
        ("{'a': [1, 2}", r#"{"a":[1,2]}"#),
        ("{('a'): 1}", r#"["a"]"#),
        ("{'a' x: 1}", r#"{"a":1}"#),
        ("{'b': 0, 'a' x: 1}", r#"{"b":0,"a":1}"#),
        ("{:1}", r#"{"":1}"#),
    ] {
        guess(python, json);
    }
}

#[test]
fn arguments_without_a_name() {
    for (input, want) in [
        ("[copy('a', 'b')]", r#"copy{"to":"a","from":"b"};"#),
        ("[copy('a', 'b', True)]", r#"copy{"to":"a","from":"b","force":true};"#),
        ("[copy('a', **x)]", r#"copy{"to":"a","from":"**x"}; !malformed_call"#),
        ("[copy(1, 2, 3, 4)]", r#"copy{"to":1,"from":2,"force":3,"arg3":4}; !malformed_call"#),
        ("[one(r'\\x')]", r#"one{"only":"\\x"};"#),
        ("[one([1])]", r#"one{"only":[1]};"#),
        ("[search('x', limit=1)]", r#"search{"arg0":"x","limit":1}; !malformed_call"#),
        ("[f(1, x)]", r#"f{"arg0":1,"arg1":"x"}; !malformed_call"#),
        ("[f(q: 1)]", r#"f{"q":1};"#),
        ("[f(,a=1,,)]", r#"f{"a":1}; !malformed_call"#),
    ] {
        check(BARE, input, want);
    }
}

#[test]
fn the_stream_ends_inside() {
    for (input, want) in [
        ("[f(", "f{…"),
        ("[f(a", "f{…"),
        ("[f(a=", r#"f{"a":…"#),
        ("[f(a=\"", r#"f{"a":"…"#),
        ("[f(a=\"abc", r#"f{"a":"abc…"#),
        ("[f(a=\"abc\\", r#"f{"a":"abc…"#),
        ("[f(a=\"abc\\ud83d", r#"f{"a":"abc…"#),
        ("[f(a=\"abc\"", r#"f{"a":"abc"…"#),
        ("[f(a=\"\"", r#"f{"a":""…"#),
        ("[f(a=\"\"\"", r#"f{"a":"…"#),
        ("[f(a=\"\"\"x\"\"", r#"f{"a":"x…"#),
        ("[f(a=12", r#"f{"a":12…"#),
        ("[f(a=[1, 2", r#"f{"a":[1,2…"#),
        ("[f(a=Tru", r#"f{"a":…"#),
        ("[f(a=True, ", r#"f{"a":true…"#),
        ("[f(a={", r#"f{"a":{…"#),
        ("[f(a={\"k", r#"f{"a":{"k…"#),
        ("[f(a={\"k\": \"v", r#"f{"a":{"k":"v…"#),
        ("[f(a={1", r#"f{"a":…"#),
        ("[f(a=(\"x", r#"f{"a":"x…"#),
        ("[f(a=foo(1, ", r#"f{"a":"foo(1,…"#),
    ] {
        let error = if input.contains("foo") { " !malformed_call" } else { "" };
        check(BARE, input, &format!("{want}{error} !truncated"));
    }
}

/// The first piece of an argument is emitted with the push that contains its first byte.
#[test]
fn pieces_come_at_once() {
    for end in 0.."[f(q=\"abc".len() {
        let input = &"[f(q=\"abc"[..=end];
        let want =
            ["", "", "{", "{", "{\"q\":", "{\"q\":\"", "{\"q\":\"a", "{\"q\":\"ab", "{\"q\":\"abc"];
        let events = play(&[BARE], &tools(), input, &[]);
        let args = calls(&events).pop().map(|call| call.1).unwrap_or_default();
        assert_eq!(args, want[end], "{input}");
    }
}

#[test]
fn bounds() {
    let name = "n".repeat(NAME_BYTES_MAX);
    check(BARE, &format!("[{name}()]"), &format!("{name}{{}};"));
    check(BARE, &format!("[{name}n()]"), &format!("⟨[{name}n()]⟩"));
    let text = format!("<calls>{name}n()</calls>");
    check(CALLS, &text, &format!("⟨{text}⟩ !limit"));
    check(BARE, &format!("[f({name}=1)]"), &format!("f{{\"{name}\":1}};"));
    let want = format!("f{{\"arg0\":\"{name}n=1\"}}; !limit !malformed_call");
    check(BARE, &format!("[f({name}n=1)]"), &want);
    check(BARE, &format!("[f(a={name}n)]"), &format!("f{{\"a\":\"{name}n\"}}; !limit"));
    check(BARE, &format!("[f(a={{'{name}n', 1}})]"), &format!("f{{\"a\":[\"{name}n\",1]}};"));
    check(BARE, &format!("[f(a=('{name}n'))]"), &format!("f{{\"a\":\"{name}n\"}};"));
    let want = format!("f{{\"a\":\"{name}n\"}}; !malformed_call");
    check(BARE, &format!("[f(a=('{name}n', 1))]"), &want);
    let want = format!("f{{\"a\":[\"{name}n\",2]}}; !malformed_call");
    check(BARE, &format!("[f(a={{'{name}n': 1, 2}})]"), &want);

    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    value(&nested(DEPTH_MAX - 1), &nested(DEPTH_MAX - 1));
    let deep = |middle: &str| {
        format!("{}{middle}{}", "[".repeat(DEPTH_MAX - 1), "]".repeat(DEPTH_MAX - 1))
    };
    let want = format!("f{{\"v\":{}}}; !limit", deep("\"[1, [2]]\""));
    check(BARE, &format!("[f(v={})]", deep("[1, [2]]")), &want);
}

/// Held text is bounded, and parsing is linear, even byte by byte.
#[test]
fn floods() {
    let blanks = " ".repeat(HELD_BYTES_MAX + 9);
    let letters = "r".repeat(FLOOD);
    let junk = "}".repeat(FLOOD);
    let many = " ".repeat(FLOOD);
    for (input, want) in [
        (format!("[{blanks}f()]"), format!("⟨[{blanks}f()]⟩")),
        (format!("[f(){blanks}]"), format!("f{{}};⟨{blanks}]⟩ !malformed_call")),
        (format!("[f(a=1{many})]"), "f{\"a\":1};".to_owned()),
        (format!("[f(a=\"x\"{many}\"y\")]"), "f{\"a\":\"xy\"};".to_owned()),
        (format!("[f(a=\"{letters}\")]"), format!("f{{\"a\":\"{letters}\"}};")),
        (format!("[f(a=x y{many}z)]"), format!("f{{\"a\":\"x y{many}z\"}}; !malformed_call")),
        (format!("[f(a=[[{junk}])]"), "f{\"a\":[[]]}; !malformed_call".to_owned()),
    ] {
        flood(&input, Some(&want));
    }
    flood(&format!("[f(a={}", "[{(".repeat(FLOOD)), None);
    flood(&format!("[f(a=1{}", ",".repeat(FLOOD)), None);
    flood(&format!("[f(a={}", "\"\" ".repeat(FLOOD)), None);
}

const FLOOD: usize = 1 << 16;

/// Long inputs are neither printed nor shrunk.
#[track_caller]
fn flood(input: &str, want: Option<&str>) {
    let cuts: Vec<usize> = (1..input.len()).collect();
    let whole = line(&play(&[BARE], &tools(), input, &[]));
    let single = line(&play(&[BARE], &tools(), input, &cuts));
    let start = |line: &str| line[..line.floor_char_boundary(99)].to_owned();
    assert!(whole == single, "{} and {}", start(&whole), start(&single));
    assert!(want.is_none_or(|want| want == whole), "{}", start(&whole));
}

/// Renders a value in Python, in one of many ways.
fn python(value: &Value, style: &mut Style) -> String {
    let blank = *style.pick(&[" ", "", "\n  ", " # note, or ')\n"]);
    match value {
        Value::Null => (*style.pick(&["None", "null"])).to_owned(),
        Value::Bool(true) => (*style.pick(&["True", "true"])).to_owned(),
        Value::Bool(false) => (*style.pick(&["False", "false"])).to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let quote = *style.pick(&["\"", "'", "\"\"\"", "'''"]);
            let mut literal = String::from(quote);
            for character in text.chars() {
                let code = u32::from(character);
                match style.choose(6) {
                    0 => literal.push_str(&format!("\\U{code:08x}")),
                    1 => {
                        for unit in character.encode_utf16(&mut [0; 2]) {
                            literal.push_str(&format!("\\u{unit:04X}"));
                        }
                    }
                    2 if code < 256 => literal.push_str(&format!("\\x{code:02x}")),
                    3 if code < 256 => literal.push_str(&format!("\\{code:03o}")),
                    _ if "\"'\\".contains(character) => literal.extend(['\\', character]),
                    // Adjacent strings are concatenated, unless their quotes would run together.
                    5 if !literal.ends_with(quote) => {
                        literal.push_str(&format!("{quote} {blank}{quote}"));
                        literal.push(character);
                    }
                    _ => literal.push(character),
                }
            }
            literal + quote
        }
        Value::Array(items) => {
            let mut inner = String::new();
            for item in items {
                inner.push_str(&format!("{}{blank},", python(item, style)));
            }
            let (open, close) = *style.pick(&[("[", "]"), ("(", ")")]);
            format!("{open}{blank}{inner}{blank}{close}")
        }
        Value::Object(entries) => {
            let mut inner = String::new();
            for (key, value) in entries {
                let key = python(&Value::from(key.as_str()), style);
                inner.push_str(&format!("{key}{blank}: {},{blank}", python(value, style)));
            }
            format!("{{{inner}}}")
        }
    }
}

/// Fragments of calls, of text and of nonsense.
const FRAGMENTS: &[&str] = &[
    "[",
    "f(",
    "a=",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "x",
    "\\",
    "\\u",
    "\\ud83d",
    "\\x4",
    "1",
    "-",
    ".5",
    "True",
    "None",
    ",",
    ":",
    "{",
    "}",
    "(",
    ")",
    "]",
    " ",
    "\n",
    "#",
    "=",
    "r",
    "é",
    "日",
    "<calls>",
    "</calls>",
    "<",
    "`",
    "```tool_code\n",
    "print(",
    "<|tag|>",
    ".call(",
    "b.c",
    ";",
    "**",
    "{'k':",
];

proptest! {
    #[test]
    fn generated_calls_parse_back(
        list in prop::collection::vec(("[a-z_][a-z0-9_]{0,9}(\\.[a-z]{1,3})?", arguments("\\PC{0,6}")), 1..4),
        style: u64,
        marked: bool,
        cuts in prop::collection::vec(0usize..200, 0..9),
    ) {
        let mut style = Style(style);
        let written: Vec<String> = list.iter().map(|(name, args)| {
            let args = args.as_object().unwrap().iter();
            let args = args.map(|(key, value)| format!("{key}={}", python(value, &mut style)));
            format!("{name}({})", args.collect::<Vec<_>>().join(", "))
        }).collect();
        let (block, input) = if marked {
            (CALLS, format!("<calls>{}</calls>", written.join("\n")))
        } else {
            (BARE, format!("[{}]", written.join(", ")))
        };
        let events = play_all(&[block], &Tools::default(), &input, &cuts);
        let got: Vec<_> = calls(&events).into_iter().map(|(name, args, complete)| {
            (name, serde_json::from_str(&args).unwrap(), complete)
        }).collect();
        let want: Vec<(String, Value, bool)> = list.into_iter().map(|(name, args)| {
            (name, serde_json::from_str(&args.to_string()).unwrap(), true)
        }).collect();
        prop_assert_eq!(got, want, "{}", input);
        prop_assert!(!has_errors(&events), "{}", line(&events));
    }

    #[test]
    fn nonsense_parses_the_same_in_any_chunking(
        pieces in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..24),
        cuts in prop::collection::vec(0usize..80, 0..9),
    ) {
        let input = pieces.concat();
        for block in [BARE, CALLS, FENCE, TAG] {
            let started = format!("{}f.call({input}", block.open);
            play_all(&[block], &tools(), &started, &cuts);
        }
        play_all(&[BARE, CALLS, FENCE, TAG], &tools(), &input, &cuts);
    }
}
