//! Whatever changes something through the API leaves one record of who has done it; whatever is refused leaves none.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::{GIB, Node, exchange, start_nodes as start};
use azekura_api::endpoint::ROUTES;
use azekura_api::{Method, Needs};
use azekura_meta::MetaClient;
use azekura_meta::cluster::Audited;
use azekura_model::AuditProof;
use serde_json::{Value, json};

/// One request, in clear through the port, or through the node's own socket.
fn ask(stream: impl Read + Write, method: &str, path: &str, headers: &str, body: &Value) -> (u16, Value) {
    let (head, body) = exchange(stream, method, path, headers, &body.to_string());
    (head[9..12].parse().unwrap(), serde_json::from_str(&body).unwrap_or_default())
}

async fn records(meta: &MetaClient) -> Vec<Audited> {
    meta.audit("", 1_000).await.unwrap().records
}

/// Asks through the port; the records that were not there before.
async fn does(node: &Node, method: &str, path: &str, body: &Value) -> (u16, Value, Vec<Audited>) {
    let before = records(&node.meta).await.len();
    let (status, answer) = ask(TcpStream::connect(node.api).unwrap(), method, path, "", body);
    (status, answer, records(&node.meta).await.split_off(before))
}

/// A change of each kind, in an order in which each is possible: what is asked for, and the record's name.
fn changes() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    let class = json!({ "name": "c", "copies": 1, "failure_domain": "device" });
    let other = json!({ "name": "d", "copies": 1 });
    let volume = json!({ "name": "v", "size_bytes": GIB, "class": "c" });
    let protect = json!({ "every_seconds": 3600, "keep_seconds": 7200 });
    vec![
        ("POST", "/v1/classes", class, "ClassCreate"),
        ("POST", "/v1/classes/c", json!({ "overcommit_ratio": 3.0 }), "ClassChange"),
        ("POST", "/v1/volumes", volume, "VolumeCreate"),
        ("POST", "/v1/volumes/v/resize", json!({ "size_bytes": 2 * GIB }), "VolumeResize"),
        ("POST", "/v1/volumes/v/attach", json!({ "node": "n1" }), "VolumeAttach"),
        ("POST", "/v1/volumes/v/detach", json!({}), "VolumeDetach"),
        ("POST", "/v1/volumes/v/expose", json!({ "vhost": "v.sock" }), "VolumeExpose"),
        ("POST", "/v1/volumes/v/unexpose", json!({ "vhost": "v.sock" }), "VolumeUnexpose"),
        ("POST", "/v1/volumes/v/protect", protect, "VolumeProtect"),
        ("POST", "/v1/volumes/v/protect", json!({ "off": true }), "VolumeProtect"),
        ("POST", "/v1/volumes/v/limits", json!({ "iops": 1000 }), "VolumeLimit"),
        ("POST", "/v1/volumes/v/limits", json!({}), "VolumeLimit"),
        ("POST", "/v1/targets", json!({ "name": "t" }), "TargetCreate"),
        ("POST", "/v1/targets/t/units", json!({ "volume": "v" }), "UnitAdd"),
        ("DELETE", "/v1/targets/t/units/0?force=true", json!({}), "UnitRemove"),
        ("DELETE", "/v1/targets/t", json!({}), "TargetDelete"),
        ("POST", "/v1/snapshots", json!({ "volumes": ["v"], "name": "s" }), "SnapshotCreate"),
        ("POST", "/v1/volumes/v/revert", json!({ "to": "s" }), "VolumeRevert"),
        ("POST", "/v1/scrub", json!({ "volume": "v" }), "ScrubStart"),
        ("DELETE", "/v1/volumes/v/snapshots/s", json!({}), "SnapshotDelete"),
        ("DELETE", "/v1/volumes/v?snapshots=true", json!({}), "VolumeDelete"),
        ("POST", "/v1/classes", other, "ClassCreate"),
        ("DELETE", "/v1/classes/d", json!({}), "ClassDelete"),
        ("POST", "/v1/devices/n2%2Fdevice-0/drain", json!({}), "DeviceDrain"),
        ("POST", "/v1/devices/n2%2Fdevice-0/undrain", json!({}), "DeviceUndrain"),
        ("POST", "/v1/nodes/n2/drain", json!({}), "NodeDrain"),
        ("POST", "/v1/nodes/n2/undrain", json!({}), "NodeUndrain"),
        ("POST", "/v1/settings", json!({ "moves_at_once": 3 }), "SettingsChange"),
        ("POST", "/v1/projects", json!({ "name": "p" }), "ProjectCreate"),
        ("POST", "/v1/projects/p", json!({ "volumes": 3 }), "ProjectChange"),
        ("DELETE", "/v1/projects/p", json!({}), "ProjectDelete"),
        ("POST", "/v1/grants", json!({ "name": "ann", "role": "admin" }), "GrantCreate"),
        ("DELETE", "/v1/grants/ann", json!({}), "GrantRevoke"),
        ("POST", "/v1/keys", json!({ "name": "vm", "role": "user", "key": "0".repeat(64) }), "KeyCreate"),
        ("POST", "/v1/hosts", json!({ "name": "esx", "host": "iqn.1998-01.com.vmware:esx" }), "HostCreate"),
        ("POST", "/v1/authority", json!({}), "AuthorityReplace"),
        ("POST", "/v1/nodes/n2/shut-out", json!({}), "NodeShutOut"),
        ("POST", "/v1/nodes/n2/let-in", json!({ "same_keys": true }), "NodeLetIn"),
    ]
}

