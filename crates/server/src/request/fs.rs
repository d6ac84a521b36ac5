//! Parameters of `fs/*`.

use std::path::{Component, Path, PathBuf};

use heddle::disk::check_is_named;
use schemars::JsonSchema;
use serde::de::{self, IntoDeserializer as _};
use serde::{Deserialize, Deserializer};

/// A path that is absolute, without `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(rename = "AbsolutePathBuf")]
pub struct AbsolutePath(PathBuf);

impl AbsolutePath {
    /// Takes `..` out of a path by its words, as clients do; none if it is relative.
    pub fn new(path: &Path) -> Option<Self> {
        if !path.is_absolute() {
            return None;
        }
        let mut plain = PathBuf::new();
        for component in path.components() {
            match component {
                Component::ParentDir => drop(plain.pop()),
                Component::CurDir => {}
                component => plain.push(component),
            }
        }
        Some(Self(plain))
    }

    pub fn as_path(&self) -> &Path {
        &self.0
    }

    pub fn into_path(self) -> PathBuf {
        self.0
    }
}

impl<'de> Deserialize<'de> for AbsolutePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(Path::new(&text)).ok_or_else(|| {
            de::Error::custom(format!("the path `{text:.200}` is relative: give an absolute one"))
        })
    }
}

/// A file or directory, by its path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct OfPath {
    pub path: AbsolutePath,
}

/// Parameters of writing a file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteFile {
    pub path: AbsolutePath,
    pub data_base64: String,
}

/// Parameters of creating a directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct CreateDirectory {
    pub path: AbsolutePath,
    /// Whether those above it are created, too: yes, unless it says otherwise.
    #[serde(default)]
    pub recursive: Option<bool>,
}

/// Parameters of removing a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Remove {
    #[serde(deserialize_with = "named_itself")]
    pub path: AbsolutePath,
    /// Whether what is in a directory is removed with it: yes, unless it says otherwise.
    #[serde(default)]
    pub recursive: Option<bool>,
    /// Whether it is no error that nothing is there: yes, unless it says otherwise.
    #[serde(default)]
    pub force: Option<bool>,
}

/// Reads the path of something that is named by its own name.
fn named_itself<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AbsolutePath, D::Error> {
    let text = String::deserialize(deserializer)?;
    // Before `..` is taken out of it: then it would be the name of something else.
    check_is_named(Path::new(&text)).map_err(de::Error::custom)?;
    AbsolutePath::deserialize(text.into_deserializer())
}

/// Parameters of copying a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Copy {
    pub source_path: AbsolutePath,
    pub destination_path: AbsolutePath,
    /// Whether directories are copied.
    #[serde(default)]
    pub recursive: bool,
}

/// Parameters of watching a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// The client's name for it.
    pub watch_id: String,
    pub path: AbsolutePath,
}

/// Parameters of watching no more.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unwatch {
    pub watch_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_is_named_itself() {
        for (path, want) in [
            ("/a/b", Ok("/a/b")),
            ("/a/../b/", Ok("/b")),
            ("/a/b/..", Err("ends in `.` or `..`")),
            ("/a/.", Err("ends in `.` or `..`")),
            ("b", Err("is relative")),
        ] {
            let got = serde_json::from_value::<Remove>(serde_json::json!({"path": path}));
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got.path.as_path(), Path::new(want)),
                (Err(got), Err(want)) => assert!(got.to_string().contains(want), "{got}"),
                (got, _) => panic!("{path}: {got:?}"),
            }
        }
    }

    #[test]
    fn paths() {
        for (given, want) in [
            ("/a/b", Some("/a/b")),
            ("/a/./b/../c/", Some("/a/c")),
            ("/../..", Some("/")),
            ("/", Some("/")),
            ("//a//b", Some("/a/b")),
            ("", None),
            ("a", None),
            ("./a", None),
            ("~/a", None),
        ] {
            let got = AbsolutePath::new(Path::new(given)).map(AbsolutePath::into_path);
            assert_eq!(got.as_deref(), want.map(Path::new), "{given}");
        }
    }
}
