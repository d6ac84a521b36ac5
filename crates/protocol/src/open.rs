//! JSON objects of kinds that this build may not know.
//!
//! A peer of another version may send an unknown `type`. Dropping it loses data and refusing it breaks the
//! client, so [`Open`] keeps it byte for byte.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A value of a known kind, or the unchanged JSON of an unknown one.
#[derive(Clone, Debug, PartialEq)]
pub enum Open<K> {
    /// A kind that this build has a type for.
    Known(K),
    /// The JSON of an unknown kind, verbatim.
    Unknown(Raw),
}

/// A type that is parsed by its `type` tag.
pub trait Kinds: Sized {
    /// Parses the JSON text of an object whose tag is `kind`; none if the kind is unknown.
    ///
    /// Not with serde's tagged enums, because those buffer, and buffered content can no longer be kept
    /// verbatim.
    fn read(kind: &str, json: &str) -> Option<serde_json::Result<Self>>;
}

impl<K> Open<K> {
    /// Returns the value if its kind is known.
    pub fn known(self) -> Option<K> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

impl<K: Kinds> Open<K> {
    /// Parses JSON text; it is copied only if its kind is unknown.
    pub fn from_json(json: &RawValue) -> serde_json::Result<Self> {
        match kind(json.get()).and_then(|kind| K::read(&kind, json.get())) {
            Some(read) => read.map(Self::Known),
            None => Ok(Self::Unknown(Raw::from(json.to_owned()))),
        }
    }
}

impl<K: Serialize> Serialize for Open<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(value) => value.serialize(serializer),
            Self::Unknown(raw) => raw.serialize(serializer),
        }
    }
}

impl<'de, K: Kinds> Deserialize<'de> for Open<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Raw::deserialize(deserializer)?;
        match raw.kind().and_then(|kind| K::read(&kind, raw.as_str())) {
            Some(read) => read.map(Self::Known).map_err(D::Error::custom),
            None => Ok(Self::Unknown(raw)),
        }
    }
}

/// Verbatim JSON text. Clones share the text, which may be long.
#[derive(Clone)]
pub struct Raw(Arc<Box<RawValue>>);

impl Raw {
    /// Returns the JSON text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Returns it as JSON that serializes to itself.
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }

    /// Returns the `type` of the object, if it is an object with one.
    pub fn kind(&self) -> Option<Cow<'_, str>> {
        kind(self.as_str())
    }
}

/// Returns the `type` of the object in `json`, if it is an object with one.
pub fn kind(json: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Probe<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_str::<Probe<'_>>(json).ok().map(|probe| probe.kind)
}

impl From<Box<RawValue>> for Raw {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Arc::new(raw))
    }
}

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}
