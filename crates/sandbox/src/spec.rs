//! The description of a sandbox that the agent passes to the helper: key-value pairs, each ended by a NUL
//! byte, which no path, argument or variable can contain.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use crate::limits::Limits;
use crate::sandbox::Level;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) level: Level,
    pub(crate) network: bool,
    /// Whether its standard streams are a terminal that it should control.
    pub(crate) terminal: bool,
    /// Directories it may write to.
    pub(crate) writable: Vec<PathBuf>,
    /// What is read-only inside them, whether it exists or not.
    pub(crate) protected: Vec<PathBuf>,
    /// Directories whose files it cannot open.
    pub(crate) hidden: Vec<PathBuf>,
    /// Where guards are locked.
    pub(crate) locks: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) cwd: PathBuf,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) argv: Vec<OsString>,
}

/// Why a text is not a valid description.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpecError {
    /// It is truncated, or a value contains a NUL byte.
    #[error("a part of the command contains a NUL byte")]
    Nul,
    /// It was not written by this version of heddle.
    #[error("the description of the sandbox cannot be read: {0}")]
    Unreadable(&'static str),
}

impl Spec {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, SpecError> {
        let mut text = Vec::new();
        let flag = |set| OsStr::new(if set { "1" } else { "0" });
        push(&mut text, LEVEL, OsStr::new(self.level.name()))?;
        push(&mut text, NETWORK, flag(self.network))?;
        push(&mut text, TERMINAL, flag(self.terminal))?;
        push(&mut text, CWD, self.cwd.as_os_str())?;
        for path in &self.writable {
            push(&mut text, WRITABLE, path.as_os_str())?;
        }
        for path in &self.protected {
            push(&mut text, PROTECTED, path.as_os_str())?;
        }
        for path in &self.hidden {
            push(&mut text, HIDDEN, path.as_os_str())?;
        }
        if let Some(path) = &self.locks {
            push(&mut text, LOCKS, path.as_os_str())?;
        }
        for (key, bound) in
            [(PROCESSES, self.limits.processes), (MEMORY_BYTES, self.limits.memory_bytes)]
        {
            if let Some(bound) = bound {
                push(&mut text, key, OsStr::new(&bound.to_string()))?;
            }
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.as_bytes().contains(&b'=') {
                return Err(SpecError::Unreadable("a variable has no usable name"));
            }
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            push(&mut text, ENV, &pair)?;
        }
        for argument in &self.argv {
            push(&mut text, ARGUMENT, argument)?;
        }
        Ok(text)
    }

    pub(crate) fn decode(text: &[u8]) -> Result<Self, SpecError> {
        let mut spec = Self {
            level: Level::Namespaces,
            network: false,
            terminal: false,
            writable: Vec::new(),
            protected: Vec::new(),
            hidden: Vec::new(),
            locks: None,
            limits: Limits::default(),
            cwd: PathBuf::new(),
            env: Vec::new(),
            argv: Vec::new(),
        };
        let mut level = None;
        let Some(text) = text.strip_suffix(b"\0") else {
            return Err(SpecError::Unreadable("it is cut off"));
        };
        let mut parts = text.split(|byte| *byte == 0);
        while let Some(key) = parts.next() {
            let value = parts.next().ok_or(SpecError::Unreadable("it is cut off"))?;
            let os = || OsString::from_vec(value.to_vec());
            match key {
                LEVEL => level = Level::named(value),
                NETWORK => spec.network = value == b"1",
                TERMINAL => spec.terminal = value == b"1",
                CWD => spec.cwd = os().into(),
                WRITABLE => spec.writable.push(os().into()),
                PROTECTED => spec.protected.push(os().into()),
                HIDDEN => spec.hidden.push(os().into()),
                LOCKS => spec.locks = Some(os().into()),
                PROCESSES => spec.limits.processes = Some(number(value)?),
                MEMORY_BYTES => spec.limits.memory_bytes = Some(number(value)?),
                ENV => {
                    let at = value.iter().position(|byte| *byte == b'=');
                    let at = at.ok_or(SpecError::Unreadable("a variable has no value"))?;
                    let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
                    spec.env.push((part(&value[..at]), part(&value[at + 1..])));
                }
                ARGUMENT => spec.argv.push(os()),
                _ => return Err(SpecError::Unreadable("it has an unknown key")),
            }
        }
        spec.level = level.ok_or(SpecError::Unreadable("it has no level"))?;
        if spec.argv.is_empty() {
            return Err(SpecError::Unreadable("it has no command"));
        }
        Ok(spec)
    }
}

/// A limit that cannot be parsed must not become "unlimited".
fn number(value: &[u8]) -> Result<u64, SpecError> {
    let value = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
    value.ok_or(SpecError::Unreadable("a limit is not a number"))
}

fn push(text: &mut Vec<u8>, key: &[u8], value: &OsStr) -> Result<(), SpecError> {
    if value.as_bytes().contains(&0) {
        return Err(SpecError::Nul);
    }
    text.extend_from_slice(key);
    text.push(0);
    text.extend_from_slice(value.as_bytes());
    text.push(0);
    Ok(())
}

const LEVEL: &[u8] = b"level";
const NETWORK: &[u8] = b"network";
const TERMINAL: &[u8] = b"terminal";
const CWD: &[u8] = b"cwd";
const WRITABLE: &[u8] = b"writable";
const PROTECTED: &[u8] = b"protected";
const LOCKS: &[u8] = b"locks";
const HIDDEN: &[u8] = b"hidden";
const PROCESSES: &[u8] = b"processes";
const MEMORY_BYTES: &[u8] = b"memory-bytes";
const ENV: &[u8] = b"env";
const ARGUMENT: &[u8] = b"argument";

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    use proptest::prelude::*;

    use super::Spec;
    use crate::limits::Limits;
    use crate::sandbox::Level;

    fn text() -> impl Strategy<Value = OsString> {
        proptest::collection::vec(1u8.., 0..8).prop_map(OsString::from_vec)
    }

    proptest! {
        #[test]
        fn specs_round_trip(
            landlock in any::<bool>(),
            network in any::<bool>(),
            terminal in any::<bool>(),
            texts in proptest::collection::vec(text(), 5..12),
            processes in any::<Option<u64>>(),
            memory_bytes in any::<Option<u64>>(),
        ) {
            let level = if landlock { Level::Landlock } else { Level::Namespaces };
            let paths = |from: &[OsString]| from.iter().map(Into::into).collect();
            let spec = Spec {
                level,
                network,
                terminal,
                writable: paths(&texts[..1]),
                protected: paths(&texts[1..2]),
                hidden: paths(&texts[4..5]),
                locks: network.then(|| texts[4].clone().into()),
                limits: Limits { processes, memory_bytes },
                cwd: texts[2].clone().into(),
                env: vec![("NAME".into(), texts[3].clone())],
                argv: texts,
            };
            prop_assert_eq!(Spec::decode(&spec.encode().expect("no NUL")), Ok(spec));
        }

        #[test]
        fn anything_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Spec::decode(&bytes);
        }
    }

    #[test]
    fn a_nul_is_refused() {
        let spec = Spec {
            level: Level::Landlock,
            network: false,
            terminal: false,
            writable: Vec::new(),
            protected: Vec::new(),
            hidden: Vec::new(),
            locks: None,
            limits: Limits::default(),
            cwd: "/".into(),
            env: Vec::new(),
            argv: vec!["echo".into(), "a\0b".into()],
        };
        assert!(spec.encode().is_err());
    }
}
