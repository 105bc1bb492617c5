//! A client of servers that are not the cluster's, and such servers, joined in memory.
#![allow(clippy::unwrap_used)]

use azekura_transport::https::{HTTP2, OutsideRefusal, ShownPem, outside};
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use time::{Duration, OffsetDateTime};

struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn make() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate for these names, altered, with its key.
    fn sign(&self, names: &[&str], alter: impl FnOnce(&mut CertificateParams)) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        alter(&mut params);
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// For clients of servers that it has signed.
    fn client(&self) -> Arc<ClientConfig> {
        outside(self.certificate.pem().as_bytes(), None, &[HTTP2]).unwrap()
    }
}

/// A server that shows this, and takes clients of that authority alone, if one is given.
fn server((certificate, key): &(Certificate, KeyPair), clients: Option<&Authority>) -> Arc<ServerConfig> {
    let provider = Arc::new(default_provider());
    let server =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let server = match clients {
        None => server.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.certificate.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
            server.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut server = server.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    server.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(server)
}

/// What the client has against the server, or learns that the server has against it.
fn meet(client: Arc<ClientConfig>, server: Arc<ServerConfig>, name: &str) -> Result<(), OutsideRefusal> {
    let refusal = |error| OutsideRefusal::of(&io::Error::new(io::ErrorKind::InvalidData, error));
    let mut client = ClientConnection::new(client, ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    for _ in 0..8 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        // The server's objection reaches the client as an alert.
        let _ = server.process_new_packets();
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().map_err(refusal)?;
        }
    }
    assert!(!client.is_handshaking() && client.alpn_protocol() == Some(b"h2"));
    Ok(())
}

#[test]
fn a_server_is_known_by_its_authority_its_name_and_its_dates() {
    let [right, wrong] = [(); 2].map(|()| Authority::make());
    let day = Duration::days(1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let now = OffsetDateTime::from_unix_timestamp(i64::try_from(now).unwrap()).unwrap();
    let outcome = |shown: &(Certificate, KeyPair), name: &str| meet(right.client(), server(shown, None), name);
    let good = right.sign(&["etcd.example", "10.0.0.1", "fd00::1"], |_| {});
    for name in ["etcd.example", "10.0.0.1", "fd00::1"] {
        assert_eq!(outcome(&good, name), Ok(()), "{name}");
    }
    for name in ["other.example", "10.0.0.2"] {
        assert_eq!(outcome(&good, name), Err(OutsideRefusal::OtherName), "{name}");
    }
    assert_eq!(outcome(&wrong.sign(&["e"], |_| {}), "e"), Err(OutsideRefusal::Stranger));
    let ended = right.sign(&["e"], |params| (params.not_before, params.not_after) = (now - day * 3, now - day));
    assert_eq!(outcome(&ended, "e"), Err(OutsideRefusal::Ended));
    let unborn = right.sign(&["e"], |params| (params.not_before, params.not_after) = (now + day, now + day * 3));
    assert_eq!(outcome(&unborn, "e"), Err(OutsideRefusal::Unborn));
    let authority = right.sign(&["e"], |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    assert!(matches!(outcome(&authority, "e"), Err(OutsideRefusal::Unsuitable(_))));
}

#[test]
fn a_servers_alert_is_told() {
    let [servers, clients, others] = [(); 3].map(|()| Authority::make());
    let shown = servers.sign(&["e"], |_| {});
    let config = server(&shown, Some(&clients));
    let by = |authority: &Authority| {
        let (certificate, key) = authority.sign(&[], |_| {});
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        let shown = ShownPem { certificate: certificate.as_bytes(), key: key.as_bytes() };
        outside(servers.certificate.pem().as_bytes(), Some(shown), &[HTTP2]).unwrap()
    };
    assert_eq!(meet(by(&clients), Arc::clone(&config), "e"), Ok(()));
    for client in [by(&others), servers.client()] {
        let refused = meet(client, Arc::clone(&config), "e").unwrap_err();
        assert!(matches!(refused, OutsideRefusal::Refused(_)), "{refused:?}");
    }
}

#[test]
fn what_is_no_tls_is_told() {
    let mut client = ClientConnection::new(Authority::make().client(), ServerName::try_from("e").unwrap()).unwrap();
    client.read_tls(&mut &b"HTTP/1.1 400 Bad Request\r\n"[..]).unwrap();
    let error = io::Error::new(io::ErrorKind::InvalidData, client.process_new_packets().unwrap_err());
    assert_eq!(OutsideRefusal::of(&error), OutsideRefusal::Plain);
    let reset = io::Error::from(io::ErrorKind::ConnectionReset);
    assert!(matches!(OutsideRefusal::of(&reset), OutsideRefusal::Other(_)));
}
