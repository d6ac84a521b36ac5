//! Temporary directories for one test: a workspace, an agent home and a user home.
//!
//! All three are under one temporary directory that is removed with the [`Lab`]. By default that is in the
//! system's temporary directory; a test of sandbox boundaries needs a place that no profile makes writable
//! and passes its own to [`Lab::new_in`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A fresh workspace and home, removed on drop.
#[derive(Debug)]
pub struct Lab {
    /// The directory the agent works in.
    pub workspace: Workspace,
    /// The directories the agent keeps its own state in.
    pub home: Home,
    root: PathBuf,
    _dir: TempDir,
}

impl Lab {
    /// Creates the directories under the system's temporary directory.
    pub fn new() -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    /// Creates the directories under `parent`.
    pub fn new_in(parent: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("lab-").tempdir_in(parent)?;
        // Agents print resolved paths; on a system whose temporary directory is a link, an
        // unresolved root would match none of them.
        let root = dir.path().canonicalize()?;
        let workspace = Workspace { path: root.join("ws") };
        let home = Home { path: root.join("home"), user: root.join("uhome") };
        for path in [&workspace.path, &home.path, &home.user] {
            fs::create_dir(path)?;
        }
        Ok(Self { workspace, home, root, _dir: dir })
    }

    /// Returns the directory that contains all the others.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Prepares `binary` to run in the workspace with this home and an otherwise empty environment.
    pub fn command(&self, binary: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(binary);
        command.env_clear().envs(self.home.env()).current_dir(&self.workspace.path);
        command
    }
}

/// The directory an agent works in.
#[derive(Debug)]
pub struct Workspace {
    path: PathBuf,
}

impl Workspace {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, creating its parent directories.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        write_under(&self.path, name, bytes.as_ref())
    }

    pub fn read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.path.join(name))
    }

    /// Turns the directory into a repository on `main` and commits its content.
    pub fn git_init(&self) -> io::Result<()> {
        const IDENTITY: [&str; 4] = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        git(&self.path, &[], &["init", "-q", "-b", "main", "."])?;
        git(&self.path, &IDENTITY, &["add", "-A"])?;
        git(&self.path, &IDENTITY, &["commit", "-q", "--allow-empty", "-m", "init"])
    }

    /// Lists every file except git's own, by relative path, in the form of recordings: `text`, `base64` if it
    /// is not UTF-8, `len` if it is long, or `symlink`.
    pub fn files(&self) -> io::Result<BTreeMap<String, Value>> {
        let mut files = BTreeMap::new();
        collect_files(&self.path, "", &mut files)?;
        Ok(files)
    }
}

/// The directories an agent keeps its state in, separate from those of the person running the test.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    user: PathBuf,
}

impl Home {
    /// Returns the directory that contains `config.toml`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory that `HOME` is set to.
    pub fn user(&self) -> &Path {
        &self.user
    }

    /// Writes a file, creating its parent directories.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        write_under(&self.path, name, bytes.as_ref())
    }

    /// Writes a `config.toml` that sends model requests to a scripted endpoint on `port`.
    pub fn write_mock_config(&self, port: u16) -> io::Result<()> {
        self.write("config.toml", mock_config(port))
    }

    /// Returns the complete environment of a run.
    pub fn env(&self) -> BTreeMap<String, String> {
        let path = self.path.to_string_lossy().into_owned();
        BTreeMap::from([
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), self.user.to_string_lossy().into_owned()),
            ("CODEX_HOME".to_owned(), path.clone()),
            ("HEDDLE_HOME".to_owned(), path),
        ])
    }
}

/// Returns a `config.toml` for a scripted endpoint on `port`.
pub fn mock_config(port: u16) -> String {
    format!(
        r#"model = "gpt-5.5"
model_provider = "mock"

[model_providers.mock]
name = "mock"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
requires_openai_auth = false
supports_websockets = false
"#
    )
}

fn write_under(root: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = root.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, bytes)
}

fn git(dir: &Path, config: &[&str], args: &[&str]) -> io::Result<()> {
    let mut command = Command::new("git");
    command.args(config).args(args).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
    // The person's own settings (signing, hooks, templates) must not reach the test, and a test
    // started from a git hook must not write into the repository that hook belongs to.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for name in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"] {
        command.env_remove(name);
    }
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("git {} ended with {status}", args.join(" "))))
}

fn collect_files(dir: &Path, prefix: &str, files: &mut BTreeMap<String, Value>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let relative = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if name != ".git" {
                collect_files(&path, &format!("{relative}/"), files)?;
            }
        } else if kind.is_symlink() {
            // A link to a directory counts as a directory, and directories are not listed.
            if !path.is_dir() {
                let target = fs::read_link(&path)?;
                files.insert(relative, json!({ "symlink": target.to_string_lossy() }));
            }
        } else if kind.is_file() {
            files.insert(relative, describe(fs::read(&path)?));
        }
    }
    Ok(())
}

fn describe(bytes: Vec<u8>) -> Value {
    if bytes.len() >= LONG_FILE_BYTES {
        return json!({ "len": bytes.len() });
    }
    match String::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(error) => json!({ "base64": STANDARD.encode(error.as_bytes()) }),
    }
}

/// From this size on recordings keep only a file's length.
const LONG_FILE_BYTES: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &[u8])], want: Value) {
        let lab = Lab::new().unwrap();
        for (name, bytes) in files {
            lab.workspace.write(name, bytes).unwrap();
        }
        assert_eq!(json!(lab.workspace.files().unwrap()), want);
    }

    #[test]
    fn files_are_listed_as_recorded() {
        check(&[], json!({}));
        check(&[("a/b.txt", b"hi")], json!({ "a/b.txt": { "text": "hi" } }));
        check(&[("b", b"\xff\x00")], json!({ "b": { "base64": "/wA=" } }));
        check(&[("long", &[b'x'; 20_000])], json!({ "long": { "len": 20_000 } }));
        check(&[(".git/HEAD", b"x"), ("sub/.git/HEAD", b"x")], json!({}));
    }

    #[test]
    fn links_are_listed_unless_they_lead_to_a_directory() {
        let lab = Lab::new().unwrap();
        lab.workspace.write("dir/file", "x").unwrap();
        for (target, name) in [("dir", "to_dir"), ("dir/file", "to_file"), ("gone", "to_nothing")] {
            std::os::unix::fs::symlink(target, lab.workspace.path().join(name)).unwrap();
        }
        let want = json!({
            "dir/file": { "text": "x" },
            "to_file": { "symlink": "dir/file" },
            "to_nothing": { "symlink": "gone" },
        });
        assert_eq!(json!(lab.workspace.files().unwrap()), want);
    }

    #[test]
    fn a_lab_is_a_repository_on_request_and_leaves_nothing_behind() {
        let lab = Lab::new().unwrap();
        lab.workspace.write("a.txt", "a").unwrap();
        lab.workspace.git_init().unwrap();
        lab.home.write_mock_config(4321).unwrap();
        let config = fs::read_to_string(lab.home.path().join("config.toml")).unwrap();
        assert!(config.contains("http://127.0.0.1:4321/v1"));
        let seen = lab.command("git").args(["status", "--porcelain"]).output().unwrap();
        assert!(seen.status.success() && seen.stdout.is_empty(), "{seen:?}");
        let root = lab.root().to_owned();
        drop(lab);
        assert!(!root.exists());
    }
}
