//! What this node says about itself to the REST API: of all its shards together.

use crate::bridge::following::Troubles;
use crate::driver::commands::Inspection;
use crate::driver::messages::Handles;
use azekura_api::{
    BackgroundSnapshot, DeviceOperations, DeviceSnapshot, GroupSnapshot, IDLE, LayerUse, NodeSnapshot, READ_ONLY,
    RequestCounters, ResyncSnapshot, ScrubSnapshot, UNPROVEN, VolumeSnapshot,
};
use azekura_base::DeviceId;
use azekura_control::{DataKeys, NodeStatistics};
use azekura_gateway::{Counters, LATENCY_BUCKETS};
use azekura_node::{GroupReport, Node, ThrottleReport};
use azekura_replica::{GroupState, ResyncProgress, ScrubKind, ScrubReport};
use azekura_store::Store;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

const _: () = assert!(LATENCY_BUCKETS == azekura_api::LATENCY_BUCKETS, "buckets mean the same on both sides");

/// Clock ticks a second in `/proc/self/stat`: what Linux gives every architecture's user space.
const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes in a page of `/proc/self/statm`.
const PAGE_BYTES: u64 = 4096;

/// Devices that are out of service, and why.
pub type Failures = Arc<Mutex<BTreeMap<DeviceId, String>>>;

/// The node's counters, read from its data plane.
pub struct Statistics {
    /// The data plane.
    pub shards: Handles,
    /// The node's name.
    pub name: String,
    /// Devices that are out of service.
    pub failures: Failures,
    /// What would not work any more after the node's next start.
    pub troubles: Troubles,
    /// The keys of encrypted volumes.
    pub keys: DataKeys,
    /// Up to which revision of the configuration the data plane has been told.
    pub configured: watch::Receiver<u64>,
    /// When the process started.
    pub started: Instant,
}

impl Statistics {
    /// Of a data plane whose node has this name.
    pub fn new(
        shards: &Handles,
        name: String,
        (failures, troubles): (&Failures, Troubles),
        keys: &DataKeys,
        configured: &watch::Receiver<u64>,
        started: Instant,
    ) -> Statistics {
        let (shards, failures, keys) = (shards.clone(), Arc::clone(failures), keys.clone());
        Statistics { shards, name, failures, troubles, keys, configured: configured.clone(), started }
    }
}

impl NodeStatistics for Statistics {
    fn snapshot(&self) -> Pin<Box<dyn Future<Output = Option<NodeSnapshot>> + Send + '_>> {
        Box::pin(async {
            let seen = self.shards.inspect(|look| look_at(&look)).await?;
            let mut snapshot = seen.into_iter().reduce(together)?;
            (snapshot.memory_bytes, snapshot.cpu_seconds) = (memory_bytes(), cpu_seconds());
            snapshot.devices.sort_unstable_by_key(|device| device.id);
            snapshot.groups.sort_unstable_by_key(|group| (group.id, group.device));
            snapshot.keys_missing = self.keys.needed().into_iter().map(|(id, why)| (id.0, why)).collect();
            snapshot.keks_lacking.clone_from(&self.troubles.keks.borrow());
            snapshot.name.clone_from(&self.name);
            snapshot.uptime_seconds = self.started.elapsed().as_secs_f64();
            let deleted = self.troubles.deleted.borrow();
            for device in &mut snapshot.devices {
                let said = deleted.get(&DeviceId(device.id)).cloned();
                device.problem = device.problem.take().or(said);
            }
            drop(deleted);
            let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            // One that took long to be opened may be there by now.
            snapshot.devices.retain(|device| !failures.contains_key(&DeviceId(device.id)));
            snapshot.devices.extend(failures.iter().map(|(id, why)| DeviceSnapshot {
                id: id.0,
                state: "failed".into(),
                problem: Some(why.clone()),
                ..DeviceSnapshot::default()
            }));
            Some(snapshot)
        })
    }

    fn configured(&self) -> u64 {
        *self.configured.borrow()
    }

    fn layers(&self) -> Pin<Box<dyn Future<Output = Option<LayerUse>> + Send + '_>> {
        Box::pin(async {
            let seen = self.shards.inspect(|look| {
                let devices = look.node.device_ids().filter_map(|id| Some((id.0, look.node.store(id)?)));
                devices.map(|(id, store)| (id, layers(store))).collect::<Vec<_>>()
            });
            Some(LayerUse(seen.await?.into_iter().flatten().collect()))
        })
    }
}

/// Bytes of the blocks that each layer owns.
fn layers(store: &Store) -> BTreeMap<u64, u64> {
    store.layers().map(|(layer, blocks)| (layer.0, blocks * azekura_base::BLOCK_SIZE as u64)).collect()
}

