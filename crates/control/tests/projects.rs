//! Every endpoint of the REST API, asked with a grant of another project: it answers as if nothing of the others were
//! there, and changes nothing of rivals.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{GIB, Node, start_node};
use azekura_api::endpoint::ROUTES;
use azekura_api::{Method, Needs, Role, Route};
use azekura_base::ApiAccess;
use azekura_meta::cluster::SettingsChange;
use azekura_meta::server::EmbeddedServer;
use serde_json::{Value, json};

/// What stands in all names of other projects' things, and in nothing else.
const SECRET: &str = "seekrit";

fn send(node: &Node, method: &str, path: &str, proof: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(node.api).unwrap();
    let body = body.to_string();
    let header = if proof.is_empty() { String::new() } else { format!("Authorization: Bearer {proof}\r\n") };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\n");
    let length = body.len();
    let rest = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all((head + &rest).as_bytes()).unwrap();
    stream
}

fn ask(node: &Node, method: &str, path: &str, proof: &str, body: &Value) -> (u16, String) {
    let mut answer = String::new();
    let _ = send(node, method, path, proof, body).read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn done(node: &Node, method: &str, path: &str, proof: &str, body: &Value) -> Value {
    let (status, text) = ask(node, method, path, proof, body);
    assert!((200..300).contains(&status), "{method} {path}: {status} {text}");
    serde_json::from_str(&text).unwrap_or_default()
}

struct World {
    _server: EmbeddedServer,
    _folder: tempfile::TempDir,
    node: Node,
    admin: String,
}

/// Two projects and the default one, each with a volume and its snapshot; those of `rivals` and of the default one have
/// [`SECRET`] in their names.
async fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let server = EmbeddedServer::start(&folder.path().join("config.redb"), address).await.unwrap();
    let node = start_node(&server, "n1").await;
    while node.meta.model().alive.is_empty() || node.meta.model().authorities.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let admin = json!({ "name": "root", "role": "admin" });
    let admin = done(&node, "POST", "/v1/grants", "", &admin)["token"].as_str().unwrap().to_owned();
    let change = SettingsChange { api_access: Some(ApiAccess::Grants), ..SettingsChange::default() };
    let world = World { _server: server, _folder: folder, node, admin };
    world.node.meta.change_settings(change).await.unwrap();
    while ask(&world.node, "GET", "/v1/whoami", &world.admin, &json!({})).0 != 200
        || world.node.meta.model().settings().api_access != ApiAccess::Grants
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.root("POST", "/v1/classes", &json!({ "name": "c", "copies": 1, "failure_domain": "device" }));
    for project in ["ours", "rivals"] {
        world.root("POST", "/v1/projects", &json!({ "name": project }));
    }
    let names = ["filler-1".to_owned(), format!("{SECRET}-default"), format!("rivals/{SECRET}"), "ours/v".to_owned()];
    for name in &names {
        world.root("POST", "/v1/volumes", &json!({ "name": name, "size_bytes": GIB, "class": "c" }));
    }
    for name in names.iter().filter(|name| !name.starts_with("filler") && *name != "ours/v") {
        world.root("POST", "/v1/targets", &json!({ "name": name, "volumes": [name] }));
    }
    world.root("POST", "/v1/targets", &json!({ "name": "ours/t" }));
    for name in names.iter().filter(|name| !name.starts_with("filler")) {
        // The data plane of these tests does not stop volume 2.
        let made = ask(&world.node, "POST", "/v1/snapshots", &world.admin, &json!({ "volumes": [name], "name": "s" }));
        assert!(made.0 == 201 || world.node.meta.model().volumes[name].id.0 == 2, "{name}: {made:?}");
    }
    world
}

impl World {
    fn root(&self, method: &str, path: &str, body: &Value) -> Value {
        done(&self.node, method, path, &self.admin, body)
    }

