//! Patches on real files: what a plan cannot know, and what must not happen half-way.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use policy::SandboxMode::{self, DangerFullAccess, ReadOnly, WorkspaceWrite};
use protocol::call::Payload;
use protocol::item::{ItemBody, Status};

use crate::bench::{Bench, block_on};

/// Applies a patch in a workspace where `a.txt` contains `x`, after `prepare`; returns the text, how the item
/// ended, and every file with its contents.
fn apply(
    mode: SandboxMode,
    prepare: impl Fn(&Path),
    patch: &str,
) -> (String, Option<Status>, String) {
    let mut result = (String::new(), None, String::new());
    block_on(async {
        let bench = Bench::new(mode);
        fs::write(bench.path().join("a.txt"), "x\n").unwrap();
        prepare(bench.path());
        let patch = format!("*** Begin Patch\n{patch}\n*** End Patch");
        let (text, shown) = bench.call(&bench.patch, 1, Payload::Custom(patch)).await;
        let status = match shown.last() {
            Some(ItemBody::FileChange { status, .. }) => Some(*status),
            _ => None,
        };
        result = (text, status, tree(bench.path(), bench.path()));
    });
    result
}

fn tree(root: &Path, directory: &Path) -> String {
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let mut out = String::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if path.is_dir() && !path.is_symlink() {
            out += &format!("{name}/ {}", tree(root, &path));
        } else {
            out += &format!("{name}={} ", fs::read_to_string(&path).unwrap_or_default().trim_end());
        }
    }
    out
}

const UPDATE: &str = "*** Update File: a.txt\n@@\n-x\n+y";

#[track_caller]
fn check(
    mode: SandboxMode,
    prepare: impl Fn(&Path),
    patch: &str,
    want: (&str, Option<Status>, &str),
) {
    let (text, status, files) = apply(mode, prepare, patch);
    let (words, want_status, want_files) = want;
    assert!(text.contains(words), "{text:?} lacks {words:?}");
    assert_eq!((status, files.trim()), (want_status, want_files));
}

#[test]
fn writes_and_refusals() {
    let nothing = |_: &Path| {};
    let done = Some(Status::Completed);
    check(WorkspaceWrite, nothing, UPDATE, ("M a.txt\n", done, "a.txt=y"));
    check(
        WorkspaceWrite,
        nothing,
        "*** Add File: d/e/n\n+1",
        ("A d/e/n\n", done, "a.txt=x d/ d/e/ d/e/n=1"),
    );
    check(WorkspaceWrite, nothing, "*** Delete File: a.txt", ("D a.txt\n", done, ""));
    let moved = "*** Update File: a.txt\n*** Move to: b/c.txt\n@@\n-x\n+y";
    check(WorkspaceWrite, nothing, moved, ("M b/c.txt\n", done, "b/ b/c.txt=y"));
    check(ReadOnly, nothing, UPDATE, ("read-only", None, "a.txt=x"));
    check(WorkspaceWrite, nothing, "*** Add File: ../out\n+1", ("outside", None, "a.txt=x"));
    check(
        WorkspaceWrite,
        nothing,
        "*** Add File: .git/hooks/x\n+1",
        ("stays read-only", None, "a.txt=x"),
    );
    check(
        WorkspaceWrite,
        nothing,
        "*** Update File: no\n@@\n-x\n+y",
        ("verification failed", None, "a.txt=x"),
    );
}

