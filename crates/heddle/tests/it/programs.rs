//! Programs that misbehave, behind both transports: each is a typed error, in time, with what the program printed.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use heddle::error::{Limit, LimitKind};
use heddle::events::{Event, ItemBody};
use heddle::structured_output::Schema;
use heddle::transport::{AppServer, Exec, Exit, Program, TransportError};
use heddle::{Error, ErrorKind, Heddle, RunLimits, ThreadSpec, TurnLimits, TurnResult};
use tempfile::TempDir;

/// A directory with a program in it.
struct Lab {
    root: TempDir,
    heddle: Heddle,
}

impl Lab {
    /// Writes a program that says a version, and then runs `script`, a text for `sh`.
    fn new(script: &str) -> (Self, Program) {
        Self::of("codex-cli 0.166.0", script)
    }

    /// The same, for a program that says it is heddle.
    fn heddle(script: &str) -> (Self, Program) {
        Self::of("heddle 0.1.0", script)
    }

    fn of(version: &str, script: &str) -> (Self, Program) {
        let root = TempDir::new().unwrap();
        let heddle = Heddle::builder().home(root.path()).build().unwrap();
        let path = root.path().join("program");
        let text = format!(
            "#!/bin/sh\ncase \"$1\" in --version) echo {version}; exit 0;; esac\n{script}\n"
        );
        write_program(&path, &text);
        (Self { root, heddle }, Program::new(path).start_timeout(Duration::from_secs(5)))
    }
}

fn write_program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What a turn came to.
async fn run(heddle: &Heddle) -> Result<TurnResult, TransportError> {
    let thread = heddle.start(ThreadSpec::new()).await.map_err(transport_error)?;
    thread.turn("hello").run().await.map_err(transport_error)
}

fn transport_error(error: Error) -> TransportError {
    assert_eq!(error.kind(), ErrorKind::Program);
    let transport = error.transport().expect("there is one of this kind").clone();
    assert_eq!(error.to_string(), transport.to_string());
    transport
}

async fn exec(program: Program, lab: &Lab) -> Result<TurnResult, TransportError> {
    run(&lab.heddle.over(Exec::new(program))).await
}

async fn app_server(program: Program, lab: &Lab) -> Result<TurnResult, TransportError> {
    let server = AppServer::start(program).await?;
    run(&lab.heddle.over(server)).await
}

const STARTED: &str =
    r#"echo '{"type":"thread.started","thread_id":"01a1e055-b282-7523-b985-c798177efe12"}'"#;
const TURN: &str = r#"echo '{"type":"turn.started"}'"#;
const DONE: &str = r#"echo '{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"hi"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":2,"reasoning_output_tokens":0}}'"#;

#[tokio::test]
async fn exec_programs_that_misbehave() {
    type Want = fn(&TransportError) -> bool;
    let cases: [(&str, &str, Want); 14] = [
        ("it ends at once", "exit 3", |error| {
            matches!(error, TransportError::Exited { exit: Exit::Code(3), .. })
        }),
        ("it is killed", "kill -9 $$", |error| {
            matches!(error, TransportError::Exited { exit: Exit::Signal(9), .. })
        }),
        ("it ends before its turn", STARTED, |error| {
            matches!(error, TransportError::Exited { exit: Exit::Code(0), .. })
        }),
        (
            "it says why on stderr",
            "echo the disk is full >&2; exit 1",
            |error| matches!(error, TransportError::Exited { printed, .. } if printed.as_str().contains("the disk is full")),
        ),
        (
            "it floods stderr",
            "yes flood | head -c 3000000 >&2; echo the end >&2; exit 1",
            |error| {
                matches!(error, TransportError::Exited { printed, .. }
                if printed.as_str().len() < 40_000 && printed.as_str().contains("the end"))
            },
        ),
        ("it prints a secret", "echo key sk-abcdefghijklmnopqrstuvwxyz >&2; exit 1", |error| {
            !error.to_string().contains("sk-abc") && error.to_string().contains("[redacted]")
        }),
        (
            "it prints text",
            "echo Loading; sleep 60",
            |error| matches!(error, TransportError::Malformed { line, .. } if line == "Loading"),
        ),
        ("it prints bytes", "printf '\\377\\376\\n'; sleep 60", |error| {
            matches!(error, TransportError::Malformed { .. })
        }),
        ("it prints a number", "echo 42; sleep 60", |error| {
            matches!(error, TransportError::Malformed { .. })
        }),
        ("it prints an object without a kind", "echo '{}'; sleep 60", |error| {
            matches!(error, TransportError::Malformed { .. })
        }),
        ("it stops within a line", r#"printf '{"type":"thread.sta'"#, |error| {
            matches!(error, TransportError::Malformed { .. })
        }),
        ("its line has no end", "yes x | tr -d '\\n'", |error| {
            matches!(error, TransportError::LineTooLong { limit: 100_000, .. })
        }),
        ("it closes its output and goes on", "exec >&- 2>&-; sleep 60", |error| {
            matches!(error, TransportError::Disconnected { .. })
        }),
        (
            "its thread has no id",
            r#"echo '{"type":"thread.started","thread_id":"x"}'; sleep 60"#,
            |error| matches!(error, TransportError::Malformed { .. }),
        ),
    ];
    for (what, script, want) in cases {
        let (lab, program) = Lab::new(script);
        let error = exec(program.line_limit(100_000), &lab).await.unwrap_err();
        assert!(want(&error), "{what}: {error:?}");
        assert!(!error.to_string().contains('\u{1b}'), "{what}: {error}");
    }
}

