//! What clients of an app-server do with the machine: files, commands, searches.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Lab;

use crate::app_server_client::{Client, Server, scene};
use crate::run::until;

/// The code of an error, or the result.
fn code(answer: &Value) -> i64 {
    answer["code"].as_i64().unwrap_or_default()
}

fn path(lab: &Lab, name: &str) -> String {
    lab.workspace.path().join(name).display().to_string()
}

#[test]
fn files() {
    let (_model, lab, server, runtime) = scene(json!([]));
    let at = |name: &str| path(&lab, name);
    std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        for (method, params, want) in [
            ("createDirectory", json!({"path": at("d/e")}), 0),
            ("writeFile", json!({"path": at("d/a"), "dataBase64": "aGk="}), 0),
            ("writeFile", json!({"path": at("no/a"), "dataBase64": "aGk="}), -32603),
            ("writeFile", json!({"path": at("d/a"), "dataBase64": "a"}), -32600),
            ("writeFile", json!({"path": at("pipe"), "dataBase64": "aGk="}), -32600),
            ("writeFile", json!({"path": at("d"), "dataBase64": "aGk="}), -32603),
            ("readFile", json!({"path": "d/a"}), -32600),
            ("readFile", json!({"path": ""}), -32600),
            ("readFile", json!({"path": 1}), -32600),
            ("readFile", json!({"path": at("a\0b")}), -32600),
            ("readFile", json!({"path": at("pipe")}), -32600),
            ("readFile", json!({"path": "/dev/zero"}), -32600),
            ("readFile", json!({"path": at("d")}), -32600),
            ("readFile", json!({"path": at("none")}), -32603),
            ("readDirectory", json!({"path": at("d/a")}), -32603),
            ("getMetadata", json!({"path": at("dangling")}), -32603),
            ("copy", json!({"sourcePath": at("d"), "destinationPath": at("f")}), -32600),
            (
                "copy",
                json!({"sourcePath": at("d"), "destinationPath": at("d/x"), "recursive": true}),
                -32600,
            ),
            (
                "copy",
                json!({"sourcePath": at("d"), "destinationPath": at("f"), "recursive": true}),
                0,
            ),
            ("copy", json!({"sourcePath": at("d/a"), "destinationPath": at("d/a")}), 0),
            ("remove", json!({"path": at("f"), "recursive": false}), -32603),
            ("remove", json!({"path": at("f")}), 0),
            ("remove", json!({"path": at("f")}), 0),
            ("remove", json!({"path": at("f"), "force": false}), -32603),
            ("remove", json!({"path": "/"}), -32600),
        ] {
            let answer = ann.ask(&format!("fs/{method}"), params.clone()).await;
            assert_eq!(code(&answer), want, "{method} {params}: {answer}");
        }
        let read = ann.ask("fs/readFile", json!({"path": at("d/../d/./a")})).await;
        assert_eq!(read, json!({"dataBase64": "aGk="}));
        let listed = ann.ask("fs/readDirectory", json!({"path": at("d")})).await;
        let entry = |name: &str, directory: bool| {
            json!({"fileName": name, "isDirectory": directory, "isFile": !directory})
        };
        assert_eq!(listed, json!({"entries": [entry("a", false), entry("e", true)]}));
        let found = ann.ask("fs/getMetadata", json!({"path": at("d/a")})).await;
        assert_eq!((&found["isFile"], &found["isSymlink"]), (&json!(true), &json!(false)));
        // Requests about files are handled in their order.
        for round in 0..20 {
            let id = 1000 + 2 * round;
            let data = ["aGk=", "aG8="][round % 2];
            let write = json!({"path": at("d/a"), "dataBase64": data});
            ann.send(json!({"id": id, "method": "fs/writeFile", "params": write})).await;
            let read = json!({"path": at("d/a")});
            ann.send(json!({"id": id + 1, "method": "fs/readFile", "params": read})).await;
            let read = ann.until(|it| it["id"] == id + 1).await;
            assert_eq!(read["result"]["dataBase64"], data);
        }
    });
}

