//! What a node says about itself at one moment. Counters only grow; readers take differences.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Latency buckets: bucket `i` counts requests that took less than 2^i microseconds, and not less than 2^(i-1).
pub const LATENCY_BUCKETS: usize = 26;

/// Bytes of the blocks that each layer owns, by the numbers of device and layer. A block that several layers show
/// counts for the one that it was written to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayerUse(pub BTreeMap<u32, BTreeMap<u64, u64>>);

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeSnapshot {
    /// Its number.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Time since the start, seconds.
    pub uptime_seconds: f64,
    /// Data keys of encrypted volumes that it does not have, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys_missing: BTreeMap<u64, String>,
    /// Keys that wrap data keys and that it does not have any more, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keks_lacking: Vec<String>,
    /// Resident memory, bytes.
    pub memory_bytes: u64,
    /// Processor time used since the start, seconds.
    pub cpu_seconds: f64,
    /// Parts of requests that this node's gateway sent again because nobody had answered them for ten seconds or
    /// longer.
    pub asked_again: u64,
    /// What clients asked of this node's gateway, by volume name.
    pub volumes: BTreeMap<String, VolumeSnapshot>,
    /// Its devices.
    pub devices: Vec<DeviceSnapshot>,
    /// The copies of placement groups on its devices.
    pub groups: Vec<GroupSnapshot>,
    /// How work in the background is held back.
    pub background: BackgroundSnapshot,
}

/// How work in the background leaves room for clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BackgroundSnapshot {
    /// Bytes a second that it may move; nothing while there is no limit.
    pub rate_bytes_per_second: Option<u64>,
    /// 99th percentile of clients' requests in the last window that was judged, microseconds.
    pub p99_us: f64,
    /// The same without work in the background, microseconds; 0 when not known.
    pub quiet_p99_us: f64,
}

/// Requests for one volume at one gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct VolumeSnapshot {
    /// Reads.
    pub reads: RequestCounters,
    /// Writes, zero writes and trims.
    pub writes: RequestCounters,
    /// Trims begun.
    pub trims: u64,
    /// Bytes that they named.
    pub trimmed_bytes: u64,
    /// Requests that entered after the volume's limits had held some back.
    pub throttled: u64,
    /// Time in which requests were held back by the volume's limits, microseconds: of all shards together.
    pub throttled_us: u64,
    /// Connections of clients now.
    pub connections: u32,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RequestCounters {
    /// Requests answered.
    pub count: u64,
    /// Bytes asked for in them.
    pub bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Sum of the times from request to answer, microseconds.
    pub latency_us: u64,
    /// Requests by time; see [`LATENCY_BUCKETS`].
    pub latency: Vec<u64>,
}

impl RequestCounters {
    /// What was added since `before`; a counter that went back (a restarted node) counts from 0.
    #[must_use]
    pub fn since(&self, before: &RequestCounters) -> RequestCounters {
        if self.count < before.count {
            return self.clone();
        }
        let bucket = |index: usize| before.latency.get(index).copied().unwrap_or(0);
        RequestCounters {
            count: self.count - before.count,
            bytes: self.bytes.saturating_sub(before.bytes),
            errors: self.errors.saturating_sub(before.errors),
            latency_us: self.latency_us.saturating_sub(before.latency_us),
            latency: self.latency.iter().enumerate().map(|(index, n)| n.saturating_sub(bucket(index))).collect(),
        }
    }

    /// Adds another gateway's requests.
    pub fn add(&mut self, other: &RequestCounters) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency_us += other.latency_us;
        if self.latency.len() < other.latency.len() {
            self.latency.resize(other.latency.len(), 0);
        }
        for (sum, n) in self.latency.iter_mut().zip(&other.latency) {
            *sum += n;
        }
    }

    /// Mean time of a request, microseconds; 0 without requests.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.latency_us as f64 / self.count as f64 }
    }

    /// The time that this share (0.99) of the requests stayed below, microseconds, interpolated inside its bucket;
    /// 0 without requests.
    #[must_use]
    pub fn percentile_us(&self, share: f64) -> f64 {
        let total: u64 = self.latency.iter().sum();
        let wanted = total as f64 * share;
        let mut below = 0.0;
        for (index, count) in self.latency.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= wanted {
                let (low, high) =
                    (if index == 0 { 0.0 } else { 2_f64.powi(index as i32 - 1) }, 2_f64.powi(index as i32));
                return low + (high - low) * ((wanted - below) / count).clamp(0.0, 1.0);
            }
            below += count;
        }
        0.0
    }
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DeviceSnapshot {
    /// Its number.
    pub id: u32,
    /// Whether it serves, in a word: `open`, `opening`, `failed`.
    pub state: String,
    /// Why it does not serve, or what else is wrong.
    pub problem: Option<String>,
    /// Bytes that clients can store.
    pub capacity_bytes: u64,
    /// Bytes of blocks that the map reaches.
    pub live_bytes: u64,
    /// Bytes of segments that are not free.
    pub occupied_bytes: u64,
    /// It takes no more data.
    pub full: bool,
    /// Segments that can be written to at once.
    pub free_segments: u64,
    /// All segments.
    pub segments: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Bytes of them moved by garbage collection.
    pub gc_bytes: u64,
    /// Those of them that a read found scattered, and that were put together.
    pub gathered_bytes: u64,
    /// Bytes handed to the saved map.
    pub checkpoint_bytes: u64,
    /// Bytes of log that a restart would replay.
    pub replay_bytes: u64,
    /// Blocks read from the read cache.
    pub cache_hits: u64,
    /// Blocks read that were not in it.
    pub cache_misses: u64,
    /// Memory in the read cache, bytes.
    pub cache_bytes: u64,
    /// Lookups that found their leaf of the map in memory.
    pub leaf_hits: u64,
    /// Lookups that had to load it.
    pub leaf_misses: u64,
    /// Memory in leaves, bytes.
    pub leaf_bytes: u64,
    /// Blocks whose contents did not match their checksum.
    pub checksum_errors: u64,
    /// Operations in flight now.
    pub in_flight: u64,
    /// It does not answer, and nobody waits for it meanwhile.
    pub hangs: bool,
    /// Reads of the device.
    pub reads: DeviceOperations,
    /// Writes to it, and flushes.
    pub writes: DeviceOperations,
}

