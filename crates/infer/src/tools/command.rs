//! Tools that are commands: they run in a sandbox in which they can read but not write, without network.

use std::path::PathBuf;

use policy::{
    ApprovalPolicy, CommandRequest, Grants, Policy, Profile, SandboxMode, Scene, Verdict,
};
use sandbox::{Given, Io, Limits, Process, Sandbox, SpawnRequest};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;

use super::{Output, Status, cut};

const PROCESSES_MAX: u64 = 256;

/// Where tool commands run.
#[derive(Clone, Debug)]
pub struct Place {
    /// Without one, nothing runs.
    sandbox: Result<Sandbox, String>,
    directory: PathBuf,
    env: Vec<(String, String)>,
    policy: Policy,
}

impl Place {
    /// Creates a place with this sandbox, directory, environment and memory limit; `protected` is read-only
    /// like everything else.
    pub fn new(
        sandbox: Sandbox,
        directory: PathBuf,
        env: Vec<(String, String)>,
        memory_bytes_max: u64,
    ) -> Self {
        let limits =
            Limits { processes: Some(PROCESSES_MAX), memory_bytes: Some(memory_bytes_max) };
        let sandbox = Sandbox { limits, ..sandbox };
        Self { sandbox: Ok(sandbox), directory, env, policy: read_only() }
    }

    /// Creates a place where nothing runs, for this reason.
    pub fn nowhere(reason: &str) -> Self {
        let (directory, env) = (PathBuf::from("/"), Vec::new());
        Self { sandbox: Err(reason.to_owned()), directory, env, policy: read_only() }
    }

    /// Runs a command to its end. Dropping the future kills it and everything it started.
    pub(super) async fn run(&self, argv: &[String], input: &[u8], bytes_max: usize) -> Output {
        match self.start_and_read(argv, input, bytes_max).await {
            Ok((0, text)) => Output::new(Status::Completed, text),
            Ok((code, text)) => {
                Output::new(Status::Failed, format!("the tool ended with code {code}:\n{text}"))
            }
            Err(reason) => Output::new(Status::Failed, format!("the tool was not run: {reason}")),
        }
    }

    async fn start_and_read(
        &self,
        argv: &[String],
        input: &[u8],
        bytes_max: usize,
    ) -> Result<(i32, String), String> {
        let sandbox = self.sandbox.as_ref().map_err(Clone::clone)?;
        let request = CommandRequest {
            argv: argv.to_vec(),
            cwd: self.directory.clone(),
            escalation: None,
            scene: Scene::default(),
        };
        let verdict = self.policy.command(&request, &Grants::default()).verdict;
        let Some(permit) = verdict.permit(&self.policy.profile) else {
            let Verdict::Refuse(reason) = verdict else { return Err("nobody can be asked".into()) };
            return Err(reason);
        };
        let request = SpawnRequest {
            argv: request.argv,
            cwd: request.cwd,
            env: self.env.clone(),
            io: Io::Pipe,
            permit,
        };
        let said = |error: std::io::Error| error.to_string();
        let (mut ours, theirs) = pipe::pipe().map_err(said)?;
        let theirs = theirs.into_blocking_fd().map_err(said)?;
        let given = Given { input: Some(theirs), ..Given::default() };
        let spawned = Process::spawn_given(sandbox, &request, given).await;
        let mut process = spawned.map_err(|error| error.to_string())?;
        let connection = process.connection();
        let write = async move {
            // A command need not read its input.
            let _ = ours.write_all(input).await;
            drop(ours);
        };
        let read = async {
            let (mut kept, mut chunk, mut total) = (Vec::new(), Vec::new(), 0);
            while matches!(connection.read(&mut chunk).await, Ok(true)) {
                total += chunk.len();
                // A little more than the limit, so that a character at the boundary is seen whole.
                let room = (bytes_max + 4).saturating_sub(kept.len());
                kept.extend_from_slice(&chunk[..room.min(chunk.len())]);
                chunk.clear();
            }
            (kept, total)
        };
        let ((), (kept, total), code) = tokio::join!(write, read, process.wait());
        let (code, mut text) = (code.map_err(said)?, whole(&kept, total, bytes_max));
        if let Some(overrun) = process.overrun() {
            text = format!("{overrun}\n{text}");
        }
        Ok((code, text))
    }
}

/// Converts the output of a command to text; `kept` is its beginning.
fn whole(kept: &[u8], total: usize, bytes_max: usize) -> String {
    let text = String::from_utf8_lossy(kept);
    if total <= bytes_max && text.len() <= bytes_max {
        return text.into_owned();
    }
    let text = text.trim_end_matches('\u{fffd}');
    let kept = &text[..text.floor_char_boundary(bytes_max)];
    if total <= bytes_max {
        // Replacing invalid UTF-8 has made it longer.
        return cut(text, bytes_max);
    }
    format!("{kept}\n[{} more bytes were cut]", total - kept.len())
}

fn read_only() -> Policy {
    let profile = Profile {
        mode: SandboxMode::ReadOnly,
        writable_roots: Vec::new(),
        temporary_roots: Vec::new(),
        scratch: None,
        protected: Vec::new(),
        network: false,
    };
    // No rules: an `allow` would take a command out of the sandbox.
    Policy { profile, approval: ApprovalPolicy::Never, rules: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn outputs_are_cut_between_characters() {
        for (kept, total, max, want) in [
            (&b"abc"[..], 3, 8, "abc"),
            ("abcä".as_bytes(), 5, 4, "abc\n[2 more bytes were cut]"),
            ("abcdä".as_bytes(), 900, 5, "abcd\n[896 more bytes were cut]"),
            (b"ab\xff", 3, 8, "ab\u{fffd}"),
            (b"abcdef\xc3", 7, 6, "abcdef\n[1 more bytes were cut]"),
            (b"", 0, 0, ""),
        ] {
            assert_eq!(whole(kept, total, max), want, "{kept:?} {total} {max}");
        }
    }
}
