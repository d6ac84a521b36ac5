//! TLS configuration of a client: which certificate authorities are trusted.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

/// Builds the TLS configuration for an endpoint.
///
/// Loading the system's certificates takes longer than a whole turn against a local endpoint, so `encrypted`
/// tells whether they will be needed.
pub(crate) fn config(encrypted: bool) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    if encrypted {
        // The system's own store comes first: companies add their authorities there (also through
        // SSL_CERT_FILE).
        let native = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(native.certs);
        // A bare container has no store; fall back to the well-known public authorities.
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
