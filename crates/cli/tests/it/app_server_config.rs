//! Clients of an app-server that read and change the configuration, and ask what else there is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::script::{message, response};
use testkit::{Lab, ModelServer};

use crate::BINARY;
use crate::app_server_client::{Client, Server, scene};
use crate::run::lab_for;

/// The text of the configuration.
fn text(lab: &Lab) -> String {
    fs::read_to_string(lab.home.path().join("config.toml")).unwrap()
}

/// Parameters of a write.
fn set(path: &str, value: Value) -> Value {
    json!({"keyPath": path, "value": value, "mergeStrategy": "replace"})
}

fn with(mut params: Value, more: Value) -> Value {
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}

#[test]
fn the_configuration_is_read_and_changed() {
    let (model, lab, server, runtime) =
        scene(json!([response([message("Hi.")]), response([message("Hi.")])]));
    let file = lab.home.path().join("config.toml");
    let before = format!("# mine\n{}", text(&lab));
    fs::write(&file, &before).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let read = ann.ask("config/read", json!({"includeLayers": true})).await;
        assert_eq!(read["config"]["model_verbosity"], Value::Null, "{read}");
        assert_eq!(read["config"]["project_doc_max_bytes"], 32768);
        let user = &read["layers"][1];
        assert_eq!(user["name"], json!({"type": "user", "file": file, "profile": null}));
        assert_eq!(read["layers"][0]["name"], json!({"type": "sessionFlags"}));
        let origin = &read["origins"]["model_provider"];
        assert_eq!(*origin, json!({"name": user["name"], "version": user["version"]}));
        // A thread that is loaded, and one for later.
        let thread = ann.start_thread(json!({})).await;
        ann.say(&thread).await;
        ann.told("turn/completed").await;

        let change = with(
            set("model", json!("gpt-new")),
            json!({"expectedVersion": user["version"], "filePath": file}),
        );
        let written = ann.ask("config/value/write", change.clone()).await;
        assert_eq!(written["status"], "ok", "{written}");
        assert_eq!(written["filePath"], json!(file));
        assert_eq!(written["overriddenMetadata"], Value::Null);
        let again = ann.ask("config/read", json!({"includeLayers": true})).await;
        assert_eq!(again["layers"][1]["version"], written["version"]);
        assert_eq!(again["config"]["model"], "gpt-new");
        assert_eq!(ann.ask("config/read", json!({})).await.get("layers"), None);
        // Who has seen the version before that is told so.
        let late = ann.ask("config/value/write", change).await;
        assert_eq!(late["data"], json!({"config_write_error_code": "configVersionConflict"}));

        let edits = json!([
            {"keyPath": "desktop", "value": {"theme": "dark"}, "mergeStrategy": "upsert"},
            {"keyPath": "desktop.size", "value": 3, "mergeStrategy": "replace"},
            {"keyPath": "modle", "value": "x", "mergeStrategy": "replace"},
        ]);
        let batch = json!({"edits": edits, "reloadUserConfig": true});
        assert_eq!(ann.ask("config/batchWrite", batch).await["status"], "ok");
        let warning = ann.told("configWarning").await["summary"].clone();
        assert!(warning.as_str().unwrap().contains("did you mean `model`"), "{warning}");
        assert!(text(&lab).starts_with("# mine\n"), "{}", text(&lab));
        assert!(text(&lab).ends_with("[desktop]\ntheme = \"dark\"\nsize = 3\n"), "{}", text(&lab));
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640);
        // The loaded thread has the new model from its next turn on.
        ann.say(&thread).await;
        ann.told("turn/completed").await;
        ann.ask("config/batchWrite", json!({"edits": []})).await;
    });
    assert_eq!(model.requests()[1].body["model"], "gpt-new");
}

