//! Proof that the other end has the key of its certificate.

use aws_lc_rs::digest::{SHA256, digest};
use azekura_base::PeerKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme};

/// Checks that a handshake is signed with the key in the certificate (RFC 8446, 4.4.3), and nothing else: no name, no
/// date, no issuer. Keys are P-256.
#[derive(Debug)]
pub(crate) struct KeyVerifier(pub(crate) WebPkiSupportedAlgorithms);

/// The name of the key in a certificate.
pub(crate) fn peer_key(certificate: &CertificateDer<'_>) -> Result<PeerKey, Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    name_of(parsed.subject_public_key_info().as_ref())
}

/// The name of a key whose SubjectPublicKeyInfo this is.
pub(crate) fn name_of(public_key: &[u8]) -> Result<PeerKey, Error> {
    let hash = digest(&SHA256, public_key);
    let hash = hash.as_ref().try_into().map_err(|_| Error::General("a SHA-256 is not 32 bytes".to_owned()))?;
    Ok(PeerKey(hash))
}

impl KeyVerifier {
    fn proof(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }
}

const OLD: Error = Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13);
const SCHEMES: [SignatureScheme; 1] = [SignatureScheme::ECDSA_NISTP256_SHA256];

impl ServerCertVerifier for KeyVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        peer_key(certificate).map(|_| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(OLD)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.proof(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

impl ClientCertVerifier for KeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        peer_key(certificate).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(OLD)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.proof(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

/// The same for clients: whoever shows a key proves it, of any kind and also over TLS 1.2 (RFC 5246, 7.4.8), and nobody
/// has to show one.
#[derive(Debug)]
pub(crate) struct AnyKey(pub(crate) KeyVerifier);

impl ClientCertVerifier for AnyKey {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        behind: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        ClientCertVerifier::verify_client_cert(&self.0, certificate, behind, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.proof(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.0.supported_schemes()
    }
}
