//! The steps of rotations.

use super::{ANOTHER_PERCENT, BEGINS_AGAIN_PERCENT, BEGINS_PERCENT, KEY, OWN_KEY_PERCENT, SILENT_PERCENT};
use crate::cluster::records::wrapped_key;
use crate::cue::Cue;
use crate::kernel::process::Life;
use crate::plan::Lie;
use crate::world::World;
use azekura_base::{KeyId, NodeId, RekeyProgress, RekeyWish, VolumeId};
use azekura_model::transitions::attachments::put_out;
use azekura_model::transitions::data_keys::{CloneKey, add_generation, forget_former, note_rekeyed, write_with_newest};
use azekura_model::{DataKeyRecord, MetaError, Model, Records, Versioned};
use azekura_plans::rotation::{KeySeen, Next, Seen, Waits, next, together};
use std::collections::BTreeMap;
use std::sync::Arc;

impl World {
    /// Nothing is being rotated, but for what snapshots need.
    pub(crate) fn is_rekeyed(&self) -> bool {
        let model = self.configuration.model();
        let is_done = |record: &DataKeyRecord| {
            let former = |newest| !model.former_keys(record.id, newest).volumes.is_empty();
            record.writing.is_none() && !record.newest_of_several().is_some_and(|newest| former(newest.number))
        };
        model.data_keys.values().all(|record| is_done(record))
    }

    /// Somebody looks at the keys.
    pub(crate) fn rekey_turn(&mut self) {
        let rekeys = &mut self.scene.faults.rekeys;
        let pause = rekeys.random.spread_millis(30, 400);
        self.cue_at(self.now + pause, Cue::Rekey);
        let model = self.configuration.model().clone();
        let Some(rotator) = self.rotator() else { return };
        let progress: BTreeMap<VolumeId, RekeyProgress> =
            self.node_at(rotator.endpoint()).map(|node| node.rekeying().collect()).unwrap_or_default();
        let mut wishes = BTreeMap::new();
        for record in model.data_keys.values() {
            if !self.rotates(record) {
                self.rekey_step(rotator, &model, record, &progress, &mut wishes);
            }
        }
        self.tell(rotator, |node| node.rekey(&wishes, model.revision.unsigned_abs()));
        self.inform_all();
    }

    /// Somebody may have another generation take a data key's place: true then.
    fn rotates(&mut self, record: &DataKeyRecord) -> bool {
        let percent = if record.generations.len() == 1 { BEGINS_PERCENT } else { BEGINS_AGAIN_PERCENT };
        let begins = self.works() && record.writing.is_none() && self.scene.faults.rekeys.random.chance(percent);
        if begins {
            self.begin_rotation(record.id);
        }
        begins
    }

    /// Does what is next for a data key. `wishes`: the volumes that are to be passed through.
    fn rekey_step(
        &mut self,
        rotator: Life,
        model: &Model,
        record: &Versioned<DataKeyRecord>,
        progress: &BTreeMap<VolumeId, RekeyProgress>,
        wishes: &mut BTreeMap<VolumeId, RekeyWish>,
    ) {
        let seen = self.keys_seen(record);
        let mut believed = model.clone();
        if self.plan.lie == Some(Lie::HastyRekeying) {
            // Nobody is waited for who may write under a former key.
            believed.attachments = Arc::default();
        }
        let next = next(&believed, record, &seen, progress);
        let numbers = || record.generations.iter().map(|key| (key.number.number(), &*key.wrapped)).collect::<Vec<_>>();
        self.trace.step(self.now, u64::from(rotator.node.0), || {
            format!("data key {} {:?}, {rotator:?}: {next:?}, {seen:?}, {progress:?}", record.id, numbers())
        });
        let key = record.id;
        match next {
            None | Some(Next::Kept(_)) => {}
            Some(Next::WriteWith(newest)) => {
                let changed = self.configuration.run(|records| write_with_newest(records, key, newest));
                self.must(changed);
            }
            Some(Next::ForgetBefore(newest)) => {
                let changed = self.configuration.run(|records| forget_former(records, key, newest));
                self.must(changed);
                self.count("former keys forgotten");
            }
            Some(Next::Wait(waits)) => self.end_gone(rotator, model, &waits),
            Some(Next::Pass { to, done, left }) => {
                for (volume, reverts) in done {
                    let Some(name) = name_of(model, volume) else { continue };
                    let noted = self
                        .configuration
                        .run(|records| note_rekeyed(records, &name, reverts, (to, record.mod_revision)));
                    self.must(noted);
                    self.count("volume rekeyed");
                }
                wishes.extend(left);
            }
        }
    }

