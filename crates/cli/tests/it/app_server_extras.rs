//! What an app-server keeps about a thread besides its log: its Git commit and branch, and what is queued.

use serde_json::{Value, json};
use testkit::script::{after_ms, message, response, status};
use testkit::{Lab, ModelServer};

use crate::app_server_client::{Client, Server, scene};
use crate::run::until;

/// A thread that is nowhere.
pub(crate) const UNKNOWN: &str = "01a1e055-b282-7523-b985-c798177efe12";

/// Kills a server, and starts another one in the same home.
pub(crate) fn killed_and_started(server: Server, lab: &Lab) -> Server {
    drop(server);
    let socket = format!("unix://{}", lab.root().join("again").display());
    Server::start(lab, &["--listen", &socket])
}

/// Checks that requests about a thread are refused, each with its words.
pub(crate) async fn check_refused(
    client: &mut Client,
    method: &str,
    thread: &str,
    bad: &[(Value, &str)],
) {
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

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

/// Queues a text, and returns its id.
pub(crate) async fn queue(client: &mut Client, thread: &str, words: &str) -> String {
    let add = json!({
        "threadId": thread, "input": text(words), "clientUserMessageId": format!("id of {words}"),
    });
    let added = client.ask("thread/queue/add", add).await;
    let id = added["queuedSubmission"]["id"].as_str();
    id.unwrap_or_else(|| panic!("{added}")).to_owned()
}

/// Returns the texts that are queued.
async fn queued(client: &mut Client, thread: &str) -> Vec<String> {
    let list = client.ask("thread/queue/list", json!({"threadId": thread})).await;
    let entries = list["data"].as_array().unwrap_or_else(|| panic!("{list}")).iter();
    entries.map(|entry| entry["input"][0]["text"].as_str().unwrap().to_owned()).collect()
}

/// Waits for the message of the user with these words, and returns it.
pub(crate) async fn said(client: &mut Client, words: &str) -> Value {
    let message = client.until(|it| {
        let item = &it["params"]["item"];
        it["method"] == "item/completed"
            && item["type"] == "userMessage"
            && item["content"][0]["text"] == words
    });
    message.await["params"]["item"].clone()
}

/// Waits for the message of the user with these words, and until the model was asked this often.
pub(crate) async fn asked(client: &mut Client, model: &ModelServer, words: &str, requests: usize) {
    said(client, words).await;
    until("a request", || (model.requests().len() == requests).then_some(()));
}

/// Waits until a turn is completed, and returns how.
pub(crate) async fn ended(client: &mut Client) -> Value {
    client.told("turn/completed").await["turn"]["status"].clone()
}

/// An answer that takes so long that the test does something meanwhile.
pub(crate) fn slow(words: &str) -> Value {
    response([after_ms(60_000, message(words))])
}

/// Lets the slow turn of a thread end.
pub(crate) async fn interrupt(client: &mut Client, thread: &str) {
    client.ask("turn/interrupt", json!({"threadId": thread, "turnId": ""})).await;
    assert_eq!(ended(client).await, "interrupted");
}

/// What is queued is said in turns of its own, in the order that clients have given it.
#[test]
fn what_is_queued_is_said() {
    let waits = response([after_ms(1500, message("First."))]);
    let (model, _lab, server, runtime) = scene(json!([waits, response([message("Next.")])]));
    runtime.block_on(async {
        let (mut ann, mut ben) =
            (Client::unix(&server, "ann").await, Client::unix(&server, "ben").await);
        let thread = ann.start_thread(json!({})).await;
        let of = |more: Value| {
            let mut params = json!({"threadId": thread});
            params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            params
        };
        ann.say(&thread).await;
        said(&mut ann, "go").await;
        ben.ask("thread/resume", of(json!({"excludeTurns": true}))).await;
        let mut ids = Vec::new();
        for words in ["a", "b", "c", "d"] {
            ids.push(queue(&mut ann, &thread, words).await);
            assert_eq!(ben.told("thread/queue/changed").await["threadId"], thread);
        }
        let page = ben.ask("thread/queue/list", of(json!({"limit": 3}))).await;
        let rest = of(json!({"cursor": page["nextCursor"]}));
        let rest = ben.ask("thread/queue/list", rest).await;
        assert_eq!(rest["data"][0]["clientUserMessageId"], "id of d", "{page} {rest}");
        let update = of(json!({"queuedSubmissionId": ids[1], "input": text("B")}));
        let updated = ben.ask("thread/queue/update", update).await;
        assert_eq!(updated["queuedSubmission"]["id"], ids[1], "{updated}");
        let delete = of(json!({"queuedSubmissionId": ids[2]}));
        for deleted in [true, false] {
            let done = ann.ask("thread/queue/delete", delete.clone()).await;
            assert_eq!(done, json!({"deleted": deleted}));
        }
        let order = [&ids[3], &ids[0], &ids[1]];
        let order = of(json!({"queuedSubmissionIds": order}));
        assert_eq!(ben.ask("thread/queue/reorder", order).await, json!({}));
        assert_eq!(queued(&mut ann, &thread).await, ["d", "a", "B"]);
        for (method, bad) in [
            ("add", (json!({"input": [], "clientUserMessageId": "x"}), "input is empty")),
            ("add", (json!({"input": text("x")}), "clientUserMessageId")),
            ("list", (json!({"cursor": "x"}), "invalid cursor")),
            ("list", (json!({"threadId": UNKNOWN}), "no rollout found")),
            ("delete", (json!({"threadId": "x", "queuedSubmissionId": "x"}), "invalid thread id")),
            ("update", (json!({"queuedSubmissionId": ids[2], "input": text("x")}), "not found")),
            ("update", (json!({"queuedSubmissionId": ids[0], "input": []}), "input is empty")),
            ("reorder", (json!({"queuedSubmissionIds": [ids[0]]}), "exactly once")),
            ("reorder", (json!({"queuedSubmissionIds": [ids[0], ids[0], ids[3]]}), "exactly once")),
            ("start", (json!({}), "is running")),
            ("start", (json!({"threadId": UNKNOWN}), "thread not found")),
        ] {
            check_refused(&mut ann, &format!("thread/queue/{method}"), &thread, &[bad]).await;
        }
        // No client has to be there any more.
        drop(ann);
        for words in ["d", "a", "B"] {
            assert_eq!(ended(&mut ben).await, "completed");
            let message = said(&mut ben, words).await;
            assert_eq!(message["clientId"], format!("id of {}", words.to_lowercase()));
        }
        assert_eq!(ended(&mut ben).await, "completed");
        assert!(queued(&mut ben, &thread).await.is_empty());
        let empty = [(json!({}), "queue is empty")];
        check_refused(&mut ben, "thread/queue/start", &thread, &empty).await;
        // An idle thread says at once what is queued.
        queue(&mut ben, &thread, "e").await;
        asked(&mut ben, &model, "e", 5).await;
        let ephemeral = ben.start_thread(json!({"ephemeral": true})).await;
        let bad = json!({"input": text("x"), "clientUserMessageId": "x"});
        let bad = [(bad, "ephemeral thread does not support")];
        check_refused(&mut ben, "thread/queue/add", &ephemeral, &bad).await;
    });
}

/// After an interruption nothing is said until a client says or starts something.
#[test]
fn an_interruption_stops_the_queue() {
    let failure = status(400, json!({"error": {"message": "no"}}));
    let (model, _lab, server, runtime) = scene(json!([
        slow("One."),
        slow("Two."),
        slow("Three."),
        failure,
        response([message("Last.")]),
    ]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        let of_thread = json!({"threadId": thread});
        ann.say(&thread).await;
        asked(&mut ann, &model, "go", 1).await;
        queue(&mut ann, &thread, "a").await;
        queue(&mut ann, &thread, "b").await;
        interrupt(&mut ann, &thread).await;
        queue(&mut ann, &thread, "c").await;
        assert_eq!(queued(&mut ann, &thread).await, ["a", "b", "c"]);
        let started = ann.ask("thread/queue/start", of_thread.clone()).await;
        assert_eq!(started["turn"]["status"], "inProgress", "{started}");
        asked(&mut ann, &model, "a", 2).await;
        interrupt(&mut ann, &thread).await;
        let list = ann.ask("thread/queue/list", of_thread).await;
        let last = json!({"threadId": thread, "queuedSubmissionId": list["data"][1]["id"]});
        ann.ask("thread/queue/start", last).await;
        asked(&mut ann, &model, "c", 3).await;
        interrupt(&mut ann, &thread).await;
        assert_eq!(queued(&mut ann, &thread).await, ["b"]);
        // What a client says sets the queue going again, also if its turn fails.
        ann.say(&thread).await;
        assert_eq!(ended(&mut ann).await, "failed");
        said(&mut ann, "b").await;
        assert_eq!(ended(&mut ann).await, "completed");
    });
}

/// Whenever the server is killed, what was queued is said once.
#[test]
fn a_queue_outlives_its_server() {
    let (model, lab, server, runtime) =
        scene(json!([slow("One."), slow("Two."), response([message("Last.")])]));
    let mut thread = String::new();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        thread = ann.start_thread(json!({})).await;
        // At once, and so while nothing of its log is there.
        queue(&mut ann, &thread, "a").await;
        asked(&mut ann, &model, "a", 1).await;
        queue(&mut ann, &thread, "b").await;
        queue(&mut ann, &thread, "c").await;
    });
    let server = killed_and_started(server, &lab);
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        // It can be changed while the thread is not loaded.
        assert_eq!(queued(&mut ann, &thread).await, ["b", "c"]);
        queue(&mut ann, &thread, "d").await;
        let of_thread = json!({"threadId": thread});
        let refused = [(json!({}), "thread not found")];
        check_refused(&mut ann, "thread/queue/start", &thread, &refused).await;
        ann.ask("thread/resume", of_thread).await;
        asked(&mut ann, &model, "b", 2).await;
    });
    drop(server);
    // As if it had been killed before the message was in the log.
    let extras = lab.home.path().join(format!("thread-extras/{thread}.json"));
    let kept: Value = serde_json::from_slice(&std::fs::read(&extras).unwrap()).unwrap();
    assert_eq!(kept["queue"]["entries"].as_array().unwrap().len(), 3, "{kept}");
    let mut torn = kept.clone();
    torn["queue"]["entries"][1]["turn"] = UNKNOWN.into();
    std::fs::write(&extras, torn.to_string()).unwrap();
    let socket = format!("unix://{}", lab.root().join("third").display());
    let server = Server::start(&lab, &["--listen", &socket]);
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        ann.ask("thread/resume", json!({"threadId": thread})).await;
        for words in ["c", "d"] {
            said(&mut ann, words).await;
            assert_eq!(ended(&mut ann).await, "completed");
        }
        assert!(queued(&mut ann, &thread).await.is_empty());
        let archived = ann.ask("thread/archive", json!({"threadId": thread})).await;
        assert_eq!(archived, json!({}));
        let archived = [(json!({}), "is archived")];
        check_refused(&mut ann, "thread/queue/list", &thread, &archived).await;
    });
    let last = model.requests().last().unwrap().body["input"].to_string();
    for words in ["a", "b", "c", "d"] {
        let told = last.matches(&format!(r#""text":"{words}""#)).count();
        assert_eq!(told, 1, "{words}: {last}");
    }
}
