use super::known::Protection;
use super::*;
use azekura_api::{BackgroundSnapshot, GroupSnapshot, LATENCY_BUCKETS, ResyncSnapshot, ScrubSnapshot};

/// Where the documents list the metrics.
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

fn counters(count: u64) -> RequestCounters {
    let mut latency = vec![0; LATENCY_BUCKETS];
    latency[1] = count;
    RequestCounters { count, bytes: 4096 * count, errors: 0, latency_us: 100 * count, latency }
}

/// A node with something in every family.
fn seen() -> Seen {
    let volume = VolumeSnapshot { reads: counters(3), throttled_us: 1_500_000, connections: 1, ..Default::default() };
    let snapshot = NodeSnapshot {
        name: "n\"1\\".to_owned(),
        volumes: [("vol1".to_owned(), volume)].into(),
        devices: vec![DeviceSnapshot { id: 7, state: "open".into(), ..DeviceSnapshot::default() }],
        groups: vec![GroupSnapshot {
            role: "primary".into(),
            state: "waiting for device 9".into(),
            scrub: Some(ScrubSnapshot { kind: "light".into(), chunks: 9, chunks_done: 5, findings: 0 }),
            resyncs: vec![ResyncSnapshot { device: 7, chunks: 9, chunks_done: 4, bytes: 8192 }],
            ..GroupSnapshot::default()
        }],
        background: BackgroundSnapshot { rate_bytes_per_second: Some(5), ..BackgroundSnapshot::default() },
        ..NodeSnapshot::default()
    };
    let protection = Some(Protection { every_seconds: 60, lag_seconds: Some(12) });
    let known = Known {
        nodes: [("n1".to_owned(), true), ("n2".to_owned(), false)].into(),
        primaries: [("healthy", 2), ("degraded", 0)].into(),
        used: [("vol1".to_owned(), Volume { size_bytes: 1 << 30, snapshots: 4, protection })].into(),
        scrubbed: Some(LastScrubs { deep: 1_800_000_000, light: 1_800_000_500, findings: 2 }),
        ..Known::default()
    };
    Seen { snapshot, known }
}

#[test]
fn every_line_is_a_comment_or_a_sample() {
    let text = render(seen());
    for sample in [
        "azekura_build_info{version=\"\",node=\"n\\\"1\\\\\"} 1\n",
        "azekura_volume_requests_total{volume=\"vol1\",operation=\"read\"} 3\n",
        "azekura_volume_latency_seconds_bucket{volume=\"vol1\",operation=\"read\",le=\"1.6e-05\"} 3\n",
        "azekura_volume_latency_seconds_bucket{volume=\"vol1\",operation=\"read\",le=\"+Inf\"} 3\n",
        "azekura_volume_throttled_seconds_total{volume=\"vol1\"} 1.5\n",
        "azekura_volume_protection_lag_seconds{volume=\"vol1\"} 12\n",
        "azekura_groups{role=\"primary\",state=\"other\"} 1\n",
        "azekura_primary_groups{health=\"healthy\"} 2\n",
        "azekura_node_alive{peer=\"n2\"} 0\n",
        "azekura_cluster_healthy 0\n",
        "azekura_configuration_reachable 1\n",
        "azekura_resync_chunks_done{device=\"7\"} 4\n",
        "azekura_resync_due_bytes{device=\"7\"} 20971520\n",
        "azekura_scrub_chunks_done{kind=\"light\"} 5\n",
        "azekura_scrub_oldest_timestamp_seconds{kind=\"deep\"} 1800000000\n",
    ] {
        assert!(text.contains(sample), "{sample}{text}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("azekura_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn volumes_that_nobody_has_used_here_cost_nothing() {
    let mut seen = seen();
    let unused = VolumeSnapshot { reads: counters(0), writes: counters(0), ..VolumeSnapshot::default() };
    seen.snapshot.volumes = (0..5000).map(|number| (format!("volume{number}"), unused.clone())).collect();
    let mut change = |number: u64, change: fn(&mut VolumeSnapshot)| {
        change(seen.snapshot.volumes.get_mut(&format!("volume{number}")).unwrap());
    };
    change(7, |volume| volume.connections = 1);
    change(8, |volume| volume.reads.count = 1);
    change(9, |volume| volume.writes.count = 1);
    seen.snapshot.volumes.retain(|_, volume| is_used(volume));
    assert_eq!(seen.snapshot.volumes.keys().collect::<Vec<_>>(), ["volume7", "volume8", "volume9"]);
    let text = render(seen);
    assert!(text.len() < 60_000, "27 MB a scrape, once; now {}", text.len());
}

/// One row of the documents' table.
fn row(name: &str, kind: &str, help: &str, text: &str) -> String {
    let unit = ["seconds", "bytes", "bytes_per_second"].into_iter().rfind(|unit| {
        let base = name.strip_suffix("_total").unwrap_or(name);
        base.ends_with(&format!("_{unit}"))
    });
    let is_of = |line: &&str| {
        let rest = line.strip_prefix(name).unwrap_or("");
        ["{", " ", "_bucket{"].iter().any(|end| rest.starts_with(end))
    };
    let sample = text.lines().find(is_of).unwrap_or_else(|| panic!("no sample of {name}: the test's node lacks it"));
    let labels = sample.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').map_or("", |(inside, _)| inside));
    let keys = labels.split(',').filter_map(|label| label.split_once("=\"")).map(|(key, _)| key);
    let labels: Vec<String> = keys.filter(|key| *key != "le").map(|key| format!("`{key}`")).collect();
    format!("| `{name}` | {kind} | {} | {} | {help} |\n", unit.unwrap_or(""), labels.join(", "))
}

#[test]
fn the_documents_list_every_metric_and_no_other() {
    let text = render(seen());
    let heads = text.lines().filter_map(|line| line.strip_prefix("# HELP ")).filter_map(|head| head.split_once(' '));
    let kind = |name: &str| {
        let kind = text.lines().find_map(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name)?.strip_prefix(' '));
        kind.unwrap_or_else(|| panic!("{name} has no type"))
    };
    let table: String = heads.map(|(name, help)| row(name, kind(name), help, &text)).collect();
    let document = std::fs::read_to_string(PATH).unwrap();
    let (before, rest) = document.split_once("<!-- metrics -->\n").expect("the place of the table");
    let (written, after) = rest.split_once("<!-- end of metrics -->\n").expect("the end of the table");
    let expected = format!("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n{table}");
    if std::env::var("GOLDEN").is_ok_and(|value| value == "write") {
        let all = format!("{before}<!-- metrics -->\n{expected}<!-- end of metrics -->\n{after}");
        return std::fs::write(PATH, all).unwrap();
    }
    let how = "docs/metrics.md: GOLDEN=write cargo test -p azekura-control --lib metrics";
    assert_eq!(written, expected, "{how}");
}
