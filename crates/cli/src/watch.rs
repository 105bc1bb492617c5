//! `azekura watch`: what changes, as it changes.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use azekura_api::{ErrorCode, JobView, NodeView, RESET_EVENT, ResetView, VolumeView, WatchQuery, Watched};
use azekura_base::{Size, rfc3339_seconds};
use azekura_client::{Client, ClientError, Event};
use clap::Args;

use super::jobs::left;
use super::output::print_on;
use super::{ApiArgs, CliError};

/// Pause before the node is asked again, after a break.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Print a line for each change of volumes, nodes and jobs, as it happens: first all that are there. Goes on by itself
/// when the node was away. Ends with Ctrl-C.
///
/// What is told of a volume: that it is made, changed (size, attachments, snapshots, limits, protection, class) and
/// deleted; of a node: that it comes, goes, leads, is removed or shut out; of a job ('azekura jobs'): that it begins,
/// how much is left, and that it is over. After a break comes what was missed; if the node does not know that any more,
/// it says 'reset', and all that is there follows anew.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    azekura watch                        all of it\n  \
    azekura watch volumes --json | jq    one JSON object a line\n  \
    azekura watch --since 4711           what has changed since that event")]
pub struct WatchArgs {
    /// What to watch: volumes, nodes, jobs; all that can be watched if nothing is said.
    #[arg(value_name = "WHAT", value_parser = ["volumes", "nodes", "jobs"])]
    of: Vec<String>,
    /// Go on behind the event with this id; --json shows ids.
    #[arg(long, value_name = "ID")]
    since: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// Why a connection has come to its end.
enum Break {
    /// It was closed, or has been there for long.
    Ended,
    /// Nobody reads what is printed.
    Unread,
    /// Something is wrong, perhaps not for long.
    Failed(ClientError),
}

impl WatchArgs {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode, CliError> {
        let client = self.api.client()?;
        let of = if self.of.is_empty() { Watched::ALL.map(Watched::word).join(",") } else { self.of.join(",") };
        let mut query = WatchQuery { of, since: self.since.clone() };
        let (mut begun, mut pause) = (false, PAUSE_MIN);
        loop {
            let before = query.since.clone();
            match self.follow(&client, &mut query, &mut begun)? {
                Break::Ended => {}
                Break::Unread => return Ok(ExitCode::SUCCESS),
                Break::Failed(error) if !begun || !may_pass(&error) => return Err(error.into()),
                Break::Failed(error) => eprintln!("note: {error}; the node is asked again"),
            }
            pause = if query.since == before { (pause * 2).min(PAUSE_MAX) } else { PAUSE_MIN };
            std::thread::sleep(pause);
        }
    }

    /// Prints what one connection tells.
    fn follow(&self, client: &Client, query: &mut WatchQuery, begun: &mut bool) -> Result<Break, CliError> {
        let mut events = match client.watch(query) {
            Ok(events) => events,
            Err(error) => return Ok(Break::Failed(error)),
        };
        *begun = true;
        loop {
            let next = events.next_event();
            if !events.id().is_empty() {
                query.since = Some(events.id().to_owned());
            }
            match next {
                Ok(Some(event)) => {
                    if !print_on(&if self.api.json { json(&event) } else { line(&event) })? {
                        return Ok(Break::Unread);
                    }
                }
                Ok(None) => return Ok(Break::Ended),
                // Nothing is wrong with a connection that was given up for its age.
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return Ok(Break::Ended),
                Err(error) => {
                    let (url, reason) = (client.url().to_owned(), error.to_string());
                    return Ok(Break::Failed(ClientError::Unreachable { url, reason }));
                }
            }
        }
    }
}

/// Whether the same may be answered a moment later.
fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        error => matches!(error.code(), Some(ErrorCode::Unavailable | ErrorCode::NotReady)),
    }
}

/// An event as a line of JSON.
fn json(Event { id, event, data }: &Event) -> String {
    let data = serde_json::from_str(data).unwrap_or(serde_json::Value::String(data.clone()));
    format!("{}\n", serde_json::json!({ "id": id, "event": event, "data": data }))
}

/// An event as people read it.
fn line(Event { event, data, .. }: &Event) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let told = match event.split('.').next().unwrap_or_default() {
        RESET_EVENT => serde_json::from_str(data).map(reset),
        "volume" => serde_json::from_str(data).map(|view| volume(&view)),
        "node" => serde_json::from_str(data).map(|view| node(&view)),
        "job" => serde_json::from_str(data).map(|view| job(&view)),
        _ => Ok(data.clone()),
    };
    // Another version's.
    let told = told.unwrap_or_else(|_| data.clone());
    format!("{}  {event:14}  {told}\n", rfc3339_seconds(now))
}

fn reset(ResetView { revision, things }: ResetView) -> String {
    format!("all as of revision {revision}: {things}")
}

fn volume(view: &VolumeView) -> String {
    let mut told = vec![format!("{}: {}", view.name, Size::new(view.size_bytes)), format!("{} copies", view.copies)];
    if view.snapshots > 0 {
        told.push(format!("{} snapshots", view.snapshots));
    }
    told.extend(view.attachments.iter().map(|attachment| format!("at {}", attachment.node_name)));
    told.join(", ")
}

fn node(view: &NodeView) -> String {
    let mut told = vec![if view.alive { "alive" } else { "NOT ALIVE" }];
    let more = [(view.leader, "leader"), (view.removed, "removed"), (view.shut_out, "shut out")];
    told.extend(more.into_iter().filter_map(|(is, word)| is.then_some(word)));
    let devices = if view.devices == 1 { "device" } else { "devices" };
    format!("{}: {}, {} {devices}", view.name, told.join(", "), view.devices)
}

fn job(view: &JobView) -> String {
    format!("{}: {}, {}", view.id, view.what, left(view))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event { id: "7".to_owned(), event: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_lines() {
        let node = r#"{"id": 1, "name": "n1", "alive": false, "alive_since": null, "data_address": "", "api_address": "",
            "site": "", "rack": "", "devices": 3, "leader": true, "memory_bytes": null, "uptime_seconds": null, "version": null}"#;
        for (event, told) in [
            (event("node.changed", node), "node.changed    n1: NOT ALIVE, leader, 3 devices\n"),
            (
                event(
                    "job.changed",
                    r#"{"id": "scrub/9", "kind": "scrub", "what": "it", "unit": "groups", "left": 3, "total": 8}"#,
                ),
                "job.changed     scrub/9: it, 5 of 8 groups done\n",
            ),
            (event("reset", r#"{"revision": 9, "things": 2}"#), "reset           all as of revision 9: 2\n"),
            (event("volume.changed", r#"{"new": 1}"#), "volume.changed  {\"new\": 1}\n"),
            (event("moon.rose", "red"), "moon.rose       red\n"),
        ] {
            let line = line(&event);
            assert!(line.ends_with(told) && line.matches('\n').count() == 1, "{line}");
        }
        let line = json(&event("node.changed", node));
        assert!(line.starts_with('{') && line.matches('\n').count() == 1 && line.contains("\"id\":\"7\""), "{line}");
    }
}
