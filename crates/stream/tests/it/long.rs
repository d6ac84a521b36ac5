//! Inputs that once took quadratic time: a slow test here is a bug.

use stream::dialect::{Dialect, Format, Options, Parser, Tools};
use stream::event::Event;

/// Repeats a piece very often, one push each, and counts the emitted bytes.
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
fn long_inputs_take_linear_time() {
    // Blanks that JSON does not allow leave the type of a value undecided.
    let before = "<tool_call>\n<function=f>\n<parameter=k>\n";
    let after = "\n</parameter>\n</function>\n</tool_call>";
    check("qwen3_coder", before, "\u{a0}", after, r#"{"k":""}"#.len() + 2 * TIMES);
    let (before, after) =
        ("<tool_call>f\n<arg_key>k</arg_key><arg_value>", "</arg_value></tool_call>");
    check("glm45", before, "\u{b}", after, r#"{"k":""}"#.len() + 6 * TIMES);
    // Tokens in a failed call are searched for once.
    let before = "<tool_call>{\"x\":\"";
    check("hermes", before, "<|im_end|>", "y", before.len() + 1);
}

/// Less than the limit for held text.
const TIMES: usize = 400_000;
