//! User input of a turn: text, images and files.

use std::path::{Path, PathBuf};

use engine::UserTurnInput;
use engine::context::user_parts;
use log::words;
use protocol::file::FilePart;
use protocol::open::Open;
use protocol::responses::{ContentPart, KnownPart};
use protocol::user::{ImageDetail, UserInput, UserMessage};
use staging::{Area, Limits, StageError};

use crate::files::Attachment;

/// A message to the model: text, images and files, in order.
///
/// ```
/// use heddle::Input;
///
/// let input = Input::from("What is wrong here?").image("screenshot.png").file("server.log");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Input {
    pieces: Vec<Piece>,
    client_id: Option<String>,
    /// Whether it is the program's own.
    is_aside: bool,
}

/// A part as the user gave it, and the content that the model gets for it.
#[derive(Clone, Debug)]
struct Piece {
    given: UserInput,
    content: PieceContent,
}

#[derive(Clone, Debug)]
enum PieceContent {
    Parts(Vec<ContentPart>),
    /// An image file that has not been read yet.
    Image(PathBuf),
    /// A file that has not been staged yet.
    File(PathBuf),
    Attached(Attachment),
}

/// A part of a message for a transport.
#[derive(Debug)]
pub(crate) enum Given<'a> {
    Part(&'a UserInput),
    Attached(&'a Attachment),
}

impl Input {
    /// Creates input that a program gives the model instead of the user, such as a reminder of what to work on. Nobody is shown
    /// it, and it is no message of the user's in the log. `source` says what it is about, in a word. Only in this process:
    /// another program takes it for the user's.
    #[must_use]
    pub fn aside(source: &str, text: impl AsRef<str>) -> Self {
        let (begin, text) = (words::PROGRAM, text.as_ref());
        let text = format!("{begin} source=\"{source}\">\n{text}\n</{}>", &begin[1..]);
        Self { is_aside: true, ..Self::from(text) }
    }

    /// Appends text as a part of its own.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(UserInput::text(text))
    }

    /// Appends an image from a file. Its bytes become part of the log, as with the reference; [`Input::file`] keeps
    /// them out of the log. If the image cannot be sent, the model gets a text that says so, and the user a warning.
    #[must_use]
    pub fn image(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let given = UserInput::LocalImage { path: path.display().to_string(), detail: None };
        self.pieces.push(Piece { given, content: PieceContent::Image(path) });
        self
    }

    /// Attaches a file: an image, a PDF or text. It is staged when the turn starts ([`files`](crate::files)); the path is
    /// relative to the thread's directory. If that fails, the turn does not start.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let given = UserInput::Mention { name, path: path.display().to_string() };
        self.pieces.push(Piece { given, content: PieceContent::File(path) });
        self
    }

    /// Attaches a file that was staged before.
    #[must_use]
    pub fn attachment(mut self, attachment: &Attachment) -> Self {
        let name = attachment.reference().name.clone();
        let given = UserInput::Mention { name, path: attachment.path().display().to_string() };
        self.pieces.push(Piece { given, content: PieceContent::Attached(attachment.clone()) });
        self
    }

    /// Appends an image by its URL: a `data:` URL, or one that the endpoint can fetch.
    #[must_use]
    pub fn image_url(self, url: impl Into<String>) -> Self {
        self.part(UserInput::Image { image_url: url.into(), detail: None })
    }

    /// Adds a part of any kind. Skills and mentions are shown with the message, but the model does not get them: add
    /// text if it should.
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
            UserInput::LocalImage { path, .. } => PieceContent::Image(PathBuf::from(path)),
            UserInput::Skill { .. } | UserInput::Mention { .. } => PieceContent::Parts(Vec::new()),
        };
        self.pieces.push(Piece { given: part, content });
        self
    }

    /// Sets the host program's own id of the message, which is also in the item of the message.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = Some(id.into());
        self
    }

    /// Reads the image files now, relative to `directory`, and returns warnings about those that cannot be sent.
    ///
    /// Without this call, they are read when the turn starts, relative to the thread's directory, and the warnings are
    /// events.
    pub fn load(&mut self, directory: &Path) -> Vec<String> {
        let (mut images, mut warnings) = (0, Vec::new());
        for Piece { given, content } in &mut self.pieces {
            let UserInput::LocalImage { detail, .. } = given else { continue };
            images += 1;
            if let PieceContent::Image(path) = content {
                let (parts, warning) = load_image(images, path, *detail, directory);
                *content = PieceContent::Parts(parts);
                warnings.extend(warning);
            }
        }
        warnings
    }

    /// Stages the attached files, relative to `directory`.
    pub(crate) fn stage(&mut self, area: &Area, directory: &Path) -> Result<(), StageError> {
        for Piece { content, .. } in &mut self.pieces {
            if let PieceContent::File(path) = content {
                let staged = area.stage(&directory.join(path), &Limits::default())?;
                *content = PieceContent::Attached(Attachment::new(staged));
            }
        }
        Ok(())
    }

    /// Returns the attachments that are staged.
    pub(crate) fn attachments(&self) -> Vec<Attachment> {
        let attached = self.given().filter_map(|part| match part {
            Given::Attached(attachment) => Some(attachment.clone()),
            Given::Part(_) => None,
        });
        attached.collect()
    }

    /// Returns whether files have to be staged, or images read.
    pub(crate) fn has_files(&self, images: bool) -> bool {
        self.pieces.iter().any(|piece| match &piece.content {
            PieceContent::File(_) => true,
            PieceContent::Image(_) => images,
            PieceContent::Parts(_) | PieceContent::Attached(_) => false,
        })
    }

    /// Returns the parts in the form that a transport passes on.
    pub(crate) fn given(&self) -> impl Iterator<Item = Given<'_>> {
        self.pieces.iter().map(|Piece { given, content }| match content {
            PieceContent::Attached(attachment) => Given::Attached(attachment),
            PieceContent::Parts(_) | PieceContent::Image(_) | PieceContent::File(_) => {
                Given::Part(given)
            }
        })
    }

    /// Returns the host program's own id of the message.
    pub(crate) fn own_id(&self) -> Option<&str> {
        self.client_id.as_deref()
    }

    /// Returns whether it has no parts at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Converts the input for the engine. Images and files that were not read have no content for the model.
    pub(crate) fn into_turn_input(self) -> UserTurnInput {
        let (mut parts, mut given) = (Vec::new(), Vec::new());
        for piece in self.pieces {
            given.push(piece.given);
            match piece.content {
                PieceContent::Parts(content) => parts.extend(content),
                PieceContent::Attached(attachment) => {
                    let file = FilePart(attachment.reference().clone());
                    parts.push(Open::Known(KnownPart::File(file)));
                }
                PieceContent::Image(_) | PieceContent::File(_) => {}
            }
        }
        let message = UserMessage::from_inputs(given);
        let message = UserMessage { client_id: self.client_id, ..message };
        UserTurnInput { item: user_parts(parts), message, is_users: !self.is_aside }
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
