//! Properties that hold for every input: no panic, generated changes apply, and large inputs finish quickly.

use std::path::Path;

use patch::{Patch, Plan, extract};
use proptest::prelude::*;

use crate::memory::{BASE, Memory};

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in any::<String>()) {
        let _ = Patch::parse(&text);
        let _ = extract(&text);
    }

    #[test]
    fn any_lines_are_planned_or_refused(
        lines in prop::collection::vec(document_line(), 0..24),
        file in file_text(),
    ) {
        let memory = Memory::new([("a", file.as_bytes()), ("d/b", b"\xFF\n")]);
        let body = lines.concat();
        for text in [format!("*** Begin Patch\n{body}*** End Patch"), body] {
            if let Ok(patch) = Patch::parse(&text) {
                let _ = Plan::new(&patch, Path::new(BASE), |path| memory.read(path));
            }
        }
    }

    #[test]
    fn any_script_is_extracted_or_left(parts in prop::collection::vec(script_part(), 0..12)) {
        let _ = extract(&parts.concat());
    }

    #[test]
    fn a_generated_patch_produces_the_new_text(
        mut old in prop::collection::vec("[ab \t“–]{0,3}", 0..30),
        edits in prop::collection::vec(edit(), 0..30),
        ending in prop::sample::select(&["\n", "\r\n"]),
        context in 0..4_usize,
        unique in any::<bool>(),
        cut_end in any::<bool>(),
    ) {
        if unique {
            old.iter_mut().zip(0..).for_each(|(line, number): (_, usize)| *line += &format!("{number}"));
        }
        let Generated { body, new } = generate(&old, &edits, context, unique);
        prop_assume!(!body.is_empty());
        let join = |lines: &[String]| lines.iter().map(|l| format!("{l}{ending}")).collect::<String>();
        let mut memory = Memory::new([("f", join(&old).as_bytes())]);
        let text = format!("*** Begin Patch\n*** Update File: f\n{body}*** End Patch\n");
        // The last line of a file may lack its ending.
        let mut before = join(&old);
        let cut_end = cut_end && old.last().is_some_and(|last| !last.is_empty());
        if cut_end {
            before.truncate(before.len() - ending.len());
            memory = Memory::new([("f", before.as_bytes())]);
        }
        let plan = memory.apply(&text);
        let plan = plan.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let got = String::from_utf8(memory.0[&Path::new(BASE).join("f")].clone()).unwrap();
        // An empty file has no ending to follow.
        let want = if old.is_empty() { join(&new).replace("\r\n", "\n") } else { join(&new) };
        let diff = &plan.changes()[0].diff;
        prop_assert_eq!(&undiff(&before, diff), &got, "{}", diff);
        if !cut_end {
            prop_assert_eq!(got, want, "{}", text);
        }
    }
}

/// Applies a unified diff as strictly as any tool does.
fn undiff(old: &str, diff: &str) -> String {
    let old: Vec<_> = old.split_inclusive('\n').collect();
    let (mut at, mut new, mut new_lines) = (0, String::new(), 0);
    let mut lines = diff.split_inclusive('\n').peekable();
    while let Some(head) = lines.next() {
        let ranges = head.strip_prefix("@@ -").unwrap().strip_suffix(" @@\n").unwrap();
        let (before, after) = ranges.split_once(" +").unwrap();
        let range = |text: &str| match text.split_once(',') {
            Some((from, count)) => (from.parse::<usize>().unwrap(), count.parse().unwrap()),
            None => (text.parse().unwrap(), 1),
        };
        let ((from, count), (new_from, new_count)) = (range(before), range(after));
        let start = if count == 0 { from } else { from - 1 };
        old[at..start].iter().for_each(|line| new.push_str(line));
        new_lines += start - at;
        at = start;
        assert_eq!(new_lines, if new_count == 0 { new_from } else { new_from - 1 }, "{diff}");
        let ends = (at + count, new_lines + new_count);
        while lines.peek().is_some_and(|line| !line.starts_with("@@ ")) {
            let mut line = lines.next().unwrap().to_owned();
            if lines.next_if_eq(&"\\ No newline at end of file\n").is_some() {
                line.pop();
            }
            let (mark, text) = line.split_at(1);
            if mark != "+" {
                assert_eq!(old[at], text, "{diff}");
                at += 1;
            }
            if mark != "-" {
                new.push_str(text);
                new_lines += 1;
            }
        }
        assert_eq!((at, new_lines), ends, "{diff}");
    }
    old[at..].iter().for_each(|line| new.push_str(line));
    new
}

