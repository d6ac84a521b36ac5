//! The command that a shell call of the model runs.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::item::join;

pub fn of_arguments(arguments: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Call<'a> {
        #[serde(default, borrow, alias = "command")]
        cmd: Option<&'a RawValue>,
    }
    let json = serde_json::from_str::<Call<'_>>(arguments).ok()?.cmd?.get();
    match serde_json::from_str::<Vec<String>>(json) {
        Ok(argv) => Some(join(&argv)),
        Err(_) => serde_json::from_str(json).ok(),
    }
}

/// Returns the command of the item kind that older models used for shell calls.
pub fn of_local_shell_call(item: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow)]
        action: &'a RawValue,
    }
    let item = serde_json::from_str::<Item<'_>>(item).ok()?;
    (item.kind == "local_shell_call").then(|| of_arguments(item.action.get()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        for (arguments, want) in [
            (r#"{"cmd":"ls -l"}"#, Some("ls -l")),
            (r#"{"command":["ls","a b"]}"#, Some("ls 'a b'")),
            (r#"{"command":"ls","timeout_ms":1}"#, Some("ls")),
            (r#"{"cmd":7}"#, None),
            (r#"{"path":"/"}"#, None),
            ("ls", None),
        ] {
            assert_eq!(of_arguments(arguments).as_deref(), want, "{arguments}");
        }
        let item = r#"{"type":"local_shell_call","action":{"type":"exec","command":["ls"]}}"#;
        assert_eq!(of_local_shell_call(item).as_deref(), Some("ls"));
        assert_eq!(of_local_shell_call(&item.replace("local_", "other_")), None);
    }
}
