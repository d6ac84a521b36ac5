//! The inputs of a run besides its arguments: the prompt, and files for images, attachments and the schema.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::prompt;
use protocol::file::Digest;
use protocol::user::UserInput;
use tempfile::TempDir;

use crate::files::Attachment;
use crate::input::{Given, Input};
use crate::structured_output::SchemaFile;
use crate::transport::error::TransportError;
use crate::transport::exec::unsupported;

/// The input of a run. Its files are removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    pub(crate) images: Vec<PathBuf>,
    /// Attached files that have a flag of their own.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) schema: Option<SchemaFile>,
    _written: Option<TempDir>,
}

impl Prompt {
    /// Writes the files that the program reads. Paths of images are relative to `directory`. `texts` has the content of
    /// attached texts, for a program that has no flag for files.
    pub(crate) async fn prepare(
        input: &Input,
        texts: Option<HashMap<Digest, String>>,
        schema: Option<String>,
        directory: &Path,
    ) -> Result<Self, TransportError> {
        let parts = Parts::from_input(input, texts.as_ref(), directory)?;
        if parts.pictures.is_empty() && parts.links.is_empty() && schema.is_none() {
            let Parts { text, images, .. } = parts;
            return Ok(Self { text, images, files: Vec::new(), schema: None, _written: None });
        }
        let written = tokio::task::spawn_blocking(move || parts.write(schema)).await;
        let written = written.map_err(|ended| io::Error::other(ended.to_string()));
        written
            .and_then(|written| written)
            .map_err(|error| TransportError::NotPrepared { reason: error.to_string() })
    }
}

/// The parts of a message in the form that the program takes.
#[derive(Debug, Default)]
struct Parts {
    text: String,
    images: Vec<PathBuf>,
    /// Images that have no file yet: their index in `images`, the extension of their name, and their bytes.
    pictures: Vec<(usize, &'static str, Vec<u8>)>,
    /// Names of attached files, and the paths of their content.
    links: Vec<(String, PathBuf)>,
}

impl Parts {
    fn from_input(
        input: &Input,
        contents: Option<&HashMap<Digest, String>>,
        directory: &Path,
    ) -> Result<Self, TransportError> {
        let mut parts = Self::default();
        let mut texts = Vec::new();
        for part in input.given() {
            match part {
                Given::Attached(attachment) => {
                    let text = parts.attach(attachment, contents)?;
                    texts.extend(text.map(Cow::<str>::Owned));
                }
                Given::Part(UserInput::Text { text, .. }) => {
                    texts.push(Cow::Borrowed(text.as_str()));
                }
                Given::Part(UserInput::LocalImage { path, .. }) => {
                    parts.images.push(directory.join(path));
                }
                Given::Part(UserInput::Image { image_url, .. }) => {
                    let picture = picture(image_url);
                    let (ending, bytes) =
                        picture.ok_or_else(|| unsupported("an image at an address"))?;
                    parts.pictures.push((parts.images.len(), ending, bytes));
                    parts.images.push(PathBuf::new());
                }
                // They are only shown with the message; the model does not get them.
                Given::Part(UserInput::Skill { .. } | UserInput::Mention { .. }) => {}
            }
        }
        parts.text = texts.join("\n\n");
        if parts.text.trim().is_empty() {
            return Err(unsupported("a message without text"));
        }
        Ok(parts)
    }

    /// Adds an attached file. If it becomes text of the prompt, returns that text.
    fn attach(
        &mut self,
        attachment: &Attachment,
        contents: Option<&HashMap<Digest, String>>,
    ) -> Result<Option<String>, TransportError> {
        let file = attachment.reference();
        match (file.kind, contents) {
            (kind, _) if kind.is_image() => self.images.push(attachment.path()),
            (_, None) => self.links.push((file.name.clone(), attachment.path())),
            (_, Some(contents)) => {
                let text = contents.get(&file.sha256).ok_or_else(|| unsupported("a PDF"))?;
                return Ok(Some(prompt::file_text(&file.name, text)));
            }
        }
        Ok(None)
    }

