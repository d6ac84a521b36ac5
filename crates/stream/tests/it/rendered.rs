//! Calls rendered as a model of each dialect writes them parse back to the originals: render, chunk, parse.
//!
//! The renderers know nothing of the parser's tables; they define what the formats look like.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stream::canonical::{Canonical, Collector, Kind};
use stream::dialect::{Dialect, Format, Options, Parser, Tools};

/// A name and arguments.
type Call = (String, Map<String, Value>);

/// What is rendered: text, then calls, then text.
#[derive(Clone, Debug)]
struct Turn {
    before: String,
    calls: Vec<Call>,
    after: String,
}

/// How a dialect writes calls.
struct Dialects {
    names: &'static [&'static str],
    /// Renders all calls of a turn.
    render: fn(&[Call]) -> String,
    /// Whether text may surround the calls.
    prose: bool,
    /// Whether values other than strings keep their type without a schema.
    exact: bool,
}

fn each(calls: &[Call], one: impl Fn(usize, &str, &Map<String, Value>) -> String) -> String {
    calls.iter().enumerate().map(|(at, (name, args))| one(at, name, args)).collect()
}

fn object(name: &str, args: &Map<String, Value>) -> Value {
    json!({ "name": name, "arguments": args })
}

fn array(calls: &[Call]) -> String {
    Value::from_iter(calls.iter().map(|(name, args)| object(name, args))).to_string()
}

/// Renders a value as raw text between tags: strings verbatim, everything else as JSON.
fn raw(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn invokes(calls: &[Call], prefix: &str, typed: bool) -> String {
    each(calls, |_, name, args| {
        let parameters: String = args
            .iter()
            .map(|(key, value)| {
                let kind = if typed {
                    format!(" string=\"{}\"", value.is_string())
                } else {
                    String::new()
                };
                format!(
                    "<{prefix}parameter name=\"{key}\"{kind}>{}</{prefix}parameter>\n",
                    raw(value)
                )
            })
            .collect();
        format!("<{prefix}invoke name=\"{name}\">\n{parameters}</{prefix}invoke>\n")
    })
}

fn functions(calls: &[Call], tag: &str) -> String {
    each(calls, |_, name, args| {
        let parameters: String = args
            .iter()
            .map(|(key, value)| format!("<parameter={key}>\n{}\n</parameter>\n", raw(value)))
            .collect();
        format!("<{tag}>\n<function={name}>\n{parameters}</function>\n</{tag}>")
    })
}

fn pairs(args: &Map<String, Value>, newline: &str) -> String {
    args.iter()
        .map(|(key, value)| {
            format!(
                "<arg_key>{key}</arg_key>{newline}<arg_value>{}</arg_value>{newline}",
                raw(value)
            )
        })
        .collect()
}

/// Renders a Python literal.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => {
            format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let items: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", python(&json!(key)), python(value)))
                .collect();
            format!("{{{}}}", items.join(", "))
        }
        number => number.to_string(),
    }
}

fn python_call(name: &str, args: &Map<String, Value>) -> String {
    let args: Vec<_> = args.iter().map(|(key, value)| format!("{key}={}", python(value))).collect();
    format!("{name}({})", args.join(", "))
}

fn python_list(calls: &[Call]) -> String {
    let calls: Vec<_> = calls.iter().map(|(name, args)| python_call(name, args)).collect();
    format!("[{}]", calls.join(", "))
}

/// Renders a value as Gemma does.
fn gemma(value: &Value, quote: &str) -> String {
    match value {
        Value::String(text) => format!("{quote}{text}{quote}"),
        Value::Array(items) => {
            format!(
                "[{}]",
                items.iter().map(|item| gemma(item, quote)).collect::<Vec<_>>().join(",")
            )
        }
        Value::Object(map) => {
            let items: Vec<_> =
                map.iter().map(|(key, value)| format!("{key}:{}", gemma(value, quote))).collect();
            format!("{{{}}}", items.join(","))
        }
        other => other.to_string(),
    }
}

