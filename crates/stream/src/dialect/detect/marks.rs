//! The marks that begin calls or reasoning, and their dialects.

use crate::dialect::detect::Guess;
use crate::dialect::ends::ENDS;
use crate::dialect::spec::{Effect, Mark, Place, Spec, Switch};
use crate::dialect::table::{DOCUMENTS, PLAIN, mark};
use crate::dialect::tag::is_name;

/// Declares a mark that only one dialect has.
macro_rules! only {
    ($text:literal, $name:literal) => {
        mark($text, Effect::Switch(&Switch { guess: |_, _| Guess::Is($name, 99), usual: $name }))
    };
}

/// Marks that begin calls in any dialect, except documents.
const OTHERS: &[Mark] = &[
    mark("<tool_call>", Effect::Switch(&TOOL_CALL)),
    mark("<tool_calls>", Effect::Switch(&TOOL_CALLS)),
    mark("<function_calls>", Effect::Switch(&FUNCTION_CALLS)),
    mark("<function", Effect::Switch(&FUNCTION)),
    Mark { text: "```", place: Place::LineStart, effect: Effect::Switch(&FENCE) },
    only!("[TOOL_CALLS]", "mistral_v11"),
    only!("[THINK]", "mistral_v11"),
    only!("<|tool_call|>", "granite"),
    only!("<|tool_call>", "gemma4"),
    only!("<|channel>", "gemma4"),
    only!("<start_function_call>", "functiongemma"),
    only!("<|tool_calls_section_begin|>", "kimi_k2"),
    only!("<|tool_call_begin|>", "kimi_k2"),
    only!("<|open|>", "kimi_k3"),
    only!("<|close|>", "kimi_k3"),
    only!("<｜tool▁calls▁begin｜>", "deepseek_v31"),
    only!("<｜tool▁call▁begin｜>", "deepseek_v31"),
    only!("<｜DSML｜function_calls>", "deepseek_v32"),
    only!("<｜DSML｜invoke", "deepseek_v32"),
    only!("<｜DSML｜tool_calls>", "deepseek_v4"),
    only!("<｜tool_calls_begin｜>", "step3"),
    only!("<steptml:invoke", "step3"),
    only!("<minimax:tool_call>", "minimax_m2"),
    only!("]<]minimax[>[", "minimax_m3"),
    only!("<mm:think>", "minimax_m3"),
    only!("<seed:tool_call>", "seed_oss"),
    only!("<seed:think>", "seed_oss"),
    only!("<dots_function_call>", "dots"),
    only!("<longcat_tool_call>", "longcat"),
    only!("<longcat_think>", "longcat"),
    only!("<|tools_prefix|>", "apertus"),
    only!("<|inner_prefix|>", "apertus"),
    only!("<|START_THINKING|>", "command_a"),
    only!("<|START_ACTION|>", "command_a"),
    only!("<|START_RESPONSE|>", "command_a"),
    only!("<|action_start|>", "internlm2"),
    only!("<|python_tag|>", "llama3_json"),
    only!("<|python_start|>", "pythonic"),
    only!("<|tool_call_start|>", "lfm2"),
    only!("<|channel|>", "harmony"),
    only!("<|start|>", "harmony"),
    only!("<function_call>", "granite_20b_fc"),
    only!("<|message_model|>", "inkling"),
    only!("<|content_text|>", "inkling"),
    only!("<|content_thinking|>", "inkling"),
    only!("<|content_invoke_tool_json|>", "inkling"),
    only!("<|function_call|>", "gigachat3"),
    only!("<|message_sep|>", "gigachat3"),
    only!("functools[{", "phi4_mini"),
];

/// The same, with the marks that begin documents.
static MARKS: [Mark; OTHERS.len() + DOCUMENTS.len()] = {
    let mut all = [OTHERS[0]; OTHERS.len() + DOCUMENTS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < OTHERS.len() { OTHERS[at] } else { DOCUMENTS[at - OTHERS.len()] };
        at += 1;
    }
    all
};

