//! Files that a user attaches to a message: the log has a reference, and the content is elsewhere.
//!
//! In the log a reference is a text part with one more field, so that programs that do not know the field
//! still read a message that makes sense.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The SHA-256 of a file's content, which is also its name in the staging area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; Self::BYTES]);

impl Digest {
    /// Length of a digest in bytes.
    pub const BYTES: usize = 32;
    /// Length of a digest in hexadecimal.
    pub const HEX_BYTES: usize = 2 * Self::BYTES;

    /// Wraps a digest that was computed elsewhere.
    pub fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Parses 64 lowercase hexadecimal digits; other spellings do not occur.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let hex: &[u8; Self::HEX_BYTES] = hex.try_into().ok()?;
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; Self::BYTES];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_chunks::<2>().0) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 has 64 hexadecimal digits, in lower case")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_hex(text.as_bytes()).ok_or(NotADigest)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What a file contains. A closed set: models take nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// A PNG image.
    #[serde(rename = "image/png")]
    Png,
    /// A JPEG image.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// A GIF image.
    #[serde(rename = "image/gif")]
    Gif,
    /// A WebP image.
    #[serde(rename = "image/webp")]
    WebP,
    /// A PDF document.
    #[serde(rename = "application/pdf")]
    Pdf,
    /// UTF-8 text of any format.
    #[serde(rename = "text/plain")]
    Text,
}

impl FileKind {
    /// Returns the MIME type.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
            Self::Pdf => "application/pdf",
            Self::Text => "text/plain",
        }
    }

    /// Returns whether it is an image.
    pub fn is_image(self) -> bool {
        match self {
            Self::Png | Self::Jpeg | Self::Gif | Self::WebP => true,
            Self::Pdf | Self::Text => false,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mime())
    }
}

/// A file in the staging area, as a message refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileReference {
    /// The digest of its content.
    pub sha256: Digest,
    /// Its name without directories, as the model and people see it.
    pub name: String,
    /// What it contains.
    #[serde(rename = "mime")]
    pub kind: FileKind,
    /// Its size.
    pub bytes: u64,
}

/// The field of a part that is a reference. Clean-up looks for it in the bytes of logs.
pub const FIELD: &str = "heddle_file";

/// A reference as a part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "LoggedPart", into = "LoggedPart")]
pub struct FilePart(pub FileReference);

/// A reference in a log: a text for programs that do not know references, and the reference.
#[derive(Clone, Serialize, Deserialize)]
struct LoggedPart {
    #[serde(default)]
    text: String,
    heddle_file: FileReference,
}

impl From<LoggedPart> for FilePart {
    fn from(part: LoggedPart) -> Self {
        Self(part.heddle_file)
    }
}

impl From<FilePart> for LoggedPart {
    fn from(part: FilePart) -> Self {
        Self { text: part.text(), heddle_file: part.0 }
    }
}

impl FilePart {
    /// Returns what is read instead of the file where its content is not available.
    pub fn text(&self) -> String {
        let FileReference { name, kind, bytes, .. } = &self.0;
        format!("[attached file {name}, {kind}, {bytes} bytes]")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::open::Open;
    use crate::responses::{ContentPart, KnownPart};

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[track_caller]
    fn check_digest(text: &str, valid: bool) {
        let read = text.parse::<Digest>();
        assert_eq!(read.is_ok(), valid, "{text}");
        if let Ok(digest) = read {
            assert_eq!(digest.to_string(), text);
        }
    }

    #[test]
    fn digests() {
        check_digest(HEX, true);
        check_digest(&"0".repeat(64), true);
        check_digest(&HEX.to_uppercase(), false);
        check_digest(&HEX[1..], false);
        check_digest(&format!("{HEX}0"), false);
        check_digest(&format!("{}g", &HEX[1..]), false);
        check_digest("", false);
    }

    #[track_caller]
    fn check_part(json: &str, file: bool) {
        let read: ContentPart = serde_json::from_str(json).unwrap();
        match read {
            Open::Known(KnownPart::File(FilePart(found))) => {
                assert!(file, "{json}");
                assert_eq!(found.sha256.to_string(), HEX);
            }
            Open::Known(KnownPart::InputText { .. }) => assert!(!file, "{json}"),
            other => panic!("{json}: {other:?}"),
        }
    }

    /// A reference that cannot be read is the text that it comes with.
    #[test]
    fn a_reference_is_a_text_with_one_more_field() {
        let file = FileReference {
            sha256: HEX.parse().unwrap(),
            name: "a \"b\".pdf".to_owned(),
            kind: FileKind::Pdf,
            bytes: 7,
        };
        let part = Open::Known(KnownPart::File(FilePart(file)));
        let json = serde_json::to_string(&part).unwrap();
        assert!(json.contains(&format!("\"{FIELD}\":{{\"sha256\":\"{HEX}\"")), "{json}");
        assert_eq!(serde_json::from_str::<ContentPart>(&json).unwrap(), part);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["type"], "input_text");
        assert_eq!(value["text"], "[attached file a \"b\".pdf, application/pdf, 7 bytes]");
        for (change, want) in [
            (json!({}), true),
            (json!({"heddle_file": null}), false),
            (json!({"heddle_file": {"sha256": "short"}}), false),
            (
                json!({"heddle_file": {"sha256": HEX, "name": "", "mime": "audio/x", "bytes": 1}}),
                false,
            ),
            (
                json!({"heddle_file": {"sha256": HEX, "name": "", "mime": "text/plain", "bytes": 1, "new": 1}}),
                true,
            ),
        ] {
            let mut value = value.clone();
            for (key, new) in change.as_object().unwrap() {
                value[key] = new.clone();
            }
            check_part(&value.to_string(), want);
        }
        check_part(r#"{"type":"input_text","text":"say \"heddle_file\""}"#, false);
    }

    #[test]
    fn kinds_are_mime_types() {
        for kind in [
            FileKind::Png,
            FileKind::Jpeg,
            FileKind::Gif,
            FileKind::WebP,
            FileKind::Pdf,
            FileKind::Text,
        ] {
            assert_eq!(json!(kind), kind.mime());
            assert_eq!(kind.is_image(), kind.mime().starts_with("image/"));
        }
    }
}
