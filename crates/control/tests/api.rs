//! The REST API of three nodes that share a configuration server, as an HTTP client sees it.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{GIB, Node, Obliging, start_node};
use azekura_base::{DeviceId, Generation, LayerId, NodeId, VolumeId};
use azekura_control::Attacher;
use azekura_control::attachments::Wanting;
use azekura_meta::server::EmbeddedServer;
use serde_json::{Value, json};

/// One request; the status and the JSON body (null without one).
async fn ask(node: &Node, method: &'static str, path: &str, body: Option<Value>) -> (u16, Value) {
    let url = format!("http://{}{path}", node.api);
    let (status, text) = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let answer = match (method, body) {
            ("GET", _) => agent.get(&url).call(),
            ("DELETE", _) => agent.delete(&url).header("Content-Type", "application/json").call(),
            ("POST", Some(body)) => agent.post(&url).send_json(body),
            _ => agent.post(&url).send("not json"),
        };
        let mut answer = answer.unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    })
    .await
    .unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

async fn healthy(node: &Node) -> Value {
    for _ in 0..200 {
        let (status, body) = ask(node, "GET", "/v1/status", None).await;
        if status == 200 && body["healthy"] == true {
            return body;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never healthy: {:?}", ask(node, "GET", "/v1/status", None).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_through_its_api() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        EmbeddedServer::start(&folder.path().join("config.redb"), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let nodes = [start_node(&server, "n1").await, start_node(&server, "n2").await, start_node(&server, "n3").await];
    let [n1, n2, n3] = &nodes;

    // Empty, and refusals that say what to do.
    assert_eq!(healthy(n1).await["volumes"], 0);
    assert_eq!(ask(n1, "GET", "/v1/volumes", None).await, (200, json!([])));
    let (status, body) = ask(n1, "GET", "/v1/volumes/none", None).await;
    assert_eq!((status, &body["message"]), (404, &json!("there is no volume 'none'")));
    assert_eq!(body["code"], "not_found");
    let nine = json!({ "name": "v", "size_bytes": GIB, "copies": 9 });
    let (status, body) = ask(n1, "POST", "/v1/volumes", Some(nine)).await;
    assert!(status == 507 && body["message"].as_str().unwrap().contains("on 3 host(s)"), "{body}");
    assert_eq!(ask(n1, "GET", "/v1/classes", None).await.1, json!([]), "a refused volume leaves no class behind");
    let many = json!({ "name": "v", "size_bytes": 60_u64 << 40, "copies": 2 });
    let (status, body) = ask(n1, "POST", "/v1/volumes", Some(many)).await;
    assert!(status == 507 && body["hint"].as_str().unwrap().contains("overcommit"), "{body}");
    for (body, expected) in [
        (json!({ "name": "a/b/c", "size_bytes": GIB }), 422),
        (json!({ "name": "v", "size_bytes": 5 }), 422),
        (json!({ "name": "v", "size_bytes": GIB, "class": "nope" }), 404),
        (json!({ "name": "v", "size_bytes": -1 }), 422),
        (json!({ "name": "v", "size_bytes": GIB, "colour": "red" }), 422),
        (json!([]), 422),
    ] {
        let (status, answer) = ask(n1, "POST", "/v1/volumes", Some(body.clone())).await;
        assert!(status == expected && answer["message"].is_string(), "{body}: {status} {answer}");
    }
    let (status, body) = ask(n1, "POST", "/v1/volumes", None).await;
    assert!((400..=415).contains(&status) && body["hint"].is_string(), "{status} {body}");
    let (status, body) = ask(n1, "GET", "/v1/nothing", None).await;
    assert_eq!((status, &body["code"]), (404, &json!("no_such_path")));
    assert!(body["hint"].as_str().unwrap().contains("/v1/volumes, /v1/targets, /v1/snapshots"), "{body}");
    let (status, body) = ask(n1, "DELETE", "/v1/status", None).await;
    assert_eq!((status, &body["code"]), (405, &json!("no_such_method")));
    let large = "x".repeat(70_000);
    let (status, body) = ask(n1, "POST", "/v1/volumes", Some(json!({ "name": large, "size_bytes": GIB }))).await;
    assert_eq!((status, &body["code"]), (413, &json!("too_large")));
    let described = description(n1).await;
    for (path, methods) in described["paths"].as_object().unwrap() {
        if methods.get("get").is_some() && !["{", "/v1/node/", "/v1/watch"].iter().any(|part| path.contains(part)) {
            assert_eq!(ask(n1, "GET", path, None).await.0, 200, "{path}");
        }
    }
    let (status, body) = ask(n1, "GET", "/v1/volumes/%ff", None).await;
    assert!(status == 400 && body["message"].is_string(), "{status} {body}");
    let (status, body) = ask(n1, "POST", "/v1/scrub", Some(json!({ "light": true }))).await;
    assert!(status == 422 && body["message"].as_str().unwrap().contains("either 'volume'"), "{body}");
    let (status, body) = ask(n1, "POST", "/v1/settings", Some(json!({ "rehome_after_seconds": 1 }))).await;
    assert!(status == 422 && body["message"].as_str().unwrap().contains("less than 10 s"), "{body}");

    // Made on one node, seen at once on the others.
    let (status, made) =
        ask(n1, "POST", "/v1/volumes", Some(json!({ "name": "v", "size_bytes": GIB, "copies": 2 }))).await;
    assert_eq!((status, &made["copies"], &made["class"]), (201, &json!(2), &json!("default")));
    let shown = [&made["endpoints"][0], &made["endpoints"][1]].map(|it| [&it["protocol"], &it["address"], &it["uri"]]);
    assert_eq!(shown[0], ["nbd", "127.0.0.1:10809", "nbd://127.0.0.1:10809/v"]);
    assert_eq!(shown[1], ["nbd", "unix:/run/azekura.nbd", "nbd+unix:///v?socket=/run/azekura.nbd"]);
    assert_eq!(ask(n2, "GET", "/v1/volumes/v", None).await.1["uuid"], made["uuid"]);
    assert_eq!(ask(n3, "GET", "/v1/volumes", None).await.1.as_array().unwrap().len(), 1);
    assert_eq!(ask(n2, "POST", "/v1/volumes", Some(json!({ "name": "v", "size_bytes": GIB }))).await.0, 409);
    let (status, grown) = ask(n2, "POST", "/v1/volumes/v/resize", Some(json!({ "size_bytes": 2 * GIB }))).await;
    assert_eq!((status, &grown["size_bytes"]), (200, &json!(2 * GIB)));
    assert_eq!(ask(n2, "POST", "/v1/volumes/v/resize", Some(json!({ "size_bytes": GIB }))).await.0, 422);

    let status = healthy(n3).await;
    assert_eq!((&status["groups"], &status["used_bytes"]), (&json!({ "healthy": 64 }), &json!(3 * 4096)));
    let groups = ask(n1, "GET", "/v1/groups", None).await.1;
    assert!(groups.as_array().unwrap().iter().all(|group| group["members"].as_array().unwrap().len() == 2));
    let devices = ask(n1, "GET", "/v1/devices", None).await.1;
    let primaries: u64 = devices.as_array().unwrap().iter().map(|device| device["primaries"].as_u64().unwrap()).sum();
    assert_eq!(primaries, 64);
    let leaders: Vec<Value> = ask(n2, "GET", "/v1/nodes", None).await.1.as_array().unwrap().to_vec();
    assert_eq!(leaders.iter().filter(|node| node["leader"] == true).count(), 1);
    assert_eq!(leaders.iter().filter(|node| node["alive"] == true).count(), 3);

    // Another class by hand.
    let class = json!({ "name": "single", "copies": 1, "failure_domain": "device" });
    assert_eq!(ask(n1, "POST", "/v1/classes", Some(class.clone())).await.0, 201);
    assert_eq!(ask(n2, "POST", "/v1/classes", Some(class)).await.0, 409);
    assert_eq!(ask(n2, "GET", "/v1/classes/single", None).await.1["failure_domain"], "device");
    let single = json!({ "name": "s", "size_bytes": GIB, "class": "single" });
    assert_eq!(ask(n3, "POST", "/v1/volumes", Some(single)).await.0, 201);
    let disagreeing = json!({ "name": "t", "size_bytes": GIB, "class": "single", "copies": 2 });
    assert_eq!(ask(n3, "POST", "/v1/volumes", Some(disagreeing)).await.0, 422);

    // A data plane that does not answer.
    n2.answers.store(false, Ordering::Relaxed);
    assert_eq!(ask(n2, "GET", "/v1/health", None).await.0, 503);
    let (status, body) = ask(n1, "GET", "/v1/status", None).await;
    assert!(status == 200 && body["healthy"] == false && body["problems"].to_string().contains("n2"), "{body}");
    n2.answers.store(true, Ordering::Relaxed);
    assert_eq!(ask(n2, "GET", "/v1/health", None).await.0, 200);
    let (status, text) = ask(n1, "GET", "/metrics", None).await;
    assert!(status == 200 && text.as_str().unwrap().contains("azekura_device_live_bytes{device=\"1\"} 4096"), "{text}");

    // Deletion: the leader removes the record when every device has dropped the layer.
    assert_eq!(ask(n3, "DELETE", "/v1/volumes/v", None).await.0, 204);
    assert_eq!(ask(n1, "GET", "/v1/volumes/v", None).await.0, 404);
    assert_eq!(ask(n1, "DELETE", "/v1/volumes/v", None).await.0, 404);
    for device in 1..=3 {
        n1.meta.confirm_layer_gone(LayerId(1), DeviceId(device)).await.unwrap();
    }
    let mut model = n1.meta.watch_model();
    let gone = model.wait_for(|model| !model.layers.contains_key(&LayerId(1)));
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap().unwrap();

    // The leader leaves: another takes over. A node that leaves is missed.
    let [n1, n2, n3] = nodes;
    assert!(n1.control.leads());
    n1.control.stop().await;
    n1.alive.release().await;
    for _ in 0..200 {
        if n2.control.leads() || n3.control.leads() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(n2.control.leads() != n3.control.leads());
    // Each of the two learns of it by itself.
    let mut model = n2.meta.watch_model();
    let missed = model.wait_for(|model| !model.alive.contains_key(&NodeId(1)));
    tokio::time::timeout(Duration::from_secs(20), missed).await.unwrap().unwrap();
    let (_, body) = ask(&n2, "GET", "/v1/status", None).await;
    assert!(body["problems"].to_string().contains("node n1 gives no sign of life"), "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_attached_and_detached() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        EmbeddedServer::start(&folder.path().join("config.redb"), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let one = start_node(&server, "n1").await;
    let two = start_node(&server, "n2").await;
    while two.meta.model().alive.len() < 2 || one.meta.model().alive.len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (name, shared) in [("v", false), ("stuck", false), ("both", true)] {
        let (status, body) =
            ask(&one, "POST", "/v1/volumes", Some(json!({ "name": name, "size_bytes": GIB, "shared": shared }))).await;
        assert_eq!(status, 201, "{body}");
        assert_eq!(body["access"], if shared { "shared" } else { "exclusive" });
        assert_eq!((&body["generation"], &body["attachments"]), (&json!(0), &json!([])));
    }
    // A process of node 1 attaches for its clients; nobody else gets the volume without force.
    let attacher = Attacher::new(one.meta.clone(), Arc::new(Obliging));
    assert_eq!(
        attacher.attach_for_clients("v", &Wanting::of_process(NodeId(1), 7)).await.unwrap().attachment,
        Generation(1)
    );
    let (status, body) = ask(&two, "POST", "/v1/volumes/v/attach", Some(json!({ "node": "n2" }))).await;
    assert_eq!(status, 409, "{body}");
    assert!(body["message"].as_str().unwrap().contains("attached to node n1"), "{body}");
    assert!(body["hint"].as_str().unwrap().contains("attach v --node n2 --force"), "{body}");
    let (status, body) = ask(&two, "POST", "/v1/volumes/v/attach", Some(json!({ "node": "n2", "force": true }))).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!((&body["attachments"][0]["node_name"], &body["attachments"][0]["pinned"]), (&json!("n2"), &json!(true)));
    assert_eq!((body["attachments"].as_array().unwrap().len(), &body["fence_due"]), (1, &json!(false)));
    let (status, _) = ask(&one, "POST", "/v1/volumes/v/detach", Some(json!({ "node": "n1" }))).await;
    assert_eq!(status, 409, "it is not attached there any more");
    let (status, body) = ask(&one, "POST", "/v1/volumes/v/detach", Some(json!({}))).await;
    assert_eq!((status, &body["attachments"]), (200, &json!([])), "{body}");
    // Groups that do not confirm are named, and asked again at the next attempt.
    assert_eq!(
        attacher.attach_for_clients("stuck", &Wanting::of_process(NodeId(1), 7)).await.unwrap().attachment,
        Generation(1)
    );
    for _ in 0..2 {
        let wish = json!({ "node": "n2", "force": true });
        let (status, body) = ask(&one, "POST", "/v1/volumes/stuck/attach", Some(wish)).await;
        assert_eq!(status, 504, "{body}");
        assert!(body["message"].as_str().unwrap().contains("placement groups 1, 2"), "{body}");
    }
    let (_, body) = ask(&one, "GET", "/v1/volumes/stuck", None).await;
    assert_eq!((&body["fence_due"], &body["attachments"][0]["node_name"]), (&json!(true), &json!("n2")));
    // Shared ones stand side by side.
    assert_eq!(
        attacher.attach_for_clients("both", &Wanting::of_process(NodeId(1), 7)).await.unwrap().attachment,
        Generation(1)
    );
    let (status, body) = ask(&two, "POST", "/v1/volumes/both/attach", Some(json!({ "node": "n2" }))).await;
    assert_eq!((status, body["attachments"].as_array().map(Vec::len)), (200, Some(2)), "{body}");
    // What nobody uses is taken away; clients are cut off by force alone.
    let (status, body) = ask(&two, "POST", "/v1/volumes/both/detach", Some(json!({ "node": "n2" }))).await;
    assert_eq!((status, body["attachments"].as_array().map(Vec::len)), (200, Some(1)), "{body}");
    for wish in [json!({}), json!({ "node": "n1" })] {
        let (status, body) = ask(&two, "POST", "/v1/volumes/both/detach", Some(wish)).await;
        assert_eq!((status, &body["code"]), (409, &json!("in_use")), "{body}");
        assert!(body["hint"].as_str().unwrap().contains("--force cuts them off"), "{body}");
    }
    let (status, body) = ask(&two, "POST", "/v1/volumes/both/detach", Some(json!({ "force": true }))).await;
    assert_eq!((status, &body["attachments"]), (200, &json!([])), "{body}");
    attacher.attach_for_clients("both", &Wanting::of_process(NodeId(1), 7)).await.unwrap();
    for (path, wish, expected) in [
        ("/v1/volumes/none/attach", json!({ "node": "n1" }), 404),
        ("/v1/volumes/v/attach", json!({ "node": "n9" }), 404),
        ("/v1/volumes/v/attach", json!({}), 422),
        ("/v1/volumes/v/detach", json!({}), 409),
    ] {
        let (status, body) = ask(&one, "POST", path, Some(wish)).await;
        assert_eq!(status, expected, "{path}: {body}");
    }
    let (status, body) = ask(&one, "DELETE", "/v1/volumes/both", None).await;
    assert!(status == 409 && body["hint"].as_str().unwrap().contains("--force"), "{body}");
    let (status, _) = ask(&one, "DELETE", "/v1/volumes/both?force=true", None).await;
    assert_eq!(status, 204);
    assert!(one.meta.model_of_volumes().await.unwrap().attachments.keys().all(|id| *id != VolumeId(3)));
}

/// The API's description, once everything in it that only shows something can be asked.
async fn description(node: &Node) -> Value {
    while ask(node, "GET", "/v1/authority", None).await.0 == 503 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    ask(node, "GET", "/v1/openapi.json", None).await.1
}

/// The ranges of a page and of those behind it. How many pages there are depends on how fast the machine is.
async fn pages(node: &Node, first: &Value, diff: &str) -> Vec<Value> {
    let (mut page, mut ranges) = (first.clone(), Vec::new());
    loop {
        ranges.extend(page["ranges"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_offset_bytes"].as_u64() else { return ranges };
        let layers = format!("from_layer={}&to_layer={}", first["from_layer"], first["to_layer"]);
        let (status, answer) = ask(node, "GET", &format!("{diff}?offset_bytes={next}&{layers}"), None).await;
        assert_eq!(status, 200, "{answer}");
        page = answer;
    }
}

/// Where a snapshot has data is told from any chunk on, by any node: in those of `ranges` that are no zeros.
async fn data_is_told(one: &Node, two: &Node, ranges: &[Value], half: u64) {
    let allocated = |query: &str| format!("/v1/volumes/v/snapshots/monday/allocated{query}");
    let (status, first) = ask(one, "GET", &allocated(""), None).await;
    assert_eq!((status, &first["snapshot"], &first["size_bytes"]), (200, &json!("v@monday"), &json!(GIB)), "{first}");
    let on = |at: u64| allocated(&format!("?offset_bytes={at}&layer={}", first["layer"]));
    let mut page = ask(two, "GET", &on(half), None).await.1;
    let mut data = Vec::new();
    loop {
        data.extend(page["ranges"].as_array().unwrap().iter().map(|range| range["offset_bytes"].as_u64().unwrap()));
        let Some(next) = page["next_offset_bytes"].as_u64() else { break };
        page = ask(two, "GET", &on(next), None).await.1;
    }
    let of_data = ranges.iter().filter(|range| range["kind"] == "data");
    let expected = of_data.filter_map(|range| range["offset_bytes"].as_u64()).filter(|offset| *offset >= half);
    assert!(!data.is_empty() && data == expected.collect::<Vec<u64>>(), "{data:?}");
    for (query, expected, about) in
        [("?layer=999", 409, "while its data was listed"), ("?offset_bytes=1", 422, "not a multiple")]
    {
        let (status, body) = ask(one, "GET", &allocated(query), None).await;
        assert!(status == expected && body["message"].as_str().unwrap().contains(about), "{query}: {status} {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_through_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        EmbeddedServer::start(&folder.path().join("config.redb"), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let one = start_node(&server, "n1").await;
    let two = start_node(&server, "n2").await;
    while two.meta.model().alive.len() < 2 || one.meta.model().alive.len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for name in ["v", "stuck", "w"] {
        let (status, body) = ask(&one, "POST", "/v1/volumes", Some(json!({ "name": name, "size_bytes": GIB }))).await;
        assert_eq!(status, 201, "{body}");
    }
    // Two at one instant, seen at once on the other node.
    let both = json!({ "volumes": ["v", "w", "v"], "name": "monday" });
    let (status, body) = ask(&one, "POST", "/v1/snapshots", Some(both.clone())).await;
    assert_eq!((status, body.as_array().map(Vec::len)), (201, Some(2)), "{body}");
    assert_eq!((&body[0]["cut"], &body[0]["origin"]), (&body[1]["cut"], &json!("person")));
    assert!(body[0]["endpoints"].to_string().contains("nbd://127.0.0.1:10809/v@monday"), "{body}");
    let (_, list) = ask(&two, "GET", "/v1/snapshots", None).await;
    assert_eq!(list.as_array().map(Vec::len), Some(2));
    assert_eq!(ask(&two, "POST", "/v1/snapshots", Some(both)).await.0, 409);
    let (status, unnamed) = ask(&two, "POST", "/v1/snapshots", Some(json!({ "volumes": ["v"] }))).await;
    assert_eq!(status, 201, "{unnamed}");
    assert_eq!(ask(&one, "GET", "/v1/volumes/v", None).await.1["snapshots"], 2);
    // A group that does not stop: nothing is made, and nothing stays behind.
    for volumes in [json!(["stuck"]), json!(["v", "stuck"])] {
        let (status, body) = ask(&one, "POST", "/v1/snapshots", Some(json!({ "volumes": volumes, "name": "x" }))).await;
        assert!(status == 504 && body["message"].as_str().unwrap().contains("did not stop within 2 s"), "{body}");
    }
    let model = one.meta.model_of_snapshots().await.unwrap();
    assert!(model.volumes.values().all(|volume| volume.cut.is_none()) && model.snapshots.len() == 3);
    assert!(model.layers.values().all(|layer| layer.state != azekura_model::LayerState::Next));
    // Back to a name, or to a time.
    let revert = |to: &str, force: bool| Some(json!({ "to": to, "force": force }));
    let (status, body) = ask(&two, "POST", "/v1/volumes/v/revert", revert("monday", false)).await;
    assert!(status == 200 && body["kept"]["expires"].is_string() && body["kept"]["origin"] == "revert", "{body}");
    let (status, body) = ask(&one, "POST", "/v1/volumes/v/revert", revert("now", false)).await;
    assert_eq!((status, &body["to"]["volume"]), (200, &json!("v")), "{body}");
    let (status, body) = ask(&one, "POST", "/v1/volumes/v/revert", revert("1 hour ago", false)).await;
    assert!(status == 404 && body["message"].as_str().unwrap().contains("its oldest is of 20"), "{body}");
    let (status, body) = ask(&one, "POST", "/v1/volumes/v/revert", revert("tuesday", false)).await;
    assert!(status == 404 && body["hint"].as_str().unwrap().contains("10 minutes ago"), "{body}");
    let attacher = Attacher::new(one.meta.clone(), Arc::new(Obliging));
    attacher.attach_for_clients("v", &Wanting::of_process(NodeId(1), 7)).await.unwrap();
    let (status, body) = ask(&one, "POST", "/v1/volumes/v/revert", revert("monday", false)).await;
    assert!(status == 409 && body["hint"].as_str().unwrap().contains("--force"), "{body}");
    assert_eq!(ask(&one, "POST", "/v1/volumes/w/resize", Some(json!({ "size_bytes": GIB / 2 }))).await.0, 422);
    let smaller = json!({ "size_bytes": GIB / 2, "shrink": true });
    let (status, body) = ask(&one, "POST", "/v1/volumes/w/resize", Some(smaller)).await;
    assert_eq!(
        (status, &body["size_bytes"], &body["kept"]["size_bytes"]),
        (200, &json!(GIB / 2), &json!(GIB)),
        "{body}"
    );
    assert_eq!(ask(&one, "GET", "/v1/volumes/w", None).await.1["attachments"], json!([]));
    // Clones, of a snapshot and of the present.
    let clone = json!({ "name": "c", "from": "monday" });
    let (status, body) = ask(&two, "POST", "/v1/volumes/v/clone", Some(clone.clone())).await;
    assert_eq!((status, &body["source"]), (201, &json!("v@monday")), "{body}");
    assert_eq!(ask(&two, "POST", "/v1/volumes/v/clone", Some(clone)).await.0, 409);
    assert_eq!(ask(&two, "GET", "/v1/volumes/v/snapshots/monday", None).await.1["clones"], json!(["c"]));
    let before = ask(&two, "GET", "/v1/volumes/v/snapshots", None).await.1;
    let (status, body) = ask(&two, "POST", "/v1/volumes/v/clone", Some(json!({ "name": "d", "shared": true }))).await;
    assert_eq!((status, &body["access"], &body["size_bytes"]), (201, &json!("shared"), &json!(GIB)), "{body}");
    assert_eq!(ask(&two, "GET", "/v1/volumes/v/snapshots", None).await.1, before, "nothing is left over");
    // What has changed, in pages; what would come back.
    let diff = |query: &str| format!("/v1/volumes/v/snapshots/monday/diff{query}");
    let (status, whole) = ask(&two, "GET", &diff(""), None).await;
    assert_eq!((status, &whole["from"], &whole["to"]), (200, &json!("v@monday"), &json!("v")), "{whole}");
    let ranges = &pages(&two, &whole, &diff("")).await;
    assert!(!ranges.is_empty() && ranges.iter().all(|range| range["length_bytes"] == 4 << 20), "{whole}");
    let half = 512 << 20;
    let layers = format!("&from_layer={}&to_layer={}", whole["from_layer"], whole["to_layer"]);
    let (status, rest) = ask(&one, "GET", &diff(&format!("?offset_bytes={half}{layers}")), None).await;
    let behind: Vec<&Value> = ranges.iter().filter(|range| range["offset_bytes"].as_u64() >= Some(half)).collect();
    assert_eq!((status, pages(&one, &rest, &diff("")).await.iter().collect::<Vec<_>>()), (200, behind));
    data_is_told(&one, &two, ranges, half).await;
    assert_eq!(ask(&one, "GET", &diff("?to_volume=c"), None).await.1["to"], "c");
    for (query, expected, about) in [
        ("?to=tuesday", 404, "no snapshot 'tuesday'"),
        ("?to_volume=x", 404, "'x'"),
        ("?to_volume=w", 422, "nothing in common"),
        ("?offset_bytes=4096", 422, "not a multiple"),
        ("?from_layer=999", 409, "while they were compared"),
        ("?to_layer=999", 409, "while they were compared"),
    ] {
        let (status, body) = ask(&one, "GET", &diff(query), None).await;
        assert!(status == expected && body["message"].as_str().unwrap().contains(about), "{query}: {status} {body}");
    }
    for (path, about) in [
        ("/v1/node/compare?revision=1&from=1&to=2&first=0&end=1&limit=1&groups=1,x", "\"x\" is no group"),
        ("/v1/node/measure?revision=1&device=d&layer=1&from=0&leaves_max=1", "device"),
        (&diff("?offset_bytes=-1"), "offset_bytes"),
    ] {
        let (status, body) = ask(&one, "GET", path, None).await;
        assert!(status == 400 && body["message"].as_str().unwrap().contains(about), "{path}: {status} {body}");
    }
    let (_, shown) = ask(&two, "GET", "/v1/volumes/v/snapshots/monday", None).await;
    // Snapshots and a clone lie on it: it stays. The one that was kept last has nothing on it; two devices have three
    // pages.
    assert_eq!((&shown["freed_bytes"], &shown["freed_missing"]), (&json!(0), &Value::Null), "{shown}");
    let kept = before.as_array().unwrap().iter().rfind(|snapshot| snapshot["origin"] == "revert").unwrap();
    let path = format!("/v1/volumes/v/snapshots/{}", kept["name"].as_str().unwrap());
    assert_eq!(ask(&one, "GET", &path, None).await.1["freed_bytes"], 2 * 3 * 4096);
    assert_eq!(ask(&one, "GET", &format!("{path}?measure_ms=0"), None).await.1["freed_bytes"], Value::Null);
    // Protection.
    let policy =
        json!({ "every_seconds": 1, "keep_seconds": 60, "then": [{ "every_seconds": 60, "keep_seconds": 600 }] });
    let (status, body) = ask(&one, "POST", "/v1/volumes/v/protect", Some(policy.clone())).await;
    assert_eq!((status, &body["protection"]), (200, &policy), "{body}");
    let mut models = one.meta.watch_model();
    let made = models.wait_for(|model| {
        let by_schedule = azekura_model::SnapshotOrigin::Schedule;
        model.snapshots_of(VolumeId(1)).filter(|snapshot| snapshot.origin == by_schedule).count() >= 2
    });
    tokio::time::timeout(Duration::from_secs(30), made).await.unwrap().unwrap();
    assert_eq!(ask(&one, "POST", "/v1/volumes/v/protect", Some(json!({ "every_seconds": 1 }))).await.0, 422);
    let (status, body) = ask(&one, "POST", "/v1/volumes/v/protect", Some(json!({}))).await;
    assert!(status == 422 && body["message"].as_str().unwrap().contains("'off': true"), "{body}");
    assert_eq!(ask(&one, "GET", "/v1/volumes/v", None).await.1["protection"], policy);
    let off = json!({ "off": true });
    assert_eq!(ask(&one, "POST", "/v1/volumes/v/protect", Some(off)).await.1["protection"], Value::Null);
    // Deletion says what it takes; the leader deletes what is left of the volume.
    let (status, body) = ask(&one, "DELETE", "/v1/volumes/v?force=true", None).await;
    assert!(status == 409 && body["hint"].as_str().unwrap().contains("--snapshots"), "{body}");
    assert_eq!(ask(&one, "DELETE", "/v1/volumes/v/snapshots/monday", None).await.0, 204);
    assert_eq!(ask(&one, "DELETE", "/v1/volumes/v/snapshots/monday", None).await.0, 404);
    assert_eq!(ask(&one, "DELETE", "/v1/volumes/v?force=true&snapshots=true", None).await.0, 204);
    let mut models = one.meta.watch_model();
    let gone = models.wait_for(|model| model.snapshots_of(VolumeId(1)).next().is_none());
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_that_nobody_finishes_is_called_off() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        EmbeddedServer::start(&folder.path().join("config.redb"), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let one = start_node(&server, "n1").await;
    let _two = start_node(&server, "n2").await;
    while one.meta.model().alive.len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(ask(&one, "POST", "/v1/volumes", Some(json!({ "name": "v", "size_bytes": GIB }))).await.0, 201);
    let wish = azekura_model::transitions::cuts::VolumeCut::snapshot("v", "s", azekura_model::SnapshotOrigin::Person);
    one.meta.begin_cut("lost", NodeId(2), &[wish]).await.unwrap();
    let mut models = one.meta.watch_model();
    let over = models.wait_for(|model| model.volumes.get("v").is_some_and(|volume| volume.cut.is_none()));
    tokio::time::timeout(Duration::from_secs(30), over).await.unwrap().unwrap();
    // Whoever comes next need not know.
    assert_eq!(ask(&one, "POST", "/v1/snapshots", Some(json!({ "volumes": ["v"] }))).await.0, 201);
}
