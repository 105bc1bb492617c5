//! Rotations of data keys, as the leader carries them out: `azekura_plans::rotation` says what comes next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use azekura_api::endpoint::NodeDataKeysShow;
use azekura_api::{NodeDataKey, NodeDataKeys, RekeyPass};
use azekura_base::{BLOCK_SIZE, Generation, KeyGeneration, KeyId, KeyUse, NodeId, RekeyProgress, VolumeId};
use azekura_model::{DataKeyRecord, MetaError, Model, Versioned};
use azekura_plans::rotation::{KeySeen, Next, Seen, Waits, next, together};
use tokio::sync::watch;

use crate::api::{Api, peers};
use crate::attachments::node_name;

/// Between two steps, while something is to be done.
const STEP_PAUSE: Duration = Duration::from_millis(500);
/// After a step that has failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// A step is taken at the latest after this time, whether or not anything has changed.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);

/// Takes step after step while this node leads, as long as something is rotated; ends with its task.
pub(crate) async fn run(api: Api, mut leads: watch::Receiver<bool>) {
    let mut models = api.meta().watch_model();
    loop {
        if leads.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        let mut told = BTreeMap::new();
        while *leads.borrow() {
            let model = models.borrow_and_update().clone();
            let pause = match step(&api, &model, &mut told).await {
                Ok(true) => STEP_PAUSE,
                Ok(false) => IDLE_INTERVAL,
                Err(error) => {
                    tracing::warn!("data keys are not rotated further for now: {error}");
                    FAILURE_PAUSE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                outcome = models.changed(), if pause == IDLE_INTERVAL => if outcome.is_err() { return },
                outcome = leads.changed() => if outcome.is_err() { return },
            }
        }
        // The next leader's data plane goes on.
        api.data_plane().rekey(BTreeMap::new(), 0);
    }
}

/// Does what is to be done now, for each key that is rotated. False: for none. `told`: what was said of each.
async fn step(api: &Api, model: &Model, told: &mut BTreeMap<KeyId, String>) -> Result<bool, MetaError> {
    let rotated: Vec<&Versioned<DataKeyRecord>> = in_rotation(model).collect();
    told.retain(|key, _| rotated.iter().any(|record| record.id == *key));
    if rotated.is_empty() {
        api.data_plane().rekey(BTreeMap::new(), model.revision);
        return Ok(false);
    }
    let (seen, progress) = (seen(api, model).await, api.data_plane().rekeying().await);
    let mut wishes = BTreeMap::new();
    let mut is_busy = false;
    for record in rotated {
        let none = Seen::new();
        let Some(next) = next(model, record, seen.get(&record.id).unwrap_or(&none), &progress) else { continue };
        is_busy |= !matches!(next, Next::Kept(_));
        tell(model, record.id, &next, told);
        match next {
            Next::WriteWith(newest) => drop(api.meta().write_with_newest(record.id, newest).await?),
            Next::ForgetBefore(newest) => drop(api.meta().forget_former(record.id, newest).await?),
            Next::Wait(waits) => end_gone(api, model, &waits).await,
            Next::Kept(_) => {}
            Next::Pass { to, done, left } => {
                for (volume, reverts) in done {
                    let name = model.volumes.values().find(|record| record.id == volume).map(|record| &record.name);
                    if let Some(name) = name
                        && api.meta().note_rekeyed(name, reverts, (to, record.mod_revision)).await?
                    {
                        tracing::info!("all blocks of volume {name} are encrypted under generation {to} of its key");
                    }
                }
                wishes.extend(left);
            }
        }
    }
    api.data_plane().rekey(wishes, model.revision);
    Ok(is_busy)
}

/// The data keys that others take the place of.
pub(crate) fn in_rotation(model: &Model) -> impl Iterator<Item = &Versioned<DataKeyRecord>> {
    model.data_keys.values().map(|record| &**record).filter(|record| record.newest_of_several().is_some())
}

/// Says what happens to a key, once.
fn tell(model: &Model, key: KeyId, next: &Next, told: &mut BTreeMap<KeyId, String>) {
    let text = match next {
        Next::WriteWith(newest) => format!("writes are encrypted with generation {newest} from now on"),
        Next::Wait(waits) if waits.is_empty() => return,
        Next::Wait(waits) => format!("its rotation waits: {}", waits_text(model, waits).join("; ")),
        Next::Pass { to, left, .. } if !left.is_empty() => {
            format!("the blocks of {} volumes get generation {to}", left.len())
        }
        Next::Pass { .. } => return,
        Next::ForgetBefore(newest) => format!("the generations before {newest} are forgotten"),
        Next::Kept(former) if former.unread => {
            "former generations are kept: records can't be read that may need them".to_owned()
        }
        Next::Kept(former) => format!("former generations are kept for {} snapshots", former.snapshots.len()),
    };
    if told.get(&key) != Some(&text) {
        tracing::info!("data key {key}: {text}");
        told.insert(key, text);
    }
}

/// Ends attachments of processes that have ended, and has the groups keep out what those have sent.
async fn end_gone(api: &Api, model: &Model, waits: &[Waits]) {
    let mut ended: BTreeMap<VolumeId, BTreeSet<Generation>> = BTreeMap::new();
    for waits in waits {
        match waits {
            Waits::Process { volume, attachment, .. } => drop(ended.entry(*volume).or_default().insert(*attachment)),
            Waits::Fence(volume) => drop(ended.entry(*volume).or_default()),
            Waits::Node { .. } => {}
        }
    }
    for (volume, silent) in ended {
        let Some(name) = model.volumes.values().find(|record| record.id == volume).map(|record| &record.name) else {
            continue;
        };
        if let Err(error) = api.attacher().put_out_gone(name, &silent).await {
            tracing::debug!(volume = name, "volume {name}: attachments that have ended: {error}");
        }
    }
}

/// What is waited for, for people.
pub(crate) fn waits_text(model: &Model, waits: &[Waits]) -> Vec<String> {
    let volume = |id: &VolumeId| {
        let named = model.volumes.values().find(|record| record.id == *id);
        named.map_or_else(|| id.to_string(), |record| record.name.clone())
    };
    let text = |waits: &Waits| match waits {
        Waits::Node { node, why } => format!("node {}: {why}", node_name(model, *node)),
        Waits::Process { volume: id, node, .. } => {
            format!("node {}: it does not answer, and has '{}' attached", node_name(model, *node), volume(id))
        }
        Waits::Fence(id) => {
            format!("the groups of '{}' have not confirmed that its former users are kept out", volume(id))
        }
    };
    waits.iter().map(text).collect()
}

/// What all nodes say of the keys that are rotated.
pub(crate) async fn seen(api: &Api, model: &Model) -> BTreeMap<KeyId, Seen> {
    by_key(model, &answers(api, model).await)
}

/// What each node answers, if it does.
pub(crate) async fn answers(api: &Api, model: &Model) -> Vec<(NodeId, Option<NodeDataKeys>)> {
    let here = own(api, model).await;
    let answers = peers::ask_all::<NodeDataKeysShow>(api.node(), api.https(), model, async { here }).await;
    answers.into_iter().map(|(node, answer)| (node, answer.ok())).collect()
}

/// The same by key.
pub(crate) fn by_key(model: &Model, answers: &[(NodeId, Option<NodeDataKeys>)]) -> BTreeMap<KeyId, Seen> {
    let of = |record: &Versioned<DataKeyRecord>| {
        let said = |(node, answer): &(NodeId, Option<NodeDataKeys>)| {
            (*node, answer.as_ref().and_then(|answer| key_seen(answer, record.id)))
        };
        (record.id, answers.iter().map(said).collect())
    };
    in_rotation(model).map(of).collect()
}

fn key_seen(said: &NodeDataKeys, key: KeyId) -> Option<KeySeen> {
    Some(KeySeen { incarnation: said.incarnation, used: key_use(said.keys.get(&key.0)?) })
}

fn key_use(said: &NodeDataKey) -> KeyUse {
    let number = |number: Option<u8>| number.and_then(KeyGeneration::new);
    let why = || said.problem.clone().unwrap_or_else(|| "it does not say why".to_owned());
    KeyUse { newest: number(said.newest).ok_or_else(why), writes: number(said.writes) }
}

/// What this node has of the keys that are rotated, and does with them; `None`: its data plane does not answer.
pub(crate) async fn own(api: &Api, model: &Model) -> Option<NodeDataKeys> {
    let records: Vec<&Versioned<DataKeyRecord>> = in_rotation(model).collect();
    let shards = api.data_plane().key_use(records.iter().map(|record| record.id).collect()).await?;
    let one = |(at, record): (usize, &&Versioned<DataKeyRecord>)| {
        let uses = shards.iter().filter_map(|shard| shard.get(at).cloned());
        let used = uses.reduce(|one, other| together(record, one, other))?;
        // The data plane serves without it as long as nobody writes with it.
        let why = record.newest_of_several().and_then(|newest| api.keys().why_not_opened(record.id, newest));
        let newest = why.map_or(used.newest, Err);
        Some((record.id.0, view(KeyUse { newest, ..used })))
    };
    let keys = records.iter().enumerate().filter_map(one).collect();
    let passes = api.data_plane().rekeying().await;
    let passes = passes.iter().map(|(volume, progress)| pass(*volume, progress)).collect();
    Some(NodeDataKeys { incarnation: api.data_plane().incarnation(), keys, passes })
}

fn view(used: KeyUse) -> NodeDataKey {
    let (newest, problem) = match used.newest {
        Ok(newest) => (Some(newest.number()), None),
        Err(why) => (None, Some(why)),
    };
    NodeDataKey { newest, problem, writes: used.writes.map(KeyGeneration::number) }
}

fn pass(volume: VolumeId, progress: &RekeyProgress) -> (u64, RekeyPass) {
    let RekeyProgress { chunks, of, moved, .. } = *progress;
    let bytes = moved * BLOCK_SIZE as u64;
    (volume.0, RekeyPass { chunks_done: u64::from(chunks), chunks: u64::from(of), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::{Unknown, WrappedKey};

    fn number(number: u8) -> KeyGeneration {
        KeyGeneration::new(number).unwrap()
    }

    /// A node is as far as the shard that is behind; after 15 comes 0.
    #[test]
    fn of_two_shards_the_one_that_is_behind_counts() {
        let generation = |of| WrappedKey {
            number: number(of),
            provider: String::new(),
            wrapped: String::new(),
            check: String::new(),
            created: String::new(),
            unknown: Unknown::default(),
        };
        let generations = vec![generation(15), generation(0)];
        let record = DataKeyRecord { id: KeyId(5), generations, writing: None, unknown: Unknown::default() };
        let used = |newest, writes: Option<u8>| KeyUse { newest: Ok(number(newest)), writes: writes.map(number) };
        assert_eq!(together(&record, used(0, Some(15)), used(15, None)), used(15, Some(15)));
        assert_eq!(together(&record, used(0, Some(0)), used(0, Some(15))), used(0, Some(15)));
        // One that is not in the record any more is older than all.
        assert_eq!(together(&record, used(0, Some(0)), used(0, Some(7))).writes, Some(number(7)));
        let away = KeyUse { newest: Err("away".into()), writes: None };
        assert_eq!(together(&record, used(0, Some(0)), away.clone()).newest, away.newest);
        assert_eq!(key_use(&view(away.clone())), away);
    }
}
