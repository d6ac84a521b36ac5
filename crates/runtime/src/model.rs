//! The interface to a model: one request out, one answer in.
//!
//! [`EndpointModel`] is the implementation for endpoints. A host program can provide its own: the driver
//! knows no API, only the events of an answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::Stream;
use futures_util::stream::unfold;
use protocol::error::SampleError;
use protocol::responses::{Request, StreamEvent, ToolSpec};
use providers::{ByteStream, Client, Secrets};

use crate::decoder::{AnswerDecoder, Reader};
use crate::thread::TextDialect;

/// Answers requests. It makes one attempt and reports the result; retries are done elsewhere.
pub trait Model: Send + Sync {
    /// Called when a new turn starts, to drop state of the last one.
    fn begin_turn(&self) {}

    /// Makes one attempt at a request. It must copy what it needs from the request before it returns.
    ///
    /// Dropping the future, or the answer, cancels the attempt.
    fn sample(&self, request: &Request<'_>) -> SampleFuture<'_>;
}

/// An attempt whose answer has not started.
pub type SampleFuture<'a> =
    Pin<Box<dyn Future<Output = Result<AnswerStream, SampleError>> + Send + 'a>>;

/// A streamed answer. It is complete after [`StreamEvent::Completed`]; nothing after that is read.
pub type AnswerStream = Pin<Box<dyn Stream<Item = Result<AnswerPart, SampleError>> + Send>>;

/// What has arrived of an answer since the last part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerPart {
    /// Number of bytes received, which count towards the limit of an answer.
    pub bytes: u64,
    /// Whether anything arrived, even if only a keep-alive.
    pub heard: bool,
    pub events: Vec<StreamEvent>,
}

impl From<StreamEvent> for AnswerPart {
    fn from(event: StreamEvent) -> Self {
        Self { bytes: 0, heard: true, events: vec![event] }
    }
}

/// A model behind an endpoint.
#[derive(Debug)]
pub struct EndpointModel {
    client: Client,
    dialect: Option<TextDialect>,
    reader: Mutex<Option<Prepared>>,
}

/// How answers are read if these tools are on offer.
#[derive(Clone, Debug)]
struct Prepared {
    tools: Vec<ToolSpec>,
    reader: Arc<Reader>,
}

impl EndpointModel {
    /// Uses an endpoint; `dialect` says how the model writes calls as text, if it does.
    pub fn new(client: Client, dialect: Option<TextDialect>) -> Self {
        Self { client, dialect, reader: Mutex::default() }
    }

    /// Returns the reader for the answer to a request that offers these tools, which seldom differ from the last ones.
    fn reader(&self, tools: &[ToolSpec]) -> Arc<Reader> {
        let mut prepared = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // A summary is requested without tools, and read like any answer.
        let fits = |before: &&Prepared| tools.is_empty() || before.tools == tools;
        if let Some(Prepared { reader, .. }) = prepared.as_ref().filter(fits) {
            return Arc::clone(reader);
        }
        let reader = Reader::new(self.client.wire_api(), self.dialect.as_ref(), tools);
        let reader = Arc::new(reader);
        *prepared = Some(Prepared { tools: tools.to_vec(), reader: Arc::clone(&reader) });
        reader
    }
}

impl Model for EndpointModel {
    fn begin_turn(&self) {
        self.client.begin_turn();
    }

    fn sample(&self, request: &Request<'_>) -> SampleFuture<'_> {
        let body = self.client.encode(request);
        let reader = self.reader(request.tools);
        Box::pin(async move {
            let stream = self.client.open(body).await?;
            let secrets = self.client.secrets();
            let open = Open { stream, decoder: reader.decoder(), secrets };
            let answer = unfold(Reading::Open(Box::new(open)), Reading::next);
            Ok(Box::pin(answer) as AnswerStream)
        })
    }
}

/// The state of reading an answer.
enum Reading {
    Open(Box<Open>),
    /// It broke off, and buffered events have been emitted.
    Broken(SampleError),
    Over,
}

struct Open {
    stream: ByteStream,
    decoder: AnswerDecoder,
    /// What the endpoint may repeat in its errors.
    secrets: Secrets,
}

impl Reading {
    async fn next(self) -> Option<(Result<AnswerPart, SampleError>, Self)> {
        let mut open = match self {
            Self::Open(open) => open,
            Self::Broken(error) => return Some((Err(error), Self::Over)),
            Self::Over => return None,
        };
        let came = open.stream.next().await;
        let Open { stream, decoder, secrets } = &mut *open;
        let (mut events, frames) = (Vec::new(), decoder.frames());
        let (bytes, failure) = match came {
            Ok(Some(bytes)) => {
                let read = decoder.push(&bytes, &mut events);
                (bytes.len(), read.err())
            }
            Ok(None) => (0, Some(decoder.finish(&mut events))),
            Err(error) => {
                decoder.finish(&mut events);
                (0, Some(error))
            }
        };
        let named = |error: SampleError| {
            secrets.mask(error.with_request_id(stream.request_id().map(str::to_owned)))
        };
        for event in &mut events {
            if let StreamEvent::Failed(error) = event {
                *error = named(error.clone());
            }
        }
        let failure = failure.map(named);
        let heard = decoder.frames() > frames;
        if heard {
            stream.heard();
        }
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        let part = AnswerPart { bytes, heard, events };
        Some((Ok(part), failure.map_or(Self::Open(open), Self::Broken)))
    }
}
