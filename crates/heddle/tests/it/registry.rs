//! Registries of tools: what is refused, and what threads see of changes.

use std::sync::Arc;

use heddle::tools::{RegistrationError, TOOLS_MAX, ToolHandle, ToolSpec, Tools, tool_fn};
use heddle::{ErrorKind, ThreadSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scripted::{Lab, breathe, message};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Creates a tool that says which one it is.
fn tool(name: &str, says: &str) -> heddle::tools::FnTool {
    let says = says.to_owned();
    let description = format!("Says {says}.");
    tool_fn(name, description, move |_: Nothing, _| {
        let says = says.clone();
        async move { says }
    })
}

#[derive(Deserialize, JsonSchema)]
struct Change {
    change: String,
}

/// Applies changes such as `add word one`, `replace word two` or `remove word`.
fn apply(tools: &Tools, change: &str) {
    let words: Vec<_> = change.split(' ').collect();
    let handle = |name: &str| tools.get(name).unwrap().handle;
    match *words {
        ["add", name, says] => {
            tools.add(tool(name, says)).unwrap();
        }
        ["replace", name, says] => tools.replace(handle(name), tool(name, says)).unwrap(),
        ["remove", name] => tools.remove(handle(name)).unwrap(),
        _ => panic!("{change}"),
    }
}

/// Creates a registry with a tool `change` that changes the registry when the model calls it.
fn changeable() -> Tools {
    let tools = Tools::new();
    let registry = tools.clone();
    let change = tool_fn("change", "Changes the registry.", move |args: Change, _| {
        apply(&registry, &args.change);
        async { "changed" }
    });
    tools.add(change).unwrap();
    tools
}

/// Creates the calls of one answer: `word` calls a tool, and `change: …` calls that with the text.
fn calls(number: usize, list: &[&str]) -> Vec<Value> {
    let call = |(index, text): (usize, &&str)| {
        let (name, arguments) = match text.strip_prefix("change: ") {
            Some(change) => ("change", json!({"change": change})),
            None => (*text, json!({})),
        };
        json!({"type": "function_call", "name": name, "call_id": format!("{number}-{index}"), "arguments": arguments.to_string()})
    };
    list.iter().enumerate().map(call).collect()
}

/// Runs a turn in which the model makes these calls, answer by answer. Returns for each request which of the tools in
/// question it offers, and what the calls of the answer before it came to.
async fn play(lab: &Lab, spec: ThreadSpec, answers: &[&[&str]]) -> Vec<String> {
    let script = answers.iter().enumerate().map(|(number, list)| calls(number, list));
    let script = script.chain([vec![message("ok")]]).collect();
    let thread = lab.heddle.start(lab.spec(spec, script)).await.unwrap();
    let first = lab.requests.lock().unwrap().len();
    thread.turn("go").run().await.unwrap();
    thread.close().await;
    let requests = lab.requests.lock().unwrap();
    let mut known = 0;
    let seen = requests[first..].iter().map(|request| {
        let names = request["tools"].as_array().unwrap().iter();
        let names: Vec<_> = names.filter_map(|tool| tool["name"].as_str()).collect();
        let names = names.into_iter().filter(|name| name.starts_with("word"));
        let input = request["input"].as_array().unwrap();
        let outputs = input[known..].iter().filter_map(|item| item["output"].as_str());
        let line = format!(
            "{} | {}",
            names.collect::<Vec<_>>().join(" "),
            outputs.collect::<Vec<_>>().join(", ")
        );
        known = input.len();
        line
    });
    seen.collect()
}

#[tokio::test]
async fn threads_see_changes_with_the_next_request() {
    let gone = "the tool word is no longer available: go on without it";
    let removed = format!(" | changed, {gone}");
    let never = " | unsupported call: word";
    for (answers, want) in [
        (
            &[&["change: add word one"][..], &["word"]][..],
            vec![" | ", "word | changed", "word | one"],
        ),
        // What was offered is what is called, also if it was replaced before the call.
        (
            &[&["change: add word one"], &["change: replace word two", "word"], &["word"]],
            vec![" | ", "word | changed", "word | changed, one", "word | two"],
        ),
        // What was removed is not called, neither before the next request nor after it.
        (
            &[&["change: add word one"], &["change: remove word", "word"], &["word"]],
            vec![" | ", "word | changed", &removed, &format!(" | {gone}")],
        ),
        // A tool of the same name that was added meanwhile is another tool, and was not offered.
        (
            &[
                &["change: add word one"],
                &["change: remove word", "change: add word two", "word"],
                &["word"],
            ],
            vec![
                " | ",
                "word | changed",
                &format!("word | changed, changed, {gone}"),
                "word | two",
            ],
        ),
        // What was not offered is not there, even if it is by the time of the call.
        (
            &[&["change: add word one", "word"]],
            vec![" | ", &format!("word | {}, changed", &never[3..])],
        ),
        (&[&["word"]], vec![" | ", never]),
    ] {
        let lab = Lab::new();
        let seen = play(&lab, ThreadSpec::new().tools(&changeable()), answers).await;
        let sorted = |line: &str| {
            let (names, outputs) = line.split_once(" | ").unwrap();
            let mut outputs: Vec<_> = outputs.split(", ").map(str::to_owned).collect();
            outputs.sort();
            (names.to_owned(), outputs)
        };
        let got: Vec<_> = seen.iter().map(|line| sorted(line)).collect();
        let want: Vec<_> = want.iter().map(|line| sorted(line)).collect();
        assert_eq!(got, want, "{answers:?}");
    }
}

/// The calls of one answer come to their outputs in order.
#[tokio::test]
async fn a_call_that_runs_while_its_tool_changes_finishes() {
    for change in ["replace word two", "remove word"] {
        let lab = Lab::new();
        let tools = Tools::new();
        let registry = tools.clone();
        let word = tool_fn("word", "Says one.", move |_: Nothing, _| {
            let registry = registry.clone();
            async move {
                apply(&registry, change);
                for _ in 0..8 {
                    breathe().await;
                }
                "one"
            }
        });
        tools.add(word).unwrap();
        let seen = play(&lab, ThreadSpec::new().tools(&tools), &[&["word"]]).await;
        assert!(seen[1].ends_with(" | one"), "{change}: {seen:?}");
    }
}

#[tokio::test]
async fn a_registered_tool_stands_in_for_a_built_in_one_while_it_is_there() {
    let lab = Lab::new();
    let tools = changeable();
    apply(&tools, "add update_plan ours");
    let answers = [&["update_plan", "change: remove update_plan"][..]];
    let seen = play(&lab, ThreadSpec::new().tools(&tools), &answers).await;
    assert_eq!(seen, [" | ", " | ours, changed"]);
    let requests = lab.requests.lock().unwrap();
    for (request, ours) in requests.iter().zip([true, false]) {
        let list = request["tools"].as_array().unwrap().iter();
        let plans: Vec<_> = list.filter(|tool| tool["name"] == "update_plan").collect();
        assert_eq!(plans.len(), 1, "{request}");
        assert_eq!(plans[0]["description"] == "Says ours.", ours, "{request}");
    }
}

#[tokio::test]
async fn two_tools_of_one_name() {
    let lab = Lab::new();
    let with = |names: &[&str]| {
        let tools = Tools::new();
        for name in names {
            tools.add(tool(name, "it")).unwrap();
        }
        tools
    };
    for (spec, name) in [
        (ThreadSpec::new().tool(tool("word", "1")).tool(tool("word", "2")), "word"),
        (ThreadSpec::new().tool(tool("word", "1")).tools(&with(&["a", "word"])), "word"),
        (ThreadSpec::new().tools(&with(&["a"])).tools(&with(&["b", "a"])), "a"),
    ] {
        let error = lab.heddle.start(lab.spec(spec, Vec::new())).await.expect_err(name);
        let says = format!("two tools with the name {name}");
        assert_eq!(error.kind(), ErrorKind::Settings);
        assert!(error.to_string().contains(&says), "{error}");
    }
    // The same registry twice is one registry, and a tool that comes later yields to one of the thread.
    let tools = changeable();
    let spec = ThreadSpec::new().tools(&tools).tools(&tools).tool(tool("word", "own"));
    let seen = play(&lab, spec, &[&["change: add word later"], &["word"]]).await;
    assert_eq!(seen, ["word | ", "word | changed", "word | own"]);
}

/// Describes itself as it is told to.
struct Described(ToolSpec);

impl heddle::tools::Tool for Described {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, _: heddle::tools::ToolContext) -> heddle::tools::ToolFuture<'a> {
        Box::pin(async { "".into() })
    }
}

