//! [`Schema`]: the JSON schema of an answer, in the form that is sent and in the form that is checked.

use std::sync::Arc;

use config::{NotStrict, Optional, Violations, strict_form};
use engine::AnswerCheck;
use runtime::OutputSchema;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// A JSON schema for an answer: of a Rust type, made with a builder, or written by hand.
///
/// ```
/// use heddle::structured_output::Schema;
///
/// let step = Schema::object()
///     .field("what", Schema::string().describe("What to do, in one sentence."))
///     .field("minutes", Schema::integer().at_least(1))
///     .optional("needs", Schema::list(Schema::string()));
/// let recipe = Schema::object()
///     .field("title", Schema::string())
///     .field("course", Schema::one_of(["starter", "main", "dessert"]))
///     .field("steps", Schema::list(step).min_items(1));
///
/// let answers = recipe.compile()?;
/// let soup = r#"{"title": "Soup", "course": "starter", "steps": [{"what": "Stir.", "minutes": 5, "needs": null}]}"#;
/// assert!(answers.check(soup).is_ok());
/// let wrong = answers.check(r#"{"title": "Soup", "course": "lunch", "steps": []}"#).unwrap_err();
/// assert_eq!(wrong.list[0].path, "/course");
/// assert_eq!(wrong.list[0].expected, r#"one of ["starter","main","dessert"]"#);
/// assert_eq!(wrong.list[0].got, r#""lunch""#);
/// # Ok::<(), heddle::structured_output::SchemaError>(())
/// ```
///
/// # The strict form
///
/// Providers that enforce a schema accept only a subset of JSON Schema. So a schema of a type or of a builder is
/// converted when it is used: objects are closed, all properties are required, bounds and patterns become words in the
/// description. Answers are checked against the whole schema, and so conform to it with any provider.
///
/// * A property that the builder calls [`optional`](crate::structured_output::SchemaBuilder::optional) may be null: `Option<T>` in Rust.
/// * A field of a type with `#[serde(default)]` must have a value, since the type would not accept null.
/// * If a part cannot be converted (a map, a value of any type), the error names all such places.
///   [`Schema::as_written`] sends a schema as it is, for providers that accept more.
/// * A schema [from a value](Schema::from_value) is sent as it is, unless [`Schema::strict`] is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub(super) value: Value,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    AsWritten,
    Strict(Optional),
}

/// Why a schema cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is not a JSON schema. The message says where, and what is wrong.
    #[error(transparent)]
    Invalid(#[from] config::SchemaError),
    /// It has no strict form: the error lists everything that a strict provider would not accept. Change it, or send it
    /// [as it is written](Schema::as_written).
    #[error("{0}; for a provider that takes it, `Schema::as_written` sends it as it is")]
    NotStrict(NotStrict),
}

impl From<NotStrict> for SchemaError {
    fn from(problems: NotStrict) -> Self {
        Self::NotStrict(problems)
    }
}

/// A schema that is ready to be sent, and to check answers.
#[derive(Debug)]
pub struct CompiledSchema {
    sent: Value,
    checked: config::Schema,
}

impl CompiledSchema {
    /// Returns the schema in the form that is sent to the provider.
    pub fn sent(&self) -> &Value {
        &self.sent
    }

    /// Checks an answer: it must be one JSON value that conforms to the schema, with nothing around it.
    pub fn check(&self, answer: &str) -> Result<(), Violations> {
        self.checked.check(Some(answer))
    }

    pub(crate) fn into_format(self) -> AnswerFormat {
        let json = RawValue::from_string(self.sent.to_string()).expect("it was a value");
        AnswerFormat::new(json, self.checked)
    }
}

/// The schema of a turn's answer: as it is sent, and as answers are checked against it.
#[derive(Clone, Debug)]
pub(crate) struct AnswerFormat {
    pub(crate) sent: OutputSchema,
    pub(crate) checked: Arc<config::Schema>,
}

