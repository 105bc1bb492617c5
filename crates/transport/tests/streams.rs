//! Channels of clients that read and write volumes: any key or none, TLS 1.2 and 1.3, and a client that says half of
//! something.
#![allow(clippy::unwrap_used)]

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use azekura_base::{Inbox, Outbox};
use azekura_transport::https::{Https, StreamTls};
use azekura_transport::{Channel, ChannelError, NodeKey, Opened};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{self as provider, cipher_suite};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, DigitallySignedStruct, Error, ProtocolVersion,
    SignatureScheme, SupportedProtocolVersion,
};
use std::io::{Read, Write};
use std::sync::Arc;

/// Trusts everybody; the server is not what is tested here.
#[derive(Debug)]
struct Trusting(CryptoProvider);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A client's end, with a key or without.
fn client(version: &'static SupportedProtocolVersion, key: Option<&rcgen::KeyPair>) -> ClientConnection {
    let mut crypto = provider::default_provider();
    if version.version == ProtocolVersion::TLSv1_3 {
        crypto.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto.clone()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting(crypto)));
    let mut config = match key {
        None => builder.with_no_client_auth(),
        Some(key) => {
            let own = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(key).unwrap();
            let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
            builder.with_client_auth_cert(vec![own.der().clone()], secret).unwrap()
        }
    };
    config.enable_secret_extraction = true;
    ClientConnection::new(Arc::new(config), ServerName::try_from("node").unwrap()).unwrap()
}

fn node() -> StreamTls {
    Https::new(&NodeKey::generate().unwrap()).unwrap().streams()
}

struct Server {
    channel: Channel,
    own_in: Inbox,
    own_out: Outbox,
}

impl Server {
    fn new() -> Server {
        let mut own_in = Inbox::new();
        Server { channel: node().accept_begun(&mut own_in).unwrap(), own_in, own_out: Outbox::new() }
    }

    fn fill(&mut self, bytes: &[u8]) {
        let inbox = self.channel.inbox(&mut self.own_in);
        let mut fill = inbox.take_fill();
        fill.buf[fill.at..fill.at + bytes.len()].copy_from_slice(bytes);
        inbox.filled(fill, bytes.len());
    }

    fn receive(&mut self, bytes: &[u8]) -> Opened {
        bytes.chunks(1000).for_each(|chunk| {
            self.fill(chunk);
            self.channel.open(&mut self.own_in).unwrap();
        });
        self.channel.open(&mut self.own_in).unwrap()
    }

    fn sent(&mut self) -> Vec<u8> {
        self.channel.seal_all(&mut self.own_out).unwrap();
        let mut pieces = Vec::new();
        self.channel.outbox(&mut self.own_out).take(&mut pieces, usize::MAX, usize::MAX);
        pieces.concat()
    }
}

fn meet(client: &mut ClientConnection, server: &mut Server) {
    loop {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server.receive(&bytes);
        let said = server.sent();
        let mut rest = said.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
        if bytes.is_empty() && said.is_empty() {
            return;
        }
    }
}

#[test]
fn any_key_is_proved_and_none_need_be_over_both_versions() {
    let keys = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];
    for version in [&TLS12, &TLS13] {
        let mut pairs: Vec<_> = keys.iter().map(|kind| Some(rcgen::KeyPair::generate_for(kind).unwrap())).collect();
        pairs.push(None);
        for pair in pairs {
            let (mut client, mut server) = (client(version, pair.as_ref()), Server::new());
            assert!(!server.channel.stands());
            meet(&mut client, &mut server);
            assert!(server.channel.stands() && !client.is_handshaking());
            assert_eq!(client.protocol_version(), Some(version.version));
            let expected = pair.map(|pair| {
                let own = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&pair).unwrap();
                azekura_transport::https::key_of_pem(&own.pem()).unwrap()
            });
            assert_eq!(server.channel.peer(), expected);
            client.writer().write_all(b"ask").unwrap();
            server.own_out.put_payload(vec![5; 10_000].into());
            meet(&mut client, &mut server);
            assert_eq!(server.own_in.available(), b"ask");
            let mut heard = vec![0; 10_000];
            client.reader().read_exact(&mut heard).unwrap();
            assert_eq!(heard, vec![5; 10_000]);
        }
    }
}

#[test]
fn what_was_said_before_tls_goes_first_and_does_not_count() {
    let mut own_in = Inbox::new();
    // More than a handshake may be, before TLS.
    for _ in 0..20 {
        let fill = own_in.take_fill();
        own_in.filled(fill, 4096);
        own_in.consume(4096);
    }
    let channel = node().accept_begun(&mut own_in).unwrap();
    let (mut client, mut server) = (client(&TLS13, None), Server { channel, own_in, own_out: Outbox::new() });
    server.own_out.put(b"in clear");
    server.channel.send_first(&mut server.own_out);
    assert_eq!(server.sent(), b"in clear");
    meet(&mut client, &mut server);
    assert!(server.channel.stands());
}

/// A record of TLS 1.3 (RFC 8446, 5.2) as a client would have sealed it, with this number.
fn record(secrets: &ConnectionTrafficSecrets, number: u64, kind: u8, bytes: &[u8]) -> Vec<u8> {
    let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { panic!("another suite") };
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap());
    let mut nonce: [u8; 12] = iv.as_ref().try_into().unwrap();
    nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(byte, by)| *byte ^= by);
    let mut sealed = [bytes, &[kind]].concat();
    let length = (sealed.len() + 16) as u16;
    let header = [&[23, 3, 3][..], &length.to_be_bytes()].concat();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(&header), &mut sealed).unwrap();
    [header, sealed].concat()
}

/// rustls remembers where the half of a message lies, and panics when it is shown nothing there. While a receive is
/// under way there is nothing to show, and the node may have an answer to encrypt.
#[test]
fn half_a_message_does_not_bring_the_node_down() {
    let (mut client, mut server) = (client(&TLS13, None), Server::new());
    meet(&mut client, &mut server);
    let (number, secrets) = client.dangerous_extract_secrets().unwrap().tx;
    // KeyUpdate (RFC 8446, 4.6.3) is one byte, 0: here is half of it, and an answer that is to be sealed.
    server.fill(&record(&secrets, number, 22, &[24, 0, 0]));
    assert!(matches!(server.channel.open(&mut server.own_in), Err(ChannelError::Tls(_))));
    let _fill = server.channel.inbox(&mut server.own_in).take_fill();
    server.own_out.put(b"answer");
    assert!(server.channel.seal_all(&mut server.own_out).is_err() && server.channel.close().is_err());

    // A whole one is welcome.
    let (mut client, mut server) = (self::client(&TLS13, None), Server::new());
    meet(&mut client, &mut server);
    let (number, secrets) = client.dangerous_extract_secrets().unwrap().tx;
    server.receive(&record(&secrets, number, 22, &[24, 0, 0, 1, 0]));
    server.own_out.put(b"answer");
    assert!(server.sent().len() > b"answer".len());
}
