//! Nodes with a REST API, and data planes that do as they are told.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use azekura_api::{DeviceSnapshot, GroupSnapshot, LayerUse, NodeSnapshot};
use azekura_base::{
    DeviceId, Generation, IoStatus, KeyGeneration, KeyId, KeyUse, LayerId, NodeId, PgId, RekeyProgress, RekeyWish,
    Shard, VolumeId,
};
use azekura_control::attachments::Later;
use azekura_control::layers::{CompareLayers, Differences, DifferingBlocks, MeasureLayer, Measured, NotTold};
use azekura_control::{Attacher, Control, DataPlane, Doors, NodeStatistics, Secrets};
use azekura_meta::MetaClient;
use azekura_meta::cluster::{DeviceSpec, LeaseHold, NodeSpec};
use azekura_meta::server::EmbeddedServer;
use azekura_model::{Endpoint, SettingsRecord};
use azekura_transport::NodeKey;
use tempfile::TempDir;

pub const GIB: u64 = 1 << 30;

/// A data plane that serves whatever the configuration says.
struct Obedient {
    meta: MetaClient,
    device: DeviceId,
    answers: Arc<AtomicBool>,
    configured: Arc<AtomicU64>,
}

impl NodeStatistics for Obedient {
    fn snapshot(&self) -> Pin<Box<dyn Future<Output = Option<NodeSnapshot>> + Send + '_>> {
        Box::pin(async move {
            let model = self.meta.model();
            let held = model.groups.values().filter(|group| group.members.contains(&self.device));
            let copy = |group: &azekura_model::GroupRecord| GroupSnapshot {
                id: group.id.0,
                device: self.device.0,
                role: if group.primary == self.device { "primary" } else { "secondary" }.to_owned(),
                state: "active".to_owned(),
                ..GroupSnapshot::default()
            };
            let device = DeviceSnapshot {
                id: self.device.0,
                state: "open".to_owned(),
                capacity_bytes: 10 * GIB,
                live_bytes: 4096,
                ..DeviceSnapshot::default()
            };
            let snapshot = NodeSnapshot {
                version: "test".to_owned(),
                devices: vec![device],
                groups: held.map(|group| copy(group)).collect(),
                ..NodeSnapshot::default()
            };
            self.answers.load(Ordering::Relaxed).then_some(snapshot)
        })
    }

    fn configured(&self) -> u64 {
        self.configured.load(Ordering::Relaxed)
    }

    fn layers(&self) -> Pin<Box<dyn Future<Output = Option<LayerUse>> + Send + '_>> {
        Box::pin(async {
            let layers = self.meta.model().layers.keys().map(|layer| (layer.0, 4096)).collect();
            let layers = LayerUse(BTreeMap::from([(self.device.0, layers)]));
            self.answers.load(Ordering::Relaxed).then_some(layers)
        })
    }
}

/// A data plane that confirms every fence, unless it is one of volume 2's.
pub struct Obliging;

impl DataPlane for Obliging {
    fn fence(
        &self,
        volume: VolumeId,
        _: Generation,
        _: Vec<Generation>,
        groups: Vec<PgId>,
    ) -> Later<'_, Result<(), Vec<PgId>>> {
        Box::pin(async move { if volume == VolumeId(2) { Err(groups) } else { Ok(()) } })
    }

    fn freeze(&self, volume: VolumeId, _: LayerId, _: u64, groups: Vec<PgId>) -> Later<'_, Result<(), Vec<PgId>>> {
        Box::pin(async move { if volume == VolumeId(2) { Err(groups) } else { Ok(()) } })
    }

    fn incarnation(&self) -> u64 {
        7
    }

    fn trim(&self, _: String, _: Generation, _: u64, _: u64) -> Later<'_, Result<(), IoStatus>> {
        Box::pin(async { Ok(()) })
    }

    /// Every chunk of group 1 has changed, in pages.
    fn compare_layers(&self, asked: CompareLayers) -> Later<'_, Result<Differences, NotTold>> {
        let next = Some(asked.first.0 + 3).filter(|next| *next < asked.end.0);
        let chunks = (asked.first.0..next.unwrap_or(asked.end.0)).filter(|_| asked.pg == PgId(1));
        let chunks = chunks.map(|chunk| (chunk, vec![DifferingBlocks(0, 1024, chunk % 2 == 0)])).collect();
        Box::pin(async move { Ok(Differences { chunks, next }) })
    }

    fn measure_layer(&self, asked: MeasureLayer) -> Later<'_, Result<Measured, NotTold>> {
        let next = (asked.from.0 < 10).then_some(asked.from.0 + 5);
        Box::pin(async move { Ok(Measured { bytes: 4096, next }) })
    }

    /// It has the first generation of every key, and writes with that.
    fn key_use(&self, keys: Vec<KeyId>) -> Later<'_, Option<Vec<Vec<KeyUse>>>> {
        let first = KeyUse { newest: Ok(KeyGeneration::FIRST), writes: Some(KeyGeneration::FIRST) };
        Box::pin(async move { Some(vec![vec![first; keys.len()]]) })
    }

    fn rekey(&self, _: BTreeMap<VolumeId, RekeyWish>, _: i64) {}

    /// Sockets have to be called something.
    fn expose(&self, _: String, socket: Option<String>) -> Later<'_, Result<(), String>> {
        Box::pin(async move { if socket.as_deref() == Some("") { Err("it has no name".to_owned()) } else { Ok(()) } })
    }

    fn unexpose(&self, volume: String, socket: Option<String>) -> Later<'_, Result<(), String>> {
        self.expose(volume, socket)
    }

    fn rekeying(&self) -> Later<'_, BTreeMap<VolumeId, RekeyProgress>> {
        Box::pin(async { BTreeMap::new() })
    }

    fn ended(&self, _: Vec<(NodeId, u64)>) -> Later<'_, BTreeSet<(NodeId, u64)>> {
        Box::pin(async { BTreeSet::new() })
    }
}

