//! Identifiers, each its own type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Identifies a thread: a UUID of version 7, so that ids sort by creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadId(#[serde(with = "uuid_text")] Uuid);

impl ThreadId {
    /// Creates an id from a wall-clock time and random bits, both supplied by the caller.
    pub fn new(unix_ms: u64, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(unix_ms, &random).into_uuid())
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ThreadId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Uuid::parse_str(text).map(Self).map_err(|_| InvalidId(text.to_owned()))
    }
}

/// The text is not a thread id.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("`{0}` is not a thread id (a UUID such as 01a1e055-b282-7523-b985-c798177efe12)")]
pub struct InvalidId(String);

/// Identifies an item within one run of a thread; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub u64);

/// Identifies a tool call within one run of a thread. The model's own `call_id` may repeat; this does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey(pub u64);

/// Identifies a question to a person within one run of a thread; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApprovalId(pub u64);

/// UUIDs as hyphenated text.
mod uuid_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use uuid::Uuid;

    pub(super) fn serialize<S: Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(de: D) -> Result<Uuid, D::Error> {
        let text = String::deserialize(de)?;
        Uuid::parse_str(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::ThreadId;

    #[test]
    fn ids_carry_the_time_and_parse_back() {
        let id = ThreadId::new(0x01a1_e055_b282, [0xff; 10]);
        assert_eq!(id.to_string(), "01a1e055-b282-7fff-bfff-ffffffffffff");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("novalue".parse::<ThreadId>().is_err());
        assert!(ThreadId::new(1, [9; 10]) < ThreadId::new(2, [0; 10]));
    }
}
