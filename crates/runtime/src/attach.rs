//! Attached files: replaces references to staged files by content, just before a request.
//!
//! The history and the log have references, so that a file is not stored again with each thread. The same file becomes
//! the same bytes in every request, as long as it is staged, so that the provider's prompt cache works.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::{FileOutcome, prompt};
use protocol::file::{Digest, FIELD, FileKind, FilePart, FileReference};
use protocol::open::{Open, Raw};
use protocol::responses::{ContentPart, KnownItem, KnownPart, ResponseItem};
use serde_json::value::{RawValue, to_raw_value};
use staging::Area;
use tools::{LoadedImage, PreparedImage};

/// Most bytes of content that are kept ready for the next request, over all threads of a library.
pub const CACHE_BYTES_MAX: usize = 64 << 20;
/// Most bytes of content in one request. OpenAI accepts 50 MB.
pub const REQUEST_BYTES_MAX: usize = 48 << 20;
/// Largest file that is read for a request, in bytes. In base64, it fills a request.
pub const FILE_BYTES_MAX: u64 = 36 << 20;

/// The attachments that a provider accepts besides text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepts {
    /// Whether it accepts images.
    pub images: bool,
    /// Whether it accepts PDFs.
    pub pdfs: bool,
    /// The name of the provider, for messages.
    pub provider: String,
    /// Whether a setting of the provider can change this, so that messages may advise it.
    pub can_be_set: bool,
}

impl Accepts {
    /// Returns why files of a kind are not sent; none if they are.
    fn refuse(&self, kind: FileKind) -> Option<String> {
        let (taken, what) = match kind {
            FileKind::Png | FileKind::Jpeg | FileKind::Gif | FileKind::WebP => {
                (self.images, "images")
            }
            FileKind::Pdf => (self.pdfs, "PDFs"),
            FileKind::Text => (true, "text"),
        };
        let provider = &self.provider;
        let advice = match self.can_be_set {
            true => "choose another one, or name them in its setting `attachments`",
            false => "choose another one",
        };
        (!taken).then(|| format!("the provider {provider} is not known to take {what}; {advice}"))
    }
}

/// The staged files of a home, with the contents that were sent last. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Library {
    area: Area,
    cache: Arc<Mutex<Cache>>,
}

impl Library {
    /// Creates the library of a home, without accessing the disk.
    pub fn new(home: &Path) -> Self {
        Self { area: Area::new(home), cache: Arc::default() }
    }

    /// Returns the staging area of the home.
    pub fn area(&self) -> &Area {
        &self.area
    }
}

/// The attached files of a thread.
#[derive(Clone, Debug)]
pub struct Attached {
    library: Library,
    accepts: Accepts,
}

/// The items of a request with content instead of references.
#[derive(Debug)]
pub(crate) struct Expanded {
    pub(crate) input: Vec<Box<RawValue>>,
    /// For each reference, whether the file is in the request.
    pub(crate) files: Vec<FileOutcome>,
}

/// Returns whether an item may have references.
pub(crate) fn refers(item: &RawValue) -> bool {
    item.get().contains(FIELD)
}

impl Attached {
    /// Prepares to send files of a library to a provider.
    pub fn new(library: Library, accepts: Accepts) -> Self {
        Self { library, accepts }
    }

