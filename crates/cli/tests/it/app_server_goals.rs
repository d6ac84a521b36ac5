//! Goals of threads: the model goes on with them by itself, until they are reached or stopped.

use serde_json::{Value, json};
use testkit::ModelServer;
use testkit::script::{call, message, response, status};

use crate::app_server_client::{Client, scene};
use crate::app_server_extras::{
    UNKNOWN, asked, check_refused, ended, interrupt, killed_and_started, queue, said, slow,
};
use crate::run::until;

/// Sets or changes the goal of a thread; returns what it is then.
async fn set(client: &mut Client, thread: &str, goal: Value) -> Value {
    let mut params = goal;
    params["threadId"] = thread.into();
    let set = client.ask("thread/goal/set", params).await;
    assert!(set["goal"]["threadId"] == thread, "{set}");
    set["goal"].clone()
}

async fn get(client: &mut Client, thread: &str) -> Value {
    client.ask("thread/goal/get", json!({"threadId": thread})).await["goal"].clone()
}

/// Waits until the goal has this status.
async fn until_goal(client: &mut Client, status: &str) -> Value {
    let told = client.until(|it| {
        it["method"] == "thread/goal/updated" && it["params"]["goal"]["status"] == status
    });
    told.await["params"].clone()
}

fn goal_says(status: &str) -> Value {
    response([call("c1", "update_goal", json!({"status": status}))])
}

/// Returns how often a request says what it was asked for because of a goal.
fn prompts(model: &ModelServer, request: usize) -> usize {
    let input = model.requests()[request].body["input"].to_string();
    input.matches("<codex_internal_context source=\\\"goal\\\">").count()
}

fn has_tool(model: &ModelServer, request: usize) -> bool {
    model.requests()[request].body["tools"].to_string().contains("update_goal")
}

/// The model works on a goal turn after turn, and says when it is reached. Nobody sees the words that keep it going.
#[test]
fn a_goal_is_pursued() {
    let (model, lab, server, runtime) = scene(json!([
        response([message("Hello.")]),
        response([message("One step.")]),
        response([message("Another.")]),
        goal_says("complete"),
        response([message("Done.")]),
        response([message("You are welcome.")]),
    ]));
    let mut thread = String::new();
    runtime.block_on(async {
        let (mut ann, mut ben) =
            (Client::unix(&server, "ann").await, Client::unix(&server, "ben").await);
        thread = ann.start_thread(json!({"approvalPolicy": "untrusted"})).await;
        ann.say(&thread).await;
        assert_eq!(ended(&mut ann).await, "completed");
        let resume = json!({"threadId": thread, "excludeTurns": true});
        ben.ask("thread/resume", resume).await;
        ben.told("thread/goal/cleared").await;
        let goal = set(&mut ann, &thread, json!({"objective": " Build it. "})).await;
        assert_eq!((&goal["objective"], &goal["status"]), (&json!("Build it."), &json!("active")));
        let done = until_goal(&mut ben, "complete").await;
        assert!(done["turnId"].is_string(), "{done}");
        for client in [&mut ann, &mut ben] {
            for _ in 0..3 {
                assert_eq!(ended(client).await, "completed");
            }
        }
        let goal = get(&mut ben, &thread).await;
        assert!(goal["tokensUsed"].as_u64() > Some(0), "{goal}");
        // It does not go on.
        ann.say(&thread).await;
        assert_eq!(ended(&mut ann).await, "completed");
        let read = json!({"threadId": thread, "includeTurns": true});
        let read = ann.ask("thread/read", read).await;
        assert!(!read.to_string().contains("codex_internal_context"), "{read}");
        assert_eq!(read["thread"]["turns"].as_array().unwrap().len(), 5);
    });
    let tools: Vec<_> = (0..6).map(|request| has_tool(&model, request)).collect();
    assert_eq!(tools, [false, true, true, true, false, false]);
    assert_eq!((prompts(&model, 1), prompts(&model, 2), prompts(&model, 5)), (1, 2, 3));
    let last = model.requests()[2].body["input"].to_string();
    assert!(last.contains("Build it."), "{last}");
    let server = killed_and_started(server, &lab);
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let goal = get(&mut ann, &thread).await;
        assert_eq!(
            (&goal["objective"], &goal["status"]),
            (&json!("Build it."), &json!("complete"))
        );
        for cleared in [true, false] {
            let clear = ann.ask("thread/goal/clear", json!({"threadId": thread})).await;
            assert_eq!(clear, json!({"cleared": cleared}));
        }
        assert_eq!(get(&mut ann, &thread).await, Value::Null);
    });
}