/// A node's secrets, in memory.
#[derive(Debug, Default)]
pub struct Kept(pub Mutex<BTreeMap<String, String>>);

impl Secrets for Kept {
    fn read(&self, name: &str) -> std::io::Result<Option<String>> {
        Ok(self.0.lock().unwrap().get(name).cloned())
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        self.0.lock().unwrap().insert(name.to_owned(), text.to_owned());
        Ok(())
    }
}

pub struct Node {
    pub api: SocketAddr,
    pub meta: MetaClient,
    pub control: Control,
    pub alive: LeaseHold,
    pub answers: Arc<AtomicBool>,
    /// Up to which revision its data plane knows the configuration.
    pub configured: Arc<AtomicU64>,
    /// By which other nodes know it.
    pub key: Arc<NodeKey>,
    pub secrets: Arc<Kept>,
    /// Its own socket, in a folder that goes with it.
    pub local: PathBuf,
    pub folder: TempDir,
}

pub async fn start_node(server: &EmbeddedServer, name: &str) -> Node {
    let meta = MetaClient::connect(vec![format!("http://{}", server.address())]).await.unwrap();
    meta.ensure_cluster("test", SettingsRecord::default(), None).await.unwrap();
    let port = azekura_control::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (key, secrets) = (Arc::new(NodeKey::generate().unwrap()), Arc::new(Kept::default()));
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("api.sock");
    let door = azekura_control::bind_local(&local).unwrap();
    let this = NodeSpec {
        incarnation: 1,
        uuid: name.to_owned(),
        name: name.to_owned(),
        data_address: "127.0.0.1:7101".parse().unwrap(),
        api_address: port.local_addr().unwrap(),
        endpoints: ["127.0.0.1:10809", "unix:/run/azekura.nbd"].map(|at| Endpoint::new("nbd", at.into())).into(),
        site: String::new(),
        rack: String::new(),
        shards: std::num::NonZeroU8::MIN,
        key: key.name().unwrap(),
        api_tls: true,
    };
    let node = meta.register_node(&this).await.unwrap().id;
    let (uuid, shard, name) = (name.to_owned(), Shard(0), "device-0".to_owned());
    let spec = DeviceSpec { uuid, node, shard, name, capacity_bytes: 10 * GIB, usable_bytes: 10 * GIB };
    let device = meta.register_device(&spec).await.unwrap().id;
    let answers = Arc::new(AtomicBool::new(true));
    let configured = Arc::new(AtomicU64::new(1));
    let (meta_of, asked, told) = (meta.clone(), Arc::clone(&answers), Arc::clone(&configured));
    let statistics = Obedient { meta: meta_of, device, answers: asked, configured: told };
    let attacher = Attacher::new(meta.clone(), Arc::new(Obliging));
    let names = vec!["Node.example".to_owned()];
    let doors = Doors::new(port, Some(door), names, Arc::clone(&key), Arc::clone(&secrets) as _).unwrap();
    let keys = azekura_control::DataKeys::new(None);
    let control = azekura_control::start(doors, meta.clone(), node, Arc::new(statistics), attacher, keys);
    let (api, alive) = (this.api_address, meta.keep_alive(node));
    Node { api, alive, meta, control, answers, configured, key, secrets, local, folder }
}

/// A configuration server, and nodes of these names that know each other.
pub async fn start_nodes(folder: &TempDir, names: &[&str]) -> (EmbeddedServer, Vec<Node>) {
    let database = folder.path().join("config.redb");
    let server = EmbeddedServer::start(&database, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(start_node(&server, name).await);
    }
    for node in &nodes {
        while node.meta.model().alive.len() < nodes.len() || node.meta.model().authorities.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    (server, nodes)
}

/// One request in JSON on a connection of its own: the head and the body of the answer.
pub fn exchange(stream: impl Read + Write, method: &str, path: &str, headers: &str, body: &str) -> (String, String) {
    let mut stream = stream;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n");
    let length = body.len();
    let rest = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all((head + &rest).as_bytes()).unwrap();
    let mut answer = String::new();
    // Over HTTPS the end comes without a word, and the answer is whole by its length.
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}
