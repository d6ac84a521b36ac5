//! The protocol as JSON Schemas and TypeScript, generated from the types that the server reads and writes (pure).
//!
//! Files have the names of the reference's, so that tools for its schemas can read ours. What a client sends is described
//! as the server reads it: a field with a default is optional. What a client gets is described as the server writes it: a
//! field that is always present is required, even if it is null.

mod typescript;

use std::collections::{BTreeMap, BTreeSet};

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::dynamic_tool;
use crate::method::{METHODS, NO_PARAMS, Stability};
use crate::notification::Notification;
use crate::question::{
    self, CommandAnswer, CommandQuestion, PatchAnswer, PatchQuestion, ToolAnswer, ToolQuestion,
    UserInputAnswer, UserInputQuestion,
};
use crate::request::experimental_fields;

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A request to clients: its method, its parameters and its answer.
struct ServerRequest {
    method: &'static str,
    params: (&'static str, SchemaOf),
    answer: (&'static str, SchemaOf),
}

const SERVER_REQUESTS: [ServerRequest; 5] = [
    ServerRequest {
        method: question::COMMAND,
        params: ("CommandExecutionRequestApprovalParams", CommandQuestion::json_schema),
        answer: ("CommandExecutionRequestApprovalResponse", CommandAnswer::json_schema),
    },
    ServerRequest {
        method: question::PATCH,
        params: ("FileChangeRequestApprovalParams", PatchQuestion::json_schema),
        answer: ("FileChangeRequestApprovalResponse", PatchAnswer::json_schema),
    },
    ServerRequest {
        method: dynamic_tool::METHOD,
        params: ("DynamicToolCallParams", dynamic_tool::Asked::json_schema),
        answer: ("DynamicToolCallResponse", dynamic_tool::Reply::json_schema),
    },
    ServerRequest {
        method: question::USER_INPUT,
        params: ("ToolRequestUserInputParams", UserInputQuestion::json_schema),
        answer: ("ToolRequestUserInputResponse", UserInputAnswer::json_schema),
    },
    ServerRequest {
        method: question::TOOL,
        params: ("McpServerElicitationRequestParams", ToolQuestion::json_schema),
        answer: ("McpServerElicitationRequestResponse", ToolAnswer::json_schema),
    },
];

/// Marks a field that only clients of the experimental API get.
const EXPERIMENTAL: &str = "x-experimental";

/// Returns the schemas of the protocol, by the paths of their files.
pub fn json_schemas(experimental: bool) -> BTreeMap<String, Value> {
    let mut files = BTreeMap::new();
    let mut add = |folder: &str, name: &str, pieces: &Pieces| {
        files.insert(format!("{folder}{name}.json"), pieces.stand_alone(name));
    };
    for whole in ["ClientRequest", "ServerNotification", "ServerRequest"] {
        let pieces =
            if whole == "ClientRequest" { read(experimental) } else { written(experimental) };
        add("", whole, &pieces);
    }
    let (read, written) = (read(experimental), written(experimental));
    for method in METHODS.iter().filter(|it| experimental || it.stability == Stability::Stable) {
        // The reference has a folder for what came with its second version; some are older.
        let folder = match method.name {
            "initialize" => "v1/",
            name if name.starts_with("fuzzyFileSearch") => "",
            _ => "v2/",
        };
        if method.params.name != NO_PARAMS {
            add(folder, method.params.name, &read);
        }
        add(folder, method.result.name, &written);
    }
    for request in &SERVER_REQUESTS {
        add("", request.params.0, &written);
        add("", request.answer.0, &read);
    }
    files
}

/// Returns the protocol as a module of TypeScript types.
pub fn typescript(experimental: bool) -> String {
    let (read, written) = (read(experimental).0, written(experimental).0);
    typescript::module(&merged(read, written))
}

/// Merges the types that are read and the types that are written into one namespace. If a name means different things, the
/// type that is read is renamed.
fn merged(read: Map<String, Value>, written: Map<String, Value>) -> Map<String, Value> {
    let mut different: BTreeSet<String> = BTreeSet::new();
    loop {
        let more: Vec<String> = read
            .iter()
            .filter(|(name, _)| !different.contains(*name) && written.contains_key(*name))
            .filter(|(name, schema)| {
                written.get(*name) != Some(schema)
                    || references(schema).iter().any(|other| different.contains(other))
            })
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            break;
        }
        different.extend(more);
    }
    let mut all = written;
    for (name, mut schema) in read {
        for_each_reference(&mut schema, &mut |other| {
            if different.contains(other) {
                other.push_str(READ_SUFFIX);
            }
        });
        let name = if different.contains(&name) { name + READ_SUFFIX } else { name };
        all.insert(name, schema);
    }
    all
}

/// Suffix for a type that is read, if the written type of the same name differs.
const READ_SUFFIX: &str = "Input";

/// Schemas by name, which may refer to each other.
struct Pieces(Map<String, Value>);

impl Pieces {
    /// Generates schemas in one namespace.
    fn generate(
        contract: Contract,
        experimental: bool,
        fill: impl FnOnce(&mut SchemaGenerator) -> Map<String, Value>,
    ) -> Self {
        let mut settings = SchemaSettings::draft07();
        settings.contract = contract;
        let mut generator = settings.into_generator();
        let mut pieces = fill(&mut generator);
        for (_, schema) in &mut pieces {
            let mut of_library = Schema::try_from(schema.take()).unwrap_or_default();
            generator.transforms_mut().for_each(|it| it.transform(&mut of_library));
            *schema = of_library.to_value();
        }
        pieces.extend(generator.take_definitions(true));
        pieces.values_mut().for_each(|schema| settle(schema, experimental));
        Self(pieces)
    }

