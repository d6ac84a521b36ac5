//! `heddle app-server`: serves threads to other programs, and describes how to talk to it.
//!
//! The crate `server` does that. This module starts it, and ends it in order: at the end of stdin, at a signal, or when the
//! client on stdin and stdout reads nothing any more.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use heddle::session::given;
use serde_json::Value;
use server::schema;
use server::transport::{self, Access, Ended, Listen, Listener, Token};
use server::{Hub, Options};
use tokio::sync::Notify;

use crate::args::{AppServerArgs, AppServerCommand, SharedArgs};
use crate::failure::{Failure, code};
use crate::host;
use crate::memory;
use crate::signals::{PATIENCE, Signals};
use crate::terminal;

pub(crate) fn run(before: SharedArgs, args: AppServerArgs) -> Result<ExitCode, Failure> {
    if let Some(command) = &args.command {
        return generate(command);
    }
    memory::share_heaps();
    let access = access(&args)?;
    let AppServerArgs { listen, write_timeout, shared, .. } = args;
    let shared = shared.merge_over(before);
    let heddle = host::heddle(shared.directory.as_deref())?;
    let options = Options {
        preferences: shared.preferences(),
        on_notice: |notice| host::print_notice(&notice),
        on_note: notes(),
        write_timeout: Duration::from_secs(write_timeout.into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let done = runtime.block_on(serve(Hub::new(heddle, options), &listen, access));
    // A pending DNS lookup no longer matters.
    runtime.shutdown_background();
    done
}

/// Writes the schemas of the protocol. All of them are made before the first is written.
fn generate(command: &AppServerCommand) -> Result<ExitCode, Failure> {
    let (args, files) = match command {
        AppServerCommand::GenerateJsonSchema(args) => {
            let schemas = schema::json_schemas(args.experimental).into_iter();
            let text = |(path, schema): (String, Value)| (path, format!("{schema:#}\n"));
            (args, schemas.map(text).collect())
        }
        AppServerCommand::GenerateTs(args) => {
            (args, vec![("index.ts".to_owned(), schema::typescript(args.experimental))])
        }
    };
    for (path, text) in &files {
        let path = args.out.join(path);
        replace(&path, text)
            .with_context(|| format!("{} cannot be written: choose another --out", path.display()))
            .map_err(Failure::failed)?;
    }
    let files = match files.len() {
        1 => "1 file is".to_owned(),
        several => format!("{several} files are"),
    };
    terminal::note(&format!("{files} written to {}", args.out.display()));
    Ok(ExitCode::SUCCESS)
}

/// Puts a file in the place of another one, so that nobody reads a part of it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
    let written =
        std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// Returns which programs may connect to a TCP port.
fn access(args: &AppServerArgs) -> Result<Access, Failure> {
    if args.ws_auth.is_none() {
        return Ok(Access::ThisMachine);
    }
    if !matches!(args.listen, Listen::WebSocket(_)) {
        let misplaced = "--ws-auth is for TCP ports (--listen ws://IP:PORT): leave it out";
        return Err(Failure::usage(anyhow!(misplaced)));
    }
    let token = match (&args.ws_token_file, &args.ws_token_sha256) {
        (Some(path), _) => {
            let text = read_token(path).map_err(Failure::usage)?;
            Token::new(&text)
        }
        (None, Some(digest)) => Token::from_digest(digest),
        (None, None) => {
            let missing =
                "--ws-auth needs the token: --ws-token-file FILE or --ws-token-sha256 DIGEST";
            return Err(Failure::usage(anyhow!(missing)));
        }
    };
    Ok(Access::Bearer(token.map_err(Failure::usage)?))
}

fn read_token(path: &Path) -> anyhow::Result<String> {
    given::read_text(path, TOKEN_BYTES_MAX)
        .with_context(|| format!("--ws-token-file {} cannot be read", path.display()))
}

/// Longest file of a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// Returns a function that prints notes to stderr, or drops them if stderr is not read.
fn notes() -> Box<dyn Fn(&str) + Send + Sync> {
    let (sender, notes) = std::sync::mpsc::sync_channel::<String>(NOTES_WAITING_MAX);
    std::thread::spawn(move || notes.iter().for_each(|text| terminal::note(&text)));
    Box::new(move |text| drop(sender.try_send(text.to_owned())))
}

/// Most notes that wait to be printed.
const NOTES_WAITING_MAX: usize = 256;
/// How long printing the last note may take.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Threads that run turns: a turn mostly waits, and one that is busy must not hold up the others.
const WORKERS: usize = 2;

async fn serve(hub: Hub, listen: &Listen, access: Access) -> Result<ExitCode, Failure> {
    let asked_to_end = Arc::new(Notify::new());
    let (stop, commands) = (Arc::clone(&asked_to_end), hub.clone());
    let signals = Signals::start()
        .and_then(|signals| {
            signals.run(move || stop.notify_one(), move || commands.kill_commands())
        })
        .map_err(Failure::failed)?;
    let mut written = None;
    let ended = match listen {
        Listen::Stdio => tokio::select! {
            () = asked_to_end.notified() => None,
            served = transport::stdio(&hub) => {
                let (ended, done) = served.map_err(Failure::failed)?;
                written = Some(done);
                Some(ended)
            }
        },
        address => {
            let listener = Listener::bind(address, access).await.map_err(Failure::usage)?;
            hub.note(&format!("listening on {}", listener.address()));
            tokio::select! {
                () = asked_to_end.notified() => {}
                () = listener.run(&hub) => {}
            }
            None
        }
    };
    // A client that is gone may have left its end of stdout open and unread; nothing waits for that.
    let closing = async {
        hub.shut_down().await;
        if let Some(written) = written {
            let _ = written.await;
        }
    };
    if tokio::time::timeout(PATIENCE, closing).await.is_err() {
        hub.kill_commands();
    }
    Ok(match ended {
        Some(Ended::Disconnected(why)) => {
            hub.note(&format!("{why}; shutting down"));
            // It is printed by another thread, which a client that does not read may hold up.
            tokio::time::sleep(LAST_WORDS).await;
            ExitCode::from(code::FAILED)
        }
        Some(Ended::ByClient) => ExitCode::SUCCESS,
        // SIGTERM is a clean shutdown.
        None => match signals.received() {
            code::TERMINATED => ExitCode::SUCCESS,
            signal => ExitCode::from(signal),
        },
    })
}