/// What a `.git` refers to is as protected from patches as from commands, whatever its name.
#[test]
fn repositories_behind_files_and_links() {
    type Prepare = fn(&Path);
    let separate: Prepare = |root| {
        fs::create_dir_all(root.join("store/hooks")).unwrap();
        fs::write(root.join("store/config"), "old\n").unwrap();
        fs::write(root.join(".git"), "gitdir: store\n").unwrap();
    };
    let linked: Prepare = |root| {
        fs::create_dir_all(root.join("store/hooks")).unwrap();
        fs::write(root.join("store/config"), "old\n").unwrap();
        symlink("store", root.join(".git")).unwrap();
    };
    let worktree: Prepare = |root| {
        fs::create_dir_all(root.join("store/worktrees/w")).unwrap();
        fs::write(root.join("store/config"), "old\n").unwrap();
        fs::write(root.join("store/worktrees/w/commondir"), "../..\n").unwrap();
        let directory = root.canonicalize().unwrap().join("store/worktrees/w");
        fs::write(root.join(".git"), format!("gitdir: {}\n", directory.display())).unwrap();
    };
    let hooks: Prepare = |root| {
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(root.join("store/hooks")).unwrap();
        fs::write(root.join("store/config"), "old\n").unwrap();
        symlink("../store", root.join(".git/hooks")).unwrap();
    };
    let submodule: Prepare = |root| {
        fs::create_dir_all(root.join(".git/modules/s")).unwrap();
        fs::write(root.join(".git/modules/s/HEAD"), "x").unwrap();
        let config = "[core]\n\tworktree = ../../../store\n";
        fs::write(root.join(".git/modules/s/config"), config).unwrap();
        fs::create_dir(root.join("store")).unwrap();
        fs::write(root.join("store/config"), "old\n").unwrap();
        fs::write(root.join("store/.git"), "gitdir: ../.git/modules/s\n").unwrap();
    };
    let hook = "*** Add File: store/hooks/pre-commit\n+x";
    let config = "*** Update File: store/config\n@@\n-old\n+new";
    let remove = "*** Delete File: store/config";
    let moved = "*** Update File: a.txt\n*** Move to: store/hooks/x\n@@\n-x\n+y";
    for prepare in [separate, linked, worktree, hooks] {
        for patch in [hook, config, remove, moved] {
            let (text, status, files) = apply(WorkspaceWrite, prepare, patch);
            assert!(text.contains("stays read-only"), "{patch}: {text}");
            assert!(status.is_none() && files.contains("store/config=old"), "{patch}: {files}");
            assert!(files.contains("a.txt=x") && !files.contains("pre-commit"), "{patch}: {files}");
        }
        let (text, ..) = apply(WorkspaceWrite, prepare, "*** Add File: stores/x\n+x");
        assert!(text.contains("A stores/x"), "{text}");
    }
    let pointer = "*** Update File: store/.git\n@@\n-gitdir: ../.git/modules/s\n+gitdir: evil";
    let (text, ..) = apply(WorkspaceWrite, submodule, pointer);
    assert!(text.contains("stays read-only"), "{text}");
    let (text, ..) = apply(WorkspaceWrite, submodule, config);
    assert!(text.contains("M store/config"), "{text}");
    let (text, ..) = apply(WorkspaceWrite, |_| {}, "*** Add File: .GIT/hooks/x\n+x");
    assert!(text.contains("stays read-only"), "{text}");
}

#[test]
fn links_are_followed_before_the_decision() {
    let inside = |root: &Path| symlink("a.txt", root.join("l")).unwrap();
    let through = "*** Update File: l\n@@\n-x\n+y";
    check(WorkspaceWrite, inside, through, ("M l\n", Some(Status::Completed), "a.txt=y l=y"));
    // Deleting or moving a link affects the link itself, not its target.
    let gone = ("D l\n", Some(Status::Completed), "a.txt=x");
    check(WorkspaceWrite, inside, "*** Delete File: l", gone);
    let moved = "*** Update File: l\n*** Move to: m\n@@\n-x\n+y";
    check(WorkspaceWrite, inside, moved, ("M m\n", Some(Status::Completed), "a.txt=x m=y"));
    let twice = format!("{UPDATE}\n{through}");
    check(WorkspaceWrite, inside, &twice, ("second name", None, "a.txt=x l=x"));
    let out = |root: &Path| symlink("/etc", root.join("etc")).unwrap();
    let (text, status, _) = apply(WorkspaceWrite, out, "*** Add File: etc/heddle-test\n+1");
    assert!(text.contains("outside") && status.is_none(), "{text}");
    let nowhere = |root: &Path| symlink("/nowhere/x", root.join("l")).unwrap();
    let (text, status, _) = apply(WorkspaceWrite, nowhere, "*** Add File: l\n+1");
    assert!(text.contains("link to a file that does not exist") && status.is_none(), "{text}");
    let into_git = |root: &Path| {
        fs::create_dir(root.join(".git")).unwrap();
        symlink(".git", root.join("g")).unwrap();
    };
    let (text, status, _) = apply(WorkspaceWrite, into_git, "*** Add File: g/config\n+1");
    assert!(text.contains("stays read-only") && status.is_none(), "{text}");
}

