//! A request that comes with a key is carried out once, whoever is asked and however often.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::{GIB, Node, exchange, start_nodes};
use azekura_api::Method;
use azekura_api::endpoint::ROUTES;
use serde_json::{Value, json};

/// What came back.
#[derive(Debug, PartialEq)]
struct Answered {
    status: u16,
    replayed: bool,
    body: Value,
}

/// One request with a key.
fn ask(stream: impl Read + Write, method: &str, path: &str, key: &str, body: &Value) -> Answered {
    let headers = format!("Idempotency-Key: {key}\r\n");
    let (head, body) = exchange(stream, method, path, &headers, &body.to_string());
    let replayed = head.to_ascii_lowercase().contains("azekura-replayed: true");
    Answered { status: head[9..12].parse().unwrap(), replayed, body: serde_json::from_str(&body).unwrap_or_default() }
}

fn post(api: SocketAddr, path: &str, key: &str, body: &Value) -> Answered {
    ask(TcpStream::connect(api).unwrap(), "POST", path, key, body)
}

fn delete(api: SocketAddr, path: &str, key: &str) -> Answered {
    ask(TcpStream::connect(api).unwrap(), "DELETE", path, key, &json!({}))
}

/// The class that the volumes are in.
fn make_class(node: &Node) {
    let class = json!({ "name": "c", "copies": 1, "failure_domain": "device" });
    assert_eq!(post(node.api, "/v1/classes", "class", &class).status, 201);
}

async fn changes(node: &Node) -> usize {
    node.meta.audit("", 1_000).await.unwrap().records.len()
}

