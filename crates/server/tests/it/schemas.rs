//! Our schemas say what the reference's say, field by field, but for what `tests/data/differences.txt` lists.
//!
//! A line of that list is `PLACE: DIFFERENCE -- REASON`. Every difference has a line, and a line whose difference is gone
//! fails the test, too. `UPDATE=1` writes the list again: lines that are left keep their reasons, new ones have to get one.
//!
//! `tests/data/reference.json` has the reference's schemas of what we have, without what is not compared. With
//! `HEDDLE_REFERENCE_SCHEMAS=DIR` it is made again from `DIR/stable` and `DIR/experimental`, into which
//! `codex app-server generate-json-schema --out` has written, the second time with `--experimental`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};
use server::schema::json_schemas;

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/reference.json");
const DIFFERENCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/differences.txt");

/// Who writes a value: that decides which differences matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    Client,
    Server,
}

/// Schemas that refer to each other by names.
struct Side(Map<String, Value>);

/// What can be said of a value by its schema.
#[derive(Debug, Default)]
struct Shape {
    /// Names of basic types.
    types: BTreeSet<&'static str>,
    /// The only texts that it can be, if it is one of some.
    texts: Option<BTreeSet<String>>,
    /// Its fields; those of all objects that it can be, unless they have a tag.
    fields: BTreeMap<String, Field>,
    /// The objects that it can be, by their tags.
    tagged: BTreeMap<String, Map<String, Value>>,
    items: Option<Value>,
    /// What the values of a map are.
    values: Option<Value>,
}

#[derive(Debug)]
struct Field {
    schema: Value,
    required: bool,
}

impl Side {
    fn shape(&self, schema: &Value) -> Shape {
        let mut shape = Shape::default();
        self.add(schema, &mut shape, false);
        shape
    }

    fn add(&self, schema: &Value, shape: &mut Shape, alternative: bool) {
        let Value::Object(fields) = schema else {
            if *schema == json!(true) {
                shape.types.insert("anything");
            }
            return;
        };
        let before = shape.types.len();
        if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
            let name = name.rsplit('/').next().unwrap();
            self.add(self.0.get(name).unwrap_or_else(|| panic!("no {name}")), shape, alternative);
        }
        for text in fields
            .get("enum")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .chain(fields.get("const"))
        {
            if let Some(text) = text.as_str() {
                shape.texts.get_or_insert_default().insert(text.to_owned());
            }
            shape.types.insert(if text.is_null() { "null" } else { "string" });
        }
        let types = match fields.get("type") {
            Some(Value::Array(types)) => types.clone(),
            Some(one) => vec![one.clone()],
            None => Vec::new(),
        };
        for name in &types {
            let known = ["null", "boolean", "integer", "number", "string", "array", "object"];
            shape.types.extend(known.into_iter().find(|known| name == known));
        }
        if fields.contains_key("properties") || fields.contains_key("additionalProperties") {
            shape.types.insert("object");
        }
        let tag = fields.get("properties").and_then(|it| tag_of(it.get("type")?));
        match tag {
            Some(tag) => {
                shape.types.insert("object");
                shape.tagged.entry(tag).or_default().extend(fields.clone());
            }
            None => self.add_fields(fields, shape, alternative),
        }
        if let Some(items) = fields.get("items").filter(|it| !it.is_array()) {
            shape.items = Some(items.clone());
        }
        if let Some(values) = fields.get("additionalProperties").filter(|it| it.is_object()) {
            shape.values = Some(values.clone());
        }
        for other in fields.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.add(other, shape, alternative);
        }
        for keyword in ["anyOf", "oneOf"] {
            for other in fields.get(keyword).and_then(Value::as_array).into_iter().flatten() {
                self.add(other, shape, true);
            }
        }
        if shape.types.len() == before && before == 0 && !fields.contains_key("not") {
            shape.types.insert("anything");
        }
    }

    fn add_fields(&self, fields: &Map<String, Value>, shape: &mut Shape, alternative: bool) {
        let required = fields.get("required").and_then(Value::as_array);
        for (name, schema) in
            fields.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            let required = !alternative
                && required.is_some_and(|it| it.iter().any(|other| other == name.as_str()));
            shape.fields.insert(name.clone(), Field { schema: schema.clone(), required });
        }
    }
}

