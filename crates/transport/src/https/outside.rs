//! TLS to servers that are not the cluster's, such as etcd and those of keys: known by the operator's authorities and
//! by their names.

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, InvalidMessage, RootCertStore};
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// What gRPC is spoken over, for ALPN (RFC 9113, 3.2).
pub const HTTP2: &[u8] = b"h2";

/// What this end shows to a server of others, both in PEM.
#[derive(Clone, Copy, Debug)]
pub struct ShownPem<'a> {
    /// The certificate, and those between it and its authority.
    pub certificate: &'a [u8],
    /// Its key: PKCS#8, PKCS#1 or SEC1.
    pub key: &'a [u8],
}

/// Why certificates and keys can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutsideError {
    /// What is to have the authorities' certificates has none.
    #[error("there is no certificate in it that can be an authority's (PEM: BEGIN CERTIFICATE): {0}")]
    Authorities(String),
    /// What is to have this end's certificate has none.
    #[error("there is no certificate in it (PEM: BEGIN CERTIFICATE): {0}")]
    Certificate(String),
    /// What is to have this end's key has none.
    #[error("there is no private key in it (PEM: BEGIN PRIVATE KEY, without a password): {0}")]
    Key(String),
    /// Certificate and key are fine, and not each other's.
    #[error("it is not the key of the certificate")]
    Mismatch,
    /// A fault in a library.
    #[error("{0}")]
    Library(String),
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| error.to_string())?;
    if read.is_empty() { Err("it is empty, or something else".to_owned()) } else { Ok(read) }
}

/// For connections to servers whose certificates one of these authorities (PEM, one or more) has signed, and which are
/// for the name that is dialled. TLS 1.3 and 1.2; `protocols` are those that are offered by ALPN (RFC 7301).
///
/// # Errors
/// When what is given can't be read, or does not belong together.
pub fn outside(
    authorities: &[u8],
    shown: Option<ShownPem<'_>>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, OutsideError> {
    let library = |error: Error| OutsideError::Library(error.to_string());
    let mut roots = RootCertStore::empty();
    let given = certificates(authorities).map_err(OutsideError::Authorities)?;
    // A system's bundle may have some that nobody can use any more.
    if let (0, unusable) = roots.add_parsable_certificates(given) {
        return Err(OutsideError::Authorities(format!("{unusable} of them can't be read")));
    }
    let client = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(library)?
        .with_root_certificates(roots);
    let mut client = match shown {
        None => client.with_no_client_auth(),
        Some(ShownPem { certificate, key }) => {
            let chain = certificates(certificate).map_err(OutsideError::Certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| OutsideError::Key(error.to_string()))?;
            client.with_client_auth_cert(chain, key).map_err(|error| match error {
                Error::InconsistentKeys(_) => OutsideError::Mismatch,
                error => OutsideError::Key(error.to_string()),
            })?
        }
    };
    client.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    client.resumption = Resumption::disabled();
    Ok(Arc::new(client))
}

/// What a handshake with a server of others has failed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutsideRefusal {
    /// The server's certificate is signed by none of the authorities.
    Stranger,
    /// The server's certificate has ended.
    Ended,
    /// The server's certificate is not valid yet.
    Unborn,
    /// The server's certificate is for other names than the one that was dialled.
    OtherName,
    /// The server's certificate is an authority's, or has an old form: nobody can be known by it.
    Unsuitable(String),
    /// The server has sent an alert: it does not take what this end has shown, or misses it.
    Refused(String),
    /// What answers speaks no TLS.
    Plain,
    /// Something else.
    Other(String),
}

impl OutsideRefusal {
    /// What an error of a stream, or of its handshake, was.
    #[must_use]
    pub fn of(error: &io::Error) -> OutsideRefusal {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match inner {
            Some(Error::InvalidCertificate(certificate)) => match certificate {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => OutsideRefusal::Stranger,
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => OutsideRefusal::Ended,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => OutsideRefusal::Unborn,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    OutsideRefusal::OtherName
                }
                other => OutsideRefusal::Unsuitable(other.to_string()),
            },
            Some(Error::AlertReceived(alert)) => OutsideRefusal::Refused(alert_name(*alert)),
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => OutsideRefusal::Plain,
            Some(other) => OutsideRefusal::Other(other.to_string()),
            None => OutsideRefusal::Other(error.to_string()),
        }
    }
}

/// An alert as RFC 8446, 6 calls it.
fn alert_name(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::BadCertificate => "bad certificate".to_owned(),
        AlertDescription::CertificateRequired => "certificate required".to_owned(),
        AlertDescription::CertificateExpired => "certificate expired".to_owned(),
        AlertDescription::CertificateUnknown => "certificate unknown".to_owned(),
        AlertDescription::UnknownCA => "unknown authority".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    /// An authority, and a certificate for a name with its key, all in PEM.
    fn made() -> (String, String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["etcd.example".to_owned()]).unwrap().signed_by(&own, &issuer).unwrap();
        (authority.pem(), leaf.pem(), own.serialize_pem())
    }

    #[test]
    fn what_can_not_be_used_is_told_apart() {
        let (authority, certificate, key) = made();
        let shown = |certificate, key| Some(ShownPem { certificate, key });
        let (ca, own, secret) = (authority.as_bytes(), certificate.as_bytes(), key.as_bytes());
        assert_eq!(super::outside(ca, shown(own, secret), &[HTTP2]).unwrap().alpn_protocols, [HTTP2]);
        fn outside(authorities: &[u8], shown: Option<ShownPem<'_>>) -> Result<Arc<ClientConfig>, OutsideError> {
            super::outside(authorities, shown, &[])
        }
        assert!(outside(ca, None).is_ok());
        assert!(outside([ca, own].concat().as_slice(), None).is_ok(), "several authorities");
        let odd = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(outside([ca, odd].concat().as_slice(), None).is_ok(), "one of several is of no use");
        assert!(matches!(outside(odd, None), Err(OutsideError::Authorities(_))));
        assert!(matches!(outside(b"", None), Err(OutsideError::Authorities(_))));
        assert!(matches!(outside(secret, None), Err(OutsideError::Authorities(_))));
        assert!(matches!(outside(ca, shown(secret, secret)), Err(OutsideError::Certificate(_))));
        assert!(matches!(outside(ca, shown(own, own)), Err(OutsideError::Key(_))));
        let (_, _, other) = made();
        assert_eq!(outside(ca, shown(own, other.as_bytes())).unwrap_err(), OutsideError::Mismatch);
    }

    proptest::proptest! {
        #[test]
        fn nothing_in_a_file_ends_the_program(bytes: Vec<u8>, at: proptest::sample::Index, byte: u8) {
            let (authority, certificate, key) = made();
            for (text, which) in [(&authority, 0), (&certificate, 1), (&key, 2)] {
                let mut altered = text.as_bytes().to_vec();
                let at = at.index(altered.len());
                altered[at] = byte;
                for given in [&altered, &bytes] {
                    let pick = |number: usize, good: &'_ str| {
                        if which == number { given.clone() } else { good.as_bytes().to_vec() }
                    };
                    let (ca, own, secret) = (pick(0, &authority), pick(1, &certificate), pick(2, &key));
                    let _ = outside(&ca, Some(ShownPem { certificate: &own, key: &secret }), &[]);
                }
            }
        }
    }
}
