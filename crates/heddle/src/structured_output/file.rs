//! [`SchemaFile`]: a schema in a temporary file.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::NamedTempFile;

/// A schema in a temporary file, for programs that read one: `heddle exec --output-schema FILE`. Dropping it removes
/// the file. Other users cannot read it.
///
/// ```
/// use heddle::structured_output::{Schema, SchemaFile};
///
/// let answers = Schema::object().field("ok", Schema::boolean()).compile()?;
/// let file = SchemaFile::write(answers.sent())?;
/// let path = file.path().to_owned();
/// assert!(std::fs::read_to_string(&path)?.contains("additionalProperties"));
/// drop(file);
/// assert!(!path.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SchemaFile {
    file: NamedTempFile,
}

impl SchemaFile {
    /// Writes a schema to a new file in the directory for temporary files.
    pub fn write(schema: &Value) -> io::Result<Self> {
        Self::write_in(&std::env::temp_dir(), schema)
    }

    /// Writes a schema to a new file in this directory.
    pub fn write_in(directory: &Path, schema: &Value) -> io::Result<Self> {
        Self::write_text(directory, &schema.to_string())
    }

    pub(crate) fn write_text(directory: &Path, json: &str) -> io::Result<Self> {
        let mut named = tempfile::Builder::new();
        let mut file = named.prefix("heddle-schema-").suffix(".json").tempfile_in(directory)?;
        file.write_all(json.as_bytes())?;
        Ok(Self { file })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Leaves the file where it is, and returns its path.
    pub fn keep(self) -> io::Result<PathBuf> {
        self.file.keep().map(|(_, path)| path).map_err(|error| error.error)
    }
}
