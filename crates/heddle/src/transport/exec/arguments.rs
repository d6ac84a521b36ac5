//! The arguments of `exec`, all in one place.
//!
//! The order is that of the published TypeScript client, which every version of the program has to accept: settings,
//! model, sandbox, directories, flags, schema, then the thread to continue, then images. The prompt is passed on stdin.
//! Attached texts and PDFs come last, with `--file`, which only heddle knows.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::session::past::Start;
use crate::session::settings::Preferences;
use crate::turn::TurnLimits;
use policy::{ApprovalPolicy, Granular};
use protocol::error::{Limit, LimitKind};

/// The inputs of a run of the program.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) options: &'a Options,
    pub(crate) from: Start,
    /// Limits of the turn that the program enforces.
    pub(crate) limits: TurnLimits,
    /// A file with the JSON schema of the answer.
    pub(crate) schema: Option<&'a Path>,
    /// How often the model is asked again after a wrong answer; none for the default.
    pub(crate) output_retries: Option<u32>,
    pub(crate) images: &'a [PathBuf],
    /// Attached texts and PDFs, which only heddle accepts.
    pub(crate) files: &'a [PathBuf],
    /// Whether the program is heddle, which has more flags than the reference.
    pub(crate) heddle: bool,
}

/// The options of a thread, which hold for all of its runs.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) preferences: Preferences,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) approval: Option<ApprovalPolicy>,
    pub(crate) source: Option<String>,
    pub(crate) ephemeral: bool,
    pub(crate) ignore_rules: bool,
}

/// Returns the arguments of a run.
pub(crate) fn arguments(run: &Run<'_>) -> Vec<OsString> {
    let Options { preferences, directory, approval, source, ephemeral, ignore_rules } = run.options;
    let mut list = List::default();
    list.word("exec").word("--json");
    if run.heddle {
        list.word("--include-deltas");
        // So that the events are the same as for threads in this process.
        list.word("--include-refused");
    }
    for setting in &preferences.overrides {
        list.option("--config", setting);
    }
    // After the settings of the thread, so that the limits of the turn win.
    for Limit { kind, value } in run.limits.set() {
        if let Some(key) = limit_key(kind) {
            list.option("--config", format!("limits.{key}={value}"));
        }
    }
    // The reference does not know this setting.
    if let Some(retries) = run.output_retries.filter(|_| run.heddle) {
        list.option("--config", format!("limits.output_retries={retries}"));
    }
    if let Some(profile) = &preferences.profile {
        list.option("--profile", profile);
    }
    if let Some(model) = &preferences.model {
        list.option("--model", model);
    }
    if let Some(source) = source {
        list.option("--thread-source", source);
    }
    if let Some(mode) = preferences.sandbox {
        list.option("--sandbox", mode.name());
    }
    if let Some(directory) = directory {
        list.option("--cd", directory);
    }
    for directory in &preferences.writable_dirs {
        list.option("--add-dir", directory);
    }
    // Threads in this process need no repository either.
    list.word("--skip-git-repo-check");
    for (flag, given) in [
        ("--oss", preferences.local_model),
        ("--strict-config", preferences.strict),
        ("--ignore-user-config", preferences.ignore_file),
        ("--ignore-rules", *ignore_rules),
        ("--ephemeral", *ephemeral),
    ] {
        if given {
            list.word(flag);
        }
    }
    if let Some(schema) = run.schema {
        list.option("--output-schema", schema);
    }
    if let Some(policy) = approval {
        list.option("--config", format!("approval_policy={}", approval_value(*policy)));
    }
    match run.from {
        // `NewAs` was refused when the thread was opened.
        Start::New | Start::NewAs(_) => {}
        Start::Resume(thread) => {
            list.option("resume", thread.to_string());
        }
        // Without a prompt, a fork would not run a turn. `-` is stdin, and must come before options that take several
        // values.
        Start::Fork(thread) => {
            list.option("fork", thread.to_string()).word("-");
        }
    }
    for image in run.images {
        list.option("--image", image);
    }
    for file in run.files {
        list.option("--file", file);
    }
    list.0
}

#[derive(Default)]
struct List(Vec<OsString>);

impl List {
    fn word(&mut self, word: &str) -> &mut Self {
        self.0.push(word.into());
        self
    }

    fn option(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        self.0.extend([name.into(), value.into()]);
        self
    }
}

/// Returns the key of the setting for a limit; none for a limit that the program does not enforce.
fn limit_key(kind: LimitKind) -> Option<&'static str> {
    match kind {
        LimitKind::Tokens => Some("tokens_max"),
        LimitKind::Calls => Some("calls_max"),
        LimitKind::Requests => Some("requests_max"),
        // Nor for time, as the setting has whole seconds only.
        _ => None,
    }
}

