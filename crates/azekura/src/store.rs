//! `azekura store …`: looks into a device's folder while no node has it open, makes its map anew, makes disks blank.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::rebuild::RebuildMapArgs;

use azekura_cli::{CliError, print, print_json};
use azekura_map_db::CheckpointDb;
use azekura_server::{LogFile, disks, loss, read_layers};
use azekura_store::{DeviceError, Inspector, Severity};
use clap::{Args, Subcommand};

/// The longest wait for a device that another process has open.
const LOCK_WITHIN: Duration = Duration::from_secs(5);

/// Look into a device's folder, whose node must be stopped; make its map anew; make a disk blank.
#[derive(Debug, Args)]
pub struct StoreCommand {
    #[command(subcommand)]
    command: Store,
}

#[derive(Debug, Subcommand)]
enum Store {
    /// Check that the map and the log of a device agree, and with --deep that every block matches its checksum.
    Check(CheckArgs),
    /// Print what is in a device's log.
    Dump(DumpArgs),
    RebuildMap(RebuildMapArgs),
    /// Make a disk blank, so that a node may take it (azekura node --disk). What is on it is lost.
    Wipe(WipeArgs),
}

/// Without --yes, says what is on the disk, and changes nothing.
#[derive(Debug, Args)]
struct WipeArgs {
    /// The disk or partition, best by a name of /dev/disk/by-id.
    disk: PathBuf,
    /// What is on the disk may be lost.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The device's folder.
    dir: PathBuf,
    /// Read every block and compare it with its checksum.
    #[arg(long)]
    deep: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DumpArgs {
    /// The device's folder.
    dir: PathBuf,
    /// Print JSON, a line a segment.
    #[arg(long)]
    json: bool,
}

fn open_log(dir: &Path) -> Result<LogFile, CliError> {
    let path = dir.join("log");
    let file = File::open(&path).map_err(|error| {
        CliError::new(format!("can't open {}: {error}", path.display()))
            .hint("give the folder of a device: DATA/device-0 of a node's data folder")
    })?;
    lock_soon(&file, File::try_lock_shared).map_err(|error| {
        CliError::new(format!("can't look into {}: {error}", dir.display()))
            .hint("a node has the device open; stop it first")
    })?;
    Ok(LogFile(file))
}

/// Locks a device's log. The kernel lets go of a killed node's files some moments after its end.
pub(crate) fn lock_soon(file: &File, lock: fn(&File) -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let until = Instant::now() + LOCK_WITHIN;
    loop {
        match lock(file) {
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            locked => return locked,
        }
    }
}

impl StoreCommand {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self.command {
            Store::Check(arguments) => check(&arguments),
            Store::Dump(arguments) => dump(&arguments),
            Store::RebuildMap(arguments) => arguments.run(),
            Store::Wipe(arguments) => wipe(&arguments),
        }
    }
}

fn check(arguments: &CheckArgs) -> Result<ExitCode, CliError> {
    let log = open_log(&arguments.dir)?;
    let path = arguments.dir.join("map.redb");
    if !path.exists() {
        return Err(CliError::new(format!("there is no map at {}", path.display()))
            .hint("'azekura store rebuild-map' makes one from the log, if the device was ever opened"));
    }
    let map = CheckpointDb::open(&path).map_err(|error| {
        CliError::new(format!("can't open the map {}: {}", path.display(), error.what()))
            .hint("'azekura store rebuild-map' makes one from the log")
    })?;
    let parents = read_layers(&arguments.dir).map_err(|error| {
        CliError::new(format!("the layers of the device {} can't be read: {error}", arguments.dir.display()))
            .hint("start its node once, which writes them anew")
    })?;
    let mut report = azekura_store::check(log, &map, &parents, arguments.deep);
    if let Some(lost) = loss(&arguments.dir) {
        report.add_error(lost);
    }
    if arguments.json {
        print_json(&report)?;
    } else {
        let mut text = format!(
            "{} of {} segments hold log, {} leaves, {} live blocks, {} groups, {} uncommitted writes, {} bytes to replay\n",
            report.segments_used,
            report.segments,
            report.leaves,
            report.live_blocks,
            report.groups,
            report.prepared,
            report.replay_bytes
        );
        if arguments.deep {
            text.push_str(&format!("{} blocks match their checksums\n", report.blocks_verified));
        }
        for finding in &report.findings {
            let severity = match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            text.push_str(&format!("{severity}: {}\n", finding.what));
        }
        text.push_str(&format!("{} errors, {} warnings\n", report.errors, report.warnings));
        print(&text)?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn wipe(arguments: &WipeArgs) -> Result<ExitCode, CliError> {
    let disk = &arguments.disk;
    let failed = |error: anyhow::Error| CliError::new(format!("{error:#}"));
    let Some(content) = disks::content(disk).map_err(failed)? else {
        return print(&format!("{} is blank\n", disk.display()));
    };
    if !arguments.yes {
        return Err(CliError::new(format!("there is {content} on {}: nothing was changed", disk.display()))
            .hint("with --yes that is lost, and a node may take the disk"));
    }
    disks::wipe(disk).map_err(failed)?;
    match disks::content(disk).map_err(failed)? {
        None => print(&format!("{} is blank now; there was {content} on it\n", disk.display())),
        Some(left) => Err(CliError::new(format!("{} was wiped, and there is {left} on it", disk.display())).hint(
            "where partitions are left, the kernel has not read the disk anew: 'partprobe', or restart the machine",
        )),
    }
}

fn dump(arguments: &DumpArgs) -> Result<ExitCode, CliError> {
    let log = Inspector::open(open_log(&arguments.dir)?)
        .map_err(|error| CliError::new(format!("{}: {error}", arguments.dir.display())))?;
    let failed = |error: DeviceError| CliError::new(format!("{}: {error}", arguments.dir.display()));
    if arguments.json {
        print_json(&log.superblock())?;
    } else {
        let superblock = log.superblock();
        print(&format!(
            "cluster {}, device {}, {} segments of {} blocks\n",
            superblock.cluster, superblock.device, superblock.segments, superblock.segment_blocks
        ))?;
    }
    for segment in log.segments() {
        let segment = segment.map_err(failed)?;
        if arguments.json {
            print_json(&segment)?;
        } else if let Some(generation) = segment.generation {
            let payload: u32 = segment.batches.iter().map(|batch| batch.payload_blocks).sum();
            let ends = match (segment.apart, segment.summary) {
                (true, _) => " of moved blocks",
                (false, true) => ", ends with its summary",
                (false, false) => "",
            };
            print(&format!(
                "segment {}: generation {generation}, {} batches, {payload} payload blocks{ends}\n",
                segment.segment,
                segment.batches.len()
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