#[test]
fn registration() {
    let object = || json!({"type": "object"});
    for (name, description, schema, want) in [
        ("word", "Says a word.", object(), None),
        ("", "Says a word.", object(), Some("its name cannot be used")),
        ("a b", "Says a word.", object(), Some("its name cannot be used")),
        ("taken", "Says a word.", object(), Some("two tools with the name taken")),
        ("word", " ", object(), Some("its description is empty")),
        ("word", &"d".repeat(20_000), object(), Some("its description has 20000 bytes")),
        ("word", "Says a word.", json!({"type": "string"}), Some("its parameters must have")),
        ("word", "Says a word.", json!({"type": "object", "$ref": 7}), Some("no usable schema")),
    ] {
        let tools = Tools::new();
        let taken = tools.add(tool("taken", "1")).unwrap();
        let spec = ToolSpec::new(name, description, schema);
        match (tools.add(Described(spec.clone())), want) {
            (Ok(handle), None) => {
                let found = tools.get(name).unwrap();
                assert_eq!((found.handle, found.spec), (handle, spec));
                assert_eq!(tools.names(), ["taken", "word"]);
            }
            (Err(error), Some(says)) => {
                assert!(error.to_string().contains(says), "{error}");
                assert_eq!(tools.names(), ["taken"]);
                // It cannot come by way of another either, but a tool may keep its own name.
                let replaced = tools.replace(taken, Described(spec));
                assert_eq!(replaced.is_ok(), name == "taken", "{replaced:?}");
            }
            (got, want) => panic!("{name}: {got:?}, not {want:?}"),
        }
    }
}