impl AnswerFormat {
    pub(crate) fn new(json: Box<RawValue>, checked: config::Schema) -> Self {
        let checked = Arc::new(checked);
        let schema = Arc::clone(&checked);
        let check = AnswerCheck::new(move |answer| {
            schema.check(answer).map_err(|violations| violations.to_string())
        });
        Self { sent: OutputSchema { json, check }, checked }
    }
}

impl Schema {
    /// Creates the schema of a type, with its doc comments as descriptions.
    ///
    /// ```
    /// use heddle::structured_output::Schema;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Report {
    ///     /// The programming language that most of the project is written in.
    ///     language: String,
    ///     /// Number of files.
    ///     files: u32,
    ///     /// Its licence, if it has one.
    ///     licence: Option<String>,
    /// }
    ///
    /// let answers = Schema::of::<Report>().compile()?;
    /// assert_eq!(answers.sent()["required"], serde_json::json!(["language", "files", "licence"]));
    /// assert!(answers.check(r#"{"language": "Rust", "files": 3, "licence": null}"#).is_ok());
    /// // The provider does not enforce that a number fits into a `u32`; the check does.
    /// assert!(answers.check(r#"{"language": "Rust", "files": -3, "licence": null}"#).is_err());
    /// # Ok::<(), heddle::structured_output::SchemaError>(())
    /// ```
    pub fn of<T: JsonSchema + ?Sized>() -> Self {
        let value = SchemaGenerator::default().into_root_schema_for::<T>().to_value();
        Self { value, form: Form::Strict(Optional::Required) }
    }

    /// Uses a JSON schema that is sent unchanged.
    pub fn from_value(value: Value) -> Self {
        Self { value, form: Form::AsWritten }
    }

    /// Creates the schema of a builder.
    pub(super) fn built(value: Value) -> Self {
        Self { value, form: Form::Strict(Optional::Nullable) }
    }

    /// Sends the strict form, in which a property that is not required may be null. Schemas of types and builders are
    /// strict already.
    ///
    /// ```
    /// use heddle::structured_output::{Schema, SchemaError};
    ///
    /// let schema = serde_json::json!({
    ///     "type": "object",
    ///     "properties": {"sizes": {"type": "object", "additionalProperties": {"type": "integer"}}, "rest": {}},
    /// });
    /// let Err(SchemaError::NotStrict(problems)) = Schema::from_value(schema).strict().compile() else { panic!() };
    /// let named: Vec<_> = problems.list.iter().map(|it| (it.place.as_str(), it.keyword.as_str())).collect();
    /// assert_eq!(named, [("/properties/sizes", "additionalProperties"), ("/properties/rest", "type")]);
    /// ```
    pub fn strict(self) -> Self {
        match self.form {
            Form::AsWritten => Self::built(self.value),
            Form::Strict(_) => self,
        }
    }

    /// Sends the schema as it is, which strict providers may refuse.
    pub fn as_written(self) -> Self {
        Self { form: Form::AsWritten, ..self }
    }

    /// Returns the schema as it was written.
    pub fn as_value(&self) -> &Value {
        &self.value
    }

    /// Checks the schema and converts it to the form that is sent to the provider.
    pub fn compile(&self) -> Result<CompiledSchema, SchemaError> {
        let whole = config::Schema::parse(&self.value.to_string())?;
        match self.form {
            Form::AsWritten => Ok(CompiledSchema { sent: self.value.clone(), checked: whole }),
            Form::Strict(optional) => {
                let form = strict_form(&self.value, optional)?;
                let checked = config::Schema::parse(&form.checked.to_string())?;
                Ok(CompiledSchema { sent: form.sent, checked })
            }
        }
    }

    /// Sets a description of the value, which the model reads.
    pub fn describe(mut self, text: impl Into<String>) -> Self {
        self.set("description", text.into());
        self
    }

