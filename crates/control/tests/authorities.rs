//! The certificate authority: made once, known to all nodes, replaced while clients ask.
#![allow(clippy::unwrap_used)]

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Kept, Node, start_node};
use azekura_meta::server::EmbeddedServer;
use azekura_transport::https::{Trust, trusting};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection};

/// Whether a handshake with a node's API succeeds.
fn trusts(node: &Node, client: &Arc<ClientConfig>) -> bool {
    let mut client = ClientConnection::new(Arc::clone(client), ServerName::try_from("node").unwrap()).unwrap();
    let mut stream = TcpStream::connect(node.api).unwrap();
    while client.is_handshaking() {
        if client.complete_io(&mut stream).is_err() {
            return false;
        }
    }
    true
}

async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn kept(kept: &Kept, number: u32) -> Option<String> {
    kept.0.lock().unwrap().get(&format!("authority-{number}.pem")).cloned()
}

async fn stop(server: EmbeddedServer, nodes: impl IntoIterator<Item = Node>) {
    for node in nodes {
        node.alive.release().await;
        node.control.stop().await;
    }
    server.stop().await;
}

fn certificate(node: &Node, number: u32) -> Option<String> {
    node.meta.model().authorities.get(&number).map(|authority| authority.certificate.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_are_known_by_one_authority_and_by_those_that_follow() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("config.redb");
    let server = EmbeddedServer::start(&database, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (one, two) = tokio::join!(start_node(&server, "n1"), start_node(&server, "n2"));
    until(|| certificate(&one, 1).is_some()).await;
    let first = trusting(&Trust::Certificate(certificate(&one, 1).unwrap())).unwrap();
    until(|| trusts(&one, &first) && trusts(&two, &first)).await;
    assert_eq!(kept(&one.secrets, 1), kept(&two.secrets, 1), "both have its key");
    let text = format!("{:?}", one.meta.model().authorities);
    assert!(text.contains("CERTIFICATE") && !text.contains("PRIVATE"), "the configuration has no key");

    let mut connection = std::os::unix::net::UnixStream::connect(&two.local).unwrap();
    let request = "POST /v1/authority HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                   Connection: close\r\nContent-Length: 2\r\n\r\n{}";
    std::io::Write::write_all(&mut connection, request.as_bytes()).unwrap();
    let answer = std::io::read_to_string(connection).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    until(|| certificate(&one, 2).is_some()).await;
    let second = trusting(&Trust::Certificate(certificate(&one, 2).unwrap())).unwrap();
    until(|| trusts(&one, &second) && trusts(&two, &second)).await;
    assert!(trusts(&one, &first) && trusts(&two, &first), "who knows the first trusts what it has vouched for");
    // A node that has lost both gets what it needs from the others.
    one.secrets.0.lock().unwrap().clear();
    let three = start_node(&server, "n3").await;
    until(|| trusts(&three, &first) && trusts(&three, &second)).await;
    stop(server, [one, two, three]).await;
}
