//! Combines the tools of the host program with the built-in ones.

use std::collections::HashSet;
use std::sync::Arc;

use runtime::LiveTools;
use tools::{CheckedTool, ForeignTool, HOST_SERVER, Tool, Workspace};

use crate::error::Error;
use crate::tools::{RegistrationError, Tools, checked};

/// The tools that the host program provides to a thread.
#[derive(Default)]
pub(crate) struct HostTools {
    /// Tools of this thread only.
    pub(crate) own: Vec<Box<dyn Tool>>,
    /// Registries, whose tools may change.
    pub(crate) registries: Vec<Tools>,
}

/// Tools of a thread: those that stay, and those that may change.
pub(crate) struct Combined {
    pub(crate) fixed: Vec<Box<dyn Tool>>,
    pub(crate) live: Option<Box<dyn LiveTools>>,
}

/// Combines the tools of the host program with `built_in` ones, which they replace if they have the same name.
///
/// No two tools of the host program may have the same name. A tool that is added to a registry later cannot be refused
/// here: a thread that has a tool of its own with that name does not offer it.
pub(crate) fn combine(
    mut built_in: Vec<Box<dyn Tool>>,
    host: HostTools,
    workspace: &Arc<Workspace>,
) -> Result<Combined, Error> {
    let HostTools { own, registries } = host;
    let mut names = HashSet::new();
    let mut claim = |name: &str, holder| match names.insert(name.to_owned()) {
        true => Ok(()),
        false => {
            let name = name.to_owned();
            Err(Error::settings(RegistrationError::NameTaken { name, holder }))
        }
    };
    let mut own_tools = Vec::new();
    for tool in own {
        let tool = checked(Arc::from(tool)).map_err(Error::settings)?;
        claim(&tool.spec().name, None)?;
        own_tools.push(tool);
    }
    let own_names: HashSet<_> = own_tools.iter().map(|tool| tool.spec().name.clone()).collect();
    for registered in registries.iter().flat_map(Tools::list) {
        claim(&registered.spec.name, Some(registered.handle))?;
    }
    if !own_names.is_empty() {
        // `spec` builds a new value on each call, so it is called only if there are names to compare.
        built_in.retain(|tool| !own_names.contains(&tool.spec().name));
    }
    let foreign = |tool| ForeignTool::new(tool, HOST_SERVER, Arc::clone(workspace));
    built_in.extend(own_tools.into_iter().map(|tool| Box::new(foreign(tool)) as Box<dyn Tool>));
    let live = (!registries.is_empty()).then(|| {
        let workspace = Arc::clone(workspace);
        Box::new(Live { registries, own_names, workspace }) as Box<dyn LiveTools>
    });
    Ok(Combined { fixed: built_in, live })
}

/// The tools of registries that the model of one thread may call.
struct Live {
    registries: Vec<Tools>,
    /// Names of the thread's own tools.
    own_names: HashSet<String>,
    workspace: Arc<Workspace>,
}

impl LiveTools for Live {
    fn version(&self) -> u64 {
        // Each version only grows, so the sum changes whenever one of them does.
        self.registries.iter().map(Tools::version).sum()
    }

    fn current(&self) -> Vec<Arc<dyn Tool>> {
        let tools = self.registries.iter().flat_map(Tools::current);
        let free = |tool: &CheckedTool| !self.own_names.contains(&tool.spec().name);
        let foreign = |tool| ForeignTool::new(tool, HOST_SERVER, Arc::clone(&self.workspace));
        tools.filter(free).map(|tool| Arc::new(foreign(tool)) as Arc<dyn Tool>).collect()
    }
}
