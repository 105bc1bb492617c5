//! `azekura scrub`: compares all copies of a volume or a device.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use azekura_base::DeviceId;
use azekura_control::api::{GroupView, LastScrubs, ScrubRequest, ScrubStarted, ScrubTarget};
use azekura_meta::time::rfc3339;
use clap::Args;

use super::output::{print, print_json};
use super::{ApiArgs, CliError};

/// Pause between two looks with --wait.
const WAIT_STEP: Duration = Duration::from_millis(500);

/// Read every block of a volume, or of a device, on every copy, and compare the copies. Blocks that fail their checksum are
/// written anew from a good copy, and so are blocks that differ; both are in the nodes' logs by volume and offset.
///
/// With --light, no block is read: the copies' maps are compared, which have a checksum for each block. That finds copies
/// that lost an update, not blocks that decay, and takes moments. Blocks of which the maps differ are then read and
/// written anew as above.
///
/// Every placement group is scrubbed by itself, deeply once a week and lightly once a day (see `azekura node --help`,
/// --scrub-days and --light-scrub-hours); this asks for it now. It runs beside clients' reads and writes, at a limited rate.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    azekura scrub vol1 --wait     everything that may hold a block of vol1\n  \
    azekura scrub vol1 --light    its copies' maps only\n  \
    azekura scrub 3               everything on device 3 (azekura device list has the numbers)")]
pub struct ScrubArgs {
    /// A volume's name, or a device's number.
    #[arg(value_name = "VOLUME|DEVICE")]
    target: String,
    /// Compare the copies' maps only, without reading blocks.
    #[arg(long)]
    light: bool,
    /// Wait until it is done; shows how far it is. The exit code is 1 when copies differed or could not be read.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl ScrubArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let client = self.api.client()?;
        let target = match self.target.parse::<u32>() {
            Ok(device) => ScrubTarget::Device(DeviceId(device)),
            Err(_) => ScrubTarget::Volume(self.target.clone()),
        };
        let request = ScrubRequest { target, light: self.light };
        let started: ScrubStarted = client.post("/v1/scrub", &request)?;
        if !self.wait {
            if self.api.json {
                return print_json(&started);
            }
            let count = started.groups.len();
            return print(&format!("{count} groups will be scrubbed; azekura group list shows when each was\n"));
        }
        let wanted: BTreeSet<_> = started.groups.iter().copied().collect();
        let times = |group: &GroupView| if self.light { group.scrub.light } else { group.scrub.deep };
        let mut told = usize::MAX;
        loop {
            let groups: Vec<GroupView> = client.get("/v1/groups")?;
            let ours: Vec<&GroupView> = groups.iter().filter(|group| wanted.contains(&group.id)).collect();
            let left = ours.iter().filter(|group| times(group).done < started.wanted).count();
            if left == 0 {
                let findings: u64 = ours.iter().map(|group| times(group).findings).sum();
                if self.api.json {
                    print_json(&serde_json::json!({ "groups": ours.len(), "findings": findings }))?;
                } else if findings == 0 {
                    print(&format!("{} groups are scrubbed; all copies are good\n", ours.len()))?;
                } else {
                    print(&format!(
                        "{} groups are scrubbed; {findings} blocks differed or could not be read: the nodes' logs name them\n",
                        ours.len()
                    ))?;
                }
                return Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            if left != told {
                // Progress for people; if it can't be shown, the outcome still is.
                let _shown = writeln!(std::io::stderr(), "scrubbing: {left} of {} groups left", ours.len());
                told = left;
            }
            std::thread::sleep(WAIT_STEP);
        }
    }
}

/// A time of a scrub, seconds since 1970, as people read it.
pub fn scrub_time(seconds: u64) -> String {
    if seconds == 0 { "never".to_owned() } else { rfc3339(std::time::UNIX_EPOCH + Duration::from_secs(seconds)) }
}

/// When copies were last compared, as people read it.
pub fn last_scrubs(last: &LastScrubs) -> String {
    let mut text = format!("deep {}, light {}", scrub_time(last.deep), scrub_time(last.light));
    if last.findings > 0 {
        text += &format!(", {} findings", last.findings);
    }
    text
}
