//! Operations on volumes as wholes: snapshots, reverts, clones, sizes, deletions.

use super::model::{Change, Image, Kind, Past, Sectors};
use super::state::{Cutting, Kept, Volume};
use crate::cluster::cuts::{Done, Wish};
use crate::report::Invariant;
use crate::workloads::contents::SECTOR_SIZE;
use crate::world::World;
use std::collections::BTreeMap;

/// Attempts to give up what lies behind a volume's new end.
const TRIMS_MAX: u32 = 20;

impl World {
    /// A cut has been finished, or called off.
    pub(crate) fn fsx_cut_over(&mut self, id: u64, done: Option<Done>) {
        if let Some(cutting) = self.scene.fsx.cutting.as_mut().filter(|cutting| cutting.id == id) {
            let begun = cutting.past.changes.len();
            cutting.over = Some(done.map(|done| (done, begun)));
        }
    }

    /// Asks for a cut at one of the nodes; does not wait.
    pub(super) fn fsx_begin_cut(&mut self, wishes: Vec<Wish>) -> Option<()> {
        if !self.fsx_wait("a node reaches the configuration", |world| !world.reaching().is_empty()) {
            return None;
        }
        let reaching = self.reaching();
        let from = *self.scene.fsx.random.pick(&reaching);
        self.fsx_say(|| format!("asks {from:?} for a cut: {wishes:?}"));
        let before = wishes.iter().filter_map(|wish| {
            let volume = self.scene.fsx.volumes.get(&wish.volume)?;
            Some((wish.volume.clone(), volume.image.sectors.clone()))
        });
        let past = Past { before: before.collect(), changes: Vec::new() };
        let id = self.begin_cut(from, wishes)?;
        self.scene.fsx.cutting = Some(Cutting { id, past, over: None });
        Some(())
    }

    /// Makes a cut and waits for its end; gives the wishes when it is finished.
    fn fsx_cut(&mut self, wishes: Vec<Wish>) -> Option<bool> {
        self.fsx_begin_cut(wishes)?;
        self.fsx_finish_cut()
    }

    /// Waits for a cut that is under way. True when it was finished, and the model knows its snapshots.
    pub(super) fn fsx_finish_cut(&mut self) -> Option<bool> {
        self.scene.fsx.cutting.as_ref()?;
        let over = |world: &World| world.scene.fsx.cutting.as_ref().is_none_or(|cutting| cutting.over.is_some());
        if !self.fsx_wait("a cut ends", over) {
            return None;
        }
        self.fsx_learn_of_cut()
    }

    /// If a cut is over, the model gets its snapshots: what they hold is read, and must be what the volumes were at one
    /// moment.
    pub(super) fn fsx_learn_of_cut(&mut self) -> Option<bool> {
        self.scene.fsx.cutting.as_ref()?.over.as_ref()?;
        let Cutting { over, mut past, .. } = self.scene.fsx.cutting.take()?;
        let Some((done, begun)) = over.flatten() else { return Some(false) };
        past.changes.truncate(begun);
        let mut seen = BTreeMap::new();
        for wish in &done.wishes {
            let (name, size) = (wish.full_name(), self.scene.fsx.volumes.get(&wish.volume)?.image.size);
            let zeros = self.scene.fsx.volumes.get(&wish.volume)?.image.zeros.clone();
            let image = Image { size, sectors: Sectors::new(), zeros };
            self.scene.fsx.snapshots.insert(name.clone(), Kept { image, since: done.revision });
            let sectors = self.fsx_fetch_all(&name)?;
            self.scene.fsx.snapshots.get_mut(&name)?.image.sectors.clone_from(&sectors);
            seen.insert(wish.volume.clone(), sectors);
        }
        let count = past.changes.len();
        match past.held(&seen) {
            Ok(held) => self.fsx_say(|| format!("the cut holds {held} of {count} changes that were begun meanwhile")),
            Err(what) => {
                let what = format!("operation {}: {:?}: {what}", self.scene.fsx.steps, done.wishes);
                self.violate(Invariant::Snapshot, what);
                return None;
            }
        }
        for wish in done.wishes {
            let volume = self.scene.fsx.volumes.get_mut(&wish.volume)?;
            volume.since = volume.since.max(done.revision);
            if let Some(to) = wish.back_to {
                volume.image = self.scene.fsx.snapshots.get(&to)?.image.clone();
            }
        }
        Some(true)
    }