/// What changes at a path is told once for a burst, until the client has enough or is gone.
#[test]
fn watches() {
    let (_model, lab, server, runtime) = scene(json!([]));
    let at = |name: &str| path(&lab, name);
    lab.workspace.write("d/old", "").unwrap();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let watch = |id: &str, path: &str| json!({"watchId": id, "path": path});
        let watched = ann.ask("fs/watch", watch("d", &at("d/../d"))).await;
        assert_eq!(watched, json!({"path": at("d")}));
        assert_eq!(code(&ann.ask("fs/watch", watch("d", &at("d"))).await), -32600);
        assert_eq!(code(&ann.ask("fs/watch", watch("r", "d")).await), -32600);
        ann.ask("fs/watch", watch("late", &at("new/file"))).await;
        for name in ["d/a", "d/b", "d/c"] {
            lab.workspace.write(name, "x").unwrap();
        }
        changed(&mut ann, "d", &["d/a", "d/b", "d/c"].map(at)).await;
        // To read is no change, nor is what happens further below.
        lab.workspace.read("d/a").unwrap();
        // What did not exist is noticed when it comes, is replaced and goes, with its directory, too.
        lab.workspace.write("new/file", "x").unwrap();
        changed(&mut ann, "late", &[at("new/file")]).await;
        lab.workspace.write("new/other", "x").unwrap();
        std::fs::rename(at("new/other"), at("new/file")).unwrap();
        changed(&mut ann, "late", &[at("new/file")]).await;
        std::fs::remove_dir_all(at("d")).unwrap();
        changed(&mut ann, "d", &[at("d")]).await;
        lab.workspace.write("d/again", "x").unwrap();
        changed(&mut ann, "d", &[at("d")]).await;
        lab.workspace.write("d/once more", "x").unwrap();
        changed(&mut ann, "d", &[at("d/once more")]).await;
        assert_eq!(ann.ask("fs/unwatch", json!({"watchId": "d"})).await, json!({}));
        assert_eq!(ann.ask("fs/unwatch", json!({"watchId": "d"})).await, json!({}));
        ann.seen.clear();
        lab.workspace.write("d/unseen", "x").unwrap();
        lab.workspace.write("new/file", "y").unwrap();
        changed(&mut ann, "late", &[at("new/file")]).await;
        assert!(!ann.seen.iter().any(|it| it["params"]["watchId"] == "d"), "{:?}", ann.seen);
        // Another connection has watches of its own, and so many and no more.
        let mut ben = Client::unix(&server, "ben").await;
        for number in 0..server::WATCHES_MAX {
            let answer = ben.ask("fs/watch", watch(&number.to_string(), &at("d"))).await;
            assert_eq!(code(&answer), 0, "{answer}");
        }
        let answer = ben.ask("fs/watch", watch("one more", &at("d"))).await;
        assert_eq!(code(&answer), -32600);
        assert!(answer["message"].as_str().unwrap().contains("fs/unwatch"), "{answer}");
        // They end with their connection.
        drop(ben);
        let mut zoe = Client::unix(&server, "zoe").await;
        assert_eq!(code(&zoe.ask("fs/watch", watch("d", &at("d"))).await), 0);
    });
    assert_eq!(cpu_ticks_while_idle(&server), 0);
}

/// Waits until changes of all these paths are told, at once or one after the other. Others may be told as well.
async fn changed(client: &mut Client, watch: &str, paths: &[String]) {
    let mut missing = paths.to_vec();
    while !missing.is_empty() {
        let of_watch =
            |it: &Value| it["method"] == "fs/changed" && it["params"]["watchId"] == watch;
        let told = client.until(of_watch).await["params"]["changedPaths"].clone();
        missing.retain(|path| !told.as_array().unwrap().contains(&json!(path)));
    }
}

/// How much of the processor a server uses that has nothing to do, in ticks of 10 ms.
fn cpu_ticks_while_idle(server: &Server) -> u64 {
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
        let words: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap()
    };
    // What was begun ends first.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let before = used();
        std::thread::sleep(Duration::from_millis(500));
        let more = used() - before;
        if more == 0 || Instant::now() > deadline {
            return more;
        }
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(text)
}

fn from_base64(told: &Value) -> String {
    use base64::Engine as _;
    let bytes = base64::prelude::BASE64_STANDARD.decode(told["deltaBase64"].as_str().unwrap());
    String::from_utf8(bytes.unwrap()).unwrap()
}

fn sh(script: &str) -> Value {
    json!(["/bin/sh", "-c", script])
}

