//! No argument that a model can send widens the sandbox.
//!
//! For every tool, arguments are generated from its own schema, with hostile values and wrong types mixed in,
//! and from no schema at all. Only the deciding code runs. Its result must be a refusal, a patch whose paths
//! are checked one by one, or a process under exactly the profile of the thread.

use std::path::Path;
use std::sync::Arc;

use policy::{ApprovalPolicy, Policy, Profile, SandboxMode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use protocol::call::{Call, Payload, Report};
use protocol::id::CallKey;
use sandbox::Sandbox;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::exec::{ExecArguments, Intent};
use crate::login::LoginShell;
use crate::patch::Checked;
use crate::{
    ApplyPatch, ExecCommand, Gate, Progress, Sessions, Shell, Tool, ToolContext, ToolInput,
    UpdatePlan, ViewImage, Workspace, WriteStdin, progress_channel,
};

const CASES: u32 = 2_000;

/// A thread in which no one can be asked.
struct Thread {
    directory: TempDir,
    workspace: Arc<Workspace>,
    exec: ExecCommand,
    stdin: WriteStdin,
    patch: ApplyPatch,
    tools: Vec<Box<dyn Tool>>,
}

impl Thread {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory").join("w");
        std::fs::create_dir(&root).expect("a directory");
        std::fs::write(root.join("a"), "x\n").expect("a file");
        std::os::unix::fs::symlink(directory.path(), root.join("up")).expect("a link");
        let profile = Profile {
            mode: SandboxMode::WorkspaceWrite,
            writable_roots: vec![root.clone()],
            network: false,
            ..Profile::full_access()
        };
        let workspace = Arc::new(Workspace {
            cwd: root,
            shell: Shell::named("bash"),
            login_shell: LoginShell::EveryCommand,
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            env_set: Vec::new(),
            gate: Gate::new(Policy { profile, approval: ApprovalPolicy::Never, rules: Vec::new() }),
            sandbox: Sandbox::new("/proc/self/exe".into(), None),
            output_tokens_max: 10_000,
            patching: tokio::sync::Mutex::new(()),
        });
        let sessions = Arc::new(Sessions::default());
        let (exec, stdin) = ExecCommand::with_stdin(Arc::clone(&workspace), Arc::clone(&sessions));
        let (exec_too, stdin_too) = ExecCommand::with_stdin(Arc::clone(&workspace), sessions);
        let patch = ApplyPatch::new(Arc::clone(&workspace), false);
        let tools: Vec<Box<dyn Tool>> = vec![
            Box::new(exec_too),
            Box::new(stdin_too),
            Box::new(ApplyPatch::new(Arc::clone(&workspace), false)),
            Box::new(UpdatePlan { mode: protocol::mode::Mode::Default }),
            Box::new(crate::AskUser),
            Box::new(ViewImage::new(Arc::clone(&workspace))),
        ];
        Self { directory, workspace, exec, stdin, patch, tools }
    }

    /// Decides about one call of `exec_command` and checks the result.
    async fn check_exec(&self, arguments: &str) {
        let payload = Payload::Function(arguments.to_owned());
        let (name, call_id) = ("exec_command".into(), "the-call".into());
        let call = Call { key: CallKey(1), call_id, name, payload };
        let (progress, mut shown) = progress_channel();
        let Ok(arguments) = crate::tool::arguments::<ExecArguments>(&call) else { return };
        match self.exec.intend(&arguments, &call, &progress).await {
            Err(_) => {}
            Ok(Intent::Patch { base, text }) => self.check_patch(&base, &text).await,
            Ok(Intent::Run { request, shown, asked }) => {
                assert_eq!(request.argv, shown);
                assert_eq!(request.permit.profile(), self.workspace.gate.profile());
                let mut env = self.workspace.env.clone();
                env.push(("CODEX_TOOL_CALL_ID".into(), "the-call".into()));
                assert_eq!(request.env, env);
                let shell = Path::new(&request.argv[0]);
                let name = shell.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                assert!(shell.is_absolute() && ["bash", "zsh", "sh"].contains(&name), "{shell:?}");
                assert!(["-c", "-lc"].contains(&request.argv[1].as_str()) && !asked);
                assert_eq!(request.argv.len(), 3);
            }
        }
        while let Ok((_, said)) = shown.try_recv() {
            let decided = matches!(said, Progress::Report(Report::Decided(_)));
            assert!(decided, "something was shown, or asked: {said:?}");
        }
    }

    /// Checks that all paths a patch would write are inside the roots, or that it is refused.
    async fn check_patch(&self, base: &Path, text: &str) {
        let Ok(patch) = ::patch::Patch::parse(text) else { return };
        let profile = self.workspace.gate.profile();
        let Ok(checked) = Checked::new(&patch, base, profile, &[]) else { return };
        let request = checked.request();
        let places = request.paths.clone();
        let effect = policy::Effect::Write(request);
        let (progress, _shown) = progress_channel();
        let judged = self.workspace.gate.judge(effect, CallKey(1), &progress).await.is_ok();
        let inside = places.iter().all(|place| profile.obstacle(place).is_none());
        assert_eq!(judged, inside, "{places:?}");
    }
}

