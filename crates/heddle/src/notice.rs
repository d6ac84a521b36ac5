//! What a person should know about a thread that is being opened.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::event::Event;
use protocol::repair::Repair;

/// Something worth telling that is no error. A library prints nothing, so a front end has to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// A setting has no effect, or is not known.
    Setting(String),
    /// The log of the thread is damaged, or the thread goes on with another model.
    Thread(String),
    /// The history was changed so that the endpoint takes it; what is on disk stays as it was.
    HistoryRepaired(Vec<Repair>),
    /// config.toml defines a provider and chooses none.
    ProviderNotChosen {
        /// The one that could be chosen.
        provider: String,
    },
    /// There is no key, so a model on this machine is used.
    UsingLocalModel {
        /// Its name.
        model: String,
        /// Whether it is the small one, which is good for nothing but smoke tests.
        smoke_test: bool,
        /// Whether commands may write in the working directory because nobody has said otherwise.
        may_write: bool,
    },
    /// A daemon is being started.
    DaemonStarting {
        /// What it will serve.
        model: String,
    },
    /// The daemon loads its model; the part that is done, from 0 to 1.
    DaemonLoading(f32),
    /// The daemon is there, or has failed.
    DaemonStarted,
    /// A file of instructions is a link out of the repository, so it was not read.
    InstructionsOutside(PathBuf),
}

impl Notice {
    /// Returns it as an event of the thread, if it is about the thread and not about opening it.
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
            Self::Setting(text) | Self::Thread(text) => f.write_str(text),
            Self::HistoryRepaired(repairs) => {
                let texts: Vec<_> = repairs.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("\n"))
            }
            Self::ProviderNotChosen { provider } => write!(
                f,
                "config.toml defines the model provider {provider} and chooses none: add \
                 model_provider = \"{provider}\" at its top, or give -c model_provider={provider}"
            ),
            Self::UsingLocalModel { model, smoke_test, may_write } => {
                let smoke = if *smoke_test {
                    ", which is for smoke tests only (`heddle models pull gpt-oss-20b` gets one for real work)"
                } else {
                    ""
                };
                let write = if *may_write {
                    "; its commands may write in this directory (-s read-only forbids it)"
                } else {
                    ""
                };
                write!(f, "OPENAI_API_KEY is not set: using the local model {model}{smoke}{write}")
            }
            Self::DaemonStarting { model } => write!(f, "starting the local daemon with {model}"),
            Self::DaemonLoading(part) => write!(f, "loading the model: {:.0} %", part * 100.0),
            Self::DaemonStarted => f.write_str("the local daemon has started"),
            Self::InstructionsOutside(path) => write!(
                f,
                "{} is a link out of the repository, so it is not read; put a copy there",
                path.display()
            ),
        }
    }
}

/// Takes notices as they come.
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
