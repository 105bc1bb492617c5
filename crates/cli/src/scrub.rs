//! `azekura scrub`: compares all copies of a volume or a device.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use azekura_api::endpoint::{GroupList, ScrubStart};
use azekura_api::{FoundBlock, GroupHealth, GroupView, LastScrubs, NoQuery, ScrubRequest, ScrubTarget};
use azekura_base::{DeviceId, rfc3339_seconds};
use clap::Args;

use super::output::{print, print_json};
use super::progress::Progress;
use super::status::health_word;
use super::{ApiArgs, CliError};

/// Pause between two looks with --wait.
const WAIT_STEP: Duration = Duration::from_millis(500);
/// What holds a scrub up is told after so long: nodes that were just started may not have said yet how they are.
const QUIET: Duration = Duration::from_secs(5);
/// Groups that are named.
const NAMED_MAX: usize = 4;

/// Read every block of a volume, or of a device, on every copy, and compare the copies. Blocks that fail their checksum
/// are written anew from a good copy, and so are blocks that differ; both are told by volume and offset, here with
/// --wait and in the nodes' logs.
///
/// With --light, no block is read: the copies' maps are compared, which have a checksum for each block. That finds
/// copies that lost an update, not blocks that decay, and takes moments. Blocks of which the maps differ are then read
/// and written anew as above.
///
/// Every placement group is scrubbed by itself, deeply once a week and lightly once a day (see `azekura node --help`,
/// --scrub-days and --light-scrub-hours); this asks for it now. It runs beside clients' reads and writes, at a limited
/// rate.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    azekura scrub vol1 --wait     everything that may hold a block of vol1\n  \
    azekura scrub vol1 --wait=600 the same, for ten minutes at most\n  \
    azekura scrub vol1 --light    its copies' maps only\n  \
    azekura scrub 3               everything on device 3 (azekura device list has the numbers)")]
pub struct ScrubArgs {
    /// A volume's name, or a device's number.
    #[arg(value_name = "VOLUME|DEVICE")]
    target: String,
    /// Compare the copies' maps only, without reading blocks.
    #[arg(long)]
    light: bool,
    /// Wait until it is done, with =SECS at most so long; shows how far it is, and which groups wait for what. The exit
    /// code is 1 when anything was found, also when it was mended.
    #[arg(long, value_name = "SECS", num_args = 0..=1, require_equals = true)]
    wait: Option<Option<u64>>,
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
        let started = client.send::<ScrubStart>([], &request)?;
        let Some(limit) = self.wait else {
            if self.api.json {
                return print_json(&started);
            }
            let count = started.groups.len();
            return print(&format!("{count} groups will be scrubbed; azekura group list shows when each was\n"));
        };
        let begun = Instant::now();
        let wanted: BTreeSet<_> = started.groups.iter().copied().collect();
        let times = |group: &GroupView| if self.light { group.scrub.light } else { group.scrub.deep };
        let mut progress = Progress::new();
        loop {
            let groups = client.ask::<GroupList>([], &NoQuery {})?;
            let ours: Vec<&GroupView> = groups.iter().filter(|group| wanted.contains(&group.id)).collect();
            let waiting: Vec<&GroupView> =
                ours.iter().copied().filter(|group| times(group).done < started.wanted).collect();
            let left = waiting.len();
            if left == 0 {
                drop(progress);
                let findings: u64 = ours.iter().map(|group| times(group).findings).sum();
                let found = ours.iter().flat_map(|group| &group.scrub.found).filter(|found| found.at >= started.wanted);
                let found: Vec<&FoundBlock> = found.collect();
                if self.api.json {
                    print_json(&serde_json::json!({ "groups": ours.len(), "findings": findings, "found": found }))?;
                } else {
                    print(&outcome(ours.len(), findings, &found))?;
                }
                return Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            let held = held_up(&waiting);
            if let Some(seconds) = limit.filter(|seconds| begun.elapsed() + WAIT_STEP >= Duration::from_secs(*seconds))
            {
                drop(progress);
                let reason = format!("{left} of {} groups are not scrubbed after {seconds} s", ours.len());
                return Err(CliError::new(reason).hint(format!("it goes on by itself{}", held.unwrap_or_default())));
            }
            let why = held.filter(|_| begun.elapsed() >= QUIET).unwrap_or_default();
            let text = format!("scrubbing: {left} of {} groups left{why}", ours.len());
            progress.part((ours.len() - left) as u64, ours.len() as u64, text);
            std::thread::sleep(WAIT_STEP);
        }
    }
}