/// Returns the only text that a schema allows.
fn tag_of(schema: &Value) -> Option<String> {
    let only = schema.get("const").or_else(|| match schema.get("enum")?.as_array()?.as_slice() {
        [only] => Some(only),
        _ => None,
    });
    only?.as_str().map(str::to_owned)
}

/// Compares our schemas with the reference's.
struct Comparison {
    ours: [Side; 2],
    theirs: Side,
    /// Pairs of names that were compared.
    seen: BTreeSet<(Writer, String, String)>,
    found: BTreeSet<String>,
    fields: usize,
}

impl Comparison {
    fn side(&self, writer: Writer) -> &Side {
        &self.ours[usize::from(writer == Writer::Server)]
    }

    fn compare(&mut self, writer: Writer, place: &str, ours: &Value, theirs: &Value) {
        let mut place = place.to_owned();
        if let Some(name) = name_of(theirs) {
            // What has a name is compared once, under that name.
            let our_name = name_of(ours).unwrap_or_else(|| place.clone());
            if !self.seen.insert((writer, our_name, name.clone())) {
                return;
            }
            if !place.ends_with("Params") && !place.ends_with("Response") {
                place = if writer == Writer::Client { format!("{name} (read)") } else { name };
            }
        }
        let (ours, theirs) = (self.side(writer).shape(ours), self.theirs.shape(theirs));
        self.compare_types(writer, &place, &ours, &theirs);
        // What is null or anything here has no fields to compare, and one line says so.
        let only = |name| ours.types.len() == 1 && ours.types.contains(name);
        if only("null") || only("anything") {
            return;
        }
        self.compare_fields(writer, &place, &ours.fields, &theirs.fields);
        let tags: BTreeSet<_> = ours.tagged.keys().chain(theirs.tagged.keys()).cloned().collect();
        for tag in tags {
            let place = format!("{place}[{tag}]");
            let shape_of = |side: &Side, fields: Option<&Map<String, Value>>| {
                let mut shape = Shape::default();
                fields.map(|fields| side.add_fields(fields, &mut shape, false)).map(|()| shape)
            };
            let our = shape_of(self.side(writer), ours.tagged.get(&tag));
            match (our, shape_of(&self.theirs, theirs.tagged.get(&tag))) {
                (Some(our), Some(their)) => {
                    self.compare_fields(writer, &place, &our.fields, &their.fields);
                }
                (Some(_), None) => self.note(&place, "only we have it"),
                // The server need not have all that there can be.
                (None, _) if writer == Writer::Client => self.note(&place, "not read"),
                (None, _) => {}
            }
        }
        if let (Some(ours), Some(theirs)) = (&ours.items, &theirs.items) {
            self.compare(writer, &format!("{place}[]"), ours, theirs);
        }
        if let (Some(ours), Some(theirs)) = (&ours.values, &theirs.values) {
            self.compare(writer, &format!("{place}{{}}"), ours, theirs);
        }
    }

    fn compare_types(&mut self, writer: Writer, place: &str, ours: &Shape, theirs: &Shape) {
        let listed =
            |types: &BTreeSet<&str>| types.iter().copied().collect::<Vec<_>>().join(" or ");
        let (our, their) = (&ours.types, &theirs.types);
        let is_any = |types: &BTreeSet<&str>| types.contains("anything");
        let fits = match writer {
            Writer::Client => {
                is_any(our) && is_any(their)
                    || !is_any(our) && their.is_subset(our) && !is_any(their)
            }
            Writer::Server => is_any(their) || !is_any(our) && our.is_subset(their),
        };
        if !fits {
            self.note(place, &format!("{} here, {} there", listed(our), listed(their)));
        } else if writer == Writer::Server
            && our.len() == 1
            && our.contains("null")
            && their.len() > 1
        {
            self.note(place, "always null");
        } else if writer == Writer::Client && our != their {
            self.note(place, &format!("{} here, {} there", listed(our), listed(their)));
        }
        let (Some(ours), Some(theirs)) = (&ours.texts, &theirs.texts) else { return };
        let (fewer, more) = match writer {
            Writer::Client => (ours, theirs),
            Writer::Server => (theirs, ours),
        };
        for text in more.difference(fewer) {
            let what = if writer == Writer::Client { "not read" } else { "only we have it" };
            self.note(&format!("{place}={text}"), what);
        }
    }

