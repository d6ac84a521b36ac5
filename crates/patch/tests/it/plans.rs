//! Plans: the edits, diffs and reports of valid patches, and the errors of invalid ones.

use std::{io, path::Path};

use patch::{ChangeKind, Edit, FileState, Patch, Plan, PlanError, WriteKind};

use crate::memory::{BASE, Memory};

/// Plans `body` over a small tree and compares a one-line sketch of each edit.
#[track_caller]
fn check(body: &str, want: Result<&[&str], &str>) {
    let mut memory = Memory::new([
        ("a", b"a\n".as_slice()),
        ("b", b"b\n".as_slice()),
        ("dir/c", b"c\n".as_slice()),
        ("binary", b"\xFF\n".as_slice()),
    ]);
    let untouched = memory.clone();
    let result = memory.apply(&format!("*** Begin Patch\n{body}*** End Patch\n"));
    match (result, want) {
        (Ok(plan), Ok(want)) => {
            assert_eq!(plan.edits().iter().map(sketch).collect::<Vec<_>>(), want, "{body}");
        }
        (Err(error), Err(want)) => {
            assert!(error.contains(want), "{error}\nlacks {want}");
            assert_eq!(memory, untouched);
        }
        (got, want) => panic!("got {got:?}\nwant {want:?}\n{body}"),
    }
}

fn sketch(edit: &Edit) -> String {
    let name = |path: &Path| path.strip_prefix(BASE).unwrap().to_str().unwrap().replace('\\', "/");
    match edit {
        Edit::Write { path, contents, kind } => {
            let contents = str::from_utf8(contents).unwrap();
            match kind {
                WriteKind::Add => format!("add {} {contents:?}", name(path)),
                WriteKind::Update => format!("update {} {contents:?}", name(path)),
                WriteKind::Move { from } => {
                    format!("move {} to {} {contents:?}", name(from), name(path))
                }
            }
        }
        Edit::Remove { path } => format!("remove {}", name(path)),
    }
}

/// Compares the diffs of the changes.
#[test]
fn diffs() {
    let check = |old: &str, body: &str, want: &str| {
        let mut memory = Memory::new([("f", old.as_bytes())]);
        let plan = memory.apply(&format!("*** Begin Patch\n{body}*** End Patch\n")).unwrap();
        assert_eq!(plan.changes()[0].diff, want, "{body}");
    };
    check("one\ntwo\n", "*** Update File: f\n-one\n+ONE\n", "@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n");
    check("n\n", "*** Update File: f\n-n\n+N\n", "@@ -1 +1 @@\n-n\n+N\n");
    check("n\n", "*** Delete File: f\n", "n\n");
    check("n\n", "*** Add File: g\n+a\n+b\n", "a\nb\n");
    check("", "*** Update File: f\n+a\n", "@@ -0,0 +1 @@\n+a\n");
    check(
        "a",
        "*** Update File: f\n+b\n",
        "@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+b\n",
    );
    let lines = |range: std::ops::Range<usize>| range.map(|n| format!("{n}\n")).collect::<String>();
    check(
        &lines(1..21),
        "*** Update File: f\n-5\n@@\n-12\n+twelve\n@@\n-20\n",
        "@@ -2,14 +2,13 @@\n 2\n 3\n 4\n-5\n 6\n 7\n 8\n 9\n 10\n 11\n-12\n+twelve\n 13\n 14\n 15\n\
         @@ -17,4 +16,3 @@\n 17\n 18\n 19\n-20\n",
    );
    let long = "x\n".repeat(1 << 20);
    check(&long, "*** Delete File: f\n", "");
}

#[test]
fn edits() {
    check("*** Add File: x/../new/y\n+1\n", Ok(&["add new/y \"1\\n\""]));
    check("*** Add File: a\n+1\n", Ok(&["add a \"1\\n\""]));
    check("*** Delete File: ./dir//c\n", Ok(&["remove dir/c"]));
    check("*** Update File: a\n-a\n+A\n", Ok(&["update a \"A\\n\""]));
    check(
        "*** Update File: a\n*** Move to: b\n-a\n+A\n*** Delete File: binary\n",
        Ok(&["move a to b \"A\\n\"", "remove a", "remove binary"]),
    );
}