/// Everything that begins calls or reasoning in any dialect.
pub(crate) static AUTO: Spec = Spec {
    marks: &MARKS,
    reasoning: &[("<think>", "</think>"), ("<|open|>think<|sep|>", "<|close|>think<|sep|>")],
    namespaced: true,
    ends: ENDS,
    after_calls: Some(&ENVELOPE),
    ..PLAIN
};

/// Judges by the first character that is not blank.
fn first(rest: &str, ended: bool, guess: fn(char, &str) -> Guess) -> Guess {
    let body = rest.trim_start();
    match body.chars().next() {
        Some(c) => match guess(c, body) {
            Guess::More if ended => Guess::No,
            guess => guess,
        },
        None if ended => Guess::No,
        None => Guess::More,
    }
}

/// Tells whether a text begins with another, or may when more arrives.
fn begins(body: &str, with: &str, is: Guess, else_: Guess) -> Guess {
    if body.starts_with(with) {
        is
    } else if with.starts_with(body) {
        Guess::More
    } else {
        else_
    }
}

static TOOL_CALL: Switch = Switch {
    guess: |rest, ended| {
        first(rest, ended, |c, body| match c {
            '{' => Guess::Is("hermes", 95),
            '[' => Guess::Is("granite", 90),
            '<' => {
                begins(body, "<function=", Guess::Is("qwen3_coder", 97), Guess::Is("hermes", 60))
            }
            c if is_name(c) => Guess::Is("glm45", 85),
            _ => Guess::Is("hermes", 60),
        })
    },
    usual: "hermes",
};

static TOOL_CALLS: Switch = Switch {
    guess: |rest, ended| {
        first(rest, ended, |c, body| match c {
            '[' | '{' => Guess::Is("jamba", 85),
            '<' => begins(body, "<tool_call>", Guess::Is("hy_v3", 90), Guess::No),
            _ => Guess::No,
        })
    },
    usual: "jamba",
};

static FUNCTION_CALLS: Switch = Switch {
    guess: |rest, ended| {
        first(rest, ended, |c, _| match c {
            '<' => Guess::Is("claude_xml", 95),
            c if c.is_alphabetic() || c == '_' => Guess::Is("olmo3", 85),
            _ => Guess::No,
        })
    },
    usual: "claude_xml",
};

static FUNCTION: Switch = Switch {
    guess: |rest, ended| match rest.chars().next() {
        Some('=') => Guess::Is("qwen3_coder", 95),
        Some(' ') => match begins(rest, " name=", Guess::Is("minicpm5", 85), Guess::No) {
            Guess::More if ended => Guess::No,
            guess => guess,
        },
        None if !ended => Guess::More,
        _ => Guess::No,
    },
    usual: "qwen3_coder",
};

static FENCE: Switch = Switch {
    guess: |rest, ended| match rest.split_once('\n') {
        Some(("json" | "JSON", body)) => first(body, ended, |c, _| match c {
            '{' | '[' => Guess::Is("json_fence", 70),
            _ => Guess::No,
        }),
        Some(("tool_code", _)) => Guess::Is("gemma3", 90),
        Some(("", body)) => first(body, ended, |c, _| match c {
            '{' | '[' => Guess::Is("json_fence", 60),
            _ => Guess::No,
        }),
        Some(_) => Guess::No,
        None if !ended && ("json".starts_with(rest) || "JSON".starts_with(rest)) => Guess::More,
        None if !ended && "tool_code".starts_with(rest) => Guess::More,
        None => Guess::No,
    },
    usual: "json_fence",
};

/// After a document with calls, the stream is parsed in the dialect that has them.
static ENVELOPE: Switch =
    Switch { guess: |_, _| Guess::Is("toolcall_v2", 99), usual: "toolcall_v2" };