#[test]
fn handles() {
    let (tools, others) = (Tools::new(), Tools::new());
    let first = tools.add(tool("word", "1")).unwrap();
    let other = others.add(tool("word", "1")).unwrap();
    assert_ne!(first, other);
    assert_eq!(tools.remove(other), Err(RegistrationError::UnknownHandle));
    // A clone is the same registry.
    tools.clone().remove(first).unwrap();
    let second = tools.add(tool("word", "2")).unwrap();
    assert_ne!(first, second);
    assert_eq!(tools.remove(first), Err(RegistrationError::UnknownHandle));
    assert_eq!(tools.replace(first, tool("a", "1")), Err(RegistrationError::UnknownHandle));
    tools.replace(second, tool("other", "3")).unwrap();
    assert_eq!(tools.get("other").map(|found| found.handle), Some(second));
    assert_eq!(tools.get("word"), None);
    let taken =
        tools.replace(second, tool("other", "4")).and_then(|()| tools.add(tool("other", "5")));
    let holder = Some(second);
    assert_eq!(taken, Err(RegistrationError::NameTaken { name: "other".to_owned(), holder }));
}

#[test]
fn a_registry_is_bounded() {
    let tools = Tools::new();
    for number in 0..TOOLS_MAX {
        tools.add(tool(&format!("t{number}"), "it")).unwrap();
    }
    assert_eq!(tools.add(tool("more", "it")), Err(RegistrationError::Full));
    tools.remove(tools.get("t0").unwrap().handle).unwrap();
    tools.add(tool("more", "it")).unwrap();
}

/// Threads, tasks and the registry at the same time: every call gets exactly one output, and no handle comes twice.
#[test]
fn changes_from_many_tasks_while_threads_run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let tools = Tools::new();
    let lab = Arc::new(Lab::new());
    runtime.block_on(async {
        let mut turns = Vec::new();
        for _ in 0..8 {
            let (lab, tools) = (Arc::clone(&lab), tools.clone());
            turns.push(tokio::spawn(async move {
                let answers = (0..20).map(|number| calls(number, &["word", "word"])).collect();
                let spec = lab.spec(ThreadSpec::new().ephemeral(true).tools(&tools), answers);
                let thread = lab.heddle.start(spec).await.unwrap();
                thread.turn("go").run().await.unwrap();
            }));
        }
        let mut changes = Vec::new();
        for number in 0..4 {
            let tools = tools.clone();
            changes.push(tokio::spawn(async move {
                let mut handles = Vec::<ToolHandle>::new();
                for round in 0..100 {
                    if let Ok(handle) = tools.add(tool("word", &format!("{number} {round}"))) {
                        handles.push(handle);
                        breathe().await;
                        tools.replace(handle, tool("word", "again")).unwrap();
                        breathe().await;
                        tools.remove(handle).unwrap();
                    }
                    tokio::task::yield_now().await;
                }
                handles
            }));
        }
        let mut handles = Vec::new();
        for change in changes {
            handles.extend(change.await.unwrap());
        }
        let count = handles.len();
        handles.sort_by_key(|handle| format!("{handle:?}"));
        handles.dedup();
        assert_eq!(handles.len(), count);
        for turn in turns {
            turn.await.unwrap();
        }
    });
    let requests = lab.requests.lock().unwrap();
    let last = requests.iter().max_by_key(|request| request["input"].as_array().unwrap().len());
    let outputs = last.unwrap()["input"].as_array().unwrap().iter();
    assert_eq!(outputs.filter(|item| item.get("output").is_some()).count(), 40);
}
