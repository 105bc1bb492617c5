//! How a client knows a node of its cluster.

use super::{HTTP, crypto};
use crate::ChannelError;
use crate::verifier::{name_of, peer_key};
use azekura_base::PeerKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime, pem::PemObject};
use rustls::server::ParsedCertificate;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Whose certificates count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of the authority with this certificate, in PEM.
    Certificate(String),
    /// Those of the authority whose key has this fingerprint, and which the node shows behind its own certificate.
    Fingerprint(PeerKey),
}

/// The fingerprint of an authority's key, by its certificate in PEM.
///
/// # Errors
/// When that is no certificate.
pub fn fingerprint(pem: &str) -> Result<PeerKey, ChannelError> {
    Ok(peer_key(&read(pem)?)?)
}

/// The name of the key in a certificate or of a public key (SubjectPublicKeyInfo), in PEM.
///
/// # Errors
/// When it is neither.
pub fn key_of_pem(pem: &str) -> Result<PeerKey, ChannelError> {
    if let Ok(certificate) = CertificateDer::from_pem_slice(pem.as_bytes()) {
        return Ok(peer_key(&certificate)?);
    }
    let key = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes());
    let key =
        key.map_err(|error| ChannelError::Key(format!("there is no certificate and no public key in it: {error}")))?;
    Ok(name_of(&key)?)
}

fn read(pem: &str) -> Result<CertificateDer<'static>, ChannelError> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| ChannelError::Key(format!("the certificate is none: {error}")))
}

/// For connections to a node of the cluster with this authority, over HTTPS.
///
/// # Errors
/// When the certificate can't be read.
pub fn trusting(trust: &Trust) -> Result<Arc<ClientConfig>, ChannelError> {
    let crypto = crypto();
    let (fingerprint, known) = match trust {
        Trust::Certificate(pem) => (fingerprint(pem)?, Some(read(pem)?)),
        Trust::Fingerprint(key) => (*key, None),
    };
    let verifier = Signed { fingerprint, known, algorithms: crypto.signature_verification_algorithms };
    let mut client = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    client.alpn_protocols = vec![HTTP.to_vec()];
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    Ok(Arc::new(client))
}

/// Whether the authority whose key has this fingerprint has signed the first of the certificates that the other end of
/// a handshake has shown. That it has this one's key, the handshake has proved.
#[must_use]
pub fn is_signed_by(authority: PeerKey, certificates: &[CertificateDer<'_>]) -> bool {
    let Some((certificate, behind)) = certificates.split_first() else { return false };
    let algorithms = crypto().signature_verification_algorithms;
    let signed = Signed { fingerprint: authority, known: None, algorithms };
    signed.verify(certificate, behind, UnixTime::now()).is_ok()
}

/// Checks that an authority has signed the certificate (RFC 5280, section 6), and nothing of names: all nodes of a
/// cluster may do the same, and many are reached through tunnels or by addresses that they do not know of.
#[derive(Debug)]
struct Signed {
    fingerprint: PeerKey,
    known: Option<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Signed {
    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        behind: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let is_its = |shown: &&CertificateDer<'_>| peer_key(shown).is_ok_and(|key| key == self.fingerprint);
        let authority = self.known.as_ref().or_else(|| behind.iter().find(is_its));
        let authority = authority.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let parsed = ParsedCertificate::try_from(certificate)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, behind, now, self.algorithms.all)
    }
}

impl ServerCertVerifier for Signed {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        behind: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(certificate, behind, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
