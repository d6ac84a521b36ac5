//! The published parsers one would otherwise use, behind one interface.
//!
//! There is none for Harmony: the one crate that reads it needs a vocabulary that it downloads at startup.

use std::hint::black_box;
use std::task::{Context, Poll, Waker};

use dynamo_parsers_v2::{
    Tool, UnifiedParserEvent, UnifiedParserOutput, create_tool_parser_for_family,
    create_unified_parser_for_family,
};
use tool_parser::ToolParser;
use tool_parser::parsers::QwenXmlParser;

use crate::payload::{self, TOOL};

/// Parses a stream in pieces; returns how many bytes of text and arguments were emitted.
pub(crate) type Read = Box<dyn Fn(&[&str]) -> usize>;

/// Returns `dynamo-parsers-v2` for a format, if it supports it.
pub(crate) fn dynamo(format: &str) -> Option<Read> {
    let family = match format {
        "kimi_k2" => "kimi_k2",
        "qwen3_coder" => "qwen3_coder",
        "glm45" => "glm47",
        // Only the older of its two APIs supports it.
        "minimax_m2" => return Some(Box::new(|pieces| dynamo_calls("minimax_m2", pieces))),
        _ => return None,
    };
    Some(Box::new(move |pieces| {
        let mut parser = create_unified_parser_for_family(family, &dynamo_tools())
            .expect("it is one of its families");
        let mut output = UnifiedParserOutput { events: Vec::new() };
        let mut came = 0;
        let mut take = |events: &mut Vec<UnifiedParserEvent>| {
            came += events.drain(..).map(|event| event_bytes(&event)).sum::<usize>();
        };
        for piece in pieces {
            // It continues after what it cannot parse.
            let _ = parser.parse_into(piece, &mut output);
            take(&mut output.events);
        }
        if let Ok(mut output) = parser.finish() {
            take(&mut output.events);
        }
        came
    }))
}

fn dynamo_calls(family: &str, pieces: &[&str]) -> usize {
    let mut parser =
        create_tool_parser_for_family(family, &dynamo_tools()).expect("it is one of its families");
    let mut came = 0;
    for piece in pieces {
        if let Ok(result) = parser.push(piece) {
            let args = result.calls.iter().map(|call| black_box(&call.arguments).len());
            came += result.normal_text.len() + args.sum::<usize>();
        }
    }
    if let Ok(result) = parser.finish() {
        let args = result.calls.iter().map(|call| call.arguments.len());
        came += result.normal_text.len() + args.sum::<usize>();
    }
    came
}

fn event_bytes(event: &UnifiedParserEvent) -> usize {
    match black_box(event) {
        UnifiedParserEvent::Text(text) | UnifiedParserEvent::Reasoning(text) => text.len(),
        UnifiedParserEvent::ToolCall(delta) => delta.arguments.len(),
        _ => 0,
    }
}

fn dynamo_tools() -> Vec<Tool> {
    let tools = payload::tools();
    let parameters = tools[0]["function"]["parameters"].clone();
    vec![Tool { name: TOOL.to_owned(), description: None, parameters, strict: None }]
}

/// Returns `tool-parser` for a format, if it supports it.
pub(crate) fn tool_parser(format: &str) -> Option<Read> {
    let make: fn() -> Box<dyn ToolParser> = match format {
        "hermes" => || Box::new(tool_parser::QwenParser::new()),
        "kimi_k2" => || Box::new(tool_parser::KimiK2Parser::new()),
        // It reads the array format of older models.
        "mistral" => || Box::new(tool_parser::MistralParser::new()),
        "deepseek_v31" => || Box::new(tool_parser::DeepSeek31Parser::new()),
        "qwen3_coder" => || Box::new(QwenXmlParser::new()),
        "glm45" => || Box::new(tool_parser::Glm4MoeParser::default()),
        "minimax_m2" => || Box::new(tool_parser::MinimaxM2Parser::new()),
        _ => return None,
    };
    Some(Box::new(move |pieces| {
        let (mut parser, mut came) = (make(), 0);
        let tools: Vec<_> = serde_json::from_value(payload::tools()).expect("they are tools");
        let mut context = Context::from_waker(Waker::noop());
        for piece in pieces {
            // It is asynchronous in name only: nothing in it waits.
            let mut reading = parser.parse_incremental(piece, tools.as_slice());
            let Poll::Ready(result) = reading.as_mut().poll(&mut context) else { return 0 };
            if let Ok(result) = result {
                let args = result.calls.iter().map(|call| black_box(&call.parameters).len());
                came += result.normal_text.len() + args.sum::<usize>();
            }
        }
        came
    }))
}
