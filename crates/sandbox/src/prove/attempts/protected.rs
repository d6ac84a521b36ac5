//! Read-only names directly inside a writable root, and heddle's own home.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::super::sys::{Outcome, Refused, call, own, text};
use super::{Attempt, forbid, shell};
use crate::Level;

pub(super) const TABLE: &[Attempt] = &[
    forbid("git-new-hook", "add a hook to the repository", |ground| {
        write(ground.work(".git/hooks/post-checkout"))
    }),
    forbid("git-old-hook", "change a hook of the repository", |ground| {
        write(ground.work(".git/hooks/pre-commit"))
    }),
    forbid("git-config", "change the settings of the repository", |ground| {
        shell(ground, "/bin/sh", "printf '[core]\\n\\tpager = x\\n' >> \"$W/.git/config\"")?;
        Ok("the shell wrote it".into())
    }),
    forbid("git-remove", "remove the repository", |ground| {
        fs::remove_dir_all(ground.work(".git"))?;
        Ok("removed".into())
    }),
    forbid("git-chmod", "change the permissions of the repository", |ground| {
        fs::set_permissions(ground.work(".git"), Permissions::from_mode(0o777))?;
        Ok("changed".into())
    }),
    forbid("git-rename-away", "rename the repository", |ground| {
        fs::rename(ground.work(".git"), ground.work("moved"))?;
        Ok("renamed".into())
    }),
    forbid("git-rename-over", "swap the repository with another directory", |ground| {
        exchange(&ground.work("spare"), &ground.work(".git"))
    }),
    forbid("git-through-symlink", "write through a symbolic link to the repository", |ground| {
        write(ground.work("git-way/hooks/post-checkout"))
    }),
    forbid("git-hard-link", "link a file of the repository, and write the link", |ground| {
        fs::hard_link(ground.work(".git/config"), ground.work("config"))?;
        write(ground.work("config"))
    }),
    forbid("git-from-directory", "write by an open directory of the repository", |ground| {
        let directory = File::open(ground.work(".git/hooks"))?;
        let flags = libc::O_CREAT | libc::O_WRONLY;
        own(call!(libc::SYS_openat, directory.as_raw_fd(), c"post-merge", flags, 0o755)?);
        Ok("created".into())
    }),
    forbid("git-reopen", "open a file of the repository again for writing", |ground| {
        let file = File::open(ground.work(".git/config"))?;
        write(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }),
    forbid("git-move-in", "move a file into the repository", |ground| {
        fs::rename(ground.work("file"), ground.work(".git/hooks/post-merge"))?;
        Ok("moved".into())
    }),
    forbid("git-make", "make a repository where there is none", |ground| make(ground.bare(".git"))),
    forbid("git-make-file", "make a file that points to another repository", |ground| {
        write(ground.bare(".git"))?;
        stays(&ground.bare(".git"))
    }),
    forbid("git-make-symlink", "make a symbolic link to another repository", |ground| {
        symlink(ground.bare("file"), ground.bare(".git"))?;
        stays(&ground.bare(".git"))
    }),
    forbid("heddle-make", "make settings of heddle", |ground| make(ground.work(".heddle"))),
    forbid("codex-make", "make settings of Codex", |ground| make(ground.work(".codex"))),
    forbid("agents-make", "make skills for agents", |ground| make(ground.work(".agents"))),
    forbid("aws-make", "make credentials for AWS", |ground| make(ground.work(".aws"))),
    forbid("heddle-rename-in", "rename a directory to a protected name", |ground| {
        fs::rename(ground.work("spare"), ground.work(".heddle"))?;
        stays(&ground.work(".heddle/file"))
    }),
    forbid("heddle-link-in", "link a file to a protected name", |ground| {
        fs::hard_link(ground.work("file"), ground.work(".heddle"))?;
        stays(&ground.work(".heddle"))
    }),
    forbid("nested-root-make", "make a protected name in a root below a temporary one", |ground| {
        make(ground.nested(".heddle"))
    }),
    forbid("nested-root-config", "change a repository below a temporary directory", |ground| {
        write(ground.nested(".git/config"))
    }),
    forbid("tree-write", "write the `.git` file of a worktree", |ground| {
        write(ground.tree(".git"))
    }),
    forbid("tree-replace", "replace the `.git` file of a worktree", |ground| {
        fs::rename(ground.tree("file"), ground.tree(".git"))?;
        Ok("replaced".into())
    }),
    forbid("tree-unlink", "remove the `.git` file of a worktree", |ground| {
        fs::remove_file(ground.tree(".git"))?;
        Ok("removed".into())
    }),
    forbid("tree-target", "write what the `.git` file of a worktree points to", |ground| {
        write(ground.tree("store/config"))
    }),
    forbid("linked-unlink", "remove a symbolic link `.git`", |ground| {
        fs::remove_file(ground.linked(".git"))?;
        Ok("removed".into())
    }),
    forbid("linked-replace", "replace a symbolic link `.git`", |ground| {
        symlink(ground.linked("store"), ground.linked("other"))?;
        fs::rename(ground.linked("other"), ground.linked(".git"))?;
        Ok("replaced".into())
    }),
    forbid("linked-write", "write through a symbolic link `.git`", |ground| {
        write(ground.linked(".git/config"))
    }),
    forbid("linked-target", "write what a symbolic link `.git` points to", |ground| {
        write(ground.linked("store/hooks/post-checkout"))
    }),
    forbid("linked-target-rename", "rename what a symbolic link `.git` points to", |ground| {
        fs::rename(ground.linked("store"), ground.linked("moved"))?;
        Ok("renamed".into())
    }),
    forbid("root-rename", "rename a writable root", |ground| {
        fs::rename(ground.work(""), ground.root.join("moved"))?;
        Ok("renamed".into())
    }),
    forbid("root-ancestor-rename", "rename what a root lies in, and make it anew", |ground| {
        fs::rename(ground.temporary("place"), ground.temporary("moved"))?;
        make(ground.nested(".git"))
    }),
    forbid("root-ancestor-exchange", "swap what a root lies in for a copy", |ground| {
        fs::create_dir_all(ground.temporary("copy/project/.git"))?;
        exchange(&ground.temporary("copy"), &ground.temporary("place"))?;
        write(ground.nested(".git/config"))
    }),
    forbid("around-hook", "add a hook to the repository around a root", |ground| {
        write(ground.around(".git/hooks/post-checkout"))
    }),
    forbid("around-config", "change the settings of the repository around a root", |ground| {
        write(ground.around(".git/config"))
    }),
    forbid("around-rules", "change the rules of the project around a root", |ground| {
        write(ground.around(".heddle/rules/project.rules"))
    }),
    forbid("around-dots", "change them by a path that goes up from the root", |ground| {
        write(ground.around("sub/../.git/config"))
    }),
    forbid("around-rename", "rename the repository around a root", |ground| {
        fs::rename(ground.around(".git"), ground.around("sub/moved"))?;
        Ok("renamed".into())
    }),
    forbid("around-replace", "rename what a root lies in, and make a repository there", |ground| {
        fs::rename(ground.around(""), ground.temporary("moved"))?;
        make(ground.around(".git"))
    }),
    forbid("around-make", "make a repository around a root where there is none", |ground| {
        make(ground.temporary("place/.git"))
    }),
    forbid("around-make-rules", "make rules around a root where there are none", |ground| {
        make(ground.temporary("place/.heddle"))
    }),
    forbid("around-make-file", "make a file around a root that names a repository", |ground| {
        write(ground.temporary("place/.git"))?;
        stays(&ground.temporary("place/.git"))
    }),
    forbid("temporary-make", "make a repository of the temporary directory of a root", |ground| {
        make(ground.temporary(".git"))
    }),
    forbid("spare-make", "make a repository of a temporary directory without a root", |ground| {
        make(ground.spare(".git"))
    })
    .known(Level::Landlock),
    forbid("spare-make-rules", "make rules in a temporary directory without a root", |ground| {
        make(ground.spare(".heddle/rules"))
    })
    .known(Level::Landlock),
    forbid("common-config", "change the settings that a worktree shares", |ground| {
        write(ground.main(".git/config"))
    }),
    forbid("common-hook", "add a hook to the repository of a worktree", |ground| {
        make(ground.main(".git/hooks"))
    }),
    forbid("common-pointer", "lead a worktree to another common directory", |ground| {
        write(ground.main(".git/worktrees/side/commondir"))
    }),
    forbid("submodule-pointer", "lead a submodule to another repository", |ground| {
        write(ground.work("part/.git"))
    }),
    forbid("submodule-replace", "replace the directory of a submodule", |ground| {
        fs::rename(ground.work("part"), ground.work("src/part"))?;
        make(ground.work("part/.git"))
    }),
    forbid("inner-config", "change the settings of a repository in the workspace", |ground| {
        write(ground.work("inner/.git/config"))
    }),
    forbid("inner-hook", "add a hook to a repository in the workspace", |ground| {
        make(ground.work("inner/.git/hooks"))
    }),
    forbid("home-rules", "write our own rules", |ground| write(ground.home("rules/default.rules"))),
    forbid("home-new", "make a file in our own home", |ground| write(ground.home("config.toml"))),
    forbid("home-rename", "rename our own home", |ground| {
        fs::rename(ground.home(""), ground.temporary("moved"))?;
        Ok("renamed".into())
    }),
    forbid("home-ancestor-rename", "rename what our home lies in, and make it anew", |ground| {
        fs::rename(ground.temporary("area"), ground.temporary("moved"))?;
        make(ground.home("rules"))
    }),
    forbid("home-hard-link", "link our own rules, and write the link", |ground| {
        fs::hard_link(ground.home("rules/default.rules"), ground.temporary("rules"))?;
        write(ground.temporary("rules"))
    }),
];

/// Writes a file, whether it exists or not.
fn write(path: impl AsRef<Path>) -> Outcome {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    file?.write_all(b"changed")?;
    Ok("written".into())
}

/// Creates a directory and a file in it: a directory alone could be a guard of the sandbox.
fn make(directory: PathBuf) -> Outcome {
    fs::create_dir_all(&directory)?;
    write(directory.join("config"))
}

/// Verifies that what was created is really there.
fn stays(path: &Path) -> Outcome {
    fs::symlink_metadata(path)?;
    Ok("made".into())
}

fn exchange(one: &Path, other: &Path) -> Result<String, Refused> {
    let (here, how) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    call!(libc::SYS_renameat2, here, &text(one), here, &text(other), how)?;
    Ok("swapped".into())
}
