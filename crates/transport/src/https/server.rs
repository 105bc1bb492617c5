//! A node's end of HTTPS.

use super::StreamTls;
use super::authority::Chain;
use super::{HTTP, HTTP2, crypto};
use crate::verifier::{AnyKey, KeyVerifier, peer_key};
use crate::{ChannelError, NodeKey};
use azekura_base::PeerKey;
use rcgen::CertificateParams;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use std::sync::{Arc, PoisonError, RwLock};

/// What a node shows: its key, in a certificate that changes.
#[derive(Debug)]
pub(super) struct Shown {
    key: Arc<dyn SigningKey>,
    now: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Both ends of the cluster's configuration.
#[derive(Clone, Debug)]
struct Ends {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// For connections that are accepted, over TLS 1.3, without tickets and early data: a recorded session can't be played
/// back.
fn accepting(
    crypto: &Arc<CryptoProvider>,
    shown: &Arc<Shown>,
    clients: Arc<dyn ClientCertVerifier>,
    protocol: &[u8],
) -> Result<Arc<ServerConfig>, ChannelError> {
    let mut server = ServerConfig::builder_with_provider(Arc::clone(crypto))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::clone(shown) as _);
    server.alpn_protocols = vec![protocol.to_vec()];
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.max_early_data_size = 0;
    Ok(Arc::new(server))
}

/// What a node needs to speak HTTPS with its key. Clones show the same certificate.
#[derive(Clone, Debug)]
pub struct Https {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    configuration: Ends,
    streams: StreamTls,
    shown: Arc<Shown>,
}

impl Https {
    /// Shows this key, in a certificate that it has signed itself until there is one of the authority.
    ///
    /// # Errors
    /// Never, but for a fault in a library.
    pub fn new(key: &NodeKey) -> Result<Https, ChannelError> {
        let crypto = crypto();
        let fault = |error: rcgen::Error| ChannelError::Key(error.to_string());
        let own = CertificateParams::new(Vec::new()).and_then(|own| own.self_signed(key.pair())).map_err(fault)?;
        let chain: Vec<CertificateDer<'static>> = vec![own.der().clone()];
        let secret = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.to_pkcs8()));
        let signing = crypto.key_provider.load_private_key(secret())?;
        let first = Arc::new(CertifiedKey::new(chain.clone(), Arc::clone(&signing)));
        let shown = Arc::new(Shown { key: signing, now: RwLock::new(first) });
        let algorithms = crypto.signature_verification_algorithms;
        let server = accepting(&crypto, &shown, Arc::new(AnyKey(KeyVerifier(algorithms))), HTTP)?;
        let of_nodes = accepting(&crypto, &shown, Arc::new(KeyVerifier(algorithms)), HTTP2)?;
        let mut client = ClientConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(KeyVerifier(algorithms)))
            .with_client_auth_cert(chain, secret())?;
        client.alpn_protocols = vec![HTTP.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut to_nodes = client.clone();
        to_nodes.alpn_protocols = vec![HTTP2.to_vec()];
        let configuration = Ends { server: of_nodes, client: Arc::new(to_nodes) };
        let streams = StreamTls::new(Arc::clone(&shown))?;
        Ok(Https { server, client: Arc::new(client), configuration, streams, shown })
    }

    /// Shows this chain to whoever connects from now on.
    pub fn show(&self, chain: &Chain) {
        let next = Arc::new(CertifiedKey::new(chain.certificates.clone(), Arc::clone(&self.shown.key)));
        *self.shown.now.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// For connections that are accepted. Whoever shows a key proves it; nobody has to.
    #[must_use]
    pub fn accepting(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// For clients of volumes, to which the same certificate is shown.
    #[must_use]
    pub fn streams(&self) -> StreamTls {
        self.streams.clone()
    }

    /// For connections to other nodes, to which this node's key is shown. The other end proves its key; whether it is
    /// the right one is for the caller to look at ([`peer_of`]), before anything is sent.
    #[must_use]
    pub fn dialling(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// For connections to the configuration that this node serves, over HTTP/2: whoever comes has to show a key and
    /// proves it. Whether it is a node's is for the caller to look at ([`peer_of`]), before anything is answered.
    #[must_use]
    pub fn accepting_nodes(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.configuration.server)
    }

    /// The other end of [`Https::accepting_nodes`], to which this node's key is shown; [`Https::dialling`] says what is
    /// left to the caller.
    #[must_use]
    pub fn dialling_nodes(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.configuration.client)
    }
}

/// The key that the other end has proved, by the certificates that it has shown; `None`: it has shown none.
#[must_use]
pub fn peer_of(certificates: Option<&[CertificateDer<'_>]>) -> Option<PeerKey> {
    certificates.and_then(<[_]>::first).and_then(|certificate| peer_key(certificate).ok())
}
