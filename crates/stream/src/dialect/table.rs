//! The format table. A format of a known family is an entry here and its vectors, not code.

use std::sync::Arc;

use crate::dialect::blocks::Plans;
use crate::dialect::code::CodeSpec;
use crate::dialect::detect::{Auto, Scope};
use crate::dialect::ends::{ENDS, Unended};
use crate::dialect::harmony::Harmony;
use crate::dialect::head::{Head, Name};
use crate::dialect::json_calls::{Keys, Shape};
use crate::dialect::legacy::Legacy;
use crate::dialect::muse::Muse;
use crate::dialect::nested::NestedSpec;
use crate::dialect::python;
use crate::dialect::react::React;
use crate::dialect::spec::{Calls, Compiled, Effect, Grammar, Mark, Noise, Place, Section, Spec};
use crate::dialect::tagged::{self, Key, Tags};
use crate::dialect::{Engine, Format, Options, Reader, Tools};
use crate::wire;

pub(crate) static FORMATS: &[Format] = &[
    other("auto", "whatever it turns out to be", |options, tools| {
        Box::new(Auto::new(options, tools, Scope::All))
    }),
    other("openai_chat", "OpenAI Chat Completions", |_, _| Box::new(wire::Chat::default())),
    other("openai_chat_legacy", "OpenAI Chat Completions with function_call", |_, _| {
        Box::new(wire::Chat::default())
    }),
    other("openai_responses", "OpenAI Responses", |_, _| Box::new(wire::Responses::default())),
    other("anthropic", "Anthropic Messages", |_, _| Box::new(wire::Anthropic::default())),
    other("gemini", "Gemini streamGenerateContent", |_, _| Box::new(wire::Gemini::default())),
    other("harmony", "OpenAI Harmony, gpt-oss", |options, _| {
        Box::new(if options.start_in_reasoning { Harmony::in_reasoning() } else { Harmony::new() })
    }),
    text("hermes", "Hermes, Qwen 2.5 and 3, Nemotron, SmolLM3", &HERMES),
    text("qwen3_coder", "Qwen3-Coder, Qwen 3.5 and later, MiMo, Step-3.5", &QWEN3_CODER),
    text("llama3_json", "Llama 3 JSON and python tag", &LLAMA3_JSON),
    text("pythonic", "Python lists of calls, Llama 4", &PYTHONIC),
    text("olmo3", "Olmo 3", &OLMO3),
    text("lfm2", "LFM2", &LFM2),
    text("mistral", "Mistral before v11", &MISTRAL),
    text("mistral_v11", "Mistral v11 and later", &MISTRAL_V11),
    text("deepseek_v3", "DeepSeek V3 and R1", &DEEPSEEK),
    text("deepseek_v31", "DeepSeek V3.1", &DEEPSEEK),
    text("deepseek_v32", "DeepSeek V3.2", &DSML),
    text("deepseek_v4", "DeepSeek V4", &DSML),
    text("kimi_k2", "Kimi K2", &KIMI_K2),
    text("kimi_k3", "Kimi K3", &KIMI_K3),
    text("glm45", "GLM 4.5 and 4.6", &GLM),
    text("glm47", "GLM 4.7 and 5", &GLM),
    text("minimax_m2", "MiniMax M2", &MINIMAX_M2),
    text("minimax_m3", "MiniMax M3", &MINIMAX_M3),
    text("granite", "Granite 3", &GRANITE),
    text("granite_20b_fc", "Granite 20B function calling", &GRANITE_20B),
    text("granite4", "Granite 4", &HERMES),
    text("jamba", "Jamba", &TOOL_CALLS_ARRAY),
    text("command_a", "Command A and R", &COMMAND_A),
    text("phi4_mini", "Phi-4-mini", &PHI4_MINI),
    text("xlam", "xLAM", &XLAM),
    text("internlm2", "InternLM 2, Intern-S1", &INTERNLM2),
    text("gemma3", "Gemma 3", &GEMMA3),
    text("functiongemma", "FunctionGemma", &FUNCTIONGEMMA),
    text("gemma4", "Gemma 4", &GEMMA4),
    text("seed_oss", "Seed-OSS", &SEED_OSS),
    text("step3", "Step-3", &STEP3),
    text("hunyuan_a13b", "Hunyuan A13B", &TOOL_CALLS_ARRAY),
    text("hy_v3", "Hunyuan V3 and V4", &HY_V3),
    text("claude_xml", "Claude-style XML", &CLAUDE_XML),
    other("muse", "Muse", |options, tools| {
        let calls = Arc::new(Compiled::new(&MUSE_CALLS, &Options::default(), tools.clone()));
        match options.start_in_reasoning {
            true => Box::new(Muse::in_reasoning(calls)),
            false => Box::new(Muse::new(calls)),
        }
    }),
    text("dots", "dots.llm", &DOTS),
    text("minicpm5", "MiniCPM5", &MINICPM5),
    text("ernie45", "ERNIE 4.5", &ERNIE45),
    text("longcat", "LongCat", &LONGCAT),
    text("apertus", "Apertus", &APERTUS),
    text("inkling", "Inkling", &INKLING),
    text("gigachat3", "GigaChat 3", &GIGACHAT3),
    text("json_fence", "JSON in a Markdown fence", &JSON_FENCE),
    other("react", "ReAct text", |options, _| {
        let react = if options.start_in_reasoning { React::in_reasoning() } else { React::new() };
        Box::new(Unended::new(react))
    }),
    other("plan", "Proposed plans", |_, _| Box::new(Unended::new(Plans::default()))),
    other("legacy", "older shapes: function_call, flat JSON, ReAct, fences", |options, tools| {
        Box::new(Auto::new(options, tools, Scope::Legacy))
    }),
    other("legacy_json", "JSON documents that are calls, or have them inside", |options, tools| {
        Box::new(Legacy::new(options, tools))
    }),
    text("toolcall_v2", "ToolCall_V2 envelopes", &TOOLCALL_V2),
];

