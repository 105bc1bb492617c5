//! Devices, a configuration and a control plane for shards that run on threads of their own.

#![allow(clippy::unwrap_used)]

use crate::disk::device::DeviceDir;
use crate::driver::commands::{Command, ReadyDevice};
use crate::driver::messages::{Handles, Report};
use azekura_base::{DeviceId, Endpoint, Generation, LayerId, NodeId, PgId, Shard, VolumeId};
use azekura_gateway::VolumeView;
use azekura_map_db::CheckpointDb;
use azekura_node::{Attachments, ClusterView, Location, NodeView};
use azekura_reactor::{DeviceFile, DeviceOptions};
use azekura_replica::GroupConfig;
use azekura_store::{Initialisation, Options, SavedMap, Store};
use azekura_transport::https::{Https, StreamTls};
use azekura_transport::{Credentials, NodeKey};
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

pub(in crate::driver) const CLUSTER: u128 = 77;
pub(in crate::driver) const NODE: NodeId = NodeId(1);
pub(in crate::driver) const NAME: &str = "vol1";
const VOLUME: VolumeId = VolumeId(5);
const ATTACHMENT: Generation = Generation(1);
pub(in crate::driver) const CHUNK: u64 = 4 << 20;
pub(in crate::driver) const CHUNKS: u64 = 8;
/// The smallest that there is; little of it is ever written.
const DEVICE_BYTES: u64 = 320 << 20;
pub(in crate::driver) const PATIENCE: Duration = Duration::from_secs(60);

fn shard_of(device: u32) -> Shard {
    Shard(device as u8 - 1)
}

/// An empty device with a small store.
pub(in crate::driver) fn device(folder: &Path, number: u32) -> ReadyDevice {
    let path = folder.join(format!("device-{number}"));
    let dir = DeviceDir::create(&path, DEVICE_BYTES).unwrap();
    let options = Options { segments: 16, segment_blocks: 2048, ..Options::default() };
    let id = DeviceId(number);
    let identity = azekura_store::Identity { cluster: CLUSTER, device: id, instance: dir.file.instance };
    let format = Store::format(&options, &identity).unwrap();
    let log = OpenOptions::new().write(true).open(dir.log_path()).unwrap();
    format.pieces.iter().for_each(|piece| log.write_all_at(piece, format.offset).unwrap());
    let mut map = CheckpointDb::open(&path.join("map.redb")).unwrap();
    map.checkpoint(format.checkpoint).unwrap();
    let mut store = Store::open(options.clone(), identity, map.root().unwrap().unwrap());
    store.segments_ready(options.segments, Initialisation::GoesOn);
    let log = DeviceFile::open(&dir.log_path(), DeviceOptions::default()).unwrap();
    ReadyDevice { id, shard: shard_of(number), dir, log, parents: Vec::new(), store, map }
}

/// One node of so many shards, with a device each and as many groups, each of which has its primary on another one, and
/// a copy on all.
pub(in crate::driver) fn view(address: SocketAddr, shards: u8) -> ClusterView {
    let numbers = || 1..=u32::from(shards);
    let devices = || numbers().map(DeviceId);
    let groups = numbers().map(|number| (PgId(number), GroupConfig::new(DeviceId(number), devices().collect())));
    let volume = VolumeView {
        id: VOLUME,
        name: NAME.to_owned(),
        size: CHUNKS * CHUNK,
        logical_block: azekura_base::LogicalBlock::Bytes512,
        layer: LayerId(1),
        cut: None,
        read_only: false,
        io_timeout: None,
        groups: numbers().map(PgId).collect(),
        group_offset: 0,
        key: None,
        limits: None,
    };
    let at = |device: DeviceId| Endpoint { node: NODE, shard: shard_of(device.0) };
    ClusterView {
        revision: 1,
        nodes: [(
            NODE,
            NodeView {
                address,
                shards: NonZeroU8::new(shards).unwrap(),
                keys: Vec::new(),
                location: Location::default(),
            },
        )]
        .into(),
        devices: devices().map(|device| (device, at(device))).collect(),
        groups: groups.collect(),
        volumes: [(NAME.to_owned(), Arc::new(volume))].into(),
        attachments: [(VOLUME, Attachments { generation: ATTACHMENT, standing: vec![ATTACHMENT] })].into(),
        ..ClusterView::default()
    }
}

/// A key that no other process has.
pub(in crate::driver) fn credentials() -> Credentials {
    Credentials::new(&NodeKey::generate().unwrap()).unwrap()
}

/// What clients are shown that speak TLS.
pub(in crate::driver) fn streams() -> StreamTls {
    Https::new(&NodeKey::generate().unwrap()).unwrap().streams()
}

/// The control plane of a cluster in which all goes well.
pub(in crate::driver) struct Control {
    pub(in crate::driver) view: ClusterView,
    pub(in crate::driver) shards: Handles,
}

impl Control {
    fn configure(&self) {
        let view = Arc::new(self.view.clone());
        self.shards.all().for_each(|shard| shard.send(Command::Configure(Arc::clone(&view))));
    }

    pub(in crate::driver) async fn run(mut self, mut reports: mpsc::UnboundedReceiver<(Shard, Report)>) {
        self.configure();
        while let Some((shard, report)) = reports.recv().await {
            let answer = match report {
                Report::Propose(pg, device, config) => {
                    let version = config.version;
                    let stands = self.view.groups[&pg].version + 1 == version;
                    if stands {
                        self.view.revision += 1;
                        self.view.groups.insert(pg, config);
                        self.configure();
                    }
                    Command::ProposalDone(pg, device, version, stands.then_some(self.view.revision))
                }
                Report::Attach(volume) => Command::Attached(volume, Ok((VOLUME, ATTACHMENT).into())),
                Report::GiveBack(volume, _) => Command::GivenBack(volume),
                Report::ReadConfiguration => Command::ConfigurationRead(Some(self.view.revision)),
                other => {
                    println!("{shard:?}: {other:?}");
                    continue;
                }
            };
            self.shards.send(shard, answer);
        }
    }
}
