//! The fields of a call with tagged parameters, collected from its schema, from references and from its
//! parts.

use serde_json::{Value, json};

/// How many references and parts are followed; the reader follows as many.
const DEPTH_MAX: usize = 16;

/// Most schemas that are visited: parts can refer to what contains them.
const STEPS_MAX: usize = 1024;

/// Most combinations of the parts of a schema; the first ones are as good as all.
const FORMS_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) schema: Value,
    pub(super) required: bool,
}

/// Returns the possible lists of fields of a call; at least one, which may be empty.
pub(super) fn forms(schema: &Value) -> Vec<Vec<Field>> {
    let mut forms = fields_of(schema, schema, 0, &mut 0);
    for form in &mut forms {
        // A field that is required but not described may be anything.
        for field in form.iter_mut().filter(|field| field.schema.is_null()) {
            field.schema = json!({});
        }
    }
    forms
}

fn fields_of(schema: &Value, root: &Value, depth: usize, steps: &mut usize) -> Vec<Vec<Field>> {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut own: Vec<Field> = properties
        .map(|(key, schema)| Field { key: key.clone(), schema: schema.clone(), required: false })
        .collect();
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    for key in required.filter_map(Value::as_str) {
        match own.iter_mut().find(|field| field.key == key) {
            Some(field) => field.required = true,
            None => own.push(Field { key: key.to_owned(), schema: Value::Null, required: true }),
        }
    }
    let mut forms = vec![own];
    *steps += 1;
    if depth == DEPTH_MAX || *steps > STEPS_MAX {
        return forms;
    }
    if let Some(target) = reference(schema, root) {
        forms = combine(&forms, &fields_of(target, root, depth + 1, steps));
    }
    for part in list(schema, "allOf") {
        forms = combine(&forms, &fields_of(part, root, depth + 1, steps));
    }
    for key in ["anyOf", "oneOf"] {
        let mut parts = list(schema, key).peekable();
        if parts.peek().is_some() {
            let parts: Vec<_> =
                parts.flat_map(|part| fields_of(part, root, depth + 1, steps)).collect();
            forms = combine(&forms, &parts);
        }
    }
    forms
}

/// Combines every list of fields with every other.
fn combine(left: &[Vec<Field>], right: &[Vec<Field>]) -> Vec<Vec<Field>> {
    let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (left, right)));
    let joined = pairs.take(FORMS_MAX).map(|(left, right)| {
        let mut form = left.clone();
        for field in right {
            match form.iter_mut().find(|known| known.key == field.key) {
                Some(known) => {
                    known.required |= field.required;
                    if known.schema.is_null() {
                        known.schema = field.schema.clone();
                    } else if !field.schema.is_null() && known.schema != field.schema {
                        known.schema = json!({"allOf": [known.schema.clone(), field.schema]});
                    }
                }
                None => form.push(field.clone()),
            }
        }
        form
    });
    joined.collect()
}

/// Returns the strings a text is limited to, if it is.
pub(super) fn allowed_words(schema: &Value, root: &Value) -> Option<Vec<String>> {
    allowed_words_at(schema, root, 0, &mut 0)
}

fn allowed_words_at(
    schema: &Value,
    root: &Value,
    depth: usize,
    steps: &mut usize,
) -> Option<Vec<String>> {
    *steps += 1;
    if depth == DEPTH_MAX || *steps > STEPS_MAX {
        return None;
    }
    let word = |value: &Value| match value {
        Value::String(word) => Some(word.clone()),
        Value::Null => Some("null".to_owned()),
        // The reader would treat it as text.
        _ => None,
    };
    if let Some(value) = schema.get("const") {
        return Some(word(value).into_iter().collect());
    }
    if let Some(list) = schema.get("enum").and_then(Value::as_array) {
        return Some(list.iter().filter_map(word).collect());
    }
    if schema.get("type").and_then(Value::as_str) == Some("null") {
        return Some(vec!["null".to_owned()]);
    }
    let target = reference(schema, root).into_iter().chain(list(schema, "allOf"));
    for part in target {
        if let Some(words) = allowed_words_at(part, root, depth + 1, steps) {
            return Some(words);
        }
    }
    for key in ["anyOf", "oneOf"] {
        let parts: Option<Vec<_>> =
            list(schema, key).map(|part| allowed_words_at(part, root, depth + 1, steps)).collect();
        if let Some(parts) = parts.filter(|parts| !parts.is_empty()) {
            return Some(parts.concat());
        }
    }
    None
}

fn reference<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

fn list<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    schema.get(key).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{allowed_words, forms};

    /// Checks the names of fields; required ones end with `!`.
    #[track_caller]
    fn check(schema: Value, want: &[&[&str]]) {
        let got: Vec<Vec<String>> = forms(&schema)
            .into_iter()
            .map(|form| {
                let name = |field: super::Field| field.key + if field.required { "!" } else { "" };
                form.into_iter().map(name).collect()
            })
            .collect();
        assert_eq!(got, want, "{schema}");
    }

    #[test]
    fn fields_are_found_at_any_place() {
        let object = json!({"properties": {"a": {}, "b": {}}, "required": ["b", "c"]});
        check(object.clone(), &[&["a", "b!", "c!"]]);
        check(json!({"$ref": "#/$defs/o", "$defs": {"o": object}}), &[&["a", "b!", "c!"]]);
        check(json!({"anyOf": [object, {"required": ["d"]}]}), &[&["a", "b!", "c!"], &["d!"]]);
        let all = json!({"properties": {"a": {}}, "allOf": [object, {"required": ["a"]}]});
        check(all, &[&["a!", "b!", "c!"]]);
        check(json!({}), &[&[]]);
        check(json!({"$ref": "#"}), &[&[]]);
        let again = vec![json!({"$ref": "#"}); 9];
        assert_eq!(allowed_words(&json!({ "anyOf": again }), &json!({ "anyOf": again })), None);
        assert_eq!(forms(&json!({ "anyOf": again, "allOf": again })).len(), super::FORMS_MAX);
        let many: Vec<_> = (0..99).map(|key| json!({"required": [key.to_string()]})).collect();
        assert_eq!(forms(&json!({"anyOf": many, "oneOf": many})).len(), super::FORMS_MAX);
    }

    #[test]
    fn words_are_found_at_any_place() {
        let root = json!({"$defs": {"w": {"enum": ["a", 1, null]}}});
        let check = |schema: Value, want: Option<&[&str]>| {
            let got = allowed_words(&schema, &root);
            assert_eq!(
                got.as_deref(),
                want.map(|want| want.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
                    .as_deref(),
                "{schema}"
            );
        };
        check(json!({"const": "x"}), Some(&["x"]));
        check(json!({"$ref": "#/$defs/w"}), Some(&["a", "null"]));
        check(json!({"anyOf": [{"const": "x"}, {"type": "null"}]}), Some(&["x", "null"]));
        check(json!({"allOf": [{"type": "string"}, {"$ref": "#/$defs/w"}]}), Some(&["a", "null"]));
        check(json!({"anyOf": [{"const": "x"}, {"type": "string"}]}), None);
        check(json!({"type": "string"}), None);
    }
}