fn look_at(look: &Inspection<'_>) -> NodeSnapshot {
    let node = look.node;
    let volumes = node.gateway().volumes().iter().filter_map(|(name, volume)| {
        let statistics = node.gateway().statistics().get(&volume.id).copied();
        // There may be many snapshots: those that nobody reads are left out.
        let statistics = if volume.read_only { statistics? } else { statistics.unwrap_or_default() };
        let throttled = look.throttled.get(&volume.id).copied().unwrap_or_default();
        let snapshot = VolumeSnapshot {
            reads: counters(&statistics.reads),
            writes: counters(&statistics.writes),
            trims: statistics.trims,
            trimmed_bytes: statistics.trimmed_bytes,
            throttled: throttled.requests,
            throttled_us: throttled.time.as_micros() as u64,
            connections: look.connections.values().filter(|opened| opened.id == volume.id).count() as u32,
        };
        Some((name.clone(), snapshot))
    });
    NodeSnapshot {
        node: node.identity().endpoint.node.0,
        version: env!("CARGO_PKG_VERSION").into(),
        asked_again: node.gateway().asked_again(),
        volumes: volumes.collect(),
        devices: node.device_ids().map(|id| device(node, id)).collect(),
        groups: node.groups().map(|report| group(&report)).collect(),
        background: background(node.throttle()),
        ..NodeSnapshot::default()
    }
}

/// What two shards have done, as one.
fn together(mut one: NodeSnapshot, other: NodeSnapshot) -> NodeSnapshot {
    one.asked_again += other.asked_again;
    for (name, volume) in other.volumes {
        let sum = one.volumes.entry(name).or_default();
        sum.reads.add(&volume.reads);
        sum.writes.add(&volume.writes);
        sum.trims += volume.trims;
        sum.trimmed_bytes += volume.trimmed_bytes;
        sum.throttled += volume.throttled;
        sum.throttled_us += volume.throttled_us;
        sum.connections += volume.connections;
    }
    one.devices.extend(other.devices);
    one.groups.extend(other.groups);
    let (mine, theirs) = (&mut one.background, other.background);
    // There is no limit for the node where one of its shards has none.
    mine.rate_bytes_per_second =
        mine.rate_bytes_per_second.zip(theirs.rate_bytes_per_second).map(|(mine, theirs)| mine + theirs);
    mine.p99_us = mine.p99_us.max(theirs.p99_us);
    mine.quiet_p99_us = mine.quiet_p99_us.max(theirs.quiet_p99_us);
    one
}

fn background(report: ThrottleReport) -> BackgroundSnapshot {
    let ThrottleReport { rate, p99_us, quiet_p99_us } = report;
    // The API says 0 where nothing is known.
    BackgroundSnapshot {
        rate_bytes_per_second: rate,
        p99_us: p99_us.unwrap_or(0.0),
        quiet_p99_us: quiet_p99_us.unwrap_or(0.0),
    }
}

fn counters(counters: &Counters) -> RequestCounters {
    RequestCounters {
        count: counters.count,
        bytes: counters.bytes,
        errors: counters.errors,
        latency_us: counters.latency_us,
        latency: counters.latency.to_vec(),
    }
}

fn operations(counters: &Counters) -> DeviceOperations {
    let Counters { count, errors, latency_us, latency, .. } = *counters;
    DeviceOperations { count, errors, latency_us, latency: latency.to_vec() }
}

fn device(node: &Node, id: DeviceId) -> DeviceSnapshot {
    let opening = node.store(id).is_none();
    let problem = node.waits_for_room(id).then(|| no_room(opening).to_owned());
    let Some(store) = node.store(id) else {
        return DeviceSnapshot { id: id.0, state: "opening".into(), problem, ..DeviceSnapshot::default() };
    };
    let (space, statistics) = (store.space(), store.statistics());
    let (reads, writes) =
        node.device_counters(id).map(|(reads, writes)| (operations(reads), operations(writes))).unwrap_or_default();
    let block = azekura_base::BLOCK_SIZE as u64;
    DeviceSnapshot {
        id: id.0,
        state: "open".into(),
        problem,
        capacity_bytes: space.capacity,
        live_bytes: space.live,
        occupied_bytes: space.occupied,
        full: node.is_full(id),
        free_segments: u64::from(space.free_segments),
        segments: u64::from(space.segments),
        log_bytes: statistics.log_bytes,
        gc_bytes: statistics.moved_blocks * block,
        gathered_bytes: statistics.gathered_blocks * block,
        checkpoint_bytes: statistics.checkpoint_bytes,
        replay_bytes: statistics.replay_bytes,
        cache_hits: statistics.cache_hits,
        cache_misses: statistics.cache_misses,
        cache_bytes: statistics.cache_bytes,
        leaf_hits: statistics.leaf_hits,
        leaf_misses: statistics.leaf_misses,
        leaf_bytes: statistics.leaf_bytes,
        checksum_errors: statistics.checksum_errors,
        in_flight: statistics.batches_in_flight + statistics.records_waiting,
        hangs: node.hangs(id),
        reads,
        writes,
    }
}