const fn text(name: &'static str, title: &'static str, spec: &'static Spec) -> Format {
    Format { name, title, reader: Reader::Text(spec) }
}

const fn other(
    name: &'static str,
    title: &'static str,
    engine: fn(&Options, &Tools) -> Box<dyn Engine + Send>,
) -> Format {
    Format { name, title, reader: Reader::Other(engine) }
}

pub(crate) const fn mark(text: &'static str, effect: Effect) -> Mark {
    Mark { text, place: Place::Anywhere, effect }
}

const fn markup(text: &'static str) -> Mark {
    mark(text, Effect::Markup)
}

const fn calls(text: &'static str, calls: &'static Calls) -> Mark {
    mark(text, Effect::Calls(calls))
}

/// JSON calls after a marker that only calls have.
const fn json(shape: &'static [Grammar], close: &'static [&'static str]) -> Calls {
    Calls {
        bodies: shape,
        keep: 0,
        close,
        repeats: true,
        loud: true,
        fence: false,
        shows_torn: true,
    }
}

/// Calls inside a section, whose marks end them.
const fn inner(bodies: &'static [Grammar]) -> Calls {
    Calls {
        bodies,
        keep: 0,
        close: &[],
        repeats: false,
        loud: true,
        fence: false,
        shows_torn: false,
    }
}

const THINK: &[(&str, &str)] = &[("<think>", "</think>")];

pub(crate) const PLAIN: Spec = Spec {
    marks: &[],
    reasoning: THINK,
    sections: &[],
    namespaced: false,
    suffix: None,
    ends: &[],
    tokens: &[],
    after_calls: None,
};

// Marker and JSON value.

static HERMES: Spec = Spec {
    marks: &[calls(
        "<tool_call>",
        &json(&[Grammar::Json(Shape::marked("</tool_call>"))], &["</tool_call>"]),
    )],
    ends: &["<|im_end|>", "<|endoftext|>", "<|end_of_text|>"],
    ..PLAIN
};

static LONGCAT: Spec = Spec {
    marks: &[calls(
        "<longcat_tool_call>",
        &json(&[Grammar::Json(Shape::marked("</longcat_tool_call>"))], &["</longcat_tool_call>"]),
    )],
    reasoning: &[("<longcat_think>", "</longcat_think>"), ("<think>", "</think>")],
    ends: &["</longcat_s>", "<|im_end|>"],
    ..PLAIN
};

static ERNIE45: Spec = Spec {
    marks: &[
        calls(
            "<tool_call>",
            &json(&[Grammar::Json(Shape::marked("</tool_call>"))], &["</tool_call>"]),
        ),
        markup("\n\n<response>\n"),
        markup("\n<response>\n"),
        markup("<response>\n"),
        markup("<response>"),
        markup("</response>\n"),
        markup("</response>"),
    ],
    ends: &["</s>", "<|end_of_sentence|>", "<|im_end|>"],
    ..PLAIN
};

static GRANITE: Spec = Spec {
    marks: &[
        calls("<|tool_call|>", &json(&[Grammar::Json(Shape::marked(""))], &["<|end_of_text|>"])),
        calls(
            "<tool_call>",
            &json(
                &[Grammar::Json(Shape::marked("</tool_call>"))],
                &["</tool_call>", "<|end_of_text|>"],
            ),
        ),
    ],
    ends: &["<|end_of_text|>", "<|endoftext|>"],
    ..PLAIN
};

static GRANITE_20B: Spec = Spec {
    marks: &[calls(
        "<function_call>",
        &json(&[Grammar::Json(Shape::marked(""))], &["<|endoftext|>"]),
    )],
    ends: &["<|endoftext|>", "<|end_of_text|>"],
    ..PLAIN
};

static TOOL_CALLS_ARRAY: Spec = Spec {
    marks: &[
        calls(
            "<tool_calls>",
            &Calls {
                shows_torn: false,
                ..json(&[Grammar::Json(Shape::marked("</tool_calls>"))], &["</tool_calls>"])
            },
        ),
        markup("<answer>"),
        markup("</answer>"),
    ],
    ends: &["<|eom|>", "<|endoftext|>", "<|im_end|>", "<|eos|>"],
    ..PLAIN
};

static COMMAND_A: Spec = Spec {
    marks: &[
        calls(
            "<|START_ACTION|>",
            &json(&[Grammar::Json(Shape::marked("<|END_ACTION|>"))], &["<|END_ACTION|>"]),
        ),
        Mark {
            text: "Action: ```json",
            place: Place::LineStart,
            effect: Effect::Calls(&json(&[Grammar::Json(Shape::marked(""))], &["```"])),
        },
        Mark {
            text: "Action:\n```json",
            place: Place::LineStart,
            effect: Effect::Calls(&json(&[Grammar::Json(Shape::marked(""))], &["```"])),
        },
        markup("<|START_RESPONSE|>"),
        markup("<|END_RESPONSE|>"),
        markup("<|START_TEXT|>"),
        markup("<|END_TEXT|>"),
    ],
    reasoning: &[("<|START_THINKING|>", "<|END_THINKING|>")],
    ends: &["<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>"],
    ..PLAIN
};

static PHI4_MINI: Spec = Spec {
    marks: &[calls("functools[{", &FUNCTOOLS_ITEM), calls("functools[]", &FUNCTOOLS_EMPTY)],
    ends: &["<|end|>", "<|endoftext|>"],
    ..PLAIN
};

static FUNCTOOLS_ITEM: Calls = Calls {
    bodies: &[Grammar::Json(Shape { in_array: true, ..Shape::marked("") })],
    keep: 1,
    close: &[],
    repeats: false,
    loud: true,
    fence: false,
    shows_torn: false,
};

static FUNCTOOLS_EMPTY: Calls = Calls { keep: 2, ..json(&[Grammar::Json(Shape::marked(""))], &[]) };

static APERTUS: Spec = Spec {
    marks: &[calls(
        "<|tools_prefix|>",
        &json(
            &[Grammar::Json(Shape { keys: Keys::Tool, ..Shape::marked("<|tools_suffix|>") })],
            &["<|tools_suffix|>"],
        ),
    )],
    reasoning: &[("<|inner_prefix|>", "<|inner_suffix|>"), ("<think>", "</think>")],
    ends: &["<|assistant_end|>", "</s>"],
    ..PLAIN
};

static INTERNLM2: Spec = Spec {
    marks: &[
        calls("<|action_start|><|plugin|>", &PLUGIN),
        calls("<|action_start|> <|plugin|>", &PLUGIN),
        calls("<|action_start|><|interpreter|>", &INTERPRETER),
        calls("<|action_start|> <|interpreter|>", &INTERPRETER),
        markup("<|action_end|>"),
    ],
    ends: &["<|im_end|>", "</s>"],
    tokens: &["<|action_start|>", "<|plugin|>", "<|interpreter|>"],
    ..PLAIN
};

static INTERPRETER: Calls = alone(
    &[Grammar::Code(CodeSpec {
        tool: "python",
        close: &["<|action_end|>"],
        ends_with_stream: false,
    })],
    &["<|action_end|>"],
);

static PLUGIN: Calls = json(&[Grammar::Json(Shape::marked("<|action_end|>"))], &["<|action_end|>"]);

static LLAMA3_JSON: Spec = Spec {
    marks: &[
        Mark {
            text: "{",
            place: Place::MessageStart,
            effect: Effect::Calls(&Calls {
                bodies: &[Grammar::Json(Shape::BARE)],
                keep: 1,
                close: &["<|eom_id|>", "<|eot_id|>"],
                repeats: true,
                loud: false,
                fence: false,
                shows_torn: false,
            }),
        },
        calls(
            "<|python_tag|>",
            &json(
                &[
                    Grammar::Json(Shape::marked("")),
                    Grammar::Python(python::Spec::Builtin),
                    Grammar::Code(CodeSpec {
                        tool: "python",
                        close: &["<|eom_id|>", "<|eot_id|>"],
                        ends_with_stream: true,
                    }),
                ],
                &["<|eom_id|>", "<|eot_id|>"],
            ),
        ),
    ],
    ends: &["<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"],
    ..PLAIN
};

static BARE_ARRAY: Calls = Calls {
    bodies: &[Grammar::Json(Shape::BARE)],
    keep: 1,
    close: &[],
    repeats: false,
    loud: false,
    fence: false,
    shows_torn: false,
};

static XLAM: Spec = Spec {
    marks: &[
        Mark { text: "[", place: Place::MessageStart, effect: Effect::Calls(&BARE_ARRAY) },
        Mark { text: "```", place: Place::LineStart, effect: Effect::Calls(&FENCED) },
        calls(
            "<tool_call>",
            &json(&[Grammar::Json(Shape::marked("</tool_call>"))], &["</tool_call>"]),
        ),
        calls("[TOOL_CALLS]", &json(&[Grammar::Json(Shape::marked(""))], &["</s>"])),
    ],
    ends: &["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "</s>"],
    ..PLAIN
};

static FENCED: Calls = Calls {
    bodies: &[Grammar::Fence(
        &["json", "", "tool_call", "tool_calls"],
        &Grammar::Json(Shape::BARE),
    )],
    keep: 0,
    close: &["```"],
    repeats: true,
    loud: false,
    fence: true,
    shows_torn: true,
};

static JSON_FENCE: Spec = Spec {
    marks: &[Mark { text: "```", place: Place::LineStart, effect: Effect::Calls(&FENCED) }],
    ends: ENDS,
    ..PLAIN
};

pub(crate) static TOOLCALL_V2: Spec = Spec { marks: DOCUMENTS, ends: ENDS, ..PLAIN };

/// Like `TOOLCALL_V2`, without reasoning.
pub(crate) static DOCUMENTS_ONLY: Spec =
    Spec { marks: DOCUMENTS, reasoning: &[], ends: ENDS, ..PLAIN };

/// What begins a document in text: a bracket, and what JSON allows after it. Most brackets in prose and code
/// are followed by something else and are not examined.
pub(crate) const DOCUMENTS: &[Mark] = &[
    calls("{\"", &DOCUMENT_OF_SIGN),
    calls("{ ", &DOCUMENT_OF_SIGN),
    calls("{\n", &DOCUMENT_OF_SIGN),
    calls("{\r", &DOCUMENT_OF_SIGN),
    calls("{\t", &DOCUMENT_OF_SIGN),
    calls("[{", &DOCUMENT_OF_SIGN),
    calls("[[", &DOCUMENT_OF_SIGN),
    calls("[ ", &DOCUMENT_OF_SIGN),
    calls("[\n", &DOCUMENT_OF_SIGN),
    calls("[\r", &DOCUMENT_OF_SIGN),
    calls("[\t", &DOCUMENT_OF_SIGN),
    calls("[\"", &DOCUMENT_OF_SIGN),
    calls("[-", &DOCUMENT_OF_SIGN),
    calls("[0", &DOCUMENT_OF_SIGN),
    calls("[1", &DOCUMENT_OF_SIGN),
    calls("[2", &DOCUMENT_OF_SIGN),
    calls("[3", &DOCUMENT_OF_SIGN),
    calls("[4", &DOCUMENT_OF_SIGN),
    calls("[5", &DOCUMENT_OF_SIGN),
    calls("[6", &DOCUMENT_OF_SIGN),
    calls("[7", &DOCUMENT_OF_SIGN),
    calls("[8", &DOCUMENT_OF_SIGN),
    calls("[9", &DOCUMENT_OF_SIGN),
    calls("[true", &DOCUMENT_OF_WORD[0]),
    calls("[false", &DOCUMENT_OF_WORD[1]),
    calls("[null", &DOCUMENT_OF_WORD[0]),
];

/// Like `DOCUMENT`, where a word has shown that it is one.
static DOCUMENT_OF_WORD: [Calls; 2] =
    [Calls { keep: 5, ..DOCUMENT }, Calls { keep: 6, ..DOCUMENT }];

static DOCUMENT_OF_SIGN: Calls = DOCUMENT;

const DOCUMENT: Calls = Calls {
    bodies: &[Grammar::Document],
    keep: 2,
    close: &[],
    repeats: false,
    loud: false,
    fence: false,
    shows_torn: false,
};

static INKLING: Spec = Spec {
    marks: &[
        calls("<|content_invoke_tool_json|>", &INKLING_CALL),
        markup("<|content_text|>"),
        markup("<|end_message|>"),
        mark("<|message_model|>", Effect::Section(0)),
    ],
    reasoning: &[("<|content_thinking|>", "<|end_message|>")],
    sections: &[Section {
        marks: &[
            calls("<|content_invoke_tool_json|>", &inner(&[INKLING_JSON])),
            mark("<|content_thinking|>", Effect::ReasoningStart),
            mark("<|content_text|>", Effect::HeaderEnd),
            mark("<|end_message|>", Effect::SectionEnd),
        ],
        noise: Noise::Header,
        lax: true,
    }],
    ends: &["<|endoftext|>"],
    ..PLAIN
};

const INKLING_JSON: Grammar = Grammar::Json(Shape::marked("<|end_message|>"));

static INKLING_CALL: Calls = json(&[INKLING_JSON], &["<|end_message|>"]);

static GIGACHAT3: Spec = Spec {
    marks: &[
        calls("<|message_sep|>\n\nfunction call<|role_sep|>", &GIGACHAT3_CALL),
        calls("function call<|role_sep|>", &GIGACHAT3_CALL),
        calls("<|function_call|>", &GIGACHAT3_CALL),
        markup("<|message_sep|>"),
    ],
    ends: &["</s>"],
    tokens: &["<|role_sep|>"],
    ..PLAIN
};

static GIGACHAT3_CALL: Calls =
    json(&[Grammar::Json(Shape::marked("</s>"))], &["</s>", "<|message_sep|>"]);

// Name, then arguments.

static MISTRAL: Spec = Spec {
    marks: &[calls(
        "[TOOL_CALLS]",
        &json(&[Grammar::Json(Shape::marked("")), MISTRAL_HEAD], &["</s>"]),
    )],
    reasoning: &[("[THINK]", "[/THINK]"), ("<think>", "</think>")],
    ends: &["</s>"],
    ..PLAIN
};

static MISTRAL_V11: Spec = Spec {
    marks: &[calls(
        "[TOOL_CALLS]",
        &Calls {
            bodies: &[MISTRAL_HEAD, Grammar::Json(Shape::marked(""))],
            keep: 0,
            close: &["</s>"],
            repeats: false,
            loud: true,
            fence: false,
            shows_torn: false,
        },
    )],
    reasoning: &[("[THINK]", "[/THINK]"), ("<think>", "</think>")],
    ends: &["</s>"],
    ..PLAIN
};

const MISTRAL_HEAD: Grammar = Grammar::Head(Head {
    separator: "[ARGS]",
    id_separator: "[CALL_ID]",
    brace: true,
    name: Name::Plain,
    close: "",
});

static DEEPSEEK: Spec = Spec {
    marks: &[
        mark("<｜tool▁calls▁begin｜>", Effect::Section(0)),
        calls(
            "<｜tool▁call▁begin｜>",
            &Calls {
                bodies: &[DEEPSEEK_HEAD],
                keep: 0,
                close: &["```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"],
                repeats: false,
                loud: true,
                fence: false,
                shows_torn: false,
            },
        ),
        markup("<｜tool▁calls▁end｜>"),
    ],
    sections: &[Section {
        marks: &[
            calls("<｜tool▁call▁begin｜>", &inner(&[DEEPSEEK_HEAD])),
            markup("<｜tool▁call▁end｜>"),
            markup("```"),
            mark("<｜tool▁calls▁end｜>", Effect::SectionEnd),
        ],
        noise: Noise::Dropped,
        lax: false,
    }],
    ends: &["<｜end▁of▁sentence｜>"],
    tokens: &["<｜tool▁sep｜>"],
    ..PLAIN
};

const DEEPSEEK_HEAD: Grammar = Grammar::Head(Head {
    separator: "<｜tool▁sep｜>",
    id_separator: "",
    brace: false,
    name: Name::Kind,
    close: "<｜tool▁call▁end｜>",
});

static KIMI_K2: Spec = Spec {
    marks: &[
        mark("<|tool_calls_section_begin|>", Effect::Section(0)),
        mark("<|tool_call_section_begin|>", Effect::Section(0)),
        calls(
            "<|tool_call_begin|>",
            &Calls {
                bodies: &[KIMI_HEAD],
                keep: 0,
                close: &["<|tool_call_end|>"],
                repeats: false,
                loud: true,
                fence: false,
                shows_torn: false,
            },
        ),
        markup("<|tool_calls_section_end|>"),
        markup("<|tool_call_section_end|>"),
    ],
    sections: &[Section {
        marks: &[
            calls("<|tool_call_begin|>", &inner(&[KIMI_HEAD])),
            markup("<|tool_call_end|>"),
            mark("<|tool_calls_section_end|>", Effect::SectionEnd),
            mark("<|tool_call_section_end|>", Effect::SectionEnd),
        ],
        noise: Noise::Dropped,
        lax: false,
    }],
    ends: &["[EOS]", "<|im_end|>"],
    tokens: &["<|tool_call_argument_begin|>"],
    ..PLAIN
};

const KIMI_HEAD: Grammar = Grammar::Head(Head {
    separator: "<|tool_call_argument_begin|>",
    id_separator: "",
    brace: false,
    name: Name::Id,
    close: "<|tool_call_end|>",
});

// Tagged parameters.

/// The tags of Qwen3-Coder inside a wrapper.
const fn function_tags(outer_open: &'static str, outer_close: &'static str) -> Tags {
    Tags {
        head: tagged::Head::Bare,
        tag_end: ">",
        call_open: "<function=",
        outer_open,
        call_close: "</function>",
        outer_close,
        param_open: "<parameter=",
        key: Key::Bare,
        param_close: "</parameter>",
        name_end: "",
        wary: false,
        trim: true,
        cdata: false,
    }
}

/// The tags of `invoke` and `parameter`.
const fn invoke_tags(
    call: (&'static str, &'static str),
    outer: (&'static str, &'static str),
    param: (&'static str, &'static str),
) -> Tags {
    Tags {
        head: tagged::Head::Attribute("name", Some("id")),
        tag_end: ">",
        call_open: call.0,
        outer_open: outer.0,
        call_close: call.1,
        outer_close: outer.1,
        param_open: param.0,
        key: Key::Attribute("name"),
        param_close: param.1,
        name_end: "",
        wary: false,
        trim: false,
        cdata: false,
    }
}

/// A call outside its section.
const fn alone(bodies: &'static [Grammar], close: &'static [&'static str]) -> Calls {
    Calls { bodies, keep: 0, close, repeats: false, loud: true, fence: false, shows_torn: false }
}

/// A block of calls with the tags `function` and `parameter`, up to its close tag.
macro_rules! functions {
    ($open:literal, $close:literal) => {
        Section {
            marks: &[
                calls("<function=", &inner(&[Grammar::Tagged(function_tags($open, $close))])),
                mark($close, Effect::SectionEnd),
            ],
            noise: Noise::Text,
            lax: true,
        }
    };
}

/// The tags `invoke` and `parameter` with a prefix, in a block that ends with a close tag.
macro_rules! invoke {
    ($prefix:literal, $open:literal, $close:literal) => {
        Grammar::Tagged(invoke_tags(
            (concat!("<", $prefix, "invoke"), concat!("</", $prefix, "invoke>")),
            ($open, $close),
            (concat!("<", $prefix, "parameter"), concat!("</", $prefix, "parameter>")),
        ))
    };
}

/// A block of calls with those tags, and with the other call formats it may contain.
macro_rules! invokes {
    ($prefix:literal, $open:literal, $close:literal $(, $more:expr)*) => {
        Section {
            marks: &[
                calls(concat!("<", $prefix, "invoke"), &inner(&[invoke!($prefix, $open, $close)])),
                $($more,)*
                mark($close, Effect::SectionEnd),
            ],
            noise: Noise::Text,
        lax: false,
        }
    };
}

static QWEN3_CODER: Spec = Spec {
    marks: &[
        mark("<tool_call>", Effect::Section(0)),
        calls(
            "<function=",
            &Calls {
                shows_torn: true,
                ..alone(
                    &[Grammar::Tagged(Tags {
                        wary: true,
                        ..function_tags("<tool_call>", "</tool_call>")
                    })],
                    &["</tool_call>"],
                )
            },
        ),
    ],
    sections: &[functions!("<tool_call>", "</tool_call>")],
    ends: &["<|im_end|>", "<|endoftext|>"],
    ..PLAIN
};

static SEED_OSS: Spec = Spec {
    marks: &[
        mark("<seed:tool_call>", Effect::Section(0)),
        calls(
            "<function=",
            &Calls {
                shows_torn: true,
                ..alone(
                    &[Grammar::Tagged(Tags {
                        wary: true,
                        ..function_tags("<seed:tool_call>", "</seed:tool_call>")
                    })],
                    &["</seed:tool_call>"],
                )
            },
        ),
    ],
    reasoning: &[("<seed:think>", "</seed:think>")],
    sections: &[functions!("<seed:tool_call>", "</seed:tool_call>")],
    ends: &["<seed:eos>"],
    ..PLAIN
};

/// A call with those tags on its own line, in a block that was not opened.
macro_rules! lone_invoke {
    ($open:literal, $close:literal) => {
        Mark {
            // Prose and code contain similar tags.
            text: "<invoke name=",
            place: Place::LineStart,
            effect: Effect::Calls(&Calls {
                keep: " name=".len(),
                shows_torn: true,
                ..alone(
                    &[Grammar::Tagged(Tags {
                        wary: true,
                        ..invoke_tags(
                            ("<invoke", "</invoke>"),
                            ($open, $close),
                            ("<parameter", "</parameter>"),
                        )
                    })],
                    &[$close],
                )
            }),
        }
    };
}

static CLAUDE_XML: Spec = Spec {
    marks: &[
        mark("<function_calls>", Effect::Section(0)),
        lone_invoke!("<function_calls>", "</function_calls>"),
    ],
    // Its end is often the stop sequence.
    sections: &[Section { lax: true, ..invokes!("", "<function_calls>", "</function_calls>") }],
    namespaced: true,
    ends: ENDS,
    ..PLAIN
};

/// How Muse writes calls in its messages to tools.
pub(crate) static MUSE_CALLS: Spec = Spec {
    marks: &[
        mark("<atem:function_calls>", Effect::Section(0)),
        calls(
            "<atem:invoke",
            &alone(
                &[invoke!("atem:", "<atem:function_calls>", "</atem:function_calls>")],
                &["</atem:function_calls>"],
            ),
        ),
    ],
    reasoning: &[],
    sections: &[invokes!("atem:", "<atem:function_calls>", "</atem:function_calls>")],
    ..PLAIN
};

static MINIMAX_M2: Spec = Spec {
    marks: &[
        mark("<minimax:tool_call>", Effect::Section(0)),
        lone_invoke!("<minimax:tool_call>", "</minimax:tool_call>"),
    ],
    sections: &[invokes!("", "<minimax:tool_call>", "</minimax:tool_call>")],
    ends: &["[e~[", "<|im_end|>", "<|endoftext|>"],
    ..PLAIN
};

static DOTS: Spec = Spec {
    marks: &[
        mark("<dots_function_call>", Effect::Section(0)),
        lone_invoke!("<dots_function_call>", "</dots_function_call>"),
    ],
    sections: &[invokes!(
        "",
        "<dots_function_call>",
        "</dots_function_call>",
        calls("{", &DOTS_JSON),
        calls("[", &DOTS_JSON)
    )],
    ends: &["<|endofresponse|>", "<|im_end|>", "<|endoftext|>"],
    ..PLAIN
};

static DOTS_JSON: Calls =
    Calls { keep: 1, ..inner(&[Grammar::Json(Shape::marked("</dots_function_call>"))]) };

static MINIMAX_M3: Spec = Spec {
    marks: &[
        mark("]<]minimax[>[<tool_call>", Effect::Section(0)),
        calls("]<]minimax[>[<invoke", &alone(&[MINIMAX_M3_TAGS], &["]<]minimax[>[</tool_call>"])),
    ],
    reasoning: &[("<mm:think>", "</mm:think>"), ("<think>", "</think>")],
    sections: &[Section {
        marks: &[
            calls("]<]minimax[>[<invoke", &inner(&[MINIMAX_M3_TAGS])),
            mark("]<]minimax[>[</tool_call>", Effect::SectionEnd),
        ],
        noise: Noise::Text,
        lax: false,
    }],
    ends: &["[e~[", "<|im_end|>", "<|endoftext|>"],
    tokens: &["]<]minimax[>["],
    ..PLAIN
};

const MINIMAX_M3_TAGS: Grammar = Grammar::Nested(NestedSpec {
    prefix: "]<]minimax[>[",
    call: "invoke",
    outer: "tool_call",
    outer_close: "]<]minimax[>[</tool_call>",
    item: "item",
});

static DSML: Spec = Spec {
    marks: &[
        calls(
            "<｜DSML｜invoke",
            &alone(
                &[invoke!("｜DSML｜", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>")],
                &["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
            ),
        ),
        mark("<｜DSML｜function_calls>", Effect::Section(0)),
        mark("<｜DSML｜tool_calls>", Effect::Section(1)),
    ],
    sections: &[
        invokes!("｜DSML｜", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
        invokes!("｜DSML｜", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    ],
    ends: &["<｜end▁of▁sentence｜>"],
    tokens: &["</｜DSML｜invoke>", "</｜DSML｜parameter>"],
    ..PLAIN
};

static STEP3: Spec = Spec {
    marks: &[
        mark("<｜tool_calls_begin｜>", Effect::Section(0)),
        calls("<steptml:invoke", &alone(&[STEP3_TAGS], &["<｜tool_call_end｜>"])),
        markup("<｜tool_call_begin｜>function<｜tool_sep｜>"),
        markup("<｜tool_calls_end｜>"),
    ],
    sections: &[Section {
        marks: &[
            calls("<steptml:invoke", &inner(&[STEP3_TAGS])),
            markup("<｜tool_call_begin｜>function<｜tool_sep｜>"),
            markup("<｜tool_call_begin｜>"),
            markup("<｜tool_sep｜>"),
            markup("<｜tool_call_end｜>"),
            mark("<｜tool_calls_end｜>", Effect::SectionEnd),
        ],
        noise: Noise::Dropped,
        lax: false,
    }],
    ends: &["<｜end▁of▁sentence｜>", "<|EOT|>", "<|im_end|>"],
    tokens: &["<｜tool_call_begin｜>", "<｜tool_sep｜>"],
    ..PLAIN
};

const STEP3_TAGS: Grammar = invoke!("steptml:", "<｜tool_call_begin｜>", "<｜tool_call_end｜>");

static MINICPM5: Spec = Spec {
    marks: &[
        // Similar tags are common in prose about code.
        calls(
            "<function name=",
            &Calls {
                keep: " name=".len(),
                ..alone(
                    &[Grammar::Tagged(Tags {
                        cdata: true,
                        ..invoke_tags(
                            ("<function", "</function>"),
                            ("", ""),
                            ("<param", "</param>"),
                        )
                    })],
                    &[],
                )
            },
        ),
    ],
    ends: &["<|im_end|>", "</s>"],
    ..PLAIN
};

/// The tags of GLM, where key and value are separate elements.
const fn arg_tags(outer_open: &'static str, outer_close: &'static str) -> Tags {
    Tags {
        head: tagged::Head::Line,
        tag_end: ">",
        call_open: "<tool_call>",
        outer_open,
        call_close: "</tool_call>",
        outer_close,
        param_open: "<arg_key>",
        key: Key::Element { close: "</arg_key>", value_open: "<arg_value>" },
        param_close: "</arg_value>",
        name_end: "<tool_sep>",
        wary: false,
        trim: false,
        cdata: false,
    }
}

static GLM: Spec = Spec {
    marks: &[calls(
        "<tool_call>",
        &alone(
            &[Grammar::Tagged(arg_tags("", "")), Grammar::Json(Shape::marked("</tool_call>"))],
            &["</tool_call>"],
        ),
    )],
    ends: &["<|observation|>", "<|user|>", "<|endoftext|>"],
    ..PLAIN
};

static HY_V3: Spec = Spec {
    marks: &[
        mark("<tool_calls>", Effect::Section(0)),
        calls(
            "<tool_call>",
            &alone(
                &[Grammar::Tagged(arg_tags("<tool_calls>", "</tool_calls>"))],
                &["</tool_calls>"],
            ),
        ),
    ],
    sections: &[Section {
        marks: &[
            calls(
                "<tool_call>",
                &inner(&[Grammar::Tagged(arg_tags("<tool_calls>", "</tool_calls>"))]),
            ),
            mark("</tool_calls>", Effect::SectionEnd),
        ],
        noise: Noise::Text,
        lax: false,
    }],
    suffix: Some(":opensource"),
    ends: &["<|eos|>", "<|im_end|>", "<|endoftext|>"],
    ..PLAIN
};

static KIMI_K3: Spec = Spec {
    marks: &[
        mark("<|open|>tools<|sep|>", Effect::Section(0)),
        calls("<|open|>call", &alone(&[KIMI_K3_TAGS], &["<|close|>tools<|sep|>"])),
        mark("<|open|>think<|sep|>", Effect::ReasoningStart),
        markup("<|open|>response<|sep|>"),
        markup("<|close|>response<|sep|>"),
        markup("<|close|>think<|sep|>"),
        markup("<|close|>message<|sep|>"),
        markup("<|open|>message<|sep|>"),
    ],
    reasoning: &[
        ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        ("<|open|>think<|sep|>", "<|open|>response<|sep|>"),
        ("<|open|>think<|sep|>", "<|close|>message<|sep|>"),
    ],
    sections: &[Section {
        marks: &[
            calls("<|open|>call", &inner(&[KIMI_K3_TAGS])),
            mark("<|close|>tools<|sep|>", Effect::SectionEnd),
        ],
        noise: Noise::Dropped,
        lax: false,
    }],
    ends: &["[EOS]", "<|im_end|>"],
    tokens: &["<|open|>", "<|close|>", "<|sep|>"],
    ..PLAIN
};

const KIMI_K3_TAGS: Grammar = Grammar::Tagged(Tags {
    head: tagged::Head::Attribute("tool", Some("index")),
    tag_end: "<|sep|>",
    call_open: "<|open|>call",
    outer_open: "<|open|>tools<|sep|>",
    call_close: "<|close|>call<|sep|>",
    outer_close: "<|close|>tools<|sep|>",
    param_open: "<|open|>argument",
    key: Key::Attribute("key"),
    param_close: "<|close|>argument<|sep|>",
    name_end: "",
    wary: false,
    trim: false,
    cdata: false,
});

// Literals of other languages.

static PYTHONIC: Spec = Spec {
    marks: &[
        Mark {
            text: "[",
            place: Place::MessageStart,
            effect: Effect::Calls(&Calls {
                loud: false,
                ..alone(&[Grammar::Python(python::Spec::Bare)], &[])
            }),
        },
        calls(
            "<|python_start|>",
            &alone(&[Grammar::Python(python::Spec::Marked)], &["<|python_end|>"]),
        ),
        markup("<|python_end|>"),
    ],
    ends: &["<|eom|>", "<|eot|>", "<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"],
    ..PLAIN
};

static OLMO3: Spec = Spec {
    marks: &[calls(
        "<function_calls>",
        &alone(&[Grammar::Python(python::Spec::Marked)], &["</function_calls>"]),
    )],
    ends: &["<|im_end|>", "<|endoftext|>"],
    ..PLAIN
};

static LFM2: Spec = Spec {
    marks: &[calls(
        "<|tool_call_start|>",
        &alone(
            &[
                Grammar::Python(python::Spec::Marked),
                Grammar::Json(Shape::marked("<|tool_call_end|>")),
            ],
            &["<|tool_call_end|>"],
        ),
    )],
    ends: &["<|im_end|>", "<|endoftext|>"],
    ..PLAIN
};

static GEMMA3: Spec = Spec {
    marks: &[Mark {
        text: "```",
        place: Place::LineStart,
        effect: Effect::Calls(&Calls {
            loud: false,
            fence: true,
            ..alone(
                &[Grammar::Fence(&["tool_code"], &Grammar::Python(python::Spec::Fence))],
                &["```"],
            )
        }),
    }],
    ends: &["<end_of_turn>", "<eos>"],
    ..PLAIN
};

static FUNCTIONGEMMA: Spec = Spec {
    marks: &[calls(
        "<start_function_call>",
        &alone(&[Grammar::Gemma("<escape>")], &["<end_function_call>"]),
    )],
    ends: &["<end_of_turn>", "<start_function_response>", "<eos>"],
    tokens: &["<end_function_call>"],
    ..PLAIN
};

static GEMMA4: Spec = Spec {
    marks: &[calls("<|tool_call>", &alone(&[Grammar::Gemma("<|\"|>")], &["<tool_call|>"]))],
    reasoning: &[
        ("<|channel>thought\n", "<channel|>"),
        ("<|channel>thought", "<channel|>"),
        ("<think>", "</think>"),
    ],
    ends: &["<|tool_response>", "<turn|>", "<end_of_turn>", "<eos>"],
    tokens: &["<|\"|>"],
    ..PLAIN
};
