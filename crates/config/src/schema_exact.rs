//! Keywords that compare values exactly. The validator's own compare floating point numbers, for which 9007199254740993
//! is equal to 9007199254740992, and depend on the order of an object's members.

#![expect(clippy::result_large_err, reason = "the validator wants its own error")]

use std::collections::HashSet;

use jsonschema::paths::{LazyLocation, Location};
use jsonschema::{Keyword, ValidationError, ValidationOptions};
use serde_json::{Number, Value};

/// Replaces the validator's keywords that compare values.
pub(crate) fn exact(options: ValidationOptions) -> ValidationOptions {
    options
        .with_keyword("const", |_, value, at| {
            rule(at, value.to_string(), Test::OneOf(vec![value.clone()]))
        })
        .with_keyword("enum", |_, value, at| {
            let list = value.as_array().cloned().unwrap_or_default();
            rule(at, format!("one of {value}"), Test::OneOf(list))
        })
        .with_keyword("uniqueItems", |_, value, at| {
            let test = if value == &Value::Bool(true) { Test::Unique } else { Test::Any };
            rule(at, "items that all differ".to_owned(), test)
        })
        .with_keyword("multipleOf", |_, value, at| {
            let test = value.as_number().cloned().map_or(Test::Any, Test::MultipleOf);
            rule(at, format!("a multiple of {value}"), test)
        })
}

/// Returns whether a value has an integer of more than 64 bits, which the parser has rounded.
pub(crate) fn is_rounded(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            // All floating point numbers of this size are integers.
            number.is_f64() && number.as_f64().is_some_and(|float| float.abs() >= INTEGERS_END)
        }
        Value::Array(items) => items.iter().any(is_rounded),
        Value::Object(members) => members.values().any(is_rounded),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Integers with this absolute value or a greater one may be rounded by the parser.
const INTEGERS_END: f64 = 9_223_372_036_854_775_808.0;

enum Test {
    Any,
    OneOf(Vec<Value>),
    Unique,
    MultipleOf(Number),
}

struct Rule {
    at: Location,
    expected: String,
    test: Test,
}

fn rule<'a>(
    at: Location,
    expected: String,
    test: Test,
) -> Result<Box<dyn Keyword>, ValidationError<'a>> {
    Ok(Box::new(Rule { at, expected, test }))
}

impl Keyword for Rule {
    fn validate<'i>(
        &self,
        instance: &'i Value,
        location: &LazyLocation<'_, '_>,
    ) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            return Ok(());
        }
        let at = self.at.clone();
        Err(ValidationError::custom(at, location.into(), instance, self.expected.clone()))
    }

    fn is_valid(&self, instance: &Value) -> bool {
        match (&self.test, instance) {
            (Test::OneOf(list), instance) => list.iter().any(|one| equal(one, instance)),
            (Test::Unique, Value::Array(items)) => {
                let mut seen = HashSet::new();
                items.iter().all(|item| seen.insert(canonical(item)))
            }
            (Test::MultipleOf(step), Value::Number(number)) => is_multiple(number, step),
            (Test::Any | Test::Unique | Test::MultipleOf(_), _) => true,
        }
    }
}

/// Compares values as JSON Schema does: 1 and 1.0 are equal, and members have no order.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (integer(one), integer(other)) {
            (Some(one), Some(other)) => one == other,
            (None, None) => one.as_f64() == other.as_f64(),
            _ => false,
        },
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let in_other = |(name, value): (&String, &Value)| {
                other.get(name).is_some_and(|other| equal(value, other))
            };
            one.len() == other.len() && one.iter().all(in_other)
        }
        (one, other) => one == other,
    }
}

/// Returns the exact value of a number that is an integer, however it is written.
fn integer(number: &Number) -> Option<i128> {
    if let Some(integer) = number.as_i128() {
        return Some(integer);
    }
    let float = number.as_f64()?;
    // Floating point numbers of this size are all integers, and those of this range fit.
    let fits = float.fract() == 0.0 && float.abs() < 2f64.powi(126);
    #[expect(clippy::cast_possible_truncation, reason = "it was just compared")]
    fits.then_some(float as i128)
}

/// Writes a value in the same way as all values that are equal to it.
fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => match integer(number) {
            Some(integer) => integer.to_string(),
            None => number.to_string(),
        },
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}:{}", Value::from(name.as_str()), canonical(value))
            };
            let mut members: Vec<_> = members.iter().map(member).collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        value => value.to_string(),
    }
}

fn is_multiple(number: &Number, step: &Number) -> bool {
    if let (Some(number), Some(step)) = (integer(number), integer(step)) {
        return step == 0 || number % step == 0;
    }
    let (Some(number), Some(step)) = (number.as_f64(), step.as_f64()) else { return true };
    let times = number / step;
    // 0.3 is 2.9999999999999996 times 0.1.
    !times.is_finite() || (times - times.round()).abs() <= times.abs().max(1.0) * 4.0 * f64::EPSILON
}
