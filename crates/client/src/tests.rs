//! What becomes of URLs, and of answers that are none.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use azekura_api::endpoint::{DeviceDrain, VolumeCreate, VolumeDelete, VolumeList, VolumeShow};
use azekura_api::{CreateVolume, DeleteVolume, NoContent};

use super::*;

#[test]
fn urls() {
    for (given, url) in [
        ("http://127.0.0.1:7180/", "http://127.0.0.1:7180"),
        ("127.0.0.1:7180", "http://127.0.0.1:7180"),
        ("http://[::1]:7180", "http://[::1]:7180"),
        ("https://[::1]:7180/", "https://[::1]:7180"),
    ] {
        assert_eq!(Client::new(given).unwrap().url(), url);
    }
    for bad in ["", "ftp://x", "http://a b", "https://a b"] {
        assert!(Client::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_token_does_not_leave_the_machine_in_clear() {
    let token = Token { id: azekura_base::GrantId(1), secret: azekura_base::Secret([7; 32]) };
    for (url, sent) in [
        ("http://127.0.0.1:7180", true),
        ("localhost:7180", true),
        ("http://[::1]:7180", true),
        ("https://10.0.0.1:7180", true),
        ("unix:/run/api.sock", true),
        ("http://10.0.0.1:7180", false),
        ("http://localhost.example:7180", false),
        ("10.0.0.1", false),
    ] {
        assert_eq!(Client::new(url).unwrap().with_token(&token).is_ok(), sent, "{url}");
    }
    let asked = Client::new("https://127.0.0.1:1").unwrap().ask_all::<VolumeList, _>([]);
    assert!(matches!(asked, Err(ClientError::Unknown { .. })), "{asked:?}");
}

/// A server that answers once; gives what it was asked.
fn server(answer: &'static str) -> (Client, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut text, mut buffer) = (String::new(), [0; 4096]);
        loop {
            let length = stream.read(&mut buffer).unwrap();
            text += std::str::from_utf8(&buffer[..length]).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let announced =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= announced.unwrap_or(0) {
                break;
            }
        }
        stream.write_all(answer.as_bytes()).unwrap();
        text
    });
    (client, asked)
}

fn name(name: &str) -> [String; 1] {
    [name.to_owned()]
}

#[test]
fn requests_are_what_the_endpoint_says() {
    let (client, asked) = server("HTTP/1.1 204 No Content\r\n\r\n");
    let query = DeleteVolume { force: true, snapshots: false };
    assert_eq!(client.ask::<VolumeDelete>(name("a b"), &query), Ok(NoContent));
    let asked = asked.join().unwrap();
    assert!(asked.starts_with("DELETE /v1/volumes/a%20b?force=true HTTP/1.1\r\n"));
    assert!(asked.to_lowercase().contains("\r\ncontent-type: application/json\r\n"), "{asked}");

    let (client, asked) = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]");
    assert_eq!(client.ask::<DeviceDrain>(name("3"), &NoQuery {}), Ok(Vec::new()));
    assert!(asked.join().unwrap().starts_with("POST /v1/devices/3/drain HTTP/1.1\r\n"));
}

#[test]
fn errors_are_told_as_the_node_says_them() {
    let body = CreateVolume {
        name: "v".into(),
        size_bytes: 4096,
        logical_block_bytes: None,
        class: None,
        copies: None,
        ack_rule: None,
        shared: false,
        encrypt: false,
        secret: None,
        limits: None,
    };
    let answer = "HTTP/1.1 409 Conflict\r\ncontent-length: 51\r\n\r\n{\"code\":\"exists\",\"message\":\"it is\",\"hint\":\"choose\"}";
    let (client, asked) = server(answer);
    let error = client.send::<VolumeCreate>([], &body).unwrap_err();
    let asked = asked.join().unwrap();
    let (_, sent) = asked.split_once("\r\n\r\n").unwrap();
    assert_eq!(serde_json::from_str::<CreateVolume>(sent).unwrap(), body, "{asked}");
    assert_eq!((error.code(), error.hint()), (Some(ErrorCode::Exists), Some("choose")));
    assert_eq!(error.to_string(), "it is");
}

