//! Endpoints behind TLS: an authority trusted through `SSL_CERT_FILE`, and untrusted ones.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use testkit::{ModelServer, script};

use crate::run::{Run, exec, lab};

/// A certificate authority made for one test.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn server_for(&self, host: &str) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([host.to_owned()]).unwrap();
        let chain: Vec<CertificateDer<'static>> =
            vec![params.signed_by(&key, &self.issuer).unwrap().into()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap()
    }
}

/// Listens with TLS in front of `model` and returns the port. Its threads end with the test's process.
fn listen(config: ServerConfig, model: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(config);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            // A client that does not trust us disconnects, which some tests expect.
            thread::spawn(move || serve(config, stream, model));
        }
    });
    port
}

/// Forwards one request and its response.
fn serve(config: Arc<ServerConfig>, stream: TcpStream, model: u16) -> io::Result<()> {
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut tls = BufReader::new(StreamOwned::new(connection, stream));
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let start = request.len();
        tls.read_line(&mut request)?;
        let line = request[start..].trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    tls.read_exact(&mut body)?;
    let mut plain = TcpStream::connect(("127.0.0.1", model))?;
    plain.write_all(request.as_bytes())?;
    plain.write_all(&body)?;
    let mut tls = tls.into_inner();
    io::copy(&mut plain, &mut tls)?;
    tls.conn.send_close_notify();
    tls.flush()
}

/// Runs a turn against a server of `authority` for `host`, trusting only `trusted`.
///
/// Without `failure` the turn completes; with it the turn fails quickly, and the message contains it.
#[track_caller]
fn check(authority: &Authority, host: &str, trusted: &Authority, failure: Option<&str>) {
    let model = ModelServer::start(json!([script::response([script::message("hi")])])).unwrap();
    let port = listen(authority.server_for(host), model.port());
    let lab = lab();
    lab.home.write("ca.pem", &trusted.pem).unwrap();
    // With the default retries: an untrusted certificate is not retried.
    lab.home.write("config.toml", testkit::lab::mock_config(0)).unwrap();
    let url = format!("model_providers.mock.base_url=\"https://127.0.0.1:{port}/v1\"");
    let mut command = exec(&lab, &["-c", &url, "say hi"]);
    command.env("SSL_CERT_FILE", lab.home.path().join("ca.pem"));
    let ended = Run::start(command).end();
    let last = ended.events().pop().unwrap();
    let Some(words) = failure else {
        assert_eq!((ended.code, model.requests().len()), (Some(0), 1), "{ended:#?}");
        assert_eq!(last["type"], "turn.completed");
        return;
    };
    assert_eq!((ended.code, model.requests().len()), (Some(1), 0), "{ended:#?}");
    assert_eq!(last["type"], "turn.failed", "{ended:#?}");
    let message = last["error"]["message"].as_str().unwrap();
    for word in ["https://127.0.0.1", "is not trusted", "SSL_CERT_FILE", words] {
        assert!(message.contains(word), "no {word:?} in {message:?}");
    }
    assert!(ended.took < Duration::from_secs(10), "{ended:#?}");
}

#[test]
fn authorities() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    check(&ours, "127.0.0.1", &ours, None);
    check(&ours, "127.0.0.1", &theirs, Some("UnknownIssuer"));
    check(&ours, "other.example", &ours, Some("other.example"));
}
