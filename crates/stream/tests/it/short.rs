//! Formats the events of a stream in one line.

use stream::canonical::{Collector, Kind};
use stream::dialect::{Dialect, Format, Options, Parser, Tools};

/// Parses an input in pieces of a size. Calls are written as `⟨name#id(arguments)⟩`, or with `…⟩` if
/// incomplete; reasoning is in brackets, errors follow as ` !kind`.
pub(crate) fn read(
    name: &str,
    options: &Options,
    tools: &Tools,
    input: &str,
    size: usize,
) -> String {
    let dialect = Dialect::new(Format::named(name).unwrap(), options, tools);
    let (mut parser, mut events) = (Parser::new(&dialect), Collector::default());
    input.as_bytes().chunks(size).for_each(|piece| parser.push(piece, &mut events));
    parser.finish(&mut events);
    let (mut shown, mut errors) = (String::new(), String::new());
    for event in events.into_events(false) {
        match event.kind {
            Kind::Text { text } => shown.push_str(&text),
            Kind::Reasoning { text } => shown.push_str(&format!("[{text}]")),
            Kind::ToolStart { name, id, .. } => {
                let id = id.map(|id| format!("#{id}")).unwrap_or_default();
                shown.push_str(&format!("⟨{name}{id}("));
            }
            Kind::ToolArgs { text, .. } => shown.push_str(&text),
            Kind::ToolEnd { complete, .. } => {
                shown.push_str(if complete { ")⟩" } else { "…⟩" });
            }
            Kind::Error { kind, .. } => errors.push_str(&format!(" !{kind}")),
            Kind::Finish { reason } => shown.push_str(&format!(" .{reason}")),
            other => panic!("{other:?}"),
        }
    }
    shown + &errors
}