/// A client that does not wait for answers has its changes in the order in which it sent them.
#[test]
fn changes_are_made_in_their_order() {
    let (_model, lab, server, runtime) = scene(json!([]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        for n in 0..40 {
            let params = set("desktop.n", json!(n));
            let write =
                json!({"id": format!("w{n}"), "method": "config/value/write", "params": params});
            ann.send(write).await;
            ann.send(json!({"id": format!("r{n}"), "method": "config/read", "params": {}})).await;
        }
        for n in 0..40 {
            let read = ann.until(|it| it["id"] == format!("r{n}")).await;
            assert_eq!(read["result"]["config"]["desktop"]["n"], n);
        }
        let edits: Vec<_> = (0..1025).map(|n| set("desktop.n", json!(n))).collect();
        let error = ann.ask("config/batchWrite", json!({"edits": edits})).await;
        assert_eq!(error["data"]["config_write_error_code"], "configValidationError", "{error}");
        let edits = json!({"edits": edits[..1024]});
        assert_eq!(ann.ask("config/batchWrite", edits).await["status"], "ok");
    });
    assert!(text(&lab).ends_with("[desktop]\nn = 1023\n"), "{}", text(&lab));
}

#[test]
fn what_would_harm_is_refused() {
    let (_model, lab, server, runtime) = scene(json!([]));
    let before = text(&lab);
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let outside = lab.root().join("other.toml");
        let cases = [
            (set("sandbox_mode", json!("x")), "configValidationError", "`sandbox_mode` cannot be"),
            (set("model", json!({"a": null})), "configValidationError", "`model.a` is null"),
            (set("model", json!(u64::MAX)), "configValidationError", "64 bits"),
            (set("", json!(1)), "configValidationError", "has an empty part"),
            (set("a.\"b", json!(1)), "configValidationError", "badly quoted"),
            (set("model_provider.x", json!(1)), "configValidationError", "is not a table"),
            (
                with(set("model", json!("m")), json!({"filePath": outside})),
                "configLayerReadonly",
                "Only writes to the user config are allowed",
            ),
            (
                with(set("model", json!("m")), json!({"filePath": "config.toml"})),
                "configLayerReadonly",
                "Only writes to the user config are allowed",
            ),
            (
                with(set("model", json!("m")), json!({"expectedVersion": "x"})),
                "configVersionConflict",
                "Fetch latest version",
            ),
        ];
        for (params, code, words) in cases {
            let error = ann.ask("config/value/write", params.clone()).await;
            assert_eq!(error["code"], -32600, "{params} {error}");
            assert_eq!(error["data"]["config_write_error_code"], code, "{params} {error}");
            assert!(error["message"].as_str().unwrap().contains(words), "{params} {error}");
        }
        // All of a batch, or nothing.
        let edits = [set("model", json!("m")), set("sandbox_mode", json!("x"))];
        let error = ann.ask("config/batchWrite", json!({"edits": edits})).await;
        assert_eq!(error["data"]["config_write_error_code"], "configValidationError", "{error}");
        for params in [
            json!({"keyPath": "model", "mergeStrategy": "replace"}),
            json!({"keyPath": "model", "value": 1, "mergeStrategy": "x"}),
            json!({"keyPath": 1, "value": 1, "mergeStrategy": "replace"}),
        ] {
            let error = ann.ask("config/value/write", params).await;
            assert!(error["message"].as_str().unwrap().starts_with("Invalid request: "), "{error}");
            assert_eq!(error.get("data"), None);
        }
        assert_eq!(text(&lab), before);
        // A file that cannot be read is not made worse.
        let broken = "model = \n";
        fs::write(lab.home.path().join("config.toml"), broken).unwrap();
        let read = ann.ask("config/read", json!({})).await;
        assert_eq!(read["code"], -32603, "{read}");
        let error = ann.ask("config/value/write", set("model", json!("m"))).await;
        assert_eq!(error["code"], -32603, "{error}");
        assert!(error["message"].as_str().unwrap().contains("config.toml:1:"), "{error}");
        assert_eq!(text(&lab), broken);
    });
}