    /// Returns one schema together with those that it refers to.
    fn stand_alone(&self, name: &str) -> Value {
        let found = self.0.get(name).cloned().unwrap_or_default();
        let mut needed = BTreeMap::new();
        let mut open: Vec<String> = references(&found).into_iter().collect();
        while let Some(next) = open.pop() {
            if let Some(schema) = self.0.get(&next)
                && !needed.contains_key(&next)
            {
                open.extend(references(schema));
                needed.insert(next, schema.clone());
            }
        }
        let mut file = json!({"$schema": "http://json-schema.org/draft-07/schema#", "title": name});
        if let (Value::Object(file), Value::Object(fields)) = (&mut file, found) {
            file.extend(fields);
            if !needed.is_empty() {
                file.insert("definitions".to_owned(), json!(needed));
            }
        }
        file
    }
}

/// What clients send: requests, and answers to the server's requests.
fn read(experimental: bool) -> Pieces {
    Pieces::generate(Contract::Deserialize, experimental, |generator| {
        let mut pieces = Map::new();
        let mut requests = Vec::new();
        for method in METHODS.iter().filter(|it| experimental || it.stability == Stability::Stable)
        {
            let name = method.params.name;
            if name != NO_PARAMS {
                let mut schema = (method.params.schema)(generator).to_value();
                for field in experimental_fields(method.name) {
                    if let Some(field) = schema.pointer_mut(&format!("/properties/{field}")) {
                        field[EXPERIMENTAL] = json!(true);
                    }
                }
                pieces.insert(name.to_owned(), schema);
            }
            requests.push(request(method.name, name));
        }
        for request in &SERVER_REQUESTS {
            let (name, schema) = request.answer;
            pieces.insert(name.to_owned(), schema(generator).to_value());
        }
        add_request(&mut pieces, "ClientRequest", requests);
        pieces
    })
}

/// What clients get: results, notifications and the server's requests.
fn written(experimental: bool) -> Pieces {
    Pieces::generate(Contract::Serialize, experimental, |generator| {
        let mut pieces = Map::new();
        for method in METHODS.iter().filter(|it| experimental || it.stability == Stability::Stable)
        {
            let schema = (method.result.schema)(generator).to_value();
            // A result of which there is never one is refused by all schemas.
            let schema = if schema == json!(false) { json!({"not": {}}) } else { schema };
            pieces.insert(method.result.name.to_owned(), schema);
        }
        let mut requests = Vec::new();
        for asked in &SERVER_REQUESTS {
            let (name, schema) = asked.params;
            pieces.insert(name.to_owned(), schema(generator).to_value());
            requests.push(request(asked.method, name));
        }
        add_request(&mut pieces, "ServerRequest", requests);
        let notification = Notification::json_schema(generator).to_value();
        pieces.insert("ServerNotification".to_owned(), notification);
        pieces
    })
}

fn add_request(pieces: &mut Map<String, Value>, name: &str, requests: Vec<Value>) {
    pieces.insert(name.to_owned(), json!({"oneOf": requests}));
    let id = json!({"anyOf": [{"type": "string"}, {"type": "integer", "format": "int64"}]});
    pieces.insert("RequestId".to_owned(), id);
}

fn request(method: &str, params: &str) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "id": {"$ref": "#/definitions/RequestId"},
            "method": {"type": "string", "enum": [method]},
            "params": {"$ref": format!("#/definitions/{params}")},
        },
        "required": ["id", "method", "params"],
    });
    if params == NO_PARAMS {
        schema["properties"]["params"] = json!({"type": "null"});
        schema["required"] = json!(["id", "method"]);
    }
    schema
}

