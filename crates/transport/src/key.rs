//! A node's key, and what two nodes agree on before they talk.

use crate::https::POINT_BYTES;
use crate::tls::Terms;
use crate::verifier::{KeyVerifier, name_of};
use crate::{Channel, ChannelError, PROTOCOL};
use azekura_base::{Inbox, PeerKey};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self as provider, cipher_suite, kx_group};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A P-256 key with both halves.
pub struct NodeKey(KeyPair);

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey")
    }
}

impl NodeKey {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn generate() -> Result<NodeKey, ChannelError> {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map(NodeKey).map_err(|error| key_error(&error))
    }

    /// The key that [`NodeKey::to_pkcs8`] gave.
    ///
    /// # Errors
    /// When it is none, or one of another kind.
    pub fn from_pkcs8(bytes: &[u8]) -> Result<NodeKey, ChannelError> {
        let bytes = PrivatePkcs8KeyDer::from(bytes);
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&bytes, &PKCS_ECDSA_P256_SHA256);
        key.map(NodeKey).map_err(|error| key_error(&error))
    }

    /// The key as PKCS#8 (RFC 5958) in DER: a secret.
    #[must_use]
    pub fn to_pkcs8(&self) -> Vec<u8> {
        self.0.serialize_der()
    }

    /// The key as PKCS#8 in PEM: a secret.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// The public half, for a certificate.
    ///
    /// # Errors
    /// Never, but for a fault in a library.
    pub fn point(&self) -> Result<[u8; POINT_BYTES], ChannelError> {
        let none = || ChannelError::Key("the public key is not an uncompressed point".to_owned());
        self.0.der_bytes().try_into().map_err(|_| none())
    }

    /// The library's.
    pub(crate) fn pair(&self) -> &KeyPair {
        &self.0
    }

    /// What others know it by.
    ///
    /// # Errors
    /// Never, but for a fault in a library.
    pub fn name(&self) -> Result<PeerKey, ChannelError> {
        Ok(name_of(&self.0.subject_public_key_info())?)
    }
}

fn key_error(error: &rcgen::Error) -> ChannelError {
    ChannelError::Key(error.to_string())
}

/// Whether certificates are in date is nobody's question, so no clock is read.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::ZERO))
    }
}

/// What a node needs to make channels with its key.
#[derive(Clone, Debug)]
pub struct Credentials {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Credentials {
    /// For channels that show this key, in a certificate that it has signed itself.
    ///
    /// # Errors
    /// Never, but for a fault in a library.
    pub fn new(key: &NodeKey) -> Result<Credentials, ChannelError> {
        Credentials::speaking(key, PROTOCOL)
    }

