//! Models on disk: a folder of GGUF files, their manifest, and downloads.
//!
//! The folder is authoritative: a model is a file `NAME.gguf` in it (or a link to one, or the parts
//! `NAME-00001-of-0000N.gguf`). The manifest next to them only adds what the files do not contain: the source of
//! each, its checksum, and which one is the default. A damaged manifest is recreated.
//!
//! * [`about`]: describes a model file;
//! * [`name`]: valid model names, and known ones;
//! * [`hub`]: accesses a Hugging Face repository;
//! * [`pull`]: downloads a file, with retries.

pub mod about;
pub mod hub;
mod manifest;
pub mod name;
pub mod pull;
pub mod sha256;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::gguf;
pub use crate::models::manifest::LOCKS_FOLDER;
use crate::models::manifest::{Manifest, Noted};
use crate::models::name::Split;

/// The models of a home, and of other folders that are only read.
#[derive(Clone, Debug)]
pub struct Models {
    folder: PathBuf,
    shared: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub name: String,
    /// Its file; for a split model the first part, which leads to the others.
    pub path: PathBuf,
    /// All of its files.
    pub parts: Vec<PathBuf>,
    /// Their total size.
    pub bytes: u64,
    /// The SHA-256 of its file in hexadecimal, if it is a single file that we added.
    pub sha256: Option<String>,
    /// Where it came from, if recorded.
    pub source: Option<String>,
    /// When it was added, in Unix milliseconds.
    pub added_ms: Option<u64>,
    pub place: Place,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// Where a model is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In our own folder.
    Own,
    /// In our folder, as a link to this file.
    Linked(PathBuf),
    /// In this other folder, which is only read.
    Shared(PathBuf),
}

/// All models, with notes about the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The models, sorted by name.
    pub models: Vec<Model>,
    /// The name of the default model.
    pub default: Option<String>,
    /// What to tell the user.
    pub notes: Vec<String>,
}

/// How a file is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As a link; the file stays where it is.
    Link,
    Copy,
}

/// Why an operation on the models failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    #[error("there is no model `{name}` here{}", list_known(known, name))]
    Unknown { name: String, known: Vec<String> },
    #[error("there is no local model yet: `heddle models pull {}` gets the small one for smoke tests, \
             `heddle models pull gpt-oss-20b` one for real work", name::EMBEDDED.name)]
    Nothing,
    #[error("`{0}` cannot be the name of a model: take letters, digits, `.`, `_` and `-`, at most {max}, \
             with a letter or digit first", max = name::NAME_BYTES_MAX)]
    Name(String),
    #[error(
        "there is a model `{0}` already: choose another name with --name, or remove that one with \
             `heddle models rm {0}`"
    )]
    Taken(String),
    #[error("{path} is not a GGUF model: {why}")]
    NotAModel { path: String, why: String },
    /// The file is not the one that its name stands for.
    #[error(
        "{path} is not the model that `{name}` stands for: its SHA-256 is {got}, and should be {want}; \
             add it under another name with --name"
    )]
    Sum { path: String, name: String, got: String, want: String },
    #[error(
        "{path} is part of a model in {total} parts, of which {missing} is missing next to it: put it there, or download the model again"
    )]
    Part { path: String, total: u32, missing: String },
    /// The model is in a folder that we must not change.
    #[error(
        "the model `{name}` is in {folder}, which is only read (HEDDLE_MODEL_PATH): remove its file there"
    )]
    Shared { name: String, folder: String },
    #[error("{path}: {why}")]
    Disk { path: String, why: io::Error },
}

fn list_known(known: &[String], name: &str) -> String {
    let here = match known {
        [] => String::new(),
        known => format!("; there is {}", known.join(", ")),
    };
    match name::ModelRequest::parse(name) {
        Ok(_) => format!("{here}; `heddle models pull {name}` gets it"),
        Err(_) if known.is_empty() => {
            ", nor any other; `heddle models pull --help` lists what is available, and `heddle models add FILE` \
             takes one that you have"
                .to_owned()
        }
        Err(_) => here,
    }
}

impl Models {
    /// Uses the folder of a home, and other folders that are only read.
    pub fn new(home: &Path, shared: Vec<PathBuf>) -> Self {
        Self { folder: home.join("models"), shared }
    }

