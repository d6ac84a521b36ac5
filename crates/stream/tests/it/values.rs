//! Raw values arrive byte for byte, whatever tags they contain; and omissions are reported, not guessed.

use std::slice::from_ref;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stream::canonical::{Collector, Kind};
use stream::dialect::{Dialect, Format, Options, Parser, Tools};

/// How a tagged format writes.
struct Tagged {
    name: &'static str,
    /// The block around calls.
    block: (&'static str, &'static str),
    /// A call, with `$name` and `$params` in it.
    call: &'static str,
    /// A parameter, with `$key` and `$value` in it.
    param: &'static str,
    /// The tags that end a parameter and a call.
    param_close: &'static str,
    call_close: &'static str,
}

impl Tagged {
    fn param(&self, key: &str, value: &str) -> String {
        self.param.replace("$key", key).replace("$value", value)
    }

    fn call(&self, name: &str, params: &[(String, String)]) -> String {
        let params: String = params.iter().map(|(key, value)| self.param(key, value)).collect();
        self.call.replace("$name", name).replace("$params", &params)
    }

    fn calls(&self, calls: &[(String, Vec<(String, String)>)]) -> String {
        let calls: String = calls.iter().map(|(name, params)| self.call(name, params)).collect();
        format!("{}{calls}{}", self.block.0, self.block.1)
    }

    /// Extracts its tags from its templates.
    fn tags(&self) -> Vec<String> {
        let text = format!("{}{}{}{}", self.block.0, self.call, self.param, self.block.1);
        let text = text.replace("$params", "").replace("$value", "");
        let text = text.replace("$name", "f").replace("$key", "k");
        let start = if text.starts_with(PREFIX) { PREFIX } else { "<" };
        let starts: Vec<_> = text.match_indices(start).map(|(at, _)| at).collect();
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        let tags = starts.iter().zip(ends).map(|(from, to)| text[*from..to].trim_end().to_owned());
        tags.collect()
    }
}

/// Precedes every tag of MiniMax M3.
const PREFIX: &str = "]<]minimax[>[";

const INVOKE: Tagged = Tagged {
    name: "",
    block: ("", ""),
    call: "<invoke name=\"$name\">\n$params</invoke>\n",
    param: "<parameter name=\"$key\">$value</parameter>\n",
    param_close: "</parameter>",
    call_close: "</invoke>",
};

const DSML: Tagged = Tagged {
    call: "<｜DSML｜invoke name=\"$name\">\n$params</｜DSML｜invoke>\n",
    param: "<｜DSML｜parameter name=\"$key\" string=\"true\">$value</｜DSML｜parameter>\n",
    param_close: "</｜DSML｜parameter>",
    call_close: "</｜DSML｜invoke>",
    ..INVOKE
};

const FUNCTION: Tagged = Tagged {
    name: "",
    block: ("", ""),
    call: "<tool_call>\n<function=$name>\n$params</function>\n</tool_call>\n",
    param: "<parameter=$key>\n$value\n</parameter>\n",
    param_close: "</parameter>",
    call_close: "</function>",
};

const ARG: Tagged = Tagged {
    name: "",
    block: ("", ""),
    call: "<tool_call>$name\n$params</tool_call>\n",
    param: "<arg_key>$key</arg_key>\n<arg_value>$value</arg_value>\n",
    param_close: "</arg_value>",
    call_close: "</tool_call>",
};

