//! Blocks that are moved into segments of their own: how many, and a device on which that happens.

use super::actions::Action;
use super::state::{CHUNKS, GROUPS};
use super::world::{Dice, World};
use azekura_store::Statistics;

/// What was moved before the last crash.
#[derive(Default)]
pub struct Moves {
    blocks: u64,
    gathered: u64,
    /// Crashes of stores that had moved some.
    pub crashes: u64,
}

impl Moves {
    /// A store ends that has done this.
    pub fn crash(&mut self, statistics: &Statistics) {
        self.blocks += statistics.moved_apart_blocks;
        self.gathered += statistics.gathered_blocks;
        self.crashes += u64::from(statistics.moved_apart_blocks > 0);
    }
}

impl World {
    /// Blocks that were moved into segments of their own.
    pub fn moved_apart(&mut self) -> u64 {
        self.moves.blocks + self.store().statistics().moved_apart_blocks
    }

    /// Blocks that were put together because somebody read them.
    pub fn gathered(&mut self) -> u64 {
        self.moves.gathered + self.store().statistics().gathered_blocks
    }

    /// So many writes, some of each chunk's blocks and more of the first's, until segments are emptied with each one.
    pub fn warm(&mut self, writes: u64) {
        let mut dice = Dice(writes);
        for write in 0..writes {
            let hot = !dice.roll().is_multiple_of(8);
            let chunk = if hot { 0 } else { dice.roll() as u32 % CHUNKS };
            let (first, count) = (dice.roll() as u16 % 20, 1 + dice.roll() as u16 % 4);
            self.act(&Action::Write { chunk, first, count, zero: false });
            if write.is_multiple_of(8) {
                (0..GROUPS).for_each(|pg| self.act(&Action::Commit { pg, back: 0 }));
                self.settle();
            }
        }
    }
}
