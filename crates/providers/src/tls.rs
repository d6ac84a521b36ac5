//! The TLS side of a client: which authorities are trusted.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

/// Makes the configuration for an endpoint.
///
/// Loading the machine's certificates takes longer than a whole turn against a local endpoint, so
/// `encrypted` says whether they will be needed at all.
pub(crate) fn config(encrypted: bool) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    if encrypted {
        // The machine's own store first: companies add their authorities there (SSL_CERT_FILE too).
        let native = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(native.certs);
        // A bare container has none; then the well-known public authorities must do.
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