/// Removes the experimental fields from a schema, or only their marks.
fn settle(schema: &mut Value, experimental: bool) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                let marked = properties.iter().filter(|(_, it)| it.get(EXPERIMENTAL).is_some());
                let marked: Vec<String> = marked.map(|(name, _)| name.clone()).collect();
                for name in &marked {
                    match properties.get_mut(name) {
                        Some(Value::Object(field)) if experimental => {
                            field.remove(EXPERIMENTAL);
                        }
                        _ => drop(properties.remove(name)),
                    }
                }
                if let Some(Value::Array(required)) =
                    fields.get_mut("required").filter(|_| !experimental)
                {
                    required.retain(|it| !marked.iter().any(|name| it == name.as_str()));
                }
            }
            fields.values_mut().for_each(|it| settle(it, experimental));
        }
        Value::Array(items) => items.iter_mut().for_each(|it| settle(it, experimental)),
        _ => {}
    }
}

/// Returns the names that a schema refers to.
fn references(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for_each_reference(&mut schema.clone(), &mut |name| {
        found.insert(name.clone());
    });
    found
}

fn for_each_reference(schema: &mut Value, change: &mut impl FnMut(&mut String)) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get_mut("$ref")
                && let Some(name) = reference.strip_prefix(DEFINITIONS)
            {
                let mut name = name.to_owned();
                change(&mut name);
                *reference = format!("{DEFINITIONS}{name}");
            }
            fields.values_mut().for_each(|it| for_each_reference(it, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|it| for_each_reference(it, change)),
        _ => {}
    }
}

const DEFINITIONS: &str = "#/definitions/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experimental_things_are_left_out() {
        let (stable, all) = (json_schemas(false), json_schemas(true));
        assert!(stable.keys().all(|path| all.contains_key(path)));
        assert!(!stable.contains_key("v2/ThreadSearchParams.json"));
        assert!(all.contains_key("v2/ThreadSearchParams.json"));
        let has = |files: &BTreeMap<String, Value>, field: &str| {
            !files["v2/ThreadStartParams.json"]["properties"][field].is_null()
        };
        assert!(
            has(&stable, "model") && !has(&stable, "dynamicTools") && has(&all, "dynamicTools")
        );
        for files in [&stable, &all] {
            assert!(!json!(files).to_string().contains(EXPERIMENTAL));
        }
    }

    #[test]
    fn all_are_schemas_with_all_that_they_refer_to() {
        for (path, schema) in json_schemas(true) {
            let valid = jsonschema::validator_for(&schema);
            assert!(valid.is_ok(), "{path}: {:?}", valid.err());
        }
    }

    #[test]
    fn what_is_read_differently_has_another_name() {
        let read = json!({
            "A": {"type": "string"},
            "B": {"$ref": "#/definitions/A"},
            "C": {"type": "null"},
            "P": {"items": {"$ref": "#/definitions/B"}},
        });
        let written = json!({
            "A": {"type": "integer"}, "B": {"$ref": "#/definitions/A"}, "C": {"type": "null"},
        });
        let (Value::Object(read), Value::Object(written)) = (read, written) else { unreachable!() };
        let want = json!({
            "A": {"type": "integer"},
            "B": {"$ref": "#/definitions/A"},
            "C": {"type": "null"},
            "AInput": {"type": "string"},
            "BInput": {"$ref": "#/definitions/AInput"},
            "P": {"items": {"$ref": "#/definitions/BInput"}},
        });
        assert_eq!(Value::Object(merged(read, written)), want);
    }
}
