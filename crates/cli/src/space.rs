//! `azekura space`: where the bytes are.

use std::process::ExitCode;

use azekura_api::endpoint::Space;
use azekura_api::{ClusterSpace, NoQuery, SpaceView, Written};
use clap::Args;

use super::output::{print, print_json};
use super::table::{Align, Table};
use super::{ApiArgs, CliError};
use azekura_base::Size;

/// Show where the space is: what was promised, what is written, what snapshots share, what is free.
#[derive(Debug, Args)]
#[command(after_help = "All figures count every copy.\n\n\
    PROVISIONED  what it would take if every byte were written\n\
    WRITTEN      what is held for it now: UNIQUE and SHARED\n\
    UNIQUE       what was written since the last snapshot: it comes back when the volume is deleted\n\
    SHARED       what it stands on: blocks of snapshots, which clones may stand on as well\n\
    RESERVED     what garbage collection keeps for itself; CAPACITY is the rest of the disk space\n\
    GARBAGE      overwritten and deleted blocks, not yet won back; it counts as free")]
pub struct SpaceArgs {
    #[command(flatten)]
    api: ApiArgs,
}

impl SpaceArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let space = self.api.client()?.ask::<Space>([], &NoQuery {})?;
        if self.api.json { print_json(&space) } else { print(&describe(&space)) }
    }
}

fn size(bytes: u64) -> String {
    Size::new(bytes).to_string()
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

fn describe(space: &SpaceView) -> String {
    let missing = space.missing.iter().map(|node| format!("NOT in the figures: node {node}\n"));
    let mut text: String = missing.collect();
    text += &cluster(&space.cluster);
    text += &format!("\n{}", devices(space));
    if !space.classes.is_empty() {
        let rows = space.classes.iter().map(|class| (class.name.clone(), class.volumes.to_string(), class.written));
        text += &format!("\n{}", written(("CLASS", "VOLUMES"), rows));
    }
    if !space.volumes.is_empty() {
        let rows = space.volumes.iter().map(|volume| (volume.name.clone(), volume.copies.to_string(), volume.written));
        text += &format!("\n{}", written(("VOLUME", "COPIES"), rows));
    }
    text
}

fn cluster(cluster: &ClusterSpace) -> String {
    let lines = [
        ("provisioned", cluster.provisioned_bytes, "to volumes, if every byte were written"),
        ("physical", cluster.physical_bytes, "of disk space, devices in use"),
        ("usable", cluster.usable_bytes, "of that by volumes: overcommit limits are multiples of it"),
        ("reserved", cluster.reserved_bytes, "of the disk space for garbage collection"),
        ("capacity", cluster.capacity_bytes, "can be stored"),
        ("used", cluster.used_bytes, ""),
        ("  unique", cluster.unique_bytes, "only in volumes"),
        ("  snapshots", cluster.snapshot_bytes, "in snapshots"),
        ("  leaving", cluster.leaving_bytes, "deleted or moved, being given back"),
        ("garbage", cluster.garbage_bytes, "overwritten, to be won back; counts as free"),
        ("free", cluster.free_bytes, ""),
    ];
    let line = |(name, bytes, what): &(&str, u64, &str)| {
        let share = if *name == "used" { percent(*bytes, cluster.capacity_bytes) } else { (*what).to_owned() };
        format!("{}\n", format!("{name:<13} {:>10}  {share}", size(*bytes)).trim_end())
    };
    lines.iter().map(line).collect()
}

fn devices(space: &SpaceView) -> String {
    let mut table = Table::new(&[
        ("DEVICE", Align::Right),
        ("NODE", Align::Left),
        ("NAME", Align::Left),
        ("PHYSICAL", Align::Right),
        ("RESERVED", Align::Right),
        ("CAPACITY", Align::Right),
        ("USED", Align::Right),
        ("USED%", Align::Right),
        ("GARBAGE", Align::Right),
        ("FREE", Align::Right),
        ("", Align::Left),
    ]);
    for device in &space.devices {
        table.row(vec![
            device.id.to_string(),
            device.node_name.clone(),
            device.name.clone(),
            size(device.physical_bytes),
            size(device.reserved_bytes),
            size(device.capacity_bytes),
            size(device.used_bytes),
            percent(device.used_bytes, device.capacity_bytes),
            size(device.garbage_bytes),
            size(device.free_bytes),
            if device.full { "FULL" } else { "" }.to_owned(),
        ]);
    }
    table.render()
}

fn written(titles: (&'static str, &'static str), rows: impl Iterator<Item = (String, String, Written)>) -> String {
    let mut table = Table::new(&[
        (titles.0, Align::Left),
        (titles.1, Align::Right),
        ("PROVISIONED", Align::Right),
        ("WRITTEN", Align::Right),
        ("UNIQUE", Align::Right),
        ("SHARED", Align::Right),
    ]);
    for (name, count, written) in rows {
        table.row(vec![
            name,
            count,
            size(written.provisioned_bytes),
            size(written.written_bytes),
            size(written.unique_bytes),
            size(written.shared_bytes),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::VolumeSpace;

    #[test]
    fn figures_stand_in_tables_and_what_is_missing_comes_first() {
        let written = Written {
            provisioned_bytes: 4 << 30,
            written_bytes: 3 << 20,
            unique_bytes: 1 << 20,
            shared_bytes: 2 << 20,
        };
        let volume = VolumeSpace { name: "db".into(), class: "c".into(), copies: 2, written };
        let cluster = ClusterSpace { capacity_bytes: 8 << 20, used_bytes: 3 << 20, ..ClusterSpace::default() };
        let missing = vec!["n3: no answer in time".to_owned()];
        let text = describe(&SpaceView { cluster, volumes: vec![volume], missing, ..SpaceView::default() });
        assert!(text.starts_with("NOT in the figures: node n3: no answer in time\n"), "{text}");
        let row = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("used"), "used 3MiB 37.5%", "{text}");
        assert_eq!(row("db"), "db 2 4GiB 3MiB 1MiB 2MiB", "{text}");
    }

    #[test]
    fn a_share_of_nothing_is_no_number() {
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(1, 3), "33.3%");
    }
}