    /// The same for another protocol.
    fn speaking(key: &NodeKey, protocol: &[u8]) -> Result<Credentials, ChannelError> {
        let parameters = CertificateParams::new(Vec::new()).map_err(|error| key_error(&error))?;
        let certificate = parameters.self_signed(&key.0).map_err(|error| key_error(&error))?;
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let secret = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.to_pkcs8()));
        let crypto = Arc::new(CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            kx_groups: vec![kx_group::X25519, kx_group::SECP256R1],
            ..provider::default_provider()
        });
        let verifier = Arc::new(KeyVerifier(crypto.signature_verification_algorithms));
        let mut client = ClientConfig::builder_with_details(Arc::clone(&crypto), Arc::new(NoClock))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
            .with_client_auth_cert(chain.clone(), secret())?;
        client.alpn_protocols = vec![protocol.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_details(crypto, Arc::new(NoClock))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, secret())?;
        server.alpn_protocols = vec![protocol.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.max_early_data_size = 0;
        Ok(Credentials { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The end of a channel that was dialled.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn connect(&self) -> Result<Channel, ChannelError> {
        Channel::client(Arc::clone(&self.client))
    }

    /// The end of a channel that was accepted, when its first bytes have come to `own` already, from where it takes
    /// them.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn accept_begun(&self, own: &mut Inbox) -> Result<Channel, ChannelError> {
        Ok(self.accept()?.begun(own))
    }

    /// The end of a channel that was accepted.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn accept(&self) -> Result<Channel, ChannelError> {
        Channel::server(Arc::clone(&self.server), Terms::Node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Opened;
    use azekura_base::Outbox;

    #[test]
    fn a_key_comes_back_from_its_bytes() {
        let key = NodeKey::generate().unwrap();
        let again = NodeKey::from_pkcs8(&key.to_pkcs8()).unwrap();
        assert_eq!(key.name(), again.name());
        assert_ne!(key.name(), NodeKey::generate().unwrap().name());
        assert_eq!(format!("{key:?}"), "NodeKey", "no secret is shown");
        assert!(matches!(NodeKey::from_pkcs8(b"no key"), Err(ChannelError::Key(_))));
    }

    /// Everything that `from` has to send.
    fn bytes(from: &mut Channel) -> Vec<u8> {
        let mut pieces = Vec::new();
        from.outbox(&mut Outbox::new()).take(&mut pieces, usize::MAX, usize::MAX);
        pieces.concat()
    }

    fn give(to: &mut Channel, bytes: &[u8]) -> Result<Opened, ChannelError> {
        let mut own = Inbox::new();
        let inbox = to.inbox(&mut own);
        let mut fill = inbox.take_fill();
        fill.buf[fill.at..fill.at + bytes.len()].copy_from_slice(bytes);
        inbox.filled(fill, bytes.len());
        to.open(&mut own)
    }

    #[test]
    fn who_speaks_something_else_is_refused_by_either_end() {
        let key = NodeKey::generate().unwrap();
        let (right, wrong) = (Credentials::new(&key).unwrap(), Credentials::speaking(&key, b"azk/4").unwrap());
        for (mut client, mut server) in
            [(right.connect().unwrap(), wrong.accept().unwrap()), (wrong.connect().unwrap(), right.accept().unwrap())]
        {
            client.seal(&mut Outbox::new(), 0).unwrap();
            let refused = give(&mut server, &bytes(&mut client));
            assert!(matches!(&refused, Err(ChannelError::Tls(said)) if said.contains("protocol")), "{refused:?}");
            let told = give(&mut client, &bytes(&mut server));
            assert!(
                matches!(&told, Err(ChannelError::Tls(said)) if said.contains("NoApplicationProtocol")),
                "{told:?}"
            );
        }
        // One that says nothing about it is not taken for a node either.
        let mut silent = ClientConfig::clone(&right.client);
        silent.alpn_protocols = Vec::new();
        let (mut client, mut server) = (Channel::client(Arc::new(silent)).unwrap(), right.accept().unwrap());
        client.seal(&mut Outbox::new(), 0).unwrap();
        give(&mut server, &bytes(&mut client)).unwrap();
        let _ = give(&mut client, &bytes(&mut server));
        assert_eq!(give(&mut server, &bytes(&mut client)), Err(ChannelError::Protocol));
    }

    #[test]
    fn a_client_without_a_certificate_is_refused() {
        let credentials = Credentials::new(&NodeKey::generate().unwrap()).unwrap();
        let crypto = Arc::clone(credentials.client.crypto_provider());
        let verifier = Arc::new(KeyVerifier(crypto.signature_verification_algorithms));
        let mut anonymous = ClientConfig::builder_with_details(crypto, Arc::new(NoClock))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        anonymous.alpn_protocols = vec![PROTOCOL.to_vec()];
        let (mut client, mut server) = (Channel::client(Arc::new(anonymous)).unwrap(), credentials.accept().unwrap());
        client.seal(&mut Outbox::new(), 0).unwrap();
        give(&mut server, &bytes(&mut client)).unwrap();
        give(&mut client, &bytes(&mut server)).unwrap();
        let refused = give(&mut server, &bytes(&mut client));
        assert!(matches!(&refused, Err(ChannelError::Tls(said)) if said.contains("certificate")), "{refused:?}");
        assert_eq!(server.peer(), None);
    }
}
