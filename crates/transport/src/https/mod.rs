//! TLS for HTTP and for clients of volumes: the same keys, and a certificate authority for those who can't read the
//! cluster's configuration.
//!
//! - `authority`: the cluster's certificate authority, and what it signs for nodes and for clients.
//! - `server`: what a node shows to whoever asks its API, and how it asks others; `streams`: the same for clients of
//!   volumes.
//! - `trust`: how a client knows a node of its cluster.
//! - `outside`: servers that are not the cluster's, such as etcd.
//!
//! Between nodes no certificate counts: a key is in a node's record or is not (docs/decisions/0037-who-may.md). Clients
//! know the authority; names in certificates are for programs that insist on them, such as browsers.

mod authority;
mod outside;
mod server;
mod streams;
mod trust;

pub use authority::{AUTHORITY_DAYS, Authority, CERTIFICATE_DAYS, Chain, POINT_BYTES, Reached, key_of_point};
pub use outside::{HTTP2, OutsideError, OutsideRefusal, ShownPem, outside};
pub use server::{Https, peer_of};
pub use streams::StreamTls;
pub use trust::{Trust, fingerprint, is_signed_by, key_of_pem, trusting};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self as provider, cipher_suite};
use std::sync::Arc;

/// What is spoken over HTTPS (ALPN).
const HTTP: &[u8] = b"http/1.1";

/// TLS 1.3 alone, and what every browser knows of it.
fn crypto() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..provider::default_provider()
    })
}
