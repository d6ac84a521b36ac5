//! What clients of an app-server do with the machine: files, commands, searches.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Lab;

use crate::app_server_client::{Client, Server, scene};

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
        let changed = ann.told("fs/changed").await;
        let want = json!({"watchId": "d", "changedPaths": [at("d/a"), at("d/b"), at("d/c")]});
        assert_eq!(changed, want);
        // To read is no change, nor is what happens further below.
        lab.workspace.read("d/a").unwrap();
        // What did not exist is noticed when it comes, is replaced and goes, with its directory, too.
        lab.workspace.write("new/file", "x").unwrap();
        assert_eq!(
            ann.told("fs/changed").await,
            json!({"watchId": "late", "changedPaths": [at("new/file")]})
        );
        lab.workspace.write("new/other", "x").unwrap();
        std::fs::rename(at("new/other"), at("new/file")).unwrap();
        assert_eq!(ann.told("fs/changed").await["watchId"], "late");
        std::fs::remove_dir_all(at("d")).unwrap();
        let gone = ann.told("fs/changed").await;
        assert_eq!(gone["watchId"], "d");
        assert!(gone["changedPaths"].as_array().unwrap().contains(&json!(at("d"))), "{gone}");
        lab.workspace.write("d/again", "x").unwrap();
        assert_eq!(ann.told("fs/changed").await["watchId"], "d");
        lab.workspace.write("d/once more", "x").unwrap();
        let again = ann.told("fs/changed").await;
        assert_eq!(again["changedPaths"], json!([at("d/once more")]));
        assert_eq!(ann.ask("fs/unwatch", json!({"watchId": "d"})).await, json!({}));
        assert_eq!(ann.ask("fs/unwatch", json!({"watchId": "d"})).await, json!({}));
        lab.workspace.write("d/unseen", "x").unwrap();
        lab.workspace.write("new/file", "y").unwrap();
        assert_eq!(ann.told("fs/changed").await["watchId"], "late");
        assert!(!ann.seen.iter().any(|it| it["method"] == "fs/changed"), "{:?}", ann.seen);
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
