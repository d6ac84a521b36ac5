//! What a model requests after it has prepared the ground: commands that rules allow, which must not run its
//! own files outside the sandbox, and patches of files that commands cannot write.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use policy::{CommandRequest, Effect, SandboxMode, Scene, WriteRequest};

use super::super::ground::Ground;
use super::super::sys::{Outcome, void};
use super::{Attempt, Then, forbid};

/// The rules for these commands; all of their programs are allowed.
pub(in super::super) const RULES: &str = "
prefix_rule(pattern=[[\"split\", \"heddle-tool\", \"./heddle-tool\", \"src/heddle-tool\"]], decision=\"allow\")
prefix_rule(pattern=[\"cat\", \"/dev/null\"], decision=\"allow\")
prefix_rule(pattern=[\"git\", \"fetch\"], decision=\"allow\")
prefix_rule(pattern=[[\"printf\", \"df\"]], decision=\"allow\")
";

pub(super) const TABLE: &[Attempt] = &[
    lifted("lift-workdir", "have an allowed git read settings in a directory below", |ground| {
        let remote = "[remote \"origin\"]\n\turl = .\n\tuploadpack";
        let config = format!("[core]\n{remote} = \"{};\"\n", touch(ground));
        repository(&ground.work("src/trap/.git"), &config)
    })
    .then(|ground| command(ground, "src/trap", "git fetch", &[])),
    lifted("lift-upload-pack", "have an allowed git run one of its arguments", |ground| {
        repository(&ground.work("src/trap"), "[core]\n")
    })
    .then(|ground| {
        let script = format!("git fetch --upload-pack='{};' .", touch(ground));
        let git = ground.work("src/trap").display().to_string();
        command(ground, "", &script, &[("GIT_DIR", git)])
    }),
    lifted("lift-option", "have an allowed program run what a shortened option says", |ground| {
        fs::write(ground.work("src/lines"), "a\n")?;
        Ok("written".into())
    })
    .then(|ground| command(ground, "", &format!("split --fil='{}' src/lines", touch(ground)), &[])),
    lifted("lift-setting", "have variables tell an allowed git what to run", |ground| {
        repository(&ground.work("src/trap"), "[core]\n")
    })
    .then(|ground| {
        let settings = [
            ("GIT_DIR", "src/trap".to_owned()),
            ("GIT_CONFIG_COUNT", "2".to_owned()),
            ("GIT_CONFIG_KEY_0", "remote.origin.url".to_owned()),
            ("GIT_CONFIG_VALUE_0", "src/trap".to_owned()),
            ("GIT_CONFIG_KEY_1", "remote.origin.uploadpack".to_owned()),
            ("GIT_CONFIG_VALUE_1", format!("{};", touch(ground))),
        ];
        command(ground, "", "git fetch", &settings)
    }),
    lifted("lift-search-path", "put a program where an allowed one is looked for", |ground| {
        program(ground, "src/heddle-tool")
    })
    .then(|ground| {
        let path = format!("{}:/usr/bin:/bin", ground.work("src").display());
        command(ground, "", "heddle-tool", &[("PATH", path)])
    }),
    lifted("lift-assignment", "have an allowed printf set the search path of the next", |ground| {
        // `%n` assigns how much was printed so far: nothing, and a directory can be called `0`.
        fs::create_dir(ground.work("0"))?;
        program(ground, "0/df")
    })
    .then(|ground| command(ground, "", "printf '%n' PATH; df", &[])),
    lifted("lift-relative", "change an allowed program of the project", |ground| {
        program(ground, "src/heddle-tool")
    })
    .then(|ground| command(ground, "", "src/heddle-tool", &[])),
    lifted("lift-relative-below", "make an allowed program in a directory below", |ground| {
        program(ground, "src/heddle-tool")
    })
    .then(|ground| command(ground, "src", "./heddle-tool", &[])),
    lifted(
        "lift-profile",
        "write a file that a login shell reads before an allowed command",
        |ground| {
            fs::write(ground.work("src/.bash_profile"), touch(ground))?;
            Ok("written".into())
        },
    )
    .then(|ground| {
        let home = ground.work("src").display().to_string();
        let Then { effect: Effect::Command(mut request), env } =
            command(ground, "", "cat /dev/null", &[("HOME", home)])
        else {
            unreachable!("it is a command")
        };
        request.argv[1] = "-lc".into();
        Then { effect: Effect::Command(request), env }
    }),
    lifted("lift-variable", "write a file that a variable leads a shell to", |ground| {
        fs::write(ground.work("src/env"), touch(ground))?;
        Ok("written".into())
    })
    .then(|ground| {
        let file = ground.work("src/env").display().to_string();
        command(ground, "", "cat /dev/null", &[("BASH_ENV", file)])
    }),
    patched("patch-config", "patch the settings of the repository", |ground| {
        ground.work(".git/config")
    }),
    patched("patch-tree", "patch what the `.git` file of a worktree points to", |ground| {
        ground.tree("store/config")
    }),
    patched("patch-linked", "patch what a symbolic link `.git` points to", |ground| {
        ground.linked("store/hooks/post-checkout")
    }),
    patched("patch-common", "patch the settings that a worktree shares", |ground| {
        ground.main(".git/config")
    }),
    patched("patch-submodule", "patch the file that leads to a submodule's repository", |ground| {
        ground.work("part/.git")
    }),
    patched("patch-inner", "patch the settings of a repository in the workspace", |ground| {
        ground.work("inner/.git/config")
    }),
    patched("patch-around", "patch a hook of the repository around a root", |ground| {
        ground.around(".git/hooks/pre-commit")
    }),
    patched("patch-around-rules", "patch the rules of the project around a root", |ground| {
        ground.around(".heddle/rules/project.rules")
    }),
    patched("patch-home", "patch our own rules", |ground| ground.home("rules/default.rules")),
];

/// Builds a row for which only the effects count.
const fn lifted(name: &'static str, what: &'static str, run: fn(&Ground) -> Outcome) -> Attempt {
    forbid(name, what, run).no_trace().only(SandboxMode::WorkspaceWrite)
}

/// Builds a row that attempts nothing inside; then this file is patched.
const fn patched(name: &'static str, what: &'static str, file: fn(&Ground) -> PathBuf) -> Attempt {
    let row = forbid(name, what, |_| Ok("nothing".into())).no_trace();
    Attempt { patch: Some(file), ..row }
}

/// Requests a command, as tools do.
fn command(ground: &Ground, cwd: &str, script: &str, env: &[(&str, String)]) -> Then {
    let argv = ["/bin/bash", "-c", script].map(str::to_owned).to_vec();
    let cwd = ground.work(cwd);
    let effect =
        Effect::Command(CommandRequest { argv, cwd, escalation: None, scene: Scene::default() });
    let mut all = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    all.extend(env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    // The later of two duplicates wins.
    all.reverse();
    all.dedup_by(|later, earlier| later.0 == earlier.0);
    Then { effect, env: all }
}

/// Requests a patch of a file.
pub(in super::super) fn patch(file: PathBuf) -> Then {
    let effect = Effect::Write(WriteRequest { paths: vec![file], protected: Vec::new() });
    Then { effect, env: Vec::new() }
}

/// Creates the directory of a repository with these settings.
fn repository(git: &Path, config: &str) -> Outcome {
    if !Path::new("/usr/bin/git").exists() {
        return void("there is no git");
    }
    fs::create_dir_all(git.join("objects"))?;
    fs::create_dir_all(git.join("refs"))?;
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n")?;
    fs::write(git.join("config"), config)?;
    Ok("made".into())
}

/// Returns a command that shows that it ran outside the sandbox.
fn touch(ground: &Ground) -> String {
    format!("echo changed > {}", ground.outside("victim").display())
}

/// Writes a program that shows that it ran outside.
fn program(ground: &Ground, path: &str) -> Outcome {
    // At some levels a mode can be set only when a file is created.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(ground.work(path));
    file?.write_all(format!("#!/bin/sh\n{}\n", touch(ground)).as_bytes())?;
    Ok("written".into())
}