#[test]
fn a_failure_on_the_way_undoes_everything() {
    let read_only = |root: &Path| {
        fs::write(root.join("z.txt"), "x\n").unwrap();
        fs::set_permissions(root.join("z.txt"), fs::Permissions::from_mode(0o444)).unwrap();
    };
    let patch = format!("*** Add File: new/n\n+1\n{UPDATE}\n*** Update File: z.txt\n@@\n-x\n+y");
    let want = ("nothing was changed", Some(Status::Failed), "a.txt=x z.txt=x");
    check(DangerFullAccess, read_only, &patch, want);
    // The same after files have been swapped in: the second file cannot be removed, because its directory is
    // read-only. (Not as root, who ignores modes.)
    let locked = |root: &Path| {
        fs::create_dir(root.join("locked")).unwrap();
        fs::write(root.join("locked/f"), "x\n").unwrap();
        fs::set_permissions(root.join("locked"), fs::Permissions::from_mode(0o555)).unwrap();
    };
    let patch = format!("*** Add File: new/n\n+1\n{UPDATE}\n*** Delete File: locked/f");
    let (text, status, files) = apply(DangerFullAccess, locked, &patch);
    if status == Some(Status::Failed) {
        assert!(text.contains("nothing was changed"), "{text}");
        assert_eq!(files.trim(), "a.txt=x locked/ locked/f=x");
    }
}

#[test]
fn a_moved_file_keeps_its_mode() {
    block_on(async {
        let bench = Bench::new(WorkspaceWrite);
        fs::write(bench.path().join("a.txt"), "x\n").unwrap();
        fs::set_permissions(bench.path().join("a.txt"), fs::Permissions::from_mode(0o750)).unwrap();
        let patch =
            "*** Begin Patch\n*** Update File: a.txt\n*** Move to: b\n@@\n-x\n+y\n*** End Patch";
        bench.call(&bench.patch, 1, Payload::Custom(patch.into())).await;
        assert_eq!(fs::metadata(bench.path().join("b")).unwrap().mode() & 0o777, 0o750);
    });
}

/// What a model wrote must not run with the rights of the file's owner.
#[test]
fn rights_to_run_as_the_owner_are_dropped() {
    for linked in [false, true] {
        block_on(async {
            let bench = Bench::new(WorkspaceWrite);
            let file = bench.path().join("a.txt");
            fs::write(&file, "x\n").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
            if linked {
                fs::hard_link(&file, bench.path().join("b.txt")).unwrap();
            }
            let patch = format!("*** Begin Patch\n{UPDATE}\n*** End Patch");
            let (text, _) = bench.call(&bench.patch, 1, Payload::Custom(patch)).await;
            assert!(text.contains("Success"), "{text}");
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o755, "linked: {linked}");
        });
    }
}

#[test]
fn mode_owner_and_other_names_are_kept() {
    block_on(async {
        let bench = Bench::new(WorkspaceWrite);
        let (file, other) = (bench.path().join("a.txt"), bench.path().join("b.txt"));
        fs::write(&file, "x\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        fs::hard_link(&file, &other).unwrap();
        let before = fs::metadata(&file).unwrap();
        let patch = format!("*** Begin Patch\n{UPDATE}\n*** End Patch");
        let (text, _) = bench.call(&bench.patch, 1, Payload::Custom(patch)).await;
        assert!(text.contains("Success"), "{text}");
        let after = fs::metadata(&file).unwrap();
        assert_eq!(
            (after.mode(), after.uid(), after.ino()),
            (before.mode(), before.uid(), before.ino())
        );
        assert_eq!(fs::read_to_string(&other).unwrap(), "y\n");
        assert_eq!(tree(bench.path(), bench.path()), "a.txt=y b.txt=y ");
    });
}