/// Waits until the output that is told contains a text.
async fn output_until(client: &mut Client, method: &str, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        all.push_str(&from_base64(&client.told(method).await));
    }
    all
}

fn with(params: Value, more: &Value) -> Value {
    let mut params = params;
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}

#[test]
fn commands() {
    let (_model, lab, server, runtime) = scene(json!([]));
    lab.workspace.write("sub/x", "").unwrap();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        for (script, more, want) in [
            ("echo o; echo e >&2; exit 3", json!({}), (3, "o\n", "e\n")),
            ("echo $GIVEN-$LANG-", json!({"env": {"GIVEN": "g", "LANG": null}}), (0, "g--\n", "")),
            ("basename $PWD", json!({"cwd": "sub"}), (0, "sub\n", "")),
            ("basename $PWD", json!({"cwd": path(&lab, "sub")}), (0, "sub\n", "")),
            ("cat", json!({"processId": "c"}), (0, "", "")),
            ("echo a; sleep 60", json!({"timeoutMs": 1000}), (124, "a\n", "")),
            ("sleep 60", json!({"timeoutMs": 0}), (124, "", "")),
            ("echo 123456; echo abcdef >&2", json!({"outputBytesCap": 4}), (0, "1234", "abcd")),
            ("sleep 60 & echo now", json!({}), (0, "now\n", "")),
            ("kill -9 $$", json!({}), (137, "", "")),
            ("kill -TERM $$", json!({}), (143, "", "")),
            (
                "touch w 2>/dev/null || echo refused",
                json!({"sandboxPolicy": {"type": "readOnly"}}),
                (0, "refused\n", ""),
            ),
            // The settings say the same.
            ("touch w 2>/dev/null || echo refused", json!({}), (0, "refused\n", "")),
            (
                "touch w && echo written",
                json!({"sandboxPolicy": {"type": "workspaceWrite"}}),
                (0, "written\n", ""),
            ),
            (
                "touch ../w && echo written",
                json!({"sandboxPolicy": {"type": "dangerFullAccess"}}),
                (0, "written\n", ""),
            ),
        ] {
            let params = with(json!({"command": sh(script)}), &more);
            let (code, stdout, stderr) = want;
            let want = json!({"exitCode": code, "stdout": stdout, "stderr": stderr});
            assert_eq!(ann.ask("command/exec", params.clone()).await, want, "{params}");
        }
        for (more, want) in [
            (json!({"command": []}), -32600),
            (json!({"command": "echo"}), -32600),
            (json!({"command": ["/no/such/program"]}), -32603),
            (json!({"cwd": "/no/such/directory"}), -32603),
            (json!({"tty": true}), -32600),
            (json!({"timeoutMs": -1}), -32602),
            (json!({"timeoutMs": 1, "disableTimeout": true}), -32602),
            (json!({"size": {"rows": 1, "cols": 1}}), -32602),
            (json!({"sandboxPolicy": {"type": "none"}}), -32600),
            (json!({"permissionProfile": ":read-only"}), -32600),
        ] {
            let params = with(json!({"command": ["true"]}), &more);
            let answer = ann.ask("command/exec", params.clone()).await;
            assert_eq!(code(&answer), want, "{params}: {answer}");
        }
        // Output that is kept has a bound, and one of its own if the client wants much.
        for (more, want) in [
            (json!({}), server::OUTPUT_BYTES_DEFAULT),
            (json!({"disableOutputCap": true}), server::OUTPUT_BYTES_MAX),
        ] {
            let flood = format!("head -c {} /dev/zero | tr '\\0' x", server::OUTPUT_BYTES_MAX + 9);
            let answer = ann.ask("command/exec", with(json!({"command": sh(&flood)}), &more)).await;
            assert_eq!(answer["stdout"].as_str().map(str::len), Some(want));
        }
    });
}