/// What a device lacks whose file system is full, and what to do.
fn no_room(opening: bool) -> &'static str {
    if opening {
        "its file system is full: make room there, and the device goes into service by itself"
    } else {
        "its file system is full: make room there; until then it can't save its map, and no space of it comes back"
    }
}

fn group(report: &GroupReport) -> GroupSnapshot {
    let state = match report.state {
        GroupState::Active | GroupState::Following => "active".into(),
        // Where writes need not wait for all copies, one that is not heard keeps nobody waiting.
        GroupState::WaitingForCopy(_) | GroupState::Idle(_) if report.serving => "active".into(),
        GroupState::Idle(_) => IDLE.into(),
        GroupState::WaitingForCopy(device) => format!("waiting for device {device}"),
        GroupState::CopyLost(device) => format!("device {device} has lost its copy"),
        GroupState::CopyAhead(device) => {
            format!("device {device} has committed writes that this group does not know of: it is left as it is")
        }
        GroupState::ReadOnly => READ_ONLY.into(),
        GroupState::Opening => "opening".into(),
        GroupState::WithoutPrimary => "waiting for the primary".into(),
        GroupState::Unproven => UNPROVEN.into(),
        GroupState::OutOfSync => "out of sync".into(),
    };
    GroupSnapshot {
        id: report.pg.0,
        device: report.device.0,
        role: if report.primary { "primary" } else { "secondary" }.into(),
        state,
        epoch: report.epoch.0,
        sequence: report.prepared.0,
        committed: report.committed.0,
        resyncs: report.resyncs.iter().map(resync).collect(),
        scrub: report.scrub.as_ref().map(scrub),
    }
}

fn scrub(report: &ScrubReport) -> ScrubSnapshot {
    let kind = match report.kind {
        ScrubKind::Light => "light",
        ScrubKind::Deep => "deep",
    };
    ScrubSnapshot {
        kind: kind.into(),
        chunks: report.chunks,
        chunks_done: report.chunks_done,
        findings: report.findings(),
    }
}

fn resync((device, progress): &(DeviceId, ResyncProgress)) -> ResyncSnapshot {
    ResyncSnapshot {
        device: device.0,
        chunks: progress.chunks,
        chunks_done: progress.chunks_done,
        bytes: progress.bytes,
    }
}

/// Resident memory of this process; 0 if the kernel doesn't tell.
fn memory_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

/// Processor time of this process; 0 if the kernel doesn't tell.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command's name, in parentheses, may hold spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(volume: &str, reads: u64, device: u32, rate: Option<u64>) -> NodeSnapshot {
        let counters = RequestCounters { count: reads, bytes: reads * 4096, ..RequestCounters::default() };
        let volume_seen = VolumeSnapshot { reads: counters, connections: 1, ..VolumeSnapshot::default() };
        NodeSnapshot {
            asked_again: reads,
            volumes: [(volume.to_owned(), volume_seen)].into(),
            devices: vec![DeviceSnapshot { id: device, ..DeviceSnapshot::default() }],
            background: BackgroundSnapshot {
                rate_bytes_per_second: rate,
                p99_us: f64::from(device),
                quiet_p99_us: 1.0,
            },
            ..NodeSnapshot::default()
        }
    }

    #[test]
    fn what_shards_have_done_adds_up() {
        let three = [snapshot("a", 3, 7, Some(10)), snapshot("b", 4, 2, Some(5)), snapshot("a", 5, 9, Some(1))];
        let all = three.into_iter().reduce(together).expect("there are three");
        let reads = |name: &str| (all.volumes[name].reads.count, all.volumes[name].reads.bytes);
        assert_eq!((reads("a"), reads("b")), ((8, 8 * 4096), (4, 4 * 4096)));
        assert_eq!((all.volumes["a"].connections, all.asked_again), (2, 12));
        assert_eq!(all.devices.iter().map(|device| device.id).collect::<Vec<_>>(), [7, 2, 9]);
        assert_eq!((all.background.rate_bytes_per_second, all.background.p99_us), (Some(16), 9.0));
        let free = together(all, snapshot("a", 0, 1, None));
        assert_eq!(free.background.rate_bytes_per_second, None, "one of them has no limit");
    }
}