    fn compare_fields(
        &mut self,
        writer: Writer,
        place: &str,
        ours: &BTreeMap<String, Field>,
        theirs: &BTreeMap<String, Field>,
    ) {
        for name in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
            let place = format!("{place}.{name}");
            self.fields += 1;
            match (ours.get(name), theirs.get(name)) {
                (Some(_), None) => self.note(&place, "only we have it"),
                (None, Some(_)) if writer == Writer::Client => self.note(&place, "not read"),
                (None, Some(_)) => self.note(&place, "not sent"),
                (Some(our), Some(their)) => {
                    let says = |field: &Field| if field.required { "required" } else { "optional" };
                    // What is always sent may be optional there.
                    let fits =
                        our.required == their.required || writer == Writer::Server && our.required;
                    if !fits {
                        self.note(&place, &format!("{} here, {} there", says(our), says(their)));
                    }
                    self.compare(writer, &place, &our.schema, &their.schema);
                }
                (None, None) => unreachable!(),
            }
        }
    }

    fn note(&mut self, place: &str, what: &str) {
        self.found.insert(format!("{place}: {what}"));
    }
}

/// Returns the name to which a schema refers, alone or as what is there if it is not null.
fn name_of(schema: &Value) -> Option<String> {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return name.rsplit('/').next().map(str::to_owned);
    }
    let parts = schema.get("anyOf").or_else(|| schema.get("allOf"))?.as_array()?;
    let mut names = parts.iter().filter_map(name_of);
    names.next().filter(|_| names.next().is_none())
}

/// Gathers the schemas of files: what has a name is in each of them that refers to it.
fn gathered(files: BTreeMap<String, Value>, is_read: bool) -> Side {
    let mut all = Map::new();
    for (path, mut file) in files {
        let name = path.trim_end_matches(".json").rsplit('/').next().unwrap().to_owned();
        let answer = matches!(
            name.as_str(),
            "CommandExecutionRequestApprovalResponse"
                | "FileChangeRequestApprovalResponse"
                | "DynamicToolCallResponse"
                | "McpServerElicitationRequestResponse"
                | "ToolRequestUserInputResponse"
        );
        let question = matches!(
            name.as_str(),
            "CommandExecutionRequestApprovalParams"
                | "FileChangeRequestApprovalParams"
                | "DynamicToolCallParams"
                | "McpServerElicitationRequestParams"
        );
        let read = (name.ends_with("Params") && !question) || answer || name == "ClientRequest";
        if read != is_read {
            continue;
        }
        if let Some(Value::Object(definitions)) =
            file.as_object_mut().unwrap().remove("definitions")
        {
            for (name, schema) in definitions {
                assert!(
                    all.get(&name).is_none_or(|other| *other == schema),
                    "{name} is two things"
                );
                all.insert(name, schema);
            }
        }
        let fields = file.as_object_mut().unwrap();
        fields.retain(|keyword, _| keyword != "$schema" && keyword != "title");
        all.insert(name, file);
    }
    Side(all)
}

/// Returns the variants of a message by their methods, with their parameters.
fn messages(side: &Side, name: &str) -> BTreeMap<String, Value> {
    let variants = side.0[name]["oneOf"].as_array().unwrap();
    let pair = |it: &Value| {
        let method = tag_of(&it["properties"]["method"]).unwrap();
        (method, it["properties"].get("params").cloned().unwrap_or(json!({"type": "null"})))
    };
    variants.iter().map(pair).collect()
}

fn read_reference() -> (Side, Value) {
    let text = std::fs::read_to_string(REFERENCE).unwrap();
    let Value::Object(mut all) = serde_json::from_str(&text).unwrap() else { panic!() };
    let experimental = all.remove("experimental").unwrap();
    (Side(all), experimental)
}

