//! The cluster's certificate authority.

use crate::verifier::{name_of, peer_key};
use crate::{ChannelError, NodeKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand;
use azekura_base::PeerKey;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm,
    string::Ia5String,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, pem::PemObject};
use std::net::IpAddr;
use time::OffsetDateTime;

/// How long an authority's certificate is valid, days: ten years.
pub const AUTHORITY_DAYS: i64 = 3_653;
/// How long what it signs is valid, days. A node has it signed anew after half of that.
pub const CERTIFICATE_DAYS: i64 = 30;
/// Certificates begin so long before they are made, days: clocks differ.
const BACKDATED_DAYS: i64 = 1;
const DAY: i64 = 86_400;
/// Bytes of a public key of P-256, uncompressed (SEC 1, 2.3.3).
pub const POINT_BYTES: usize = 65;
/// The name of no machine (RFC 2606): it stands in clients' certificates, for where no name is, some programs take the
/// subject's for a machine's.
const NO_MACHINE: &str = "client.invalid";
/// Behind a certificate comes its key.
const KEY_BEGINS: &str = "-----BEGIN PRIVATE KEY";

/// An authority with its key. Every node of the cluster has it: a node may do all that a certificate could say.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    name: String,
    certificate: CertificateDer<'static>,
    pem: String,
    fingerprint: PeerKey,
}

/// Without the key.
impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority {} {}", self.name, self.fingerprint)
    }
}

/// A node's certificate and, behind it, who vouches for its authority, and the authority's own.
#[derive(Clone, Debug)]
pub struct Chain {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    made: i64,
}

impl Chain {
    /// Whether it is time for the next one. `now`: seconds since 1970.
    #[must_use]
    pub fn is_due(&self, now: i64) -> bool {
        // Also where the clock was wrong when it was made.
        !(self.made - BACKDATED_DAYS * DAY..self.made + CERTIFICATE_DAYS * DAY / 2).contains(&now)
    }
}

/// What a node's certificate says of it.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    /// Its name.
    pub name: String,
    /// The names by which it is reached; those that no certificate can have are left out.
    pub names: Vec<String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A client's public key, of P-256.
struct Point([u8; POINT_BYTES]);

impl PublicKeyData for Point {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

fn fault(error: &rcgen::Error) -> ChannelError {
    ChannelError::Key(error.to_string())
}

/// Valid from a day before `now` for so many days.
fn parameters(name: &str, now: i64, days: i64) -> Result<CertificateParams, ChannelError> {
    let at = |seconds: i64| {
        OffsetDateTime::from_unix_timestamp(seconds).map_err(|error| ChannelError::Key(error.to_string()))
    };
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(|_| ChannelError::Key("the system has no randomness to give".to_owned()))?;
    // A positive number of 16 bytes at the most (RFC 5280, 4.1.2.2).
    serial[0] &= 0x7f;
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    let mut parameters = CertificateParams::default();
    parameters.not_before = at(now - BACKDATED_DAYS * DAY)?;
    parameters.not_after = at(now + days * DAY)?;
    parameters.serial_number = Some(SerialNumber::from_slice(&serial));
    parameters.distinguished_name = distinguished_name;
    parameters.use_authority_key_identifier_extension = true;
    Ok(parameters)
}

/// The authority's own parameters: of these its name and uses stand in what it signs.
fn own(name: &str, now: i64) -> Result<CertificateParams, ChannelError> {
    let mut own = parameters(name, now, AUTHORITY_DAYS)?;
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    own.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(own)
}

impl Authority {
    /// A new one with this name, which no other one may have: clients find an issuer by its name. `now`: seconds since
    /// 1970.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn make(name: &str, now: i64) -> Result<Authority, ChannelError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| fault(&error))?;
        let parameters = own(name, now)?;
        let certificate = parameters.self_signed(&key).map_err(|error| fault(&error))?;
        let (pem, certificate) = (certificate.pem(), certificate.der().clone());
        let fingerprint = name_of(&key.subject_public_key_info())?;
        let (issuer, name) = (Issuer::new(parameters, key), name.to_owned());
        Ok(Authority { issuer, name, certificate, pem, fingerprint })
    }

