//! Parses the tools of a request, and the choice among them.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Field, Node, Read, short};
use crate::grammar::of_arguments;
use crate::lark;
use crate::request::{Choice, Input, SCHEMA_BYTES_MAX, TOOLS_MAX, Tool, Trial};
use crate::schema::{self, Budget, Fault};

/// The tools of a request, collected while parsing.
#[derive(Default)]
pub(crate) struct Tools {
    list: Vec<Tool>,
    places: HashMap<String, usize>,
    /// The names of the daemon's own tools.
    own: BTreeSet<String>,
    left_out: Vec<String>,
    is_listed: bool,
    schema_bytes: usize,
    budget: Budget,
    trials: Vec<Trial>,
    /// How many were offered, including those left out.
    seen: usize,
}

/// What to do about a duplicate tool name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// Report an error.
    Refuse,
    /// Replace the earlier definition, since tool search can return a tool twice.
    Replace,
}

/// A tool, or a choice of one, in the format of either API.
#[derive(Deserialize)]
struct WireTool<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    strict: Option<&'a RawValue>,
    #[serde(borrow)]
    format: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    mode: Option<&'a RawValue>,
    #[serde(borrow)]
    function: Option<&'a RawValue>,
    #[serde(borrow)]
    custom: Option<&'a RawValue>,
    #[serde(borrow)]
    allowed_tools: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireGrammar<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    syntax: Option<&'a RawValue>,
    #[serde(borrow)]
    definition: Option<&'a RawValue>,
    #[serde(borrow)]
    grammar: Option<&'a RawValue>,
}

/// The API format of a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Words {
    /// Name and schema are fields of the tool.
    Flat,
    /// They are in an object named after the kind, as in Chat Completions.
    Wrapped,
}

impl Tools {
    /// Reads a list of tools.
    pub(crate) fn read(&mut self, list: Node<'_>, words: Words, again: Again) -> Read<()> {
        self.read_in(list, None, words, again)
    }

    fn read_in(
        &mut self,
        list: Node<'_>,
        namespace: Option<&str>,
        words: Words,
        again: Again,
    ) -> Read<()> {
        for (number, raw) in list.list(TOOLS_MAX)?.into_iter().enumerate() {
            let node = list.element(number, raw);
            self.seen += 1;
            if self.seen > TOOLS_MAX {
                return Err(node.invalid(format_args!("exceeds the limit of {TOOLS_MAX} tools")));
            }
            let wire: WireTool<'_> = node.object()?;
            let kind = node.field("type", wire.kind).need()?;
            match (&*kind.text()?, words) {
                ("function", Words::Flat) => self.function(node, &wire, namespace, again)?,
                ("custom", Words::Flat) => self.custom(node, &wire, namespace, again)?,
                ("function", Words::Wrapped) => {
                    let inner = node.field("function", wire.function).need()?;
                    self.function(inner, &inner.object()?, None, again)?;
                }
                ("custom", Words::Wrapped) => {
                    let inner = node.field("custom", wire.custom).need()?;
                    self.custom(inner, &inner.object()?, None, again)?;
                }
                ("namespace", Words::Flat) if namespace.is_none() => {
                    let name = node.field("name", wire.name).need()?;
                    let name = word(name)?;
                    let inner = node.field("tools", wire.tools).need()?;
                    self.read_in(inner, Some(&name), words, again)?;
                }
                // A client that offers hosted tools must learn that they do not run here.
                _ => self.leave_out(&kind.name()?),
            }
        }
        Ok(())
    }

    /// Records a tool that was offered but is not available.
    pub(crate) fn leave_out(&mut self, name: &str) {
        if !self.left_out.iter().any(|known| known == name) {
            self.left_out.push(name.to_owned());
        }
    }

    fn function(
        &mut self,
        node: Node<'_>,
        wire: &WireTool<'_>,
        namespace: Option<&str>,
        again: Again,
    ) -> Read<()> {
        // Arguments follow their schema in any case; keywords that no grammar can enforce matter only to
        // clients that ask for `strict`.
        let bounds = match node.field("strict", wire.strict).opt(Node::flag)? {
            Some(true) => schema::normalise,
            _ => schema::arguments,
        };
        let schema = match node.field("parameters", wire.parameters).get() {
            Some(parameters) => self.bound_schema(parameters, bounds)?,
            None => json!({"type": "object", "properties": {}, "additionalProperties": false}),
        };
        self.add(node, wire, namespace, Input::Json(schema), again)
    }

    fn custom(
        &mut self,
        node: Node<'_>,
        wire: &WireTool<'_>,
        namespace: Option<&str>,
        again: Again,
    ) -> Read<()> {
        let lark = match node.field("format", wire.format).get() {
            Some(format) => self.grammar(format)?,
            None => None,
        };
        self.add(node, wire, namespace, Input::Text { lark }, again)
    }

