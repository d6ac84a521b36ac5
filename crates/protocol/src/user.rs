//! What a user gives a turn, in the form of the log.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::item::PART_BYTES;
use crate::open::{Kinds, Open};

/// A message of the user: the parts that they gave, in order.
///
/// The model reads another form of it, with the content of files. That one is in the history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserMessage {
    /// Its parts. Logs of other programs may contain kinds that this build does not know.
    pub content: Vec<Open<UserInput>>,
    /// The id that the client gave it.
    pub client_id: Option<String>,
}

/// A part of what a user gives a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum UserInput {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Spans of it that a client shows in its own way.
        #[serde(default)]
        text_elements: Vec<TextElement>,
    },
    /// An image at a URL.
    Image {
        /// The URL; usually a `data:` URL.
        image_url: String,
        /// How closely the model looks at it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<ImageDetail>,
    },
    /// An image in a file.
    LocalImage {
        /// Path of the file, as the user wrote it.
        path: String,
        /// How closely the model looks at it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<ImageDetail>,
    },
    /// A skill that the user chose.
    Skill {
        /// Its name.
        name: String,
        /// Path of its instructions.
        path: String,
    },
    /// Something that the user refers to, such as a file.
    Mention {
        /// Its name.
        name: String,
        /// Its path or URL.
        path: String,
    },
}

/// A span of a text that a client shows in its own way, such as the name of a file instead of its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextElement {
    /// The bytes of the text that it covers, as the client gave them: they may lie outside of the text, or
    /// inside of a character.
    pub byte_range: Range<usize>,
    /// What is shown instead.
    #[serde(default)]
    pub placeholder: Option<String>,
}

/// How closely a model looks at an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageDetail {
    /// As the model sees fit.
    Auto,
    /// At a low resolution.
    Low,
    /// At a high resolution.
    High,
    /// At its own resolution.
    Original,
}

impl ImageDetail {
    /// Returns its name in requests to models.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Low => "low",
            Self::High => "high",
            Self::Original => "original",
        }
    }
}

impl UserInput {
    /// Creates a text without spans.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), text_elements: Vec::new() }
    }
}

impl Kinds for UserInput {
    fn read(kind: &str, json: &str) -> Option<serde_json::Result<Self>> {
        matches!(kind, "text" | "image" | "local_image" | "skill" | "mention")
            .then(|| serde_json::from_str(json))
    }
}

