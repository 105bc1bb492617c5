//! What the operator of snapshots does in the world.

use super::{KEPT_MAX, Snapshot};
use crate::cluster::cuts::{Done, Wish};
use crate::cluster::records::{SECOND, VOLUME};
use crate::cue::Cue;
use crate::report::Invariant;
use crate::workloads::contents::Value;
use crate::world::World;
use std::collections::BTreeMap;

impl World {
    /// The operator does something.
    pub(crate) fn snapshot_turn(&mut self) {
        if !self.scene.snapshots.on || !self.works() && !self.scene.snapshots.clearing {
            return;
        }
        let again = self.now + self.cuts.random.spread_millis(20, 1500);
        self.cue_at(again, Cue::Snapshot);
        if self.scene.snapshots.clearing {
            let kept: Vec<String> = self.scene.snapshots.kept.iter().cloned().collect();
            kept.into_iter().for_each(|name| self.delete(&name));
            return;
        }
        self.relay_looks();
        match self.cuts.random.below(100) {
            0..45 => self.make_snapshots(),
            45..65 => self.read_some_snapshot(),
            65..72 => self.clone_some_snapshot(),
            _ => {
                let kept: Vec<String> = self.scene.snapshots.kept.iter().cloned().collect();
                if !kept.is_empty() {
                    let name = self.cuts.random.pick(&kept).clone();
                    self.delete(&name);
                }
            }
        }
    }

    /// Asks for snapshots at one of the nodes.
    fn make_snapshots(&mut self) {
        let reaching = self.reaching();
        if !self.cuts.under_way.is_empty() || self.scene.snapshots.kept.len() >= KEPT_MAX || reaching.is_empty() {
            return;
        }
        let random = &mut self.cuts.random;
        let from = *random.pick(&reaching);
        let volumes: &[&str] = match random.below(10) {
            0..5 => &[VOLUME, SECOND],
            5 => &[SECOND],
            _ => &[VOLUME],
        };
        self.scene.snapshots.named += 1;
        let name = self.scene.snapshots.named.to_string();
        let wishes = volumes.iter().map(|volume| Wish::snapshot(volume, &name)).collect();
        self.begin_cut(from, wishes);
        self.relay_starts();
    }

    /// A cut is finished.
    pub(crate) fn snapshots_made(&mut self, id: u64, done: &Done) {
        for wish in &done.wishes {
            let name = wish.full_name();
            self.scene.snapshots.kept.insert(name.clone());
            if wish.volume == VOLUME {
                let snapshot = Snapshot { asked: done.asked, answered: done.answered, seen: BTreeMap::new() };
                self.scene.snapshots.made.insert(name, snapshot);
            }
        }
        self.relay_keeps(id, done);
        self.relay_starts();
    }

    fn delete(&mut self, name: &str) {
        if !self.scene.snapshots.kept.remove(name) {
            return;
        }
        if self.scene.snapshots.clones.contains_key(name) {
            self.delete_volume(name);
        } else {
            self.scene.snapshots.relay.forget(name);
            self.delete_snapshot(name);
        }
    }

    fn clone_some_snapshot(&mut self) {
        let snapshots = self.scene.snapshots.kept();
        if snapshots.is_empty() || self.scene.snapshots.kept.len() >= KEPT_MAX {
            return;
        }
        let from = self.cuts.random.pick(&snapshots).clone();
        let Some(size) = self.configuration.view().volumes.get(&from).map(|from| from.size) else { return };
        if self.scene.snapshots.clones.contains_key(&from) {
            return; // A clone is a volume: it has to be cut before it can be cloned.
        }
        self.scene.snapshots.named += 1;
        let name = format!("clone{}", self.scene.snapshots.named);
        let key = self.key_for_clone(&from);
        if self.clone_snapshot(&from, &name, size, key).is_some() {
            self.scene.snapshots.clones.insert(name.clone(), from);
            self.scene.snapshots.kept.insert(name);
        }
    }

    fn read_some_snapshot(&mut self) {
        let kept = self.scene.snapshots.kept();
        if kept.is_empty() {
            return;
        }
        let name = self.cuts.random.pick(&kept).clone();
        let all = self.endpoints();
        let at = *self.cuts.random.pick(&all);
        self.read_part_of_snapshot(at, &name);
    }

    /// What was read of a snapshot.
    pub(crate) fn saw_snapshot(&mut self, name: &str, sector: u64, value: Value) {
        if let Err(what) = self.scene.snapshots.saw(name, sector, value) {
            self.violate(Invariant::Snapshot, what);
        }
    }
}
