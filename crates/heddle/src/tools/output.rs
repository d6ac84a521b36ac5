//! The return values of tools that are made of closures.

use std::fmt::Display;

use protocol::responses::OutputBody;
use serde::Serialize;
use serde_json::Value;
use tools::ToolOutput;

/// A value that a tool made by [`tool_fn`](crate::tools::tool_fn) can return to the model.
pub trait IntoToolOutput {
    /// Converts the value to the output that the model reads.
    fn into_tool_output(self) -> ToolOutput;
}

/// Wraps a value that the model reads as JSON.
///
/// ```
/// use heddle::tools::{IntoToolOutput, Json};
///
/// assert_eq!(Json(vec![1, 2]).into_tool_output().text(), "[1,2]");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_tool_output(self) -> ToolOutput {
        match serde_json::to_string(&self.0) {
            Ok(json) => json.into(),
            Err(error) => {
                ToolOutput::failed(format!("the result cannot be written as JSON: {error}"))
            }
        }
    }
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> ToolOutput {
        self
    }
}

impl IntoToolOutput for OutputBody {
    fn into_tool_output(self) -> ToolOutput {
        self.into()
    }
}

impl IntoToolOutput for String {
    fn into_tool_output(self) -> ToolOutput {
        self.into()
    }
}

impl IntoToolOutput for &str {
    fn into_tool_output(self) -> ToolOutput {
        self.into()
    }
}

impl IntoToolOutput for Value {
    fn into_tool_output(self) -> ToolOutput {
        Json(self).into_tool_output()
    }
}

/// A call without a result has succeeded; the model reads `done`.
impl IntoToolOutput for () {
    fn into_tool_output(self) -> ToolOutput {
        "done".into()
    }
}

/// An error is a failed call, and the model reads its text; types whose `{:#}` includes the causes give those, too.
impl<T: IntoToolOutput, E: Display> IntoToolOutput for Result<T, E> {
    fn into_tool_output(self) -> ToolOutput {
        match self {
            Ok(output) => output.into_tool_output(),
            Err(error) => ToolOutput::failed(format!("{error:#}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(output: impl IntoToolOutput, success: bool, text: &str) {
        let output = output.into_tool_output();
        assert_eq!((output.success, output.text().as_str()), (success, text));
    }

    #[test]
    fn outputs() {
        check("said", true, "said");
        check("said".to_owned(), true, "said");
        check((), true, "done");
        check(json!({"a": 1}), true, r#"{"a":1}"#);
        check(Json(Some(7)), true, "7");
        check(
            Json(BTreeMap::from([([1], 2)])),
            false,
            "the result cannot be written as JSON: key must be a string",
        );
        check(OutputBody::Text("body".to_owned()), true, "body");
        check(ToolOutput::failed("no"), false, "no");
        check(Ok::<_, String>("fine"), true, "fine");
        check(Ok::<_, String>(ToolOutput::failed("no")), false, "no");
        check("7x".parse::<u8>().map(Json), false, "invalid digit found in string");
    }
}
