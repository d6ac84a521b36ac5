//! Fields of a request that know their path, so that errors name it.
//!
//! A request is borrowed text until a value is needed: unread fields cost nothing, however large, and every
//! text is copied once. `null` counts as missing everywhere.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::refusal::Refusal;
use crate::request::{DEPTH_MAX, NAME_BYTES_MAX, PARTS_MAX, REQUEST_BYTES_MAX};

pub(crate) mod options;
pub(crate) mod tools;

pub(crate) type Read<T> = Result<T, Refusal>;

/// The path of a value, from the innermost step outwards.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Whole,
    Field(&'a str),
    Index(usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Whole => Ok(()),
            Step::Field(name) => {
                let is_first = self.parent.is_none_or(|parent| matches!(parent.step, Step::Whole));
                write!(f, "{}{name}", if is_first { "" } else { "." })
            }
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A field that may be missing.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    raw: Option<&'a RawValue>,
    path: Path<'a>,
}

impl<'a> Field<'a> {
    /// Returns the value, if it is present.
    pub(crate) fn get(self) -> Option<Node<'a>> {
        self.raw.map(|raw| Node { raw, path: self.path })
    }

    /// Returns the value, which is required.
    pub(crate) fn need(self) -> Read<Node<'a>> {
        self.get().ok_or_else(|| invalid(&self.path, format_args!("is missing")))
    }

    /// Reads the value, if it is present.
    pub(crate) fn opt<T>(self, read: impl FnOnce(Node<'a>) -> Read<T>) -> Read<Option<T>> {
        self.get().map(read).transpose()
    }

    /// Refuses the field, if it is present.
    pub(crate) fn refuse(self, why: &str) -> Read<()> {
        self.get().map_or(Ok(()), |node| Err(node.invalid(why)))
    }
}

/// A value that is present.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    raw: &'a RawValue,
    path: Path<'a>,
}

/// Text that borrows from the request unless it contains escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Node<'a> {
    /// Parses the body of a request.
    pub(crate) fn whole(body: &'a [u8]) -> Read<Self> {
        if body.len() > REQUEST_BYTES_MAX {
            return Err(Refusal::TooLarge { limit: REQUEST_BYTES_MAX });
        }
        let path = Path { parent: None, step: Step::Whole };
        let not_json = |error: &dyn fmt::Display| Refusal::Invalid {
            message: format!("the body is not JSON: {error}"),
            param: None,
        };
        let text = std::str::from_utf8(body).map_err(|error| not_json(&error))?;
        let raw = serde_json::from_str(text).map_err(|error| not_json(&error))?;
        Ok(Self { raw, path })
    }

    /// Returns a field of this object, which must live as long as the path.
    pub(crate) fn field<'b>(&'b self, name: &'b str, raw: Option<&'b RawValue>) -> Field<'b>
    where
        'a: 'b,
    {
        Field { raw, path: Path { parent: Some(&self.path), step: Step::Field(name) } }
    }

    /// Returns an element of this list, which must live as long as the path.
    pub(crate) fn element<'b>(&'b self, index: usize, raw: &'b RawValue) -> Node<'b>
    where
        'a: 'b,
    {
        Node { raw, path: Path { parent: Some(&self.path), step: Step::Index(index) } }
    }

    /// Builds a refusal of this value.
    pub(crate) fn invalid(&self, why: impl fmt::Display) -> Refusal {
        invalid(&self.path, why)
    }

    /// Builds a refusal of something inside it, at this relative path.
    pub(crate) fn invalid_at(&self, rest: &str, why: impl fmt::Display) -> Refusal {
        let path = format!("{}{}", self.path, rest);
        Refusal::Invalid { message: format!("`{path}` {why}"), param: Some(path) }
    }

    /// Returns the path in the request.
    pub(crate) fn path(&self) -> String {
        self.path.to_string()
    }

    /// Returns the JSON source.
    pub(crate) fn json(&self) -> &'a str {
        self.raw.get()
    }

    pub(crate) fn is_text(&self) -> bool {
        self.json().starts_with('"')
    }

    /// Reads an object; unknown fields are ignored.
    pub(crate) fn object<T: Deserialize<'a>>(self) -> Read<T> {
        // Serde would also accept a list of the values.
        if !self.json().starts_with('{') {
            return Err(self.wrong("an object"));
        }
        serde_json::from_str(self.json()).map_err(|error| self.invalid(unreadable(&error)))
    }

    /// Reads a list of at most `max` values.
    pub(crate) fn list(self, max: usize) -> Read<Vec<&'a RawValue>> {
        if !self.json().starts_with('[') {
            return Err(self.wrong("a list"));
        }
        let mut json = serde_json::Deserializer::from_str(self.json());
        match (List { max }).deserialize(&mut json) {
            Ok(Some(list)) => Ok(list),
            Ok(None) => Err(self.invalid(format_args!("has more than {max} elements"))),
            Err(error) => Err(self.invalid(unreadable(&error))),
        }
    }

    pub(crate) fn text(self) -> Read<Cow<'a, str>> {
        if !self.is_text() {
            return Err(self.wrong("a string"));
        }
        let read = serde_json::from_str(self.json());
        read.map(|Text(text)| text).map_err(|error| self.invalid(unreadable(&error)))
    }

    /// Reads an owned string.
    pub(crate) fn string(self) -> Read<String> {
        self.text().map(Cow::into_owned)
    }

    /// Reads a name: a short string that is not empty.
    pub(crate) fn name(self) -> Read<String> {
        let name = self.text()?;
        if name.is_empty() {
            return Err(self.invalid("must not be empty"));
        }
        if name.len() > NAME_BYTES_MAX {
            let what = format_args!("must not be longer than {NAME_BYTES_MAX} bytes");
            return Err(self.invalid(what));
        }
        Ok(name.into_owned())
    }

    pub(crate) fn flag(self) -> Read<bool> {
        serde_json::from_str(self.json()).map_err(|_| self.wrong("a boolean"))
    }

    /// Reads a number within a range.
    pub(crate) fn number(self, range: RangeInclusive<f64>) -> Read<f64> {
        let number: f64 = serde_json::from_str(self.json()).map_err(|_| self.wrong("a number"))?;
        self.within(number, range)
    }

    /// Reads an integer within a range.
    pub(crate) fn integer(self, range: RangeInclusive<i64>) -> Read<i64> {
        let number: i64 =
            serde_json::from_str(self.json()).map_err(|_| self.wrong("an integer"))?;
        self.within(number, range)
    }

    fn within<T: PartialOrd + fmt::Display>(self, number: T, range: RangeInclusive<T>) -> Read<T> {
        if range.contains(&number) {
            return Ok(number);
        }
        let (low, high) = range.into_inner();
        Err(self.invalid(format_args!("must be from {low} to {high}")))
    }

    /// Reads an object whose structure is checked elsewhere, such as a schema.
    pub(crate) fn value(self) -> Read<Value> {
        if !self.json().starts_with('{') {
            return Err(self.wrong("an object"));
        }
        if depth(self.json()) > DEPTH_MAX {
            return Err(self.invalid(format_args!("nests deeper than {DEPTH_MAX} levels")));
        }
        serde_json::from_str(self.json()).map_err(|error| self.invalid(unreadable(&error)))
    }

    /// Reads message content: a text, or parts, each of which starts on its own line.
    pub(crate) fn content(self) -> Read<String> {
        if self.is_text() {
            return self.string();
        }
        if !self.json().starts_with('[') {
            return Err(self.wrong("a string or a list of parts"));
        }
        let mut said = String::new();
        for (number, raw) in self.list(PARTS_MAX)?.into_iter().enumerate() {
            self.element(number, raw).part(&mut said)?;
        }
        Ok(said)
    }

    fn part(self, said: &mut String) -> Read<()> {
        let wire: WirePart<'_> = self.object()?;
        let kind = self.field("type", wire.kind).need()?;
        if !said.is_empty() && !said.ends_with('\n') {
            said.push('\n');
        }
        match &*kind.text()? {
            "text" | "input_text" | "output_text" | "summary_text" | "reasoning_text" => {
                said.push_str(&self.field("text", wire.text).need()?.text()?);
            }
            "refusal" => said.push_str(&self.field("refusal", wire.refusal).need()?.text()?),
            "input_image" | "image_url" => said.push_str(NO_PICTURE),
            "input_audio" => said.push_str(NO_SOUND),
            "input_file" => no_file(self.field("filename", wire.filename), said)?,
            "file" => {
                let file = self.field("file", wire.file).need()?;
                let WireFile { filename } = file.object()?;
                no_file(file.field("filename", filename), said)?;
            }
            other => return Err(kind.invalid(format_args!("`{}` is unknown", short(other)))),
        }
        Ok(())
    }

    fn wrong(self, want: &str) -> Refusal {
        let got = match self.json().as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "a list",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            // A number of the wrong kind is described by what was expected.
            _ => "this number",
        };
        self.invalid(format_args!("must be {want}, not {got}"))
    }
}

