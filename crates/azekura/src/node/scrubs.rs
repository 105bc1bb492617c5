//! Which groups are due for a scrub: the primary's node looks into the configuration now and then.

use super::dataplane::{Command, Handle};
use azekura_base::{NodeId, PgId};
use azekura_meta::MetaClient;
use azekura_meta::model::Model;
use azekura_meta::time::unix_seconds;
use std::time::Duration;

/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(2);

/// Hands the groups that are due to the data plane, which takes them in turn; ends with its task. Without an interval
/// only what somebody asks for is scrubbed.
pub async fn run(client: MetaClient, handle: Handle, node: NodeId, interval: Option<Duration>) {
    loop {
        tokio::time::sleep(LOOK_PAUSE).await;
        for pg in due(&client.model(), node, interval, unix_seconds()) {
            handle.send(Command::Scrub(pg));
        }
    }
}

/// The groups with a primary on `node` that are due at time `now`, seconds since 1970.
fn due(model: &Model, node: NodeId, interval: Option<Duration>, now: u64) -> Vec<PgId> {
    let here = |device| model.devices.get(device).is_some_and(|record| record.node == node);
    let groups = model.groups.values().filter(|group| here(&group.primary));
    let due = groups.filter(|group| {
        let late = interval.is_some_and(|interval| now >= group.scrub.done.saturating_add(interval.as_secs()));
        late || group.scrub.wanted > group.scrub.done
    });
    due.map(|group| group.id).collect()
}