    fn grammar(&mut self, node: Node<'_>) -> Read<Option<String>> {
        let wire: WireGrammar<'_> = node.object()?;
        let kind = node.field("type", wire.kind).need()?;
        match &*kind.text()? {
            "text" => return Ok(None),
            "grammar" => {}
            other => return Err(kind.invalid(format_args!("`{}` is unknown", short(other)))),
        }
        // Chat Completions has one more object around it.
        match node.field("grammar", wire.grammar).get() {
            Some(inner) => self.definition(inner, &inner.object()?),
            None => self.definition(node, &wire),
        }
        .map(Some)
    }

    fn definition(&mut self, node: Node<'_>, wire: &WireGrammar<'_>) -> Read<String> {
        let definition = node.field("definition", wire.definition).need()?;
        self.room_for(definition)?;
        let text = definition.string()?;
        let syntax = node.field("syntax", wire.syntax).need()?;
        match &*syntax.text()? {
            // A schema in it would reach the grammar compiler without being checked.
            "lark" if text.contains("%json") => Err(definition
                .invalid("cannot have `%json` in it; offer a function with that schema instead")),
            "lark" => self.lark(definition, text),
            "regex" => self.lark(definition, lark_of_regex(&text)),
            other => Err(syntax.invalid(format_args!(
                "`{}` is unknown; it can be `lark` or `regex`",
                short(other)
            ))),
        }
    }

    /// Refuses a grammar that is too expensive.
    fn lark(&mut self, node: Node<'_>, grammar: String) -> Read<String> {
        lark::check(&grammar).map_err(|why| node.invalid(why))?;
        let (param, grammar_of) = (node.path(), grammar.clone());
        self.trials.push(Trial { param, grammar: grammar_of, is_hard: true });
        Ok(grammar)
    }

    fn add(
        &mut self,
        node: Node<'_>,
        wire: &WireTool<'_>,
        namespace: Option<&str>,
        input: Input,
        again: Again,
    ) -> Read<()> {
        let name_node = node.field("name", wire.name).need()?;
        let name = qualified(namespace, &word(name_node)?);
        let description = node.field("description", wire.description).opt(Node::string)?;
        let tool = Tool { name, description: description.unwrap_or_default(), input };
        match self.places.get(&tool.name) {
            None => {
                self.places.insert(tool.name.clone(), self.list.len());
                self.list.push(tool);
            }
            Some(&place) if again == Again::Replace => self.list[place] = tool,
            Some(_) => return Err(name_node.invalid("is the name of another tool as well")),
        }
        Ok(())
    }

    /// Adds the daemon's own tools. A client's tool of the same name takes precedence.
    pub(crate) fn add_own(&mut self, own: &[Tool]) {
        for tool in own {
            if !self.places.contains_key(&tool.name) {
                self.places.insert(tool.name.clone(), self.list.len());
                self.own.insert(tool.name.clone());
                self.list.push(tool.clone());
            }
        }
    }

    /// Reads a schema that is fully enforced.
    pub(crate) fn schema(&mut self, node: Node<'_>) -> Read<Value> {
        self.bound_schema(node, schema::normalise)
    }

    /// Reads a schema, and refuses it if it cannot become a grammar; all schemas of a request share one
    /// budget.
    fn bound_schema(&mut self, node: Node<'_>, bounds: fn(&Value) -> Value) -> Read<Value> {
        self.room_for(node)?;
        let schema = node.value()?;
        let bounds = bounds(&schema);
        schema::check(&bounds)
            .and_then(|()| self.budget.pay(&bounds))
            .map_err(|Fault { path, why }| node.invalid_at(&path, why))?;
        let trial = |rest: &str, schema: &Value, is_hard: bool| Trial {
            param: node.path() + rest,
            grammar: of_arguments(schema),
            is_hard,
        };
        self.trials.push(trial("", &bounds, false));
        let hard = self.budget.hard.drain(..);
        self.trials.extend(hard.map(|(path, schema)| trial(&path, &schema, true)));
        Ok(schema)
    }

    fn room_for(&mut self, node: Node<'_>) -> Read<()> {
        self.schema_bytes += node.json().len();
        if self.schema_bytes > SCHEMA_BYTES_MAX {
            let what = "makes the schemas and grammars of this request longer than";
            return Err(node.invalid(format_args!("{what} {SCHEMA_BYTES_MAX} bytes together")));
        }
        Ok(())
    }

    /// Returns the tools that may be called, whether one is required, and what is left out.
    pub(crate) fn choose(mut self, choice: Field<'_>, words: Words) -> Read<Chosen> {
        let choice = match choice.get() {
            None => Choice::Auto,
            Some(node) if node.is_text() => mode(node, true)?,
            Some(node) => self.chosen(node, words)?,
        };
        let Self { list: mut tools, mut own, left_out, is_listed, trials, .. } = self;
        if choice == Choice::None {
            // A client that wants no calls does not learn about ours.
            tools.retain(|tool| !own.contains(&tool.name));
        }
        let left: BTreeSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        own.retain(|name| left.contains(name.as_str()));
        Ok(Chosen { tools, own, choice, is_listed, left_out, trials })
    }