    /// A token of a project, once it counts.
    async fn token(&self, name: &str, role: Role, project: &str) -> String {
        let body = json!({ "name": name, "role": role.word(), "project": project });
        let token = self.root("POST", "/v1/grants", &body)["token"].as_str().unwrap().to_owned();
        while ask(&self.node, "GET", "/v1/whoami", &token, &json!({})).0 != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        token
    }
}

/// Bodies that could be meant: about a volume of this name, which may stand in the path or in the body. An endpoint
/// that is not here can't be asked: whoever adds one says here how.
fn bodies(route: &Route, name: &str) -> Vec<Value> {
    match (route.method, route.path) {
        (Method::Get | Method::Delete, _) => vec![json!({})],
        (_, "/v1/volumes") => vec![json!({ "name": name, "size_bytes": GIB, "class": "c" })],
        (_, "/v1/volumes/{name}/resize") => {
            vec![json!({ "size_bytes": 2 * GIB }), json!({ "size_bytes": 4096, "shrink": true, "force": true })]
        }
        (_, "/v1/volumes/{name}/attach") => vec![json!({ "node": "n1", "force": true })],
        (_, "/v1/volumes/{name}/detach") => vec![json!({}), json!({ "node": "n1" })],
        (_, "/v1/volumes/{name}/unlock") => {
            vec![json!({ "secret": "correct horse" }), json!({ "secret": "correct horse", "node": "n1" })]
        }
        (_, "/v1/volumes/{name}/key") => vec![json!({})],
        (_, "/v1/volumes/{name}/secret") => {
            vec![json!({ "secret": "correct horse", "new_secret": "battery staple" })]
        }
        (_, "/v1/volumes/{name}/revert") => vec![json!({ "to": "s", "force": true })],
        // From what is another's, and, where the path is one's own, to it.
        (_, "/v1/volumes/{name}/clone") => vec![
            json!({ "name": "ours/c" }),
            json!({ "name": "ours/c", "from": "s" }),
            json!({ "name": name }),
            json!({ "name": name, "from": "s" }),
        ],
        (_, "/v1/volumes/{name}/protect") => {
            vec![json!({ "every_seconds": 3600, "keep_seconds": 7200 }), json!({ "off": true })]
        }
        (_, "/v1/volumes/{name}/limits") => vec![json!({ "iops": 1000 }), json!({})],
        (_, "/v1/targets") => {
            vec![json!({ "name": name }), json!({ "name": "ours/u", "volumes": [name] })]
        }
        (_, "/v1/targets/{name}/units") => vec![json!({ "volume": name }), json!({ "volume": "ours/v", "lun": 9 })],
        (_, "/v1/snapshots") => vec![json!({ "volumes": [name] }), json!({ "volumes": ["ours/v", name], "name": "t" })],
        (_, "/v1/grants") => vec![json!({ "name": "g", "role": "user", "project": name.split('/').next().unwrap() })],
        (_, "/v1/keys") => {
            let project = name.split('/').next().unwrap();
            let key = "0".repeat(64);
            vec![
                json!({ "name": "k", "role": "user", "key": key, "project": project }),
                json!({ "name": "k", "role": "user", "key": key, "volumes": [name] }),
            ]
        }
        (_, "/v1/hosts") => vec![json!({ "name": "h", "host": "iqn.2000-01.example:h", "volumes": [name] })],
        (_, path) => panic!("{path} is new: say here how it is asked about another project's volume"),
    }
}

