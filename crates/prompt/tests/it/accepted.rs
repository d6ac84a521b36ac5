//! Every request in `tests/data` parses to what is next to it. To add a case, add a `.json` file and run with
//! `UPDATE=1`. Files named after the reference are requests as it
//! sends them, with other texts.

#![expect(
    clippy::disallowed_methods,
    reason = "test cases are files; only the crate itself does no I/O"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prompt::reply::Api;
use prompt::request::Request;

use crate::{BOTH, folder, read};

/// Returns the requests of an API, by file.
pub(crate) fn requests(api: Api) -> Vec<(PathBuf, Vec<u8>)> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder(api));
    let files = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let mut requests: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    requests.sort();
    assert!(!requests.is_empty());
    requests
}

#[test]
fn requests_parse_as_expected() {
    for api in BOTH {
        for (path, body) in requests(api) {
            let got =
                render(&read(api, &body).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
            let expected = path.with_extension("request");
            if env::var_os("UPDATE").is_some() {
                fs::write(&expected, &got).unwrap();
            }
            assert_eq!(fs::read_to_string(&expected).unwrap(), got, "{}", path.display());
        }
    }
}

fn render(request: &Request) -> String {
    let Request { messages, tools, left_out, metadata, .. } = request;
    let mut text = String::new();
    let Request { model, choice, parallel_calls, format, sampling, .. } = request;
    writeln!(text, "{model:?} {choice:?} parallel {parallel_calls} {format:?}").unwrap();
    let Request { output_tokens_max, effort, stop, stream, stream_usage, cache_key, .. } = request;
    writeln!(text, "{output_tokens_max:?} {effort:?} {stop:?} {cache_key:?}").unwrap();
    writeln!(text, "stream {stream} usage {stream_usage} {sampling:?}").unwrap();
    writeln!(text, "{:?}", request.asked).unwrap();
    writeln!(text, "{left_out:?} {}", serde_json::to_string(metadata).unwrap()).unwrap();
    for message in messages {
        writeln!(text, "{message:?}").unwrap();
    }
    for tool in tools {
        writeln!(text, "{tool:?}").unwrap();
    }
    text
}
