//! Tool manifests: files that describe tools that are commands, like the daemon's settings.
//!
//! A manifest is one tool, a list of tools, or a `config.toml`, of which only `[[daemon.tools]]` is read.

use serde_json::Value as Json;

use crate::daemon::SchemaSetting;
use crate::error::ConfigError;
use crate::position::Place;
use crate::schema::SchemaError;
use crate::section::{Field, Notes, Read};
use crate::tool::{ToolProblem, check_tool_description, check_tool_name, check_tool_parameters};
use crate::tree::{Entry, Node, Origin, Source, Table, Value};
use crate::unknown::nearest_name;
use crate::{json_tree, tree};

/// Most tools in one manifest.
pub const TOOLS_MAX: usize = 256;

/// The format of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestFormat {
    Json,
    Toml,
}

/// A tool that is a command.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolManifest {
    /// Name by which the model calls the tool.
    pub name: String,
    /// Description of the tool for the model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Json,
    /// The program and its arguments. It reads the arguments of a call as JSON from stdin.
    pub command: Vec<String>,
    /// Position of the tool in the file.
    pub place: Place,
}

impl ToolManifest {
    /// Reads the tools of a file, in their order. The error is the first mistake.
    pub fn parse(file: &str, text: &str, format: ManifestFormat) -> Result<Vec<Self>, ConfigError> {
        let sources = [Source { name: file, text }];
        let root = match format {
            ManifestFormat::Json => json_tree::parse(&sources, 0)?,
            ManifestFormat::Toml => {
                let table = tree::parse(&sources, 0)?;
                Node { origin: Origin::new(0, 0..0), value: Value::Table(table) }
            }
        };
        let (path, nodes) = tools(&sources, &root)?;
        let numbered = nodes.iter().enumerate().map(|(number, node)| {
            let path = path.as_ref().map(|path| {
                let mut path = path.clone();
                path.push(number.to_string());
                path
            });
            Field { sources: &sources, path: path.unwrap_or_default(), node }
        });
        let fields: Vec<Field<'_>> = numbered.collect();
        let mut tools: Vec<Self> = Vec::new();
        for field in &fields {
            let tool = read(field)?;
            if let Some(first) = tools.iter().find(|it| it.name == tool.name) {
                let problem = format!("is the name of another tool ({})", first.place);
                return Err(member(field, "name").bad_value(&problem, "Rename one of them."));
            }
            if tools.len() == TOOLS_MAX {
                let problem = format!("is one tool too many: {TOOLS_MAX} is the limit");
                return Err(field.bad_value(&problem, "Write the rest into another file."));
            }
            tools.push(tool);
        }
        Ok(tools)
    }
}

/// Finds the tools of a document. Also returns the path of the list, or none if the document is one tool.
fn tools<'a>(
    sources: &'a [Source<'a>],
    root: &'a Node,
) -> Result<(Option<Vec<String>>, &'a [Node]), ConfigError> {
    let whole = |path: &[&str], node: &'a Node| {
        let path: Vec<_> = path.iter().map(|part| (*part).to_owned()).collect();
        match &node.value {
            Value::Array(items) => Ok((Some(path), items.as_slice())),
            _ => Err(Field { sources, path, node }.wrong_type("a list", LIST)),
        }
    };
    match &root.value {
        Value::Array(items) => Ok((Some(Vec::new()), items)),
        Value::Table(table) => match (table.get("tools"), daemon_tools(table)) {
            (Some(Entry { node, .. }), _) if !is_tool(table) => whole(&["tools"], node),
            (_, Some(node)) if !is_tool(table) => whole(&["daemon", "tools"], node),
            _ => Ok((None, std::slice::from_ref(root))),
        },
        _ => Err(Field { sources, path: Vec::new(), node: root }.wrong_type("a table", LIST)),
    }
}

/// Returns whether a document is one tool, not a list of tools.
fn is_tool(table: &Table) -> bool {
    table.contains_key("name") || table.contains_key("command")
}

/// Returns the tools of a `config.toml`.
fn daemon_tools(table: &Table) -> Option<&Node> {
    match &table.get("daemon")?.node.value {
        Value::Table(daemon) => daemon.get("tools").map(|entry| &entry.node),
        _ => None,
    }
}