    fn write(self, schema: Option<String>) -> io::Result<Prompt> {
        let Self { text, mut images, pictures, links } = self;
        let folder = tempfile::Builder::new().prefix("heddle-turn-").tempdir()?;
        for (number, ending, bytes) in pictures {
            images[number] = write(&folder, &format!("image-{}.{ending}", number + 1), &bytes)?;
        }
        let mut files = Vec::new();
        for (number, (name, content)) in links.iter().enumerate() {
            // The program takes the name from the path, and several files may have the same.
            let own = folder.path().join(format!("file-{}", number + 1));
            std::fs::create_dir(&own)?;
            let path = own.join(name);
            link(content, &path)?;
            files.push(path);
        }
        let schema = schema.map(|json| SchemaFile::write_text(folder.path(), &json)).transpose()?;
        Ok(Prompt { text, images, files, schema, _written: Some(folder) })
    }
}

#[cfg(unix)]
fn link(content: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(content, path)
}

#[cfg(not(unix))]
fn link(content: &Path, path: &Path) -> io::Result<()> {
    std::fs::copy(content, path).map(drop)
}

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let path = folder.path().join(name);
    std::fs::File::create_new(&path)?.write_all(bytes)?;
    Ok(path)
}

/// Returns the file extension and the bytes of an image in a `data:` URL.
fn picture(url: &str) -> Option<(&'static str, Vec<u8>)> {
    let (kind, data) = url.strip_prefix("data:image/")?.split_once(";base64,")?;
    let ending = match kind {
        "png" => "png",
        "jpeg" | "jpg" => "jpg",
        "gif" => "gif",
        "webp" => "webp",
        _ => return None,
    };
    Some((ending, STANDARD.decode(data).ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use staging::{Area, Limits};

    use super::*;

    #[tokio::test]
    async fn parts_become_arguments_and_files() {
        let input = Input::from("Look at these.")
            .image("a.png")
            .image_url("data:image/png;base64,aGk=")
            .text("Well?");
        let schema = Some("{}".to_owned());
        let prompt = Prompt::prepare(&input, None, schema, Path::new("/project")).await.unwrap();
        assert_eq!(prompt.text, "Look at these.\n\nWell?");
        let [file, written] = prompt.images.as_slice() else { panic!("{:?}", prompt.images) };
        assert_eq!(file, Path::new("/project/a.png"));
        assert_eq!(std::fs::read(written).unwrap(), b"hi");
        let schema = prompt.schema.as_ref().unwrap().path().to_owned();
        assert_eq!(std::fs::read_to_string(&schema).unwrap(), "{}");
        let mode = std::fs::metadata(&schema).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "a schema is the user's own");
        let written = written.clone();
        drop(prompt);
        assert!(!schema.exists() && !written.exists(), "files of a turn are removed with it");
    }

    #[tokio::test]
    async fn attached_files_become_flags_or_text() {
        let home = TempDir::new().unwrap();
        let area = Area::new(home.path());
        let stage = |name: &str, content: &[u8]| {
            Attachment::new(area.stage_bytes(name, content, &Limits::default()).unwrap())
        };
        let (image, text) = (stage("a.gif", b"GIF89a"), stage("b, c.txt", b"hello"));
        let input = Input::from("Look.").attachment(&image).attachment(&text);
        // Heddle gets links that have the name.
        let prompt = Prompt::prepare(&input, None, None, Path::new("/project")).await.unwrap();
        assert_eq!(
            (prompt.text.as_str(), prompt.images.as_slice()),
            ("Look.", &[image.path()][..])
        );
        let [file] = prompt.files.as_slice() else { panic!("{:?}", prompt.files) };
        assert_eq!(file.file_name().unwrap(), "b, c.txt");
        assert_eq!(std::fs::read(file).unwrap(), b"hello");
        let file = file.clone();
        drop(prompt);
        assert!(!file.exists() && text.path().exists(), "the link goes, and the content stays");
        // The reference reads it as a part of the prompt.
        let texts = HashMap::from([(text.reference().sha256, "hello".to_owned())]);
        let prompt =
            Prompt::prepare(&input, Some(texts), None, Path::new("/project")).await.unwrap();
        assert_eq!(prompt.text, "Look.\n\n[attached file b, c.txt]\n```\nhello\n```");
        assert_eq!((prompt.images, prompt.files), (vec![image.path()], Vec::new()));
        let pdf = Input::from("Look.").attachment(&stage("a.pdf", b"%PDF-1.7"));
        let error = Prompt::prepare(&pdf, Some(HashMap::new()), None, Path::new("/")).await;
        assert!(error.unwrap_err().to_string().starts_with("a PDF cannot be used over exec"));
    }

    #[tokio::test]
    async fn what_exec_cannot_take_is_refused() {
        for (input, want) in [
            (Input::from("x").image_url("https://example.com/a.png"), "an image at an address"),
            (Input::from("x").image_url("data:image/png;base64,~"), "an image at an address"),
            (Input::default().image("a.png"), "a message without text"),
        ] {
            let error = Prompt::prepare(&input, None, None, Path::new("/")).await.unwrap_err();
            assert!(error.to_string().starts_with(want), "{error}");
        }
    }
}