/// Those that have tests of their own.
const ELSEWHERE: [(&str, &str); 10] = [
    ("POST", "/v1/volumes/{name}/clone"),
    ("DELETE", "/v1/devices/{name}"),
    ("DELETE", "/v1/nodes/{name}"),
    ("POST", "/v1/join"),
    ("POST", "/v1/kek/rewrap"),
    ("POST", "/v1/volumes/{name}/key"),
    ("POST", "/v1/volumes/{name}/unlock"),
    ("POST", "/v1/volumes/{name}/secret"),
    ("POST", "/v1/node/unlock"),
    ("POST", "/v1/node/expose"),
];

/// Whether a path is one of a route's.
fn is_of(path: &str, route: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (parts, wanted): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), route.split('/').collect());
    parts.len() == wanted.len() && parts.iter().zip(wanted).all(|(part, want)| want.starts_with('{') || *part == want)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_leaves_its_record_and_none_that_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, nodes) = start(&folder, &["n1", "n2"]).await;
    let node = &nodes[0];
    let mut done = BTreeSet::from(ELSEWHERE.map(|(method, path)| (method.to_owned(), path.to_owned())));
    for (method, path, body, operation) in changes() {
        let (status, answer, found) = does(node, method, path, &body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        let [Audited { record, revision, .. }] = &found[..] else { panic!("{method} {path}: {found:?}") };
        assert_eq!((record.operation.as_str(), record.method.as_str()), (operation, method));
        assert_eq!((record.path.as_str(), record.who.as_str()), (path.split('?').next().unwrap(), "anybody"));
        assert_eq!((record.proof, record.from.as_str(), record.node.as_str()), (AuditProof::Open, "127.0.0.1", "n1"));
        assert!(*revision > 0 && !record.at.is_empty());
        let sent = body.as_object().is_some_and(|fields| !fields.is_empty());
        assert_eq!(record.details["body"].is_object(), sent, "{record:?}");
        assert_eq!(record.details["query"].is_object(), path.contains('?'), "{record:?}");
        let route = ROUTES.iter().find(|route| route.method.word() == method && is_of(path, route.path)).unwrap();
        done.insert((method.to_owned(), route.path.to_owned()));
    }
    let changing = ROUTES.iter().filter(|route| route.method != Method::Get && route.needs != Needs::Nothing);
    let all: BTreeSet<_> = changing.map(|route| (route.method.word().to_owned(), route.path.to_owned())).collect();
    assert_eq!(done, all, "each endpoint that changes something is asked");

    // The same once more, where nothing is there any more, or nothing is to be changed.
    for (method, path, body) in [
        ("POST", "/v1/volumes/v/resize", json!({ "size_bytes": GIB })),
        ("POST", "/v1/volumes/v/attach", json!({ "node": "n1" })),
        ("POST", "/v1/volumes", json!({ "name": "a/b", "size_bytes": GIB })),
        ("POST", "/v1/volumes/v/clone", json!({ "name": "w" })),
        ("DELETE", "/v1/volumes/v", json!({})),
        ("DELETE", "/v1/nodes/n1", json!({})),
        ("DELETE", "/v1/grants/ann", json!({})),
        ("POST", "/v1/grants", json!({ "name": "a b", "role": "user" })),
        ("POST", "/v1/settings", json!({ "moves_at_once": 0 })),
        ("POST", "/v1/settings", json!({ "moves_at_once": 3 })),
        ("POST", "/v1/settings", json!({ "colour": "red" })),
        ("POST", "/v1/nodes/n9/drain", json!({})),
    ] {
        let (status, answer, found) = does(node, method, path, &body).await;
        assert_eq!(found, [], "{method} {path}: {status} {answer}");
    }
}