#[test]
fn commands_that_a_client_talks_to() {
    const DELTA: &str = "command/exec/outputDelta";
    let (_model, _lab, server, runtime) = scene(json!([]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let exec = |id: u64, name: &str, script: &str, more: Value| {
            let params = json!({"command": sh(script), "processId": name, "disableTimeout": true});
            json!({"id": id, "method": "command/exec", "params": with(params, &more)})
        };
        let streams = json!({"streamStdin": true, "streamStdoutStderr": true});
        // What follows at once finds the command, although it may not have started.
        ann.send(exec(1001, "p", "cat; echo end >&2", streams.clone())).await;
        let write = |text: &str| json!({"processId": "p", "deltaBase64": base64(text)});
        assert_eq!(ann.ask("command/exec/write", write("one\n")).await, json!({}));
        assert_eq!(output_until(&mut ann, DELTA, "one\n").await, "one\n");
        let size = json!({"rows": 5, "cols": 7});
        for (method, params, want) in [
            ("write", json!({"processId": "p"}), -32602),
            ("write", json!({"processId": "p", "deltaBase64": "!"}), -32602),
            ("write", json!({"processId": "q", "deltaBase64": ""}), -32600),
            ("resize", json!({"processId": "p", "size": size}), -32600),
            ("resize", json!({"processId": "p", "size": {"rows": 0, "cols": 1}}), -32602),
            ("terminate", json!({"processId": "q"}), -32600),
        ] {
            let answer = ann.ask(&format!("command/exec/{method}"), params.clone()).await;
            assert_eq!(code(&answer), want, "{method} {params}: {answer}");
        }
        let twice = ann.ask("command/exec", json!({"command": ["true"], "processId": "p"})).await;
        assert_eq!(code(&twice), -32600);
        // Another connection has names of its own.
        let mut ben = Client::unix(&server, "ben").await;
        assert_eq!(code(&ben.ask("command/exec/write", write("x")).await), -32600);
        let close = json!({"processId": "p", "deltaBase64": base64("two\n"), "closeStdin": true});
        assert_eq!(ann.ask("command/exec/write", close).await, json!({}));
        let ended = ann.until(|it| it["id"] == 1001).await["result"].clone();
        assert_eq!(ended, json!({"exitCode": 0, "stdout": "", "stderr": ""}));
        let told: Vec<_> = ann.seen.drain(..).filter(|it| it["method"] == DELTA).collect();
        let on = |stream: &str| {
            let of = told.iter().filter(|it| it["params"]["stream"] == stream);
            of.map(|it| from_base64(&it["params"])).collect::<String>()
        };
        assert_eq!((on("stdout"), on("stderr")), ("two\n".to_owned(), "end\n".to_owned()));

        ann.send(exec(1002, "p", "exec sleep 60", json!({}))).await;
        assert_eq!(code(&ann.ask("command/exec/write", write("x")).await), -32600);
        assert_eq!(ann.ask("command/exec/terminate", json!({"processId": "p"})).await, json!({}));
        assert_eq!(ann.until(|it| it["id"] == 1002).await["result"]["exitCode"], 137);

        let tty = json!({"tty": true, "size": {"rows": 11, "cols": 33}});
        ann.send(exec(1003, "t", "stty size; read a; stty size; sleep 60", tty)).await;
        output_until(&mut ann, DELTA, "11 33\r\n").await;
        let resize = json!({"processId": "t", "size": {"rows": 22, "cols": 44}});
        assert_eq!(ann.ask("command/exec/resize", resize).await, json!({}));
        let typed = json!({"processId": "t", "deltaBase64": base64("a\n")});
        assert_eq!(ann.ask("command/exec/write", typed).await, json!({}));
        output_until(&mut ann, DELTA, "22 44\r\n").await;
        ann.ask("command/exec/terminate", json!({"processId": "t"})).await;
        let code = ann.until(|it| it["id"] == 1003).await["result"]["exitCode"].clone();
        assert!(code == 1 || code == 137, "{code}");

        let capped = json!({"streamStdoutStderr": true, "outputBytesCap": 4});
        ann.send(exec(1004, "c", "echo 123456; echo more", capped)).await;
        let delta = ann.told(DELTA).await;
        assert_eq!((from_base64(&delta), &delta["capReached"]), ("1234".into(), &json!(true)));
        ann.until(|it| it["id"] == 1004).await;
        assert!(!ann.seen.iter().any(|it| it["method"] == DELTA));
    });
}

