//! Edits change the lines that they say, in the form of what stands around them.

use std::fs;
use std::path::Path;

use plans::{
    Digest, Edit, EditError, Evidence, Plan, StepError, TEXT_BYTES_MAX, TextError, template,
};

use crate::{command, time};

/// Applies an edit and compares the lines that went (`-`) and came (`+`), with their endings but for `\n`.
#[track_caller]
fn check(text: &str, edit: &Edit, want: &[&str]) -> Plan {
    let plan = Plan::parse(text);
    let change = plan.apply(edit).unwrap();
    let mut at = 0;
    let mut put = String::new();
    for splice in &change.splices {
        put.push_str(&text[at..splice.range.start]);
        put.push_str(&splice.text);
        at = splice.range.end;
    }
    put.push_str(&text[at..]);
    assert_eq!(put, change.plan.text());
    assert_eq!(differences(text, &put), want, "{put}");
    // The same once more changes nothing, but for steps, which are refused.
    if let Ok(again) = change.plan.apply(edit) {
        assert_eq!(again.plan.text(), put);
        assert!(again.splices.is_empty());
    }
    change.plan
}

/// The lines in which two texts differ: by the longest sequence that they share.
fn differences(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<_>, Vec<_>) =
        (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let mut shared = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            shared[i][j] = if old[i] == new[j] {
                shared[i + 1][j + 1] + 1
            } else {
                i32::max(shared[i + 1][j], shared[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        let line =
            |mark: &str, line: &str| format!("{mark}{}", line.strip_suffix('\n').unwrap_or(line));
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || shared[i + 1][j] >= shared[i][j + 1]) {
            out.push(line("-", old[i]));
            i += 1;
        } else {
            out.push(line("+", new[j]));
            j += 1;
        }
    }
    out
}

#[track_caller]
fn check_refused(text: &str, edit: &Edit, want: &EditError) {
    assert_eq!(
        Plan::parse(text).apply(edit).map(|change| change.plan.to_string()),
        Err(want.clone())
    );
}

fn tick(step: &str, evidence: &[Evidence]) -> Edit {
    Edit::Tick { step: step.into(), evidence: evidence.to_vec() }
}

fn untick(step: &str) -> Edit {
    Edit::Untick { step: step.into(), reason: "it broke again".into() }
}

fn add(after: Option<&str>, text: &str) -> Edit {
    Edit::AddStep { after: after.map(str::to_owned), text: text.into() }
}

fn log(what: &str) -> Edit {
    Edit::Log { time: time("2026-07-01 08:00Z"), what: what.into(), change: Some("1f2e3d".into()) }
}

fn decide(what: &str) -> Edit {
    Edit::Decide { time: time("2026-07-01"), what: what.into(), reason: "it is simpler".into() }
}

fn surprise(what: &str) -> Edit {
    Edit::Surprise { what: what.into() }
}

fn status(text: &str) -> Edit {
    Edit::Status { time: time("2026-07-01 08:00Z"), text: text.into() }
}

fn finish(outcome: &str) -> Edit {
    Edit::Finish { outcome: outcome.into() }
}

fn document(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    fs::read_to_string(data.join(name).with_extension("md")).unwrap()
}

#[test]
fn ticks() {
    let done = command("true");
    let file = Evidence::File { path: "a.md".into(), digest: Digest([0xab; 32]) };
    let digest = "ab".repeat(32);
    let own = document("01_own_form");
    check(
        &own,
        &tick("publish", &[done.clone(), file]),
        &[
            "-- [ ] publish the numbers",
            "+- [x] publish the numbers",
            "+  - evidence: `true` exits 0",
            &format!("+  - evidence: `a.md` sha256 `{digest}`"),
        ],
    );
    // Evidence that is there is replaced, and what else is below a step stays.
    check(
        &own,
        &tick("#3", std::slice::from_ref(&done)),
        &[
            "-    - evidence: `cargo test -p importer cache` exits 0",
            &format!(
                "-    - evidence: `docs/cache.md` sha256 `{}`",
                "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
            ),
            "+    - evidence: `true` exits 0",
        ],
    );
    let exec = document("02_exec_plan");
    check(
        &exec,
        &tick("delete the old", std::slice::from_ref(&done)),
        &[
            "-- [ ] Delete the old entry points.",
            "+- [x] Delete the old entry points.",
            "+  - evidence: `true` exits 0",
        ],
    );
    // Tables have evidence in the column of the state.
    check(
        &document("04_state_table"),
        &tick("4", &[command("a | b"), done.clone()]),
        &[
            "-| 4 | starvation at 64 workers | open |",
            "+| 4 | starvation at 64 workers | done: `a \\| b` exits 0; `true` exits 0 |",
        ],
    );
    check(
        &document("31_status_columns"),
        &tick("bsd", std::slice::from_ref(&done)),
        &["-| bsd | Cy |", "+| bsd | Cy | done: `true` exits 0 |"],
    );
    check(
        &document("31_status_columns"),
        &tick("mac", std::slice::from_ref(&done)),
        &["-| mac | Bo | ⏳ |", "+| mac | Bo | ✅: `true` exits 0 |"],
    );
    check(
        &document("10_emoji"),
        &tick("payments", std::slice::from_ref(&done)),
        &["-- ⬜ payments", "+- ✅ payments", "+  - evidence: `true` exits 0"],
    );
    // The first tick makes checkboxes of a plain list.
    check(
        &document("07_numbered_plain"),
        &tick("2", std::slice::from_ref(&done)),
        &[
            "-1. Freeze the branch",
            "-2. Build the packages",
            "+1. [ ] Freeze the branch",
            "+2. [x] Build the packages",
            "-3. Sign them",
            "-4. Upload",
            "+   - evidence: `true` exits 0",
            "+3. [ ] Sign them",
            "+4. [ ] Upload",
        ],
    );
    // Line endings, tabs and a missing line end are those of the document.
    check(
        &document("14_crlf"),
        &tick("installer", std::slice::from_ref(&done)),
        &["-- [ ] installer\r", "+- [x] installer\r", "+  - evidence: `true` exits 0\r"],
    );
    check(
        &document("15_tabs"),
        &tick("sitemaps", std::slice::from_ref(&done)),
        &["-\t-\t[ ] sitemaps", "+\t-\t[x] sitemaps", "+\t\t- evidence: `true` exits 0"],
    );
    check(
        &document("30_no_newline_at_end"),
        &tick("1", std::slice::from_ref(&done)),
        &["-- [ ] only one", "+- [x] only one", "+  - evidence: `true` exits 0"],
    );
    // Evidence of a line of text is replaced as well.
    check(
        &document("29_stale_status"),
        &tick("1", std::slice::from_ref(&done)),
        &[
            "-  Evidence: `test ! -e old` exits 0",
            "-  and `cargo check` exits 0",
            "+  - evidence: `true` exits 0",
        ],
    );
}

#[test]
fn ticks_are_taken_back() {
    check(
        &document("01_own_form"),
        &untick("measure"),
        &[
            "-- [x] measure where the time goes",
            "-  - evidence: `bench/import.sh --profile` exits 0",
            "+- [ ] measure where the time goes",
            "+  - unticked: it broke again",
        ],
    );
    check(
        &document("04_state_table"),
        &untick("2, 3"),
        &[
            "-| 2, 3 | two jobs with one name: `a\\|b` | done: `cargo test -p scheduler names` exits 0 |",
            "+| 2, 3 | two jobs with one name: `a\\|b` | open: it broke again |",
        ],
    );
}

#[test]
fn steps_are_added() {
    let own = document("01_own_form");
    check(&own, &add(None, "tell people"), &["+- [ ] tell people"]);
    check(&own, &add(Some("write the cache"), "bound it"), &["+  - [ ] bound it"]);
    // Behind a step is behind all that is below it.
    let plan = check(&own, &add(Some("2"), "between"), &["+- [ ] between"]);
    assert_eq!(plan.steps()[4].text, "between");
    check(&document("02_exec_plan"), &add(None, "Say so."), &["+- [ ] Say so."]);
    check(&document("04_state_table"), &add(None, "a | b"), &["+| 9 | a \\| b | open |"]);
    check(&document("04_state_table"), &add(Some("4"), "c"), &["+| 4a | c | open |"]);
    check(&document("08_numbered_boxes"), &add(None, "rest"), &["+11. [ ] rest"]);
    check(&document("07_numbered_plain"), &add(None, "rest"), &["+5. rest"]);
    check(&document("15_tabs"), &add(Some("robots"), "x"), &["+\t- [ ] x"]);
    check(&document("20_setext"), &add(Some("lay"), "x"), &["+* [ ] x", "+"]);
    check(&document("12_empty"), &add(None, "x"), &["+## Steps", "+", "+- [ ] x"]);
    let new = template("New", time("2026-07-01")).unwrap();
    check(&new, &add(None, "x"), &["+- [ ] x", "+"]);
    check("# A\n\n## Steps\n## Log\n", &add(None, "x"), &["+", "+- [ ] x", "+"]);
    check(
        "# A\n\n## Steps\n\n| what | state |\n| --- | --- |\n",
        &add(None, "x"),
        &["+| x | open |"],
    );
}

#[test]
fn entries_are_added() {
    let own = document("01_own_form");
    check(&own, &log("went on"), &["+| 2026-07-01 | 08:00Z | went on | 1f2e3d |"]);
    check(&own, &decide("stop"), &["+- 2026-07-01: stop", "+  - reason: it is simpler"]);
    check(&own, &surprise("it rains"), &["+- it rains"]);
    check(&own, &finish("It works."), &["-Not finished yet.", "+- It works."]);
    check(
        &own,
        &status("nearly there"),
        &[
            "-Status: (2026-03-04 16:20Z) the cache is in, numbers are missing",
            "+Status: (2026-07-01 08:00Z) nearly there",
        ],
    );
    // Documents of others are written to in their own form.
    let exec = document("02_exec_plan");
    check(
        &exec,
        &decide("stop"),
        &["+- Decision: stop", "+  Rationale: it is simpler", "+  Date/Author: 2026-07-01"],
    );
    check(&exec, &surprise("it rains"), &["+- Observation: it rains"]);
    check(&exec, &finish("It works."), &["-(None yet.)", "+- It works."]);
    // Its progress has the steps, so the log is a section of its own.
    check(
        &exec,
        &log("went on"),
        &["+", "+## Progress log", "+", "+- 2026-07-01 08:00Z: went on", "+  - change: 1f2e3d"],
    );
    check(&exec, &status("half"), &["+Status: (2026-07-01 08:00Z) half", "+"]);
    check(
        &document("03_exec_plan_empty"),
        &decide("stop"),
        &["-(None yet.)", "+- 2026-07-01: stop", "+  - reason: it is simpler"],
    );
    let table = document("04_state_table");
    check(
        &table,
        &status("all in"),
        &[
            "-State: the first two are in, and the third waits",
            "-for a machine with more cores.",
            "+State: (2026-07-01 08:00Z) all in",
        ],
    );
    check(
        &table,
        &log("x"),
        &["+## Progress log", "+", "+- 2026-07-01 08:00Z: x", "+  - change: 1f2e3d", "+"],
    );
    check(&document("05_legend_and_boxes"), &status("x"), &["+Status: (2026-07-01 08:00Z) x", "+"]);
    check(
        &document("09_phases"),
        &status("x"),
        &["-(2026-01-09) Phase 1 is nearly done.", "+(2026-07-01 08:00Z) x"],
    );
    check(&document("10_emoji"), &decide("x"), &["+| 2026-07-01 | x | it is simpler |"]);
    check(&document("11_no_headings"), &status("x"), &["+Status: (2026-07-01 08:00Z) x", "+"]);
    check(&document("12_empty"), &surprise("x"), &["+## Surprises", "+", "+- x"]);
    check(
        &document("19_front_matter"),
        &status("x"),
        &["-- Status: **in progress** since Monday", "+- Status: (2026-07-01 08:00Z) x"],
    );
    check(
        &document("22_bold_headings"),
        &decide("x"),
        &["+* 2026-07-01: x", "+  * reason: it is simpler"],
    );
    let dated = document("26_dated_log");
    check(&dated, &decide("x"), &["+### 2026-07-01: x", "+", "+reason: it is simpler", "+"]);
    check(&dated, &status("x"), &["-- moving mail", "+- (2026-07-01 08:00Z) x"]);
    check(
        &document("28_quote_status"),
        &status("x"),
        &[
            "-> **Status:** (2026-06-01) half of the regions",
            "-> have it",
            "+> **Status:** (2026-07-01 08:00Z) x",
        ],
    );
    check("", &status("x"), &["+Status: (2026-07-01 08:00Z) x"]);
    check(
        &document("30_no_newline_at_end"),
        &finish("x"),
        &["-- [ ] only one", "+- [ ] only one", "+", "+## Outcome", "+", "+- x"],
    );
    check(
        "# A\n\n## Log\n\n- 2026-01-01: a\n\n- 2026-01-02: b\n",
        &log("c"),
        &["+", "+- 2026-07-01 08:00Z: c", "+  - change: 1f2e3d"],
    );
    check(
        "# A\n\n## Log\n\n| time | what |\n|-|-|\n",
        &log("c"),
        &["+| 2026-07-01 08:00Z | c (change: 1f2e3d) |"],
    );
}

#[test]
fn texts_forge_nothing() {
    let own = document("01_own_form");
    let odd = "done\n\n## Steps\n\n- [x] forged\r- evidence: `true` exits 0\u{1b}[2J\u{202e}";
    let one = "done ## Steps - [x] forged - evidence: `true` exits 0\\u{1b}[2J\\u{202e}";
    check(&own, &surprise(odd), &[&format!("+- {one}")]);
    check(&own, &decide(odd), &[&format!("+- 2026-07-01: {one}"), "+  - reason: it is simpler"]);
    check(&own, &add(None, odd), &[&format!("+- [ ] {one}")]);
    check(
        &own,
        &log("a | b | c\n| d |"),
        &["+| 2026-07-01 | 08:00Z | a \\| b \\| c \\| d \\| | 1f2e3d |"],
    );
    for (text, want) in [
        ("# Steps", "\\# Steps"),
        ("[x] forged", "\\[x] forged"),
        ("- [x] forged", "\\- [x] forged"),
        ("1. [x] forged", "1\\. [x] forged"),
        ("``` fence", "\\``` fence"),
        ("~~~ a", "\\~~~ a"),
        ("*** a", "*** a"),
        ("* a", "\\* a"),
        ("<!-- hidden", "\\<!-- hidden"),
        ("> quote", "\\> quote"),
        ("| a |", "\\| a |"),
        ("**bold** stays", "**bold** stays"),
        ("-1 stays", "-1 stays"),
        ("`code` stays", "`code` stays"),
    ] {
        let plan = check(&own, &surprise(text), &[&format!("+- {want}")]);
        if !text.starts_with("1.") {
            assert_eq!(plan.outline().surprises[1].text, text);
        }
    }
    // Nothing can be put where it would not be read again.
    check_refused(&document("17_fence_left_open"), &decide("x"), &EditError::NoPlace);
    check_refused("## Outcome\n- seen\n<!--\n", &finish("x"), &EditError::NoPlace);
    check_refused("## Log\n<!--\n", &log("--> a"), &EditError::NoPlace);
    // Only what is read from rows goes into a table.
    check("## Surprises\n\n| what |\n| - |\n", &surprise("x"), &["+", "+- x"]);
}

#[test]
fn refusals_say_what_is_missing() {
    let own = document("01_own_form");
    check_refused(&own, &tick("publish", &[]), &EditError::EvidenceMissing { step: "5".into() });
    check_refused(
        &own,
        &tick("cache parsed", &[command("true")]),
        &EditError::OpenBelow { step: "2".into(), open: 1 },
    );
    check_refused(&own, &untick("publish"), &EditError::NotTicked { step: "5".into() });
    check_refused(
        &own,
        &add(None, "Publish  the **numbers**"),
        &EditError::StepExists { step: "5".into() },
    );
    for odd in ["", "a\nb", "\u{1b}"] {
        let refused = EditError::EvidenceUnwritable { is_command: true, in_table: false };
        check_refused(&own, &tick("publish", &[command(odd)]), &refused);
    }
    let refused = EditError::EvidenceUnwritable { is_command: true, in_table: true };
    check_refused(&document("04_state_table"), &tick("4", &[command("grep 'a\\|b' c")]), &refused);
    for (text, source) in
        ["", " \n\t", "---", "None yet.", "n/a"].map(|text| (text, TextError::Empty))
    {
        check_refused(&own, &surprise(text), &EditError::Text { field: "text", source });
    }
    let bytes = TEXT_BYTES_MAX + 1;
    let long = EditError::Text { field: "text", source: TextError::TooLong { bytes } };
    check_refused(&own, &surprise(&"a".repeat(bytes)), &long);
    check(
        &own,
        &surprise(&"a".repeat(TEXT_BYTES_MAX)),
        &[&format!("+- {}", "a".repeat(TEXT_BYTES_MAX))],
    );
}

#[test]
fn steps_are_found_by_number_and_by_text() {
    #[track_caller]
    fn check(text: &str, name: &str, want: Result<usize, Option<&[&str]>>) {
        let got = Plan::parse(text).step(name).map_err(|error| match error {
            StepError::Missing { .. } => None,
            StepError::Ambiguous { candidates, .. } => {
                Some(candidates.into_iter().map(|it| it.handle).collect::<Vec<_>>())
            }
        });
        let want =
            want.map_err(|want| want.map(|it| it.iter().map(|it| (*it).to_owned()).collect()));
        assert_eq!(got, want, "{name}");
    }
    let stones = document("19_front_matter");
    check(&stones, "1", Ok(0));
    check(&stones, " 3 ", Ok(2));
    check(&stones, "M1", Ok(0));
    check(&stones, "m1 words", Ok(0));
    check(&stones, "m", Err(Some(&["1", "2", "3"])));
    check(&stones, "#2", Ok(1));
    for missing in ["4", "#0", "#4", "typos", "", "  ", "**"] {
        check(&stones, missing, Err(None));
    }
    // The document's own numbers count before places.
    let table = document("04_state_table");
    check(&table, "4", Ok(2));
    check(&table, "8a", Ok(3));
    check(&table, "#4", Ok(3));
    check(&table, "2, 3", Ok(1));
    // Numbers that several steps have say nothing.
    let phases = document("09_phases");
    check(&phases, "#3", Ok(2));
    check(&phases, "invoices", Ok(2));
    let many: String = (0..50).map(|_| "- [ ] same\n").collect();
    let handles: Vec<_> = (1..=10).map(|at| at.to_string()).collect();
    let handles: Vec<_> = handles.iter().map(String::as_str).collect();
    check(&many, "same", Err(Some(&handles)));
}

#[test]
fn a_new_plan_asks_for_what_has_to_be_said() {
    let plan = Plan::parse(template("Small\nsteps", time("2026-07-01 08:00Z")).unwrap());
    assert_eq!(plan.outline().title.as_ref().unwrap().text, "Small steps");
    assert_eq!(plan.outline().log.len(), 1);
    let problems: Vec<_> = plan.problems().iter().map(|it| it.kind.to_string()).collect();
    let asked = ["Purpose", "Success criteria", "Steps"];
    assert_eq!(problems, asked.map(|it| format!("nothing is said under a heading like `{it}`")));
    assert_eq!(template("\n", time("2026-07-01")), Err(TextError::Empty));
}

#[test]
fn edits_are_read_from_the_arguments_of_a_call() {
    #[track_caller]
    fn check(json: &str, want: Option<Edit>) {
        let got = serde_json::from_str::<Edit>(json);
        assert_eq!(got.as_ref().ok(), want.as_ref(), "{json}: {got:?}");
    }
    let arguments =
        r#"{"op":"tick","step":"1","evidence":[{"kind":"command","command":"true","exit":0}]}"#;
    check(arguments, Some(tick("1", &[command("true")])));
    check(r#"{"op":"tick","step":"1"}"#, Some(tick("1", &[])));
    check(r#"{"op":"add_step","text":"a"}"#, Some(add(None, "a")));
    check(
        r#"{"op":"log","time":"2026-07-01T08:00:00Z","what":"a","change":"1f2e3d"}"#,
        Some(log("a")),
    );
    check(r#"{"op":"log","time":"today","what":"a"}"#, None);
    check(
        r#"{"op":"tick","step":"1","evidence":[{"kind":"file","path":"a","digest":"12ab"}]}"#,
        None,
    );
    check(r#"{"op":"tick","step":"1","force":true}"#, None);
    check(r#"{"op":"rewrite","text":"a"}"#, None);
}
