//! [`SchemaBuilder`]: builds schemas without writing JSON; each kind of schema has methods for its own constraints.

use std::marker::PhantomData;

use serde_json::{Map, Value, json};

use crate::structured_output::{CompiledSchema, Schema, SchemaError};

/// Builds a schema of one kind: [`Schema::object`], [`Schema::string`] and their siblings begin one.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "use it as a field of an object, or as the schema of a turn"]
pub struct SchemaBuilder<Kind> {
    schema: Schema,
    kind: PhantomData<fn() -> Kind>,
}

/// The kinds of [`SchemaBuilder`]s.
pub mod kind {
    /// An object, which has fields.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Object {}
    /// A string, which can have a length, a pattern and a format.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Text {}
    /// A number, which can have bounds.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Number {}
    /// A list, which can have a length.
    #[derive(Clone, Debug, PartialEq)]
    pub enum List {}
}

impl Schema {
    /// Begins a schema of objects, without fields yet.
    pub fn object() -> SchemaBuilder<kind::Object> {
        SchemaBuilder::new(json!({"type": "object", "properties": {}, "required": []}))
    }

    /// Begins a schema of strings, of any length.
    pub fn string() -> SchemaBuilder<kind::Text> {
        SchemaBuilder::new(json!({"type": "string"}))
    }

    /// Begins a schema of whole numbers, without bounds.
    pub fn integer() -> SchemaBuilder<kind::Number> {
        SchemaBuilder::new(json!({"type": "integer"}))
    }

    /// Begins a schema of numbers, whole or not, without bounds.
    pub fn number() -> SchemaBuilder<kind::Number> {
        SchemaBuilder::new(json!({"type": "number"}))
    }

    /// Begins a schema of lists whose items match this schema.
    pub fn list(items: impl Into<Schema>) -> SchemaBuilder<kind::List> {
        let mut defs = Map::new();
        let items = items.into().embed(&mut defs);
        let mut list = SchemaBuilder::new(json!({"type": "array", "items": items}));
        list.define(defs);
        list
    }

    /// Creates a schema of `true` and `false`.
    pub fn boolean() -> Schema {
        Self::built(json!({"type": "boolean"}))
    }

    /// Creates a schema of null, as a member of [`Schema::any_of`].
    pub fn null() -> Schema {
        Self::built(json!({"type": "null"}))
    }

    /// Creates a schema of exactly these values.
    pub fn one_of<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> Schema {
        let values: Vec<Value> = values.into_iter().map(Into::into).collect();
        Self::built(json!({ "enum": values }))
    }

    /// Creates a schema of this value only, such as the tag of an alternative.
    pub fn constant(value: impl Into<Value>) -> Schema {
        Self::built(json!({ "const": value.into() }))
    }

    /// Creates a schema of values that match at least one of these schemas.
    ///
    /// ```
    /// use heddle::structured_output::Schema;
    ///
    /// let circle = Schema::object().field("kind", Schema::constant("circle")).field("radius", Schema::number().more_than(0));
    /// let square = Schema::object().field("kind", Schema::constant("square")).field("side", Schema::number().more_than(0));
    /// let shapes = Schema::list(Schema::any_of([circle, square])).max_items(2);
    /// let answers = Schema::object().field("shapes", shapes).compile()?;
    /// assert!(answers.check(r#"{"shapes": [{"kind": "circle", "radius": 1.5}]}"#).is_ok());
    /// assert!(answers.check(r#"{"shapes": [{"kind": "circle", "side": 1.5}]}"#).is_err());
    /// # Ok::<(), heddle::structured_output::SchemaError>(())
    /// ```
    pub fn any_of<S: Into<Schema>>(schemas: impl IntoIterator<Item = S>) -> Schema {
        let mut defs = Map::new();
        let members: Vec<_> =
            schemas.into_iter().map(|schema| schema.into().embed(&mut defs)).collect();
        let mut any = SchemaBuilder::<kind::Object>::new(json!({ "anyOf": members }));
        any.define(defs);
        any.schema
    }
}

