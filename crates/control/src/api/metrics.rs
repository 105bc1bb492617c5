//! This node's counters in Prometheus' text format (version 0.0.4).

use std::fmt::Write;

use azekura_api::endpoint::Metrics;
use azekura_api::{LastScrubs, NodeSnapshot, Prometheus, RequestCounters, VolumeSnapshot};

use super::call::{Answer, Call};
use super::scrub;

pub(super) async fn metrics(Call { api, .. }: Call<Metrics>) -> Answer<Metrics> {
    let (model, me) = (api.meta.model(), api.node);
    let snapshot = super::stats::own(&api).await?;
    let here = |device| model.devices.get(device).is_some_and(|device| device.node == me);
    let primaries = model.groups.values().map(|group| &group.record).filter(|group| here(&group.primary));
    Ok(Prometheus(render(&snapshot, scrub::last(primaries))).into())
}

/// The text under construction.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "# HELP azekura_{name} {help}\n# TYPE azekura_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.0, "azekura_{name}");
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

/// The snapshot as text, with the last scrubs of the groups that this node is primary of.
fn render(snapshot: &NodeSnapshot, scrubbed: Option<LastScrubs>) -> String {
    let mut text = Text::default();
    text.family("build_info", "gauge", "Always 1; the version of the program.");
    text.sample("build_info", &[("version", &snapshot.version), ("node", &snapshot.name)], 1);
    text.family("uptime_seconds", "gauge", "Time since the start.");
    text.sample("uptime_seconds", &[], snapshot.uptime_seconds);
    text.family("memory_bytes", "gauge", "Resident memory.");
    text.sample("memory_bytes", &[], snapshot.memory_bytes);
    text.family("cpu_seconds_total", "counter", "Processor time used.");
    text.sample("cpu_seconds_total", &[], snapshot.cpu_seconds);
    text.family("asked_again_total", "counter", "Parts of requests sent again because nobody had answered for 10 s.");
    text.sample("asked_again_total", &[], snapshot.asked_again);
    volumes(&mut text, snapshot);
    devices(&mut text, snapshot);
    groups(&mut text, snapshot);
    resyncs(&mut text, snapshot);
    scrubs(&mut text, snapshot, scrubbed);
    text.0
}

fn volumes(text: &mut Text, snapshot: &NodeSnapshot) {
    // A node knows every volume of the cluster: those that it has never been asked for cost nothing here.
    let used = || snapshot.volumes.iter().filter(|(_, volume)| is_used(volume));
    let each = || used().flat_map(|(name, volume)| [(name, "read", &volume.reads), (name, "write", &volume.writes)]);
    type Counter = fn(&RequestCounters) -> u64;
    let counters: [(&str, &str, Counter); 3] = [
        ("volume_requests_total", "Requests answered.", |c| c.count),
        ("volume_bytes_total", "Bytes asked for.", |c| c.bytes),
        ("volume_errors_total", "Requests answered with an error.", |c| c.errors),
    ];
    for (name, help, value) in counters {
        text.family(name, "counter", help);
        for (volume, operation, counters) in each() {
            text.sample(name, &[("volume", volume), ("operation", operation)], value(counters));
        }
    }
    text.family("volume_latency_seconds", "histogram", "Time from request to answer.");
    for (volume, operation, counters) in each() {
        let labels = [("volume", volume.as_str()), ("operation", operation)];
        let mut below = 0;
        for (index, count) in counters.latency.iter().enumerate() {
            below += count;
            let le = (2_f64.powi(index as i32) / 1e6).to_string();
            text.sample("volume_latency_seconds_bucket", &[labels[0], labels[1], ("le", &le)], below);
        }
        text.sample("volume_latency_seconds_bucket", &[labels[0], labels[1], ("le", "+Inf")], counters.count);
        text.sample("volume_latency_seconds_sum", &labels, counters.latency_us as f64 / 1e6);
        text.sample("volume_latency_seconds_count", &labels, counters.count);
    }
    text.family("volume_connections", "gauge", "Connections of clients.");
    for (name, volume) in used() {
        text.sample("volume_connections", &[("volume", name)], volume.connections);
    }
}

/// Whether clients have asked this node for the volume since it started, or are connected.
fn is_used(volume: &VolumeSnapshot) -> bool {
    volume.connections > 0 || volume.reads.count > 0 || volume.writes.count > 0
}

