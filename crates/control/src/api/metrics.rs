//! This node's metrics in Prometheus' text format (version 0.0.4). docs/metrics.md lists them, made from what is here.
//!
//! What a request costs is counted where requests are served, whoever reads; here it is only read. Volumes that clients
//! have not used at this node have no samples: a node knows every volume of the cluster.

use std::collections::BTreeMap;
use std::fmt::{Error, Result};

use azekura_api::endpoint::Metrics;
use azekura_api::{
    DeviceOperations, DeviceSnapshot, LastScrubs, NodeSnapshot, Prometheus, RequestCounters, VolumeSnapshot,
};
use azekura_base::CHUNK_SIZE;
use azekura_meta::time::unix_seconds;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text};
use prometheus_client::registry::Registry;

use self::families::{Families, NONE, Times};
use self::known::{Known, Volume};
use super::call::{Answer, Call};
use super::known::stale;

mod families;
mod known;

pub(super) async fn metrics(Call { api, .. }: Call<Metrics>) -> Answer<Metrics> {
    let mut snapshot = super::stats::own(&api).await?;
    snapshot.volumes.retain(|_, volume| is_used(volume));
    let used = snapshot.volumes.keys().map(String::as_str).collect();
    let away = stale(&api);
    let known = Known::of(&api.meta.model(), api.node, &snapshot, away.as_ref(), &used, unix_seconds());
    Ok(Prometheus(render(Seen { snapshot, known })).into())
}

/// Whether clients have asked this node for the volume since it started, or are connected.
fn is_used(volume: &VolumeSnapshot) -> bool {
    volume.connections > 0 || volume.reads.count > 0 || volume.writes.count > 0
}

/// What a node has to say at one moment.
#[derive(Debug)]
struct Seen {
    /// Without volumes that are not used here.
    snapshot: NodeSnapshot,
    known: Known,
}