    fn chosen(&mut self, node: Node<'_>, words: Words) -> Read<Choice> {
        let wire: WireTool<'_> = node.object()?;
        let kind = node.field("type", wire.kind).need()?;
        let choice = match (&*kind.text()?, words) {
            ("function" | "custom", _) => Choice::Named(self.named(node, &wire, words)?),
            ("allowed_tools", Words::Flat) => self.allow(node, &wire, words)?,
            ("allowed_tools", Words::Wrapped) => {
                let inner = node.field("allowed_tools", wire.allowed_tools).need()?;
                self.allow(inner, &inner.object()?, words)?
            }
            (other, _) => {
                let what =
                    "is not supported here; it can be `function`, `custom` or `allowed_tools`";
                return Err(kind.invalid(format_args!("`{}` {what}", short(other))));
            }
        };
        Ok(choice)
    }

    /// Keeps only the tools that a choice lists.
    fn allow(&mut self, node: Node<'_>, wire: &WireTool<'_>, words: Words) -> Read<Choice> {
        let list = node.field("tools", wire.tools).need()?;
        let mut allowed = vec![false; self.list.len()];
        for (number, raw) in list.list(TOOLS_MAX)?.into_iter().enumerate() {
            let node = list.element(number, raw);
            let wire: WireTool<'_> = node.object()?;
            let kind = node.field("type", wire.kind).need()?;
            if !matches!(&*kind.text()?, "function" | "custom") {
                self.leave_out(&kind.name()?);
                continue;
            }
            let name = self.named(node, &wire, words)?;
            allowed[self.places[&name]] = true;
        }
        let mut allowed = allowed.into_iter();
        self.list.retain(|_| allowed.next().unwrap_or_default());
        self.is_listed = true;
        mode(node.field("mode", wire.mode).need()?, false)
    }

    /// Reads the name of a tool that must exist.
    fn named(&self, node: Node<'_>, wire: &WireTool<'_>, words: Words) -> Read<String> {
        let find = |node: Node<'_>, wire: &WireTool<'_>| {
            let at = node.field("name", wire.name).need()?;
            let namespace = node.field("namespace", wire.namespace).opt(Node::name)?;
            let name = qualified(namespace.as_deref(), &at.name()?);
            match self.places.contains_key(&name) {
                true => Ok(name),
                false => Err(at.invalid("does not name a tool of this request")),
            }
        };
        let (field, inner) = match wire.function {
            Some(_) => ("function", wire.function),
            None => ("custom", wire.custom),
        };
        match words {
            Words::Flat => find(node, wire),
            Words::Wrapped => {
                let inner = node.field(field, inner).need()?;
                find(inner, &inner.object()?)
            }
        }
    }
}

/// The tools of a request, and whether one must be called.
pub(crate) struct Chosen {
    pub(crate) tools: Vec<Tool>,
    pub(crate) own: BTreeSet<String>,
    pub(crate) choice: Choice,
    /// Whether the choice lists the tools.
    pub(crate) is_listed: bool,
    pub(crate) left_out: Vec<String>,
    pub(crate) trials: Vec<Trial>,
}

impl Chosen {
    /// Refuses a required call if there is no tool to call.
    pub(crate) fn check(self, choice: Field<'_>) -> Read<Self> {
        match choice.get() {
            Some(node) if self.choice == Choice::Required && self.tools.is_empty() => {
                let what = "asks for a call, and there is nothing to call";
                Err(match self.left_out.is_empty() {
                    true => node.invalid(what),
                    false => {
                        let names = self.left_out.join("`, `");
                        node.invalid(format_args!("{what}: `{names}` is not available here"))
                    }
                })
            }
            _ => Ok(self),
        }
    }
}

fn mode(node: Node<'_>, can_be_none: bool) -> Read<Choice> {
    match &*node.text()? {
        "auto" => Ok(Choice::Auto),
        "required" => Ok(Choice::Required),
        "none" if can_be_none => Ok(Choice::None),
        other => Err(node.invalid(format_args!("`{}` is unknown", short(other)))),
    }
}

/// Reads the name of a tool or a namespace; a dot separates the two, so neither may contain one.
fn word(node: Node<'_>) -> Read<String> {
    let name = node.name()?;
    match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
        true => Ok(name),
        false => Err(node.invalid("can have only letters, digits, `_` and `-`")),
    }
}

/// Returns the internal name of a tool.
pub(crate) fn qualified(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}.{name}"),
        None => name.to_owned(),
    }
}

/// Turns a regular expression into a grammar that consists of nothing else.
fn lark_of_regex(regex: &str) -> String {
    let mut lark = String::from("start: /");
    let mut escaped = false;
    for letter in regex.chars() {
        match letter {
            '/' if !escaped => lark.push_str("\\/"),
            // A line break would end the rule.
            '\n' if escaped => lark.push('n'),
            '\n' => lark.push_str("\\n"),
            letter => lark.push(letter),
        }
        escaped = letter == '\\' && !escaped;
    }
    lark.push('/');
    lark
}
