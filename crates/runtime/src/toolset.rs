//! The tools of a thread, which may change between requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use engine::{ToolTable, ToolTraits};
use protocol::responses::ToolSpec;
use tools::{Sessions, Tool};

/// Tools that the host program adds and removes while threads are open.
pub trait LiveTools: Send + Sync {
    /// Returns a number that grows with every change.
    fn version(&self) -> u64;

    /// Returns the tools for the next request, in order. They replace tools of the thread that have the same name.
    fn current(&self) -> Vec<Arc<dyn Tool>>;
}

/// The tools of a thread.
pub struct Toolset {
    fixed: Vec<Offered>,
    hosted: Vec<ToolSpec>,
    live: Option<Box<dyn LiveTools>>,
    /// Runs commands of the user's own.
    user_shell: Option<Arc<dyn Tool>>,
    offer: Mutex<Arc<Offer>>,
    /// The running commands of the tools.
    pub(crate) sessions: Arc<Sessions>,
}

/// The tools that a request offers.
pub(crate) struct Offer {
    /// The version of the live tools.
    version: u64,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    specs: Vec<ToolSpec>,
    /// The properties of the tools that the engine needs.
    table: ToolTable,
}

#[derive(Clone)]
struct Offered {
    /// Shared between offers, as schemas are long.
    spec: Arc<tools::ToolSpec>,
    tool: Arc<dyn Tool>,
}

impl From<Arc<dyn Tool>> for Offered {
    fn from(tool: Arc<dyn Tool>) -> Self {
        Self { spec: Arc::new(tool.spec()), tool }
    }
}

/// Two tools of a thread have the same name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are two tools with the name {name}: rename one")]
pub struct TwoTools {
    pub name: String,
}

impl Toolset {
    /// Creates a set of tools, which are offered in this order; tools that the provider runs (`hosted`) come last.
    pub fn new(
        tools: Vec<Box<dyn Tool>>,
        hosted: &[ToolSpec],
        sessions: Arc<Sessions>,
    ) -> Result<Self, TwoTools> {
        let fixed = tools.into_iter().map(|tool| Offered::from(Arc::from(tool)));
        let fixed: Vec<_> = fixed.collect();
        let mut names = BTreeSet::new();
        if let Some(twice) = fixed.iter().find(|tool| !names.insert(&*tool.spec.name)) {
            return Err(TwoTools { name: twice.spec.name.clone() });
        }
        let offer = Offer::new(0, &fixed, Vec::new(), hosted);
        let offer = Mutex::new(Arc::new(offer));
        let hosted = hosted.to_vec();
        Ok(Self { fixed, hosted, live: None, user_shell: None, offer, sessions })
    }

    /// Adds tools that may change between requests.
    #[must_use]
    pub fn with_live(mut self, live: Box<dyn LiveTools>) -> Self {
        let offer = self.offer_of(&*live);
        self.offer = Mutex::new(Arc::new(offer));
        self.live = Some(live);
        self
    }

    /// Lets the user run commands of their own with this tool, which no model is offered.
    #[must_use]
    pub fn with_user_shell(mut self, tool: Arc<dyn Tool>) -> Self {
        self.user_shell = Some(tool);
        self
    }

    pub(crate) fn user_shell(&self) -> Option<Arc<dyn Tool>> {
        self.user_shell.clone()
    }

    /// Returns the offer of the last request; before the first request, that of the first one.
    pub(crate) fn offer(&self) -> Arc<Offer> {
        Arc::clone(&self.offer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the offer of the next request: the same value as before if no tool has changed.
    pub(crate) fn refresh(&self) -> Arc<Offer> {
        let mut offer = self.offer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = self.live.as_deref().filter(|live| live.version() != offer.version) {
            *offer = Arc::new(self.offer_of(live));
        }
        Arc::clone(&offer)
    }

    fn offer_of(&self, live: &dyn LiveTools) -> Offer {
        // The version is read first, so that a change in between is noticed with the next request.
        let version = live.version();
        let current = live.current().into_iter().map(Offered::from).collect();
        Offer::new(version, &self.fixed, current, &self.hosted)
    }
}

impl Offer {
    fn new(version: u64, fixed: &[Offered], live: Vec<Offered>, hosted: &[ToolSpec]) -> Self {
        let list = offered(fixed, live);
        let specs = list.iter().map(|tool| tool.spec.to_wire()).chain(hosted.iter().cloned());
        let specs = specs.collect();
        let traits = |spec: &tools::ToolSpec| ToolTraits { parallel: spec.parallel };
        let table = list.iter().map(|tool| (tool.spec.name.clone(), traits(&tool.spec))).collect();
        let tools = list.into_iter().map(|tool| (tool.spec.name.clone(), tool.tool)).collect();
        Self { version, tools, specs, table }
    }

    /// Returns the descriptions of the tools, in the order of the request.
    pub(crate) fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    pub(crate) fn table(&self) -> &ToolTable {
        &self.table
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.get(name).cloned()
    }
}

/// Merges tools so that no name is offered twice: live ones replace fixed ones, and the first of several live ones counts.
fn offered(fixed: &[Offered], live: Vec<Offered>) -> Vec<Offered> {
    let mut names = BTreeSet::new();
    let mut live = live;
    live.retain(|tool| names.insert(tool.spec.name.clone()));
    let kept = fixed.iter().filter(|tool| !names.contains(&tool.spec.name));
    kept.cloned().chain(live).collect()
}

impl fmt::Debug for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.offer().tools.keys().cloned().collect();
        f.debug_struct("Toolset").field("tools", &names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tools::{Sessions, Tool, ToolContext, ToolFuture, ToolSpec};

    use super::{Offered, Toolset, TwoTools, offered};

    struct Named(String);

    impl Tool for Named {
        fn spec(&self) -> ToolSpec {
            let (name, description) = self.0.split_once(':').unwrap();
            ToolSpec::new(name, description, json!({"type": "object"}))
        }

        fn run<'a>(&'a self, _: ToolContext) -> ToolFuture<'a> {
            Box::pin(async { "".into() })
        }
    }

    fn named(words: &str) -> Vec<Box<dyn Tool>> {
        let tool = |word: &str| Box::new(Named(word.to_owned())) as Box<dyn Tool>;
        words.split_whitespace().map(tool).collect()
    }

    #[test]
    fn no_name_is_offered_twice() {
        for (fixed, live, want) in [
            ("", "", ""),
            ("a:1 b:1", "", "a:1 b:1"),
            ("", "a:2", "a:2"),
            ("a:1 b:1", "c:2", "a:1 b:1 c:2"),
            ("a:1 b:1", "a:2", "b:1 a:2"),
            ("a:1", "b:2 b:3", "a:1 b:2"),
        ] {
            let list = |words| {
                named(words).into_iter().map(|tool| Offered::from(Arc::from(tool))).collect()
            };
            let fixed_list: Vec<_> = list(fixed);
            let got = offered(&fixed_list, list(live));
            let got =
                got.iter().map(|tool| format!("{}:{}", tool.spec.name, tool.spec.description));
            assert_eq!(got.collect::<Vec<_>>().join(" "), want, "{fixed} and {live}");
        }
    }

    #[test]
    fn two_fixed_tools_of_one_name_are_refused() {
        let sessions = Arc::new(Sessions::default());
        let refused = Toolset::new(named("a:1 b:1 a:2"), &[], sessions).unwrap_err();
        assert_eq!(refused, TwoTools { name: "a".to_owned() });
    }
}