    /// Replaces the references of items, on a thread for blocking work.
    pub(crate) fn expand(
        &self,
        input: Vec<Box<RawValue>>,
    ) -> impl Future<Output = Expanded> + Send + use<> {
        let this = self.clone();
        async move {
            let expanding = tokio::task::spawn_blocking(move || this.expand_now(input));
            match expanding.await {
                Ok(expanded) => expanded,
                // A panic is passed on to the turn; otherwise the runtime shuts down, and this turn with it.
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => std::future::pending().await,
                },
            }
        }
    }

    fn expand_now(&self, input: Vec<Box<RawValue>>) -> Expanded {
        let (mut files, mut room) = (Vec::new(), REQUEST_BYTES_MAX);
        let expand = |item: Box<RawValue>| match refers(&item) {
            true => self.item(&item, &mut room, &mut files).unwrap_or(item),
            false => item,
        };
        let input = input.into_iter().map(expand).collect();
        Expanded { input, files }
    }

    fn item(
        &self,
        item: &RawValue,
        room: &mut usize,
        files: &mut Vec<FileOutcome>,
    ) -> Option<Box<RawValue>> {
        let item: ResponseItem = serde_json::from_str(item.get()).ok()?;
        let Open::Known(KnownItem::Message(mut message)) = item else { return None };
        let before = files.len();
        let mut parts = Vec::new();
        for part in message.content.0 {
            let Open::Known(KnownPart::File(FilePart(file))) = part else {
                parts.push(part);
                continue;
            };
            let left_out = match self.content(&file, room) {
                Ok(content) => {
                    parts.extend(content.parts.iter().cloned());
                    None
                }
                Err(why) => {
                    parts.push(KnownPart::input_text(prompt::file_missing(&file.name, &why)));
                    Some(why)
                }
            };
            files.push(FileOutcome { file, left_out });
        }
        if files.len() == before {
            return None;
        }
        message.content.0 = parts;
        to_raw_value(&KnownItem::Message(message)).ok()
    }

    /// Returns the content of a file for the model, or why the file is left out.
    fn content(&self, file: &FileReference, room: &mut usize) -> Result<Arc<Content>, String> {
        if let Some(why) = self.accepts.refuse(file.kind) {
            return Err(why);
        }
        let key = Key { sha256: file.sha256, kind: file.kind, name: file.name.clone() };
        let cached = lock(&self.library.cache).find(&key);
        let content = match cached {
            Some(content) => content,
            None => {
                let content = Arc::new(Content::read(&self.library.area, file)?);
                lock(&self.library.cache).put(key, &content);
                content
            }
        };
        // The first files stay, so that a file that was sent before is sent again.
        *room = room.checked_sub(content.bytes).ok_or_else(|| {
            format!(
                "the files of this thread are larger than {} MB together, which is what a request may have; start a \
                 new thread with it",
                REQUEST_BYTES_MAX >> 20
            )
        })?;
        Ok(content)
    }
}

/// The parts of a message that replace a reference.
#[derive(Debug)]
struct Content {
    parts: Vec<ContentPart>,
    bytes: usize,
}