    /// The authority of this name, as [`Authority::secret_pem`] gave it.
    ///
    /// # Errors
    /// When certificate or key can't be read, or they do not belong together.
    pub fn from_pem(name: &str, text: &str) -> Result<Authority, ChannelError> {
        let none = |what, error| ChannelError::Key(format!("there is no {what} in it: {error}"));
        let certificate =
            CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| none("certificate", error))?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|error| none("key", error))?;
        let key =
            KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256).map_err(|error| fault(&error))?;
        let pem = text.find(KEY_BEGINS).map_or(text, |at| &text[..at]).to_owned();
        let fingerprint = name_of(&key.subject_public_key_info())?;
        if peer_key(&certificate)? != fingerprint {
            return Err(ChannelError::Key("it is another certificate's".to_owned()));
        }
        let (issuer, name) = (Issuer::new(own(name, 0)?, key), name.to_owned());
        Ok(Authority { issuer, name, certificate, pem, fingerprint })
    }

    /// The next authority's name and key, signed by this one, in PEM: who trusts this one trusts the next. `now`:
    /// seconds since 1970.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn vouch_for(&self, next: &Authority, now: i64) -> Result<String, ChannelError> {
        let signed = own(&next.name, now)?.signed_by(next.issuer.key(), &self.issuer);
        Ok(signed.map_err(|error| fault(&error))?.pem())
    }

    /// Its certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Its certificate and behind it its key (PKCS#8), in PEM: a secret.
    #[must_use]
    pub fn secret_pem(&self) -> String {
        format!("{}{}", self.pem, self.issuer.key().serialize_pem())
    }

    /// A key for another purpose, which tells nothing of the authority's own: HKDF-SHA256 (RFC 5869) of that in PKCS#8.
    /// Whoever has the authority's key has all of these.
    ///
    /// # Errors
    /// Never, but for a fault in a library.
    pub fn derive(&self, purpose: &str) -> Result<[u8; 32], ChannelError> {
        let mut key = [0; 32];
        let drawn = Salt::new(HKDF_SHA256, b"azekura authority").extract(self.issuer.key().serialized_der());
        let derived = drawn.expand(&[purpose.as_bytes()], HKDF_SHA256).and_then(|all| all.fill(&mut key));
        derived.map(|()| key).map_err(|_| ChannelError::Key("nothing can be derived from it".to_owned()))
    }

    /// What clients may know it by: the SHA-256 of its SubjectPublicKeyInfo.
    #[must_use]
    pub fn fingerprint(&self) -> PeerKey {
        self.fingerprint
    }

    /// Signs a certificate for a node's key. `before`: what authorities before have signed for their next ones, the
    /// oldest first. `now`: seconds since 1970.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn sign(&self, key: &NodeKey, reached: &Reached, before: &[String], now: i64) -> Result<Chain, ChannelError> {
        let Reached { name: node, names, addresses } = reached;
        let names = names.iter().filter_map(|name| Ia5String::try_from(name.as_str()).ok().map(SanType::DnsName));
        let subject_alt_names = names.chain(addresses.iter().copied().map(SanType::IpAddress)).collect();
        let mut parameters = parameters(node, now, CERTIFICATE_DAYS)?;
        parameters.subject_alt_names = subject_alt_names;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let signed = parameters.signed_by(key.pair(), &self.issuer).map_err(|error| fault(&error))?;
        let mut certificates = vec![signed.der().clone()];
        // The newest link first, and the authority's own last: OpenSSL takes the first issuer that fits, and tries no
        // other one.
        certificates.extend(before.iter().rev().filter_map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).ok()));
        certificates.push(self.certificate.clone());
        Ok(Chain { certificates, made: now })
    }

    /// Signs a certificate for a client's public key, in PEM. Programs insist on one that their authority has signed; a
    /// node asks for the key alone, and for its grant. So the certificate is valid for as long as the authority's may
    /// be. It is no node's: it says so, and has no machine's name. `now`: seconds since 1970.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn sign_client(&self, name: &str, point: [u8; POINT_BYTES], now: i64) -> Result<String, ChannelError> {
        let mut parameters = parameters(name, now, AUTHORITY_DAYS)?;
        parameters.subject_alt_names = Ia5String::try_from(NO_MACHINE).ok().map(SanType::DnsName).into_iter().collect();
        // What a key may be used for is not said: programs differ in what they want to find there.
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.signed_by(&Point(point), &self.issuer).map(|signed| signed.pem()).map_err(|error| fault(&error))
    }
}

/// The name of a client's public key, of P-256.
///
/// # Errors
/// Never, but for a fault in a library.
pub fn key_of_point(point: [u8; POINT_BYTES]) -> Result<PeerKey, ChannelError> {
    Ok(name_of(&Point(point).subject_public_key_info())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn an_authority_comes_back_from_its_parts() {
        let made = Authority::make("c1", NOW).unwrap();
        let again = Authority::from_pem("c1", &made.secret_pem()).unwrap();
        assert_eq!((again.pem(), again.fingerprint()), (made.pem(), made.fingerprint()));
        assert!(!format!("{made:?}").contains("PRIVATE"));
        let other = Authority::make("c1", NOW).unwrap();
        assert_ne!(other.fingerprint(), made.fingerprint());
        let key = &other.secret_pem()[other.pem().len()..];
        let mixed = Authority::from_pem("c1", &format!("{}{key}", made.pem())).unwrap_err().to_string();
        assert!(mixed.contains("another certificate's"), "{mixed}");
        for (text, told) in [("no PEM", "no certificate"), (made.pem(), "no key")] {
            let refused = Authority::from_pem("c1", text).unwrap_err().to_string();
            assert!(refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn a_certificate_is_made_anew_after_half_of_its_time() {
        let authority = Authority::make("c1", NOW).unwrap();
        let key = NodeKey::generate().unwrap();
        let names = vec!["n1.example".to_owned(), "n\u{fc}".to_owned()];
        let reached = Reached { name: "n1".to_owned(), names, addresses: vec![[127, 0, 0, 1].into()] };
        let chain = authority.sign(&key, &reached, &[], NOW).unwrap();
        assert!(!chain.is_due(NOW) && !chain.is_due(NOW + 14 * DAY));
        assert!(chain.is_due(NOW + 15 * DAY) && chain.is_due(NOW - 2 * DAY));
    }

    #[test]
    fn a_clients_certificate_has_the_clients_key() {
        let (authority, key) = (Authority::make("c1", NOW).unwrap(), NodeKey::generate().unwrap());
        let pem = authority.sign_client("ann", key.point().unwrap(), NOW).unwrap();
        assert_eq!(super::super::fingerprint(&pem).unwrap(), key.name().unwrap());
        assert_eq!(key_of_point(key.point().unwrap()).unwrap(), key.name().unwrap());
    }
}
