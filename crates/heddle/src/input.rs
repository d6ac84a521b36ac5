//! User input of a turn: text and images.

use std::path::{Path, PathBuf};

use protocol::open::Open;
use protocol::responses::{ContentPart, KnownPart};

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
}

#[derive(Clone, Debug)]
enum Piece {
    Part(ContentPart),
    Image(PathBuf),
}

impl Input {
    /// Appends text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.pieces.push(Piece::Part(KnownPart::input_text(text)));
        self
    }

    /// Appends an image from a file. If it cannot be sent, the model gets a text that says so, and the user a warning.
    #[must_use]
    pub fn image(mut self, path: impl Into<PathBuf>) -> Self {
        self.pieces.push(Piece::Image(path.into()));
        self
    }

    /// Appends an image by its URL: a `data:` URL, or one that the endpoint can fetch.
    #[must_use]
    pub fn image_url(mut self, url: impl Into<String>) -> Self {
        let part = KnownPart::InputImage { image_url: url.into(), detail: None };
        self.pieces.push(Piece::Part(Open::Known(part)));
        self
    }

    /// Reads the image files now, relative to `directory`, and returns warnings about those that cannot be sent.
    ///
    /// Otherwise they are read when the turn starts, relative to the thread's directory, and the warnings are events.
    pub fn load(&mut self, directory: &Path) -> Vec<String> {
        let (parts, warnings) = std::mem::take(self).into_parts(directory);
        self.pieces = parts.into_iter().map(Piece::Part).collect();
        warnings
    }

    /// Returns whether files have to be read.
    pub(crate) fn has_files(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Image(_)))
    }

    /// Reads the files. Returns the parts of the message, and warnings.
    pub(crate) fn into_parts(self, directory: &Path) -> (Vec<ContentPart>, Vec<String>) {
        let (mut parts, mut warnings, mut images) = (Vec::new(), Vec::new(), 0);
        for piece in self.pieces {
            match piece {
                Piece::Part(part) => parts.push(part),
                Piece::Image(path) => {
                    images += 1;
                    let (loaded, warning) = load_image(images, &path, directory);
                    parts.extend(loaded);
                    warnings.extend(warning);
                }
            }
        }
        (parts, warnings)
    }
}

impl<T: Into<String>> From<T> for Input {
    fn from(text: T) -> Self {
        Self::default().text(text)
    }
}

/// Returns the message parts for an image file, and a warning if it cannot be sent. The images of a message are
/// numbered from 1.
fn load_image(number: usize, path: &Path, directory: &Path) -> (Vec<ContentPart>, Option<String>) {
    let name = path.display();
    let (content, warning) = match tools::load_image(&directory.join(path)) {
        Ok(image) => {
            let detail = Some("high".to_owned());
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
