//! Who may ask the REST API what: every endpoint, without a grant and with every role.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::support::{Node, exchange, start_node};
use azekura_api::Role;
use azekura_api::endpoint::ROUTES;
use azekura_base::{ApiAccess, GrantId, NodeId, SecretHash, Token};
use azekura_control::{draw_secret, hash_of};
use azekura_meta::MetaClient;
use azekura_meta::cluster::SettingsChange;
use azekura_meta::server::EmbeddedServer;
use azekura_meta::time::unix_seconds;
use azekura_model::transitions::keys::take_keys;
use azekura_model::{DEFAULT_PROJECT, GrantKind, GrantRecord, Unknown};
use azekura_transport::NodeKey;
use azekura_transport::https::Https;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

/// A connection over HTTPS on which this key is shown.
fn secured(node: &Node, key: &NodeKey) -> StreamOwned<ClientConnection, TcpStream> {
    let config = Https::new(key).unwrap().dialling();
    let client = ClientConnection::new(config, ServerName::try_from("node").unwrap()).unwrap();
    StreamOwned::new(client, TcpStream::connect(node.api).unwrap())
}

/// One request; its status, and what stands behind the head.
fn ask(stream: impl Read + Write, method: &str, path: &str, headers: &str) -> (u16, String) {
    let (head, body) = exchange(stream, method, path, headers, "{}");
    (head[9..12].parse().unwrap(), body)
}

fn shows(node: &Node, method: &str, path: &str, proof: &str) -> (u16, String) {
    let header = if proof.is_empty() { String::new() } else { format!("Authorization: {proof}\r\n") };
    ask(TcpStream::connect(node.api).unwrap(), method, path, &header)
}

async fn grant(meta: &MetaClient, number: u64, role: Role, until: Option<u64>) -> Token {
    let token = Token { id: GrantId(number), secret: draw_secret().unwrap() };
    let record = GrantRecord {
        name: format!("g{number}"),
        kind: GrantKind::Token,
        hash: hash_of(&token.secret),
        role,
        project: DEFAULT_PROJECT.to_owned(),
        volumes: None,
        host: None,
        until,
        created: String::new(),
        by: "test".to_owned(),
        unknown: Unknown::default(),
    };
    meta.create_grant(token.id, &record).await.unwrap();
    wait(meta, |meta| meta.model().grants.contains_key(&token.id)).await;
    token
}