impl<Kind> SchemaBuilder<Kind> {
    fn new(value: Value) -> Self {
        Self { schema: Schema::built(value), kind: PhantomData }
    }

    fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.schema.set(keyword, value);
        self
    }

    fn define(&mut self, defs: Map<String, Value>) {
        if !defs.is_empty() {
            self.schema.set("$defs", defs);
        }
    }

    /// Sets a description of the value, which the model reads.
    pub fn describe(self, text: impl Into<String>) -> Self {
        self.with("description", text.into())
    }

    /// Returns a schema that allows null, too.
    pub fn nullable(self) -> Schema {
        self.schema.nullable()
    }

    /// Checks the schema and converts it to the form that is sent to the provider.
    pub fn compile(&self) -> Result<CompiledSchema, SchemaError> {
        self.schema.compile()
    }
}

impl SchemaBuilder<kind::Object> {
    /// Adds a required field. A second field of the same name replaces the first.
    pub fn field(self, name: impl Into<String>, schema: impl Into<Schema>) -> Self {
        self.add(name.into(), schema.into(), true)
    }

    /// Adds a field that may be null, like an `Option` in Rust.
    pub fn optional(self, name: impl Into<String>, schema: impl Into<Schema>) -> Self {
        self.add(name.into(), schema.into(), false)
    }

    fn add(mut self, name: String, schema: Schema, required: bool) -> Self {
        let Value::Object(map) = &mut self.schema.value else { return self };
        let mut defs = match map.shift_remove("$defs") {
            Some(Value::Object(defs)) => defs,
            _ => Map::new(),
        };
        let schema = schema.embed(&mut defs);
        if let Some(Value::Array(names)) = map.get_mut("required") {
            names.retain(|known| *known != name);
            if required {
                names.push(name.as_str().into());
            }
        }
        if let Some(Value::Object(properties)) = map.get_mut("properties") {
            properties.insert(name, schema);
        }
        self.define(defs);
        self
    }
}

impl SchemaBuilder<kind::Text> {
    /// Sets the least number of characters.
    pub fn min_length(self, characters: u64) -> Self {
        self.with("minLength", characters)
    }

    /// Sets the greatest number of characters.
    pub fn max_length(self, characters: u64) -> Self {
        self.with("maxLength", characters)
    }

    /// Sets a regular expression that must match somewhere in the string.
    pub fn pattern(self, regex: impl Into<String>) -> Self {
        self.with("pattern", regex.into())
    }

    /// Names a format, such as `date-time`, `email` or `uuid`. The model gets the name; answers are not checked for it.
    pub fn format(self, name: impl Into<String>) -> Self {
        self.with("format", name.into())
    }
}

impl SchemaBuilder<kind::Number> {
    /// Sets the smallest number that is allowed.
    pub fn at_least(self, limit: impl Into<Value>) -> Self {
        self.with("minimum", limit)
    }

    /// Sets the greatest number that is allowed.
    pub fn at_most(self, limit: impl Into<Value>) -> Self {
        self.with("maximum", limit)
    }

    /// Sets an exclusive lower bound: the number must be greater than it.
    pub fn more_than(self, limit: impl Into<Value>) -> Self {
        self.with("exclusiveMinimum", limit)
    }

    /// Sets an exclusive upper bound: the number must be less than it.
    pub fn less_than(self, limit: impl Into<Value>) -> Self {
        self.with("exclusiveMaximum", limit)
    }

    /// Requires the number to be a multiple of another one.
    pub fn multiple_of(self, number: impl Into<Value>) -> Self {
        self.with("multipleOf", number)
    }
}

impl SchemaBuilder<kind::List> {
    /// Sets the least number of items.
    pub fn min_items(self, items: u64) -> Self {
        self.with("minItems", items)
    }

    /// Sets the greatest number of items.
    pub fn max_items(self, items: u64) -> Self {
        self.with("maxItems", items)
    }

    /// Requires all items to differ.
    pub fn unique(self) -> Self {
        self.with("uniqueItems", true)
    }
}

impl<Kind> From<SchemaBuilder<Kind>> for Schema {
    fn from(builder: SchemaBuilder<Kind>) -> Self {
        builder.schema
    }
}
