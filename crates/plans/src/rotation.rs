//! How the data key of encrypted volumes gets another one in its place (docs/decisions/0038-encrypted-volumes.md).
//!
//! A new generation is in the configuration, and goes its way in four steps, each of which begins when nothing speaks
//! against it any more:
//!
//! 1. All nodes that live have it: writes are encrypted with it from then on. So nobody meets blocks that he can't
//!    read.
//! 2. No process that has such a volume writes under a former one any more, not even what was on its way: volumes are
//!    passed through.
//! 3. A volume was passed through: that is noted.
//! 4. No volume and no snapshot has blocks under a former one: these are forgotten.
//!
//! What is done is seen in the configuration, and in the blocks: another leader goes on where this one was.

use std::collections::BTreeMap;

use azekura_base::{Generation, KeyGeneration, KeyId, KeyUse, NodeId, RekeyProgress, RekeyWish, VolumeId};
use azekura_model::{DataKeyRecord, FormerKeys, Model, Versioned};

/// What a node says of a data key that is rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySeen {
    /// Which process of the node has said it.
    pub incarnation: u64,
    /// What it has of the key, and does with it.
    pub used: KeyUse,
}

/// What each node says of a data key; `None`: nothing.
pub type Seen = BTreeMap<NodeId, Option<KeySeen>>;

/// What is to be done next for a data key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Writes are to be encrypted with this generation.
    WriteWith(KeyGeneration),
    /// This waits.
    Wait(Vec<Waits>),
    /// These volumes have been passed through, and have gone back to a snapshot so often; and these have not.
    Pass {
        /// The generation.
        to: KeyGeneration,
        /// To be noted.
        done: Vec<(VolumeId, u32)>,
        /// To be passed through.
        left: BTreeMap<VolumeId, RekeyWish>,
    },
    /// Nobody needs the generations before this one any more.
    ForgetBefore(KeyGeneration),
    /// Volumes are done; snapshots need the former ones, or something that can't be read may.
    Kept(FormerKeys),
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waits {
    /// A node, and why; a sentence's end.
    Node {
        /// The node.
        node: NodeId,
        /// Why.
        why: String,
    },
    /// A process that has a volume attached and says nothing: if it has ended, its attachment is to end as well.
    Process {
        /// The volume.
        volume: VolumeId,
        /// The attachment.
        attachment: Generation,
        /// The process's node.
        node: NodeId,
    },
    /// A volume's groups, which have to confirm that nothing of attachments that have ended is applied any more.
    Fence(VolumeId),
}

/// What two gateways of a node have of a key: what the one has that has less.
#[must_use]
pub fn together(record: &DataKeyRecord, one: KeyUse, other: KeyUse) -> KeyUse {
    let place = |number: &KeyGeneration| record.generations.iter().position(|known| known.number == *number);
    let newest = match (one.newest, other.newest) {
        (Ok(one), Ok(other)) => Ok([one, other].into_iter().min_by_key(place).unwrap_or(one)),
        (Err(why), _) | (_, Err(why)) => Err(why),
    };
    KeyUse { newest, writes: one.writes.into_iter().chain(other.writes).min_by_key(place) }
}

/// What is to be done next for a data key; `None`: it has one generation. `progress`: of the volumes that are passed
/// through.
#[must_use]
pub fn next(
    model: &Model,
    record: &Versioned<DataKeyRecord>,
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
        let wish = RekeyWish { reverts: volume.reverts, key: to, since: record.mod_revision, size: volume.size_bytes };
        // A volume that has grown since has nothing under a former key in its new part.
        let is_done =
            |progress: &&RekeyProgress| progress.is_done() && RekeyWish { size: wish.size, ..progress.wish } == wish;
        match progress.get(&volume.id).filter(is_done) {
            Some(_) => done.push((volume.id, volume.reverts)),
            None => drop(left.insert(volume.id, wish)),
        }
    }
    Some(Next::Pass { to, done, left })
}

/// The nodes that live and have not opened a generation.
fn lacking(model: &Model, seen: &Seen, to: KeyGeneration) -> Vec<Waits> {
    let waits = |node: NodeId| {
        let why = match seen.get(&node) {
            Some(Some(seen)) => match &seen.used.newest {
                Ok(newest) if *newest == to => return None,
                Ok(_) => "it has not read the new key yet".to_owned(),
                Err(why) => cannot_open(why),
            },
            _ => "it does not answer".to_owned(),
        };
        Some(Waits::Node { node, why })
    };
    members(model).filter(|node| model.alive.contains_key(node)).filter_map(waits).collect()
}

/// The processes that have a volume with this key and may still write under a former generation; and the volumes of
/// which something may still come of processes that had it. Who has no volume can't write: what ended attachments have
/// sent is kept out by the groups, and who attaches one later reads the configuration first.
fn late(model: &Model, seen: &Seen, key: KeyId, to: KeyGeneration) -> Vec<Waits> {
    let mut waits = Vec::new();
    for volume in model.volumes.values().filter(|volume| volume.key == Some(key)) {
        let Some(record) = model.attachments.get(&volume.id) else { continue };
        if record.fence_due {
            waits.push(Waits::Fence(volume.id));
        }
        for entry in &record.attachments {
            // What was asked for by name and has no process gets one that reads the configuration first.
            let Some(incarnation) = entry.incarnation else { continue };
            let why = match seen
                .get(&entry.node)
                .and_then(Option::as_ref)
                .filter(|seen| seen.incarnation == incarnation)
            {
                // Which of the generations that it writes under is the oldest, it knows as long as it has them.
                Some(KeySeen { used: KeyUse { newest: Err(why), .. }, .. }) => cannot_open(why),
                Some(KeySeen { used: KeyUse { writes: Some(writes), .. }, .. }) if *writes == to => continue,
                Some(_) => "writes under the former key are still on their way there".to_owned(),
                None => {
                    waits.push(Waits::Process { volume: volume.id, attachment: entry.generation, node: entry.node });
                    continue;
                }
            };
            waits.push(Waits::Node { node: entry.node, why });
        }
    }
    waits.sort();
    waits.dedup();
    waits
}

fn cannot_open(why: &str) -> String {
    format!("it can't open the new key: {why}")
}

fn members(model: &Model) -> impl Iterator<Item = NodeId> + '_ {
    model.nodes.values().filter(|node| !node.removed).map(|node| node.id)
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