/// Who changes something is named by what he has proved; a secret stands nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_name_who_has_proved_what() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, nodes) = start(&folder, &["n1"]).await;
    let node = &nodes[0];
    let (_, made, found) = does(node, "POST", "/v1/grants", &json!({ "name": "ann", "role": "admin" })).await;
    let token = made["token"].as_str().unwrap().to_owned();
    assert!(!format!("{found:?}").contains(&token[16..59]), "the token is told once, and to nobody else");
    while node.meta.model().grants.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let moves = |number: u32| json!({ "moves_at_once": number });
    let bearer = format!("Authorization: Bearer {token}\r\n");
    ask(TcpStream::connect(node.api).unwrap(), "POST", "/v1/settings", &bearer, &moves(3));
    ask(UnixStream::connect(&node.local).unwrap(), "POST", "/v1/settings", "", &moves(4));
    let found = records(&node.meta).await;
    let [_, ann, local] = &found[..] else { panic!("{found:?}") };
    let id = made["grant"]["id"].as_str().unwrap();
    assert_eq!(
        (ann.record.who.as_str(), ann.record.proof, ann.record.grant.as_deref()),
        ("ann", AuditProof::Token, Some(id))
    );
    assert_eq!((local.record.who.as_str(), local.record.proof), ("the node's user", AuditProof::Local));
    assert_eq!(local.record.from, "the node's own socket");

    // As it is shown: by pages, by name, by number, from a time on.
    let shown = |query: &str| {
        let (status, answer) =
            ask(TcpStream::connect(node.api).unwrap(), "GET", &format!("/v1/audit{query}"), "", &json!({}));
        assert_eq!(status, 200, "{query}: {answer}");
        let named = |record: &Value| record["revision"].as_i64().unwrap();
        let revisions: Vec<i64> = answer["records"].as_array().unwrap().iter().map(named).collect();
        (revisions, answer["next"].as_str().map(str::to_owned))
    };
    let all: Vec<i64> = found.iter().map(|found| found.revision).collect();
    assert_eq!(shown(""), (all.clone(), None));
    for query in ["?who=ann".to_owned(), format!("?who={id}")] {
        assert_eq!(shown(&query), (vec![ann.revision], None));
    }
    let (first, next) = shown("?limit=1");
    let (second, after) = shown(&format!("?limit=1&after={}", next.unwrap()));
    let (third, end) = shown(&format!("?limit=1&after={}", after.unwrap()));
    assert_eq!(([first, second, third].concat(), end), (all.clone(), None));
    assert_eq!(shown("?since=1%20hour%20ago").0, all);
    assert!(shown("?since=2999-01-01T00:00:00Z").0.is_empty());
    for wrong in ["?since=once", "?limit=0", "?limit=1001"] {
        let stream = TcpStream::connect(node.api).unwrap();
        assert_eq!(ask(stream, "GET", &format!("/v1/audit{wrong}"), "", &json!({})).0, 422, "{wrong}");
    }
}
