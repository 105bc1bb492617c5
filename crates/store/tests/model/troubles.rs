//! A saved map of which leaves are damaged, that refuses to be read, or that has no room.

use super::actions::Trouble;
use super::state::*;
use super::world::World;
use crate::common::*;
use azekura_base::{ChunkIndex, LayerId};
use azekura_store::{MapDamage, ReadError, Report};
use std::collections::BTreeSet;
use std::time::Duration;

/// Seconds after which everything has been tried again that the map has refused a few times.
const PATIENCE_S: u32 = 40;

/// What has happened to the saved map.
#[derive(Default)]
pub struct Troubles {
    /// Chunks of which a leaf was damaged, in whatever layer: the store may not know of their blocks, and says so.
    damaged: BTreeSet<u32>,
    /// Of a leaf it was not known how many blocks it owns: they are counted for ever, as far as nobody looks.
    pub uncounted: bool,
    /// Chunks of which a leaf could not be read at some time.
    unreadable: BTreeSet<u32>,
    /// The map has refused something, or had no room, since all was at rest.
    refusing: bool,
    /// It has done so at some time since the store was opened.
    has_refused: bool,
}

impl Troubles {
    /// Another process opens the store.
    pub fn restart(&mut self) {
        (self.refusing, self.has_refused) = (false, false);
    }

    /// A read may end like this, although the model has its blocks.
    pub fn excuse(&self, chunk: u32, error: &ReadError) -> bool {
        match error {
            ReadError::Unknown { .. } => self.damaged.contains(&chunk),
            ReadError::Map(_) => self.has_refused || self.unreadable.contains(&chunk),
            _ => false,
        }
    }

    /// A store may report this.
    pub fn explain(&self, report: &Report) -> bool {
        match report {
            Report::LeafDamaged { key, .. } => self.damaged.contains(&key.chunk.0),
            Report::NotSaved { .. } => self.has_refused,
            _ => false,
        }
    }
}

impl World {
    pub fn layer_of_age(&self, age: u8) -> u64 {
        self.layers[self.layers.len().saturating_sub(1 + usize::from(age))]
    }

    pub fn pass(&mut self, time: Duration) {
        let now = Duration::from_millis(self.time).max(self.rig().time) + time;
        self.time = now.as_millis() as u64;
        self.rig().time = now;
        self.store().tick(now);
    }

    pub fn make_trouble(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::DamageLeaf { age, chunk, index } => self.damage_leaf(age, chunk, index),
            Trouble::SpoilLeaf { age, chunk } => self.spoil_leaf(age, chunk),
            Trouble::MapRefuses(times) => self.refuse(times, 0),
            Trouble::MapFull(times) => self.refuse(0, times),
        }
    }

    fn damage_leaf(&mut self, age: u8, chunk: u32, index: bool) {
        let layer = self.layer_of_age(age);
        let damage = if index { MapDamage::LeafAndIndex } else { MapDamage::Leaf };
        // Of a leaf that could not be read till now, the store asks again a while later.
        let is_unreadable = self.rig().map.unreadable().any(|leaf| leaf == (LayerId(layer), ChunkIndex(chunk)));
        self.troubles.refusing |= is_unreadable;
        if self.rig().map.damage(LayerId(layer), ChunkIndex(chunk), damage) {
            self.troubles.damaged.insert(chunk);
            self.troubles.uncounted |= index;
        }
    }

    fn spoil_leaf(&mut self, age: u8, chunk: u32) {
        let layer = self.layer_of_age(age);
        if self.rig().map.damage(LayerId(layer), ChunkIndex(chunk), MapDamage::Unreadable) {
            self.troubles.damaged.insert(chunk);
            self.troubles.unreadable.insert(chunk);
        }
    }

    fn refuse(&mut self, reads: u32, checkpoints: u32) {
        let rig = self.rig();
        (rig.map_refuses, rig.map_full) = (rig.map_refuses.max(reads), rig.map_full.max(checkpoints));
        (self.troubles.refusing, self.troubles.has_refused) = (true, true);
    }

    /// The map does everything again, and time passes until what was refused has been tried again.
    pub fn outlast_troubles(&mut self) {
        let is_unreadable = self.rig().map.unreadable().next().is_some();
        if !std::mem::take(&mut self.troubles.refusing) && !is_unreadable {
            return;
        }
        let rig = self.rig();
        (rig.map_refuses, rig.map_full) = (0, 0);
        for _ in 0..PATIENCE_S {
            self.rig().settle();
            self.look();
            self.pass(Duration::from_secs(1));
            // Another copy has what stands in a leaf that can't be read.
            self.rig().give_up_leaves();
            self.store().unknown_blocks();
        }
    }

    /// What the store has of a chunk is what the model has of it with the records below `limit`, block by block, as far
    /// as the store knows.
    pub fn differs_where_known(
        &self,
        rig: &mut Rig,
        limit: usize,
        layer: u64,
        chunk: u32,
        want: &[u8],
    ) -> Option<usize> {
        if self.may_lack_repairs(chunk, limit) {
            outlast_unreadable(rig, layer, chunk);
        }
        want.chunks(4096).enumerate().position(|(block, want)| {
            match rig.read(group_of(chunk), layer, chunk, block as u16, 1) {
                Ok(got) => got != want,
                Err(ReadError::Lost { .. }) => first_lost(want).is_none(),
                Err(error) => !self.troubles.excuse(chunk, &error),
            }
        })
    }

    /// After a crash, repairs of the chunk below `limit` may or may not be in the log: nothing but the contents tells.
    fn may_lack_repairs(&self, chunk: u32, limit: usize) -> bool {
        let open = self.durable..limit;
        let is_open = |call: &Call| match call {
            Call::Repair { record, range } => open.contains(record) && range.chunk == chunk,
            _ => false,
        };
        self.calls.iter().any(is_open)
    }

    /// A leaf of the chunk was damaged.
    pub fn is_damaged(&self, chunk: u32) -> bool {
        self.troubles.damaged.contains(&chunk)
    }
}

/// Contents that can't be looked at fit to anything, and come to light later: a leaf that can't be read is given up.
/// What the log has of the chunk is there then, and no more than that ever comes.
fn outlast_unreadable(rig: &mut Rig, layer: u64, chunk: u32) {
    for _ in 0..PATIENCE_S {
        let result = rig.read(group_of(chunk), layer, chunk, 0, 1);
        if !matches!(result, Err(ReadError::Map(_))) {
            return;
        }
        rig.pass_a_second();
        rig.give_up_leaves();
        rig.store.unknown_blocks();
        rig.settle();
    }
}