#[test]
fn processes() {
    let (_model, lab, server, runtime) = scene(json!([]));
    let cwd = lab.workspace.path().display().to_string();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let spawn = |script: &str, more: Value| {
            let params = json!({"command": sh(script), "cwd": cwd, "processHandle": "p"});
            with(params, &more)
        };
        for (script, more, want) in [
            ("echo o; echo e >&2; exit 3", json!({}), (3, "o\n", "e\n")),
            // Without a sandbox.
            ("touch w && echo written", json!({}), (0, "written\n", "")),
            ("sleep 60", json!({"timeoutMs": 100}), (124, "", "")),
            ("echo all", json!({"timeoutMs": null, "outputBytesCap": null}), (0, "all\n", "")),
        ] {
            assert_eq!(ann.ask("process/spawn", spawn(script, more)).await, json!({}));
            let exited = ann.told("process/exited").await;
            let (code, stdout, stderr) = want;
            let want = json!({
                "processHandle": "p", "exitCode": code, "outputDrainTimedOut": false,
                "stdout": stdout, "stdoutCapReached": false,
                "stderr": stderr, "stderrCapReached": false,
            });
            assert_eq!(exited, want, "{script}");
        }
        for (more, want) in [
            (json!({"command": []}), -32600),
            (json!({"cwd": "sub"}), -32600),
            (json!({"cwd": "/no/such/directory"}), -32603),
            (json!({"processHandle": ""}), -32600),
            (json!({"timeoutMs": -5}), -32602),
            (json!({"command": ["/no/such/program"]}), -32603),
        ] {
            let answer = ann.ask("process/spawn", spawn("true", more.clone())).await;
            assert_eq!(code(&answer), want, "{more}: {answer}");
        }
        let streams = json!({"streamStdin": true, "streamStdoutStderr": true});
        ann.ask("process/spawn", spawn("cat; sleep 60", streams)).await;
        let write = json!({"processHandle": "p", "deltaBase64": base64("hey")});
        assert_eq!(ann.ask("process/writeStdin", write).await, json!({}));
        assert_eq!(output_until(&mut ann, "process/outputDelta", "hey").await, "hey");
        let twice = ann.ask("process/spawn", spawn("true", json!({}))).await;
        assert_eq!(code(&twice), -32600);
        let size = json!({"rows": 5, "cols": 7});
        let resize = json!({"processHandle": "p", "size": size});
        assert_eq!(code(&ann.ask("process/resizePty", resize).await), -32600);
        assert_eq!(ann.ask("process/kill", json!({"processHandle": "p"})).await, json!({}));
        assert_eq!(ann.told("process/exited").await["exitCode"], 137);
        assert_eq!(code(&ann.ask("process/kill", json!({"processHandle": "p"})).await), -32600);
    });
}

