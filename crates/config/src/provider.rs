//! Model providers: where they are and how long to wait for them.

use crate::choice::choice;
use crate::error::ConfigError;
use crate::section::{Field, Notes, Read};
use std::collections::BTreeMap;
use stdx::Redacted;

choice! {
    /// The protocol a provider speaks.
    #[derive(Default)]
    pub enum WireApi {
        #[default]
        Responses = "responses",
        Chat = "chat",
    }
}

choice! {
    /// What can be attached to a message besides text.
    pub enum AttachmentKind {
        Images = "images",
        Pdfs = "pdfs",
    }
}

/// `[model_providers.ID]`: where a model is reached and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// A name for display.
    pub name: Option<String>,
    /// The URL that request paths are appended to.
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    pub env_key: Option<String>,
    /// How to get a key, shown when the variable is missing.
    pub env_key_instructions: Option<String>,
    /// A key written into the configuration itself.
    pub experimental_bearer_token: Option<Redacted>,
    /// Headers added to each request.
    pub http_headers: BTreeMap<String, String>,
    /// Headers whose values are read from the environment variables named.
    pub env_http_headers: BTreeMap<String, String>,
    /// Query parameters added to each request.
    pub query_params: BTreeMap<String, String>,
    /// The protocol it speaks.
    pub wire_api: WireApi,
    /// How its model writes calls into text, if the server leaves them there; only for `chat`.
    pub dialect: Option<String>,
    /// Where calls are in the JSON documents that the dialect reads, instead of the default paths.
    pub call_paths: Vec<String>,
    /// Whether calls inside the arguments of calls are additional calls.
    pub calls_in_arguments: bool,
    /// What attached files it takes besides text, if that is not what its protocol usually does.
    pub attachments: Option<Vec<AttachmentKind>>,
    /// How often a request that got no stream is retried; at most [`REQUEST_RETRIES_MAX`].
    pub request_max_retries: u32,
    /// How often a broken stream is retried; at most [`STREAM_RETRIES_MAX`].
    pub stream_max_retries: u32,
    /// How long a stream may be silent, in milliseconds.
    pub stream_idle_timeout_ms: u64,
    /// Whether it uses the key of the built-in provider.
    pub requires_openai_auth: bool,
    /// Whether it also supports WebSockets.
    pub supports_websockets: bool,
}

impl Default for Provider {
    fn default() -> Self {
        Self {
            name: None,
            base_url: None,
            env_key: None,
            env_key_instructions: None,
            experimental_bearer_token: None,
            http_headers: BTreeMap::new(),
            env_http_headers: BTreeMap::new(),
            query_params: BTreeMap::new(),
            wire_api: WireApi::default(),
            dialect: None,
            call_paths: Vec::new(),
            calls_in_arguments: false,
            attachments: None,
            request_max_retries: REQUEST_RETRIES_DEFAULT,
            stream_max_retries: STREAM_RETRIES_DEFAULT,
            stream_idle_timeout_ms: STREAM_IDLE_TIMEOUT_MS_DEFAULT,
            requires_openai_auth: false,
            supports_websockets: false,
        }
    }
}

impl Read for Provider {
    fn read(field: &Field<'_>, notes: &mut Notes) -> Result<Self, ConfigError> {
        let default = Self::default();
        let mut s = field.section(notes)?;
        let provider = Self {
            name: s.value("name")?,
            base_url: s.value("base_url")?,
            env_key: s.value("env_key")?,
            env_key_instructions: s.value("env_key_instructions")?,
            experimental_bearer_token: s
                .value("experimental_bearer_token")?
                .map(|token: String| Redacted::new(token)),
            http_headers: s.or("http_headers", default.http_headers)?,
            env_http_headers: s.or("env_http_headers", default.env_http_headers)?,
            query_params: s.or("query_params", default.query_params)?,
            wire_api: s.or("wire_api", default.wire_api)?,
            dialect: s.value("dialect")?,
            call_paths: s.or("call_paths", default.call_paths)?,
            calls_in_arguments: s.or("calls_in_arguments", false)?,
            attachments: s.value("attachments")?,
            request_max_retries: s
                .value("request_max_retries")?
                .map_or(default.request_max_retries, |n| at_most(n, REQUEST_RETRIES_MAX)),
            stream_max_retries: s
                .value("stream_max_retries")?
                .map_or(default.stream_max_retries, |n| at_most(n, STREAM_RETRIES_MAX)),
            stream_idle_timeout_ms: s
                .or("stream_idle_timeout_ms", default.stream_idle_timeout_ms)?,
            requires_openai_auth: s.or("requires_openai_auth", false)?,
            supports_websockets: s.or("supports_websockets", false)?,
        };
        s.finish();
        Ok(provider)
    }
}

fn at_most(number: u64, max: u32) -> u32 {
    u32::try_from(number).map_or(max, |number| number.min(max))
}

/// Default number of retries of a failed request.
pub const REQUEST_RETRIES_DEFAULT: u32 = 4;
/// Upper limit for the retries of a failed request.
pub const REQUEST_RETRIES_MAX: u32 = 100;
/// Default number of retries of a broken stream.
pub const STREAM_RETRIES_DEFAULT: u32 = 5;
/// Upper limit for the retries of a broken stream.
pub const STREAM_RETRIES_MAX: u32 = 100;
/// Default for how long a stream may be silent, in milliseconds.
pub const STREAM_IDLE_TIMEOUT_MS_DEFAULT: u64 = 300_000;