/// A goal ends with its budget, with a failure, with what a client says, and with an interruption for a while.
#[test]
fn a_goal_is_stopped() {
    let failure = status(400, json!({"error": {"message": "no"}}));
    let limit = json!({"error": {"type": "usage_limit_reached", "message": "no"}});
    let (model, _lab, server, runtime) = scene(json!([
        response([message("All tokens.")]),
        failure,
        status(429, limit),
        slow("Interrupted."),
        slow("Paused."),
        slow("Changed."),
        response([message("Queued.")]),
        response([message("Goal.")]),
    ]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        let bad = [
            (json!({}), "no goal exists"),
            (json!({"objective": " "}), "must not be empty"),
            (json!({"objective": "x", "tokenBudget": -1}), "must be positive"),
            (json!({"objective": "x", "status": "done"}), "unknown variant"),
            (json!({"objective": "x", "threadId": UNKNOWN}), "no rollout found"),
        ];
        check_refused(&mut ann, "thread/goal/set", &thread, &bad).await;
        let ephemeral = ann.start_thread(json!({"ephemeral": true})).await;
        let bad = [(json!({}), "ephemeral thread does not support goals")];
        check_refused(&mut ann, "thread/goal/get", &ephemeral, &bad).await;

        set(&mut ann, &thread, json!({"objective": "x", "tokenBudget": 1})).await;
        until_goal(&mut ann, "budgetLimited").await;
        assert_eq!(ended(&mut ann).await, "completed");
        let go_on = json!({"tokenBudget": null, "status": "active"});
        set(&mut ann, &thread, go_on.clone()).await;
        until_goal(&mut ann, "blocked").await;
        assert_eq!(ended(&mut ann).await, "failed");
        set(&mut ann, &thread, go_on.clone()).await;
        until_goal(&mut ann, "usageLimited").await;
        assert_eq!(ended(&mut ann).await, "failed");

        set(&mut ann, &thread, go_on.clone()).await;
        until("a request", || (model.requests().len() == 4).then_some(()));
        interrupt(&mut ann, &thread).await;
        assert_eq!(get(&mut ann, &thread).await["status"], "active");
        set(&mut ann, &thread, go_on.clone()).await;
        until("a request", || (model.requests().len() == 5).then_some(()));
        set(&mut ann, &thread, json!({"status": "paused"})).await;
        interrupt(&mut ann, &thread).await;

        // What is queued comes first, and what a client changes is said at once.
        ann.say(&thread).await;
        asked(&mut ann, &model, "go", 6).await;
        queue(&mut ann, &thread, "first").await;
        set(&mut ann, &thread, json!({"status": "active"})).await;
        set(&mut ann, &thread, json!({"objective": "y"})).await;
        interrupt(&mut ann, &thread).await;
        ann.ask("thread/queue/start", json!({"threadId": thread})).await;
        said(&mut ann, "first").await;
        until("a request", || (model.requests().len() >= 8).then_some(()));
        set(&mut ann, &thread, json!({"status": "paused"})).await;
    });
    let request = |number: usize| model.requests()[number].body["input"].to_string();
    assert!(request(6).contains("The user has changed the goal"), "{}", request(6));
    assert!(request(7).contains("<objective>\\ny\\n</objective>"), "{}", request(7));
}

/// When a server was killed, a thread that is resumed goes on with its goal.
#[test]
fn a_goal_outlives_its_server() {
    let (model, lab, server, runtime) =
        scene(json!([slow("Killed."), goal_says("paused"), response([message("Fine.")])]));
    let mut thread = String::new();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        thread = ann.start_thread(json!({})).await;
        set(&mut ann, &thread, json!({"objective": "x"})).await;
        until("a request", || (model.requests().len() == 1).then_some(()));
    });
    let server = killed_and_started(server, &lab);
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        assert_eq!(set(&mut ann, &thread, json!({"objective": "y"})).await["status"], "active");
        ann.ask("thread/resume", json!({"threadId": thread})).await;
        until_goal(&mut ann, "paused").await;
        assert_eq!(ended(&mut ann).await, "completed");
    });
    assert_eq!(model.requests().len(), 3);
}
