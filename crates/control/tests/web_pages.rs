//! What a web page in a browser could have sent to the REST API is refused.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};

use crate::support::{Node, start_node};
use azekura_meta::server::EmbeddedServer;
use serde_json::{Value, json};

/// One request as it stands; the status and the JSON body.
fn ask_raw(node: &Node, request: &str) -> (u16, Value) {
    let mut stream = std::net::TcpStream::connect(node.api).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_web_page_can_ask() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        EmbeddedServer::start(&folder.path().join("config.redb"), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let node = start_node(&server, "n1").await;
    let get = |headers: &str| ask_raw(&node, &format!("GET /v1/health HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"));
    for host in ["127.0.0.1", "localhost:7180", "[::1]:7180", "10.1.2.3:80", "node.example:7180"] {
        assert_eq!(get(&format!("Host: {host}\r\n")).0, 200, "{host}");
    }
    for host in ["evil.example", "evil.example:7180", "localhost.evil.example"] {
        let (status, body) = get(&format!("Host: {host}\r\n"));
        assert_eq!((status, &body["code"]), (421, &json!("wrong_host")), "{host}: {body}");
        assert!(body["message"].as_str().unwrap().contains(host), "{body}");
        assert!(body["hint"].as_str().unwrap().contains("--api-names"), "{body}");
    }
    for headers in ["", "Host: localhost\r\nHost: evil.example\r\n"] {
        assert_eq!(get(headers).0, 400, "{headers}");
    }
    let absolute = "GET http://evil.example/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(ask_raw(&node, absolute).0, 421);
    let unknown = "GET /nothing HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(ask_raw(&node, unknown).0, 421, "a stranger learns of no path");

    // What a page can send without asking the server first: forms, text, and nothing at all.
    let change = |method: &str, path: &str, headers: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}Connection: close\r\n", node.api);
        ask_raw(&node, &format!("{request}Content-Length: 2\r\n\r\n{{}}"))
    };
    let paths = [("POST", "/v1/nodes/n1/drain"), ("POST", "/v1/volumes"), ("DELETE", "/v1/volumes/none")];
    for (method, path) in paths {
        for said in ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let header = if said.is_empty() { String::new() } else { format!("Content-Type: {said}\r\n") };
            let (status, body) = change(method, path, &header);
            assert_eq!((status, &body["code"]), (415, &json!("not_json")), "{method} {path} {said}: {body}");
            assert!(body["hint"].as_str().unwrap().contains("Content-Type: application/json"), "{body}");
        }
    }
    let json = "content-type: Application/JSON; charset=utf-8\r\n";
    assert_eq!(change("DELETE", "/v1/volumes/none", json).0, 404);
    node.alive.release().await;
    node.control.stop().await;
    server.stop().await;
}