/// A client that does not read its output holds up its own command, and no other client.
#[test]
fn output_that_nobody_reads() {
    let (_model, lab, server, runtime) = scene(json!([]));
    let cwd = lab.workspace.path().display().to_string();
    runtime.block_on(async {
        let (mut ann, mut ben) =
            (Client::unix(&server, "ann").await, Client::unix(&server, "ben").await);
        let flood = json!({
            "command": sh("yes"), "cwd": cwd, "processHandle": "p", "timeoutMs": null,
            "outputBytesCap": null, "streamStdoutStderr": true,
        });
        ann.send(json!({"id": 1000, "method": "process/spawn", "params": flood})).await;
        for _ in 0..100 {
            ben.ask("command/exec", json!({"command": ["true"]})).await;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        let kib: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(kib < 200 * 1024, "{peak}");
        // It is still served.
        ann.ask("process/kill", json!({"processHandle": "p"})).await;
        ann.told("process/exited").await;
    });
}

/// A command that waits for a client that never reads ends when it is killed, when its client vanishes, and with the server.
#[test]
fn a_flood_that_nobody_reads_ends() {
    for way in ["kill", "vanish", "terminate"] {
        let (_model, lab, server, runtime) = scene(json!([]));
        let flood = json!({
            "command": ["sh", "-c", "echo $$ > pid; exec yes"],
            "processHandle": "p",
            "cwd": path(&lab, ""),
            "streamStdoutStderr": true,
            "timeoutMs": null,
            "outputBytesCap": null,
        });
        let mut server = Some(server);
        let (pid, client) = runtime.block_on(async {
            let mut ann = Client::unix(server.as_ref().unwrap(), "ann").await;
            ann.send(json!({"id": 900, "method": "process/spawn", "params": flood})).await;
            let pid = until("the command", || {
                let pid = lab.workspace.read("pid").ok()?;
                pid.ends_with('\n').then(|| pid.trim().to_owned())
            });
            // It sleeps once the server takes no more: then nothing more is written in a while.
            let written = || {
                let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
                io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse::<u64>().ok())
            };
            let mut before = None;
            until("the flood to wait", || {
                let now = written();
                let same = now == before && now.is_some_and(|bytes| bytes > 1 << 20);
                before = now;
                std::thread::sleep(Duration::from_millis(100));
                same.then_some(())
            });
            match way {
                "kill" => {
                    let params = json!({"processHandle": "p"});
                    ann.send(json!({"id": 901, "method": "process/kill", "params": params})).await;
                }
                "vanish" => {
                    drop(ann);
                    return (pid, None);
                }
                _ => assert_eq!(server.take().unwrap().terminate(), 0),
            }
            (pid, Some(ann))
        });
        let gone = || (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(());
        until(way, gone);
        // Until here it was connected, and read nothing.
        drop(client);
    }
}

/// What a connection has started ends with it, and with the server.
#[test]
fn nothing_is_left_running() {
    let (_model, lab, server, runtime) = scene(json!([]));
    let cwd = lab.workspace.path().display().to_string();
    let running = |mark: &str| {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter(|it| {
                let line = std::fs::read(it.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(&format!("sleep\0{mark}"))
            })
            .count()
    };
    // Numbers that no other test sleeps for.
    let (first, second) =
        (format!("9{}1", std::process::id()), format!("9{}2", std::process::id()));
    runtime.block_on(async {
        let start = async |client: &mut Client, mark: &str| {
            let script = format!("sleep {mark} & sleep {mark}");
            for (method, more) in [
                ("command/exec", json!({"processId": "p", "disableTimeout": true})),
                ("process/spawn", json!({"processHandle": "p", "cwd": cwd, "timeoutMs": null})),
            ] {
                let params = with(json!({"command": sh(&script)}), &more);
                client.send(json!({"id": 1000, "method": method, "params": params})).await;
            }
            client.ask("thread/loaded/list", json!({})).await;
        };
        let mut ann = Client::unix(&server, "ann").await;
        start(&mut ann, &first).await;
        until("the commands", || (running(&first) == 4).then_some(()));
        drop(ann);
        until("their end", || (running(&first) == 0).then_some(()));
        let mut ben = Client::unix(&server, "ben").await;
        start(&mut ben, &second).await;
        until("the commands", || (running(&second) == 4).then_some(()));
    });
    assert_eq!(server.terminate(), 0);
    until("the end of all", || (running(&second) == 0).then_some(()));
}

fn paths_of(found: &Value) -> Vec<&str> {
    let files = found["files"].as_array().unwrap_or_else(|| panic!("{found}"));
    files.iter().map(|file| file["path"].as_str().unwrap()).collect()
}

#[test]
fn searches() {
    let (_model, lab, server, runtime) = scene(json!([]));
    let names = [
        ".git/HEAD",
        "src/main.rs",
        ".hid/main.conf",
        "Main.java",
        "target/main.o",
        "x/é main.txt",
    ];
    for name in names {
        lab.workspace.write(name, "").unwrap();
    }
    lab.workspace.write(".gitignore", "target").unwrap();
    let root = lab.workspace.path().display().to_string();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        for (query, roots, want) in [
            (
                "main",
                json!([root]),
                &[".hid/main.conf", "Main.java", "src/main.rs", "x/é main.txt"][..],
            ),
            ("src/m", json!(["."]), &["src/main.rs"]),
            ("src", json!([root]), &["src", "src/main.rs"]),
            ("main", json!([path(&lab, "src"), "src", path(&lab, "src/../src")]), &["main.rs"]),
            ("main", json!([]), &[]),
            ("zzzz", json!([root]), &[]),
            ("", json!([root]), &[]),
        ] {
            let params = json!({"query": query, "roots": roots});
            let found = ann.ask("fuzzyFileSearch", params.clone()).await;
            assert_eq!(paths_of(&found), want, "{params}");
        }
        let found = ann.ask("fuzzyFileSearch", json!({"query": "é", "roots": [root]})).await;
        let first = json!({
            "root": root, "path": "x/é main.txt", "match_type": "file", "file_name": "é main.txt",
            "score": found["files"][0]["score"], "indices": [2],
        });
        assert_eq!(found["files"][0], first);
        let many = vec!["."; 65];
        for params in [
            json!({"query": "a"}),
            json!({"roots": []}),
            json!({"query": "a", "roots": many}),
            json!({"query": "a", "roots": [root, "/no/such/directory"]}),
            json!({"query": "a", "roots": ["src/main.rs"]}),
            json!({"query": "a".repeat(1025), "roots": []}),
        ] {
            assert_eq!(code(&ann.ask("fuzzyFileSearch", params.clone()).await), -32600, "{params}");
        }
        // A later search of the same token ends one that would take its time.
        let everything = json!({"query": "a", "roots": ["/"], "cancellationToken": "t"});
        ann.send(json!({"id": 1000, "method": "fuzzyFileSearch", "params": everything})).await;
        let params = json!({"query": "java", "roots": [root], "cancellationToken": "t"});
        assert_eq!(paths_of(&ann.ask("fuzzyFileSearch", params).await), ["Main.java"]);
        assert_eq!(ann.until(|it| it["id"] == 1000).await["result"], json!({"files": []}));
    });
}