fn render(seen: Seen) -> String {
    let mut registry = Registry::with_prefix("azekura");
    registry.register_collector(Box::new(seen));
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

impl Collector for Seen {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> std::result::Result<(), Error> {
        let mut families = Families(encoder);
        let Seen { snapshot, known } = self;
        node(&mut families, snapshot)?;
        cluster(&mut families, known)?;
        requests(&mut families, snapshot)?;
        volumes(&mut families, snapshot)?;
        records(&mut families, &known.used)?;
        devices(&mut families, snapshot, known)?;
        operations(&mut families, snapshot)?;
        groups(&mut families, snapshot, known)?;
        resyncs(&mut families, snapshot)?;
        scrubs(&mut families, snapshot, known.scrubbed.as_ref())?;
        background(&mut families, snapshot)
    }
}

fn node(to: &mut Families<'_>, snapshot: &NodeSnapshot) -> Result {
    let labels = [("version", snapshot.version.as_str()), ("node", snapshot.name.as_str())];
    to.gauge("build_info", "Always 1; the version of the program.", [(labels, 1_u64)])?;
    to.one("uptime_seconds", "Time since the start.", snapshot.uptime_seconds)?;
    to.one("memory_bytes", "Resident memory.", snapshot.memory_bytes)?;
    to.counter("cpu_seconds", "Processor time used.", [(NONE, snapshot.cpu_seconds)])?;
    let help = "Parts of requests sent again because nobody had answered for 10 s.";
    to.counter("asked_again", help, [(NONE, snapshot.asked_again)])?;
    let help = "Data keys of encrypted volumes that this node does not have.";
    to.one("keys_missing", help, snapshot.keys_missing.len() as u64)
}

/// What all nodes say alike, as long as they know the same.
fn cluster(to: &mut Families<'_>, known: &Known) -> Result {
    let flag = |flag: bool| u64::from(flag);
    to.one(
        "configuration_reachable",
        "Whether the configuration answers this node.",
        flag(known.away_seconds.is_none()),
    )?;
    let help = "For how long it has not; 0 while it does.";
    to.one("configuration_away_seconds", help, known.away_seconds.unwrap_or(0))?;
    to.one("leader", "Whether this node leads the control plane.", flag(known.leads))?;
    let help = "Whether nothing is wrong that this node knows of: configuration, nodes, devices, copies.";
    to.one("cluster_healthy", help, flag(known.healthy()))?;
    let nodes = known.nodes.iter().map(|(name, alive)| ([("peer", name.as_str())], flag(*alive)));
    to.gauge("node_alive", "Whether a node of the cluster, itself among them, gives signs of life.", nodes)?;
    let totals = &known.totals;
    let gauges: [(&str, &str, u64); 9] = [
        (
            "cluster_devices_failed",
            "Devices that have failed or are failing, and still have copies to give.",
            totals.devices_failed,
        ),
        (
            "cluster_groups_without_primary",
            "Placement groups, needed by volumes, that no living node serves.",
            totals.groups_without_primary,
        ),
        (
            "cluster_copies_missing",
            "Copies of such groups that are not in sync, or on a device that is away.",
            totals.copies_missing,
        ),
        ("cluster_volumes", "Volumes.", totals.volumes),
        ("cluster_volume_bytes", "The sum of their sizes.", totals.volume_bytes),
        ("cluster_snapshots", "Snapshots.", totals.snapshots),
        ("cluster_capacity_bytes", "What the devices hold together.", totals.capacity_bytes),
        ("cluster_promised_bytes", "What the volumes would need when full, with all copies.", totals.promised_bytes),
        ("cluster_nodes", "Nodes.", known.nodes.len() as u64),
    ];
    gauges.into_iter().try_for_each(|(name, help, value)| to.one(name, help, value))
}

/// Each volume's reads and writes.
fn requests(to: &mut Families<'_>, snapshot: &NodeSnapshot) -> Result {
    let each = || {
        snapshot.volumes.iter().flat_map(|(name, volume)| {
            let labels = |operation: &'static str| [("volume", name.as_str()), ("operation", operation)];
            [(labels("read"), &volume.reads), (labels("write"), &volume.writes)]
        })
    };
    type Counter = fn(&RequestCounters) -> u64;
    let counters: [(&str, &str, Counter); 3] = [
        ("volume_requests", "Requests answered; writes, zero writes and trims count as writes.", |c| c.count),
        ("volume_bytes", "Bytes asked for in them.", |c| c.bytes),
        ("volume_errors", "Requests answered with an error.", |c| c.errors),
    ];
    for (name, help, value) in counters {
        to.counter(name, help, each().map(|(labels, counters)| (labels, value(counters))))?;
    }
    let samples = each().map(|(labels, RequestCounters { count, latency_us, latency, .. })| {
        (labels, Times { count: *count, sum_us: *latency_us, buckets: latency })
    });
    to.histogram("volume_latency_seconds", "Time from a request to its answer.", samples)
}

/// What else clients do with each volume.
fn volumes(to: &mut Families<'_>, snapshot: &NodeSnapshot) -> Result {
    let each = || snapshot.volumes.iter().map(|(name, volume)| ([("volume", name.as_str())], volume));
    type Counter = fn(&VolumeSnapshot) -> u64;
    let counters: [(&str, &str, Counter); 3] = [
        ("volume_trims", "Trims begun.", |v| v.trims),
        ("volume_trimmed_bytes", "Bytes that they named.", |v| v.trimmed_bytes),
        ("volume_throttled_requests", "Requests that entered after the volume's limits had held some back.", |v| {
            v.throttled
        }),
    ];
    for (name, help, value) in counters {
        to.counter(name, help, each().map(|(labels, volume)| (labels, value(volume))))?;
    }
    let help = "Time in which requests were held back by the volume's limits, of all shards together.";
    to.counter("volume_throttled_seconds", help, each().map(|(labels, v)| (labels, v.throttled_us as f64 / 1e6)))?;
    to.gauge("volume_connections", "Connections of clients.", each().map(|(labels, v)| (labels, v.connections)))
}

/// What the records of volumes say.
fn records(to: &mut Families<'_>, used: &BTreeMap<String, Volume>) -> Result {
    let each = || used.iter().map(|(name, volume)| ([("volume", name.as_str())], volume));
    to.gauge("volume_size_bytes", "Size as clients see it.", each().map(|(labels, v)| (labels, v.size_bytes)))?;
    to.gauge("volume_snapshots", "Snapshots.", each().map(|(labels, v)| (labels, v.snapshots)))?;
    let protected = || each().filter_map(|(labels, volume)| Some((labels, volume.protection.as_ref()?)));
    let help = "Pause between two snapshots of the volume's protection.";
    to.gauge("volume_protection_interval_seconds", help, protected().map(|(labels, p)| (labels, p.every_seconds)))?;
    let help = "Age of the newest snapshot of the volume's protection; no sample before the first.";
    let lags = protected().filter_map(|(labels, protection)| Some((labels, protection.lag_seconds?)));
    to.gauge("volume_protection_lag_seconds", help, lags)
}

fn devices(to: &mut Families<'_>, snapshot: &NodeSnapshot, known: &Known) -> Result {
    let ids: Vec<String> = snapshot.devices.iter().map(|device| device.id.to_string()).collect();
    let each = || ids.iter().zip(&snapshot.devices).map(|(id, device)| ([("device", id.as_str())], device));
    let names = ids.iter().zip(&snapshot.devices).map(|(id, device)| {
        let name = known.device_names.get(&device.id).map_or("", String::as_str);
        ([("device", id.as_str()), ("name", name)], 1_u64)
    });
    to.gauge("device_info", "Always 1; the name of the device.", names)?;
    type Value = fn(&DeviceSnapshot) -> u64;
    let gauges: [(&str, &str, Value); 12] = [
        ("device_open", "Whether the device serves.", |d| u64::from(d.state == "open")),
        ("device_hangs", "Whether it does not answer, and nobody waits for it meanwhile.", |d| u64::from(d.hangs)),
        ("device_capacity_bytes", "Bytes that clients can store.", |d| d.capacity_bytes),
        ("device_live_bytes", "Bytes in use.", |d| d.live_bytes),
        ("device_occupied_bytes", "Bytes of segments that are not free.", |d| d.occupied_bytes),
        ("device_full", "Whether it takes no more data.", |d| u64::from(d.full)),
        ("device_free_segments", "Segments that can be written to at once.", |d| d.free_segments),
        ("device_segments", "All segments.", |d| d.segments),
        ("device_replay_bytes", "Bytes of log that a restart would replay.", |d| d.replay_bytes),
        ("device_cache_bytes", "Memory in the read cache.", |d| d.cache_bytes),
        ("device_leaf_bytes", "Memory in the map's leaves.", |d| d.leaf_bytes),
        ("device_in_flight", "Operations in flight.", |d| d.in_flight),
    ];
    for (name, help, value) in gauges {
        to.gauge(name, help, each().map(|(labels, device)| (labels, value(device))))?;
    }
    let counters: [(&str, &str, Value); 9] = [
        ("device_log_bytes", "Bytes written to the log.", |d| d.log_bytes),
        ("device_gc_bytes", "Bytes moved by garbage collection.", |d| d.gc_bytes),
        ("device_gathered_bytes", "Bytes of them that reads found scattered.", |d| d.gathered_bytes),
        ("device_checkpoint_bytes", "Bytes handed to the saved map.", |d| d.checkpoint_bytes),
        ("device_cache_hits", "Blocks read from the read cache.", |d| d.cache_hits),
        ("device_cache_misses", "Blocks read past the read cache.", |d| d.cache_misses),
        ("device_leaf_hits", "Lookups that found their leaf of the map in memory.", |d| d.leaf_hits),
        ("device_leaf_misses", "Lookups that had to load it.", |d| d.leaf_misses),
        ("device_checksum_errors", "Blocks that did not match their checksum.", |d| d.checksum_errors),
    ];
    for (name, help, value) in counters {
        to.counter(name, help, each().map(|(labels, device)| (labels, value(device))))?;
    }
    Ok(())
}

/// What devices were asked for.
fn operations(to: &mut Families<'_>, snapshot: &NodeSnapshot) -> Result {
    let ids: Vec<String> = snapshot.devices.iter().map(|device| device.id.to_string()).collect();
    let each = || {
        ids.iter().zip(&snapshot.devices).flat_map(|(id, device)| {
            let labels = |operation: &'static str| [("device", id.as_str()), ("operation", operation)];
            [(labels("read"), &device.reads), (labels("write"), &device.writes)]
        })
    };
    let help = "Operations that the device has failed.";
    to.counter("device_errors", help, each().map(|(labels, operations)| (labels, operations.errors)))?;
    let samples = each().map(|(labels, DeviceOperations { count, latency_us, latency, .. })| {
        (labels, Times { count: *count, sum_us: *latency_us, buckets: latency })
    });
    let help = "Time that the device took for a read, or for a write or flush.";
    to.histogram("device_latency_seconds", help, samples)
}

fn groups(to: &mut Families<'_>, snapshot: &NodeSnapshot, known: &Known) -> Result {
    // Some states name a device: with numbers in labels there would be ever more series.
    let state = |state: &str| if state == "active" { "active" } else { "other" };
    let mut counts = BTreeMap::<(&str, &str), u64>::new();
    for group in &snapshot.groups {
        *counts.entry((&group.role, state(&group.state))).or_default() += 1;
    }
    let copies = counts.into_iter().map(|((role, state), count)| ([("role", role), ("state", state)], count));
    to.gauge("groups", "Copies of placement groups, by role and by whether they take part in I/O.", copies)?;
    let primaries = known.primaries.iter().map(|(health, count)| ([("health", *health)], *count));
    let help = "Groups, needed by volumes, whose primary is here, by health.";
    to.gauge("primary_groups", help, primaries)
}

/// Copies that this node's primaries bring up to date, by the device that gets them.
fn resyncs(to: &mut Families<'_>, snapshot: &NodeSnapshot) -> Result {
    let mut sums = BTreeMap::<u32, [u64; 5]>::new();
    for resync in snapshot.groups.iter().flat_map(|group| &group.resyncs) {
        let due = resync.chunks.saturating_sub(resync.chunks_done) * CHUNK_SIZE as u64;
        let sum = sums.entry(resync.device).or_default();
        for (sum, value) in sum.iter_mut().zip([1, resync.chunks, resync.chunks_done, resync.bytes, due]) {
            *sum += value;
        }
    }
    let families = [
        ("resync_groups", "Groups of which a copy on the device is brought up to date."),
        ("resync_chunks", "Chunks that they have to compare."),
        ("resync_chunks_done", "Chunks of those that are done."),
        ("resync_bytes", "Payload bytes sent for those that are under way."),
        ("resync_due_bytes", "The size of the chunks that are still to be compared: at most so much is to be sent."),
    ];
    for (index, (name, help)) in families.into_iter().enumerate() {
        let samples = sums.iter().map(|(device, sum)| ([("device", device.to_string())], sum[index]));
        to.gauge(name, help, samples)?;
    }
    Ok(())
}

/// Scrubs that this node's primaries do, and when they last did.
fn scrubs(to: &mut Families<'_>, snapshot: &NodeSnapshot, last: Option<&LastScrubs>) -> Result {
    let mut sums = BTreeMap::from([("deep", [0_u64; 3]), ("light", [0; 3])]);
    for scrub in snapshot.groups.iter().filter_map(|group| group.scrub.as_ref()) {
        let Some(sum) = sums.get_mut(scrub.kind.as_str()) else { continue };
        for (sum, value) in sum.iter_mut().zip([1, scrub.chunks, scrub.chunks_done]) {
            *sum += value;
        }
    }
    let families = [
        ("scrub_groups", "Groups of this node's primaries that are being scrubbed."),
        ("scrub_chunks", "Their chunks."),
        ("scrub_chunks_done", "Chunks of those that have been looked at."),
    ];
    for (index, (name, help)) in families.into_iter().enumerate() {
        to.gauge(name, help, sums.iter().map(|(kind, sum)| ([("kind", *kind)], sum[index])))?;
    }
    let help = "When the groups of this node's primaries were last scrubbed, the oldest of them; seconds since 1970.";
    let kinds = last.into_iter().flat_map(|last| [([("kind", "deep")], last.deep), ([("kind", "light")], last.light)]);
    to.gauge("scrub_oldest_timestamp_seconds", help, kinds)?;
    let help =
        "Bad blocks, also mended ones, and unreadable chunks at those groups' last scrubs, and met by readers since.";
    to.maybe("scrub_findings", help, last.map(|last| last.findings))
}

fn background(to: &mut Families<'_>, snapshot: &NodeSnapshot) -> Result {
    let background = &snapshot.background;
    let help = "What resync and scrub may move; no sample without a limit.";
    to.maybe("background_rate_bytes_per_second", help, background.rate_bytes_per_second)?;
    let help = "99th percentile of requests at this node's groups in the last window.";
    to.one("background_p99_seconds", help, background.p99_us / 1e6)?;
    let help = "The same without work in the background.";
    to.one("background_quiet_p99_seconds", help, background.quiet_p99_us / 1e6)
}

#[cfg(test)]
mod tests;
