//! What both APIs ask for in the same words.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::tools::Tools;
use super::{Field, Node, Read, short};
use crate::Sampling;
use crate::request::{Format, METADATA_BYTES_MAX, METADATA_MAX};

/// Reads how tokens are chosen; what is not said is as hosted endpoints have it.
pub(crate) fn sampling(
    temperature: Field<'_>,
    top_p: Field<'_>,
    seed: Field<'_>,
) -> Read<Option<Sampling>> {
    let temperature = temperature.opt(|node| node.number(0.0..=2.0))?;
    let top_p = top_p.opt(|node| node.number(0.0..=1.0))?;
    let seed = seed.opt(|node| node.integer(i64::MIN..=i64::MAX))?;
    if temperature.is_none() && top_p.is_none() && seed.is_none() {
        return Ok(None);
    }
    Ok(Some(Sampling {
        temperature: temperature.unwrap_or(1.0) as f32,
        top_p: top_p.unwrap_or(1.0) as f32,
        // Its low bits are as good a beginning as all of them.
        seed: seed.unwrap_or_default() as u32,
        any_seed: seed.is_none(),
        ..Sampling::default()
    }))
}

/// Reads how many tokens an answer may have.
pub(crate) fn tokens(field: Field<'_>) -> Read<Option<u32>> {
    let tokens = field.opt(|node| node.integer(1..=i64::from(u32::MAX)))?;
    Ok(tokens.and_then(|tokens| u32::try_from(tokens).ok()))
}

/// Reads how long to think: seven words, which are kept, though the models here know fewer.
pub(crate) fn effort(field: Field<'_>) -> Read<Option<String>> {
    field.opt(|node| {
        let word = node.string()?;
        match word.as_str() {
            "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max" => Ok(word),
            other => Err(node.invalid(format_args!("`{}` is unknown", short(other)))),
        }
    })
}

/// Reads what the client wants back as it is.
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
    schema: Option<&'a RawValue>,
    #[serde(borrow)]
    json_schema: Option<&'a RawValue>,
}

/// Reads the form of the answer; Chat Completions wraps the schema once more.
pub(crate) fn format(node: Node<'_>, is_wrapped: bool, tools: &mut Tools) -> Read<Format> {
    let wire: WireFormat<'_> = node.object()?;
    let kind = node.field("type", wire.kind).need()?;
    match &*kind.text()? {
        "text" => Ok(Format::Text),
        "json_object" => Ok(Format::Json),
        "json_schema" if is_wrapped => {
            let inner = node.field("json_schema", wire.json_schema).need()?;
            let WireFormat { schema, .. } = inner.object()?;
            tools.schema(inner.field("schema", schema).need()?).map(Format::Schema)
        }
        "json_schema" => {
            tools.schema(node.field("schema", wire.schema).need()?).map(Format::Schema)
        }
        other => Err(kind.invalid(format_args!(
            "`{}` is unknown; it can be `text`, `json_object` or `json_schema`",
            short(other)
        ))),
    }
}
