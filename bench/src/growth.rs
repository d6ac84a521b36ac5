//! How time grows with the input, for adversarial inputs.
//!
//! Four times the input may take five times the time. Pushes of one byte reveal anything that rescans old
//! input; the last columns reveal what is linear but slow.

use std::time::Duration;

use stream::dialect::{Dialect, Format};

use crate::measure::{best, push, rate};
use crate::payload::{self, TOOL};
use crate::render::{RENDERERS, Renderer, Value};
use crate::{Options, Report};

/// Measures every format.
pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new(
        "growth: time(64 KiB) / time(16 KiB), one byte per push, the worst input of each format",
        &["format", "inputs", "worst ratio", "target", "", "of", "slowest MB/s", "of"],
    );
    for renderer in RENDERERS.iter().filter(|renderer| options.wants(renderer.format)) {
        let Some(format) = Format::named(renderer.format) else {
            report.notes.push(format!("{}: not in the table, skipped", renderer.format));
            continue;
        };
        eprintln!("growth: {}", renderer.format);
        let dialect = payload::dialect(format);
        let (mut worst, mut slowest) = ((0.0, String::new()), (f64::MAX, String::new()));
        let (small, large) = (inputs(renderer, SMALL), inputs(renderer, LARGE));
        for ((what, small), (_, large)) in small.iter().zip(&large) {
            let (ratio, speed) = measure(&dialect, small, large, options.runs);
            if ratio > worst.0 {
                worst = (ratio, what.clone());
            }
            if speed < slowest.0 {
                slowest = (speed, what.clone());
            }
            if ratio > RATIO_MAX {
                report.notes.push(format!("{}: {what}: {ratio:.1}", renderer.format));
            }
        }
        let verdict = report.target(worst.0 <= RATIO_MAX, || {
            format!("growth: {} grows by {:.1} on {}", renderer.format, worst.0, worst.1)
        });
        report.rows.push(vec![
            renderer.format.to_owned(),
            small.len().to_string(),
            format!("{:.2}", worst.0),
            format!("≤ {RATIO_MAX}"),
            verdict,
            worst.1,
            format!("{:.1}", slowest.0),
            slowest.1,
        ]);
    }
    report
}

/// Returns how time grows, and the throughput at the larger size.
fn measure(dialect: &Dialect, small: &str, large: &str, runs: usize) -> (f64, f64) {
    // The sizes are not exactly one to four.
    let sizes = large.len() as f64 / small.len() as f64 / 4.0;
    let (mut ratio, mut fastest) = (f64::MAX, Duration::MAX);
    // Another process may slow down one of the two, by less than quadratic growth would. So both take about
    // the same time, one right after the other, and the best of several pairs counts.
    for _ in 0..ROUNDS {
        let took = best(
            runs,
            &mut [&mut || (0..4).for_each(|_| _ = push(dialect, small, 1)), &mut || {
                _ = push(dialect, large, 1);
            }],
        );
        ratio = ratio.min(4.0 * took[1].as_secs_f64() / took[0].as_secs_f64() / sizes);
        fastest = fastest.min(took[1]);
        if ratio <= RATIO_MAX || fastest > CLEAR {
            break;
        }
    }
    (ratio, rate(large.len(), fastest))
}