#[tokio::test]
async fn programs_that_hang_are_given_up() {
    let soon = Duration::from_millis(300);
    for (what, script) in [
        ("before its first line", "sleep 60"),
        ("in its turn", &*format!("{STARTED}\n{TURN}\nsleep 60")),
    ] {
        let (lab, program) = Lab::new(script);
        let began = Instant::now();
        let program = program.start_timeout(soon).silence_timeout(soon);
        // The program itself is asked for its version first, which may take longer on a busy machine.
        let error = exec(program, &lab).await.unwrap_err();
        assert!(matches!(error, TransportError::TimedOut { .. }), "{what}: {error:?}");
        assert!(error.is_retryable(), "{what}");
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
    }
}

/// Whatever a program prints on stderr, it has to get on with its turn.
#[tokio::test]
async fn programs_that_only_complain_are_given_up() {
    let soon = Duration::from_millis(500);
    let flood = "while :; do echo complaint >&2; done";
    for (what, script) in [
        ("before its first line", flood.to_owned()),
        ("in its turn", format!("{STARTED}\n{TURN}\n{flood}")),
        (
            "in its turn, slowly",
            format!("{STARTED}\n{TURN}\nwhile :; do echo . >&2; sleep 0.1; done"),
        ),
    ] {
        let (lab, program) = Lab::new(&script);
        let program = program.start_timeout(Duration::from_secs(2)).silence_timeout(soon);
        let turn = tokio::time::timeout(Duration::from_secs(20), exec(program, &lab));
        let error = turn.await.expect(what).unwrap_err();
        let TransportError::TimedOut { printed, .. } = &error else { panic!("{what}: {error:?}") };
        assert!(!printed.as_str().is_empty() && printed.as_str().len() < 40_000, "{what}");
    }
}

/// Time that nobody listens is not the program's silence.
#[tokio::test]
async fn a_reader_that_comes_back_late_finds_what_was_said() {
    let (lab, program) = Lab::new(&format!("{STARTED}\n{TURN}\nsleep 0.2\n{DONE}"));
    let program = program.silence_timeout(Duration::from_secs(1));
    let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
    let mut turn = thread.turn("hello");
    while !matches!(turn.next().await.unwrap(), Event::TurnStarted { .. }) {}
    std::thread::sleep(Duration::from_millis(1_500));
    while turn.next().await.is_some() {}
    assert_eq!(turn.result().unwrap().final_response.as_deref(), Some("hi"));
}

/// A connection may be idle between turns for as long as it likes; a turn may not.
#[tokio::test]
async fn servers_that_say_nothing_in_a_turn_are_given_up() {
    let soon = Duration::from_millis(500);
    let (lab, program) = Lab::new(&serving(&["one", "two"]));
    let server_that_answers = AppServer::start(program.silence_timeout(soon)).await.unwrap();
    let thread = lab.heddle.over(server_that_answers).start(ThreadSpec::new()).await.unwrap();
    for answer in ["one", "two"] {
        tokio::time::sleep(2 * soon).await;
        let result = thread.turn("hello").run().await.unwrap();
        assert_eq!(result.final_response.as_deref(), Some(answer));
    }
    let (lab, program) = Lab::new(&server(&format!("{BEGAN}\nsleep 60")));
    let server = AppServer::start(program.silence_timeout(soon)).await.unwrap();
    let thread = lab.heddle.over(server).start(ThreadSpec::new()).await.unwrap();
    tokio::time::sleep(2 * soon).await;
    let turn = tokio::time::timeout(Duration::from_secs(20), thread.turn("hello").run());
    let error = transport_error(turn.await.expect("it is given up").unwrap_err());
    assert!(
        matches!(error, TransportError::TimedOut { waiting_for: "a turn was running", .. }),
        "{error:?}"
    );
}

/// A program that says it has failed after the end of its turn has failed, and its answer is not lost.
#[tokio::test]
async fn programs_that_fail_after_their_answer() {
    for (end, exit) in [("exit 1", Exit::Code(1)), ("kill -9 $$", Exit::Signal(9))] {
        let (lab, program) =
            Lab::new(&format!("{STARTED}\n{TURN}\n{DONE}\necho no room left >&2\n{end}"));
        let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
        let error = thread.turn("hello").run().await.unwrap_err();
        assert_eq!(error.so_far().unwrap().final_response.as_deref(), Some("hi"), "{end}");
        let text = error.to_string();
        for words in ["after the turn was completed", "no room left"] {
            assert!(text.contains(words), "{end}: {text}");
        }
        assert!(
            matches!(error.transport(), Some(TransportError::FailedAtEnd { exit: is, .. }) if *is == exit),
            "{end}: {error:?}"
        );
    }
}

/// A program that goes on with another thread than it was asked for, or renames its own.
#[tokio::test]
async fn programs_that_rename_their_thread() {
    let other = STARTED.replace("fe12", "fe13");
    let (lab, program) = Lab::new(&format!("{STARTED}\n{other}\n{TURN}\n{DONE}"));
    let error = exec(program, &lab).await.unwrap_err();
    let TransportError::Malformed { reason, .. } = &error else { panic!("{error:?}") };
    assert!(reason.contains("efe12") && reason.contains("efe13"), "{reason}");
    // The same line twice is no other thread.
    let (lab, program) = Lab::new(&format!("{STARTED}\n{STARTED}\n{TURN}\n{DONE}"));
    exec(program, &lab).await.unwrap();
    // The second turn of a thread is of that thread.
    let (lab, program) = Lab::new(&format!(
        "[ -e \"$0.ran\" ] && other=1; touch \"$0.ran\"\nif [ \"$other\" ]; then {other}; else {STARTED}; fi\n{TURN}\n{DONE}"
    ));
    let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
    thread.turn("one").run().await.unwrap();
    let id = thread.id();
    let error = transport_error(thread.turn("two").run().await.unwrap_err());
    assert!(matches!(error, TransportError::Malformed { .. }), "{error:?}");
    assert_eq!(thread.id(), id);
}

