//! How the data key of encrypted volumes gets another one in its place (docs/decisions/0038-encrypted-volumes.md).
//!
//! A new generation is in the configuration, and goes its way in four steps, each of which begins when nothing speaks
//! against it any more:
//!
//! 1. All nodes that live have it: writes are encrypted with it from then on. So nobody meets blocks that he can't read.
//! 2. No node writes under a former one any more, not even what was on its way: volumes are passed through.
//! 3. A volume was passed through: that is noted.
//! 4. No volume and no snapshot has blocks under a former one: these are forgotten.
//!
//! What is done is seen in the configuration, and in the blocks: another leader goes on where this one was.

use std::collections::BTreeMap;

use azekura_base::{KeyGeneration, KeyId, KeyUse, LayerId, NodeId, RekeyProgress, RekeyWish, VolumeId};
use azekura_model::{DataKeyRecord, FormerKeys, Model};

/// What each node says of a data key; `None`: nothing.
pub type Seen = BTreeMap<NodeId, Option<KeyUse>>;

/// What is to be done next for a data key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Writes are to be encrypted with this generation.
    WriteWith(KeyGeneration),
    /// This waits for nodes.
    Wait(Vec<Waits>),
    /// These volumes, which show all of these blocks under their heads, have been passed through; and these have not.
    Pass {
        /// The generation.
        to: KeyGeneration,
        /// To be noted.
        done: Vec<(VolumeId, LayerId)>,
        /// To be passed through.
        left: BTreeMap<VolumeId, RekeyWish>,
    },
    /// Nobody needs the generations before this one any more.
    ForgetBefore(KeyGeneration),
    /// Volumes are done; snapshots need the former ones, or something that can't be read may.
    Kept(FormerKeys),
}

/// What a node is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The node.
    pub node: NodeId,
    /// Why; a sentence's end.
    pub why: String,
}

/// What is to be done next for a data key; `None`: it has one generation. `progress`: of the volumes that are passed
/// through.
#[must_use]
pub fn next(
    model: &Model,
    record: &DataKeyRecord,
    seen: &Seen,
    progress: &BTreeMap<VolumeId, RekeyProgress>,
) -> Option<Next> {
    let to = record.newest_of_several()?.number;
    if model.cluster.as_ref().is_some_and(|cluster| cluster.restored.is_some()) {
        // Others may have blocks that this configuration does not know of yet.
        return Some(Next::Wait(Vec::new()));
    }
    if record.writing.is_some() {
        let waits = lacking(model, seen, to);
        return Some(if waits.is_empty() { Next::WriteWith(to) } else { Next::Wait(waits) });
    }
    let former = model.former_keys(record.id, to);
    if former.is_empty() {
        return Some(Next::ForgetBefore(to));
    }
    if former.volumes.is_empty() {
        return Some(Next::Kept(former));
    }
    let waits = late(model, seen, record.id, to);
    if !waits.is_empty() {
        return Some(Next::Wait(waits));
    }
    let (mut done, mut left) = (Vec::new(), BTreeMap::new());
    for volume in model.volumes.values().filter(|volume| former.volumes.contains(&volume.id)) {
        let wish = RekeyWish { head: volume.head, key: to, size: volume.size_bytes };
        // A volume that has grown since has nothing under a former key in its new part.
        let is_done = |progress: &&RekeyProgress| {
            progress.is_done() && progress.wish.head == wish.head && progress.wish.key == to
        };
        match progress.get(&volume.id).filter(is_done) {
            Some(_) => done.push((volume.id, volume.head)),
            None => drop(left.insert(volume.id, wish)),
        }
    }
    Some(Next::Pass { to, done, left })
}

/// The nodes that live and have not opened a generation.
fn lacking(model: &Model, seen: &Seen, to: KeyGeneration) -> Vec<Waits> {
    let waits = |node: NodeId| {
        let why = match seen.get(&node) {
            Some(Some(seen)) => match &seen.newest {
                Ok(newest) if *newest == to => return None,
                Ok(_) => "it has not read the new key yet".to_owned(),
                Err(why) => format!("it can't open the new key: {why}"),
            },
            _ => "it does not answer".to_owned(),
        };
        Some(Waits { node, why })
    };
    members(model).filter(|node| model.alive.contains_key(node)).filter_map(waits).collect()
}

/// The nodes that may still write under a former generation. One that is silent may, as long as it has a volume with
/// this key attached: once it has none, it has to read the configuration before it gets one.
fn late(model: &Model, seen: &Seen, key: KeyId, to: KeyGeneration) -> Vec<Waits> {
    let waits = |node: NodeId| {
        let why = match seen.get(&node).cloned().flatten() {
            Some(KeyUse { writes: Some(writes), .. }) if writes == to => return None,
            Some(KeyUse { newest: Err(why), .. }) => format!("it can't open the new key: {why}"),
            Some(_) => "writes under the former key are still on their way there".to_owned(),
            None => {
                // What was asked for by name and has no process gets one that reads the configuration first.
                let attached = |volume: VolumeId| {
                    let record = model.attachments.get(&volume);
                    record.is_some_and(|record| record.of_node(node).any(|entry| entry.incarnation.is_some()))
                };
                let holds = model.volumes.values().find(|volume| volume.key == Some(key) && attached(volume.id))?;
                format!("it does not answer, and has '{}' attached", holds.name)
            }
        };
        Some(Waits { node, why })
    };
    members(model).filter_map(waits).collect()
}

fn members(model: &Model) -> impl Iterator<Item = NodeId> + '_ {
    model.nodes.values().filter(|node| !node.removed).map(|node| node.id)
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
