//! `azekura status`: is everything well, and if not, what to do.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use azekura_api::endpoint::Status;
use azekura_api::{ApiAccess, ClusterStatus, GroupHealth, NoQuery, ResyncStatus, Transport};
use azekura_client::Client;
use clap::Args;
use indicatif::HumanCount;

use super::output::{print, print_json};
use super::period::about;
use super::progress::Progress;
use super::rates::{ResyncRate, rate};
use super::screen::{Screen, Tone};
use super::scrub::last_scrubs;
use super::{ApiArgs, CliError, lists};
use azekura_base::Size;

/// Pause between two looks with --wait.
const WAIT_STEP: Duration = Duration::from_millis(250);
/// How often --wait tells how far copies are brought up to date.
const RESYNC_STEP: Duration = Duration::from_secs(1);

/// Say whether the cluster is healthy; if not, what is wrong and what to do. The exit code is 0 when it is healthy,
/// else 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    azekura status                 look once\n  \
    azekura status --wait 60       wait up to a minute until it is healthy\n  \
    azekura status --wait 60 --nodes 3   ... and three nodes are alive\n  \
    azekura status --json | jq .problems")]
pub struct StatusArgs {
    /// Wait until the cluster is healthy, at most this many seconds; tells what it waits for.
    #[arg(long, value_name = "SECS")]
    wait: Option<u64>,
    /// Call the cluster healthy only with at least this many living nodes, for scripts that start a cluster.
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    #[command(flatten)]
    api: ApiArgs,
}

impl StatusArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let client = self.api.client()?;
        let status = match self.wait {
            None => look(&client, self.nodes)?,
            Some(seconds) => wait(&client, self.nodes, Duration::from_secs(seconds))?,
        };
        if self.api.json {
            print_json(&status)?;
        } else {
            print(&describe(&status))?;
        }
        Ok(if status.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// One look; fewer living nodes than wanted are a problem, too.
fn look(client: &Client, nodes: Option<usize>) -> Result<ClusterStatus, CliError> {
    let mut status = client.ask::<Status>([], &NoQuery {})?;
    let alive = status.nodes.iter().filter(|node| node.alive).count();
    if let Some(nodes) = nodes.filter(|nodes| alive < *nodes) {
        status.healthy = false;
        status.problems.push(format!("{alive} of the {nodes} nodes that are wanted (--nodes) are alive"));
    }
    Ok(status)
}

/// Looks until the cluster is healthy or the time is over; the last look's outcome.
fn wait(client: &Client, nodes: Option<usize>, time: Duration) -> Result<ClusterStatus, CliError> {
    let deadline = Instant::now() + time;
    let mut progress = Progress::new();
    let mut shown = String::new();
    let mut resync: Option<(ResyncStatus, Instant)> = None;
    loop {
        let outcome = look(client, nodes);
        let waiting_for = match &outcome {
            Ok(status) if status.healthy => return outcome,
            Ok(status) => status.problems.first().cloned().unwrap_or_default(),
            Err(_) => format!("no answer from {} yet", client.url()),
        };
        if Instant::now() + WAIT_STEP >= deadline {
            return outcome;
        }
        // Beside a resync, whose lines are told more often, it is told when it changes.
        if waiting_for != shown {
            progress.tell(format!("waiting: {waiting_for}"));
            shown = waiting_for;
        }
        if let Ok(ClusterStatus { resync: Some(now), .. }) = &outcome
            && resync.as_ref().is_none_or(|(_, looked)| looked.elapsed() >= RESYNC_STEP)
        {
            let rate = resync.as_ref().map(|(before, at)| rate(now, Some(before), at.elapsed().as_secs_f64()));
            progress.part(now.chunks_done, now.chunks, format!("resync: {}", resync_line(now, rate)));
            resync = Some((now.clone(), Instant::now()));
        }
        std::thread::sleep(WAIT_STEP);
    }
}

/// A health in a word.
pub fn health_word(health: GroupHealth) -> &'static str {
    match health {
        GroupHealth::Healthy => "healthy",
        GroupHealth::Degraded => "degraded",
        GroupHealth::ReadOnly => "read-only",
        GroupHealth::Unavailable => "unavailable",
    }
}

/// How much a health in a word asks for.
pub fn health_tone(word: &str) -> Tone {
    match word {
        "healthy" => Tone::Plain,
        "degraded" => Tone::Notice,
        _ => Tone::Bad,
    }
}