/// Returns the value of the setting `approval_policy`, as TOML.
fn approval_value(policy: ApprovalPolicy) -> String {
    match policy {
        ApprovalPolicy::Untrusted => "\"untrusted\"".to_owned(),
        ApprovalPolicy::OnRequest => "\"on-request\"".to_owned(),
        ApprovalPolicy::Never => "\"never\"".to_owned(),
        ApprovalPolicy::Granular(Granular { sandbox_approval, rules }) => format!(
            "{{granular={{sandbox_approval={sandbox_approval},rules={rules},mcp_elicitations=false}}}}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use policy::{ApprovalPolicy, Granular, SandboxMode};
    use protocol::id::ThreadId;

    use super::{Options, Run, arguments};
    use crate::session::past::Start;
    use crate::session::settings::Preferences;
    use crate::turn::TurnLimits;

    const NONE: Options = Options {
        preferences: Preferences {
            profile: None,
            overrides: Vec::new(),
            model: None,
            local_model: false,
            strict: false,
            ignore_file: false,
            sandbox: None,
            writable_dirs: Vec::new(),
        },
        directory: None,
        approval: None,
        source: None,
        ephemeral: false,
        ignore_rules: false,
    };

    #[track_caller]
    fn check(options: Options, from: Start, images: &[&str], want: &str) {
        let images: Vec<_> = images.iter().map(PathBuf::from).collect();
        let schema = (!images.is_empty()).then_some(Path::new("schema.json"));
        let (options, limits, output_retries) = (&options, TurnLimits::default(), Some(3));
        let (images, files) = (&images, &[]);
        let run =
            Run { options, from, limits, schema, output_retries, images, files, heddle: false };
        let words: Vec<_> =
            arguments(&run).into_iter().map(|it| it.into_string().unwrap()).collect();
        assert_eq!(words.join(" "), want);
    }

    #[test]
    fn all_arguments_in_order() {
        let thread: ThreadId = "01a1e055-b282-7523-b985-c798177efe12".parse().unwrap();
        check(NONE, Start::New, &[], "exec --json --skip-git-repo-check");
        let full = Options {
            preferences: Preferences {
                profile: Some("p".into()),
                overrides: vec!["a=1".into(), "b.c=\"x\"".into()],
                model: Some("m".into()),
                local_model: true,
                strict: true,
                ignore_file: true,
                sandbox: Some(SandboxMode::WorkspaceWrite),
                writable_dirs: vec!["/x".into(), "/y".into()],
            },
            directory: Some("/w".into()),
            approval: Some(ApprovalPolicy::OnRequest),
            source: Some("s".into()),
            ephemeral: true,
            ignore_rules: true,
        };
        let all = "exec --json --config a=1 --config b.c=\"x\" --profile p --model m --thread-source s --sandbox \
                   workspace-write --cd /w --add-dir /x --add-dir /y --skip-git-repo-check --oss --strict-config \
                   --ignore-user-config --ignore-rules --ephemeral --output-schema schema.json --config \
                   approval_policy=\"on-request\"";
        let resumed = format!("{all} resume {thread} --image a.png --image b.png");
        check(full.clone(), Start::Resume(thread), &["a.png", "b.png"], &resumed);
        let forked = format!("{all} fork {thread} - --image a.png");
        check(full, Start::Fork(thread), &["a.png"], &forked);
    }

    #[test]
    fn limits_are_settings() {
        let limits = TurnLimits::new().tokens(9).calls(3).requests(2).time(Duration::from_secs(5));
        let (options, from, images) = (&NONE, Start::New, &[]);
        let (schema, output_retries, files) = (None, None, &[]);
        let run =
            Run { options, from, limits, schema, output_retries, images, files, heddle: true };
        let words: Vec<_> =
            arguments(&run).into_iter().map(|it| it.into_string().unwrap()).collect();
        let want = "exec --json --include-deltas --include-refused --config limits.tokens_max=9 --config limits.calls_max=3 --config \
                    limits.requests_max=2 --skip-git-repo-check";
        assert_eq!(words.join(" "), want);
    }

    #[test]
    fn heddle_is_told_how_often_to_ask_again() {
        let (options, from, schema) = (&NONE, Start::New, Some(Path::new("s")));
        let (limits, output_retries, images) = (TurnLimits::default(), Some(3), &[]);
        let files = &[];
        let run =
            Run { options, from, limits, schema, output_retries, images, files, heddle: true };
        let words: Vec<_> =
            arguments(&run).into_iter().map(|it| it.into_string().unwrap()).collect();
        let want = "exec --json --include-deltas --include-refused --config limits.output_retries=3 --skip-git-repo-check --output-schema s";
        assert_eq!(words.join(" "), want);
    }

    #[test]
    fn heddle_takes_files() {
        let files = ["a.pdf".into(), "b, c.txt".into()];
        let (options, images) = (NONE, ["d.png".into()]);
        let run = Run {
            options: &options,
            from: Start::New,
            limits: TurnLimits::default(),
            schema: None,
            output_retries: None,
            images: &images,
            files: &files,
            heddle: true,
        };
        let words = arguments(&run);
        let want = ["--image", "d.png", "--file", "a.pdf", "--file", "b, c.txt"];
        assert_eq!(words[words.len() - 6..], want);
    }

    #[test]
    fn approval_policies_are_toml() {
        let granular = Granular { sandbox_approval: true, rules: false };
        for (policy, want) in [
            (ApprovalPolicy::Untrusted, "\"untrusted\""),
            (ApprovalPolicy::Never, "\"never\""),
            (
                ApprovalPolicy::Granular(granular),
                "{granular={sandbox_approval=true,rules=false,mcp_elicitations=false}}",
            ),
        ] {
            let options = Options { approval: Some(policy), ..NONE };
            let want = format!("exec --json --skip-git-repo-check --config approval_policy={want}");
            check(options, Start::New, &[], &want);
        }
    }
}