fn read(field: &Field<'_>) -> Result<ToolManifest, ConfigError> {
    let Value::Table(table) = &field.node.value else {
        return Err(
            field.wrong_type("a table", "Describe a tool: name, description, schema, command.")
        );
    };
    for (key, entry) in table {
        if !KEYS.contains(&key.as_str()) {
            let node = Node { origin: entry.key.clone(), value: Value::Null };
            let unknown = Field { path: path(field, key), sources: field.sources, node: &node };
            let help = match nearest_name(key, KEYS.iter().copied()) {
                Some(known) => format!("Did you mean `{known}`?"),
                None => format!("A tool has {}.", KEYS[..4].join(", ")),
            };
            return Err(unknown.bad_value("is not known", &help));
        }
    }
    let schema = match (table.get("schema"), table.get("parameters")) {
        (Some(_), Some(_)) => {
            let problem = "is there beside `schema`, which is the same";
            return Err(member(field, "parameters").bad_value(problem, "Remove one of them."));
        }
        (None, Some(_)) => "parameters",
        (_, None) => "schema",
    };
    let name: String = required(field, "name", "Add name = \"…\", which the model calls it by.")?;
    let description: String = required(
        field,
        "description",
        "Add description = \"…\": what it does and when to call it.",
    )?;
    let command: Vec<String> =
        required(field, "command", "Add command = [\"program\", \"argument\"].")?;
    let SchemaSetting(parameters) = required(field, schema, SCHEMA)?;

    check_tool_name(&name).map_err(|problem| refused(field, "name", &problem))?;
    check_tool_description(&description)
        .map_err(|problem| refused(field, "description", &problem))?;
    if command.first().is_none_or(String::is_empty) {
        let help = "Write command = [\"program\", \"argument\"].";
        return Err(member(field, "command").bad_value("names no program", help));
    }
    if command.iter().any(|word| word.contains('\0')) {
        let help = "No program can get one: remove it.";
        return Err(member(field, "command").bad_value("has a NUL character", help));
    }
    if let Err(problem) = check_tool_parameters(&parameters) {
        return Err(refused(field, schema, &problem));
    }
    let place = field.node.origin.place(field.sources);
    Ok(ToolManifest { name, description, schema: parameters, command, place })
}

/// Keys of a tool; hosted APIs call the schema `parameters`.
const KEYS: [&str; 5] = ["name", "description", "schema", "command", "parameters"];
const SCHEMA: &str = "Add the schema of its arguments, such as schema = '{\"type\": \"object\", \"properties\": {}}'.";
const LIST: &str = "Write one tool, or a list of them under `tools`.";

fn required<T: Read>(field: &Field<'_>, key: &str, help: &str) -> Result<T, ConfigError> {
    match entry(field, key) {
        Some(_) => T::read(&member(field, key), &mut Notes::default()),
        None => Err(Field { path: path(field, key), sources: field.sources, node: field.node }
            .bad_value("is missing", help)),
    }
}

/// Returns a member of a tool, or the tool itself if it lacks the member.
fn member<'a>(field: &Field<'a>, key: &str) -> Field<'a> {
    let node = entry(field, key).map_or(field.node, |entry| &entry.node);
    Field { path: path(field, key), sources: field.sources, node }
}

fn entry<'a>(field: &Field<'a>, key: &str) -> Option<&'a Entry> {
    match &field.node.value {
        Value::Table(table) => table.get(key),
        _ => None,
    }
}

fn path(field: &Field<'_>, key: &str) -> Vec<String> {
    let mut path = field.path.clone();
    path.push(key.to_owned());
    path
}