    /// Returns a schema that allows null, too.
    ///
    /// ```
    /// use heddle::structured_output::Schema;
    ///
    /// let due = Schema::from(Schema::string().format("date")).nullable();
    /// let answers = Schema::object().field("due", due).compile()?;
    /// assert!(answers.check(r#"{"due": null}"#).is_ok());
    /// # Ok::<(), heddle::structured_output::SchemaError>(())
    /// ```
    pub fn nullable(self) -> Self {
        Self::any_of([self, Self::null()])
    }

    pub(super) fn set(&mut self, keyword: &str, value: impl Into<Value>) {
        if let Value::Object(map) = &mut self.value {
            map.insert(keyword.to_owned(), value.into());
        }
    }

    /// Prepares the schema to be part of a larger one: moves its definitions to `defs`, under names that are free
    /// there.
    pub(super) fn embed(self, defs: &mut Map<String, Value>) -> Value {
        let mut value = self.value;
        let Value::Object(map) = &mut value else { return value };
        map.shift_remove("$schema");
        let own: Vec<_> = ["$defs", "definitions"]
            .iter()
            .filter_map(|keyword| match map.shift_remove(*keyword) {
                Some(Value::Object(members)) => Some((*keyword, members)),
                _ => None,
            })
            .collect();
        let mut renamed = vec![("#".to_owned(), String::new())];
        let mut moved = Vec::new();
        for (keyword, members) in own {
            for (name, member) in members {
                let free = free_name(&name, |name| {
                    defs.contains_key(name) && defs.get(name) != Some(&member)
                        || moved.iter().any(|(taken, _)| taken == name)
                });
                renamed.push((format!("#/{keyword}/{name}"), format!("#/$defs/{free}")));
                moved.push((free, member));
            }
        }
        let itself = value.to_string().contains(SELF_REFERENCE)
            || moved.iter().any(|(_, member)| member.to_string().contains(SELF_REFERENCE));
        if itself {
            let taken = |name: &str| {
                defs.contains_key(name) || moved.iter().any(|(taken, _)| taken == name)
            };
            let name = free_name(value["title"].as_str().unwrap_or("Value"), taken);
            renamed[0].1 = format!("#/$defs/{name}");
            let whole = std::mem::replace(&mut value, json!({"$ref": "#"}));
            moved.push((name, whole));
        }
        for (name, mut member) in moved {
            rename(&mut member, &renamed);
            defs.insert(name, member);
        }
        rename(&mut value, &renamed);
        value
    }
}

/// A reference of a schema to itself, as JSON.
const SELF_REFERENCE: &str = r##""$ref":"#""##;

/// Returns this name, with a number appended if it is taken.
fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let mut free = name.to_owned();
    let mut number = 2;
    while taken(&free) {
        free = format!("{name}{number}");
        number += 1;
    }
    free
}

/// Changes the targets of references.
fn rename(schema: &mut Value, renamed: &[(String, String)]) {
    match schema {
        Value::Object(map) => {
            for (keyword, value) in map {
                match value {
                    Value::String(reference) if keyword == "$ref" => {
                        if let Some((_, to)) = renamed.iter().find(|(from, _)| from == reference) {
                            reference.clone_from(to);
                        }
                    }
                    // Values that only look like schemas.
                    _ if ["const", "enum", "default", "examples"].contains(&keyword.as_str()) => {}
                    Value::Object(members) if keyword == "properties" => {
                        members.values_mut().for_each(|member| rename(member, renamed));
                    }
                    value => rename(value, renamed),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, renamed)),
        _ => {}
    }
}

impl From<Value> for Schema {
    fn from(value: Value) -> Self {
        Self::from_value(value)
    }
}

impl From<&Value> for Schema {
    fn from(value: &Value) -> Self {
        Self::from_value(value.clone())
    }
}

impl From<&Schema> for Schema {
    fn from(schema: &Schema) -> Self {
        schema.clone()
    }
}