    /// Returns the folder that models are added to.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn list(&self) -> Listing {
        let (manifest, note) = Manifest::read(&self.folder);
        let mut models = BTreeMap::new();
        let mut notes: Vec<_> = note.into_iter().collect();
        for folder in std::iter::once(&self.folder).chain(&self.shared) {
            let own = *folder == self.folder;
            if !own && !folder.is_dir() {
                let folder = folder.display();
                notes.push(format!("HEDDLE_MODEL_PATH names {folder}, which does not exist"));
            }
            for file in scan(folder, &mut notes) {
                let noted = manifest.models.get(&file.name).filter(|_| own);
                let model = describe(&file, noted, (!own).then_some(folder));
                // The first one wins: our own folder, then the others in order.
                models.entry(file.name).or_insert(model);
            }
        }
        let models: Vec<Model> = models.into_values().collect();
        let default = default(&models, manifest.default.as_deref());
        Listing { models, default, notes }
    }

    /// Finds a model by its name, or by the path of a file.
    pub fn find(&self, name: &str) -> Result<Model, ModelsError> {
        if name.contains('/') && Path::new(name).is_file() {
            return model_at(Path::new(name));
        }
        let Listing { models, .. } = self.list();
        let wanted = name.to_ascii_lowercase();
        let known = || models.iter().map(|model| model.name.clone()).collect();
        let found = models.iter().find(|model| model.name == wanted);
        let model = found
            .ok_or_else(|| ModelsError::Unknown { name: name.to_owned(), known: known() })?
            .clone();
        match &model.problem {
            None => Ok(model),
            Some(why) => Err(ModelsError::NotAModel {
                path: model.path.display().to_string(),
                why: why.clone(),
            }),
        }
    }

    /// Finds the default model.
    pub fn default_model(&self) -> Result<Model, ModelsError> {
        let Listing { models, default, .. } = self.list();
        let name = default.ok_or(ModelsError::Nothing)?;
        models.into_iter().find(|model| model.name == name).ok_or(ModelsError::Nothing)
    }

    /// Finds a model, the default one if none is named, and checks the header of its file.
    pub fn check(&self, name: Option<&str>) -> Result<Model, ModelsError> {
        let model = name.map_or_else(|| self.default_model(), |name| self.find(name))?;
        read_header(&model.path)?;
        Ok(model)
    }

    /// Makes a model the default.
    pub fn set_default(&self, name: &str) -> Result<Model, ModelsError> {
        let model = self.find(name)?;
        self.note(|manifest| manifest.default = Some(model.name.clone()))?;
        Ok(model)
    }

    /// Adds a file; `progress` is called with the bytes processed so far.
    pub fn add(
        &self,
        path: &Path,
        name: Option<&str>,
        how: How,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Model, ModelsError> {
        let path = path.canonicalize().map_err(disk(path))?;
        let from = model_at(&path)?;
        read_header(&from.path)?;
        let single = from.parts.len() == 1;
        let sha256 = if single {
            Some(sha256::hash_file(&path, from.bytes, progress).map_err(disk(&path))?)
        } else {
            None
        };
        let embedded = sha256.as_deref() == name::EMBEDDED.sha256;
        let name = match name {
            Some(name) => name.to_ascii_lowercase(),
            None if embedded => name::EMBEDDED.name.to_owned(),
            None => from.name.clone(),
        };
        if !name::is_name(&name) {
            return Err(ModelsError::Name(name));
        }
        if name == name::EMBEDDED.name && !embedded {
            return Err(ModelsError::Sum {
                path: path.display().to_string(),
                name,
                got: sha256.unwrap_or_else(|| "that of several files".to_owned()),
                want: name::EMBEDDED.sha256.unwrap_or_default().to_owned(),
            });
        }
        self.make_folder()?;
        if scan(&self.folder, &mut Vec::new()).iter().any(|file| file.name == name) {
            return Err(ModelsError::Taken(name));
        }
        let total = u32::try_from(from.parts.len()).unwrap_or(u32::MAX);
        for (index, part) in (1..=total).zip(&from.parts) {
            let to = self.folder.join(file_name(&name, index, total));
            match how {
                How::Link => std::os::unix::fs::symlink(part, &to).map_err(disk(&to))?,
                How::Copy => copy(part, &to)?,
            }
        }
        let source = format!("file {}", path.display());
        self.record_source(&name, sha256, source)?;
        self.find(&name)
    }

    /// Removes a model; the target of a link is kept.
    pub fn remove(&self, name: &str) -> Result<Model, ModelsError> {
        let Listing { models, .. } = self.list();
        let wanted = name.to_ascii_lowercase();
        let Some(model) = models.iter().find(|model| model.name == wanted) else {
            let known = models.into_iter().map(|model| model.name).collect();
            return Err(ModelsError::Unknown { name: name.to_owned(), known });
        };
        if let Place::Shared(folder) = &model.place {
            let folder = folder.display().to_string();
            return Err(ModelsError::Shared { name: wanted, folder });
        }
        for part in &model.parts {
            fs::remove_file(part).map_err(disk(part))?;
        }
        self.note(|manifest| {
            manifest.models.remove(&wanted);
            manifest.default.take_if(|default| *default == wanted);
        })?;
        Ok(model.clone())
    }

    /// Records the source of a model in the folder.
    fn record_source(
        &self,
        name: &str,
        sha256: Option<String>,
        source: String,
    ) -> Result<(), ModelsError> {
        let noted = Noted { sha256, source: Some(source), added_ms: Some(now_ms()) };
        self.note(|manifest| drop(manifest.models.insert(name.to_owned(), noted)))
    }

    fn note(&self, change: impl FnOnce(&mut Manifest)) -> Result<(), ModelsError> {
        self.make_folder()?;
        let names: Vec<_> =
            scan(&self.folder, &mut Vec::new()).into_iter().map(|file| file.name).collect();
        Manifest::change(&self.folder, |manifest| {
            manifest.models.retain(|name, _| names.contains(name));
            change(manifest);
        })
        .map_err(disk(&self.folder))
    }

    fn make_folder(&self) -> Result<(), ModelsError> {
        fs::create_dir_all(&self.folder).map_err(disk(&self.folder))
    }
}