/// Which of these groups can't be scrubbed now, and what they wait for; `None` where they only take their time.
fn held_up(waiting: &[&GroupView]) -> Option<String> {
    let is_held = |group: &&&GroupView| !matches!(group.health, GroupHealth::Healthy);
    let held: Vec<&&GroupView> = waiting.iter().filter(is_held).collect();
    let named = held.iter().take(NAMED_MAX).map(|group| {
        let state = if group.state.is_empty() { "its primary's node does not answer" } else { &group.state };
        format!("group {} is {} ({state})", group.id, health_word(group.health))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match held.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (!held.is_empty()).then(|| format!("; {named}{more}: 'azekura status' tells what is missing"))
}

/// What a scrub has found, as people read it.
fn outcome(groups: usize, findings: u64, found: &[&FoundBlock]) -> String {
    if findings == 0 {
        return format!("{groups} groups are scrubbed; all copies are good\n");
    }
    let what = if findings == 1 {
        "1 bad block was"
    } else {
        &format!("{findings} bad blocks (or chunks that can't be read) were")
    };
    let mut text = format!("{groups} groups are scrubbed; {what} found:\n");
    for found in found {
        text += &format!("  {found}\n");
    }
    if (found.len() as u64) < findings {
        text += "  the nodes' logs name all of them\n";
    }
    if found.iter().all(|found| found.mended) && found.len() as u64 == findings {
        text += "All of them were written anew; a device with more of them every time is to be replaced.\n";
    }
    text
}

/// A time of a scrub, seconds since 1970, as people read it.
pub fn scrub_time(seconds: u64) -> String {
    if seconds == 0 { "never".to_owned() } else { rfc3339_seconds(seconds) }
}

/// When copies were last compared, as people read it.
pub fn last_scrubs(last: &LastScrubs) -> String {
    let mut text = format!("deep {}, light {}", scrub_time(last.deep), scrub_time(last.light));
    if last.findings > 0 {
        text += &format!(", {} findings", last.findings);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_api::BlockFlaw;
    use azekura_base::LayerId;

    #[test]
    fn groups_that_cant_be_scrubbed_are_told_with_what_they_wait_for() {
        let group = |id: u32, health: &str, state: &str| -> GroupView {
            serde_json::from_value(
                serde_json::json!({ "id": id, "class": "c", "epoch": 1, "primary": 1, "in_sync": [1],
                "members": [1], "health": health, "state": state, "committed": 0, "scrub": {} }),
            )
            .unwrap()
        };
        let well = group(1, "healthy", "active");
        assert_eq!(held_up(&[&well]), None);
        let (away, opening) = (group(2, "unavailable", ""), group(3, "read_only", "waiting for device 4"));
        let text = held_up(&[&well, &away, &opening]).unwrap();
        assert!(text.contains("group 2 is unavailable (its primary's node does not answer)"), "{text}");
        assert!(text.contains("group 3 is read-only (waiting for device 4)") && !text.contains("group 1"), "{text}");
        let many: Vec<GroupView> = (0..9).map(|id| group(id, "unavailable", "")).collect();
        let text = held_up(&many.iter().collect::<Vec<_>>()).unwrap();
        assert!(text.contains("and 5 more"), "{text}");
    }

    #[test]
    fn what_was_mended_is_told_by_volume_and_offset() {
        assert_eq!(outcome(64, 0, &[]), "64 groups are scrubbed; all copies are good\n");
        let found = FoundBlock {
            volume: Some("w".into()),
            layer: LayerId(1),
            offset_bytes: 8192,
            device: DeviceId(5),
            flaw: BlockFlaw::Damaged,
            mended: true,
            at: 0,
        };
        let text = outcome(64, 1, &[&found]);
        assert!(
            text.contains("1 bad block was found:\n  volume w, byte 8192: damaged on device 5, written anew\n"),
            "{text}"
        );
        assert!(outcome(64, 3, &[&found]).contains("the nodes' logs name all of them"));
    }
}
