//! What an app-server keeps about a thread besides its log: its Git commit and branch.

use serde_json::{Value, json};
use testkit::Lab;
use testkit::script::{message, response};

use crate::app_server_client::{Client, Server, scene};

/// A thread that is nowhere.
const UNKNOWN: &str = "01a1e055-b282-7523-b985-c798177efe12";

/// Kills a server, and starts another one in the same home.
fn killed_and_started(server: Server, lab: &Lab) -> Server {
    drop(server);
    let socket = format!("unix://{}", lab.root().join("again").display());
    Server::start(lab, &["--listen", &socket])
}

/// Checks that requests about a thread are refused, each with its words.
async fn check_refused(client: &mut Client, method: &str, thread: &str, bad: &[(Value, &str)]) {
    for (params, words) in bad {
        let mut params = params.clone();
        params.as_object_mut().unwrap().entry("threadId").or_insert(thread.into());
        let refusal = client.ask(method, params.clone()).await;
        let said = refusal["message"].as_str().unwrap_or_default();
        assert!(refusal["code"] == -32600 && said.contains(words), "{params}: {refusal}");
    }
}

/// What a client says about the Git repository of a thread is kept, and everybody sees it.
#[test]
fn metadata() {
    let (_model, lab, server, runtime) = scene(json!([response([message("Hi.")])]));
    let update = "thread/metadata/update";
    let mut thread = String::new();
    let want = json!({"sha": "abc", "branch": null, "originUrl": "https://example.com/r"});
    runtime.block_on(async {
        let (mut ann, mut ben) =
            (Client::unix(&server, "ann").await, Client::unix(&server, "ben").await);
        // Before its first turn, too.
        thread = ann.start_thread(json!({})).await;
        let git = json!({"sha": "abc", "branch": " main "});
        let updated = ann.ask(update, json!({"threadId": thread, "gitInfo": git})).await;
        let main = json!({"sha": "abc", "branch": "main", "originUrl": null});
        assert_eq!(updated["thread"]["gitInfo"], main, "{updated}");
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        let git = json!({"branch": null, "originUrl": "https://example.com/r"});
        let updated = ben.ask(update, json!({"threadId": thread, "gitInfo": git})).await;
        assert_eq!(updated["thread"]["gitInfo"], want, "{updated}");
        let bad = [
            (json!({}), "must include at least one field"),
            (json!({"gitInfo": {}}), "gitInfo must include at least one field"),
            (json!({"gitInfo": {"branch": " "}}), "gitInfo.branch must not be empty"),
            (json!({"gitInfo": {"branch": 5}}), "Invalid request"),
            (json!({"projectId": "p"}), "projectId is not supported"),
            (json!({"threadId": UNKNOWN, "gitInfo": {"sha": "x"}}), "no rollout found"),
        ];
        check_refused(&mut ann, update, &thread, &bad).await;
        let ephemeral = ann.start_thread(json!({"ephemeral": true})).await;
        let bad = [(json!({"gitInfo": {"sha": "x"}}), "ephemeral thread does not support")];
        check_refused(&mut ann, update, &ephemeral, &bad).await;
    });
    let server = killed_and_started(server, &lab);
    runtime.block_on(async {
        let mut zoe = Client::unix(&server, "zoe").await;
        let of_thread = json!({"threadId": thread});
        let read = zoe.ask("thread/read", of_thread.clone()).await;
        assert_eq!(read["thread"]["gitInfo"], want, "{read}");
        let listed = zoe.ask("thread/list", json!({})).await;
        assert_eq!(listed["data"][0]["gitInfo"], want, "{listed}");
        // And while it is not loaded.
        let git = json!({"threadId": thread, "gitInfo": {"sha": "def"}});
        assert_eq!(zoe.ask(update, git).await["thread"]["gitInfo"]["sha"], "def");
        let resumed = zoe.ask("thread/resume", of_thread.clone()).await;
        assert_eq!(resumed["thread"]["gitInfo"]["sha"], "def", "{resumed}");
        // Nothing is overwritten that cannot be read, and it is in nobody's way.
        let extras = lab.home.path().join(format!("thread-extras/{thread}.json"));
        std::fs::write(&extras, "torn").unwrap();
        let refusal = zoe.ask(update, json!({"threadId": thread, "gitInfo": {"sha": "x"}})).await;
        assert!(refusal["message"].as_str().unwrap().contains("move it away"), "{refusal}");
        assert_eq!(zoe.ask("thread/read", of_thread.clone()).await["thread"]["id"], thread);
        assert_eq!(zoe.ask("thread/delete", of_thread).await, json!({}));
        assert!(!extras.exists());
    });
}
