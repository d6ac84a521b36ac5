//! Inputs for which time once grew with the square of their length: a test that is slow here is a bug.

use stream::dialect::{Dialect, Format, Options, Parser, Tools};
use stream::event::Event;

/// Repeats a piece very often, one push each, and counts the bytes that come out.
#[track_caller]
fn check(name: &str, before: &str, piece: &str, after: &str, want: usize) {
    let format = Format::named(name).expect("it is in the table");
    let mut parser = Parser::new(&Dialect::new(format, &Options::default(), &Tools::default()));
    let mut came = 0;
    let mut sink = |event: Event<'_>, _| {
        if let Event::Text(text) | Event::ToolArgs { text, .. } = event {
            came += text.len();
        }
    };
    parser.push_str(before, &mut sink);
    (0..TIMES).for_each(|_| parser.push_str(piece, &mut sink));
    parser.push_str(after, &mut sink);
    parser.finish(&mut sink);
    assert_eq!(came, want, "{name}, {piece:?}");
}

#[test]
fn long_inputs_take_no_longer_than_they_are() {
    // Blanks that JSON does not know leave it open what a value is.
    let before = "<tool_call>\n<function=f>\n<parameter=k>\n";
    let after = "\n</parameter>\n</function>\n</tool_call>";
    check("qwen3_coder", before, "\u{a0}", after, r#"{"k":""}"#.len() + 2 * TIMES);
    let (before, after) =
        ("<tool_call>f\n<arg_key>k</arg_key><arg_value>", "</arg_value></tool_call>");
    check("glm45", before, "\u{b}", after, r#"{"k":""}"#.len() + 6 * TIMES);
    // Tokens in what is no call after all are looked for once.
    let before = "<tool_call>{\"x\":\"";
    check("hermes", before, "<|im_end|>", "y", before.len() + 1);
}

/// Less than what may be held back.
const TIMES: usize = 400_000;
