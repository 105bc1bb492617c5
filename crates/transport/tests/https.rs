//! Nodes' ends of HTTPS and clients' ends, joined in memory.
#![allow(clippy::unwrap_used)]

use azekura_transport::NodeKey;
use azekura_transport::https::{Authority, Https, Reached, Trust, fingerprint, peer_of, trusting};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConnection};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: i64 = 86_400;

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// Both ends after their handshake, or why there is none.
fn meet(client: Arc<ClientConfig>, server: &Https) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let mut client = ClientConnection::new(client, ServerName::try_from("node").unwrap())?;
    let mut server = ServerConnection::new(server.accepting())?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok((client, server))
}

struct Node {
    https: Https,
    key: NodeKey,
}

fn node() -> Node {
    let key = NodeKey::generate().unwrap();
    Node { https: Https::new(&key).unwrap(), key }
}

fn by_certificate(authority: &Authority) -> Trust {
    Trust::Certificate(authority.pem().to_owned())
}

#[test]
fn a_client_trusts_what_the_authority_has_signed_and_nothing_else() {
    let [right, wrong] = [(); 2].map(|()| Authority::make("c", now()).unwrap());
    assert_eq!(fingerprint(right.pem()).unwrap(), right.fingerprint());
    let node = node();
    let outcome = |trust: &Trust| meet(trusting(trust).unwrap(), &node.https);
    for trust in [by_certificate(&right), Trust::Fingerprint(right.fingerprint())] {
        assert!(outcome(&trust).is_err(), "it has signed its certificate itself");
    }
    let sign = |authority: &Authority, at| authority.sign(&node.key, &Reached::default(), &[], at).unwrap();
    node.https.show(&sign(&right, now()));
    for trust in [by_certificate(&right), Trust::Fingerprint(right.fingerprint())] {
        let (client, server) = outcome(&trust).unwrap();
        assert_eq!(peer_of(client.peer_certificates()), Some(node.key.name().unwrap()));
        assert_eq!(peer_of(server.peer_certificates()), None);
    }
    for trust in [by_certificate(&wrong), Trust::Fingerprint(wrong.fingerprint())] {
        assert!(outcome(&trust).is_err());
    }
    // What has ended, and what has not begun.
    for at in [now() - 31 * DAY, now() + 2 * DAY] {
        node.https.show(&sign(&right, at));
        let refused = outcome(&by_certificate(&right)).unwrap_err().to_string();
        assert!(refused.contains("certificate"), "{refused}");
    }
    node.https.show(&sign(&right, now() + DAY / 2));
    assert!(outcome(&by_certificate(&right)).is_ok(), "clocks differ");
}

/// Who has a node's key and certificate, and signs others with it, is not believed.
#[test]
fn a_nodes_key_is_no_authority() {
    let authority = Authority::make("c", now()).unwrap();
    let node = node();
    let signed = authority.sign(&node.key, &Reached::default(), &[], now()).unwrap();
    // The same name and another key.
    let forger = Authority::make("c", now()).unwrap();
    node.https.show(&forger.sign(&node.key, &Reached::default(), &[authority.pem().to_owned()], now()).unwrap());
    for trust in [by_certificate(&authority), Trust::Fingerprint(authority.fingerprint())] {
        let trust = trusting(&trust).unwrap();
        assert!(meet(Arc::clone(&trust), &node.https).is_err());
        node.https.show(&signed);
        assert!(meet(trust, &node.https).is_ok());
        node.https.show(&forger.sign(&node.key, &Reached::default(), &[authority.pem().to_owned()], now()).unwrap());
    }
}

#[test]
fn who_trusts_an_authority_trusts_those_that_follow() {
    let [first, second, third] = ["c 1", "c 2", "c 3"].map(|name| Authority::make(name, now()).unwrap());
    let stranger = Authority::make("c 1", now()).unwrap();
    let vouched = [first.vouch_for(&second, now()).unwrap(), second.vouch_for(&third, now()).unwrap()];
    let node = node();
    node.https.show(&third.sign(&node.key, &Reached::default(), &vouched, now()).unwrap());
    for (authority, trusted) in [(&first, true), (&second, true), (&third, true), (&stranger, false)] {
        let met = meet(trusting(&by_certificate(authority)).unwrap(), &node.https);
        assert_eq!(met.is_ok(), trusted, "{authority:?}: {:?}", met.err());
    }
    // Without the link between them there is no way from the first to the third.
    node.https.show(&third.sign(&node.key, &Reached::default(), &vouched[1..], now()).unwrap());
    assert!(meet(trusting(&by_certificate(&first)).unwrap(), &node.https).is_err());
}

#[test]
fn nodes_know_each_other_by_their_keys() {
    let (one, two) = (node(), node());
    let (client, server) = meet(one.https.dialling(), &two.https).unwrap();
    assert_eq!(peer_of(client.peer_certificates()), Some(two.key.name().unwrap()));
    assert_eq!(peer_of(server.peer_certificates()), Some(one.key.name().unwrap()));
    assert_eq!(server.alpn_protocol(), Some(&b"http/1.1"[..]));
}
