//! Resolves the configured provider to an endpoint: URL, credentials, headers and dialect.

use std::collections::HashMap;
use std::time::Duration;

use config::{AttachmentKind, Config, Provider, WireApi};
use engine::retry::RetryLimits;
use infer::serve::{PROTOCOL, PROTOCOL_HEADER};
use providers::{Auth, Endpoint, OPENAI_BASE_URL, Socket};
use runtime::{Accepts, TextDialect};
use stdx::Redacted;
use stream::dialect::{Format, Options};
use stream::document::Path;

use crate::error::Error;
use crate::session::local;

/// Id of the built-in provider.
const BUILT_IN: &str = "openai";

/// Advice for users without an API key.
const WITHOUT_A_KEY: &str = "without one, a model can run on this machine: `heddle models pull gpt-oss-20b`, or \
                             `smollm2` to try it out";

/// Idle timeout for the daemon: a long prompt takes long on a slow machine, and a crashed daemon is noticed at once
/// anyway.
const LOCAL_PATIENCE: Duration = Duration::from_secs(3600);

/// A provider with its endpoint and retry limits.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) endpoint: Endpoint,
    pub(crate) retry: RetryLimits,
    pub(crate) dialect: Option<TextDialect>,
    pub(crate) accepts: Accepts,
}

/// Returns the endpoint of the local daemon.
pub(crate) fn local(socket: Socket) -> Resolved {
    let built_in = Provider::default();
    let endpoint = Endpoint {
        name: local::PROVIDER.to_owned(),
        base_url: "http://localhost/v1".to_owned(),
        socket: Some(socket),
        wire_api: providers::WireApi::Responses,
        query: Vec::new(),
        // The version of heddle's own additions to the API. A daemon of another version refuses the request with
        // advice.
        headers: vec![(PROTOCOL_HEADER.to_owned(), Redacted::new(PROTOCOL))],
        auth: Auth::None,
        idle_timeout: LOCAL_PATIENCE,
    };
    let retry = RetryLimits {
        request_max: built_in.request_max_retries,
        stream_max: built_in.stream_max_retries,
    };
    let provider = local::PROVIDER.to_owned();
    let accepts = Accepts { images: false, pdfs: false, provider, can_be_set: false };
    Resolved { endpoint, retry, dialect: None, accepts }
}

/// Returns whether no provider is selected and the built-in one has no API key.
pub(crate) fn lacks_a_key(config: &Config, env: &HashMap<String, String>) -> bool {
    let chosen = config.model_provider.is_some() || config.model_providers.contains_key(BUILT_IN);
    let missing = |resolved: Resolved| matches!(resolved.endpoint.auth, Auth::Missing { .. });
    !chosen && resolve(config, env).is_ok_and(missing)
}

/// Resolves the selected provider, with API keys and headers from the environment.
pub(crate) fn resolve(config: &Config, env: &HashMap<String, String>) -> Result<Resolved, Error> {
    let id = config.model_provider.as_deref().unwrap_or(BUILT_IN);
    let built_in = Provider { requires_openai_auth: true, ..Provider::default() };
    let provider = match config.model_providers.get(id) {
        Some(provider) => provider,
        None if id == BUILT_IN => &built_in,
        None => {
            let mut known: Vec<_> = config.model_providers.keys().map(String::as_str).collect();
            known.extend([BUILT_IN, local::PROVIDER]);
            return Err(Error::settings(format!(
                "model provider `{id}` is not defined: add a [model_providers.{id}] table to \
                 config.toml, or choose one of: {}",
                known.join(", ")
            )));
        }
    };
    let dialect = dialect(id, provider)?;
    let base_url = base_url(id, provider, config, env)?;
    let retry = RetryLimits {
        request_max: provider.request_max_retries,
        stream_max: provider.stream_max_retries,
    };
    let from_env = provider.env_http_headers.iter().filter_map(|(header, variable)| {
        let value = env.get(variable).filter(|value| !value.is_empty())?;
        Some((header.clone(), Redacted::new(value.clone())))
    });
    let fixed = provider.http_headers.iter();
    let endpoint = Endpoint {
        name: id.to_owned(),
        auth: auth(provider, &base_url, env),
        base_url,
        socket: None,
        wire_api: match provider.wire_api {
            WireApi::Responses => providers::WireApi::Responses,
            WireApi::Chat => providers::WireApi::Chat,
        },
        query: provider
            .query_params
            .iter()
            .map(|(name, value)| (name.clone(), Redacted::new(value.clone())))
            .collect(),
        headers: fixed
            .map(|(name, value)| (name.clone(), Redacted::new(value.clone())))
            .chain(from_env)
            .collect(),
        idle_timeout: Duration::from_millis(provider.stream_idle_timeout_ms),
    };
    let accepts = accepts(id, provider, &endpoint.base_url);
    Ok(Resolved { endpoint, retry, dialect, accepts })
}