/// Operations of one kind that a device has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DeviceOperations {
    /// How many.
    pub count: u64,
    /// Those that failed.
    pub errors: u64,
    /// Sum of the times that they took, microseconds.
    pub latency_us: u64,
    /// Operations by time; see [`LATENCY_BUCKETS`].
    pub latency: Vec<u64>,
}

/// One copy of a placement group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GroupSnapshot {
    /// The group.
    pub id: u32,
    /// The device that holds the copy.
    pub device: u32,
    /// `primary` or `secondary`.
    pub role: String,
    /// What it does: `active` when it takes part in I/O, else a word for why not.
    pub state: String,
    /// The epoch that it knows of.
    pub epoch: u64,
    /// The newest write that it knows of.
    pub sequence: u64,
    /// The newest write that it knows to be committed.
    pub committed: u64,
    /// Copies that it brings up to date, as primary.
    pub resyncs: Vec<ResyncSnapshot>,
    /// The scrub that it does, as primary.
    pub scrub: Option<ScrubSnapshot>,
}

/// What a primary calls itself that serves reads only.
pub const READ_ONLY: &str = "read-only: too few copies";

/// What a primary calls itself that nobody has used since a copy fell silent: the next request leaves that behind and
/// is served.
pub const IDLE: &str = "idle: goes on without a silent copy when used";

/// State of a copy whose device's map was made from its log alone, and that no primary has compared yet.
pub const UNPROVEN: &str = "not proven: its device's map was rebuilt, and no other copy has been compared";

/// A copy that is being brought up to date.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ResyncSnapshot {
    /// The device that it is on.
    pub device: u32,
    /// Chunks that were changed while it was away; all, for a new one.
    pub chunks: u64,
    /// Of those, the ones that are compared and sent.
    pub chunks_done: u64,
    /// Payload bytes sent.
    pub bytes: u64,
}

/// A scrub of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ScrubSnapshot {
    /// `light` or `deep`.
    pub kind: String,
    /// Chunks of the group.
    pub chunks: u64,
    /// Of those, the ones that have been looked at.
    pub chunks_done: u64,
    /// Blocks that differed between copies, and chunks that could not be read.
    pub findings: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(latency: &[u64]) -> RequestCounters {
        RequestCounters { count: latency.iter().sum(), latency: latency.to_vec(), ..RequestCounters::default() }
    }

    #[test]
    fn percentiles() {
        assert_eq!(counters(&[]).percentile_us(0.99), 0.0);
        // 100 requests of 64 to 128 µs.
        let even = counters(&[0, 0, 0, 0, 0, 0, 0, 100]);
        assert!((even.percentile_us(0.5) - 96.0).abs() < 0.01);
        // 1 of 100 slow: the 99th percentile is still below the slow bucket.
        let one_slow = counters(&[0, 99, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!(one_slow.percentile_us(0.99) <= 2.0);
        assert!(one_slow.percentile_us(0.995) > 512.0);
    }

    #[test]
    fn differences_and_sums() {
        let (before, after) = (counters(&[1, 2]), counters(&[1, 5, 7]));
        assert_eq!(after.since(&before).latency, [0, 3, 7]);
        assert_eq!(before.since(&after), before, "a restarted node counts from 0");
        let mut sum = before;
        sum.add(&after);
        assert_eq!((sum.count, sum.latency), (16, vec![2, 7, 7]));
    }

    #[test]
    fn other_versions_are_read() {
        let snapshot: NodeSnapshot = serde_json::from_str(r#"{"node":1,"future":{},"devices":[{"id":2}]}"#).unwrap();
        assert_eq!((snapshot.node, snapshot.devices[0].id), (1, 2));
    }
}