const FORMATS: &[Tagged] = &[
    Tagged { name: "qwen3_coder", ..FUNCTION },
    Tagged {
        name: "seed_oss",
        call: "<seed:tool_call>\n<function=$name>\n$params</function>\n</seed:tool_call>\n",
        ..FUNCTION
    },
    Tagged { name: "claude_xml", block: ("<function_calls>\n", "</function_calls>"), ..INVOKE },
    Tagged {
        name: "minimax_m2",
        block: ("<minimax:tool_call>\n", "</minimax:tool_call>"),
        ..INVOKE
    },
    Tagged { name: "dots", block: ("<dots_function_call>\n", "</dots_function_call>"), ..INVOKE },
    Tagged {
        name: "deepseek_v32",
        block: ("<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>"),
        ..DSML
    },
    Tagged {
        name: "deepseek_v4",
        block: ("<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>"),
        ..DSML
    },
    Tagged {
        name: "step3",
        block: ("<｜tool_calls_begin｜>\n", "<｜tool_calls_end｜>"),
        call: "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"$name\">$params</steptml:invoke><｜tool_call_end｜>\n",
        param: "<steptml:parameter name=\"$key\">$value</steptml:parameter>",
        param_close: "</steptml:parameter>",
        call_close: "</steptml:invoke>",
    },
    Tagged {
        name: "minicpm5",
        call: "<function name=\"$name\">$params</function>\n",
        param: "<param name=\"$key\">$value</param>",
        param_close: "</param>",
        call_close: "</function>",
        ..INVOKE
    },
    Tagged { name: "glm45", ..ARG },
    Tagged {
        name: "glm47",
        call: "<tool_call>$name$params</tool_call>",
        param: "<arg_key>$key</arg_key><arg_value>$value</arg_value>",
        ..ARG
    },
    Tagged {
        name: "hy_v3",
        block: ("<tool_calls>\n", "</tool_calls>"),
        call: "<tool_call>$name<tool_sep>\n$params</tool_call>\n",
        ..ARG
    },
    Tagged {
        name: "kimi_k3",
        block: ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
        call: "<|open|>call tool=\"$name\" index=\"1\"<|sep|>$params<|close|>call<|sep|>",
        param: "<|open|>argument key=\"$key\" type=\"string\"<|sep|>$value<|close|>argument<|sep|>",
        param_close: "<|close|>argument<|sep|>",
        call_close: "<|close|>call<|sep|>",
    },
    Tagged {
        name: "minimax_m3",
        block: ("]<]minimax[>[<tool_call>\n", "]<]minimax[>[</tool_call>"),
        call: "]<]minimax[>[<invoke name=\"$name\">$params]<]minimax[>[</invoke>\n",
        param: "]<]minimax[>[<$key>$value]<]minimax[>[</$key>",
        param_close: "]<]minimax[>[</k>",
        call_close: "]<]minimax[>[</invoke>",
    },
    Tagged {
        name: "muse",
        block: (" to=f<|message|><atem:function_calls>\n", "</atem:function_calls><|eom|>"),
        call: "<atem:invoke name=\"$name\">\n$params</atem:invoke>\n",
        param: "<atem:parameter name=\"$key\">$value</atem:parameter>\n",
        param_close: "</atem:parameter>",
        call_close: "</atem:invoke>",
    },
];

/// Parses an input in pieces of these sizes: the calls with their arguments, all text, and the errors.
fn read(name: &str, input: &str, sizes: &[usize]) -> (Vec<(String, Value, bool)>, String, String) {
    read_with(name, &tools(), input, sizes)
}

/// Like [`read`], with other tools.
fn read_with(
    name: &str,
    tools: &Tools,
    input: &str,
    sizes: &[usize],
) -> (Vec<(String, Value, bool)>, String, String) {
    let dialect = Dialect::new(Format::named(name).unwrap(), &Options::default(), tools);
    let (mut parser, mut events) = (Parser::new(&dialect), Collector::default());
    let (mut rest, mut sizes) = (input.as_bytes(), sizes.iter().cycle());
    while !rest.is_empty() {
        let (piece, more) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
        parser.push(piece, &mut events);
        rest = more;
    }
    parser.finish(&mut events);
    let (mut calls, mut said, mut errors) = (Vec::new(), String::new(), String::new());
    for event in events.into_events(false) {
        match event.kind {
            Kind::ToolStart { name, .. } => calls.push((name, Value::Null, false)),
            Kind::ToolArgs { text, .. } => {
                calls.last_mut().unwrap().1 = serde_json::from_str(&text).unwrap_or(text.into());
            }
            Kind::ToolEnd { complete, .. } => calls.last_mut().unwrap().2 = complete,
            Kind::Text { text } => said.push_str(&text),
            other => errors.push_str(&format!("{other:?} ")),
        }
    }
    (calls, said, errors)
}

/// All parameters of the tool are text.
fn tools() -> Tools {
    let schema = json!({ "additionalProperties": { "type": "string" } });
    Tools::from_json(&json!([{ "name": "write", "parameters": schema }])).unwrap()
}