async fn wait(meta: &MetaClient, mut until: impl FnMut(&MetaClient) -> bool) {
    while !until(meta) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn set_access(node: &Node, access: ApiAccess) {
    let change = SettingsChange { api_access: Some(access), ..SettingsChange::default() };
    node.meta.change_settings(change).await.unwrap();
    wait(&node.meta, |meta| meta.model().settings().api_access == access).await;
}

async fn start(folder: &tempfile::TempDir) -> (EmbeddedServer, Node) {
    let database = folder.path().join("config.redb");
    let server = EmbeddedServer::start(&database, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let node = start_node(&server, "n1").await;
    set_access(&node, ApiAccess::Grants).await;
    (server, node)
}

async fn stop(server: EmbeddedServer, node: Node) {
    node.alive.release().await;
    node.control.stop().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_endpoint_asks_for_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let (server, node) = start(&folder).await;
    let mut tokens = Vec::new();
    for (number, role) in Role::ALL.into_iter().filter(|role| ![Role::Node, Role::Join].contains(role)).enumerate() {
        tokens.push((role, format!("Bearer {}", grant(&node.meta, number as u64, role, None).await.reveal())));
    }
    for route in ROUTES {
        let path = route.path.replace(['{', '}'], "");
        let (method, needs) = (route.method.word(), route.needs);
        let (status, body) = shows(&node, method, &path, "");
        if path == "/v1/health" {
            assert_eq!((status, body.as_str()), (200, ""), "the status alone");
        } else if path == "/v1/ready" {
            assert_eq!((status, body.as_str()), (200, r#"{"ready":true}"#));
        } else {
            assert_eq!(status, 401, "{method} {path}");
            assert_eq!(body, shows(&node, "GET", "/nothing", "").1, "one answer for all: {method} {path}");
        }
        for (role, proof) in &tokens {
            let (status, body) = shows(&node, method, &path, proof);
            assert_eq!(status == 403, !role.may(needs), "{role} asks {method} {path}: {status} {body}");
            assert_ne!(status, 401, "{role} asks {method} {path}");
        }
        let (status, body) = ask(secured(&node, &node.key), method, &path, "");
        assert_eq!(status == 403, !Role::Node.may(needs), "a node asks {method} {path}: {status} {body}");
        assert_ne!(status, 401, "a node asks {method} {path}");
    }
    let (_, admin) = &tokens[0];
    assert_eq!(shows(&node, "GET", "/nothing", admin).0, 404);
    assert_eq!(shows(&node, "OPTIONS", "/v1/volumes", admin).0, 405);
    assert!(shows(&node, "GET", "/v1/health", admin).1.contains("serving"));
    node.configured.store(0, std::sync::atomic::Ordering::Relaxed);
    let (status, body) = shows(&node, "GET", "/v1/ready", "");
    assert_eq!(status, 503, "the node waits for its configuration");
    assert!(body.contains(r#""code":"not_ready""#) && body.contains("hint"), "{body}");
    assert_eq!(shows(&node, "GET", "/v1/health", "").0, 200, "and is alive all the same");
    let stranger = ask(TcpStream::connect(node.api).unwrap(), "OPTIONS", "/v1/volumes", "Host: evil.example\r\n");
    assert_eq!(stranger.0, 401, "whoever shows no grant learns of no method and no name");
    stop(server, node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_grant_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (server, node) = start(&folder).await;
    let good = grant(&node.meta, 1, Role::Admin, None).await;
    let other_grant = grant(&node.meta, 2, Role::Admin, None).await;
    let status = |proof: &str| shows(&node, "GET", "/v1/volumes", proof).0;
    let bearer = |token: &Token| format!("Bearer {}", token.reveal());
    assert_eq!((status(&bearer(&good)), status(&bearer(&other_grant))), (200, 200));
    // Fewer than are slowed.
    let other = draw_secret().unwrap();
    for wrong in [
        bearer(&Token { secret: other.clone(), ..good.clone() }),
        bearer(&Token { id: GrantId(2), ..good.clone() }),
        bearer(&Token { id: GrantId(99), ..good.clone() }),
        format!("Bearer {}", &good.reveal()[..64]),
        format!("{}\r\nAuthorization: {}", bearer(&good), bearer(&good)),
    ] {
        assert_eq!(status(&wrong), 401, "{wrong}");
    }
    assert_eq!(shows(&node, "GET", "/v1/health", "Bearer x").0, 401, "health tells no token from another");
    node.meta.revoke_grant(good.id).await.unwrap();
    wait(&node.meta, |meta| !meta.model().grants.contains_key(&good.id)).await;
    assert_eq!(status(&bearer(&good)), 401);
    assert_eq!(status(&bearer(&other_grant)), 200);
    stop(server, node).await;
}

/// When the grant that ends does so.
fn ending_time(meta: &MetaClient) -> u64 {
    meta.model().grants[&GrantId(2)].until.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_ends_and_an_open_api_minds_the_grants_that_it_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (server, node) = start(&folder).await;
    let ending = grant(&node.meta, 2, Role::Admin, Some(unix_seconds() + 1)).await;
    wait(&node.meta, |meta| unix_seconds() >= ending_time(meta)).await;
    let ending = format!("Bearer {}", ending.reveal());
    assert_eq!(shows(&node, "GET", "/v1/volumes", &ending).0, 401);
    set_access(&node, ApiAccess::Open).await;
    let user = format!("Bearer {}", grant(&node.meta, 3, Role::User, None).await.reveal());
    assert_eq!(shows(&node, "GET", "/v1/nodes", "").0, 200);
    assert_eq!(shows(&node, "GET", "/v1/nodes", &user).0, 403);
    assert_eq!(shows(&node, "GET", "/v1/volumes", &ending).0, 401);
    // A node of which this one has not heard yet; but what nodes alone may have it does not get.
    let unknown = NodeKey::generate().unwrap();
    assert_eq!(ask(secured(&node, &unknown), "GET", "/v1/node/stats", "").0, 200);
    assert_eq!(ask(secured(&node, &unknown), "GET", "/v1/node/authority?number=1", "").0, 403);
    stop(server, node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_local_door_asks_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (server, node) = start(&folder).await;
    let door = || UnixStream::connect(&node.local).unwrap();
    assert_eq!(ask(door(), "GET", "/v1/settings", "").0, 200);
    assert_eq!(ask(door(), "POST", "/v1/settings", "").0, 200);
    assert_eq!(shows(&node, "GET", "/v1/settings", "").0, 401);
    stop(server, node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_proves_its_grant_and_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let (server, node) = start(&folder).await;
    let (owner, stranger) = (NodeKey::generate().unwrap(), NodeKey::generate().unwrap());
    let record = GrantRecord {
        name: "operations".to_owned(),
        kind: GrantKind::Key,
        hash: SecretHash(owner.name().unwrap().0),
        role: Role::Operator,
        project: DEFAULT_PROJECT.to_owned(),
        volumes: None,
        host: None,
        until: None,
        created: String::new(),
        by: "test".to_owned(),
        unknown: Unknown::default(),
    };
    node.meta.create_grant(GrantId(7), &record).await.unwrap();
    wait(&node.meta, |meta| meta.model().grants.contains_key(&GrantId(7))).await;
    let status = |key: &NodeKey, path| ask(secured(&node, key), "GET", path, "").0;
    assert_eq!((status(&owner, "/v1/nodes"), status(&owner, "/v1/grants")), (200, 403));
    assert_eq!(status(&stranger, "/v1/nodes"), 401);
    assert_eq!(status(&node.key, "/v1/node/stats"), 200);
    node.meta.run_known("a test", &node.meta.model(), |records| take_keys(records, NodeId(1))).await.unwrap();
    wait(&node.meta, |meta| meta.model().nodes.values().all(|node| node.keys == Some(Vec::new()))).await;
    assert_eq!(status(&node.key, "/v1/node/stats"), 401, "it is shut out");
    stop(server, node).await;
}
