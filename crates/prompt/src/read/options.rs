//! Options with the same fields in both APIs.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::tools::Tools;
use super::{Field, Node, Read, short};
use crate::Sampling;
use crate::request::{Format, METADATA_BYTES_MAX, METADATA_MAX, REPEATED_BYTES_MAX, Title};

pub(crate) fn temperature(field: Field<'_>) -> Read<Option<f64>> {
    field.opt(|node| node.number(0.0..=2.0))
}

pub(crate) fn top_p(field: Field<'_>) -> Read<Option<f64>> {
    field.opt(|node| node.number(0.0..=1.0))
}

/// Returns the sampling parameters; missing ones default as in hosted endpoints.
pub(crate) fn sampling(
    temperature: Option<f64>,
    top_p: Option<f64>,
    seed: Field<'_>,
) -> Read<Option<Sampling>> {
    let seed = seed.opt(|node| node.integer(i64::MIN..=i64::MAX))?;
    if temperature.is_none() && top_p.is_none() && seed.is_none() {
        return Ok(None);
    }
    Ok(Some(Sampling {
        temperature: temperature.unwrap_or(1.0) as f32,
        top_p: top_p.unwrap_or(1.0) as f32,
        // The low bits are as good a seed as all of them.
        seed: seed.unwrap_or_default() as u32,
        any_seed: seed.is_none(),
        ..Sampling::default()
    }))
}

/// Reads the token limit of an answer.
pub(crate) fn tokens(field: Field<'_>) -> Read<Option<u32>> {
    let tokens = field.opt(|node| node.integer(1..=i64::from(u32::MAX)))?;
    Ok(tokens.and_then(|tokens| u32::try_from(tokens).ok()))
}

/// Reads the reasoning effort: seven words, all of which are kept, though models know fewer.
pub(crate) fn effort(field: Field<'_>) -> Read<Option<String>> {
    field.opt(|node| {
        let word = node.string()?;
        match word.as_str() {
            "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max" => Ok(word),
            other => Err(node.invalid(format_args!("`{}` is unknown", short(other)))),
        }
    })
}

/// Reads metadata that the client wants back unchanged.
pub(crate) fn metadata(node: Node<'_>) -> Read<Map<String, Value>> {
    if node.json().len() > METADATA_BYTES_MAX {
        return Err(node.invalid(format_args!("is longer than {METADATA_BYTES_MAX} bytes")));
    }
    let Value::Object(map) = node.value()? else { return Err(node.invalid("must be an object")) };
    if map.len() > METADATA_MAX {
        return Err(node.invalid(format_args!("has more than {METADATA_MAX} entries")));
    }
    match map.values().all(Value::is_string) {
        true => Ok(map),
        false => Err(node.invalid("must have strings as values")),
    }
}

#[derive(Deserialize)]
struct WireFormat<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    strict: Option<&'a RawValue>,
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
    #[serde(borrow)]
    json_schema: Option<&'a RawValue>,
}

/// Reads the format of the answer, and the schema's name and description; Chat Completions wraps the schema
/// once more.
pub(crate) fn format(node: Node<'_>, is_wrapped: bool, tools: &mut Tools) -> Read<(Format, Title)> {
    let wire: WireFormat<'_> = node.object()?;
    let kind = node.field("type", wire.kind).need()?;
    match &*kind.text()? {
        "text" => Ok((Format::Text, Title::default())),
        "json_object" => Ok((Format::Json, Title::default())),
        "json_schema" if is_wrapped => {
            let inner = node.field("json_schema", wire.json_schema).need()?;
            titled_schema(inner, &inner.object()?, tools)
        }
        "json_schema" => titled_schema(node, &wire, tools),
        other => Err(kind.invalid(format_args!(
            "`{}` is unknown; it can be `text`, `json_object` or `json_schema`",
            short(other)
        ))),
    }
}

fn titled_schema(
    node: Node<'_>,
    wire: &WireFormat<'_>,
    tools: &mut Tools,
) -> Read<(Format, Title)> {
    let schema = tools.schema(node.field("schema", wire.schema).need()?)?;
    let title = Title {
        name: node.field("name", wire.name).opt(Node::name)?,
        description: repeated(node.field("description", wire.description).opt(Node::string)?),
        strict: node.field("strict", wire.strict).opt(Node::flag)?,
    };
    Ok((Format::Schema(schema), title))
}

/// Drops a text that is too long to be repeated in the answer.
pub(crate) fn repeated(text: Option<String>) -> Option<String> {
    text.filter(|text| text.len() <= REPEATED_BYTES_MAX)
}