/// Generates a value that is a text about calls: tags of all formats, words, and whole calls. A close tag of
/// the format's own parameters is followed by a word, since it would be ambiguous otherwise.
fn value(own: &'static Tagged) -> impl Strategy<Value = String> {
    let mut tags: Vec<String> = FORMATS.iter().flat_map(Tagged::tags).collect();
    for json in ["<tool_call>{\"name\":\"f\"}</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "]]>"]
    {
        tags.push(json.to_owned());
    }
    tags.sort();
    tags.dedup();
    let param_open = own.param("k", "\0");
    let param_open = param_open[..=param_open.find('k').unwrap()].to_owned();
    let tags: Vec<String> = tags
        .into_iter()
        // A parameter that is opened and not closed would be ambiguous.
        .filter(|tag| !tag.starts_with(&param_open) && !tag.ends_with("<|eom|>"))
        .map(|tag| if tag == own.param_close { format!("{tag} is its end") } else { tag })
        .collect();
    let example = own.calls(&[
        ("f".to_owned(), vec![("k".to_owned(), "v".to_owned()), ("l".to_owned(), "w".to_owned())]),
        ("g".to_owned(), vec![]),
        ("f".to_owned(), vec![("k".to_owned(), "v".to_owned())]),
    ]);
    let example = example.replace("<|eom|>", "");
    let word = prop::sample::select(vec![
        "a", " ", "\n", "<", "</", "b < c", "```\n", "\n\n  ", "\"", "é", "{", "&lt;", "x>y",
    ]);
    let piece = prop_oneof![
        3 => prop::sample::select(tags),
        3 => word.prop_map(str::to_owned),
        1 => Just(format!("\n```\n{example}\n```\n")),
        1 => Just(format!("{}\n{}", own.call_close, own.block.1.replace("<|eom|>", ""))),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| format!("s{}e", pieces.concat()))
}

fn arguments(own: &'static Tagged) -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(value(own), 1..4).prop_map(|values| {
        values.into_iter().enumerate().map(|(at, value)| (format!("k{at}"), value)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn values_arrive_byte_for_byte(
        seed in FORMATS.iter().map(arguments).collect::<Vec<_>>(),
        more in FORMATS.iter().map(arguments).collect::<Vec<_>>(),
        sizes in prop::collection::vec(1usize..60, 1..6),
    ) {
        for (own, (first, second)) in FORMATS.iter().zip(seed.into_iter().zip(more)) {
            let calls = [("write".to_owned(), first), ("write".to_owned(), second)];
            let input = own.calls(&calls);
            let want: Vec<_> = calls
                .iter()
                .map(|(name, params)| {
                    let args: Map<_, _> =
                        params.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
                    (name.clone(), Value::Object(args), true)
                })
                .collect();
            for sizes in [sizes.as_slice(), &[1], &[usize::MAX]] {
                let (got, said, errors) = read(own.name, &input, sizes);
                prop_assert_eq!(&got, &want, "{}: {}", own.name, input);
                prop_assert_eq!(said.trim(), "", "{}: {}", own.name, input);
                prop_assert_eq!(errors, "", "{}: {}", own.name, input);
            }
        }
    }
}

/// Parses a call whose only value is `value`, and then `rest`, chunked in several ways.
#[track_caller]
fn check(own: &Tagged, value: &str, rest: &str, want: &[&str]) {
    let call = own.call.replace("$name", "write");
    let (head, _) = call.split_once("$params").unwrap();
    let (start, _) = own.param.split_once("$value").unwrap();
    let input = format!("{}{head}{}{value}{rest}", own.block.0, start.replace("$key", "k"));
    let want: Vec<_> =
        want.iter().map(|value| ("write".to_owned(), json!({ "k": value }), true)).collect();
    let sizes = if input.len() > 4096 { [999, 4096, input.len()] } else { [1, 7, input.len()] };
    for size in sizes {
        let (calls, said, errors) = read(own.name, &input, &[size]);
        assert_eq!(calls, want, "{} by {size}: {input}", own.name);
        assert_eq!((said.trim(), errors.as_str()), ("", ""), "{} by {size}: {input}", own.name);
    }
}

/// Returns what follows a value: all of it, and without the tag that ends the value.
fn ends(own: &Tagged) -> (String, String) {
    let call = own.call("write", &[("k".to_owned(), "\0".to_owned())]);
    let (_, end) = call.split_once('\0').unwrap();
    let end = format!("{}{}", end.trim_end(), own.block.1);
    let lacks = end[end.find(own.call_close).unwrap()..].to_owned();
    (end, lacks)
}

/// Returns values that mention the open tag of a parameter inside a line, after what may be the end of the call. A key and
/// a value in separate elements are more than a mention.
fn mentions(own: &Tagged, foreign: &str) -> Vec<String> {
    let (open, _) = own.param.split_once("$value").unwrap();
    if open.contains("<arg_key>") {
        return Vec::new();
    }
    let open = open.replace("$key", "x");
    let open = open.trim_end();
    vec![
        format!("see\n{foreign}\nand {open} too"),
        format!("see\n{foreign}\nand {open} or {open} too"),
        format!("see {foreign} and {open}\ntoo"),
        format!("a\n{foreign}\n{} b {open} c", own.call("f", &[])),
    ]
}

#[test]
fn values_that_continue_after_a_close_tag() {
    for own in FORMATS {
        let (end, lacks) = ends(own);
        // The end of a message after that of a call leaves no doubt.
        let foreign = lacks.replace("<|eom|>", "");
        let some = [("x".to_owned(), "y".to_owned())];
        for value in [
            format!("text with {foreign} and more"),
            format!("text with\n{foreign}\nand more"),
            format!("\n{foreign}"),
            foreign.clone(),
            format!("{} and {} and {}", own.param_close, own.call_close, own.block.1)
                .replace("<|eom|>", ""),
            format!("a\n{foreign}\n{}", own.call("f", &[])),
            format!("a\n{}\n{foreign}\nb", own.call("f", &some)),
            format!("```\n{}\n```", own.calls(&[("f".to_owned(), some.to_vec())]))
                .replace("<|eom|>", ""),
            "the tokens <|eom|><|start|> and <|im_end|>".to_owned(),
            format!("{} is not closed", own.call.split_once("$params").unwrap().0),
            "a\n".repeat(40_000) + &foreign + &"b\n".repeat(40_000),
        ]
        .into_iter()
        .chain(mentions(own, &foreign))
        {
            check(own, &value, &end, &[&value]);
        }
    }
}

/// A value that has all the tags in a row that end it is cut there, as nothing can tell. What comes then is text, up to the tags
/// that were meant to end the value, where it is reported.
#[test]
fn values_with_their_own_end() {
    for own in FORMATS {
        let end = format!("{}{}{}", own.param_close, own.call_close, own.block.1);
        let value = format!("a\n{end}\nb\n");
        let input = own.calls(&[("f".to_owned(), vec![("k".to_owned(), value)])]);
        for size in [1, 3, input.len()] {
            let (calls, said, errors) = read(own.name, &input, &[size]);
            assert_eq!(calls.len(), 1, "{} by {size}: {input}", own.name);
            // Behind the token that ends a message is no text.
            assert!(said.contains('b') || end.contains("<|eom|>"), "{}: {said:?}", own.name);
            assert_ne!(errors, "", "{} by {size}: {input}", own.name);
        }
    }
}

/// Puts blanks around names and `=` in the tags of a template; tokens do not allow them.
fn loosen(template: &str) -> String {
    let mut loose = String::new();
    for next in template.chars() {
        let named = loose.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '"');
        match next {
            '=' => loose.push_str(" = "),
            '>' if named => loose.push_str(" >"),
            _ => loose.push(next),
        }
    }
    loose
}

