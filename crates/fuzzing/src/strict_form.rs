//! Any schema: it has a strict form, or what it has not is named; whatever conforms to the schema that is checked
//! conforms to the one that is sent and, unless null was allowed besides, to the schema itself.

use config::{Optional, Schema, UNSUPPORTED_MAX, strict_form};
use serde_json::Value;

/// Panics if the property does not hold. The answer follows the schema after a zero byte.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (text, answer) = text.split_once('\0').unwrap_or((text, "{}"));
    let Ok(whole) = Schema::parse(text) else { return };
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    for optional in [Optional::Nullable, Optional::Required] {
        let form = match strict_form(&value, optional) {
            Ok(form) => form,
            Err(problems) => {
                assert!((1..=UNSUPPORTED_MAX).contains(&problems.list.len()));
                assert!(!problems.to_string().is_empty());
                continue;
            }
        };
        assert_eq!(form.sent["type"], "object");
        assert_eq!(form.sent["additionalProperties"], false);
        let (sent, checked) = (form.sent.to_string(), form.checked.to_string());
        let (Ok(sent), Ok(checked)) = (Schema::parse(&sent), Schema::parse(&checked)) else {
            // Put together, the parts of a schema may be too many.
            continue;
        };
        // An older version of the language has other keywords.
        let other_language = text.contains("$schema");
        if !other_language && checked.check(Some(answer)).is_ok() {
            assert_eq!(sent.check(Some(answer)), Ok(()), "{}", form.sent);
            // An object that is closed conforms to fewer of several schemas.
            let fewer = ["oneOf", "not", "contains"].iter().any(|it| text.contains(it));
            if optional == Optional::Required && !fewer {
                assert_eq!(whole.check(Some(answer)), Ok(()), "{}", form.checked);
            }
        }
    }
}