/// Reports a problem at the value that has it; for a problem in a schema, at the value in the schema.
fn refused(field: &Field<'_>, key: &str, problem: &ToolProblem) -> ConfigError {
    let mut member = member(field, key);
    if let ToolProblem::Schema(SchemaError::Form { place, .. } | SchemaError::Keyword { place, .. }) =
        problem
        && place.starts_with('/')
    {
        member.path.extend(place.split('/').skip(1).map(str::to_owned));
        member.node = json_tree::at_pointer(member.node, place);
    }
    member.bad_value(&problem.to_string(), "Correct it and try again.")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str =
        r#"{"name":"a","description":"b","schema":{"type":"object"},"command":["c"]}"#;

    /// Compares the result of reading a file: names, or `LINE:COLUMN FIELD` and a part of the message.
    #[track_caller]
    fn check(format: ManifestFormat, text: &str, want: Result<&[&str], (&str, &str)>) {
        match (ToolManifest::parse("f", text, format), want) {
            (Ok(tools), Ok(names)) => {
                let found: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
                assert_eq!(found, names);
            }
            (Err(error), Err((at, says))) => {
                let place = error.place().position;
                let key = error.key().unwrap_or("-");
                let found = format!("{}:{} {key}", place.line, place.column);
                assert_eq!(found, at, "{error}");
                assert!(error.to_string().contains(says), "{error}");
            }
            (got, want) => panic!("{got:?}, but {want:?}"),
        }
    }

    #[test]
    fn json() {
        let check = |text: &str, want| check(ManifestFormat::Json, text, want);
        check(GOOD, Ok(&["a"]));
        check(&format!("[{GOOD}, {}]", GOOD.replace("\"a\"", "\"z\"")), Ok(&["a", "z"]));
        check(&format!("{{\"tools\": [{GOOD}]}}"), Ok(&["a"]));
        check("[]", Ok(&[]));
        check("7", Err(("1:1 ", "must be a table")));
        check("{\"tools\": 7}", Err(("1:11 tools", "must be a list")));
        check("{", Err(("1:1 -", "not valid JSON")));
        check("{}", Err(("1:1 name", "is missing")));
        check(&format!("[{GOOD},\n {GOOD}]"), Err(("2:10 1.name", "another tool (f:1:2)")));
        check(
            &GOOD.replace("description", "descripton"),
            Err(("1:13 descripton", "`description`")),
        );
        check(&GOOD.replace("\"a\"", "\"a b\""), Err(("1:9 name", "letters")));
        check(&GOOD.replace("\"b\"", "\" \""), Err(("1:27 description", "is empty")));
        check(&GOOD.replace("\"b\"", "null"), Err(("1:27 description", "but this is null")));
        check(&GOOD.replace("[\"c\"]", "[]"), Err(("1:68 command", "names no program")));
        check(&GOOD.replace("\"c\"", "7"), Err(("1:69 command.0", "must be a string")));
        check(&GOOD.replace("\"c\"", "\"\\u0000\""), Err(("1:68 command", "NUL")));
        check(&GOOD.replace("\"object\"", "\"array\""), Err(("1:40 schema", "of an object")));
        let bad = r#"{"type":"object","properties":{"x":{"type":"text"}}}"#;
        let bad = GOOD.replace(r#"{"type":"object"}"#, bad);
        check(&bad, Err(("1:83 schema.properties.x.type", "no usable schema")));
        let both = GOOD.replace("\"command\"", "\"parameters\":{},\"command\"");
        check(&both, Err(("1:71 parameters", "beside `schema`")));
        check(&GOOD.replace("schema", "parameters"), Ok(&["a"]));
    }

    #[test]
    fn toml() {
        let check = |text: &str, want| check(ManifestFormat::Toml, text, want);
        let one = "name = 'a'\ndescription = 'b'\ncommand = ['c']\n";
        check(&format!("{one}schema = '{{\"type\": \"object\"}}'"), Ok(&["a"]));
        check(&format!("{one}schema = {{ type = 'object' }}"), Ok(&["a"]));
        check(&format!("{one}[schema]\ntype = 'object'"), Ok(&["a"]));
        check(&format!("{one}schema = '{{'"), Err(("4:10 schema", "is not JSON")));
        check(&format!("{one}schema = {{ type = 1979-05-27 }}"), Err(("4:10 schema", "a date")));
        check(one, Err(("1:1 schema", "is missing")));
        let tool = format!("{one}schema = '{{\"type\": \"object\"}}'\n");
        check(&format!("[[tools]]\n{tool}"), Ok(&["a"]));
        check(&format!("model = 'm'\n[[daemon.tools]]\n{tool}"), Ok(&["a"]));
        check(
            &format!("[[daemon.tools]]\n{tool}x = 1"),
            Err(("6:1 daemon.tools.0.x", "not known")),
        );
        check("name = ", Err(("1:8 -", "not valid TOML")));
    }

    #[test]
    fn schemas_keep_the_order_of_their_keys() {
        let schema = r#"{"type":"object","properties":{"z":{"default":null},"a":{"maximum":1.5}}}"#;
        let json = GOOD.replace(r#"{"type":"object"}"#, schema);
        let tools = ToolManifest::parse("f", &json, ManifestFormat::Json).unwrap();
        assert_eq!(tools[0].schema.to_string(), schema);
        let toml = "name='a'\ndescription='b'\ncommand=['c']\n[schema]\ntype='object'\n\
                    [schema.properties.z]\nmaximum=1_0.5\n[schema.properties.a]\n";
        let tools = ToolManifest::parse("f", toml, ManifestFormat::Toml).unwrap();
        let want = r#"{"type":"object","properties":{"z":{"maximum":10.5},"a":{}}}"#;
        assert_eq!(tools[0].schema.to_string(), want);
    }

    #[test]
    fn many_tools() {
        let list = |count: usize| {
            let tools: Vec<_> =
                (0..count).map(|n| GOOD.replace("\"a\"", &format!("\"t{n}\""))).collect();
            format!("[{}]", tools.join(","))
        };
        let parse = |count| ToolManifest::parse("f", &list(count), ManifestFormat::Json);
        assert_eq!(parse(TOOLS_MAX).unwrap().len(), TOOLS_MAX);
        assert!(parse(TOOLS_MAX + 1).unwrap_err().to_string().contains("too many"));
    }

    proptest! {
        /// A manifest with any part cut out is read, or refused with a position in it.
        #[test]
        fn torn_manifests(from in 0..GOOD.len(), length in 0..30_usize) {
            let mut text = GOOD.to_owned();
            let to = (from + length).min(text.len());
            text.replace_range(from..to, "");
            for format in [ManifestFormat::Json, ManifestFormat::Toml] {
                if let Err(error) = ToolManifest::parse("f", &text, format) {
                    prop_assert!(error.place().position.line == 1);
                }
            }
        }
    }
}