    /// One snapshot of these volumes; waits if nothing is to happen meanwhile.
    pub(super) fn fsx_snapshot(&mut self, volumes: &[String], waits: bool) -> Option<()> {
        let name = self.scene.fsx.new_name("s");
        let wishes = volumes.iter().map(|volume| Wish::snapshot(volume, &name)).collect();
        self.fsx_begin_cut(wishes)?;
        if waits {
            self.fsx_finish_cut();
        }
        Some(())
    }

    /// A volume goes back to one of its snapshots; nobody has it then.
    pub(super) fn fsx_revert(&mut self, snapshot: &str) -> Option<()> {
        let volume = volume_of(snapshot);
        // Whoever has had it must be gone for good.
        self.fsx_free(volume)?;
        let name = self.scene.fsx.new_name("r");
        let wish = Wish { back_to: Some(snapshot.into()), ..Wish::snapshot(volume, &name) };
        self.fsx_cut(vec![wish]).map(|_| ())
    }

    /// A new volume of a snapshot.
    pub(super) fn fsx_clone(&mut self, snapshot: &str, name: &str, more: u64) -> Option<()> {
        let mut image = self.scene.fsx.snapshots.get(snapshot)?.image.clone();
        image.size += more;
        let size = image.size * SECTOR_SIZE as u64;
        self.fsx_say(|| format!("clones {snapshot} as {name}, of {size} bytes"));
        let key = self.key_for_clone(snapshot);
        let since = self.clone_snapshot(snapshot, name, size, key)?;
        self.fsx_add(name, image, since)
    }

    /// A new volume of what a volume is now.
    pub(super) fn fsx_clone_of_present(&mut self, volume: &str, name: &str) -> Option<()> {
        let wish = Wish::snapshot(volume, &self.scene.fsx.new_name("c"));
        let snapshot = wish.full_name();
        if self.fsx_cut(vec![wish])? {
            self.fsx_clone(&snapshot, name, 0)?;
            self.fsx_delete_snapshot(&snapshot);
        }
        Some(())
    }

    /// A new, empty volume.
    pub(super) fn fsx_create(&mut self, name: &str, size: u64) -> Option<()> {
        self.fsx_say(|| format!("makes {name}, of {size} sectors"));
        let since = self.create_volume(name, size * SECTOR_SIZE as u64)?;
        self.fsx_add(name, Image::new(size), since)
    }

    fn fsx_add(&mut self, name: &str, image: Image, since: u64) -> Option<()> {
        let id = self.configuration.view().volumes.get(name)?.id;
        self.scene.fsx.volumes.insert(name.into(), Volume::new(id, image, since));
        Some(())
    }

    pub(super) fn fsx_delete_snapshot(&mut self, name: &str) {
        self.scene.fsx.snapshots.remove(name);
        self.fsx_say(|| format!("deletes {name}"));
        self.delete_snapshot(name);
    }

    /// A volume, with its snapshots.
    pub(super) fn fsx_delete_volume(&mut self, name: &str) {
        self.scene.fsx.volumes.remove(name);
        self.scene.fsx.snapshots.retain(|snapshot, _| volume_of(snapshot) != name);
        self.fsx_say(|| format!("deletes {name} and its snapshots"));
        self.delete_volume(name);
    }

    /// A volume gets another size, in sectors; what is cut off is kept as a snapshot, and gone when the volume grows
    /// again.
    pub(super) fn fsx_resize(&mut self, name: &str, size: u64) -> Option<()> {
        let before = self.scene.fsx.volumes.get(name)?.image.size;
        self.fsx_say(|| format!("{name} is to have {size} sectors instead of {before}"));
        if size < before {
            let snapshot = self.scene.fsx.new_name("z");
            if !self.fsx_cut(vec![Wish::snapshot(name, &snapshot)])? {
                return Some(());
            }
            let trim = Change { kind: Kind::Trim, first: size, count: before - size, value: 0 };
            let mut tries = 0..TRIMS_MAX;
            while !self.fsx_change(name, trim, None)? {
                tries.next()?;
            }
        }
        let since = self.resize_volume(name, size * SECTOR_SIZE as u64)?;
        let volume = self.scene.fsx.volumes.get_mut(name)?;
        volume.image.size = size;
        volume.since = volume.since.max(since);
        Some(())
    }
}

/// The volume that a snapshot is of.
pub(super) fn volume_of(snapshot: &str) -> &str {
    snapshot.split('@').next().unwrap_or(snapshot)
}