#[test]
fn what_is_overridden_is_said() {
    let model = ModelServer::start(json!([])).unwrap();
    let lab = lab_for(&model);
    let socket = format!("unix://{}", lab.root().join("s").display());
    let args = ["--listen", &socket, "-c", "model_verbosity=\"low\"", "--model", "flag"];
    let server = Server::start(&lab, &args);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        for (path, effective) in [("model_verbosity", "low"), ("model", "flag")] {
            let written = ann.ask("config/value/write", set(path, json!("high"))).await;
            assert_eq!(written["status"], "okOverridden", "{written}");
            let metadata = &written["overriddenMetadata"];
            assert_eq!(metadata["message"], "Overridden by session flags");
            assert_eq!(metadata["overridingLayer"]["name"], json!({"type": "sessionFlags"}));
            assert_eq!(metadata["effectiveValue"], effective);
        }
    });
}

/// Clients of one server and those of another one change the same file at the same time.
#[test]
fn no_edit_of_many_is_lost() {
    let (_model, lab, server, runtime) = scene(json!([]));
    let socket = format!("unix://{}", lab.root().join("t").display());
    let other = Server::start(&lab, &["--listen", &socket]);
    let each = 8;
    runtime.block_on(async {
        let mut clients = Vec::new();
        for server in [&server, &other, &server, &other] {
            clients.push(Client::unix(server, "c").await);
        }
        let writers = clients.into_iter().enumerate().map(|(n, mut client)| async move {
            for m in 0..each {
                let change = set(&format!("desktop.k{n}_{m}"), json!(m));
                let written = client.ask("config/value/write", change).await;
                assert_eq!(written["status"], "ok", "{written}");
            }
        });
        futures_util::future::join_all(writers).await;
        let mut ann = Client::unix(&server, "ann").await;
        let read = ann.ask("config/read", json!({})).await;
        assert_eq!(read["config"]["desktop"].as_object().unwrap().len(), 4 * each);
    });
}

