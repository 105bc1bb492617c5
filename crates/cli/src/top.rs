//! `azekura top`: who reads and writes how much, live.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use azekura_api::endpoint::Stats;
use azekura_api::{ClusterStats, DeviceSnapshot, NoQuery, NodeSnapshot, RequestCounters, ResyncStatus};
use clap::Args;
use serde::Serialize;

use super::output::{print, print_json};
use super::rates::ResyncRate;
use super::screen::Tone;
use super::table::{Align, Table};
use super::{ApiArgs, CliError};
use azekura_base::Size;

const MIB: f64 = 1048576.0;

/// Show live what volumes and nodes do: requests and bytes a second, latency, cache hits. Ends with Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    azekura top                    a table that is renewed every second\n  \
    azekura top --interval 10      averages over ten seconds\n  \
    azekura top --once --json      one measurement, for scripts")]
pub struct TopArgs {
    /// Seconds that a measurement lasts.
    #[arg(long, value_name = "SECS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// One measurement, then end.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    api: ApiArgs,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("give 0.1 to 3600 seconds".to_owned()) }
}

/// Requests of one kind during a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Rate {
    iops: f64,
    mib_per_second: f64,
    latency_mean_us: f64,
    latency_p99_us: f64,
    errors: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct VolumeRates {
    name: String,
    read: Rate,
    write: Rate,
    connections: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct NodeRates {
    name: String,
    read: Rate,
    write: Rate,
    /// Of one core.
    cpu_percent: f64,
    memory_bytes: u64,
    /// Share of blocks read from the read cache; none were read: null.
    cache_hit_ratio: Option<f64>,
    /// Memory in the leaves of the devices' maps; `--memory` of `azekura node` bounds it.
    map_bytes: u64,
    /// Share of the map's lookups that found their leaf in memory; there were none: null.
    map_hit_ratio: Option<f64>,
    log_mib_per_second: f64,
    gc_mib_per_second: f64,
    problem: Option<String>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Measurement {
    seconds: f64,
    volumes: Vec<VolumeRates>,
    nodes: Vec<NodeRates>,
    /// Copies that are brought up to date; none: null.
    resync: Option<Resync>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Resync {
    #[serde(flatten)]
    status: ResyncStatus,
    rate: ResyncRate,
}

impl TopArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let client = self.api.client()?;
        let redraw = std::io::stdout().is_terminal() && !self.once && !self.api.json;
        let look = || -> Result<(ClusterStats, Instant), CliError> {
            Ok((client.ask::<Stats>([], &NoQuery {})?, Instant::now()))
        };
        let mut before = look()?;
        loop {
            std::thread::sleep(Duration::from_secs_f64(self.interval));
            let after = look()?;
            let measured = measure(&before.0, &after.0, after.1.duration_since(before.1).as_secs_f64());
            if self.api.json {
                print_json(&measured)?;
            } else if redraw {
                // Home, and clear what is below: no flicker.
                print(&format!("\x1b[H\x1b[J{} (Ctrl-C ends)\n\n{}", client.url(), describe(&measured)))?;
            } else {
                print(&describe(&measured))?;
            }
            if self.once {
                return Ok(ExitCode::SUCCESS);
            }
            before = after;
        }
    }
}

fn rate(counters: &RequestCounters, seconds: f64) -> Rate {
    Rate {
        iops: counters.count as f64 / seconds,
        mib_per_second: counters.bytes as f64 / MIB / seconds,
        latency_mean_us: counters.mean_us(),
        latency_p99_us: counters.percentile_us(0.99),
        errors: counters.errors,
    }
}

/// What happened between two looks.
fn measure(before: &ClusterStats, after: &ClusterStats, seconds: f64) -> Measurement {
    let seconds = seconds.max(0.001);
    let empty = NodeSnapshot::default();
    let mut volumes: BTreeMap<&str, (RequestCounters, RequestCounters, u32)> = BTreeMap::new();
    let mut nodes = Vec::new();
    for stats in &after.nodes {
        let now = stats.snapshot.as_ref().unwrap_or(&empty);
        // A node that was not there before has no rates yet; one that restarted counts from its start.
        let former = before.snapshot(stats.node).unwrap_or(now);
        let restarted = now.uptime_seconds < former.uptime_seconds;
        let former = if restarted { &empty } else { former };
        let (mut reads, mut writes) = (RequestCounters::default(), RequestCounters::default());
        for (name, volume) in &now.volumes {
            let was = former.volumes.get(name).cloned().unwrap_or_default();
            let (read, write) = (volume.reads.since(&was.reads), volume.writes.since(&was.writes));
            reads.add(&read);
            writes.add(&write);
            let sum = volumes.entry(name).or_default();
            sum.0.add(&read);
            sum.1.add(&write);
            sum.2 += volume.connections;
        }
        let grown = |value: fn(&DeviceSnapshot) -> u64| {
            let sum = |snapshot: &NodeSnapshot| snapshot.devices.iter().map(value).sum::<u64>();
            sum(now).saturating_sub(sum(former)) as f64
        };
        let ratio = |hits: f64, misses: f64| (hits + misses > 0.0).then(|| hits / (hits + misses));
        nodes.push(NodeRates {
            name: stats.name.clone(),
            read: rate(&reads, seconds),
            write: rate(&writes, seconds),
            cpu_percent: (now.cpu_seconds - former.cpu_seconds).max(0.0) / seconds * 100.0,
            memory_bytes: now.memory_bytes,
            cache_hit_ratio: ratio(grown(|device| device.cache_hits), grown(|device| device.cache_misses)),
            map_bytes: now.devices.iter().map(|device| device.leaf_bytes).sum(),
            map_hit_ratio: ratio(grown(|device| device.leaf_hits), grown(|device| device.leaf_misses)),
            log_mib_per_second: grown(|device| device.log_bytes) / MIB / seconds,
            gc_mib_per_second: grown(|device| device.gc_bytes) / MIB / seconds,
            problem: stats.problem.clone(),
        });
    }
    let volumes = volumes.into_iter().map(|(name, (reads, writes, connections))| VolumeRates {
        name: name.to_owned(),
        read: rate(&reads, seconds),
        write: rate(&writes, seconds),
        connections,
    });
    let resync = after.resync.clone().map(|status| {
        let rate = super::rates::rate(&status, before.resync.as_ref(), seconds);
        Resync { status, rate }
    });
    Measurement { seconds, volumes: volumes.collect(), nodes, resync }
}

fn describe(measured: &Measurement) -> String {
    let number = |value: f64| if value < 10.0 && value > 0.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    let time = |us: f64| match us {
        us if us <= 0.0 => "-".to_owned(),
        us if us < 1_000.0 => format!("{us:.0}us"),
        us if us < 1_000_000.0 => format!("{:.1}ms", us / 1_000.0),
        us => format!("{:.1}s", us / 1_000_000.0),
    };
    let share = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1}%", ratio * 100.0));
    let mut volumes = Table::new(&[
        ("VOLUME", Align::Left),
        ("R IOPS", Align::Right),
        ("R MiB/s", Align::Right),
        ("R MEAN", Align::Right),
        ("R P99", Align::Right),
        ("W IOPS", Align::Right),
        ("W MiB/s", Align::Right),
        ("W MEAN", Align::Right),
        ("W P99", Align::Right),
        ("CLIENTS", Align::Right),
    ]);
    for volume in &measured.volumes {
        let mut row = vec![volume.name.clone()];
        for rate in [&volume.read, &volume.write] {
            row.extend([number(rate.iops), number(rate.mib_per_second)]);
            row.extend([time(rate.latency_mean_us), time(rate.latency_p99_us)]);
        }
        row.push(volume.connections.to_string());
        volumes.row(row);
    }
    let mut nodes = Table::new(&[
        ("NODE", Align::Left),
        ("R IOPS", Align::Right),
        ("W IOPS", Align::Right),
        ("R MiB/s", Align::Right),
        ("W MiB/s", Align::Right),
        ("CPU%", Align::Right),
        ("MEMORY", Align::Right),
        ("CACHE HITS", Align::Right),
        ("MAP", Align::Right),
        ("MAP HITS", Align::Right),
        ("LOG MiB/s", Align::Right),
        ("GC MiB/s", Align::Right),
        ("PROBLEM", Align::Left),
    ])
    .toned("PROBLEM", |_| Tone::Bad);
    for node in &measured.nodes {
        nodes.row(vec![
            node.name.clone(),
            number(node.read.iops),
            number(node.write.iops),
            number(node.read.mib_per_second),
            number(node.write.mib_per_second),
            number(node.cpu_percent),
            Size::new(node.memory_bytes).to_string(),
            share(node.cache_hit_ratio),
            Size::new(node.map_bytes).to_string(),
            share(node.map_hit_ratio),
            number(node.log_mib_per_second),
            number(node.gc_mib_per_second),
            node.problem.clone().unwrap_or_default(),
        ]);
    }
    let volumes = if measured.volumes.is_empty() { "No volume is in use.\n".to_owned() } else { volumes.render() };
    let resync = measured
        .resync
        .as_ref()
        .map(|resync| format!("\nresync: {}\n", super::status::resync_line(&resync.status, Some(resync.rate))));
    format!("{volumes}\n{}{}", nodes.render(), resync.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::{NodeStats, VolumeSnapshot};
    use azekura_base::NodeId;

    fn look(uptime: f64, count: u64, hits: u64) -> ClusterStats {
        let writes = RequestCounters {
            count,
            bytes: count * 4096,
            latency_us: count * 100,
            latency: vec![0, 0, 0, 0, 0, 0, 0, count],
            ..RequestCounters::default()
        };
        let device = DeviceSnapshot {
            cache_hits: hits,
            cache_misses: 100,
            leaf_bytes: 64 << 20,
            leaf_hits: hits * 3,
            leaf_misses: hits,
            ..DeviceSnapshot::default()
        };
        let snapshot = NodeSnapshot {
            uptime_seconds: uptime,
            cpu_seconds: uptime / 2.0,
            volumes: [("v".to_owned(), VolumeSnapshot { writes, ..VolumeSnapshot::default() })].into(),
            devices: vec![device],
            ..NodeSnapshot::default()
        };
        let away = NodeStats { node: NodeId(2), name: "n2".into(), snapshot: None, problem: Some("away".into()) };
        let here = NodeStats { node: NodeId(1), name: "n1".into(), snapshot: Some(snapshot), problem: None };
        ClusterStats { nodes: vec![here, away], resync: None }
    }

    #[test]
    fn rates_between_two_looks() {
        let measured = measure(&look(10.0, 1_000, 0), &look(12.0, 3_000, 300), 2.0);
        let volume = &measured.volumes[0];
        assert_eq!((volume.write.iops, volume.write.latency_mean_us, volume.read.iops), (1_000.0, 100.0, 0.0));
        assert!((volume.write.mib_per_second - 3.90625).abs() < 1e-9);
        assert!((measured.nodes[0].cpu_percent - 50.0).abs() < 1e-9);
        assert_eq!(measured.nodes[0].cache_hit_ratio, Some(1.0));
        assert_eq!((measured.nodes[0].map_bytes, measured.nodes[0].map_hit_ratio), (64 << 20, Some(0.75)));
        assert_eq!(measured.nodes[1].problem.as_deref(), Some("away"));
        let text = describe(&measured);
        assert!(text.contains("1000") && text.contains("100us") && text.contains("away"), "{text}");
        assert!(text.contains("64MiB") && text.contains("75.0%"), "{text}");
        // A restarted node counts from 0, a new one has no rates.
        assert_eq!(measure(&look(10.0, 5_000, 0), &look(1.0, 200, 0), 1.0).volumes[0].write.iops, 200.0);
        let none = ClusterStats::default();
        assert_eq!(measure(&none, &look(10.0, 5_000, 0), 1.0).volumes[0].write.iops, 0.0);
    }
}