fn devices(text: &mut Text, snapshot: &NodeSnapshot) {
    type Value = fn(&azekura_api::DeviceSnapshot) -> u64;
    let families: [(&str, &str, &str, Value); 16] = [
        ("device_open", "gauge", "Whether the device serves.", |d| u64::from(d.state == "open")),
        ("device_capacity_bytes", "gauge", "Bytes that clients can store.", |d| d.capacity_bytes),
        ("device_live_bytes", "gauge", "Bytes in use.", |d| d.live_bytes),
        ("device_full", "gauge", "Whether it takes no more data.", |d| u64::from(d.full)),
        ("device_free_segments", "gauge", "Segments that can be written to at once.", |d| d.free_segments),
        ("device_segments", "gauge", "All segments.", |d| d.segments),
        ("device_log_bytes_total", "counter", "Bytes written to the log.", |d| d.log_bytes),
        ("device_gc_bytes_total", "counter", "Bytes moved by garbage collection.", |d| d.gc_bytes),
        ("device_checkpoint_bytes_total", "counter", "Bytes handed to the saved map.", |d| d.checkpoint_bytes),
        ("device_replay_bytes", "gauge", "Bytes of log that a restart would replay.", |d| d.replay_bytes),
        ("device_cache_hits_total", "counter", "Blocks read from the read cache.", |d| d.cache_hits),
        ("device_cache_misses_total", "counter", "Blocks read past the read cache.", |d| d.cache_misses),
        ("device_cache_bytes", "gauge", "Memory in the read cache.", |d| d.cache_bytes),
        ("device_leaf_bytes", "gauge", "Memory in the map's leaves.", |d| d.leaf_bytes),
        ("device_checksum_errors_total", "counter", "Blocks that did not match their checksum.", |d| d.checksum_errors),
        ("device_in_flight", "gauge", "Operations in flight.", |d| d.in_flight),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for device in &snapshot.devices {
            text.sample(name, &[("device", &device.id.to_string())], value(device));
        }
    }
}

fn groups(text: &mut Text, snapshot: &NodeSnapshot) {
    text.family("groups", "gauge", "Copies of placement groups, by role and state.");
    let mut counts = std::collections::BTreeMap::<(&str, &str), u64>::new();
    for group in &snapshot.groups {
        *counts.entry((&group.role, &group.state)).or_default() += 1;
    }
    for ((role, state), count) in counts {
        text.sample("groups", &[("role", role), ("state", state)], count);
    }
}

/// Copies that this node's primaries bring up to date, by the device that gets them.
fn resyncs(text: &mut Text, snapshot: &NodeSnapshot) {
    let mut sums = std::collections::BTreeMap::<u32, [u64; 4]>::new();
    for resync in snapshot.groups.iter().flat_map(|group| &group.resyncs) {
        let sum = sums.entry(resync.device).or_default();
        for (sum, value) in sum.iter_mut().zip([1, resync.chunks, resync.chunks_done, resync.bytes]) {
            *sum += value;
        }
    }
    let families = [
        ("resync_groups", "Groups of which a copy on the device is brought up to date."),
        ("resync_chunks", "Chunks that they have to compare."),
        ("resync_chunks_done", "Chunks of those that are done."),
        ("resync_bytes", "Payload bytes sent for those that are under way."),
    ];
    for (index, (name, help)) in families.into_iter().enumerate() {
        text.family(name, "gauge", help);
        for (device, sum) in &sums {
            text.sample(name, &[("device", &device.to_string())], sum[index]);
        }
    }
}