/// Renders a value as elements.
fn elements(key: &str, value: &Value) -> String {
    const NS: &str = "]<]minimax[>[";
    let inner: String = match value {
        Value::Array(items) => items.iter().map(|item| elements("item", item)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| elements(key, value)).collect(),
        other => raw(other),
    };
    format!("{NS}<{key}>{inner}{NS}</{key}>")
}

const DIALECTS: &[Dialects] = &[
    Dialects {
        names: &["hermes", "granite4", "ernie45"],
        render: |calls| {
            each(calls, |_, name, args| {
                format!("<tool_call>\n{}\n</tool_call>", object(name, args))
            })
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["longcat"],
        render: |calls| {
            each(calls, |_, name, args| {
                format!("<longcat_tool_call>{}</longcat_tool_call>", object(name, args))
            })
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["granite_20b_fc"],
        render: |calls| {
            each(calls, |_, name, args| format!("<function_call> {}", object(name, args)))
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["dots"],
        render: |calls| {
            each(calls, |_, name, args| {
                format!("<dots_function_call>\n{}\n</dots_function_call>", object(name, args))
            })
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["llama3_json"],
        render: |calls| {
            let calls: Vec<_> = calls
                .iter()
                .map(|(name, args)| json!({ "name": name, "parameters": args }).to_string())
                .collect();
            format!("<|python_tag|>{}<|eom_id|>", calls.join("; "))
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["mistral", "xlam"],
        render: |calls| format!("[TOOL_CALLS] {}", array(calls)),
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["mistral_v11", "mistral"],
        render: |calls| {
            each(calls, |_, name, args| {
                format!("[TOOL_CALLS]{name}[ARGS]{}", Value::from(args.clone()))
            })
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["granite"],
        render: |calls| format!("<|tool_call|>{}", array(calls)),
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["jamba", "hunyuan_a13b"],
        render: |calls| format!("<tool_calls>{}</tool_calls>", array(calls)),
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["phi4_mini"],
        render: |calls| format!("functools{}", array(calls)),
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["command_a"],
        render: |calls| {
            let calls =
                calls.iter().map(|(name, args)| json!({ "tool_name": name, "parameters": args }));
            format!("<|START_ACTION|>{}<|END_ACTION|>", Value::from_iter(calls))
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["apertus"],
        render: |calls| {
            let calls = calls.iter().map(|(name, args)| json!({ (name): args }));
            format!("<|tools_prefix|>{}<|tools_suffix|>", Value::from_iter(calls))
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["internlm2"],
        render: |calls| {
            each(calls, |_, name, args| {
                let call = json!({ "name": name, "parameters": args });
                format!("<|action_start|><|plugin|>\n{call}<|action_end|>")
            })
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["inkling"],
        render: |calls| {
            each(calls, |_, name, args| {
                let call = json!({ "name": name, "args": args });
                format!("<|message_model|>{name}<|content_invoke_tool_json|>{call}<|end_message|>")
            })
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["gigachat3"],
        render: |calls| {
            each(calls, |_, name, args| format!("<|function_call|>{}", object(name, args)))
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["json_fence", "xlam", "auto"],
        render: |calls| {
            each(calls, |_, name, args| format!("\n```json\n{}\n```\n", object(name, args)))
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["toolcall_v2", "auto"],
        render: |calls| {
            each(calls, |_, name, args| json!({ "ToolCall_V2": object(name, args) }).to_string())
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["legacy", "legacy_json", "auto", "llama3_json"],
        render: |calls| {
            each(calls, |_, name, args| json!({ "name": name, "parameters": args }).to_string())
        },
        prose: false,
        exact: true,
    },
    Dialects {
        names: &["legacy", "legacy_json", "auto"],
        render: |calls| {
            each(calls, |_, name, args| {
                let args = Value::from(args.clone()).to_string();
                json!({ "role": "assistant", "function_call": { "name": name, "arguments": args } })
                    .to_string()
            })
        },
        prose: false,
        exact: true,
    },
    Dialects { names: &["xlam", "legacy", "auto"], render: array, prose: false, exact: true },
    Dialects {
        names: &["deepseek_v3", "deepseek_v31"],
        render: |calls| {
            let calls = each(calls, |_, name, args| {
                let args = Value::from(args.clone());
                format!(
                    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{args}\n```<｜tool▁call▁end｜>\n"
                )
            });
            format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>")
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["deepseek_v31", "deepseek_v3"],
        render: |calls| {
            let calls = each(calls, |_, name, args| {
                let args = Value::from(args.clone());
                format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{args}<｜tool▁call▁end｜>")
            });
            format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>")
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["kimi_k2"],
        render: |calls| {
            let calls = each(calls, |at, name, args| {
                let args = Value::from(args.clone());
                format!(
                    "<|tool_call_begin|>functions.{name}:{at}<|tool_call_argument_begin|>{args}<|tool_call_end|>"
                )
            });
            format!("<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>")
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["harmony"],
        render: |calls| {
            let calls = each(calls, |at, name, args| {
                let start = if at == 0 { "" } else { "<|start|>assistant" };
                let args = Value::from(args.clone());
                format!(
                    "{start}<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{args}<|call|>"
                )
            });
            format!("<|channel|>analysis<|message|>hm<|end|><|start|>assistant{calls}")
        },
        prose: false,
        exact: true,
    },
    Dialects {
        names: &["react"],
        render: |calls| {
            each(calls, |_, name, args| {
                format!("Action: {name}\nAction Input: {}\n", Value::from(args.clone()))
            })
        },
        prose: false,
        exact: true,
    },
    Dialects {
        names: &["qwen3_coder"],
        render: |calls| functions(calls, "tool_call"),
        prose: true,
        exact: false,
    },
    Dialects {
        names: &["seed_oss"],
        render: |calls| functions(calls, "seed:tool_call"),
        prose: true,
        exact: false,
    },
    Dialects {
        names: &["claude_xml"],
        render: |calls| format!("<function_calls>\n{}</function_calls>", invokes(calls, "", false)),
        prose: true,
        exact: false,
    },
    Dialects {
        names: &["minimax_m2"],
        render: |calls| {
            format!("<minimax:tool_call>\n{}</minimax:tool_call>", invokes(calls, "", false))
        },
        prose: true,
        exact: false,
    },
    Dialects {
        names: &["dots"],
        render: |calls| {
            format!("<dots_function_call>\n{}</dots_function_call>", invokes(calls, "", false))
        },
        prose: true,
        exact: false,
    },
    Dialects {
        names: &["deepseek_v32"],
        render: |calls| {
            let calls = invokes(calls, "｜DSML｜", true);
            format!("<｜DSML｜function_calls>\n{calls}</｜DSML｜function_calls>")
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["deepseek_v4"],
        render: |calls| {
            let calls = invokes(calls, "｜DSML｜", true);
            format!("<｜DSML｜tool_calls>\n{calls}</｜DSML｜tool_calls>")
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["step3"],
        render: |calls| {
            let calls = each(calls, |_, name, args| {
                let one = invokes(&[(name.to_owned(), args.clone())], "steptml:", false);
                format!("<｜tool_call_begin｜>function<｜tool_sep｜>{one}<｜tool_call_end｜>\n")
            });
            format!("<｜tool_calls_begin｜>\n{calls}<｜tool_calls_end｜>")
        },
        prose: true,
        exact: false,
    },
    Dialects {
        names: &["muse"],
        render: |calls| {
            let calls = invokes(calls, "atem:", false);
            format!(" to=f<|message|><atem:function_calls>\n{calls}</atem:function_calls><|eom|>")
        },
        prose: false,
        exact: false,
    },
    Dialects {
        names: &["minicpm5"],
        render: |calls| {
            each(calls, |_, name, args| {
                let parameters: String = args
                    .iter()
                    .map(|(key, value)| match value {
                        Value::String(text) if !text.contains("]]>") => {
                            format!("<param name=\"{key}\"><![CDATA[{text}]]></param>")
                        }
                        value => format!("<param name=\"{key}\">{}</param>", raw(value)),
                    })
                    .collect();
                format!("<function name=\"{name}\">{parameters}</function>")
            })
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["glm45"],
        render: |calls| {
            each(calls, |_, name, args| {
                format!("<tool_call>{name}\n{}</tool_call>", pairs(args, "\n"))
            })
        },
        prose: true,
        exact: false,
    },
    Dialects {
        names: &["glm47"],
        render: |calls| {
            each(calls, |_, name, args| format!("<tool_call>{name}{}</tool_call>", pairs(args, "")))
        },
        prose: true,
        exact: false,
    },
    Dialects {
        names: &["hy_v3"],
        render: |calls| {
            let calls = each(calls, |_, name, args| {
                format!("<tool_call>{name}<tool_sep>\n{}</tool_call>\n", pairs(args, "\n"))
            });
            format!("<tool_calls>\n{calls}</tool_calls>")
        },
        prose: true,
        exact: false,
    },
    Dialects {
        names: &["kimi_k3"],
        render: |calls| {
            let calls = each(calls, |at, name, args| {
                let parameters: String = args
                    .iter()
                    .map(|(key, value)| {
                        let kind = if value.is_string() { "string" } else { "object" };
                        format!("<|open|>argument key=\"{key}\" type=\"{kind}\"<|sep|>{}<|close|>argument<|sep|>", raw(value))
                    })
                    .collect();
                format!(
                    "<|open|>call tool=\"{name}\" index=\"{}\"<|sep|>{parameters}<|close|>call<|sep|>",
                    at + 1
                )
            });
            format!("<|open|>tools<|sep|>{calls}<|close|>tools<|sep|>")
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["minimax_m3"],
        render: |calls| {
            const NS: &str = "]<]minimax[>[";
            let calls = each(calls, |_, name, args| {
                let inner: String = args.iter().map(|(key, value)| elements(key, value)).collect();
                format!("{NS}<invoke name=\"{name}\">{inner}{NS}</invoke>\n")
            });
            format!("{NS}<tool_call>\n{calls}{NS}</tool_call>")
        },
        prose: true,
        exact: false,
    },
    Dialects { names: &["pythonic", "auto"], render: python_list, prose: false, exact: true },
    Dialects {
        names: &["pythonic"],
        render: |calls| format!("<|python_start|>{}<|python_end|>", python_list(calls)),
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["lfm2"],
        render: |calls| format!("<|tool_call_start|>{}<|tool_call_end|>", python_list(calls)),
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["lfm2"],
        render: |calls| format!("<|tool_call_start|>{}<|tool_call_end|>", array(calls)),
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["olmo3"],
        render: |calls| {
            let calls: Vec<_> = calls.iter().map(|(name, args)| python_call(name, args)).collect();
            format!("<function_calls>{}</function_calls>", calls.join("\n"))
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["gemma3"],
        render: |calls| {
            let calls: Vec<_> = calls.iter().map(|(name, args)| python_call(name, args)).collect();
            format!("\n```tool_code\n{}\n```\n", calls.join("\n"))
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["gemma4"],
        render: |calls| {
            each(calls, |_, name, args| {
                let args = gemma(&Value::from(args.clone()), "<|\"|>");
                format!("<|tool_call>call:{name}{args}<tool_call|>")
            })
        },
        prose: true,
        exact: true,
    },
    Dialects {
        names: &["functiongemma"],
        render: |calls| {
            each(calls, |_, name, args| {
                let args = gemma(&Value::from(args.clone()), "<escape>");
                format!("<start_function_call>call:{name}{args}<end_function_call>")
            })
        },
        prose: true,
        exact: true,
    },
];

/// Text that no dialect mistakes for something else.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            Just("a < b "),
            Just("x > y"),
            Just("</p>"),
            Just("\"quoted\" "),
            Just("back\\slash "),
            Just("日本 "),
            Just("🚀"),
            Just("it's "),
            Just("one\ntwo "),
            Just("} ] ) "),
            Just("word "),
            Just("</tool_cal "),
            Just("<parameter "),
            Just("&amp; "),
            Just("\ttab "),
            Just("é"),
        ],
        0..6,
    )
    .prop_map(|parts| format!("s{}e", parts.concat()))
}

fn value(text_only: bool) -> BoxedStrategy<Value> {
    if text_only {
        return text().prop_map(Value::from).boxed();
    }
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-1000i32..1000).prop_map(|n| json!(f64::from(n) / 8.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Value::from),
            proptest::collection::vec(("[a-d]{1,3}", inner), 1..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
    .boxed()
}

fn turn(text_only: bool, prose: bool) -> impl Strategy<Value = Turn> {
    let arguments = proptest::collection::vec(("[a-f]{1,4}", value(text_only)), 0..4);
    let calls = proptest::collection::vec(("[a-z][a-z_]{0,8}", arguments), 1..4);
    let prose = if prose { "(Some text\\. ){0,2}" } else { "" };
    (prose, calls, prose).prop_map(|(before, calls, after)| Turn {
        before,
        calls: calls.into_iter().map(|(name, args)| (name, args.into_iter().collect())).collect(),
        after,
    })
}

fn parse(format: &'static Format, tools: &Tools, input: &str, sizes: &[usize]) -> Vec<Canonical> {
    let dialect = Dialect::new(format, &Options::default(), tools);
    let (mut parser, mut events) = (Parser::new(&dialect), Collector::default());
    let (mut rest, mut sizes) = (input.as_bytes(), sizes.iter().cycle());
    while !rest.is_empty() {
        let (piece, more) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
        parser.push(piece, &mut events);
        rest = more;
    }
    parser.finish(&mut events);
    events.into_events(false)
}

fn check(dialects: &Dialects, turn: &Turn, sizes: &[usize]) -> Result<(), TestCaseError> {
    let input = format!("{}{}{}", turn.before, (dialects.render)(&turn.calls), turn.after);
    for name in dialects.names {
        let format = Format::named(name).unwrap();
        let (mut got, mut text) = (Vec::new(), String::new());
        for event in parse(format, &Tools::default(), &input, sizes) {
            match event.kind {
                Kind::ToolStart { name, .. } => got.push((name, String::new(), false)),
                Kind::ToolArgs { text, .. } => got.last_mut().unwrap().1 = text,
                Kind::ToolEnd { complete, .. } => got.last_mut().unwrap().2 = complete,
                Kind::Text { text: piece } => text.push_str(&piece),
                Kind::Reasoning { .. } => {}
                other => prop_assert!(false, "{name}: {other:?} in {input:?}"),
            }
        }
        let got: Vec<_> = got
            .into_iter()
            .map(|(name, args, complete)| {
                let args =
                    if args.is_empty() { json!({}) } else { serde_json::from_str(&args).unwrap() };
                (name, args, complete)
            })
            .collect();
        let want: Vec<_> =
            turn.calls.iter().map(|(name, args)| (name.clone(), json!(args), true)).collect();
        prop_assert_eq!(got, want, "{}: {:?}", name, input);
        let said = text.split_whitespace().collect::<Vec<_>>();
        let wanted = format!("{}{}", turn.before, turn.after);
        prop_assert_eq!(
            said,
            wanted.split_whitespace().collect::<Vec<_>>(),
            "{}: {:?}",
            name,
            input
        );
    }
    Ok(())
}

#[test]
fn every_dialect_is_rendered() {
    let rendered = |name: &str| DIALECTS.iter().any(|dialects| dialects.names.contains(&name));
    let wire =
        ["openai_chat", "openai_chat_legacy", "openai_responses", "anthropic", "gemini", "plan"];
    for format in Format::all() {
        assert!(rendered(format.name()) || wire.contains(&format.name()), "{}", format.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn rendered_calls_parse_back(
        typed in proptest::collection::vec(turn(false, true), DIALECTS.len()),
        plain in proptest::collection::vec(turn(true, true), DIALECTS.len()),
        bare in proptest::collection::vec(turn(false, false), DIALECTS.len()),
        sizes in proptest::collection::vec(1usize..40, 1..8),
    ) {
        for (at, dialects) in DIALECTS.iter().enumerate() {
            let turn = match (dialects.exact, dialects.prose) {
                (_, false) if dialects.exact => &bare[at],
                (true, _) => &typed[at],
                (false, prose) => {
                    let mut turn = plain[at].clone();
                    if !prose {
                        turn.before.clear();
                        turn.after.clear();
                    }
                    check(dialects, &turn, &sizes)?;
                    continue;
                }
            };
            check(dialects, turn, &sizes)?;
        }
    }
}
