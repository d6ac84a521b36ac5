//! Parameters of `fs/*`.

use std::path::{Component, Path, PathBuf};

use heddle::disk::check_is_named;
use schemars::JsonSchema;
use serde::de::{self, IntoDeserializer as _};
use serde::{Deserialize, Deserializer};

/// An absolute path without `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(rename = "AbsolutePathBuf")]
pub struct AbsolutePath(PathBuf);

impl AbsolutePath {
    /// Resolves `.` and `..` without looking at the file system, as clients do; `None` if the path is relative.
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
    /// Whether to create its parent directories as well; true by default.
    #[serde(default)]
    pub recursive: Option<bool>,
}

/// Parameters of removing a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Remove {
    #[serde(deserialize_with = "named_itself")]
    pub path: AbsolutePath,
    /// Whether to remove the content of a directory as well; true by default.
    #[serde(default)]
    pub recursive: Option<bool>,
    /// Whether to accept that nothing exists there; true by default.
    #[serde(default)]
    pub force: Option<bool>,
}

/// Reads a path that must not end in `.` or `..`.
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
    /// Whether directories may be copied.
    #[serde(default)]
    pub recursive: bool,
}

/// Parameters of watching a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    pub watch_id: String,
    pub path: AbsolutePath,
}

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