fn read_header(path: &Path) -> Result<gguf::Header, ModelsError> {
    gguf::open(path).map_err(|error| ModelsError::NotAModel {
        path: path.display().to_string(),
        why: error.to_string(),
    })
}

/// Describes a file at a path given by the user.
fn model_at(path: &Path) -> Result<Model, ModelsError> {
    let shown = path.display().to_string();
    let bad = |why: &str| ModelsError::NotAModel { path: shown.clone(), why: why.to_owned() };
    let file = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| bad("a name"))?;
    let parts = match Split::from_file_name(file) {
        None => vec![path.to_owned()],
        Some(split) => {
            let folder = path.parent().unwrap_or(Path::new("."));
            let parts: Vec<_> = split.files().map(|name| folder.join(name)).collect();
            if let Some(missing) = parts.iter().find(|part| !part.is_file()) {
                let missing = missing.display().to_string();
                return Err(ModelsError::Part { path: shown, total: split.total, missing });
            }
            parts
        }
    };
    for part in &parts {
        magic(part)
            .map_err(|why| ModelsError::NotAModel { path: part.display().to_string(), why })?;
    }
    let bytes =
        parts.iter().filter_map(|part| fs::metadata(part).ok()).map(|meta| meta.len()).sum();
    Ok(Model {
        name: name::from_file(file),
        path: parts[0].clone(),
        parts,
        bytes,
        sha256: None,
        source: None,
        added_ms: None,
        place: Place::Own,
        problem: None,
    })
}