#[test]
fn what_is_no_answer_of_a_node_is_told() {
    let (client, _) = server("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 5\r\n\r\nproxy");
    let error = client.ask_all::<VolumeList, _>([]).unwrap_err();
    assert!(matches!(&error, ClientError::Foreign { reason, .. } if reason == "answered 502 Bad Gateway"), "{error}");
    let (client, _) = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    let error = client.ask::<VolumeShow>(name("v"), &NoQuery {}).unwrap_err();
    assert!(matches!(&error, ClientError::Foreign { reason, .. } if reason.contains("missing field")), "{error}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = Client::new(&free.to_string()).unwrap();
    assert!(matches!(client.ask_all::<VolumeList, _>([]), Err(ClientError::Unreachable { .. })));
}

/// A server that answers these requests, each over a connection of its own; gives what was asked.
fn pages(answers: &'static [(&'static str, &'static str)]) -> (Client, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let answer = move |(header, body): &(&str, &str)| {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut asked, mut buffer) = (String::new(), [0; 4096]);
        while !asked.contains("\r\n\r\n") {
            let length = stream.read(&mut buffer).unwrap();
            asked += std::str::from_utf8(&buffer[..length]).unwrap();
        }
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{header}Content-Length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        asked.split_whitespace().nth(1).unwrap().to_owned()
    };
    (client, std::thread::spawn(move || answers.iter().map(answer).collect()))
}

#[test]
fn a_list_is_read_to_its_end() {
    let (client, asked) = pages(&[("azekura-next: a@1\r\n", "[1]"), ("azekura-next: b\r\n", "[]"), ("", "[2, 3]")]);
    assert_eq!(client.ask_all::<Numbers, u32>([]), Ok(vec![1, 2, 3]));
    let expected = ["limit=1000", "limit=1000&after=a%401", "limit=1000&after=b"];
    assert_eq!(asked.join().unwrap(), expected.map(|query| format!("/v1/numbers?{query}")));
    let (client, asked) = pages(&[("azekura-next: a\r\n", "[1]"), ("azekura-next: a\r\n", "[1]")]);
    let error = client.ask_all::<Numbers, u32>([]).unwrap_err();
    assert!(error.to_string().contains("same page again"), "{error}");
    asked.join().unwrap();
}

/// A list of numbers.
struct Numbers;

impl Endpoint for Numbers {
    const NAME: &'static str = "Numbers";
    const ROUTE: azekura_api::Route =
        azekura_api::Route { path: "/v1/numbers", method: Method::Get, needs: azekura_api::Needs::Nothing };
    const STATUS: u16 = 200;
    type Names = [String; 0];
    type Query = PageQuery;
    type Body = NoBody;
    type Answer = Vec<u32>;

    fn no_body() -> Option<NoBody> {
        Some(NoBody {})
    }
}

#[test]
fn who_shows_a_token_that_is_not_known_is_told_so() {
    let refusal = "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 58\r\n\r\n\
                   {\"code\":\"unauthorized\",\"message\":\"asks for a grant\",\"x\":1}";
    assert_eq!(refusal.split("\r\n\r\n").nth(1).map(str::len), Some(58));
    let token = Token { id: azekura_base::GrantId(1), secret: azekura_base::Secret([7; 32]) };
    let (client, asked) = server(refusal);
    let error = client.ask::<VolumeShow>(["v".into()], &NoQuery {}).unwrap_err();
    assert_eq!(error.to_string(), "asks for a grant");
    asked.join().unwrap();
    let (client, asked) = server(refusal);
    let client = client.with_token(&token).unwrap().with_token_from("in FILE".into());
    let error = client.ask::<VolumeShow>(["v".into()], &NoQuery {}).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Unauthorized));
    assert!(error.to_string().starts_with("the token in FILE is not known at http://127.0.0.1:"), "{error}");
    assert!(error.to_string().contains("has ended, was revoked, or is another cluster's"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("azekura login")), "{:?}", error.hint());
    asked.join().unwrap();
}
