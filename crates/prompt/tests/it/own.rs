//! The daemon's own tools are chosen like those of the client.

use prompt::refusal::Refusal;
use prompt::request::{Choice, Input, Tool};
use serde_json::{Value, json};

fn own(name: &str) -> Tool {
    let input = Input::Json(json!({"type": "object"}));
    Tool { name: name.to_owned(), description: "Ours.".to_owned(), input }
}

/// Checks which tools a request with these fields offers, which of them are the daemon's, and what must be
/// called; or the path of the error.
#[track_caller]
fn check(fields: Value, want: Result<(&[&str], &[&str], Choice), &str>) {
    let mut body = json!({"model": "m", "input": "hi"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let read = prompt::responses::read(body.to_string().as_bytes(), &[own("echo"), own("upper")]);
    match (read, want) {
        (Ok(request), Ok((tools, ours, choice))) => {
            let names: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
            let own: Vec<_> = request.own.iter().map(String::as_str).collect();
            assert_eq!((&*names, &*own, request.choice), (tools, ours, choice), "{fields}");
            for tool in &request.tools {
                let is_ours = tool.description == "Ours.";
                assert_eq!(is_ours, request.own.contains(&tool.name), "{fields} {tool:?}");
            }
        }
        (Err(Refusal::Invalid { param, .. }), Err(path)) => {
            assert_eq!(param.as_deref(), Some(path), "{fields}");
        }
        (read, _) => panic!("{fields}: {read:?}"),
    }
}

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name})
}

fn allowed(mode: &str, names: &[&str]) -> Value {
    let tools: Vec<_> = names.iter().map(|name| function(name)).collect();
    json!({"type": "allowed_tools", "mode": mode, "tools": tools})
}

#[test]
fn choices_are_made_over_all_tools() {
    let (auto, required) = (Choice::Auto, Choice::Required);
    let both = &["echo", "upper"][..];
    check(json!({}), Ok((both, both, auto.clone())));
    check(json!({"tool_choice": "required"}), Ok((both, both, required.clone())));
    check(json!({"tool_choice": "none"}), Ok((&[], &[], Choice::None)));
    let named = Choice::Named("echo".to_owned());
    check(json!({"tool_choice": function("echo")}), Ok((both, both, named)));
    check(json!({"tool_choice": function("rm")}), Err("tool_choice.name"));
    let shell = json!([function("shell")]);
    let all = &["shell", "echo", "upper"][..];
    check(json!({"tools": shell}), Ok((all, both, auto.clone())));
    check(json!({"tools": shell, "tool_choice": "none"}), Ok((&["shell"], &[], Choice::None)));
    for (names, tools, ours) in [
        (&["shell"][..], &["shell"][..], &[][..]),
        (&["echo"], &["echo"], &["echo"]),
        (&["upper", "shell"], &["shell", "upper"], &["upper"]),
    ] {
        let choice = allowed("required", names);
        let fields = json!({"tools": shell, "tool_choice": choice});
        check(fields, Ok((tools, ours, required.clone())));
    }
    let choice = allowed("auto", &["shell", "rm"]);
    check(json!({"tools": shell, "tool_choice": choice}), Err("tool_choice.tools[1].name"));
}

#[test]
fn a_tool_of_the_client_has_precedence() {
    let tools = json!([function("echo"), function("shell")]);
    let all = &["echo", "shell", "upper"][..];
    check(json!({"tools": tools}), Ok((all, &["upper"], Choice::Auto)));
    // Not even then does the daemon's tool replace it.
    let fields = json!({"tools": tools, "tool_choice": allowed("auto", &["shell"])});
    check(fields, Ok((&["shell"], &[], Choice::Auto)));
    let later = json!([{"type": "additional_tools", "tools": [function("echo")]},
        {"role": "user", "content": "hi"}]);
    check(json!({"input": later}), Ok((&["echo", "upper"], &["upper"], Choice::Auto)));
}