#[test]
fn what_there_is_and_what_not() {
    let (_model, lab, server, runtime) = scene(json!([]));
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let thread = ann.start_thread(json!({})).await;
        let nobody = "01a1e055-b282-7523-b985-c798177efe12";
        let empty = json!({"data": [], "nextCursor": null});
        let cases = [
            ("experimentalFeature/list", json!({"threadId": thread}), empty.clone()),
            ("mcpServerStatus/list", json!({}), empty),
            (
                "experimentalFeature/enablement/set",
                json!({"enablement": {"apps": true}}),
                json!({"enablement": {}}),
            ),
            (
                "permissionProfile/list",
                json!({"limit": 1, "cursor": "1"}),
                json!({"data": [{"id": ":workspace", "description": null, "allowed": true}], "nextCursor": "2"}),
            ),
            (
                "collaborationMode/list",
                json!({}),
                json!({"data": [
                    {"name": "Plan", "mode": "plan", "model": null, "reasoning_effort": "medium"},
                    {"name": "Default", "mode": "default", "model": null, "reasoning_effort": null},
                ]}),
            ),
            ("skills/extraRoots/set", json!({"extraRoots": ["/srv"]}), json!({})),
            ("config/mcpServer/reload", Value::Null, json!({})),
            (
                "account/read",
                json!({}),
                json!({"account": null, "requiresOpenaiAuth": false, "workspaceRouting": null}),
            ),
            ("account/logout", Value::Null, json!({})),
        ];
        for (method, params, want) in cases {
            assert_eq!(ann.ask(method, params).await, want, "{method}");
        }
        let told = ann.told("account/updated").await;
        assert_eq!(told, json!({"authMode": null, "planType": null}));
        ann.told("skills/changed").await;
        let refused = [
            ("experimentalFeature/list", json!({"threadId": nobody}), -32600, "thread not found"),
            ("experimentalFeature/list", json!({"threadId": "x"}), -32600, "invalid thread id"),
            ("experimentalFeature/list", json!({"cursor": "x"}), -32600, "invalid cursor: x"),
            ("experimentalFeature/enablement/set", json!({}), -32600, "missing field `enablement`"),
            ("permissionProfile/list", json!({"cursor": "x"}), -32600, "invalid cursor: x"),
            ("skills/extraRoots/set", json!({"extraRoots": ["x"]}), -32600, "is a relative path"),
            ("skills/config/write", json!({"enabled": true}), -32602, "exactly one of path or name"),
            ("skills/config/write", json!({"enabled": true, "name": " "}), -32602, "exactly one"),
            ("skills/config/write", json!({"enabled": true, "path": "x"}), -32600, "relative path"),
            ("mcpServer/resource/read", json!({"server": "s", "uri": "u"}), -32603, "unknown MCP server 's'"),
            ("mcpServer/resource/read", json!({"server": "s", "uri": "u", "threadId": nobody}), -32600, "thread not found"),
            ("mcpServer/tool/call", json!({"server": "s", "tool": "t", "threadId": thread}), -32603, "unknown MCP server 's'"),
            ("mcpServer/tool/call", json!({"server": "s", "tool": "t"}), -32600, "missing field `threadId`"),
            ("account/rateLimits/read", Value::Null, -32600, "chatgpt authentication required to read rate limits"),
            ("account/usage/read", json!({}), -32600, "chatgpt authentication required to read token usage"),
            ("account/login/start", json!({"type": "apiKey", "apiKey": "sk-secret"}), -32600, "set OPENAI_API_KEY"),
            ("account/login/start", json!({"type": "apiKey"}), -32600, "missing field `apiKey`"),
            ("account/login/start", json!({"type": "x"}), -32600, "unknown variant `x`"),
            ("account/login/cancel", json!({"loginId": "x"}), -32600, "unknown variant"),
        ];
        for (method, params, code, words) in refused {
            let error = ann.ask(method, params.clone()).await;
            assert_eq!(error["code"], code, "{method} {params} {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(words), "{method} {params} {message}");
            assert!(!message.contains("sk-secret"));
        }
        let before = text(&lab);
        for enabled in [false, true] {
            let switch = json!({"enabled": enabled, "name": "s"});
            let switched = ann.ask("skills/config/write", switch).await;
            assert_eq!(switched, json!({"effectiveEnabled": enabled}));
            let off = text(&lab).contains("{ name = \"s\", enabled = false }");
            assert_eq!(off, !enabled, "{}", text(&lab));
        }
        assert_eq!(text(&lab), before);
        let found = ann.ask("server/diagnostics", json!({})).await;
        assert_eq!(found["process"]["id"], server.id(), "{found}");
        assert!(found["process"]["residentMemoryBytes"].as_u64().unwrap() > 1 << 20, "{found}");
        let gauges = found["gauges"].as_array().unwrap();
        let gauge = |name: &str| gauges.iter().find(|it| it["name"] == name).unwrap()["value"].clone();
        assert_eq!(gauge("core.threads.live"), 1);
        assert_eq!(gauge("heddle.turns.running"), 0);
        assert_eq!(gauge("heddle.clients"), 1);
        assert_eq!(gauge("app.requests.in_flight"), 1);
    });
}

/// Who logs out is told where the key is.
#[test]
fn keys_are_in_the_environment() {
    let lab = Lab::new().unwrap();
    lab.home.write_mock_config(9).unwrap();
    let socket = format!("unix://{}", lab.root().join("s").display());
    let mut command = lab.command(BINARY);
    command.args(["app-server", "--listen", &socket]).env("OPENAI_API_KEY", "sk-secret");
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let server = Server::of(command);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut ann = Client::unix(&server, "ann").await;
        let account = ann.ask("account/read", json!({})).await["account"].clone();
        assert_eq!(account, json!({"type": "apiKey"}));
        let error = ann.ask("account/logout", Value::Null).await;
        assert!(error["message"].as_str().unwrap().contains("remove OPENAI_API_KEY"), "{error}");
    });
}