fn code(answered: &Answered) -> (u16, &str) {
    (answered.status, answered.body["code"].as_str().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_carried_out_is_answered_again_by_any_node() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, nodes) = start_nodes(&folder, &["n1", "n2"]).await;
    let (one, two) = (&nodes[0], &nodes[1]);
    make_class(one);
    let volume = json!({ "name": "v", "size_bytes": GIB, "class": "c" });
    let made = post(one.api, "/v1/volumes", "key-1", &volume);
    assert_eq!((made.status, made.replayed, &made.body["name"]), (201, false, &json!("v")), "{made:?}");
    let before = changes(one).await;
    for key in ["key-1", "\"key-1\""] {
        let again = post(two.api, "/v1/volumes", key, &volume);
        assert_eq!(again, Answered { replayed: true, ..Answered { body: made.body.clone(), ..again } });
        assert_eq!(again.status, 201);
    }
    // The same volume under another key is there already; another request under this key is refused.
    assert_eq!(code(&post(two.api, "/v1/volumes", "key-2", &volume)), (409, "exists"));
    let other = json!({ "name": "w", "size_bytes": GIB, "class": "c" });
    assert_eq!(code(&post(two.api, "/v1/volumes", "key-1", &other)), (422, "refused"));
    assert_eq!(code(&delete(two.api, "/v1/volumes/v", "key-1")), (422, "refused"));
    assert_eq!(changes(one).await, before, "nothing was changed by any of them");
    // Whoever has come through another door has keys of his own.
    let own = ask(UnixStream::connect(&one.local).unwrap(), "POST", "/v1/volumes", "key-1", &other);
    assert_eq!((own.status, own.replayed), (201, false), "{own:?}");
    // What has no body, and what was deleted.
    let gone = delete(one.api, "/v1/volumes/w", "key-3");
    assert_eq!((gone.status, gone.replayed), (204, false), "{gone:?}");
    let again = delete(two.api, "/v1/volumes/w", "key-3");
    assert_eq!((again.status, again.replayed, again.body), (204, true, Value::Null));
    assert_eq!(code(&delete(two.api, "/v1/volumes/w", "key-4")), (404, "not_found"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_may_be_asked_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, nodes) = start_nodes(&folder, &["n1", "n2"]).await;
    let volume = json!({ "name": "v", "size_bytes": GIB, "class": "c" });
    assert_eq!(code(&post(nodes[0].api, "/v1/volumes", "key", &volume)), (404, "not_found"));
    make_class(&nodes[0]);
    let made = post(nodes[1].api, "/v1/volumes", "key", &volume);
    assert_eq!((made.status, made.replayed), (201, false), "{made:?}");
    // To look changes nothing, with a key or without one.
    let seen = ask(TcpStream::connect(nodes[0].api).unwrap(), "GET", "/v1/volumes/v", "key", &json!({}));
    assert_eq!((seen.status, seen.replayed), (200, false));
    assert_eq!(code(&post(nodes[0].api, "/v1/volumes", "a key", &volume)), (400, "malformed"));
    let between = ROUTES.iter().find(|route| route.method != Method::Get && !route.takes_idempotency_key()).unwrap();
    assert!(between.path.starts_with("/v1/node/") || between.path == "/v1/join", "{between:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_one_is_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, nodes) = start_nodes(&folder, &["n1", "n2"]).await;
    make_class(&nodes[0]);
    let before = changes(&nodes[0]).await;
    let volume = json!({ "name": "v", "size_bytes": GIB, "class": "c" });
    let asked: Vec<_> = (0..8)
        .map(|turn| {
            let (api, volume) = (nodes[turn % 2].api, volume.clone());
            tokio::task::spawn_blocking(move || post(api, "/v1/volumes", "key", &volume))
        })
        .collect();
    let mut carried_out = 0;
    for answer in asked {
        let answer = answer.await.unwrap();
        match (answer.status, answer.replayed) {
            (201, false) => carried_out += 1,
            (201, true) => {}
            _ => assert_eq!(code(&answer), (409, "try_again"), "{answer:?}"),
        }
    }
    assert_eq!((carried_out, changes(&nodes[0]).await), (1, before + 1));
    let again = post(nodes[1].api, "/v1/volumes", "key", &volume);
    assert_eq!((again.status, again.replayed), (201, true));
}

/// A client that has gone is answered when he comes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_before_he_is_answered_finds_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, nodes) = start_nodes(&folder, &["n1", "n2"]).await;
    make_class(&nodes[0]);
    let volume = json!({ "name": "v", "size_bytes": GIB, "class": "c" });
    for name in 0..5 {
        let body = json!({ "name": format!("v{name}"), "size_bytes": GIB, "class": "c" }).to_string();
        let mut stream = TcpStream::connect(nodes[0].api).unwrap();
        let head = format!("POST /v1/volumes HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k{name}\r\n");
        let length = body.len();
        let rest = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all((head + &rest).as_bytes()).unwrap();
        drop(stream);
    }
    // Whether a request was read before its client had gone is not said; a later one is answered all the same.
    for name in 0..5 {
        let body = json!({ "name": format!("v{name}"), "size_bytes": GIB, "class": "c" });
        loop {
            let answer = post(nodes[1].api, "/v1/volumes", &format!("k{name}"), &body);
            match code(&answer) {
                (409, "try_again") => tokio::time::sleep(Duration::from_millis(5)).await,
                (201, _) => break,
                _ => panic!("{answer:?}"),
            }
        }
    }
    assert_eq!(post(nodes[1].api, "/v1/volumes", "other", &volume).status, 201);
}

/// A token is told once: whoever asks again is not told it, and no second one is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, nodes) = start_nodes(&folder, &["n1", "n2"]).await;
    let grant = json!({ "name": "ann", "role": "admin" });
    let made = post(nodes[0].api, "/v1/grants", "key", &grant);
    assert!(made.status == 201 && made.body["token"].is_string(), "{made:?}");
    let before = changes(&nodes[0]).await;
    let again = post(nodes[1].api, "/v1/grants", "key", &grant);
    assert_eq!(code(&again), (409, "conflict"));
    assert!(again.body["hint"].as_str().unwrap().contains("revoke"), "{again:?}");
    assert_eq!(changes(&nodes[0]).await, before);
    let revoked = delete(nodes[0].api, "/v1/grants/ann", "other");
    assert_eq!((revoked.status, delete(nodes[1].api, "/v1/grants/ann", "other").replayed), (204, true));
}
