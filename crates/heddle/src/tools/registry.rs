//! [`Tools`]: a registry of tools that threads share, and that may change while the threads run.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::ToolProblem;
use tools::{ArgumentCheck, CheckedTool, Tool, ToolInput, ToolSpec, Withdrawn};

/// Most tools in a registry. Every request carries all of them, and endpoints accept hardly more.
pub const TOOLS_MAX: usize = 256;

/// Tools for the models of threads, which can be added, replaced and removed while the threads run. Cheap to clone; all
/// clones are the same registry.
///
/// A thread that was opened with [`ThreadSpec::tools`](crate::ThreadSpec::tools) offers the tools that the registry has
/// when a request is sent. The calls of the answer go to the tools of that request, even to a tool that was replaced
/// meanwhile; a call that runs is not disturbed. A call of a tool that was removed is not made, and the model reads
/// that the tool is no longer available.
///
/// ```
/// use heddle::ThreadSpec;
/// use heddle::tools::{RegistrationError, Tools, tool_fn};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Nothing {}
///
/// # fn main() -> Result<(), RegistrationError> {
/// let tools = Tools::new();
/// let version = |text: &'static str| {
///     tool_fn("version", "Returns the version of the host.", move |_: Nothing, _| async move { text })
/// };
/// let handle = tools.add(version("1.0"))?;
/// let spec = ThreadSpec::new().tools(&tools);
///
/// assert!(matches!(tools.add(version("1.1")), Err(RegistrationError::NameTaken { .. })));
/// tools.replace(handle, version("1.1"))?;
/// tools.remove(handle)?;
/// assert!(tools.names().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Tools {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they were added.
    entries: Vec<Entry>,
    /// Number of changes so far.
    version: u64,
}

#[derive(Debug)]
struct Entry {
    handle: ToolHandle,
    tool: CheckedTool,
    withdrawn: Withdrawn,
}

/// Identifies one registration of a tool. No other registration in this process ever has the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ToolHandle(u64);

impl ToolHandle {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A tool in a registry.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RegisteredTool {
    /// The handle to replace or remove it with.
    pub handle: ToolHandle,
    /// The description that the tool gave of itself when it was registered.
    pub spec: ToolSpec,
}

/// Why a tool cannot be added, replaced or removed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// The name, the description or the schema of the tool is not usable: correct it.
    #[error("the tool {name:?} cannot be used: its {} {problem}", problem.field())]
    Invalid {
        /// The name of the tool.
        name: String,
        /// What is wrong with its name, description or schema.
        problem: ToolProblem,
    },
    /// Another tool has the same name: rename one of them, or replace the other.
    #[error("there are two tools with the name {name}: rename one, or replace the other")]
    NameTaken {
        /// The name of both.
        name: String,
        /// The other tool, if it is in the same registry.
        holder: Option<ToolHandle>,
    },
    /// The registry has no tool with this handle.
    #[error("the registry has no tool with this handle: it was removed, or is in another registry")]
    UnknownHandle,
    /// The registry already has [`TOOLS_MAX`] tools.
    #[error("the registry has {TOOLS_MAX} tools, which is the limit: remove one")]
    Full,
}

impl Tools {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool after the existing ones.
    pub fn add(&self, tool: impl Tool + 'static) -> Result<ToolHandle, RegistrationError> {
        self.add_shared(Arc::new(tool))
    }

    pub(crate) fn add_shared(&self, tool: Arc<dyn Tool>) -> Result<ToolHandle, RegistrationError> {
        let withdrawn = Withdrawn::default();
        let tool = checked(tool)?.withdrawn_by(withdrawn.clone());
        let mut state = self.lock();
        state.name_is_free(&tool, None)?;
        if state.entries.len() >= TOOLS_MAX {
            return Err(RegistrationError::Full);
        }
        let handle = ToolHandle::next();
        state.entries.push(Entry { handle, tool, withdrawn });
        state.version += 1;
        Ok(handle)
    }

    /// Replaces a tool by another one, which may have another name. Running calls of the old tool finish.
    pub fn replace(
        &self,
        handle: ToolHandle,
        tool: impl Tool + 'static,
    ) -> Result<(), RegistrationError> {
        let tool = checked(Arc::new(tool))?;
        let mut state = self.lock();
        let index = state.find(handle)?;
        state.name_is_free(&tool, Some(handle))?;
        let entry = &mut state.entries[index];
        entry.tool = tool.withdrawn_by(entry.withdrawn.clone());
        state.version += 1;
        Ok(())
    }

    /// Removes a tool. Running calls finish; no new ones are made.
    pub fn remove(&self, handle: ToolHandle) -> Result<(), RegistrationError> {
        let mut state = self.lock();
        let index = state.find(handle)?;
        state.entries.remove(index).withdrawn.set();
        state.version += 1;
        Ok(())
    }

    /// Returns the tool with this name; none if the registry has no such tool.
    pub fn get(&self, name: &str) -> Option<RegisteredTool> {
        self.lock()
            .entries
            .iter()
            .find(|entry| entry.tool.spec().name == name)
            .map(Entry::registered)
    }

    /// Returns all tools, in the order in which they were added.
    pub fn list(&self) -> Vec<RegisteredTool> {
        self.lock().entries.iter().map(Entry::registered).collect()
    }

    /// Returns the names of all tools, in the order in which they were added.
    pub fn names(&self) -> Vec<String> {
        self.lock().entries.iter().map(|entry| entry.tool.spec().name.clone()).collect()
    }

    /// Returns the tools in the form in which they are called.
    pub(crate) fn current(&self) -> Vec<CheckedTool> {
        self.lock().entries.iter().map(|entry| entry.tool.clone()).collect()
    }

    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Ignores poisoning: no code of the host program runs under the lock, so the state is always complete.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&self, handle: ToolHandle) -> Result<usize, RegistrationError> {
        let index = self.entries.iter().position(|entry| entry.handle == handle);
        index.ok_or(RegistrationError::UnknownHandle)
    }

    fn name_is_free(
        &self,
        tool: &CheckedTool,
        instead_of: Option<ToolHandle>,
    ) -> Result<(), RegistrationError> {
        let name = &tool.spec().name;
        let others = self.entries.iter().filter(|entry| Some(entry.handle) != instead_of);
        match others.into_iter().find(|entry| entry.tool.spec().name == *name) {
            None => Ok(()),
            Some(entry) => {
                Err(RegistrationError::NameTaken { name: name.clone(), holder: Some(entry.handle) })
            }
        }
    }
}

impl Entry {
    fn registered(&self) -> RegisteredTool {
        RegisteredTool { handle: self.handle, spec: self.tool.spec().clone() }
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tools").field(&self.names()).finish()
    }
}

/// Checks how a tool describes itself, and prepares to check the arguments of its calls.
pub(crate) fn checked(tool: Arc<dyn Tool>) -> Result<CheckedTool, RegistrationError> {
    let spec = tool.spec();
    match argument_check(&spec) {
        Ok(check) => Ok(CheckedTool::new(tool, spec, check)),
        Err(problem) => Err(RegistrationError::Invalid { name: spec.name, problem }),
    }
}

fn argument_check(spec: &ToolSpec) -> Result<ArgumentCheck, ToolProblem> {
    config::check_tool_name(&spec.name)?;
    config::check_tool_description(&spec.description)?;
    match &spec.input {
        ToolInput::Text(_) => Ok(Arc::new(|_| Ok(()))),
        ToolInput::Json(schema) => {
            let schema = config::check_tool_parameters(schema)?;
            Ok(Arc::new(move |text| schema.check(Some(text)).map_err(|wrong| wrong.to_string())))
        }
    }
}
