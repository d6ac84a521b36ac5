//! The transport that the environment variable `HEDDLE_TRANSPORT` chooses.

use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::error::Error;
use crate::spec::ThreadSpec;
use crate::transport::sealed::Open;
use crate::transport::{
    AppServer, Exec, InProcess, OpenFuture, Program, ServerAddress, Surroundings, Transport,
    TransportError, VARIABLE,
};

/// Returns the transport that a value of [`VARIABLE`] names.
pub(crate) fn transport(value: Option<&str>) -> Result<Arc<dyn Transport>, Error> {
    let value = value.unwrap_or_default();
    match value.split_once(':') {
        _ if value.is_empty() || value == "in-process" => Ok(Arc::new(InProcess)),
        Some(("exec", program)) if !program.is_empty() => Ok(Arc::new(Exec::new(program))),
        Some(("app-server", program)) if !program.is_empty() => {
            let server = Server::Program(program.into());
            Ok(Arc::new(StartedLater { server, started: OnceCell::new() }))
        }
        Some(("unix" | "ws", _)) => {
            let server = Server::Listening(value.parse().map_err(Error::settings)?);
            Ok(Arc::new(StartedLater { server, started: OnceCell::new() }))
        }
        _ => Err(Error::settings(format!(
            "{VARIABLE}={value}: write in-process, exec:PROGRAM, app-server:PROGRAM, \
             unix://PATH or ws://HOST:PORT"
        ))),
    }
}

/// An app-server that is started, or connected to, when the first thread is opened.
#[derive(Debug)]
struct StartedLater {
    server: Server,
    started: OnceCell<AppServer>,
}

#[derive(Debug)]
enum Server {
    Program(Program),
    Listening(ServerAddress),
}

impl Server {
    async fn start(&self) -> Result<AppServer, TransportError> {
        match self {
            Self::Program(program) => AppServer::start(program.clone()).await,
            Self::Listening(address) => AppServer::connect(address.clone()).await,
        }
    }
}

impl Transport for StartedLater {}

impl Open for StartedLater {
    fn open(&self, surroundings: Surroundings, spec: ThreadSpec) -> OpenFuture<'_> {
        Box::pin(async move {
            let start = || self.server.start();
            self.started.get_or_try_init(start).await?.open(surroundings, spec).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |value: &str, want: Result<&str, &str>| match (transport(Some(value)), want) {
            (Ok(transport), Ok(name)) => {
                let shown = format!("{transport:?}");
                assert!(shown.starts_with(name), "{value}: {shown}");
            }
            (Err(error), Err(says)) => assert!(error.to_string().contains(says), "{error}"),
            (got, want) => panic!("{value}: {got:?}, but {want:?}"),
        };
        check("", Ok("InProcess"));
        check("in-process", Ok("InProcess"));
        check("exec:/usr/bin/codex", Ok("Exec"));
        check("app-server:codex", Ok("StartedLater"));
        check("unix:///run/x", Ok("StartedLater"));
        check("ws://localhost:1", Ok("StartedLater"));
        check("ws://localhost", Err("is no address of an app-server"));
        for wrong in ["exec", "exec:", "app-server:", "socket:x", ":", "In-Process"] {
            check(wrong, Err("write in-process, exec:PROGRAM, app-server:PROGRAM"));
        }
    }
}