    /// A data key of its own for a clone of this snapshot; `None`: it has its source's.
    pub(crate) fn key_for_clone(&mut self, snapshot: &str) -> Option<CloneKey> {
        let rekeys = &mut self.scene.faults.rekeys;
        if !rekeys.on || !rekeys.random.chance(OWN_KEY_PERCENT) {
            return None;
        }
        let layer = self.configuration.view().volumes.get(snapshot)?.layer;
        let model = self.configuration.model();
        let source = model.data_keys.get(&model.layers.get(&layer)?.key?)?;
        let nth = self.scene.faults.rekeys.made + 1;
        let record = source.for_clone(KeyId(KEY.0 + nth), source.generations.clone(), wrapped_key(nth))?;
        let since = source.mod_revision;
        self.scene.faults.rekeys.made = nth;
        self.count("clone with a key of its own");
        Some(CloneKey { record, since })
    }

    /// Who does it now: a process that runs and reaches the configuration store.
    fn rotator(&mut self) -> Option<Life> {
        let now = self.now;
        let reaches = |world: &World, life: Life| world.configuration.away(life.node, now).is_none();
        let stays = !self.scene.faults.rekeys.random.chance(ANOTHER_PERCENT);
        let before =
            self.scene.faults.rekeys.rotator.filter(|life| stays && self.is_alive(*life) && reaches(self, *life));
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let all: Vec<Life> =
            nodes.into_iter().filter_map(|node| self.process_on(node)).filter(|life| reaches(self, *life)).collect();
        let next = before.or_else(|| (!all.is_empty()).then(|| *self.scene.faults.rekeys.random.pick(&all)));
        self.scene.faults.rekeys.rotator = next;
        next
    }

    fn begin_rotation(&mut self, key: KeyId) {
        self.scene.faults.rekeys.made += 1;
        let new = wrapped_key(self.scene.faults.rekeys.made);
        match self.configuration.run(|records| add_generation(records, key, &new)) {
            // All generations are in use.
            Err(MetaError::NotRotated { .. }) => {}
            added => drop(self.must(added)),
        }
        self.count("key rotation");
        self.inform_all();
    }

    /// What nodes say of the key; some don't answer.
    fn keys_seen(&mut self, record: &DataKeyRecord) -> Seen {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let seen = |node: NodeId| {
            let life = self.process_on(node)?;
            if self.stalled(life).is_some() || self.scene.faults.rekeys.random.chance(SILENT_PERCENT) {
                return None;
            }
            let shards = self.lives_of(life).into_iter().filter_map(|life| self.node_at(life.endpoint()));
            let uses = shards.map(|shard| shard.gateway().key_use(record.id));
            let used = uses.reduce(|one, other| together(record, one, other))?;
            Some(KeySeen { incarnation: life.incarnation, used })
        };
        let mut seen = seen;
        nodes.into_iter().map(|node| (node, seen(node))).collect()
    }

    /// Attachments of processes that have ended are ended; groups keep out what those have sent.
    fn end_gone(&mut self, rotator: Life, model: &Model, waits: &[Waits]) {
        for waits in waits {
            let (volume, out) = match waits {
                Waits::Node { .. } => continue,
                Waits::Fence(volume) => (*volume, None),
                Waits::Process { volume, attachment, node } => {
                    let entries = model.attachments.get(volume).into_iter().flat_map(|record| &record.attachments);
                    let mut process = entries.filter(|entry| entry.generation == *attachment);
                    let incarnation = process.find_map(|entry| entry.incarnation);
                    let is_gone =
                        incarnation.is_some_and(|incarnation| !self.is_alive(Life::first(*node, incarnation)));
                    (*volume, Some(*attachment).filter(|_| is_gone))
                }
            };
            let Some(name) = name_of(model, volume) else { continue };
            if let Some(attachment) = out {
                let put_out = |records: &Records<'_>| put_out(records, &name, &[attachment].into());
                let changed = self.change_attachments(&name, true, put_out);
                debug_assert!(changed.is_ok(), "the volume stays");
            }
            if !self.holders().is_fencing(rotator) && self.attachments(&name).is_some_and(|now| now.fence_due) {
                self.fence(rotator, &name.as_str().into(), None);
            }
        }
    }
}

fn name_of(model: &Model, volume: VolumeId) -> Option<String> {
    model.volumes.values().find(|record| record.id == volume).map(|record| record.name.clone())
}