/// What another program says of a failure is safe to print.
#[tokio::test]
async fn control_characters_of_programs_are_visible() {
    let cases = [
        r#"{"type":"turn.failed","error":{"message":"no\u001b[2J\u202egnp","heddle":{"request_id":"req\u001b[2J"}}}"#,
        r#"{"type":"thread.started","thread_id":"\u001b[2J"}"#,
        r#"{"type":"turn.completed","usage":"\u001b[2J"}"#,
        r#"{"type":"\u001b[2J"#,
    ];
    for line in cases {
        let (lab, program) = Lab::new(&format!("{TURN}\ncat <<'END'\n{line}\nEND\nsleep 1"));
        let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
        let error = thread.turn("hello").run().await.unwrap_err();
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{line}: {text:?}");
        }
        if let Some(transport) = error.transport() {
            assert!(!transport.to_string().contains('\u{1b}'), "{line}: {transport}");
        }
    }
}

/// A limit that is reached while an answer is corrected is the limit of the whole.
#[tokio::test]
async fn a_limit_during_a_correction_is_the_limit_of_the_whole() {
    let step = r#"echo '{"type":"item.completed","item":{"id":"c'$i'","type":"command_execution","command":"true","aggregated_output":"","exit_code":0,"status":"completed"}}'"#;
    // Two calls in the first turn, whose answer is wrong; then calls until it is interrupted.
    let (lab, program) = Lab::new(&noting(
        &[WRONG],
        &format!("i=0; while [ $n -gt 1 ] || [ $i -lt 2 ]; do i=$((i + 1)); {step}; done"),
    ));
    let heddle = lab.heddle.over(Exec::new(program));
    let thread = heddle.start(ThreadSpec::new()).await.unwrap();
    let schema = Schema::object().field("ok", Schema::boolean());
    let turn = thread.turn("go").limits(TurnLimits::new().calls(5));
    let error = turn.output_schema(schema).unwrap().run().await.unwrap_err();
    assert_eq!(error.limit(), Some(Limit { kind: LimitKind::Calls, value: 5 }), "{error}");
    assert!(error.to_string().contains("its limit of 5 "), "{error}");
}

#[tokio::test]
async fn programs_that_are_not_usable() {
    let (lab, _) = Lab::new("");
    let missing = lab.root.path().join("missing");
    let error = exec(Program::new(missing), &lab).await.unwrap_err();
    assert!(matches!(error, TransportError::NotStarted { .. }), "{error:?}");
    for says in ["echo codex-cli 0.10.0", "echo hello", "true", "exit 1"] {
        let path: PathBuf = lab.root.path().join("other");
        write_program(&path, &format!("#!/bin/sh\n{says}\n"));
        let error = exec(Program::new(&path), &lab).await.unwrap_err();
        assert!(matches!(error, TransportError::Version { .. }), "{says}: {error:?}");
    }
}

#[tokio::test]
async fn programs_that_are_only_odd_are_no_errors() {
    for (what, script) in [
        ("it does not read its input", format!("exec <&-\n{STARTED}\n{TURN}\n{DONE}")),
        (
            "it says something newer",
            format!("{STARTED}\necho '{{\"type\":\"turn.newer\"}}'\n{TURN}\n{DONE}"),
        ),
        ("it goes on talking", format!("{STARTED}\n{TURN}\n{DONE}\necho more")),
        ("it has blank lines", format!("echo\n{STARTED}\necho\n{TURN}\n{DONE}\necho")),
        (
            "its last line has no end",
            format!("{STARTED}\n{TURN}\n{}", DONE.replace("\necho", "\nprintf %s")),
        ),
    ] {
        let (lab, program) = Lab::new(&script);
        let heddle = lab.heddle.over(Exec::new(program));
        let thread = heddle.start(ThreadSpec::new()).await.unwrap();
        // More than a pipe holds.
        let result = thread.turn("x".repeat(1 << 20)).run().await;
        let result = result.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(result.final_response.as_deref(), Some("hi"), "{what}");
    }
}

/// A turn is over when the program says so, whatever it leaves behind with its output open.
#[tokio::test]
async fn what_a_program_has_started_does_not_hold_up_its_turn() {
    for (what, script) in [
        ("a child", format!("{STARTED}\n{TURN}\n{DONE}\nsleep 60 & exit 0")),
        ("a child in a session", format!("{STARTED}\n{TURN}\n{DONE}\nsetsid sleep 60 & exit 0")),
    ] {
        let (lab, program) = Lab::new(&script);
        let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
        let turn = thread.turn("hello").run();
        let result = tokio::time::timeout(Duration::from_secs(5), turn).await;
        assert_eq!(result.expect(what).unwrap().final_response.as_deref(), Some("hi"), "{what}");
    }
}

/// The process of a dropped turn has the thread open until it is gone, so the next turn waits for that.
#[tokio::test]
async fn a_turn_after_a_dropped_one_waits_for_its_process() {
    let (lab, program) = Lab::new(&format!(
        r#"{STARTED}
{TURN}
if [ -e "$0.began" ]; then [ -e "$0.gone" ] || exit 9; {DONE}
exit 0; fi
trap 'sleep 0.3; touch "$0.gone"; exit 0' INT
touch "$0.began"
while :; do sleep 0.1; done"#
    ));
    let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
    let mut turn = thread.turn("one");
    let until = Instant::now() + Duration::from_secs(5);
    while !lab.root.path().join("program.began").exists() {
        assert!(Instant::now() < until, "the program has not started");
        let _ = tokio::time::timeout(Duration::from_millis(5), turn.next()).await;
    }
    drop(turn);
    let result = thread.turn("two").run().await.unwrap();
    assert_eq!(result.final_response.as_deref(), Some("hi"));
}