impl UserMessage {
    /// Creates a message that consists of a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::from_inputs([UserInput::text(text)])
    }

    /// Creates a message without an id of the client.
    pub fn from_inputs(inputs: impl IntoIterator<Item = UserInput>) -> Self {
        Self { content: inputs.into_iter().map(Open::Known).collect(), client_id: None }
    }

    /// Returns the parts of known kinds.
    pub fn inputs(&self) -> impl Iterator<Item = &UserInput> {
        self.content.iter().filter_map(|part| match part {
            Open::Known(input) => Some(input),
            Open::Unknown(_) => None,
        })
    }

    /// Returns its texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.inputs().filter_map(|input| match input {
            UserInput::Text { text, .. } => Some(text.as_str()),
            _ => None,
        })
    }

    /// Joins its texts, with nothing between them: [`Self::text_elements`] refers to the result.
    pub fn joined_text(&self) -> String {
        self.texts().collect()
    }

    /// Returns the spans of all texts, with ranges in the joined text.
    pub fn text_elements(&self) -> Vec<TextElement> {
        let (mut elements, mut before) = (Vec::new(), 0_usize);
        for input in self.inputs() {
            let UserInput::Text { text, text_elements } = input else { continue };
            elements.extend(text_elements.iter().map(|element| {
                let Range { start, end } = element.byte_range;
                // Clients may send any number.
                let byte_range = start.saturating_add(before)..end.saturating_add(before);
                TextElement { byte_range, placeholder: element.placeholder.clone() }
            }));
            before += text.len();
        }
        elements
    }

    /// Returns the URLs of its images.
    pub fn image_urls(&self) -> impl Iterator<Item = &str> {
        self.inputs().filter_map(|input| match input {
            UserInput::Image { image_url, .. } => Some(image_url.as_str()),
            _ => None,
        })
    }

    /// Returns the approximate size of its texts in bytes.
    pub fn text_bytes(&self) -> usize {
        let bytes = |part: &Open<UserInput>| match part {
            Open::Known(UserInput::Text { text, text_elements }) => {
                let placeholders = text_elements.iter().map(|it| it.placeholder.as_deref());
                let bytes = |text: Option<&str>| text.unwrap_or_default().len() + PART_BYTES;
                text.len() + placeholders.map(bytes).sum::<usize>()
            }
            Open::Known(UserInput::Image { image_url, .. }) => image_url.len(),
            Open::Known(UserInput::LocalImage { path, .. }) => path.len(),
            Open::Known(UserInput::Skill { name, path } | UserInput::Mention { name, path }) => {
                name.len() + path.len()
            }
            Open::Unknown(raw) => raw.as_str().len(),
        };
        self.content.iter().map(|part| bytes(part) + PART_BYTES).sum()
    }

    /// Returns the paths of its images in files.
    pub fn local_image_paths(&self) -> impl Iterator<Item = &str> {
        self.inputs().filter_map(|input| match input {
            UserInput::LocalImage { path, .. } => Some(path.as_str()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(text: &str, elements: &[(Range<usize>, Option<&str>)]) -> UserInput {
        let element = |(byte_range, placeholder): &(Range<usize>, Option<&str>)| TextElement {
            byte_range: byte_range.clone(),
            placeholder: placeholder.map(str::to_owned),
        };
        UserInput::Text {
            text: text.to_owned(),
            text_elements: elements.iter().map(element).collect(),
        }
    }

    fn image(url: &str) -> UserInput {
        UserInput::Image { image_url: url.to_owned(), detail: None }
    }

    fn file(path: &str) -> UserInput {
        UserInput::LocalImage { path: path.to_owned(), detail: None }
    }

    /// What a message says, and where its spans are.
    #[track_caller]
    fn check(
        inputs: &[UserInput],
        want: &str,
        elements: &[(Range<usize>, Option<&str>)],
        pictures: (&[&str], &[&str]),
    ) {
        let message = UserMessage::from_inputs(inputs.to_vec());
        assert_eq!(message.joined_text(), want);
        let got = message.text_elements();
        let got: Vec<_> =
            got.iter().map(|it| (it.byte_range.clone(), it.placeholder.as_deref())).collect();
        assert_eq!(got, elements, "{want}");
        let urls: Vec<_> = message.image_urls().collect();
        let paths: Vec<_> = message.local_image_paths().collect();
        assert_eq!((&*urls, &*paths), pictures, "{want}");
    }

    #[test]
    fn texts_are_joined_and_their_spans_moved() {
        check(&[], "", &[], (&[], &[]));
        check(&[text("look", &[(0..4, Some("[x]"))])], "look", &[(0..4, Some("[x]"))], (&[], &[]));
        check(
            &[
                text("é ", &[(0..2, None)]),
                file("a.png"),
                text("two", &[(0..3, Some("b")), (1..2, Some(""))]),
                image("data:x"),
                UserInput::Mention { name: "m".to_owned(), path: "/m".to_owned() },
                text("", &[]),
                file("/b"),
                text("end", &[(0..1, None)]),
            ],
            "é twoend",
            &[(0..2, None), (3..6, Some("b")), (4..5, Some("")), (6..7, None)],
            (&["data:x"], &["a.png", "/b"]),
        );
        // A client may send any number.
        let far = usize::MAX;
        check(
            &[text("ab", &[]), text("c", &[(far..far, None)])],
            "abc",
            &[(far..far, None)],
            (&[], &[]),
        );
    }

    #[test]
    fn parts_are_as_in_logs_of_the_reference() {
        for (input, want) in [
            (
                text("a", &[(0..1, Some("b")), (1..1, None)]),
                json!({"type": "text", "text": "a", "text_elements": [
                    {"byte_range": {"start": 0, "end": 1}, "placeholder": "b"},
                    {"byte_range": {"start": 1, "end": 1}, "placeholder": null},
                ]}),
            ),
            (image("u"), json!({"type": "image", "image_url": "u"})),
            (
                UserInput::LocalImage {
                    path: "/a".to_owned(),
                    detail: Some(ImageDetail::Original),
                },
                json!({"type": "local_image", "path": "/a", "detail": "original"}),
            ),
            (
                UserInput::Skill { name: "s".to_owned(), path: "/s".to_owned() },
                json!({"type": "skill", "name": "s", "path": "/s"}),
            ),
            (
                UserInput::Mention { name: "m".to_owned(), path: "/m".to_owned() },
                json!({"type": "mention", "name": "m", "path": "/m"}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&input).unwrap(), want);
            let read: Open<UserInput> = serde_json::from_str(&want.to_string()).unwrap();
            assert_eq!(read, Open::Known(input));
        }
        for detail in
            [ImageDetail::Auto, ImageDetail::Low, ImageDetail::High, ImageDetail::Original]
        {
            assert_eq!(json!(detail), detail.name());
        }
        let newer = r#"{ "type":"audio", "audio_url":"u" }"#;
        let read: Open<UserInput> = serde_json::from_str(newer).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), newer);
    }
}