#[test]
fn refusals() {
    check("*** Update File: nope\n-a\n", Err("cannot update `nope`, which does not exist"));
    check("*** Delete File: nope\n", Err("cannot delete `nope`, which does not exist"));
    check("*** Update File: binary\n-a\n", Err("not UTF-8"));
    for body in [
        "*** Delete File: dir\n",
        "*** Add File: dir\n+x\n",
        "*** Add File: .\n+x\n",
        "*** Update File: dir\n-x\n",
        "*** Update File: a\n*** Move to: dir\n-a\n",
    ] {
        check(body, Err("is a directory"));
    }
    for body in [
        "*** Delete File: a\n*** Add File: a\n+x\n",
        "*** Delete File: a\n*** Delete File: dir/../a\n",
        "*** Update File: b\n*** Move to: ./a\n-b\n*** Delete File: a\n",
        "*** Update File: b\n*** Move to: x\n-b\n*** Update File: a\n*** Move to: x\n-a\n",
        "*** Update File: b\n*** Move to: a\n-b\n*** Update File: a\n*** Move to: b\n-a\n",
    ] {
        check(body, Err("more than one operation targets"));
    }
    check("*** Update File: a\n*** Move to: dir/../a\n-a\n", Err("moved onto itself"));
    check("*** Add File: x\n+1\n*** Add File: x/y/z\n+1\n", Err("lies inside"));
    check("*** Update File: a\n*** Move to: a/b\n-a\n", Err("lies inside"));
    // The last operation fails, so the first one does not happen either.
    check("*** Delete File: a\n*** Update File: b\n-x\n", Err("not found in `b`"));
}

#[test]
fn reports() {
    let mut memory = Memory::new([
        ("d1", b"x\n".as_slice()),
        ("m1", b"x\n".as_slice()),
        ("m2", b"x\n".as_slice()),
    ]);
    let text = "*** Begin Patch\n*** Delete File: d1\n*** Update File: m2\n*** Move to: ./to\n-x\n\
                *** Add File: z\n*** Update File: m1\n-x\n*** Add File: y\n*** End Patch";
    let plan = memory.apply(text).unwrap();
    assert_eq!(
        plan.summary(),
        "Success. Updated the following files:\nA z\nA y\nM ./to\nM m1\nD d1\n"
    );
    let base = Path::new(BASE);
    let changes = plan
        .changes()
        .iter()
        .map(|change| (change.path.strip_prefix(base).unwrap().to_str().unwrap(), change.kind));
    assert_eq!(
        changes.collect::<Vec<_>>(),
        [
            ("d1", ChangeKind::Delete),
            ("m1", ChangeKind::Update),
            ("m2", ChangeKind::Update),
            ("y", ChangeKind::Add),
            ("z", ChangeKind::Add),
        ]
    );
    assert_eq!(plan.changes()[2].moved_to, Some(base.join("to")));
    let touched =
        plan.edits().iter().map(|edit| edit.path().strip_prefix(base).unwrap().to_str().unwrap());
    assert_eq!(touched.collect::<Vec<_>>(), ["d1", "to", "m2", "z", "m1", "y"]);
}

#[test]
fn a_file_that_cannot_be_read() {
    let patch = Patch::parse("*** Begin Patch\n*** Delete File: a\n*** End Patch").unwrap();
    let read = |_: &Path| -> io::Result<FileState> { Err(io::Error::other("locked")) };
    let error = Plan::new(&patch, Path::new(BASE), read).unwrap_err();
    assert!(matches!(error, PlanError::Unreadable { .. }));
    assert_eq!(error.to_string(), "cannot read `a`: locked");
}
