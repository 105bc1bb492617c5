//! TLS of clients that read and write volumes.

use super::server::Shown;
use crate::tls::Terms;
use crate::verifier::{AnyKey, KeyVerifier};
use crate::{Channel, ChannelError};
use azekura_base::Inbox;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self as provider, cipher_suite};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;

/// What a node needs to speak TLS with clients of volumes: TLS 1.3, and 1.2 for protocols that demand it (NBD). It
/// shows what [`Https`](super::Https) shows, and asks for a certificate, which nobody has to have.
#[derive(Clone, Debug)]
pub struct StreamTls(Arc<ServerConfig>);

impl StreamTls {
    pub(super) fn new(shown: Arc<Shown>) -> Result<StreamTls, ChannelError> {
        let crypto = Arc::new(CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            ],
            ..provider::default_provider()
        });
        let verifier = AnyKey(KeyVerifier(crypto.signature_verification_algorithms));
        let mut server = ServerConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(shown);
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.max_early_data_size = 0;
        Ok(StreamTls(Arc::new(server)))
    }

    /// The end of a channel that was accepted, and on whose connection something may have been said before. `own`:
    /// where it was received; what is still there belongs to TLS.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn accept_begun(&self, own: &mut Inbox) -> Result<Channel, ChannelError> {
        Ok(Channel::server(Arc::clone(&self.0), Terms::Anybody)?.begun(own))
    }
}
