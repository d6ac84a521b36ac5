//! User input of a turn: text and images.

use std::path::{Path, PathBuf};

use engine::UserTurnInput;
use engine::context::user_parts;
use protocol::open::Open;
use protocol::responses::{ContentPart, KnownPart};
use protocol::user::{ImageDetail, UserInput, UserMessage};

/// A message to the model: text and images, in order.
///
/// ```
/// use heddle::Input;
///
/// let input = Input::from("What is wrong here?").image("screenshot.png");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Input {
    pieces: Vec<Piece>,
    client_id: Option<String>,
}

/// A part as the user gave it, and what the model gets of it.
#[derive(Clone, Debug)]
struct Piece {
    given: UserInput,
    content: PieceContent,
}

#[derive(Clone, Debug)]
enum PieceContent {
    Parts(Vec<ContentPart>),
    /// A picture that has not been read yet.
    File(PathBuf),
}

impl Input {
    /// Appends text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(UserInput::text(text))
    }

    /// Appends an image from a file. If it cannot be sent, the model gets a text that says so, and the user a warning.
    #[must_use]
    pub fn image(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let given = UserInput::LocalImage { path: path.display().to_string(), detail: None };
        self.pieces.push(Piece { given, content: PieceContent::File(path) });
        self
    }

    /// Appends an image by its URL: a `data:` URL, or one that the endpoint can fetch.
    #[must_use]
    pub fn image_url(self, url: impl Into<String>) -> Self {
        self.part(UserInput::Image { image_url: url.into(), detail: None })
    }

    /// Adds a part of any kind. Skills and mentions are shown with the message, and the model does not get them: a host
    /// that wants it to adds text.
    #[must_use]
    pub fn part(mut self, part: UserInput) -> Self {
        let content = match &part {
            UserInput::Text { text, .. } => {
                PieceContent::Parts(vec![KnownPart::input_text(text.clone())])
            }
            UserInput::Image { image_url, detail } => {
                let detail = detail.map(|detail| detail.name().to_owned());
                let part = KnownPart::InputImage { image_url: image_url.clone(), detail };
                PieceContent::Parts(vec![Open::Known(part)])
            }
            UserInput::LocalImage { path, .. } => PieceContent::File(PathBuf::from(path)),
            UserInput::Skill { .. } | UserInput::Mention { .. } => PieceContent::Parts(Vec::new()),
        };
        self.pieces.push(Piece { given: part, content });
        self
    }

    /// Sets the host's own id of the message, which its item has, too.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = Some(id.into());
        self
    }

    /// Reads the image files now, relative to `directory`, and returns warnings about those that cannot be sent.
    ///
    /// Otherwise they are read when the turn starts, relative to the thread's directory, and the warnings are events.
    pub fn load(&mut self, directory: &Path) -> Vec<String> {
        let (mut images, mut warnings) = (0, Vec::new());
        for Piece { given, content } in &mut self.pieces {
            let UserInput::LocalImage { detail, .. } = given else { continue };
            images += 1;
            if let PieceContent::File(path) = content {
                let (parts, warning) = load_image(images, path, *detail, directory);
                *content = PieceContent::Parts(parts);
                warnings.extend(warning);
            }
        }
        warnings
    }

    /// Returns whether files have to be read.
    pub(crate) fn has_files(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece.content, PieceContent::File(_)))
    }

    /// Returns what the engine takes. Files that were not read are not sent.
    pub(crate) fn into_turn_input(self) -> UserTurnInput {
        let (mut parts, mut given) = (Vec::new(), Vec::new());
        for piece in self.pieces {
            given.push(piece.given);
            if let PieceContent::Parts(content) = piece.content {
                parts.extend(content);
            }
        }
        let message = UserMessage::from_inputs(given);
        let message = UserMessage { client_id: self.client_id, ..message };
        UserTurnInput { item: user_parts(parts), message }
    }
}

impl<T: Into<String>> From<T> for Input {
    fn from(text: T) -> Self {
        Self::default().text(text)
    }
}

/// Returns the message parts for an image file, and a warning if it cannot be sent. The images of a message are
/// numbered from 1.
fn load_image(
    number: usize,
    path: &Path,
    detail: Option<ImageDetail>,
    directory: &Path,
) -> (Vec<ContentPart>, Option<String>) {
    let name = path.display();
    let (content, warning) = match tools::load_image(&directory.join(path)) {
        Ok(image) => {
            let detail = Some(detail.unwrap_or(ImageDetail::High).name().to_owned());
            (Open::Known(KnownPart::InputImage { image_url: image.url, detail }), None)
        }
        Err(tools::ImageError::Unreadable(error)) => {
            let told = format!("The image at `{name}` could not be read: {error}");
            let warning = format!("the image {name} could not be read: {error}");
            return (vec![KnownPart::input_text(told)], Some(warning));
        }
        Err(error) => {
            let warning = format!("the image {name} is not sent: {error}");
            (KnownPart::input_text(format!("[the image was left out: {error}]")), Some(warning))
        }
    };
    let parts = vec![
        KnownPart::input_text(format!("<image name=[Image #{number}] path=\"{name}\">")),
        content,
        KnownPart::input_text("</image>"),
    ];
    (parts, warning)
}
