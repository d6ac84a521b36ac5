//! Every document in `tests/data` says what is written beside it. To add one, drop in a `NN_what_it_is.md` and
//! run with `UPDATE=1`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use plans::{Plan, State};

fn check(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let plan = Plan::parse(&*text);
    assert_eq!(plan.text(), text, "{}", path.display());
    let said = said(&plan);
    let beside = path.with_extension("outline");
    if env::var_os("UPDATE").is_some() {
        fs::write(&beside, &said).unwrap();
    }
    let want = fs::read_to_string(&beside).unwrap_or_default();
    assert_eq!(said, want, "{}: UPDATE=1 writes what it says now", path.display());
}

/// Writes an outline and its problems, a line each, with the line of the document.
fn said(plan: &Plan) -> String {
    let mut out = String::new();
    let outline = plan.outline();
    let mut add = |line: usize, text: String| {
        writeln!(out, "{line:>3} {}", text.escape_debug().to_string().replace("\\\"", "\""))
            .unwrap();
    };
    if let Some(it) = &outline.title {
        add(it.span.line, format!("title: {}", it.text));
    }
    if let Some(it) = &outline.purpose {
        add(it.span.line, format!("purpose: {}", it.text));
    }
    for it in &outline.criteria {
        add(it.span.line, format!("criterion: {}{}", state(it.state), it.text));
    }
    if let Some(it) = &outline.status {
        let time = it.time.map_or(String::new(), |time| format!("({time}) "));
        add(it.span.line, format!("status: {time}{}", it.text));
    }
    for it in &outline.steps {
        let time = it.time.map_or(String::new(), |time| format!("({time}) "));
        let indent = "  ".repeat(it.depth);
        let own = state(Some(it.state));
        add(it.span.line, format!("step: {indent}{} {own}{time}{}", it.handle, it.text));
        for evidence in &it.evidence {
            add(it.span.line, format!("  evidence: {evidence}"));
        }
        for unread in &it.unread {
            add(it.span.line, format!("  unread: {unread}"));
        }
    }
    for it in &outline.log {
        let time = it.time.map_or("-".to_owned(), |time| time.to_string());
        let change = it.change.as_ref().map_or(String::new(), |it| format!(" [{it}]"));
        add(it.span.line, format!("log: {time}: {}{change}", it.what));
    }
    for it in &outline.surprises {
        add(it.span.line, format!("surprise: {}", it.text));
    }
    for it in &outline.decisions {
        let time = it.time.map_or("-".to_owned(), |time| time.to_string());
        let reason = it.reason.as_deref().unwrap_or("-");
        add(it.span.line, format!("decision: {time}: {}, because: {reason}", it.what));
    }
    if let Some(it) = &outline.outcome {
        add(it.span.line, format!("outcome: {}", it.text));
    }
    for it in plan.problems() {
        add(it.line, format!("problem: {}", it.kind));
    }
    out
}

fn state(state: Option<State>) -> String {
    match state {
        None => String::new(),
        Some(State::Open) => "[ ] ".to_owned(),
        Some(State::UnderWay) => "[~] ".to_owned(),
        Some(State::Done) => "[x] ".to_owned(),
        Some(State::Dropped) => "[-] ".to_owned(),
        Some(State::Unclear) => "[?] ".to_owned(),
    }
}

#[test]
fn documents_say_what_is_beside_them() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut paths: Vec<_> =
        fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|own| own == "md"));
    paths.sort();
    assert!(paths.len() >= 30);
    paths.iter().for_each(|path| check(path));
}