/// Checks the magic bytes of a file; the rest is checked when it is loaded.
pub(crate) fn magic(path: &Path) -> Result<(), String> {
    let mut head = [0; 8];
    let mut file = files::open(path).map_err(|error| error.to_string())?;
    match file.read_exact(&mut head) {
        Ok(()) if head.starts_with(b"GGUF") => Ok(()),
        Ok(()) => Err("it does not begin with `GGUF`".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err("it is too short to be one".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A model found in a folder.
#[derive(Debug)]
struct Found {
    name: String,
    parts: Vec<PathBuf>,
    /// The number of parts, according to the first one.
    total: u32,
}

/// Searches a folder for models.
fn scan(folder: &Path, notes: &mut Vec<String>) -> Vec<Found> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            notes.push(format!("{} cannot be read: {error}", folder.display()));
            return Vec::new();
        }
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> =
        names.filter(|name| name.ends_with(".gguf") && !name.starts_with('.')).collect();
    names.sort();
    if names.len() > FILES_MAX {
        let shown = folder.display();
        notes.push(format!(
            "{shown} has more than {FILES_MAX} models: the others are not looked at"
        ));
        names.truncate(FILES_MAX);
    }
    let mut found = Vec::new();
    for file in &names {
        let (files, total) = match Split::from_file_name(file) {
            None => (vec![file.clone()], 1),
            Some(split) if split.index == 1 => {
                let there = |name: &String| names.binary_search(name).is_ok();
                (split.files().filter(there).collect(), split.total)
            }
            Some(_) => continue,
        };
        let parts = files.iter().map(|name| folder.join(name)).collect();
        found.push(Found { name: name::from_file(file), parts, total });
    }
    found
}

fn describe(file: &Found, noted: Option<&Noted>, shared: Option<&PathBuf>) -> Model {
    let path = file.parts[0].clone();
    let mut bytes = 0;
    let mut problem = None;
    for part in &file.parts {
        match fs::metadata(part) {
            Ok(meta) => bytes += meta.len(),
            Err(_) => {
                let gone = fs::read_link(part).unwrap_or_else(|_| part.clone());
                problem = Some(format!("{} is gone", gone.display()));
            }
        }
    }
    if file.parts.len() < usize::try_from(file.total).unwrap_or(usize::MAX) {
        problem = Some(format!("only {} of its {} parts are there", file.parts.len(), file.total));
    }
    let problem = problem.or_else(|| magic(&path).err());
    let place = match (shared, fs::read_link(&path)) {
        (Some(folder), _) => Place::Shared(folder.clone()),
        (None, Ok(target)) => Place::Linked(target),
        (None, Err(_)) => Place::Own,
    };
    Model {
        name: file.name.clone(),
        path,
        parts: file.parts.clone(),
        bytes,
        sha256: noted.and_then(|noted| noted.sha256.clone()),
        source: noted.and_then(|noted| noted.source.clone()),
        added_ms: noted.and_then(|noted| noted.added_ms),
        place,
        problem,
    }
}

/// Chooses the default model: the one the user chose, otherwise the newest that is for more than smoke tests.
fn default(models: &[Model], chosen: Option<&str>) -> Option<String> {
    let usable = || models.iter().filter(|model| model.problem.is_none());
    let chosen = usable().find(|model| Some(model.name.as_str()) == chosen);
    let newest = || {
        usable()
            .max_by_key(|model| (model.name != name::EMBEDDED.name, model.added_ms, model.bytes))
    };
    chosen.or_else(newest).map(|model| model.name.clone())
}

/// Returns the file name of a part.
fn file_name(name: &str, index: u32, total: u32) -> String {
    if total == 1 { format!("{name}.gguf") } else { Split::name(name, index, total) }
}

/// Copies a file under a temporary name first, so that half a copy is never mistaken for a model.
fn copy(from: &Path, to: &Path) -> Result<(), ModelsError> {
    let part = to.with_extension("gguf.part");
    let copied = files::open(from)
        .map_err(io::Error::from)
        .and_then(|from| {
            let length = from.metadata()?.len();
            let mut to = File::create(&part)?;
            // A file that grows meanwhile is not a model.
            io::copy(&mut from.take(length), &mut to)?;
            to.sync_all()
        })
        .and_then(|()| fs::rename(&part, to));
    copied.map_err(|source| {
        // A partial copy is useless; if it cannot be removed, the next copy overwrites it.
        let _ = fs::remove_file(&part);
        disk(to)(source)
    })
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> ModelsError {
    let path = path.display().to_string();
    move |why| ModelsError::Disk { path, why }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How many files of a folder are examined.
pub const FILES_MAX: usize = 1000;
