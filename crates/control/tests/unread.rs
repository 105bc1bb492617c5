//! A client that still sends when its answer is there gets that answer, not a reset connection.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use crate::support::start_nodes;

/// The head and the body of the next answer.
fn answer(stream: &mut impl BufRead) -> (String, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "closed after: {head}");
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.split_once("content-length: ").unwrap().1.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_waits_for_the_rest_of_its_request() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, nodes) = start_nodes(&folder, &["n1"]).await;
    let mut stream = TcpStream::connect(nodes[0].api).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    // What takes no body; what is refused by its head; what is at no path: each comes in two pieces.
    let asked = [("GET /v1/openapi.json", "200"), ("POST /v1/volumes", "415"), ("POST /nothing", "404")];
    for (what, status) in asked {
        let head = format!("{what} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        sleep(Duration::from_millis(200));
        stream.write_all(&[b' '; 9000]).unwrap();
        let (head, body) = answer(&mut answers);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{what}: {head}{body}");
    }
    // Nobody waits for what no request has: it is answered, and the connection ends.
    let head = "GET /v1/health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    assert!(answer(&mut answers).0.starts_with("HTTP/1.1 200"));
    assert_eq!(answers.read(&mut [0; 1]).unwrap(), 0);
}