/// Names of results, where they do not follow from the name of the parameters.
const RESULTS: [(&str, &str); 9] = [
    ("account/logout", "LogoutAccountResponse"),
    ("account/rateLimits/read", "GetAccountRateLimitsResponse"),
    ("account/usage/read", "GetAccountTokenUsageResponse"),
    ("config/batchWrite", "ConfigWriteResponse"),
    ("config/mcpServer/reload", "McpServerRefreshResponse"),
    ("config/value/write", "ConfigWriteResponse"),
    ("configRequirements/read", "ConfigRequirementsReadResponse"),
    ("thread/events", "ThreadEventsResponse"),
    ("skills/config/write", "SkillsConfigWriteResponse"),
];

#[test]
fn every_difference_has_a_reason() {
    if let Ok(directory) = std::env::var("HEDDLE_REFERENCE_SCHEMAS") {
        condense(Path::new(&directory));
    }
    let files = json_schemas(true);
    let ours = [gathered(files.clone(), true), gathered(files, false)];
    let (theirs, _) = read_reference();
    let requests = (messages(&ours[0], "ClientRequest"), messages(&theirs, "ClientRequest"));
    let told = (messages(&ours[1], "ServerNotification"), messages(&theirs, "ServerNotification"));
    let asked = (messages(&ours[1], "ServerRequest"), messages(&theirs, "ServerRequest"));
    let mut comparison =
        Comparison { ours, theirs, seen: BTreeSet::new(), found: BTreeSet::new(), fields: 0 };
    let mut counts = Vec::new();
    for (writer, what, (ours, theirs)) in [
        (Writer::Client, "methods", &requests),
        (Writer::Server, "notifications", &told),
        (Writer::Server, "requests to clients", &asked),
    ] {
        let mut equal = 0;
        for (method, our) in ours {
            let Some(their) = theirs.get(method) else {
                comparison.note(method, "only we have it");
                continue;
            };
            let before = comparison.found.len();
            comparison.compare(writer, &format!("{method} Params"), our, their);
            let result =
                RESULTS.iter().find(|(of, _)| of == method).map(|(_, name)| (*name).to_owned());
            let result = result.or_else(|| Some(name_of(our)?.replace("Params", "Response")));
            if what != "notifications" {
                let name = result.unwrap();
                let reader = if what == "methods" { Writer::Server } else { Writer::Client };
                let our = comparison.side(reader).0[&name].clone();
                if our.get("not").is_some() {
                    comparison.note(&format!("{method} Response"), "always an error");
                } else {
                    let their = comparison.theirs.0[&name].clone();
                    comparison.compare(reader, &format!("{method} Response"), &our, &their);
                }
            }
            equal += usize::from(comparison.found.len() == before);
        }
        counts.push(format!(
            "{what}: {} compared, {equal} without a difference of their own",
            ours.len()
        ));
    }
    counts.push(format!("fields: {} compared", comparison.fields));
    check_reasons(&comparison.found, &counts);
}

const HEAD: [&str; 2] = [
    "What our schemas say otherwise than the reference's, and why. tests/it/schemas.rs compares them.",
    "A place ends in (read) if clients send it as a part of something else.",
];

fn check_reasons(found: &BTreeSet<String>, counts: &[String]) {
    let text = std::fs::read_to_string(DIFFERENCES).unwrap_or_default();
    let mut reasons: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (difference, reason) = line.split_once(" -- ").unwrap_or((line, ""));
        assert!(reasons.insert(difference, reason.trim()).is_none(), "{difference} is there twice");
    }
    if std::env::var_os("UPDATE").is_some() {
        let mut lines: Vec<String> =
            HEAD.iter().map(|line| (*line).to_owned()).chain(counts.iter().cloned()).collect();
        lines.iter_mut().for_each(|line| line.insert_str(0, "# "));
        lines.extend(found.iter().map(|difference| {
            format!("{difference} -- {}", reasons.get(difference.as_str()).unwrap_or(&""))
        }));
        std::fs::write(DIFFERENCES, lines.join("\n") + "\n").unwrap();
        return;
    }
    for count in counts {
        assert!(text.contains(count), "the head of the list is old (UPDATE=1 renews it): {count}");
    }
    let new: Vec<_> = found.iter().filter(|it| !reasons.contains_key(it.as_str())).collect();
    assert!(new.is_empty(), "differences that are not in the list (UPDATE=1 adds them): {new:#?}");
    let gone: Vec<_> = reasons.keys().filter(|it| !found.contains(**it)).collect();
    assert!(gone.is_empty(), "reasons without a difference (UPDATE=1 removes them): {gone:#?}");
    let bare: Vec<_> = reasons.iter().filter(|(_, it)| it.is_empty()).map(|it| it.0).collect();
    assert!(bare.is_empty(), "differences without a reason: {bare:#?}");
}