impl Content {
    fn read(area: &Area, file: &FileReference) -> Result<Self, String> {
        let bytes = area.read(file, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
        let name = &file.name;
        let parts = match file.kind {
            FileKind::Png | FileKind::Jpeg | FileKind::Gif | FileKind::WebP => {
                let image = load_image(area, file, &bytes)?;
                let detail = Some("high".to_owned());
                vec![
                    KnownPart::InputText { text: prompt::file_follows(name) },
                    KnownPart::InputImage { image_url: image.url, detail },
                ]
            }
            FileKind::Pdf => {
                let mut file_data = format!("data:{};base64,", file.kind.mime());
                STANDARD.encode_string(&bytes, &mut file_data);
                vec![KnownPart::InputFile { filename: pdf_name(name), file_data }]
            }
            FileKind::Text => {
                let text =
                    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
                let text = text.trim_start_matches('\u{feff}');
                vec![KnownPart::InputText { text: prompt::file_text(name, text) }]
            }
        };
        let mut content = Self { parts: Vec::new(), bytes: 0 };
        for part in parts {
            // Kept as JSON text, since it is long and part of many requests.
            let json = to_raw_value(&part).map_err(|error| error.to_string())?;
            content.bytes += json.get().len();
            content.parts.push(Open::Unknown(Raw::from(json)));
        }
        Ok(content)
    }
}

/// Decodes an image, unless another turn or process has done so. The caller has just checked its digest.
fn load_image(area: &Area, file: &FileReference, bytes: &[u8]) -> Result<LoadedImage, String> {
    let kept = area.prepared(file.sha256, FILE_BYTES_MAX);
    if let Some(made) = kept.and_then(|kept| PreparedImage::parse(&kept)) {
        return Ok(made.load(bytes));
    }
    let made = PreparedImage::from_bytes(bytes).map_err(|error| error.to_string())?;
    area.keep_prepared(file.sha256, &made.to_bytes());
    Ok(made.load(bytes))
}

/// Returns the name with the ending `.pdf`, which providers require.
fn pdf_name(name: &str) -> String {
    match name.to_ascii_lowercase().ends_with(".pdf") {
        true => name.to_owned(),
        false => format!("{name}.pdf"),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    sha256: Digest,
    kind: FileKind,
    name: String,
}

/// The contents that were sent last, at most [`CACHE_BYTES_MAX`] of them.
#[derive(Debug, Default)]
struct Cache {
    contents: HashMap<Key, (u64, Arc<Content>)>,
    bytes: usize,
    /// Number of uses so far.
    uses: u64,
}

impl Cache {
    fn find(&mut self, key: &Key) -> Option<Arc<Content>> {
        self.uses += 1;
        let (used, content) = self.contents.get_mut(key)?;
        *used = self.uses;
        Some(Arc::clone(content))
    }

    fn put(&mut self, key: Key, content: &Arc<Content>) {
        if content.bytes > CACHE_BYTES_MAX {
            return;
        }
        self.uses += 1;
        if let Some((_, before)) = self.contents.insert(key, (self.uses, Arc::clone(content))) {
            self.bytes -= before.bytes;
        }
        self.bytes += content.bytes;
        while self.bytes > CACHE_BYTES_MAX {
            let oldest = self.contents.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            if let Some((_, gone)) = self.contents.remove(&oldest) {
                self.bytes -= gone.bytes;
            }
        }
    }
}

/// Ignores poisoning: nothing done under this lock can panic half-way.
fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use staging::Limits;
    use tempfile::TempDir;

    use super::*;

    const ALL: Accepts =
        Accepts { images: true, pdfs: true, provider: String::new(), can_be_set: true };

    /// A PNG with one pixel.
    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn stage(library: &Library, name: &str, content: &[u8]) -> FileReference {
        let limits = Limits { pdf_bytes_max: 1 << 30, ..Limits::default() };
        library.area.stage_bytes(name, content, &limits).unwrap().file().clone()
    }

    fn item(files: &[FileReference]) -> Box<RawValue> {
        let mut parts = vec![json!({"type": "input_text", "text": "see"})];
        parts.extend(
            files.iter().map(|file| json!(Open::Known(KnownPart::File(FilePart(file.clone()))))),
        );
        to_raw_value(&json!({"type": "message", "role": "user", "content": parts})).unwrap()
    }

    /// The parts of the only item, without the first, and the reasons for what was left out.
    fn expand(attached: &Attached, files: &[FileReference]) -> (Vec<Value>, Vec<Option<String>>) {
        let Expanded { input, files } = attached.expand_now(vec![item(files)]);
        let value: Value = serde_json::from_str(input[0].get()).unwrap();
        assert_eq!(value["content"][0]["text"], "see");
        let parts = value["content"].as_array().unwrap()[1..].to_vec();
        (parts, files.into_iter().map(|outcome| outcome.left_out).collect())
    }

    #[track_caller]
    fn check(name: &str, content: &[u8], accepts: &Accepts, want: Result<Value, &str>) {
        let root = TempDir::new().unwrap();
        let library = Library::new(root.path());
        let file = stage(&library, name, content);
        let attached = Attached::new(library, accepts.clone());
        let (parts, left_out) = expand(&attached, std::slice::from_ref(&file));
        match want {
            Ok(want) => {
                assert_eq!((json!(parts), left_out), (want, vec![None]), "{name}");
            }
            Err(words) => {
                let why = left_out[0].as_ref().expect("a reason");
                assert!(why.contains(words), "{why}");
                let text = format!("[the attached file {name} was left out: {why}]");
                assert_eq!(json!(parts), json!([{"type": "input_text", "text": text}]));
            }
        }
        // Again, and from the disk again: the same bytes.
        let before = attached.expand_now(vec![item(std::slice::from_ref(&file))]);
        *lock(&attached.library.cache) = Cache::default();
        let after = attached.expand_now(vec![item(&[file])]);
        assert_eq!(before.input[0].get(), after.input[0].get());
    }

    #[test]
    fn files_become_what_providers_take() {
        let text = |text: &str| Ok(json!([{"type": "input_text", "text": text}]));
        check("a.rs", b"fn a() {}", &ALL, text("[attached file a.rs]\n```\nfn a() {}\n```"));
        check(
            "a.md",
            b"```\nx\n````\n",
            &ALL,
            text("[attached file a.md]\n`````\n```\nx\n````\n`````"),
        );
        check("b", b"\xef\xbb\xbfmark", &ALL, text("[attached file b]\n```\nmark\n```"));
        let png = STANDARD.decode(PNG).unwrap();
        let image = json!([
            {"type": "input_text", "text": "[attached file a.png]"},
            {"type": "input_image", "image_url": format!("data:image/png;base64,{PNG}"), "detail": "high"},
        ]);
        check("a.png", &png, &ALL, Ok(image));
        check("a.png", &png[..50], &ALL, Err("it is not a readable PNG"));
        let pdf = |name: &str| {
            let data = format!("data:application/pdf;base64,{}", STANDARD.encode(b"%PDF-1.7"));
            Ok(json!([{"type": "input_file", "filename": name, "file_data": data}]))
        };
        check("a.PDF", b"%PDF-1.7", &ALL, pdf("a.PDF"));
        check("paper", b"%PDF-1.7", &ALL, pdf("paper.pdf"));
        let text_only =
            Accepts { images: false, pdfs: false, provider: "mine".to_owned(), can_be_set: true };
        let local = Accepts { can_be_set: false, ..text_only.clone() };
        check("a.pdf", b"%PDF-1.7", &local, Err("not known to take PDFs; choose another one"));
        check("a.png", &png, &text_only, Err("the provider mine is not known to take images"));
        check(
            "a.pdf",
            b"%PDF-1.7",
            &text_only,
            Err("not known to take PDFs; choose another one, or name"),
        );
        check("a.txt", b"x", &text_only, text("[attached file a.txt]\n```\nx\n```"));
    }

    /// Decoding takes long, so its result is kept for the next process.
    #[test]
    fn a_picture_is_decoded_once() {
        let root = TempDir::new().unwrap();
        let png = STANDARD.decode(PNG).unwrap();
        let url = |bytes: &[u8]| format!("data:image/png;base64,{}", STANDARD.encode(bytes));
        let sent = || {
            let library = Library::new(root.path());
            let file = stage(&library, "a.png", &png);
            let (parts, left_out) =
                expand(&Attached::new(library.clone(), ALL), std::slice::from_ref(&file));
            assert_eq!(left_out, [None]);
            (library, file.sha256, parts[1]["image_url"].as_str().unwrap().to_owned())
        };
        let (library, sha256, first) = sent();
        assert_eq!(first, url(&png));
        let made = library.area.prepared(sha256, 99).expect("it was kept");
        assert_eq!(made, b"image/png\n");
        // A kept form is used without decoding again, but only if it is valid.
        library.area.keep_prepared(sha256, b"image/png\nsmaller");
        assert_eq!(sent().2, url(b"smaller"));
        for other in [&b"image/svg+xml\n"[..], b""] {
            library.area.keep_prepared(sha256, other);
            assert_eq!(sent().2, first);
            assert_eq!(library.area.prepared(sha256, 99), Some(made.clone()));
        }
        // Nothing is kept of a damaged image.
        let file = stage(&library, "b.png", &png[..50]);
        let (_, left_out) =
            expand(&Attached::new(library.clone(), ALL), std::slice::from_ref(&file));
        assert!(left_out[0].is_some());
        assert_eq!(library.area.prepared(file.sha256, 99), None);
    }

    #[test]
    fn what_is_missing_or_damaged_is_left_out_and_comes_back() {
        let root = TempDir::new().unwrap();
        let library = Library::new(root.path());
        let file = stage(&library, "a.txt", b"text");
        let attached = Attached::new(library.clone(), ALL);
        let path = library.area.path(file.sha256, file.kind);
        std::fs::write(&path, "texT").unwrap();
        let (_, left_out) = expand(&attached, std::slice::from_ref(&file));
        assert!(left_out[0].as_ref().unwrap().contains("damaged"), "{left_out:?}");
        std::fs::remove_file(&path).unwrap();
        let (_, left_out) = expand(&attached, std::slice::from_ref(&file));
        assert!(left_out[0].as_ref().unwrap().contains("not in the staging area"), "{left_out:?}");
        stage(&library, "b.txt", b"text");
        assert_eq!(expand(&attached, &[file]).1, [None]);
    }

    #[test]
    fn a_request_has_a_limit_and_the_first_files_stay() {
        let root = TempDir::new().unwrap();
        let library = Library::new(root.path());
        let large = |seed: u8| [&b"%PDF-1.7"[..], &vec![seed; REQUEST_BYTES_MAX / 3]].concat();
        let files: Vec<_> =
            (0..3).map(|seed| stage(&library, &format!("{seed}.pdf"), &large(seed))).collect();
        let small = stage(&library, "small.txt", b"x");
        let attached = Attached::new(library, ALL);
        let all = [files, vec![small]].concat();
        let (_, left_out) = expand(&attached, &all);
        let sent: Vec<_> = left_out.iter().map(Option::is_none).collect();
        assert_eq!(sent, [true, true, false, true]);
        assert!(left_out[2].as_ref().unwrap().contains("larger than 48 MB together"));
        // The same again, from the cache, which has a limit of its own.
        assert_eq!(expand(&attached, &all).1, left_out);
        assert!(lock(&attached.library.cache).bytes <= CACHE_BYTES_MAX);
        assert!(lock(&attached.library.cache).contents.len() < 4);
    }

    #[test]
    fn what_is_no_reference_stays_as_it_is() {
        let root = TempDir::new().unwrap();
        let attached = Attached::new(Library::new(root.path()), ALL);
        for json in [
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"about \"heddle_file\""}]}"#,
            r#"{"type":"function_call_output","call_id":"c","output":"{\"heddle_file\":1}"}"#,
            r#"{"type":"new kind","heddle_file":{"sha256":"x"}}"#,
        ] {
            let input = vec![RawValue::from_string(json.to_owned()).unwrap()];
            let Expanded { input, files } = attached.expand_now(input);
            assert_eq!((input[0].get(), files), (json, Vec::new()));
        }
    }
}