/// What a route's names may be: those of the things of a project, by a volume's name.
fn paths(route: &Route, name: &str) -> Vec<String> {
    let volume = name.replace('/', "%2F");
    let project = name.split('/').next().unwrap();
    let path = |text: &str| vec![text.to_owned()];
    let parts: Vec<&str> = route.path.split('/').collect();
    match (route.path, &parts[..]) {
        ("/v1/volumes/{name}/snapshots/{snapshot}/diff", _) => vec![
            format!("/v1/volumes/{volume}/snapshots/s/diff"),
            format!("/v1/volumes/ours%2Fv/snapshots/s/diff?to_volume={volume}"),
        ],
        // Made from one's own, and called like what is another's.
        ("/v1/volumes/{name}/clone", _) => {
            vec![format!("/v1/volumes/{volume}/clone"), "/v1/volumes/ours%2Fv/clone".to_owned()]
        }
        (_, ["", "v1", "volumes", "{name}", ..]) => {
            path(&route.path.replace("{name}", &volume).replace("{snapshot}", "s"))
        }
        // Another's, and to one's own what is another's.
        ("/v1/targets/{name}/units", _) => {
            vec![format!("/v1/targets/{volume}/units"), "/v1/targets/ours%2Ft/units".to_owned()]
        }
        (_, ["", "v1", "targets", "{name}", ..]) => path(&route.path.replace("{name}", &volume).replace("{lun}", "0")),
        (_, ["", "v1", "projects", "{name}"]) => path(&format!("/v1/projects/{project}")),
        (_, ["", "v1", "grants", "{name}"]) => {
            vec![format!("/v1/grants/{project}%2F{SECRET}-ann"), format!("/v1/grants/{SECRET}-ann")]
        }
        (_, ["", "v1", "classes", "{name}"]) => path("/v1/classes/c"),
        (text, _) if !text.contains('{') => path(text),
        (text, _) => panic!("{text} is new: say here what its names are"),
    }
}