/// Scrubs that this node's primaries do, and when they last did.
fn scrubs(text: &mut Text, snapshot: &NodeSnapshot, scrubbed: Option<LastScrubs>) {
    let mut sums = std::collections::BTreeMap::from([("deep", [0; 3]), ("light", [0; 3])]);
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
        text.family(name, "gauge", help);
        for (kind, sum) in &sums {
            text.sample(name, &[("kind", kind)], sum[index]);
        }
    }
    let background = &snapshot.background;
    let families = [
        ("background_rate_bytes_per_second", "What resync and scrub may move; no sample without a limit."),
        ("background_p99_seconds", "99th percentile of requests at this node's groups in the last window."),
        ("background_quiet_p99_seconds", "The same without work in the background."),
    ];
    let values = [
        background.rate_bytes_per_second.map(|rate| rate as f64),
        Some(background.p99_us / 1e6),
        Some(background.quiet_p99_us / 1e6),
    ];
    for ((name, help), value) in families.into_iter().zip(values) {
        text.family(name, "gauge", help);
        if let Some(value) = value {
            text.sample(name, &[], value);
        }
    }
    let Some(LastScrubs { deep, light, findings }) = scrubbed else { return };
    let help = "When the groups of this node's primaries were last scrubbed, the oldest of them; seconds since 1970.";
    text.family("scrub_oldest_timestamp_seconds", "gauge", help);
    text.sample("scrub_oldest_timestamp_seconds", &[("kind", "deep")], deep);
    text.sample("scrub_oldest_timestamp_seconds", &[("kind", "light")], light);
    text.family(
        "scrub_findings",
        "gauge",
        "Bad blocks, also mended ones, and unreadable chunks at those groups' last scrubs, and met by readers since.",
    );
    text.sample("scrub_findings", &[], findings);
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::{DeviceSnapshot, GroupSnapshot, ResyncSnapshot, ScrubSnapshot};

    #[test]
    fn every_line_is_a_comment_or_a_sample() {
        let reads = RequestCounters { count: 3, bytes: 12_288, errors: 0, latency_us: 300, latency: vec![0, 1, 2] };
        let volume = VolumeSnapshot { reads, ..VolumeSnapshot::default() };
        let snapshot = NodeSnapshot {
            name: "n\"1\\".to_owned(),
            volumes: [("vol1".to_owned(), volume)].into(),
            devices: vec![DeviceSnapshot { id: 7, ..DeviceSnapshot::default() }],
            groups: vec![GroupSnapshot {
                role: "primary".into(),
                state: "active".into(),
                scrub: Some(ScrubSnapshot { kind: "light".into(), chunks: 9, chunks_done: 5, findings: 0 }),
                resyncs: vec![ResyncSnapshot { device: 7, chunks: 9, chunks_done: 4, bytes: 8192 }],
                ..GroupSnapshot::default()
            }],
            ..NodeSnapshot::default()
        };
        let text = render(&snapshot, Some(LastScrubs { deep: 1_800_000_000, light: 1_800_000_500, findings: 2 }));
        assert!(text.contains("azekura_build_info{version=\"\",node=\"n\\\"1\\\\\"} 1\n"), "{text}");
        assert!(
            text.contains(
                "azekura_volume_latency_seconds_bucket{volume=\"vol1\",operation=\"read\",le=\"0.000002\"} 1\n"
            )
        );
        assert!(text.contains("azekura_groups{role=\"primary\",state=\"active\"} 1\n"));
        assert!(text.contains("azekura_resync_chunks_done{device=\"7\"} 4\n"));
        assert!(text.contains("azekura_scrub_chunks_done{kind=\"light\"} 5\n"));
        assert!(text.contains("azekura_scrub_oldest_timestamp_seconds{kind=\"deep\"} 1800000000\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("azekura_") && value.parse::<f64>().is_ok(), "{line}");
        }
    }

    #[test]
    fn volumes_that_nobody_has_used_here_cost_nothing() {
        let latency = vec![0; azekura_api::LATENCY_BUCKETS];
        let counters = RequestCounters { latency, ..RequestCounters::default() };
        let volume = |number| {
            let volume = VolumeSnapshot { reads: counters.clone(), writes: counters.clone(), connections: 0 };
            (format!("volume{number}"), volume)
        };
        let mut snapshot = NodeSnapshot { volumes: (0..5000).map(volume).collect(), ..NodeSnapshot::default() };
        assert!(!render(&snapshot, None).contains("volume=\"volume"), "27 MB a scrape, once");
        for (number, change) in [(7, 1), (8, 2), (9, 3)] {
            let volume = snapshot.volumes.get_mut(&format!("volume{number}")).unwrap();
            match change {
                1 => volume.connections = 1,
                2 => volume.reads.count = 1,
                _ => volume.writes.count = 1,
            }
        }
        let text = render(&snapshot, None);
        for number in [7, 8, 9] {
            assert!(text.contains(&format!("azekura_volume_connections{{volume=\"volume{number}\"}}")), "{number}");
        }
        assert!(text.len() < 40_000, "{}", text.len());
    }
}