/// Without `--experimental` there is nothing that the reference has only with it.
#[test]
fn stable_schemas_have_no_experimental_fields() {
    let (_, experimental) = read_reference();
    for (path, schema) in json_schemas(false) {
        let name = path.trim_end_matches(".json").rsplit('/').next().unwrap();
        let all = schema["definitions"].as_object().into_iter().flatten();
        let all = all.map(|(name, schema)| (name.as_str(), schema)).chain([(name, &schema)]);
        for (name, schema) in all {
            for field in experimental[name].as_array().into_iter().flatten() {
                let shown = &schema["properties"][field.as_str().unwrap()];
                assert!(shown.is_null(), "{path}: {name}.{field} is experimental");
            }
        }
    }
}

/// Makes the kept file from what the reference has written.
fn condense(directory: &Path) {
    let load = |stability: &str| -> Map<String, Value> {
        let path = directory.join(stability).join("codex_app_server_protocol.schemas.json");
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let mut file: Value = serde_json::from_str(&text).unwrap();
        let Value::Object(mut all) = file["definitions"].take() else { panic!() };
        for folder in ["v1", "v2"] {
            if let Some(Value::Object(inner)) = all.remove(folder) {
                all.extend(inner);
            }
        }
        all
    };
    let (mut all, stable) = (load("experimental"), load("stable"));
    all.values_mut().for_each(strip);
    let ours = json_schemas(true);
    let methods = |name: &str| -> BTreeSet<String> {
        let variants = ours[&format!("{name}.json")]["oneOf"].as_array().unwrap();
        variants.iter().filter_map(|it| tag_of(&it["properties"]["method"])).collect()
    };
    for name in ["ClientRequest", "ServerNotification", "ServerRequest"] {
        let wanted = methods(name);
        let variants = all.get_mut(name).unwrap()["oneOf"].as_array_mut().unwrap();
        variants.retain(|it| {
            tag_of(&it["properties"]["method"]).is_some_and(|it| wanted.contains(&it))
        });
    }
    let mut kept = Map::new();
    let mut open: Vec<String> = ours
        .keys()
        .map(|path| path.trim_end_matches(".json").rsplit('/').next().unwrap().to_owned())
        .collect();
    let mut experimental = Map::new();
    while let Some(name) = open.pop() {
        let Some(schema) = all.remove(&name) else { continue };
        references(&schema, &mut open);
        if let (Some(fields), Some(stable)) = (schema["properties"].as_object(), stable.get(&name))
        {
            let more: Vec<_> =
                fields.keys().filter(|field| stable["properties"][field].is_null()).collect();
            if !more.is_empty() {
                experimental.insert(name.clone(), json!(more));
            }
        }
        kept.insert(name, schema);
    }
    kept.insert("experimental".to_owned(), Value::Object(experimental));
    let sorted: BTreeMap<_, _> = kept.into_iter().collect();
    // A line for each, so that changes can be read.
    let lines: Vec<_> =
        sorted.iter().map(|(name, schema)| format!("{}:{schema}", json!(name))).collect();
    std::fs::write(REFERENCE, format!("{{\n{}\n}}\n", lines.join(",\n"))).unwrap();
}

/// Takes out what is not compared.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for keyword in ["title", "description", "default", "format", "minimum", "$schema"] {
                // A field can have such a name, too; its schema is an object, or true.
                if fields
                    .get(keyword)
                    .is_some_and(|it| it.is_string() || it.is_number() || keyword == "default")
                {
                    fields.remove(keyword);
                }
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            let name = fields.get("$ref").and_then(Value::as_str);
            found.extend(name.and_then(|it| it.rsplit('/').next()).map(str::to_owned));
            fields.values().for_each(|it| references(it, found));
        }
        Value::Array(items) => items.iter().for_each(|it| references(it, found)),
        _ => {}
    }
}
