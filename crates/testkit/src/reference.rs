//! What the reference publishes about its wire format: a JSON schema of everything that its app-server tells clients.
//!
//! Tests compare our kinds with it, so that a new kind is noticed when the schema is replaced with a newer one.

use serde_json::{Map, Value, json};

/// The schema of server notifications, as the reference prints it.
pub const SERVER_NOTIFICATION: &str = include_str!("../data/ServerNotification.json");

/// A schema of notifications.
#[derive(Clone, Debug)]
pub struct NotificationSchema {
    root: Value,
}

/// How much of an instance is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// What is required, with nulls where they are allowed.
    Least,
    /// Every property, with something in it.
    Most,
}

impl NotificationSchema {
    /// Reads a schema; none if it is not one of notifications.
    pub fn parse(text: &str) -> Option<Self> {
        let root: Value = serde_json::from_str(text).ok()?;
        root["oneOf"].is_array().then_some(Self { root })
    }

    /// Returns the copy that is kept here.
    #[expect(clippy::missing_panics_doc, reason = "the copy is one")]
    pub fn kept() -> Self {
        Self::parse(SERVER_NOTIFICATION).expect("the copy is a schema of notifications")
    }

    /// Returns the schema itself.
    pub fn as_json(&self) -> &Value {
        &self.root
    }

    /// Returns the methods, sorted.
    pub fn methods(&self) -> Vec<String> {
        let named =
            |kind: &Value| kind["properties"]["method"]["enum"][0].as_str().map(str::to_owned);
        sorted(variants(&self.root).iter().filter_map(named))
    }

    /// Returns the names of the kinds of `definition`, sorted: the values of their `type`, of enums, or the only property.
    pub fn kinds(&self, definition: &str) -> Vec<String> {
        let definition = &self.root["definitions"][definition];
        let own = std::slice::from_ref(definition);
        let all = variants(definition).iter().chain(own).flat_map(|kind| {
            let tag = kind["properties"]["type"]["enum"].as_array();
            let values = kind["enum"].as_array();
            let only = kind["properties"].as_object().filter(|it| it.len() == 1 && tag.is_none());
            let names = tag.or(values).into_iter().flatten().filter_map(Value::as_str);
            let only = only.into_iter().flat_map(Map::keys).map(String::as_str);
            names.chain(only).map(str::to_owned).collect::<Vec<_>>()
        });
        sorted(all)
    }

    /// Returns an instance of the kind of `definition` whose `type` is `kind`; null if there is none.
    pub fn instance(&self, definition: &str, kind: &str, fill: Fill) -> Value {
        let definition = &self.root["definitions"][definition];
        let of_kind = |it: &&Value| it["properties"]["type"]["enum"][0] == kind;
        let found = variants(definition).iter().find(of_kind);
        found.map_or(Value::Null, |schema| self.fill(schema, fill, 0))
    }

    fn fill(&self, schema: &Value, fill: Fill, depth: usize) -> Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|it| it.strip_prefix("#/definitions/"))
        {
            return self.fill(&self.root["definitions"][name], fill, depth + 1);
        }
        if let Some(value) = schema["enum"].as_array().and_then(|values| values.first()) {
            return value.clone();
        }
        if let Some(all) = schema["allOf"].as_array() {
            return all.first().map_or(Value::Null, |schema| self.fill(schema, fill, depth));
        }
        let alternatives = variants(schema);
        if !alternatives.is_empty() && schema["properties"].is_object() {
            // An object that also has to be one of several.
            let mut object = self.object(schema, fill, depth);
            if let (Some(members), Value::Object(more)) =
                (object.as_object_mut(), self.fill(&alternatives[0], fill, depth))
            {
                members.extend(more);
            }
            return object;
        }
        if !alternatives.is_empty() {
            let is_null = |it: &&Value| it["type"] == "null";
            let least = fill == Fill::Least && alternatives.iter().any(|it| is_null(&it));
            let chosen = alternatives.iter().find(|it| !is_null(it)).filter(|_| !least);
            return chosen.map_or(Value::Null, |schema| self.fill(schema, fill, depth));
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            // Anything at all.
            _ => return json!({"any": 1}),
        };
        if fill == Fill::Least && types.contains(&"null") {
            return Value::Null;
        }
        match types.first().copied().unwrap_or_default() {
            "string" => json!("text"),
            "integer" | "number" => json!(1),
            "boolean" => json!(true),
            // Types that contain themselves end here.
            "array" if fill == Fill::Most && depth < DEPTH_MAX => {
                json!([self.fill(&schema["items"], fill, depth + 1)])
            }
            "array" => json!([]),
            "object" => self.object(schema, fill, depth),
            _ => Value::Null,
        }
    }

    fn object(&self, schema: &Value, fill: Fill, depth: usize) -> Value {
        let required = |name: &str| {
            schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name))
        };
        let properties = schema["properties"].as_object().into_iter().flatten();
        let wanted = properties
            .filter(|(name, _)| required(name) || (fill == Fill::Most && depth < DEPTH_MAX));
        let members =
            wanted.map(|(name, schema)| (name.clone(), self.fill(schema, fill, depth + 1)));
        Value::Object(members.collect())
    }
}

/// How deep instances are filled in.
const DEPTH_MAX: usize = 12;

fn variants(schema: &Value) -> &[Value] {
    let list = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    list.map(Vec::as_slice).unwrap_or_default()
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.dedup();
    names
}