#[test]
fn searches_whose_query_changes() {
    let (_model, lab, server, runtime) = scene(json!([]));
    for name in ["src/main.rs", "src/lib.rs"] {
        lab.workspace.write(name, "").unwrap();
    }
    let root = lab.workspace.path().display().to_string();
    const UPDATED: &str = "fuzzyFileSearch/sessionUpdated";
    const COMPLETED: &str = "fuzzyFileSearch/sessionCompleted";
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        for (method, params, want) in [
            ("Start", json!({"sessionId": "", "roots": [root]}), -32600),
            ("Start", json!({"sessionId": "s", "roots": []}), -32603),
            ("Update", json!({"sessionId": "s", "query": "a"}), -32600),
            ("Stop", json!({"sessionId": "s"}), 0),
            ("Start", json!({"sessionId": "s", "roots": [root]}), 0),
        ] {
            let answer = ann.ask(&format!("fuzzyFileSearch/session{method}"), params.clone()).await;
            assert_eq!(code(&answer), want, "{method} {params}: {answer}");
        }
        let first = ann.told(UPDATED).await;
        assert_eq!(first, json!({"sessionId": "s", "query": "", "files": []}));
        assert_eq!(ann.told(COMPLETED).await, json!({"sessionId": "s"}));
        for (query, want) in
            [("main", &["src/main.rs"][..]), ("main", &["src/main.rs"]), ("zzzz", &[]), ("", &[])]
        {
            let update = json!({"sessionId": "s", "query": query});
            assert_eq!(ann.ask("fuzzyFileSearch/sessionUpdate", update).await, json!({}));
            let updated = ann.told(UPDATED).await;
            assert_eq!((&updated["query"], paths_of(&updated)), (&json!(query), want.to_vec()));
            ann.told(COMPLETED).await;
        }
        // The last query is the one that is answered.
        for number in 0..50 {
            let update = json!({"sessionId": "s", "query": format!("nothing {number}")});
            ann.send(
                json!({"id": 1000, "method": "fuzzyFileSearch/sessionUpdate", "params": update}),
            )
            .await;
        }
        ann.ask("fuzzyFileSearch/sessionUpdate", json!({"sessionId": "s", "query": "lib"})).await;
        ann.until(|it| it["method"] == UPDATED && it["params"]["query"] == "lib").await;
        ann.told(COMPLETED).await;
        // Another connection has searches of its own.
        let mut ben = Client::unix(&server, "ben").await;
        let update = json!({"sessionId": "s", "query": "lib"});
        let unknown = ben.ask("fuzzyFileSearch/sessionUpdate", update.clone()).await;
        assert_eq!(code(&unknown), -32600);
        ann.ask("fuzzyFileSearch/sessionStop", json!({"sessionId": "s"})).await;
        assert_eq!(code(&ann.ask("fuzzyFileSearch/sessionUpdate", update).await), -32600);
        // One that would take its time ends with its connection.
        let everything = json!({"sessionId": "all", "roots": ["/"]});
        ann.ask("fuzzyFileSearch/sessionStart", everything).await;
        ann.ask("fuzzyFileSearch/sessionUpdate", json!({"sessionId": "all", "query": "a"})).await;
    });
    assert_eq!(cpu_ticks_while_idle(&server), 0);
}
