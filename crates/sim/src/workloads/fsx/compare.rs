//! Everything is read, and compared with the model; and in the end space is counted.

use super::model::{Change, Kind, Sectors};
use crate::cluster::records::VOLUME;
use crate::report::Invariant;
use crate::workloads::contents::BLOCK_SECTORS;
use crate::world::World;
use azekura_base::{BLOCK_SIZE, CHUNK_BLOCKS, ChunkIndex, DeviceId, NodeId};
use std::collections::BTreeMap;

const CHUNK_SECTORS: u64 = CHUNK_BLOCKS as u64 * BLOCK_SECTORS;
/// Attempts to give up a block.
const TRIMS_MAX: u32 = 20;

impl World {
    fn fsx_size(&self, name: &str) -> Option<u64> {
        match self.scene.fsx.snapshots.get(name) {
            Some(kept) => Some(kept.image.size),
            None => Some(self.scene.fsx.volumes.get(name)?.image.size),
        }
    }

    /// Reads all of a volume or snapshot.
    pub(super) fn fsx_fetch_all(&mut self, name: &str) -> Option<Sectors> {
        let size = self.fsx_size(name)?;
        let mut all = Sectors::new();
        for first in (0..size).step_by(CHUNK_SECTORS as usize) {
            all.append(&mut self.fsx_fetch(name, first, CHUNK_SECTORS.min(size - first))?);
        }
        Some(all)
    }

    /// Compares everything with the model, through this node or through any.
    pub(super) fn fsx_compare_all(&mut self, node: Option<NodeId>) -> Option<()> {
        self.fsx_say(|| format!("compares everything, through {node:?}"));
        self.scene.fsx.reader = node;
        let names: Vec<String> =
            self.scene.fsx.volumes.keys().chain(self.scene.fsx.snapshots.keys()).cloned().collect();
        for name in names {
            if self.scene.fsx.volumes.contains_key(&name) {
                self.fsx_attach(&name, node)?;
            }
            let size = self.fsx_size(&name)?;
            for first in (0..size).step_by(CHUNK_SECTORS as usize) {
                self.fsx_read(&name, first, CHUNK_SECTORS.min(size - first))?;
            }
        }
        self.scene.fsx.reader = None;
        Some(())
    }

    /// Compares everything with the model, through every node.
    pub(crate) fn fsx_compare_everywhere(&mut self) {
        self.fsx_finish_cut();
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        for node in nodes {
            self.fsx_compare_all(Some(node));
        }
    }

    /// All snapshots and all volumes but one are deleted, in any order. What is left holds no block of zeros.
    pub(crate) fn fsx_clear(&mut self) {
        let mut names: Vec<String> = self.scene.fsx.snapshots.keys().cloned().chain(self.other_volumes()).collect();
        while !names.is_empty() {
            let at = self.scene.fsx.random.below(names.len() as u64) as usize;
            let name = names.swap_remove(at);
            if self.scene.fsx.snapshots.contains_key(&name) {
                self.fsx_delete_snapshot(&name);
            } else if self.scene.fsx.volumes.contains_key(&name) {
                self.fsx_delete_volume(&name);
            }
        }
        let Some(volume) = self.scene.fsx.volumes.get(VOLUME) else { return };
        let (_, zeros) = volume.image.blocks();
        let size = volume.image.size;
        for block in zeros.into_iter().filter(|block| (block + 1) * BLOCK_SECTORS <= size) {
            let trim = Change { kind: Kind::Trim, first: block * BLOCK_SECTORS, count: BLOCK_SECTORS, value: 0 };
            if !(0..TRIMS_MAX).any(|_| self.fsx_change(VOLUME, trim, None) == Some(true)) {
                let what = format!("block {block} can't be given up");
                return self.violate(Invariant::Liveness, what);
            }
            if let Some(volume) = self.scene.fsx.volumes.get_mut(VOLUME) {
                volume.image.zeros.remove(&block);
            }
        }
    }

    /// Each device holds exactly the blocks that the model says are there.
    pub(crate) fn fsx_count_space(&mut self) {
        let view = self.configuration.view();
        let (Some(volume), Some(known)) = (view.volumes.get(VOLUME), self.scene.fsx.volumes.get(VOLUME)) else {
            return;
        };
        let (surely, perhaps) = known.image.blocks();
        let honest = self.devices.iter().filter(|(_, device)| !device.lied);
        let mut bounds: BTreeMap<DeviceId, (u64, u64)> = honest.map(|(id, _)| (*id, (0, 0))).collect();
        for (block, certain) in surely.iter().map(|b| (b, true)).chain(perhaps.iter().map(|b| (b, false))) {
            let chunk = ChunkIndex((block / CHUNK_BLOCKS as u64) as u32);
            let group = volume.group_of(chunk).and_then(|pg| view.groups.get(&pg));
            for device in group.into_iter().flat_map(|group| &group.members) {
                if let Some((least, most)) = bounds.get_mut(device) {
                    *least += u64::from(certain);
                    *most += 1;
                }
            }
        }
        for (device, (least, most)) in bounds {
            let Some(space) = self.store_of(device).map(azekura_store::Store::space) else {
                continue;
            };
            let live = space.live / BLOCK_SIZE as u64;
            if live < least || live > most {
                let what = format!("{device:?} counts {live} blocks as live, the model has {least} to {most} there");
                return self.violate(Invariant::SpaceExact, what);
            }
        }
    }
}