/// Values that an attacker would try.
fn hostile() -> impl Strategy<Value = Value> {
    let texts = [
        "",
        "/",
        "..",
        "../..",
        "/etc",
        "up",
        "up/..",
        "~",
        "\0",
        "rm -rf /",
        "true; false",
        "require_escalated",
        "use_default",
        "danger-full-access",
        "/tmp/evil/bash",
        "bash -c",
        "python3",
        "/proc/self/exe",
        "sh\n",
        "$(id)",
        "LD_PRELOAD=x ls",
        "*** Begin Patch",
        "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: ../out\n+x\n*** End Patch\nEOF",
        "cd up && apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: out\n+x\n*** End Patch\nEOF",
        "cd .. && apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: w/in\n+x\n*** End Patch\nEOF",
    ];
    prop_oneof![
        4 => proptest::sample::select(texts.to_vec()).prop_map(|text| json!(text)),
        2 => any::<String>().prop_map(|text| json!(text)),
        1 => any::<f64>().prop_map(|number| json!(number)),
        1 => any::<bool>().prop_map(|truth| json!(truth)),
        1 => Just(Value::Null),
        1 => vec(any::<String>(), 0..3).prop_map(|texts| json!(texts)),
        1 => Just(json!({"mode": "danger-full-access", "permit": true})),
    ]
}

/// Values that mostly match a schema.
fn fitting(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(choices) = schema["enum"].as_array() {
        return prop_oneof![5 => proptest::sample::select(choices.clone()), 1 => hostile()].boxed();
    }
    let fits = match schema["type"].as_str() {
        Some("string") => any::<String>().prop_map(|text| json!(text)).boxed(),
        Some("number") => any::<f64>().prop_map(|number| json!(number)).boxed(),
        Some("boolean") => any::<bool>().prop_map(|truth| json!(truth)).boxed(),
        Some("array") => {
            vec(fitting(&schema["items"]), 0..3).prop_map(|items| json!(items)).boxed()
        }
        Some("object") => object(schema),
        _ => Just(Value::Null).boxed(),
    };
    prop_oneof![2 => fits, 3 => hostile()].boxed()
}

/// Objects with some of the properties of a schema, and some unknown ones.
fn object(schema: &Value) -> BoxedStrategy<Value> {
    let required: Vec<_> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut properties: Vec<BoxedStrategy<Option<(String, Value)>>> = Vec::new();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let (name, often) = (name.clone(), if required.contains(&name.as_str()) { 95 } else { 35 });
        let present = proptest::bool::weighted(f64::from(often) / 100.0);
        let pair = (present, fitting(schema));
        properties.push(pair.prop_map(move |(here, v)| here.then(|| (name.clone(), v))).boxed());
    }
    let names = ["sandbox", "permit", "profile", "env", "environment", "argv", "with_escalated"];
    let extra =
        proptest::option::weighted(0.3, (proptest::sample::select(names.to_vec()), hostile()));
    let extra = extra.prop_map(|extra| extra.map(|(name, value)| (name.to_owned(), value)));
    (properties, extra)
        .prop_map(|(pairs, extra)| {
            let pairs = pairs.into_iter().flatten().chain(extra);
            Value::Object(pairs.collect::<Map<_, _>>())
        })
        .boxed()
}

