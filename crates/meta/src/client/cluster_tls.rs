//! TLS to the server of the configuration that a node of the cluster has (`azekura node --serve-config`). Both ends are
//! known by nodes' keys; no name, date or authority counts, but at a machine's first start, which knows no key yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use azekura_base::PeerKey;
use azekura_transport::https::{Https, is_signed_by, peer_of};
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// By what such a server is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownServers {
    /// The keys of nodes, any of which may serve the configuration.
    pub keys: BTreeSet<PeerKey>,
    /// The authority of the cluster that a machine is to join, by its key's fingerprint: who shows a certificate of it
    /// is a node.
    pub authority: Option<PeerKey>,
}

/// What both ends are known by. Clones follow the same keys.
#[derive(Clone, Debug)]
pub struct ClusterTls {
    pub(super) config: Arc<ClientConfig>,
    /// The key that is shown.
    pub(super) own: PeerKey,
    known: watch::Receiver<Arc<KnownServers>>,
}

/// Two are the same if they show the same key.
impl PartialEq for ClusterTls {
    fn eq(&self, other: &ClusterTls) -> bool {
        self.own == other.own
    }
}

impl Eq for ClusterTls {}

impl KnownServers {
    fn knows(&self, key: PeerKey, certificates: &[CertificateDer<'_>]) -> bool {
        self.keys.contains(&key) || self.authority.is_some_and(|authority| is_signed_by(authority, certificates))
    }
}

impl ClusterTls {
    /// Shows the key of `https`, which is called `own`. What is `known` counts for each connection that begins.
    #[must_use]
    pub fn new(https: &Https, own: PeerKey, known: watch::Receiver<Arc<KnownServers>>) -> ClusterTls {
        ClusterTls { config: https.dialling_nodes(), own, known }
    }

    /// Whether what has shown these certificates, and proved the first one's key, is known; the key if not.
    pub(super) fn check(&self, certificates: Option<&[CertificateDer<'_>]>) -> Result<(), Option<PeerKey>> {
        let key = peer_of(certificates);
        match key {
            Some(key) if self.known.borrow().knows(key, certificates.unwrap_or_default()) => Ok(()),
            stranger => Err(stranger),
        }
    }
}