/// Routes whose answers have no end.
fn is_stream(route: &Route) -> bool {
    route.path == "/v1/watch"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_projects_grant_gets_nothing_and_learns_nothing() {
    let world = world().await;
    let node = &world.node;
    let _rivals = world.token(&format!("{SECRET}-ann"), Role::Owner, "rivals").await;
    let _default = world.token(&format!("{SECRET}-dee"), Role::Owner, "default").await;
    let before = node.meta.model();
    let of_others = |name: &str| name.contains(SECRET);
    let (mut asked, mut compared) = (0, 0);
    for role in [Role::Owner, Role::User, Role::Csi] {
        let token = world.token(role.word(), role, "ours").await;
        for route in ROUTES.iter().filter(|route| !is_stream(route)) {
            let method = route.method.word();
            if !role.may(route.needs) {
                let path = route.path.replace(['{', '}'], "");
                let (status, text) = ask(node, method, &path, &token, &json!({}));
                assert!(status == 403 && !text.contains(SECRET), "{role} asks {method} {path}: {status} {text}");
                continue;
            }
            let there = [format!("rivals/{SECRET}"), format!("{SECRET}-default")];
            let not_there = [format!("rivalz/{SECRET}"), format!("{SECRET}-defaulx")];
            for (there, not_there) in there.iter().zip(&not_there) {
                let asked_about = |name: &str| {
                    let mut answers = Vec::new();
                    for path in paths(route, name) {
                        // A clone of one's own by a name of one's own is nobody else's business.
                        let all_own = |body: &Value| {
                            path.contains("ours%2Fv/clone") && body["name"] == "ours/c"
                                || path.contains("targets/ours%2Ft") && body["volume"] == "ours/v"
                        };
                        for body in bodies(route, name).into_iter().filter(|body| !all_own(body)) {
                            let (status, text) = ask(node, method, &path, &token, &body);
                            answers.push((path.clone(), body, status, text));
                        }
                    }
                    answers
                };
                for ((path, body, status, text), (.., nothing, other)) in
                    asked_about(there).into_iter().zip(asked_about(not_there))
                {
                    asked += 1;
                    let told = format!("{role} asks {method} {path} {body}: {status} {text}, else {nothing} {other}");
                    let names_it = path.contains(SECRET) || path.contains("rivals") || body.to_string().contains(there);
                    if names_it || body.to_string().contains("rivals") {
                        assert!((400..500).contains(&status), "{told}");
                    } else {
                        // A list, or what is about nobody's volumes.
                        assert!(!text.contains(SECRET) && !text.contains("rivals"), "{told}");
                    }
                    if status >= 400 {
                        // What is there is told of as what is not.
                        compared += 1;
                        let same = other.replace(not_there, there).replace("rivalz", "rivals");
                        assert_eq!((status, text), (nothing, same), "{told}");
                    }
                }
            }
        }
    }
    assert!(asked > 150 && compared > 100, "{asked} {compared}");
    let after = node.meta.model();
    for (name, volume) in before.volumes.iter().filter(|(name, _)| of_others(name)) {
        assert_eq!(volume.mod_revision, after.volumes[name].mod_revision, "{name} is as it was");
        assert_eq!(before.snapshots_of(volume.id).count(), after.snapshots_of(volume.id).count());
        assert_eq!(before.attachments.get(&volume.id), after.attachments.get(&volume.id));
    }
    let revision = |model: &azekura_model::Model, name: &str| model.targets[name].mod_revision;
    for name in before.targets.keys() {
        assert_eq!(revision(&before, name), revision(&after, name), "{name} is as it was");
    }
    assert_eq!(before.volumes.len(), after.volumes.len(), "nothing was made under others' names, or from others'");
    let grants =
        after.grants.values().filter(|grant| grant.project != "ours" && !before.grants.values().any(|b| b == *grant));
    assert_eq!(grants.count(), 0, "nobody has given anybody something of another's");
}

/// What is one's own is there, all of it, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_projects_owner_has_what_is_the_projects() {
    let world = world().await;
    let node = &world.node;
    let owner = world.token("ann", Role::Owner, "ours").await;
    let default = world.token("dee", Role::Owner, "default").await;
    let names = |token: &str, path: &str, field: &str| {
        let list = done(node, "GET", path, token, &json!({}));
        let names = list.as_array().unwrap().iter().map(|thing| thing[field].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&owner, "/v1/volumes", "name"), ["ours/v"]);
    assert_eq!(names(&owner, "/v1/volumes?limit=1", "name"), ["ours/v"]);
    assert_eq!(names(&owner, "/v1/snapshots", "volume"), ["ours/v"]);
    assert_eq!(names(&owner, "/v1/projects", "name"), ["ours"]);
    assert_eq!(names(&owner, "/v1/targets", "name"), ["ours/t"]);
    assert_eq!(names(&default, "/v1/projects", "name"), Vec::<String>::new());
    assert!(names(&default, "/v1/volumes", "name").iter().all(|name| !name.contains('/')));
    assert_eq!(names(&world.admin, "/v1/projects", "name"), ["ours", "rivals"]);
    assert_eq!(names(&world.admin, "/v1/volumes", "name").len(), 4);
    assert_eq!(done(node, "GET", "/v1/classes/c", &owner, &json!({}))["volumes"], 1, "of those that are one's own");
    assert_eq!(done(node, "GET", "/v1/whoami", &owner, &json!({}))["project"], "ours");
    let volume = json!({ "name": "ours/w", "size_bytes": GIB, "class": "c" });
    done(node, "POST", "/v1/volumes", &owner, &volume);
    done(node, "POST", "/v1/volumes/ours%2Fw/attach", &owner, &json!({ "node": "n1" }));
    done(node, "POST", "/v1/volumes/ours%2Fw/detach", &owner, &json!({}));
    done(node, "POST", "/v1/volumes/ours%2Fv/clone", &owner, &json!({ "name": "ours/c", "from": "s" }));
    let (status, text) = ask(node, "POST", "/v1/volumes", &owner, &json!({ "name": "w", "size_bytes": GIB }));
    assert!(status == 403 && text.contains("name it ours/w"), "{status} {text}");
    // Grants are the project's: names, too.
    let made = done(node, "POST", "/v1/grants", &owner, &json!({ "name": "dee", "role": "user" }));
    assert_eq!(made["grant"]["project"], "ours");
    while names(&owner, "/v1/grants", "name") != ["ann", "dee"] {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    done(node, "DELETE", "/v1/grants/dee", &owner, &json!({}));
    assert_eq!(ask(node, "GET", "/v1/whoami", &default, &json!({})).0, 200, "the other of that name stays");
    done(node, "DELETE", "/v1/grants/ours%2Fann", &world.admin, &json!({}));
    while ask(node, "GET", "/v1/whoami", &owner, &json!({})).0 != 401 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_is_told_of_his_own() {
    let world = world().await;
    let node = &world.node;
    let token = world.token("ann", Role::User, "ours").await;
    let mut stream = send(node, "GET", "/v1/watch?of=volumes", &token, &json!({}));
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut told = String::new();
    let mut until = |told: &mut String, wanted: &str| {
        let mut bytes = [0; 4096];
        while !told.contains(wanted) {
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "it has ended: {told}");
            told.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    };
    until(&mut told, "\"ours/v\"");
    world.root("POST", &format!("/v1/volumes/rivals%2F{SECRET}/limits"), &json!({ "iops": 100 }));
    world.root("POST", &format!("/v1/volumes/{SECRET}-default/limits"), &json!({ "iops": 100 }));
    world.root("POST", "/v1/volumes", &json!({ "name": format!("rivals/{SECRET}2"), "size_bytes": GIB, "class": "c" }));
    world.root("POST", "/v1/volumes", &json!({ "name": "ours/last", "size_bytes": GIB, "class": "c" }));
    until(&mut told, "\"ours/last\"");
    assert!(!told.contains(SECRET) && told.contains("\"things\":1"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_are_told_and_hold() {
    let world = world().await;
    let node = &world.node;
    let owner = world.token("ann", Role::Owner, "ours").await;
    world.root(
        "POST",
        "/v1/projects/ours",
        &json!({ "volumes": 3, "bytes": 10 * GIB, "snapshots": 2, "classes": ["c"] }),
    );
    let create = |number: usize, size: u64| {
        let body = json!({ "name": format!("ours/q{number}"), "size_bytes": size, "class": "c" });
        ask(node, "POST", "/v1/volumes", &owner, &body)
    };
    let (status, text) = create(0, 10 * GIB);
    assert!(status == 409 || status == 507 || status == 422, "{status} {text}");
    assert!(text.contains("may have 10GiB of volumes, has 1GiB") && text.contains("azekura project set"), "{text}");
    let made = std::thread::scope(|scope| {
        let creating: Vec<_> = (1..=8).map(|number| scope.spawn(move || create(number, 4096).0)).collect();
        creating.into_iter().map(|thread| thread.join().unwrap()).filter(|status| *status == 201).count()
    });
    assert_eq!(made, 2, "one is there, three may be");
    let shown = done(node, "GET", "/v1/projects/ours", &owner, &json!({}));
    assert_eq!((&shown["used"]["volumes"], &shown["used"]["snapshots"]), (&json!(3), &json!(1)), "{shown}");
    // No class comes by itself where it is not the project's.
    let body = json!({ "name": "ours/z", "size_bytes": 4096, "copies": 1 });
    let (status, text) = ask(node, "POST", "/v1/volumes", &owner, &body);
    assert!(status == 422 && text.contains("may use these alone: c"), "{status} {text}");
    assert!(!node.meta.model().classes.contains_key("replicated-1"));
    let told = ask(node, "DELETE", "/v1/projects/ours", &world.admin, &json!({}));
    assert!(told.0 == 409 && told.1.contains("3 volumes"), "{told:?}");
    assert!(
        ROUTES
            .iter()
            .filter(|route| route.path.starts_with("/v1/projects") && route.method != Method::Get)
            .all(|route| route.needs == Needs::Administer)
    );
}