/// Builds the inputs for a format, each about this many bytes long.
fn inputs(renderer: &Renderer, bytes: usize) -> Vec<(String, String)> {
    let text = |text: String| Value::Text(text);
    let content = |value: Value| renderer.call(TOOL, &[("content", value)]);
    let mut inputs = vec![
        ("a long argument".to_owned(), content(text("x".repeat(bytes))).text),
        ("a source file".to_owned(), renderer.call(TOOL, &payload::source(bytes)).text),
        ("rows".to_owned(), renderer.call(TOOL, &payload::rows(bytes)).text),
        ("prose".to_owned(), renderer.answer(&payload::prose(bytes))),
    ];
    let mut add = |what: &str, input: String| inputs.push((what.to_owned(), input));

    if renderer.is_wire() {
        let args = [("content", text("x".repeat(bytes)))];
        add("one frame", renderer.call_by(TOOL, &args, usize::MAX).text);
    }
    let keys: Vec<String> = (0..bytes / 24).map(|at| format!("k{at}")).collect();
    let params: Vec<_> = keys.iter().map(|key| (key.as_str(), text("v".to_owned()))).collect();
    add("many parameters", renderer.call(TOOL, &params).text);
    let same = vec![("k", text("v".to_owned())); bytes / 24];
    add("one parameter many times", renderer.call(TOOL, &same).text);
    let call = renderer.call("f", &[("k", text("v".to_owned()))]).text;
    add("many calls", call.repeat(bytes / call.len() + 1));

    // Names, keys and values that are blank or do not end.
    let call = |name: &str, key: &str, value: &str| {
        renderer.call(name, &[(key, Value::Text(value.to_owned()))]).text
    };
    let long = "n".repeat(bytes);
    add("a long name", call(&long, "k", "v"));
    add("a long key", call("f", &long, "v"));
    for (what, blank) in BLANKS {
        let flood = blank.repeat(bytes / blank.len());
        add(&format!("{what} in text"), renderer.answer(&format!("a{flood}b")));
        add(&format!("{what} alone"), renderer.answer(&flood));
        add(&format!("{what} as a value"), call("f", "k", &flood));
        add(&format!("{what} before a value"), call("f", "k", &format!("{flood}7")));
        add(&format!("{what} in the name"), call(&format!("f{flood}f"), "k", "v"));
        let rendered =
            renderer.call("f", &[("k", text("v".to_owned())), ("l", text("w".to_owned()))]);
        for (number, &at) in rendered.blanks.iter().enumerate() {
            let (before, after) = rendered.text.split_at(at);
            add(&format!("{what} at place {number}"), format!("{before}{flood}{after}"));
            add(
                &format!("{what} at place {number}, then text"),
                format!("{before}{flood}x{after}"),
            );
        }
    }

    // Near misses of marks, in text and in a value.
    let rendered = renderer.call("f", &[("k", text("v".to_owned()))]);
    let first = rendered.first.unwrap_or_default();
    let (open, close) = (&rendered.text[..first], &rendered.text[first + 1..]);
    for (what, mark) in [("opening", open), ("close", close)] {
        for (part, len) in [("a third", 3), ("half", 2), ("all", 1)] {
            let piece = prefix(mark, mark.len() / len);
            let flood = piece.repeat(bytes / piece.len().max(1) + 1);
            add(&format!("{part} of its {what} in text"), renderer.answer(&flood));
            add(&format!("{part} of its {what} in a value"), call("f", "k", &flood));
            add(&format!("{part} of its {what} after its opening"), format!("{open}{flood}"));
        }
        // Half of every tag and token by itself.
        for tag in tags(mark) {
            for len in [tag.len() / 2, tag.len() - 1, tag.len()] {
                let piece = prefix(tag, len);
                let flood = piece.repeat(bytes / piece.len().max(1) + 1);
                add(&format!("{piece:?} in text"), renderer.answer(&flood));
                add(&format!("{piece:?} in a value"), call("f", "k", &flood));
                let flood = format!("{piece} ").repeat(bytes / (piece.len() + 1) + 1);
                add(&format!("{piece:?} and blanks in a value"), call("f", "k", &flood));
                let flood = format!("{piece}\n").repeat(bytes / (piece.len() + 1) + 1);
                add(&format!("{piece:?} and feeds in a value"), call("f", "k", &flood));
            }
            // A close tag that only a distant follower confirms.
            for (what, blank) in BLANKS {
                let unit = format!("{tag}{}", blank.repeat(64));
                add(
                    &format!("{tag:?} and 64 {what} in a value"),
                    call("f", "k", &unit.repeat(bytes / unit.len() + 1)),
                );
            }
        }
    }
    for piece in
        ["<", "[", "{", "]", "}", "`", "\"", "\\", "</", "<|", "\n<", "\n\n", "\u{feff}", "&", ":"]
    {
        let flood = piece.repeat(bytes / piece.len());
        add(&format!("{piece:?} in text"), renderer.answer(&flood));
        add(&format!("{piece:?} in a value"), call("f", "k", &flood));
        add(&format!("{piece:?} after its opening"), format!("{open}{flood}"));
        add(&format!("{piece:?} in the name"), call(&flood, "k", "v"));
        add(&format!("{piece:?} as the key"), call("f", &flood, "v"));
    }

    // Calls that never end.
    let cut = |name: &str, key: &str, until: &str| {
        let text = call(name, key, "v");
        let end = text.find(until).map_or(text.len(), |at| at + until.len());
        text[..end].to_owned()
    };
    add("a name without an end", cut(&long, "k", &long));
    add("a key without an end", cut("f", &long, &long));
    add("garbage after its opening", format!("{open}{}", "x1 ]{\",<|>".repeat(bytes / 10)));

    // Deep nesting.
    let depth = bytes / renderer.nest_bytes();
    add("nested as deep", renderer.call("f", &[("k", renderer.nested(depth))]).text);
    for open in ["[", "{\"a\":", "[{\"a\":"] {
        let deep = open.repeat(bytes / open.len());
        add(
            &format!("{open} without an end"),
            renderer.call("f", &[("k", Value::Json(deep.clone()))]).text,
        );
        add(&format!("{open} in text"), renderer.answer(&deep));
    }
    let nested: String = {
        let Value::Json(nested) = renderer.nested(depth) else { unreachable!("it is JSON") };
        nested.split('1').next().unwrap_or_default().to_owned()
    };
    add("nested without an end", format!("{open}{nested}"));
    // Without names or keys in the format, the inputs do not get longer.
    inputs.retain(|(_, input)| input.len() >= bytes / 2);
    inputs
}

/// Returns the tags and tokens in a text.
fn tags(text: &str) -> Vec<&str> {
    let mut tags: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(['<', '[']) {
        let end = rest[start + 1..].find(['>', ']']).map_or(rest.len(), |end| start + end + 2);
        let tag = &rest[start..end];
        if tag.len() > 2 && tag.len() < 64 && !tags.contains(&tag) {
            tags.push(tag);
        }
        rest = &rest[end..];
    }
    tags
}

/// Returns the first `len` bytes of a text, cut at a character boundary.
fn prefix(text: &str, len: usize) -> &str {
    let mut end = len.clamp(1.min(text.len()), text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    &text[..end]
}

const SMALL: usize = 16 << 10;
const LARGE: usize = 64 << 10;
const RATIO_MAX: f64 = 5.0;
/// How often a ratio that is too high is measured again.
const ROUNDS: usize = 8;
/// A run that takes this long is not noise.
const CLEAR: Duration = Duration::from_millis(500);

const BLANKS: [(&str, &str); 3] =
    [("spaces", " "), ("line feeds", "\n"), ("wide blanks", "\u{a0}")];