/// Returns which attachments a provider accepts. Most servers of Chat Completions other than OpenAI's refuse the whole
/// request if it has a PDF.
fn accepts(id: &str, provider: &Provider, base_url: &str) -> Accepts {
    let takes = |kind: AttachmentKind, usually: bool| {
        provider.attachments.as_ref().map_or(usually, |named| named.contains(&kind))
    };
    let pdfs = provider.wire_api == WireApi::Responses || base_url == OPENAI_BASE_URL;
    Accepts {
        images: takes(AttachmentKind::Images, true),
        pdfs: takes(AttachmentKind::Pdfs, pdfs),
        provider: id.to_owned(),
        can_be_set: true,
    }
}

fn dialect(id: &str, provider: &Provider) -> Result<Option<TextDialect>, Error> {
    let set = match provider {
        Provider { call_paths, .. } if !call_paths.is_empty() => Some("call_paths"),
        Provider { calls_in_arguments: true, .. } => Some("calls_in_arguments"),
        _ => None,
    };
    let Some(name) = &provider.dialect else {
        if let Some(setting) = set {
            return Err(Error::settings(format!(
                "model provider `{id}` has `{setting}` without a `dialect` that reads documents: \
                 add dialect = \"toolcall_v2\", or remove it"
            )));
        }
        return Ok(None);
    };
    if provider.wire_api != WireApi::Chat {
        return Err(Error::settings(format!(
            "model provider `{id}` has a `dialect`, which is read only with wire_api = \"chat\": \
             the Responses API sends calls as calls; remove it, or set `wire_api`"
        )));
    }
    match Format::named(name) {
        Some(format) if format.is_of_text() => {
            if let Some(setting) = set.filter(|_| !format.reads_documents()) {
                return Err(Error::settings(format!(
                    "model provider `{id}` has `{setting}`, which the dialect `{name}` does not read: \
                     it has no documents; choose toolcall_v2, legacy_json or auto, or remove it"
                )));
            }
            let paths = provider.call_paths.iter().enumerate().map(|(entry, path)| {
                Path::parse(path).map_err(|error| {
                    let entry = entry + 1;
                    Error::settings(format!(
                        "entry {entry} of `call_paths` of model provider `{id}`: {error}"
                    ))
                })
            });
            // Models sometimes forget to close their reasoning before a call.
            let options = Options {
                tool_call_ends_reasoning: true,
                paths: paths.collect::<Result<_, Error>>()?,
                calls_in_arguments: provider.calls_in_arguments,
                ..Options::default()
            };
            Ok(Some(TextDialect { format, options }))
        }
        Some(_) => Err(Error::settings(format!(
            "the dialect `{name}` of model provider `{id}` is what a provider sends over HTTP, not \
             what a model writes: remove it, or choose another (`heddle debug decode --list`)"
        ))),
        None => Err(Error::settings(format!(
            "the dialect `{name}` of model provider `{id}` is not known; \
             `heddle debug decode --list` names them all"
        ))),
    }
}

/// Returns the environment variables that contain secrets for the selected provider.
pub(crate) fn variables(config: &Config) -> Vec<String> {
    let id = config.model_provider.as_deref().unwrap_or(BUILT_IN);
    let provider = config.model_providers.get(id);
    let key = provider.and_then(|provider| provider.env_key.clone());
    let headers = provider.into_iter().flat_map(|provider| provider.env_http_headers.values());
    key.into_iter().chain(headers.cloned()).collect()
}

fn base_url(
    id: &str,
    provider: &Provider,
    config: &Config,
    env: &HashMap<String, String>,
) -> Result<String, Error> {
    if let Some(base_url) = &provider.base_url {
        return Ok(base_url.clone());
    }
    if !provider.requires_openai_auth {
        return Err(Error::settings(format!(
            "model provider `{id}` has no `base_url`: add the address of its endpoint, such as \
             http://127.0.0.1:8080/v1"
        )));
    }
    let configured = config.openai_base_url.as_ref().or_else(|| env.get("OPENAI_BASE_URL"));
    Ok(configured.filter(|url| !url.is_empty()).map_or(OPENAI_BASE_URL, String::as_str).to_owned())
}

fn auth(provider: &Provider, base_url: &str, env: &HashMap<String, String>) -> Auth {
    let variable = |name: &str| env.get(name).filter(|value| !value.trim().is_empty());
    if let Some(token) = &provider.experimental_bearer_token {
        return Auth::Bearer(token.clone());
    }
    if let Some(name) = &provider.env_key {
        return match variable(name) {
            Some(key) => Auth::Bearer(Redacted::new(key.trim())),
            None => Auth::Missing {
                variable: name.clone(),
                instructions: provider.env_key_instructions.clone(),
            },
        };
    }
    if !provider.requires_openai_auth {
        return Auth::None;
    }
    match variable("CODEX_API_KEY").or_else(|| variable("OPENAI_API_KEY")) {
        Some(key) => Auth::Bearer(Redacted::new(key.trim())),
        // Other endpoints may need no key; OpenAI's does.
        None if base_url != OPENAI_BASE_URL => Auth::None,
        None => Auth::Missing {
            variable: "OPENAI_API_KEY".to_owned(),
            instructions: Some(WITHOUT_A_KEY.to_owned()),
        },
    }
}
