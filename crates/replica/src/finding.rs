//! Blocks that were found bad, for people: mended blocks are named, too, because a device that decays is to be
//! replaced.

use azekura_base::{BlockIndex, ChunkIndex, DeviceId, LayerId};
use std::collections::BTreeMap;

/// How closely a scrub looks. A deep one includes all that a light one finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScrubKind {
    /// The checksums in the copies' maps are compared.
    #[default]
    Light,
    /// Every block is read on every copy.
    Deep,
}

/// What a scrub has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// How closely it looks.
    pub kind: ScrubKind,
    /// Chunks of the group.
    pub chunks: u64,
    /// Of those, the ones that have been looked at.
    pub chunks_done: u64,
    /// Chunks that a light scrub had to look at deeply, because their copies' maps differed.
    pub suspect: u64,
    /// Blocks that some copy could not read: they failed their checksum, or are known to be lost. Where another copy
    /// could give them they were written anew.
    pub damaged: u64,
    /// Blocks that could be read on two copies and differed. They were written anew.
    pub differing: u64,
    /// Chunks that some copy could not read whole, even after mending.
    pub unreadable: u64,
}

impl ScrubReport {
    /// Everything that people should hear of, also what was mended.
    #[must_use]
    pub fn findings(&self) -> u64 {
        self.damaged + self.differing + self.unreadable
    }
}

/// Bad blocks that one scrub names. Further ones are counted only, perhaps each more than once.
pub const FINDINGS_MAX: usize = 4096;

/// What is wrong with a block of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The block can't be read: the block fails its checksum, or is known to be lost.
    Damaged,
    /// The block can be read, and is not what the primary's copy has.
    Differs,
}

/// A block that was found bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The copy that the block is bad on.
    pub device: DeviceId,
    /// Its layer.
    pub layer: LayerId,
    /// Its chunk.
    pub chunk: ChunkIndex,
    /// The block.
    pub block: BlockIndex,
    /// What is wrong with it.
    pub flaw: Flaw,
    /// The block was written anew from another copy.
    pub mended: bool,
}

/// What one scrub has found, in the order of devices and blocks.
#[derive(Default)]
pub(crate) struct Findings(BTreeMap<(DeviceId, LayerId, ChunkIndex, BlockIndex), (Flaw, bool)>);

impl Findings {
    /// Notes a bad block. False when it is known already.
    pub(crate) fn note(&mut self, finding: Finding) -> bool {
        let Finding { device, layer, chunk, block, flaw, mended } = finding;
        let key = (device, layer, chunk, block);
        let known = self.0.contains_key(&key);
        if !known && self.0.len() < FINDINGS_MAX {
            self.0.insert(key, (flaw, mended));
        }
        !known
    }

    /// A block was written anew.
    pub(crate) fn mended(&mut self, device: DeviceId, layer: LayerId, chunk: ChunkIndex, block: BlockIndex) {
        if let Some((_, mended)) = self.0.get_mut(&(device, layer, chunk, block)) {
            *mended = true;
        }
    }

    /// All of them.
    pub(crate) fn take(self) -> Vec<Finding> {
        let finding =
            |((device, layer, chunk, block), (flaw, mended))| Finding { device, layer, chunk, block, flaw, mended };
        self.0.into_iter().map(finding).collect()
    }
}