#[test]
fn blanks_in_tags() {
    for own in FORMATS {
        let template = own.call.replace("$params", own.param).replace("$key", "k");
        let template = template.replace("$value", "a = b > c").replace("$name", "write");
        // The value itself is unchanged.
        let loose = loosen(&template).replace("a  =  b > c", "a = b > c");
        let input = format!("{}{loose}{loose}{}", loosen(own.block.0), loosen(own.block.1));
        let input = input.replace(" to = f<|message|>", " to=f<|message|>");
        let one = ("write".to_owned(), json!({ "k": "a = b > c" }), true);
        for size in [1, 3, input.len()] {
            let (calls, said, errors) = read(own.name, &input, &[size]);
            assert_eq!(calls, [one.clone(), one.clone()], "{} by {size}: {input}", own.name);
            assert_eq!((said.trim(), errors.as_str()), ("", ""), "{} by {size}: {input}", own.name);
        }
    }
}

#[test]
fn values_without_their_close_tag() {
    for own in FORMATS {
        let (_, lacks) = ends(own);
        let feed = if own.param.contains("\n$value") { "" } else { "\n" };
        let value = format!("abc{feed}");
        // The end of the stream proves it, even if the tags are not on their own lines.
        check(own, "abc\n", &lacks, &[&value]);
        check(own, "abc", &lacks, &["abc"]);
        // Other calls follow.
        let close = lacks.strip_suffix(own.block.1).unwrap();
        let call = |value: &str| own.call("write", &[("k".to_owned(), value.to_owned())]);
        let rest = format!("{close}\n{}{}{}", call("d"), call("e"), own.block.1);
        check(own, "abc\n", &rest, &[&value, "d", "e"]);
        let rest = format!("{close}\n{}{}", call(&"long ".repeat(40_000)), own.block.1);
        check(own, "abc\n", &rest, &[&value, &"long ".repeat(40_000)]);
    }
}