#[derive(Deserialize)]
struct WirePart<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    filename: Option<&'a RawValue>,
    #[serde(borrow)]
    file: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireFile<'a> {
    #[serde(borrow)]
    filename: Option<&'a RawValue>,
}

/// Tells whether a text contains a note about something that a model cannot see, hear or open.
pub(crate) fn is_left_out(text: &str) -> bool {
    [NO_PICTURE, NO_SOUND, NO_FILE_END].iter().any(|note| text.contains(note))
}

/// The note in place of an image.
pub(crate) const NO_PICTURE: &str = "[a picture was here, which this model cannot see]";

/// The note in place of audio.
pub(crate) const NO_SOUND: &str = "[a recording was here, which this model cannot hear]";

/// The end of the note in place of a file.
const NO_FILE_END: &str = " was here, which this model cannot open]";

fn no_file(name: Field<'_>, said: &mut String) -> Read<()> {
    let which = match name.opt(Node::name)? {
        Some(name) => format!("the file {name}"),
        None => "a file".to_owned(),
    };
    said.push_str(&format!("[{which}{NO_FILE_END}"));
    Ok(())
}

fn invalid(path: &Path<'_>, why: impl fmt::Display) -> Refusal {
    let path = path.to_string();
    if path.is_empty() {
        return Refusal::Invalid { message: format!("the body {why}"), param: None };
    }
    Refusal::Invalid { message: format!("`{path}` {why}"), param: Some(path) }
}

fn unreadable(error: &serde_json::Error) -> String {
    format!("cannot be read: {error}")
}

/// Truncates a word so that a message can quote it.
pub(crate) fn short(word: &str) -> &str {
    const QUOTED_BYTES_MAX: usize = 64;
    &word[..word.floor_char_boundary(QUOTED_BYTES_MAX)]
}

/// Returns the nesting depth of valid JSON.
fn depth(json: &str) -> usize {
    let (mut now, mut max, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                now += 1;
                max = max.max(now);
            }
            b'}' | b']' if !in_string => now -= 1,
            _ => {}
        }
    }
    max
}

/// Reads a list up to a length limit.
struct List {
    max: usize,
}

impl<'de> DeserializeSeed<'de> for List {
    type Value = Option<Vec<&'de RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List {
    type Value = Option<Vec<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(raw) = seq.next_element()? {
            if list.len() == self.max {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(None);
            }
            list.push(raw);
        }
        Ok(Some(list))
    }
}
