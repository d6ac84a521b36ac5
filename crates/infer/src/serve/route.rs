//! Routes of the server.

use hyper::Method;
use percent_encoding::percent_decode_str;

use super::problem::Problem;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Responses,
    Chat,
    Models,
    Model(String),
    Health,
    Metrics,
}

impl Route {
    /// Finds the route, with or without the prefix `/v1`.
    pub(crate) fn find(method: &Method, path: &str) -> Result<Self, Problem> {
        let short = path.strip_prefix("/v1").filter(|rest| rest.starts_with('/')).unwrap_or(path);
        let short = short.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(short);
        let (route, allow) = match short {
            "/responses" => (Self::Responses, POST),
            "/chat/completions" => (Self::Chat, POST),
            "/models" => (Self::Models, GET),
            "/health" => (Self::Health, GET),
            "/metrics" => (Self::Metrics, GET),
            _ => match short.strip_prefix("/models/").and_then(decode) {
                Some(id) => (Self::Model(id), GET),
                None => return Err(Problem::not_found(path)),
            },
        };
        let fits = match allow {
            POST => method == Method::POST,
            _ => method == Method::GET || method == Method::HEAD,
        };
        if fits { Ok(route) } else { Err(Problem::method(allow)) }
    }

    /// Returns the name for logs and counters.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Responses => "/v1/responses",
            Self::Chat => "/v1/chat/completions",
            Self::Models => "/v1/models",
            Self::Model(_) => "/v1/models/{id}",
            Self::Health => "/health",
            Self::Metrics => "/metrics",
        }
    }

    /// Tells whether such requests count as using the daemon.
    pub(crate) fn is_work(&self) -> bool {
        matches!(self, Self::Responses | Self::Chat)
    }
}

const GET: &str = "GET, HEAD";
const POST: &str = "POST";

/// Decodes percent escapes.
fn decode(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.is_empty()).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::Route::{self, *};

    #[test]
    fn routes() {
        let (get, post) = (Method::GET, Method::POST);
        let model = |id: &str| Ok(Model(id.to_owned()));
        for (method, path, want) in [
            (&post, "/v1/responses", Ok(Responses)),
            (&post, "/responses/", Ok(Responses)),
            (&get, "/v1/responses", Err(405)),
            (&post, "/chat/completions", Ok(Chat)),
            (&get, "/v1/models", Ok(Models)),
            (&get, "/v1/models/", Ok(Models)),
            (&post, "/v1/models", Err(405)),
            (&get, "/v1/models/a%2Fb%20c", model("a/b c")),
            (&get, "/models/org/name", model("org/name")),
            (&get, "/models/%zz", model("%zz")),
            (&get, "/models/%ff", Err(404)),
            (&get, "/models/%f", model("%f")),
            (&get, "/models/%ff", Err(404)),
            (&Method::HEAD, "/health", Ok(Health)),
            (&get, "/v1/metrics", Ok(Metrics)),
            (&get, "/", Err(404)),
            (&get, "", Err(404)),
            (&get, "*", Err(404)),
            (&get, "/v1", Err(404)),
            (&get, "/v1/v1/models", Err(404)),
            (&get, "/v1health", Err(404)),
        ] {
            let got = Route::find(method, path).map_err(|problem| problem.status.as_u16());
            assert_eq!(got, want, "{method} {path}");
        }
    }
}