/// How far copies are brought up to date, and, between two looks, how fast.
pub fn resync_line(status: &ResyncStatus, rate: Option<ResyncRate>) -> String {
    let mut text = format!(
        "{} of {} groups, {} of {} chunks",
        status.groups_active,
        status.groups,
        HumanCount(status.chunks_done),
        HumanCount(status.chunks)
    );
    match rate {
        None => text += &format!(", {} sent", Size::new(status.bytes)),
        Some(rate) => {
            text += &format!(", {:.0} MiB/s", rate.bytes_per_second / f64::from(1 << 20));
            if let Some(seconds) = rate.seconds_left {
                text += &format!(", about {} left", about(seconds));
            }
        }
    }
    text
}

/// How nodes talk with each other, in words.
fn transport_line(transport: Transport) -> &'static str {
    match transport {
        Transport::Plain => "plain: nodes prove no keys to each other, and nothing is encrypted",
        Transport::Both => "both: nodes dial with TLS and accept either",
        Transport::Tls => "tls",
    }
}

/// Who is listened to by the API, in words.
fn access_line(access: ApiAccess) -> &'static str {
    match access {
        ApiAccess::Open => "open: whoever reaches it may everything",
        ApiAccess::Grants => "grants",
    }
}

fn describe(status: &ClusterStatus) -> String {
    let mut text = if status.healthy {
        "The cluster is healthy.\n".to_owned()
    } else {
        let problems = status.problems.iter().map(|problem| format!("  - {problem}\n"));
        let outcome = Screen::stdout().paint("The cluster is NOT healthy:", Tone::Bad);
        format!("{outcome}\n{}", problems.collect::<String>())
    };
    for note in &status.notes {
        text += &format!("  note: {note}\n");
    }
    let alive = status.nodes.iter().filter(|node| node.alive).count();
    let groups: usize = status.groups.values().sum();
    let by_health: Vec<String> =
        status.groups.iter().map(|(health, count)| format!("{count} {}", health_word(*health))).collect();
    let size = |bytes| Size::new(bytes).to_string();
    text += &format!("\n  nodes          {alive} of {} alive\n", status.nodes.len());
    text += &format!(
        "  devices        {}, {} of {} used\n",
        status.devices.len(),
        size(status.used_bytes),
        size(status.capacity_bytes)
    );
    let by_health = if by_health.is_empty() { "the first volume makes them".to_owned() } else { by_health.join(", ") };
    text += &format!("  groups         {groups}: {by_health}\n");
    if let Some(resync) = &status.resync {
        text += &format!("  resync         {}\n", resync_line(resync, None));
    }
    if let Some(last) = &status.scrubbed {
        let under_way = if status.scrubbing > 0 { format!("; {} groups now", status.scrubbing) } else { String::new() };
        text += &format!("  scrubbed       {}{under_way}\n", last_scrubs(last));
    }
    text += &format!(
        "  volumes        {}, {} in all ({} with copies, when full)\n",
        status.volumes,
        size(status.volume_bytes),
        size(status.promised_bytes)
    );
    if let Some(transport) = status.transport {
        text += &format!("  transport      {}\n", transport_line(transport));
    }
    if let Some(access) = status.api_access {
        text += &format!("  API access     {}\n", access_line(access));
    }
    text += &format!("  configuration  {}\n", status.configuration);
    text += &format!("\n{}", lists::nodes(&status.nodes));
    if !status.devices.is_empty() {
        text += &format!("\n{}", lists::devices(&status.devices));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resync_as_people_read_it() {
        let status = ResyncStatus {
            groups: 64,
            groups_active: 12,
            chunks: 9_000,
            chunks_done: 3_120,
            bytes: 1 << 30,
            copies: Vec::new(),
        };
        assert_eq!(resync_line(&status, None), "12 of 64 groups, 3,120 of 9,000 chunks, 1GiB sent");
        let rate =
            ResyncRate { bytes_per_second: 85.0 * 1_048_576.0, chunks_per_second: 49.0, seconds_left: Some(120.0) };
        let line = "12 of 64 groups, 3,120 of 9,000 chunks, 85 MiB/s, about 2 min left";
        assert_eq!(resync_line(&status, Some(rate)), line);
    }
}