/// Parses an input chunked in several ways: calls of `write` with these arguments, and some text.
#[track_caller]
fn check_input(own: &Tagged, tools: &Tools, input: &str, want: &[Value], text: &str) {
    let want: Vec<_> = want.iter().map(|args| ("write".to_owned(), args.clone(), true)).collect();
    for size in [1, 7, input.len()] {
        let (calls, said, errors) = read_with(own.name, tools, input, &[size]);
        assert_eq!(calls, want, "{} by {size}: {input}", own.name);
        assert_eq!(said.trim(), text, "{} by {size}: {input}", own.name);
        // Where elements are nested, an unclosed one is reported.
        let named = own.name == "minimax_m3" && errors.contains("not closed");
        assert!(errors.is_empty() || named, "{} by {size}: {input}: {errors}", own.name);
    }
}

/// Two parameters, and no others.
fn closed_tools() -> Tools {
    let text = json!({ "type": "string" });
    let schema = json!({ "properties": { "k": text, "other": text } });
    Tools::from_json(&json!([{ "name": "write", "parameters": schema }])).unwrap()
}

impl Tagged {
    /// Returns a call up to its first value, and what follows the last: all of it, and without what ends the
    /// value.
    fn around(&self) -> (String, String, String) {
        let call = self.call("write", &[("k".to_owned(), "\0".to_owned())]);
        let (head, _) = call.split_once('\0').unwrap();
        let (end, lacks) = ends(self);
        (format!("{}{head}", self.block.0), end, lacks)
    }

    /// Returns the beginning of a parameter.
    fn opener(&self, key: &str) -> String {
        self.param.split_once("$value").unwrap().0.replace("$key", key)
    }
}

#[test]
fn openers_that_are_text() {
    for own in FORMATS {
        let (head, end, lacks) = own.around();
        let foreign = lacks.replace("<|eom|>", "");
        let torn = own.param.split_once("$key").unwrap().0;
        let undeclared = own.opener("undeclared");
        let closed = own.param("undeclared", "x");
        let mut values = vec![
            format!("see\n{torn}\nmore"),
            format!("see {torn} more"),
            format!("see\n{undeclared}more"),
            format!("see\n{closed}\nmore"),
            format!("see\n{closed}{closed}\nmore"),
        ];
        // What ends a call beside it, and nothing that closes the mention.
        let mentions = [
            format!("see\n{undeclared}more\n{foreign}"),
            format!("see\n{foreign}\n{undeclared}more"),
            format!("{foreign}\n{undeclared}more"),
            format!("see\n{foreign}\nand {undeclared} more"),
            format!("see\n{undeclared}more\n{foreign}\nand\n{undeclared}more"),
        ];
        for value in mentions {
            let want = json!({ "k": value });
            let input = format!("{head}{value}{end}");
            check_input(own, &closed_tools(), &input, std::slice::from_ref(&want), "");
            let two = format!("{input}{head}b{end}");
            check_input(own, &closed_tools(), &two, &[want, json!({ "k": "b" })], "");
        }
        // With elements of the same name it is ambiguous which one is closed.
        if own.name != "minimax_m3" {
            values.push(format!("see\n{}more", own.opener("k")));
        }
        for value in values {
            let other = own.param("other", "x");
            let want = json!({ "k": value });
            check_input(own, &closed_tools(), &format!("{head}{value}{end}"), &[want], "");
            let close = end.find(own.call_close).unwrap();
            let input = format!("{head}{value}{}{other}{}", &end[..close], &end[close..]);
            let want = json!({ "k": value, "other": "x" });
            check_input(own, &closed_tools(), &input, &[want], "");
        }
    }
}