/// Sizes at which anything quadratic would not finish in time.
#[test]
fn large_inputs_finish() {
    const LINES: usize = 100_000;
    let blanks = " \n".repeat(LINES);
    // Half a file of blank lines and then one that is not there: every start nearly matches.
    check_flood(&blanks, &format!("@@\n{}-x\n", " \n".repeat(LINES / 2)), false);
    check_flood(&format!("x\n{blanks}"), &format!("@@\n{}-x\n", " \n".repeat(LINES / 2)), false);
    check_flood(&blanks, &format!("@@\n{}-\n", " \n".repeat(LINES - 1)), true);
    // Every chunk needs a loose match right below the one before it.
    check_flood(&"x \n".repeat(LINES), &"@@\n-x\n+y\n".repeat(LINES), true);
    check_flood(&format!("x\n{}", " x\n".repeat(LINES)), &"@@\n-x\n+y\n".repeat(LINES), true);
    check_flood(&"x\n".repeat(LINES), &"@@ x\n+y\n".repeat(LINES), true);
    // Long blank lines, in the file and in the patch.
    let long = " ".repeat(20 * LINES);
    check_flood(&format!("{long}x{long}\n"), &format!("-{long}{long}x\n"), true);
    check_flood(&long, &format!("-{long}x\n"), false);
    check_flood("x\n", &format!("{}-x\n", "\n".repeat(LINES)), true);
    check_flood("x\n", &format!("-x\n{}", "\n".repeat(LINES)), true);
}

#[track_caller]
fn check_flood(file: &str, body: &str, applies: bool) {
    let mut memory = Memory::new([("f", file.as_bytes())]);
    let text = format!("*** Begin Patch\n*** Update File: f\n{body}*** End Patch\n");
    let result = memory.apply(&text);
    assert_eq!(result.is_ok(), applies, "{:?}", result.err());
    assert!(result.err().is_none_or(|error| error.len() < 20_000), "the error is a flood too");
}

/// What happens to one line of the old text.
#[derive(Debug, Clone)]
enum LineEdit {
    Keep,
    Remove,
    InsertAbove(String),
    Replace(String),
}

fn edit() -> impl Strategy<Value = LineEdit> {
    prop_oneof![
        4 => Just(LineEdit::Keep),
        1 => Just(LineEdit::Remove),
        1 => "[abc “\t]{0,3}".prop_map(LineEdit::InsertAbove),
        1 => "[abc “\t]{0,3}".prop_map(LineEdit::Replace),
    ]
}

/// Returns the body of an update and the new text.
///
/// If every line is `unique`, only lines within `context` of an edit are included. Otherwise a chunk could
/// match an earlier place, so all lines are included, in chunks without gaps.
fn generate(old: &[String], edits: &[LineEdit], context: usize, unique: bool) -> Generated {
    let edit_of = |place: usize| edits.get(place).unwrap_or(&LineEdit::Keep);
    let is_near = |place: usize| {
        (place.saturating_sub(context)..=place + context)
            .any(|near| near < old.len() && !matches!(edit_of(near), LineEdit::Keep))
    };
    let (mut body, mut new, mut kept, mut gap) = (String::new(), Vec::new(), 0, false);
    for (place, line) in old.iter().enumerate() {
        if unique && !is_near(place) {
            new.push(line.clone());
            gap = true;
            continue;
        }
        if gap || kept > context {
            body += "@@\n";
            (gap, kept) = (false, 0);
        }
        match edit_of(place) {
            LineEdit::Keep => {
                body += &format!(" {line}\n");
                new.push(line.clone());
                kept += 1;
            }
            LineEdit::Remove => body += &format!("-{line}\n"),
            LineEdit::InsertAbove(text) => {
                body += &format!("+{text}\n {line}\n");
                new.extend([text.clone(), line.clone()]);
            }
            LineEdit::Replace(text) => {
                body += &format!("-{line}\n+{text}\n");
                new.push(text.clone());
            }
        }
    }
    let appended = edits.iter().skip(old.len()).filter_map(|edit| match edit {
        LineEdit::InsertAbove(text) | LineEdit::Replace(text) => Some(text),
        LineEdit::Keep | LineEdit::Remove => None,
    });
    for text in appended {
        body += if gap { "@@\n" } else { "" };
        body += &format!("+{text}\n");
        new.push(text.clone());
        gap = false;
    }
    Generated { body, new }
}

struct Generated {
    body: String,
    new: Vec<String>,
}

fn document_line() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(&[
        "*** Add File: a\n",
        "*** Add File: n\n",
        "*** Delete File: a\n",
        "*** Delete File: d\n",
        "*** Update File: a\n",
        "*** Update File: d/b\n",
        "*** Update File: x/../a\n",
        "*** Move to: b\n",
        "*** Move to: a/c\n",
        "*** End of File\n",
        "@@\n",
        "@@ x\n",
        "@@ é\n",
        " x\n",
        "-x\n",
        "+x\n",
        "-é\n",
        " \n",
        "\n",
        "+\n",
        "\r\n",
        "*** End Patch\n",
        "<<EOF\n",
    ])
    .prop_map(str::to_owned);
    prop_oneof![12 => fixed, 1 => any::<String>()]
}

fn file_text() -> impl Strategy<Value = String> {
    prop_oneof!["[xé \r\n]{0,20}", any::<String>()]
}

fn script_part() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(&[
        "cd ",
        "a ",
        "&& ",
        "apply_patch ",
        "<<",
        "'EOF'",
        "EOF",
        "\n",
        "'",
        "\"",
        "\\",
        "$",
        "*** Begin Patch\n",
        "é",
    ])
    .prop_map(str::to_owned);
    prop_oneof![12 => fixed, 1 => any::<String>()]
}
