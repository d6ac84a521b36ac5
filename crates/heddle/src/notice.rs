//! Notices: what a front end should show the user while a thread is opened.

use std::fmt;
use std::sync::Arc;

use protocol::event::Event;
use protocol::repair::Repair;

/// A message for the user that is not an error. The library prints nothing, so the front end shows it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// A setting is unknown or has no effect.
    Setting(String),
    /// The thread's log is damaged, or the thread continues with another model.
    Thread(String),
    /// The history was changed so that the endpoint accepts it; the log on disk is not changed.
    HistoryRepaired(Vec<Repair>),
    /// config.toml defines a provider but does not select one.
    ProviderNotChosen {
        /// A provider that could be selected.
        provider: String,
    },
    /// No API key is set, so a local model is used.
    UsingLocalModel {
        /// Name of the local model.
        model: String,
        /// Whether it is the small model, which is for smoke tests only.
        smoke_test: bool,
        /// Whether commands may write in the working directory, because no sandbox mode was set.
        may_write: bool,
    },
    /// The local daemon is being started.
    DaemonStarting {
        /// Name of the model it will serve.
        model: String,
    },
    /// The daemon is loading its model; progress from 0 to 1.
    DaemonLoading(f32),
    /// The daemon has started or failed to.
    DaemonStarted,
    /// An instructions file (AGENTS.md) was not read, was cut, or is not UTF-8.
    Instructions(String),
}

impl Notice {
    /// Converts it to an event, unless it is only about opening the thread.
    pub fn to_event(&self) -> Option<Event> {
        match self {
            Self::Setting(text) | Self::Thread(text) => Some(Event::Warning(text.clone())),
            Self::HistoryRepaired(repairs) => Some(Event::HistoryRepaired(repairs.clone())),
            _ => None,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(text) | Self::Thread(text) | Self::Instructions(text) => {
                f.write_str(text)
            }
            Self::HistoryRepaired(repairs) => {
                let texts: Vec<_> = repairs.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("\n"))
            }
            Self::ProviderNotChosen { provider } => write!(
                f,
                "config.toml defines the model provider {provider} and chooses none: add \
                 model_provider = \"{provider}\" at its top, or give the setting model_provider=\"{provider}\" to the thread"
            ),
            Self::UsingLocalModel { model, smoke_test, may_write } => {
                let smoke = if *smoke_test {
                    ", which is for smoke tests only (`heddle models pull gpt-oss-20b` gets one for real work)"
                } else {
                    ""
                };
                let write = if *may_write {
                    "; its commands may write in this directory (the sandbox mode read-only forbids it)"
                } else {
                    ""
                };
                write!(f, "OPENAI_API_KEY is not set: using the local model {model}{smoke}{write}")
            }
            Self::DaemonStarting { model } => write!(f, "starting the local daemon with {model}"),
            Self::DaemonLoading(part) => write!(f, "loading the model: {:.0} %", part * 100.0),
            Self::DaemonStarted => f.write_str("the local daemon has started"),
        }
    }
}

/// Receives notices as they occur.
#[derive(Clone)]
pub(crate) struct Observer(Arc<dyn Fn(Notice) + Send + Sync>);

impl Observer {
    pub(crate) fn new(observer: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observer))
    }

    pub(crate) fn tell(&self, notice: Notice) {
        (self.0)(notice);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