#[test]
fn close_tags_that_are_left_out() {
    for own in FORMATS {
        let (head, end, lacks) = own.around();
        let tools = closed_tools();
        let feed = if own.param.contains("\n$value") { "" } else { "\n" };
        let abc = format!("abc{feed}");
        let other = own.param("other", "x");
        // The next parameter shows that the value is over, on its own line, or if it is complete.
        let want = json!({ "k": abc, "other": "x" });
        for tools in [&tools, &self::tools()] {
            check_input(own, tools, &format!("{head}abc\n{other}{lacks}"), from_ref(&want), "");
        }
        if own.param.contains("</arg_key>") {
            let want = json!({ "k": "abc", "other": "x" });
            check_input(own, &tools, &format!("{head}abc{other}{lacks}"), from_ref(&want), "");
            let torn = head.replace("</arg_key>", "");
            let (_, rest) = end.split_once(own.param_close).unwrap();
            let input = format!("{torn}abc{}{other}{rest}", own.param_close);
            check_input(own, &tools, &input, &[want], "");
        }
        // The next call follows, and only the value was closed; or there was not even a value.
        let next = own.call("write", &[("k".to_owned(), "d".to_owned())]);
        let close = end.find(own.call_close).unwrap();
        let input = format!("{head}abc{}\n{next}{}", &end[..close], own.block.1);
        check_input(own, &tools, &input, &[json!({ "k": "abc" }), json!({ "k": "d" })], "");
        let bare = own.call.split_once("$params").unwrap().0.replace("$name", "write");
        let input = format!("{}{bare}{next}{}", own.block.0, own.block.1);
        check_input(own, &tools, &input, &[json!({}), json!({ "k": "d" })], "");
        // Only the block is closed, and an answer or another block follows.
        let outer = lacks.strip_prefix(own.call_close).unwrap().trim_start();
        let outer = outer.strip_suffix("<|eom|>").unwrap_or(outer);
        if outer.is_empty() {
            continue;
        }
        let want = json!({ "k": abc });
        check_input(own, &tools, &format!("{head}abc\n{outer}"), from_ref(&want), "");
        if own.name == "muse" {
            continue;
        }
        let input = format!("{head}abc\n{outer}\nDone.");
        check_input(own, &tools, &input, from_ref(&want), "Done.");
        let next = own.calls(&[("write".to_owned(), vec![("k".to_owned(), "d".to_owned())])]);
        let input = format!("{head}abc\n{outer}\n{next}");
        check_input(own, &tools, &input, &[want, json!({ "k": "d" })], "");
        let input = format!("{head}abc{}\n{outer}\nDone.", own.call_close);
        check_input(own, &tools, &input, &[json!({ "k": "abc" })], "Done.");
    }
}

#[test]
fn line_feeds_in_tags() {
    for own in FORMATS.iter().filter(|own| own.param.starts_with("<parameter")) {
        let (head, end, _) = own.around();
        let head = match own.call.contains("<function=") {
            true => head.replace("=write>", "=\nwrite\n>").replace("=k>", "=\nk\n>"),
            false => head.replace(" name", "\nname").replace("\">", "\"\n>"),
        };
        check_input(own, &closed_tools(), &format!("{head}abc{end}"), &[json!({ "k": "abc" })], "");
    }
}

#[test]
fn arrays_that_are_too_long_to_be_held() {
    let schema = json!({ "properties": { "k": { "type": "array" } } });
    let tools = Tools::from_json(&json!([{ "name": "write", "parameters": schema }])).unwrap();
    let rows = format!("[{}1]", "[1,\"a\"],".repeat(stream::dialect::HELD_BYTES_MAX / 8));
    let texts = ["minimax_m3", "deepseek_v32", "deepseek_v4", "kimi_k3"];
    for own in FORMATS.iter().filter(|own| !texts.contains(&own.name)) {
        let (head, end, _) = own.around();
        let want = json!({ "k": serde_json::from_str::<Value>(&rows).unwrap() });
        for size in [4096, usize::MAX] {
            let (calls, _, errors) =
                read_with(own.name, &tools, &format!("{head}{rows}{end}"), &[size]);
            assert!(calls[0].1 == want && errors.is_empty(), "{}: {errors}", own.name);
            // Text that turns out not to be JSON at its end has already been emitted, which is reported.
            let (calls, _, errors) =
                read_with(own.name, &tools, &format!("{head}{rows} nonsense{end}"), &[size]);
            assert!(calls[0].1.is_string() && errors.contains("invalid_json"), "{}", own.name);
            let input = format!("{head}{rows} nonsense{end}");
            let shown = crate::short::read(
                own.name,
                &Options::default(),
                &tools,
                &input,
                input.len().min(size),
            );
            assert!(shown.contains("…⟩"), "{}: the call is not whole", own.name);
        }
    }
}
