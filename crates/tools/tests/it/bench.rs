//! A test workspace on disk with its tools, and what they reported.

use std::cell::RefCell;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use policy::{ApprovalPolicy, EnvironmentPolicy, Policy, Profile, SandboxMode};
use protocol::call::{Call, Payload, Report};
use protocol::id::CallKey;
use protocol::item::ItemBody;
use protocol::responses::OutputBody;
use sandbox::Sandbox;
use serde_json::Value;
use tempfile::TempDir;
use tools::{
    ApplyPatch, ExecCommand, Gate, LoginShell, Progress, Sessions, Shell, Tool, ToolContext,
    Workspace, WriteStdin, progress_channel,
};

pub(crate) struct Bench {
    pub(crate) directory: TempDir,
    pub(crate) exec: ExecCommand,
    pub(crate) stdin: WriteStdin,
    pub(crate) patch: ApplyPatch,
    pub(crate) sessions: Arc<Sessions>,
    /// Warnings that the user got.
    pub(crate) warnings: RefCell<Vec<String>>,
}

impl Bench {
    pub(crate) fn new(mode: SandboxMode) -> Self {
        let directory = TempDir::new().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let workspace = Arc::new(Workspace {
            cwd: root.clone(),
            shell: Shell::named("/bin/bash"),
            login_shell: LoginShell::Once(EnvironmentPolicy::default()),
            // A home without profiles, so that a login shell prints nothing of its own.
            env: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("HOME".into(), root.display().to_string()),
            ],
            env_set: Vec::new(),
            gate: Gate::new(Policy {
                profile: Profile {
                    mode,
                    writable_roots: vec![root],
                    temporary_roots: Vec::new(),
                    scratch: None,
                    protected: Vec::new(),
                    network: true,
                },
                approval: ApprovalPolicy::Never,
                rules: Vec::new(),
            }),
            sandbox: Sandbox::new("/proc/self/exe".into(), None),
            output_tokens_max: 10_000,
            patching: tokio::sync::Mutex::new(()),
        });
        let sessions = Arc::new(Sessions::default());
        let (exec, stdin) = ExecCommand::with_stdin(Arc::clone(&workspace), Arc::clone(&sessions));
        let patch = ApplyPatch::new(workspace, true);
        let warnings = RefCell::default();
        Self { directory, exec, stdin, patch, sessions, warnings }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes one call and returns its text and what was shown: `start`/`end` and a status.
    pub(crate) async fn call(
        &self,
        tool: &dyn Tool,
        key: u64,
        payload: Payload,
    ) -> (String, Vec<ItemBody>) {
        let (sender, mut receiver) = progress_channel();
        let name = tool.spec().name;
        let call = Call { key: CallKey(key), call_id: "c".into(), name, payload };
        let output = tool.run(ToolContext::new(call, sender)).await;
        let mut shown = Vec::new();
        while let Ok((_, progress)) = receiver.try_recv() {
            let Progress::Report(report) = progress else { panic!("{progress:?}") };
            match report {
                Report::Started(body) | Report::Ended(body) => shown.push(body),
                // The engine handles these.
                Report::Decided(_)
                | Report::Refused { .. }
                | Report::Typed { .. }
                | Report::Output(_) => {}
                Report::Warning(text) => self.warnings.borrow_mut().push(text),
                other => panic!("{other:?}"),
            }
        }
        match output.content {
            OutputBody::Text(text) => (text, shown),
            OutputBody::Parts(parts) => panic!("{parts:?}"),
        }
    }

    pub(crate) async fn exec(&self, key: u64, arguments: Value) -> (String, Vec<ItemBody>) {
        self.call(&self.exec, key, Payload::Function(arguments.to_string())).await
    }

    pub(crate) async fn stdin(&self, arguments: Value) -> String {
        self.call(&self.stdin, 99, Payload::Function(arguments.to_string())).await.0
    }
}

/// Runs a test on the runtime that the binary uses.
pub(crate) fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}