fn schema_of(tool: &dyn Tool) -> Value {
    match tool.spec().input {
        ToolInput::Json(schema) => schema,
        other => panic!("{other:?} is no schema"),
    }
}

fn run(strategy: impl Strategy<Value = Value>, check: impl Fn(&str)) {
    // A runner that is not created by the macro has no file for seeds; the failing arguments are in the
    // message.
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let checked = runner.run(&strategy, |arguments| {
        check(&arguments.to_string());
        Ok(())
    });
    checked.expect("no argument widens the sandbox");
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}

#[test]
fn commands() {
    let thread = Thread::new();
    let schema = schema_of(&thread.exec);
    run(object(&schema), |arguments| block_on(thread.check_exec(arguments)));
    run(hostile(), |arguments| block_on(thread.check_exec(arguments)));
}

#[test]
fn patches() {
    let thread = Thread::new();
    let paths = [
        "a",
        "b",
        "d/e",
        "../out",
        "/etc/passwd",
        "up/out",
        "up/w/in",
        ".git/hooks/x",
        "./../w/a",
        ".heddle/config.toml",
        "a/../../out",
        "sub/.git/x",
        "/proc/self/environ",
    ];
    let operation =
        (proptest::sample::select(paths.to_vec()), 0..3).prop_map(|(path, kind)| match kind {
            0 => format!("*** Add File: {path}\n+x\n"),
            1 => format!("*** Delete File: {path}\n"),
            _ => format!("*** Update File: {path}\n*** Move to: up/moved\n@@\n-x\n+y\n"),
        });
    let patch = vec(operation, 1..4)
        .prop_map(|all| json!(format!("*** Begin Patch\n{}*** End Patch", all.concat())));
    run(patch, |text| {
        let text: String = serde_json::from_str(text).expect("a string");
        block_on(thread.check_patch(&thread.workspace.cwd, &text));
    });
    let schema = schema_of(&thread.patch);
    run(object(&schema), |arguments| {
        let arguments: Value = serde_json::from_str(arguments).expect("an object");
        if let Some(text) = arguments["input"].as_str() {
            block_on(thread.check_patch(&thread.workspace.cwd, text));
        }
    });
    let entries = std::fs::read_dir(thread.directory.path()).expect("a directory").count();
    assert_eq!(entries, 1, "something was written outside of the workspace");
}

/// Typing reaches only sessions, of which there are none, and starts nothing.
#[test]
fn typing() {
    let thread = Thread::new();
    let schema = schema_of(&thread.stdin);
    run(object(&schema), |arguments| {
        let payload = Payload::Function(arguments.to_owned());
        let name = "write_stdin".into();
        let call = Call { key: CallKey(1), call_id: "c".into(), name, payload };
        let (progress, mut shown) = progress_channel();
        let output = block_on(thread.stdin.run(ToolContext::new(call, progress)));
        let text = output.text();
        assert!(text.contains("there is no session") || text.contains("failed to parse"), "{text}");
        // Only the refusal, nothing else.
        let refused = |said| matches!(said, Progress::Report(Report::Refused { shown: None, .. }));
        assert!(shown.try_recv().is_ok_and(|(_, said)| refused(said)));
        assert!(shown.try_recv().is_err());
    });
}

/// A new tool must be reviewed here: this is the complete list, and only these have effects.
#[test]
fn every_tool_is_known() {
    let thread = Thread::new();
    let names: Vec<_> = thread.tools.iter().map(|tool| tool.spec().name).collect();
    let own = ["exec_command", "write_stdin", "apply_patch", "update_plan", "request_user_input"];
    assert_eq!(names, [&own[..], &["view_image"]].concat());
}
