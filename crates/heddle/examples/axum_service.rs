//! A web service: `POST /ask` with a prompt streams the answer as it is written. A client that goes away interrupts its
//! turn.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example axum_service -- 127.0.0.1:8080
//!     curl -N -d "what does this project do?" http://127.0.0.1:8080/ask
#![expect(clippy::print_stdout, reason = "an example prints its results")]
use std::convert::Infallible;
use std::{error::Error, process::ExitCode};

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Router, routing::post};
use futures_util::StreamExt as _;
use heddle::events::{DeltaPart, Event};
use heddle::{Heddle, ThreadSpec};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    heddle::sandbox_helper().map_or_else(serve, Ok)
}

#[tokio::main]
async fn serve() -> Result<ExitCode, Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let service = Router::new().route("/ask", post(ask)).with_state(Heddle::from_env()?);
    axum::serve(listener, service).await?;
    Ok(ExitCode::SUCCESS)
}

/// Answers with the text of a turn. Each request is a thread of its own, which is not kept.
async fn ask(State(heddle): State<Heddle>, prompt: String) -> Response {
    let thread = match heddle.start(ThreadSpec::new().ephemeral(true)).await {
        Ok(thread) => thread,
        Err(error) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
        }
    };
    // The stream owns the turn: when the client has gone, it is dropped, and that interrupts the turn.
    let text = thread.turn(prompt).filter_map(|event| async move {
        match event {
            Event::Delta { part: DeltaPart::Message, text, .. } => Some(text),
            Event::TurnFailed { error, .. } => Some(format!("\nfailed: {}\n", error.message)),
            _ => None,
        }
    });
    Body::from_stream(text.map(Ok::<_, Infallible>)).into_response()
}