#[tokio::test]
async fn an_interrupt_that_is_ignored_ends_the_turn_anyway() {
    let (lab, program) =
        Lab::new(&format!("trap '' INT TERM\n{STARTED}\n{TURN}\nwhile :; do sleep 1; done"));
    let heddle = lab.heddle.over(Exec::new(program));
    let thread = heddle.start(ThreadSpec::new()).await.unwrap();
    let turn = thread.turn("hello");
    turn.handle().interrupt();
    let result = turn.run().await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Interrupted);
}

/// What a program of the tests of schemas answers: a shell script that prints the lines of its turn number `$n`.
fn answering(answers: &[&str]) -> String {
    let cases = answers.iter().enumerate().map(|(number, answer)| {
        let pattern =
            if number + 1 == answers.len() { "*".to_owned() } else { (number + 1).to_string() };
        format!("{pattern}) answer='{}';; ", answer.replace('"', "\\\\\""))
    });
    format!("case $n in {} esac", cases.collect::<String>())
}

/// A program that answers so, one answer for each run, and notes its arguments, its input and its schema.
fn noting(answers: &[&str], then: &str) -> String {
    format!(
        r#"n=$(($(cat "$0.runs" 2>/dev/null || echo 0) + 1)); echo $n > "$0.runs"
echo "$@" > "$0.args$n"; cat > "$0.input$n"
while [ $# -gt 0 ]; do case "$1" in --output-schema) cp "$2" "$0.schema"; echo "$2" > "$0.path"; ls -l "$2" > "$0.mode";; esac; shift; done
{STARTED}
{TURN}
{}
{then}
printf '{{"type":"item.completed","item":{{"id":"item_0","type":"agent_message","text":"%b"}}}}\n' "$answer"
echo '{{"type":"turn.completed","usage":{{"input_tokens":'$((n * 10))',"cached_input_tokens":0,"output_tokens":'$n',"reasoning_output_tokens":0}}}}'"#,
        answering(answers)
    )
}

/// A server that answers so, one answer for each turn.
fn serving(answers: &[&str]) -> String {
    let thread = r#""threadId":"01a1e055-b282-7523-b985-c798177efe12""#;
    server(&format!(
        r#"n=0; while :; do
n=$((n + 1)); echo "$line" >> "$0.turns"
echo '{{"id":'$((n + 1))',"result":{{"turn":{{"id":"t'$n'"}}}}}}'
{}
note() {{ printf '{{"method":"%s","params":{{{thread},"turnId":"t%s",%b}}}}\n' "$1" $n "$2"; }}
note turn/started '"turn":{{"id":"t'$n'"}}'
note item/completed '"item":{{"type":"userMessage","id":"u'$n'","content":[]}}'
note item/completed '"item":{{"type":"agentMessage","id":"a'$n'","text":"'"$answer"'"}}'
note thread/tokenUsage/updated '"tokenUsage":{{"total":{{"inputTokens":'$((n * 10))',"outputTokens":'$n'}}}}'
note turn/completed '"turn":{{"id":"t'$n'","status":"completed"}}'
read -r line || exit 0; done"#,
        answering(answers)
    ))
}

/// Runs a turn with a schema over a program that does not check answers.
async fn ask(heddle: &Heddle, retries: Option<u32>) -> (Result<TurnResult, Error>, Vec<Event>) {
    let thread = heddle.start(ThreadSpec::new()).await.unwrap();
    let schema = Schema::object().field("ok", Schema::boolean());
    let mut turn = thread.turn("go").output_schema(schema).unwrap();
    if let Some(retries) = retries {
        turn = turn.output_retries(retries).unwrap();
    }
    let mut events = Vec::new();
    while let Some(event) = turn.next().await {
        events.push(event);
    }
    (turn.result(), events)
}

const GOOD: &str = r#"{"ok":true}"#;
const WRONG: &str = r#"{"ok":"yes"}"#;

#[tokio::test]
async fn answers_of_programs_that_do_not_check_them_are_checked() {
    /// How often the answer may be corrected, what the program answers, how many turns it takes, and whether one is right.
    type Case<'a> = (Option<u32>, &'a [&'a str], u64, bool);
    let cases: [Case<'_>; 6] = [
        (None, &[GOOD], 1, true),
        (None, &["not JSON", GOOD], 2, true),
        (None, &[WRONG, "{}", GOOD], 2, false),
        (Some(0), &[WRONG, GOOD], 1, false),
        (Some(2), &[WRONG, "{}", GOOD], 3, true),
        (Some(2), &[WRONG], 3, false),
    ];
    for (retries, answers, turns, right) in cases {
        for over_exec in [true, false] {
            let what = format!("{answers:?} {retries:?} exec {over_exec}");
            let script = if over_exec { noting(answers, "") } else { serving(answers) };
            let (lab, program) = Lab::new(&script);
            let heddle = match over_exec {
                true => lab.heddle.over(Exec::new(program)),
                false => lab.heddle.over(AppServer::start(program).await.unwrap()),
            };
            let (result, events) = ask(&heddle, retries).await;
            let result = match (result, right) {
                (Ok(result), true) => {
                    assert_eq!(result.final_response.as_deref(), Some(GOOD), "{what}");
                    result
                }
                (Err(error), false) => {
                    assert_eq!(error.kind(), ErrorKind::Answer, "{what}");
                    let last = answers[answers.len().min(turns as usize) - 1];
                    let got = if last == "{}" {
                        "got {}"
                    } else {
                        "at /ok: expected boolean, got \"yes\""
                    };
                    assert!(error.to_string().contains(got), "{what}: {error}");
                    error.into_so_far().unwrap()
                }
                (result, _) => panic!("{what}: {result:?}"),
            };
            // To the caller it is one turn.
            let count = |is: fn(&Event) -> bool| events.iter().filter(|event| is(event)).count();
            assert_eq!(count(|event| matches!(event, Event::TurnStarted { .. })), 1, "{what}");
            assert_eq!(count(Event::is_terminal), 1, "{what}");
            assert!(events.last().unwrap().is_terminal(), "{what}");
            let warned = count(|event| matches!(event, Event::Warning(_)));
            assert_eq!(warned as u64, turns - 1, "{what}: {events:?}");
            let ids: BTreeSet<_> = result.items.iter().map(|item| item.id).collect();
            assert_eq!(ids.len() as u64, turns, "{what}: each message has an id of its own");
            let said = count(
                |event| matches!(event, Event::ItemCompleted(item) if matches!(item.body, ItemBody::UserMessage(_))),
            );
            assert_eq!(said, usize::from(!over_exec), "{what}: corrections are not the user's");
            assert_eq!(
                (result.usage.input_tokens, result.usage.output_tokens),
                (turns * 10, turns),
                "{what}"
            );
            let path = |name: &str| lab.root.path().join(format!("program.{name}"));
            let read = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
            if over_exec {
                assert!(read("schema").contains("additionalProperties"), "{what}");
                assert!(read("mode").starts_with("-rw-------"), "{what}: {}", read("mode"));
                assert!(
                    !Path::new(read("path").trim()).exists(),
                    "{what}: the schema file is left"
                );
                assert_eq!(read("input1"), "go", "{what}");
                assert_eq!(path("args2").exists(), turns > 1, "{what}");
                if turns > 1 {
                    assert!(read("args2").contains("resume 01a1e055"), "{what}");
                    assert!(read("args2").contains("--output-schema"), "{what}");
                    assert!(read("input2").contains("does not follow the schema"), "{what}");
                }
            } else {
                let said = read("turns");
                assert_eq!(said.lines().count() as u64, turns, "{what}: {said}");
                assert!(said.lines().all(|line| line.contains("outputSchema")), "{said}");
                assert_eq!(said.contains("does not follow the schema"), turns > 1, "{said}");
            }
        }
    }
}

#[tokio::test]
async fn a_thread_of_one_turn_cannot_be_asked_again() {
    let (lab, program) = Lab::new(&noting(&[WRONG, GOOD], ""));
    let heddle = lab.heddle.over(Exec::new(program));
    let thread = heddle.start(ThreadSpec::new().ephemeral(true)).await.unwrap();
    let schema = Schema::object().field("ok", Schema::boolean());
    let result = thread.turn("go").output_schema(schema).unwrap().run().await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Answer);
}

#[tokio::test]
async fn schema_files_are_removed_however_a_turn_ends() {
    for (what, then) in [
        ("the program fails", "exit 3"),
        ("the program is killed", "kill -9 $$"),
        ("the turn is dropped", "sleep 60"),
    ] {
        let (lab, program) = Lab::new(&noting(&[GOOD], then));
        let heddle = lab.heddle.over(Exec::new(program));
        let thread = heddle.start(ThreadSpec::new()).await.unwrap();
        let schema = Schema::object().field("ok", Schema::boolean());
        let mut turn = thread.turn("go").output_schema(schema).unwrap();
        while let Some(event) = turn.next().await {
            if then == "sleep 60" && matches!(event, Event::TurnStarted { .. }) {
                break;
            }
        }
        let file = std::fs::read_to_string(lab.root.path().join("program.path")).unwrap();
        assert_eq!(Path::new(file.trim()).exists(), then == "sleep 60", "{what}");
        drop(turn);
        assert!(!Path::new(file.trim()).exists(), "{what}: the schema file is left");
    }
}

/// A server that introduces itself, opens a thread, and then does what `script` says when a turn is requested.
fn server(script: &str) -> String {
    let opened = r#"{"id":1,"result":{"thread":{"id":"01a1e055-b282-7523-b985-c798177efe12"},"model":"m","modelProvider":"p","cwd":"/","sandbox":{"type":"readOnly"}}}"#;
    format!(
        "read -r line; echo '{}'\nread -r line; read -r line; echo '{opened}'\nread -r line\n{script}",
        r#"{"id":0,"result":{"userAgent":"x/0.166.0 (y)"}}"#,
    )
}

const BEGAN: &str = r#"echo '{"id":2,"result":{"turn":{"id":"t"}}}'"#;

#[tokio::test]
async fn servers_that_misbehave() {
    type Want = fn(&TransportError) -> bool;
    let note = |method: &str, params: &str| {
        format!(
            "{BEGAN}\necho '{{\"method\":\"{method}\",\"params\":{{\"threadId\":\"01a1e055-b282-7523-b985-c798177efe12\",{params}}}}}'\nsleep 60"
        )
    };
    let cases: [(&str, String, Want); 10] = [
        (
            "it ends at once",
            "echo no config >&2; exit 2".to_owned(),
            |error| matches!(error, TransportError::Exited { exit: Exit::Code(2), printed, .. } if printed.as_str().contains("no config")),
        ),
        ("it does not answer", "sleep 60".to_owned(), |error| {
            matches!(error, TransportError::TimedOut { .. })
        }),
        (
            "it is too old",
            r#"read -r line; echo '{"id":0,"result":{"userAgent":"x/0.10.0"}}'; sleep 60"#
                .to_owned(),
            |error| matches!(error, TransportError::Version { .. }),
        ),
        (
            "it refuses the introduction",
            r#"read -r line; echo '{"id":0,"error":{"code":-32600,"message":"no"}}'; sleep 60"#
                .to_owned(),
            |error| matches!(error, TransportError::Refused { code: -32600, .. }),
        ),
        (
            "it prints text",
            "echo hello; sleep 60".to_owned(),
            |error| matches!(error, TransportError::Malformed { line, .. } if line == "hello"),
        ),
        ("its line has no end", "yes x | tr -d '\\n'".to_owned(), |error| {
            matches!(error, TransportError::LineTooLong { .. })
        }),
        (
            "it ends in the turn",
            server(&format!("{BEGAN}\necho out of memory >&2; exit 7")),
            |error| matches!(error, TransportError::Exited { exit: Exit::Code(7), printed, .. } if printed.as_str().contains("out of memory")),
        ),
        (
            "it refuses the turn",
            server(r#"echo '{"id":2,"error":{"code":-32600,"message":"busy"}}'; sleep 60"#),
            |error| matches!(error, TransportError::Refused { .. }),
        ),
        ("its turn is not one", server(&note("turn/completed", "\"turn\":7")), |error| {
            matches!(error, TransportError::Malformed { .. })
        }),
        (
            "its thread is not one",
            format!(
                "{}\necho '{}'; sleep 60",
                r#"read -r line; echo '{"id":0,"result":{"userAgent":"x/0.166.0"}}'; read -r line; read -r line"#,
                r#"{"id":1,"result":{}}"#
            ),
            |error| matches!(error, TransportError::Malformed { .. }),
        ),
    ];
    for (what, script, want) in cases {
        let (lab, program) = Lab::new(&script);
        let program = program.line_limit(100_000).start_timeout(Duration::from_secs(2));
        let error = app_server(program, &lab).await.unwrap_err();
        assert!(want(&error), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn questions_that_nobody_understands_are_refused_and_the_turn_goes_on() {
    let thread = "\"threadId\":\"01a1e055-b282-7523-b985-c798177efe12\"";
    let script = server(&format!(
        "{BEGAN}\necho '{{\"method\":\"item/newer/ask\",\"id\":9,\"params\":{{{thread}}}}}'\nread -r answer\n\
         case \"$answer\" in *error*) status=completed;; *) status=failed;; esac\n\
         echo '{{\"method\":\"turn/completed\",\"params\":{{{thread},\"turn\":{{\"id\":\"t\",\"status\":\"'$status'\"}}}}}}'\nsleep 60"
    ));
    let (lab, program) = Lab::new(&script);
    app_server(program, &lab).await.unwrap();
}

/// A host that ends right after it dropped a turn leaves no program behind, however stubborn that is.
#[test]
fn a_runtime_that_ends_takes_its_programs_with_it() {
    let script = format!(
        "trap '' INT TERM\n{STARTED}\n{TURN}\necho $$ > \"${{0%/*}}/pid.new\"\nmv \"${{0%/*}}/pid.new\" \"${{0%/*}}/pid\"\nwhile :; do sleep 1; done"
    );
    let (lab, program) = Lab::new(&script);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
        let mut turn = thread.turn("hello");
        while !matches!(turn.next().await, Some(Event::TurnStarted { .. })) {}
        let until = Instant::now() + Duration::from_secs(5);
        while !lab.root.path().join("pid").exists() {
            assert!(Instant::now() < until, "the program has not started");
            tokio::task::yield_now().await;
        }
    });
    let pid = std::fs::read_to_string(lab.root.path().join("pid")).unwrap();
    drop(runtime);
    let until = Instant::now() + Duration::from_secs(5);
    while is_running(pid.trim()) {
        assert!(Instant::now() < until, "{pid} still runs");
        std::thread::yield_now();
    }
}

/// Returns whether a process runs; a dead one that nobody has asked for does not.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

fn short(time: u64) -> TurnLimits {
    TurnLimits::new().time(Duration::from_millis(time))
}

/// Runs a turn with limits over a program; returns the limit that ended it.
async fn limited(heddle: &Heddle, limits: TurnLimits) -> Result<Limit, Error> {
    let thread = heddle.start(ThreadSpec::new().limits(limits)).await?;
    let error = thread.turn("hello").run().await.map(|_| ()).unwrap_err();
    match error.limit() {
        Some(limit) => {
            assert_eq!(error.kind(), ErrorKind::Limit);
            assert!(error.to_string().contains("another turn goes on"), "{error}");
            assert!(error.so_far().is_some() && error.thread_id().is_some());
            Ok(limit)
        }
        None => Err(error),
    }
}

/// A program that calls tools until it is interrupted.
const CALLS: &str = r#"i=0; while :; do i=$((i + 1))
echo '{"type":"item.started","item":{"id":"item_'$i'","type":"command_execution","command":"true","aggregated_output":"","exit_code":null,"status":"in_progress"}}'
echo '{"type":"item.completed","item":{"id":"item_'$i'","type":"command_execution","command":"true","aggregated_output":"","exit_code":0,"status":"completed"}}'
done"#;

#[tokio::test]
async fn programs_are_interrupted_at_a_limit() {
    let calls = |max| TurnLimits::new().calls(max);
    for (what, script, limits, want) in [
        ("time", "exec sleep 60", short(300), (LimitKind::Time, 300)),
        ("calls", CALLS, calls(3), (LimitKind::Calls, 3)),
        // It does not end, so it is killed.
        (
            "time, ignored",
            "trap '' INT TERM; while :; do sleep 1; done",
            short(10),
            (LimitKind::Time, 10),
        ),
        (
            "calls, and a failure of its own",
            &format!(
                "trap 'echo {{\\\"type\\\":\\\"turn.failed\\\",\\\"error\\\":{{\\\"message\\\":\\\"no\\\"}}}}; exit 1' INT\n{CALLS}"
            ),
            calls(1),
            (LimitKind::Calls, 1),
        ),
    ] {
        let (lab, program) = Lab::new(&format!("{STARTED}\n{TURN}\n{script}"));
        let heddle = lab.heddle.over(Exec::new(program));
        let limit = limited(&heddle, limits).await.unwrap();
        assert_eq!((limit.kind, limit.value), want, "{what}");
    }
    // An answer that was complete before is an answer.
    let (lab, program) = Lab::new(&format!("{STARTED}\n{TURN}\n{DONE}"));
    let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
    thread.turn("hello").limits(TurnLimits::new().calls(0)).run().await.unwrap();
}

#[tokio::test]
async fn limits_that_a_program_does_not_tell_of_are_refused() {
    for limits in [TurnLimits::new().tokens(5), TurnLimits::new().requests(5)] {
        let (lab, program) = Lab::new(&format!("{STARTED}\n{TURN}\n{DONE}"));
        let heddle = lab.heddle.over(Exec::new(program.clone()));
        let error = limited(&heddle, limits).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    // Between turns they are known.
    let (lab, program) = Lab::new(&format!("{STARTED}\n{TURN}\n{DONE}"));
    let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
    let run = thread.run("hello").follow_up(|_| Some("more".into()));
    let error = run.limits(RunLimits::new().tokens(3)).await.unwrap_err();
    let limit = Limit { kind: LimitKind::Tokens, value: 3 };
    assert_eq!((error.kind(), error.limit()), (ErrorKind::Limit, Some(limit)));
    assert_eq!(error.run().unwrap().turns.len(), 1);
}

#[tokio::test]
async fn servers_are_interrupted_at_a_limit() {
    let thread = "\"threadId\":\"01a1e055-b282-7523-b985-c798177efe12\"";
    let note = |method: &str, params: &str| {
        format!(
            "echo '{{\"method\":\"{method}\",\"params\":{{{thread},\"turnId\":\"t\",{params}}}}}'\n"
        )
    };
    let command = |n: u32| {
        let item = format!(
            "\"item\":{{\"type\":\"commandExecution\",\"id\":\"c{n}\",\"command\":\"true\",\"cwd\":\"/\",\"status\":\"inProgress\",\"commandActions\":[]}}"
        );
        note("item/started", &item)
    };
    let used = |tokens: u32| {
        let total = format!(
            "\"tokenUsage\":{{\"total\":{{\"inputTokens\":{tokens},\"outputTokens\":1,\"totalTokens\":{tokens}}}}}"
        );
        note("thread/tokenUsage/updated", &total)
    };
    let ended = note("turn/completed", "\"turn\":{\"id\":\"t\",\"status\":\"interrupted\"}");
    let none = TurnLimits::new();
    for (what, says, limits, want) in [
        ("time", String::new(), short(100), (LimitKind::Time, 100)),
        ("calls", command(1) + &command(2), none.calls(1), (LimitKind::Calls, 1)),
        ("tokens", used(99) + &command(1), none.tokens(100), (LimitKind::Tokens, 100)),
        ("requests", used(5) + &command(1), none.requests(1), (LimitKind::Requests, 1)),
    ] {
        // It answers the interruption, and ends the turn.
        let script = server(&format!("{BEGAN}\n{says}read -r line\n{ended}sleep 60"));
        let (lab, program) = Lab::new(&script);
        let heddle = lab.heddle.over(AppServer::start(program).await.unwrap());
        let limit = limited(&heddle, limits).await.unwrap();
        assert_eq!((limit.kind, limit.value), want, "{what}");
    }
}

/// The same over a server, whose messages are read beside the turn, but not all of them.
#[tokio::test]
async fn a_slow_reader_slows_a_server_and_loses_nothing() {
    const LINES: usize = 60_000;
    let thread = "\"threadId\":\"01a1e055-b282-7523-b985-c798177efe12\",\"turnId\":\"t\"";
    let message = "\"item\":{\"type\":\"agentMessage\",\"id\":\"a\",\"text\":\"\"}";
    let filler = "x".repeat(1_000);
    let delta = format!(
        "{{\"method\":\"item/agentMessage/delta\",\"params\":{{{thread},\"itemId\":\"a\",\"delta\":\"%d {filler}\"}}}}"
    )
    .replace('"', "\\\"");
    let script = server(&format!(
        "{BEGAN}\necho '{{\"method\":\"item/started\",\"params\":{{{thread},{message}}}}}'\n\
         awk 'BEGIN {{ for (i = 0; i < {LINES}; i++) printf \"{delta}\\n\", i }}'\ntouch \"$0.wrote\"\n\
         echo '{{\"method\":\"turn/completed\",\"params\":{{{thread},\"turn\":{{\"id\":\"t\",\"status\":\"completed\"}}}}}}'\nsleep 60"
    ));
    let (lab, program) = Lab::new(&script);
    let wrote = lab.root.path().join("program.wrote");
    let heddle = lab.heddle.over(AppServer::start(program).await.unwrap());
    let thread = heddle.start(ThreadSpec::new()).await.unwrap();
    let mut turn = thread.turn("hello");
    let mut read = 0;
    while let Some(event) = turn.next().await {
        if let Event::Delta { text, .. } = event {
            assert!(text.starts_with(&format!("{read} ")), "{read}: {}", &text[..20]);
            read += 1;
            // 16 MiB may wait to be read, of 60.
            assert!(read > LINES / 2 || !wrote.exists(), "{read} were read, and all is written");
        }
    }
    assert_eq!(read, LINES);
    // The server has named the turn.
    assert_eq!(turn.id(), "t");
    turn.result().unwrap();
}

/// Whoever reads slowly makes the program wait, which cannot write more than a pipe takes.
#[tokio::test]
async fn a_slow_reader_slows_a_program_and_loses_nothing() {
    const LINES: usize = 120_000;
    let lines = format!(
        "awk 'BEGIN {{ for (i = 0; i < {LINES}; i++) printf \"{{\\\"type\\\":\\\"item.delta\\\",\\\"item_id\\\":\\\"a\\\",\\\"item_type\\\":\\\"agent_message\\\",\\\"delta\\\":\\\"%d \\\"}}\\n\", i }}'"
    );
    let (lab, program) =
        Lab::new(&format!("{STARTED}\n{TURN}\n{lines}\ntouch \"$0.wrote\"\n{DONE}"));
    let wrote = lab.root.path().join("program.wrote");
    let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
    let mut turn = thread.turn("hello");
    let (mut text, mut read) = (String::new(), 0);
    while let Some(event) = turn.next().await {
        if let Event::Delta { text: part, .. } = event {
            text.push_str(&part);
            read += 1;
            // Far from the end, it has not come to the end of what it wants to write.
            assert!(read > LINES / 2 || !wrote.exists(), "{read} were read, and all is written");
        }
    }
    // The message at the end comes whole, which is a part of its own.
    let want: String = (0..LINES).map(|number| format!("{number} ")).collect::<String>() + "hi";
    assert!(text == want, "{read} parts came");
    turn.result().unwrap();
}

/// What a turn has used is its own, however it ended, over a program that says it.
#[tokio::test]
async fn tokens_of_a_failed_turn_are_its_own() {
    // The first turn fails, the others have their answers; each uses 10 tokens more than the one before.
    let (lab, program) = Lab::heddle(&format!(
        r#"n=$(($(cat "$0.runs" 2>/dev/null || echo 0) + 1)); echo $n > "$0.runs"
{STARTED}
{TURN}
usage() {{ printf '{{"input_tokens":%s,"cached_input_tokens":0,"output_tokens":0}}' "$1"; }}
if [ $n = 2 ]; then
    echo '{{"type":"turn.failed","error":{{"message":"no","heddle":{{"cause":"quota","usage":{{"thread":'$(usage 130)',"turn":'$(usage 20)'}}}}}}}}'
    exit 1
fi
echo '{{"type":"item.completed","item":{{"id":"item_0","type":"agent_message","text":"hi"}}}}'
case $n in 1) used=110;; *) used=160;; esac
echo '{{"type":"turn.completed","usage":'$(usage $used)'}}'"#
    ));
    let heddle = lab.heddle.over(Exec::new(program));
    let thread = heddle.start(ThreadSpec::new()).await.unwrap();
    let first = thread.turn("one").run().await.unwrap();
    assert_eq!((first.usage.input_tokens, first.thread_usage.input_tokens), (110, 110));
    let failed = thread.turn("two").run().await.unwrap_err().into_so_far().unwrap();
    assert_eq!((failed.usage.input_tokens, failed.thread_usage.input_tokens), (20, 130));
    // With those of the failed turn it would have used them up.
    let run = thread.run("three").limits(RunLimits::new().tokens(40)).await.unwrap();
    assert_eq!((run.usage.input_tokens, run.turns[0].thread_usage.input_tokens), (30, 160));
}

/// At a limit that is watched here, too: the event says it, and the result.
#[tokio::test]
async fn tokens_of_a_turn_at_its_limit_are_its_own() {
    let usage = r#"{"thread":{"input_tokens":130,"cached_input_tokens":0,"output_tokens":0},"turn":{"input_tokens":20,"cached_input_tokens":0,"output_tokens":0}}"#;
    let (lab, program) = Lab::heddle(&format!(
        r#"trap 'cat "$0.end"; exit 130' INT
cat > "$0.end" <<'END'
{{"type":"turn.failed","error":{{"message":"the turn was interrupted","heddle":{{"cause":"interrupted","usage":{usage}}}}}}}
END
{STARTED}
{TURN}
while :; do sleep 0.1; done"#
    ));
    let thread = lab.heddle.over(Exec::new(program)).start(ThreadSpec::new()).await.unwrap();
    let mut turn = thread.turn("hello").limits(short(300));
    let mut last = None;
    while let Some(event) = turn.next().await {
        last = Some(event);
    }
    let Some(Event::TurnFailed { error, .. }) = last else { panic!("{last:?}") };
    assert_eq!(error.usage.unwrap().turn.input_tokens, 20);
    let error = turn.result().unwrap_err();
    assert_eq!((error.kind(), error.limit().unwrap().value), (ErrorKind::Limit, 300));
    let ended = error.into_so_far().unwrap();
    assert_eq!((ended.usage.input_tokens, ended.thread_usage.input_tokens), (20, 130));
}

/// The first turn of a resumed thread that fails says what came before it.
#[tokio::test]
async fn a_failed_turn_says_what_its_thread_had_used_before() {
    let usage = r#"{"thread":{"input_tokens":130,"cached_input_tokens":0,"output_tokens":0},"turn":{"input_tokens":20,"cached_input_tokens":0,"output_tokens":0}}"#;
    let (lab, program) = Lab::heddle(&format!(
        r#"{STARTED}
{TURN}
echo '{{"type":"turn.failed","error":{{"message":"no","heddle":{{"usage":{usage}}}}}}}'
exit 1"#
    ));
    let heddle = lab.heddle.over(Exec::new(program));
    let id = "01a1e055-b282-7523-b985-c798177efe12".parse().unwrap();
    let thread = heddle.resume(id).await.unwrap();
    let failed = thread.turn("one").run().await.unwrap_err().into_so_far().unwrap();
    assert_eq!((failed.usage.input_tokens, failed.thread_usage.input_tokens), (20, 130));
}
