//! Committed writes whose leaf is not in memory, gathered until the leaf is worth loading.
//!
//! Over dense data of many times what memory holds, nearly every write meets a leaf that is not here. To load the leaf
//! for one block, and to save the leaf for one block, costs eight times what the block takes. So such a write *waits*:
//! what has to be known of it takes 16 bytes for each block. It counts as applied for its group, goes on to pin its
//! blocks, and a checkpoint does not let replay begin behind it (docs/decisions/0035-map-at-any-size.md).
//!
//! The waiting writes of a chunk are the head of its queue of operations, and nothing else: whatever comes later for
//! the chunk, but for another write of the same kind, has to wait until they are in their leaf (`settling.rs`). So all
//! that is true of an operation which waits for its leaf is true of them, whatever may happen to the chunk meanwhile.

use crate::hash::FixedMap;
use crate::map::leaf::LeafKey;
use azekura_base::{BlockIndex, Checksum, Checksums, ChunkIndex, KeyGeneration, LayerId, PgId, Sequence};
use std::collections::{BTreeMap, BTreeSet};

type ChunkKey = (PgId, ChunkIndex);

/// Blocks of one chunk that wait at most: more of them don't make the leaf much cheaper.
const CHANGES_MAX: usize = 128;
/// When so many leaves are refused, the map can't be read, and no others are asked for.
const REFUSED_MAX: usize = 1024;
/// Changes for which room is made at once.
const ROOM: usize = 4;
/// Memory that a chunk takes without its changes, about: with its places in the table and in the order.
const WAITING_BYTES: usize = size_of::<Waiting>() + 96;

/// Where a block has been written.
#[derive(Debug, Clone, Copy)]
struct Change {
    address: u32,
    checksum: u32,
    /// The write's sequence, counted from the first one of the chunk.
    sequence: u32,
    /// The block, and in the upper four bits the generation of the key that it is encrypted under.
    block: u16,
    /// The log generation of the write's record, counted from that of the first one.
    generation: u16,
}

impl Change {
    const KEY_SHIFT: u32 = 12;

    fn block(&self) -> BlockIndex {
        BlockIndex(self.block & ((1 << Change::KEY_SHIFT) - 1))
    }

    fn key(&self) -> KeyGeneration {
        KeyGeneration::of_bits(self.block >> Change::KEY_SHIFT)
    }
}

const _: () = assert!(azekura_base::CHUNK_BLOCKS <= 1 << Change::KEY_SHIFT);

/// A write that may wait, or waits.
#[derive(Debug)]
pub(crate) struct LateWrite<'a> {
    pub key: LeafKey,
    pub sequence: Sequence,
    /// The log generation of its record.
    pub generation: u64,
    pub first: BlockIndex,
    pub address: u32,
    pub checksums: &'a Checksums,
}

/// What has to be known of a write that may wait, but only of the last one or the first of those that do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// All relocations and repairs up to this log position came before.
    pub stamp: u64,
    /// The log sequence of its batch.
    pub log: u64,
    /// The store is being opened: the write may be in the saved leaf already.
    pub replayed: bool,
}

/// How far the leaf is that writes wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has asked for it on their behalf.
    Gathering,
    /// It has been asked for.
    Asked,
    /// The saved map has refused it: it may take long.
    Refused,
}

/// The writes that wait for one chunk, all of one layer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub key: LeafKey,
    /// The first one's sequence, log generation and batch.
    first: Sequence,
    generation: u64,
    log: u64,
    /// The first one that no saved leaf can have seen.
    first_new: Option<Sequence>,
    last: Sequence,
    /// All relocations and repairs up to this log position came before the last one, and none of the chunk came in
    /// between.
    pub stamp: u64,
    /// In the order of the writes.
    changes: Vec<Change>,
    stage: Stage,
}

impl Waiting {
    /// Calls `each` with the writes, in their order.
    pub fn for_each(&self, mut each: impl FnMut(&LateWrite<'_>)) {
        for changes in self.changes.chunk_by(|one, other| one.sequence == other.sequence) {
            let checksums: Checksums = changes.iter().map(|change| Checksum(change.checksum)).collect();
            let checksums = checksums.under(changes[0].key());
            each(&LateWrite {
                key: self.key,
                sequence: Sequence(self.first.0 + u64::from(changes[0].sequence)),
                generation: self.generation + u64::from(changes[0].generation),
                first: changes[0].block(),
                address: changes[0].address,
                checksums: &checksums,
            });
        }
    }

    /// The log generation of the oldest record.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The log sequence of the first one's batch: none of the others is older.
    pub fn log(&self) -> u64 {
        self.log
    }

    fn bytes(&self) -> usize {
        WAITING_BYTES + self.changes.capacity() * size_of::<Change>()
    }

    /// The sequence and the generation of a write, counted from the first one's, if it can be one of these.
    fn offsets(&self, write: &LateWrite<'_>) -> Option<(u32, u16)> {
        let sequence = write.sequence.0.checked_sub(self.first.0)?.try_into().ok()?;
        let generation = write.generation.checked_sub(self.generation)?.try_into().ok()?;
        let fits = self.changes.len() + write.checksums.len() <= CHANGES_MAX && self.stage == Stage::Gathering;
        Some((sequence, generation)).filter(|_| fits && self.key == write.key)
    }
}

/// The writes that wait, by chunk. See the module's description.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    waiting: FixedMap<ChunkKey, Waiting>,
    /// Chunks whose leaves nobody has asked for, the longest waiting first.
    gathering: BTreeSet<(u64, ChunkKey)>,
    /// Those whose leaves have been.
    asked: BTreeSet<(u64, ChunkKey)>,
    /// Those whose leaves the map has refused.
    refused: BTreeSet<(u64, ChunkKey)>,
    bytes: usize,
    /// Blocks that they have written, by layer.
    blocks: BTreeMap<LayerId, u64>,
    /// Leaves are asked for of chunks that wait since before this generation.
    pub wanted_before: u64,
    /// Space is short: no write may wait, since what it replaces goes on to count.
    pub is_halted: bool,
}

impl Deferred {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The blocks that they have written to each layer. Nobody knows yet how many of those the layer had before.
    pub fn blocks(&self) -> &BTreeMap<LayerId, u64> {
        &self.blocks
    }

    /// Memory that they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The oldest log generation that replay has to begin with for their sake. Of refused leaves a checkpoint keeps the
    /// writes that replay would not find.
    pub fn oldest(&self) -> Option<u64> {
        let first = |set: &BTreeSet<(u64, ChunkKey)>| set.first().map(|(generation, _)| *generation);
        first(&self.gathering).into_iter().chain(first(&self.asked)).min()
    }

    /// The writes that wait for a chunk.
    pub fn of(&self, chunk: ChunkKey) -> Option<&Waiting> {
        if self.waiting.is_empty() { None } else { self.waiting.get(&chunk) }
    }

    /// Has a write wait. False: it can't.
    pub fn add(&mut self, write: &LateWrite<'_>, moment: Moment) -> bool {
        let chunk = (write.key.pg, write.key.chunk);
        let new = !self.waiting.contains_key(&chunk);
        let waiting = self.waiting.entry(chunk).or_insert_with(|| Waiting {
            key: write.key,
            first: write.sequence,
            generation: write.generation,
            log: moment.log,
            first_new: None,
            last: write.sequence,
            stamp: 0,
            changes: Vec::new(),
            stage: Stage::Gathering,
        });
        let Some((sequence, generation)) = waiting.offsets(write) else { return false };
        self.bytes -= if new { 0 } else { waiting.bytes() };
        waiting.last = write.sequence;
        waiting.stamp = waiting.stamp.max(moment.stamp);
        if !moment.replayed {
            waiting.first_new.get_or_insert(write.sequence);
        }
        let key = u16::from(write.checksums.key().number()) << Change::KEY_SHIFT;
        for ((block, address), checksum) in (write.first.0..).zip(write.address..).zip(write.checksums.iter()) {
            if waiting.changes.len() == waiting.changes.capacity() {
                waiting.changes.reserve_exact(ROOM);
            }
            waiting.changes.push(Change { address, checksum: checksum.0, sequence, block: block | key, generation });
        }
        self.bytes += waiting.bytes();
        *self.blocks.entry(write.key.layer).or_default() += write.checksums.len() as u64;
        if new {
            self.gathering.insert((waiting.generation, chunk));
        }
        true
    }

    fn set_of(&mut self, stage: Stage) -> &mut BTreeSet<(u64, ChunkKey)> {
        match stage {
            Stage::Gathering => &mut self.gathering,
            Stage::Asked => &mut self.asked,
            Stage::Refused => &mut self.refused,
        }
    }

    /// Takes the writes that wait for a chunk.
    pub fn take(&mut self, chunk: ChunkKey) -> Option<Waiting> {
        let waiting = self.waiting.remove(&chunk)?;
        self.bytes -= waiting.bytes();
        self.set_of(waiting.stage).remove(&(waiting.generation, chunk));
        if let Some(blocks) = self.blocks.get_mut(&waiting.key.layer) {
            *blocks -= waiting.changes.len() as u64;
            if *blocks == 0 {
                self.blocks.remove(&waiting.key.layer);
            }
        }
        Some(waiting)
    }

    fn set_stage(&mut self, chunk: ChunkKey, stage: Stage) {
        let Some(waiting) = self.waiting.get_mut(&chunk) else { return };
        let (before, generation) = (std::mem::replace(&mut waiting.stage, stage), waiting.generation);
        self.set_of(before).remove(&(generation, chunk));
        self.set_of(stage).insert((generation, chunk));
    }

    /// The next chunk whose leaf is to be asked for, of at most `asked_max` at once: one that waits for too long, or
    /// any while all take more than `bytes_max`.
    pub fn ask_next(&mut self, asked_max: usize, bytes_max: usize) -> Option<ChunkKey> {
        if self.asked.len() >= asked_max || self.refused.len() >= REFUSED_MAX {
            return None;
        }
        let (generation, chunk) = *self.gathering.first()?;
        // Those that are on their way will make room.
        let on_their_way = self.bytes / self.waiting.len().max(1) * self.asked.len();
        if generation >= self.wanted_before && self.bytes - on_their_way.min(self.bytes) <= bytes_max {
            return None;
        }
        self.set_stage(chunk, Stage::Asked);
        Some(chunk)
    }

    /// The saved map has refused the leaf of a chunk.
    pub fn refused(&mut self, chunk: ChunkKey) {
        self.set_stage(chunk, Stage::Refused);
    }

    /// The writes that wait for leaves which the saved map has refused.
    pub fn of_refused(&self) -> impl Iterator<Item = &Waiting> {
        self.refused.iter().filter_map(|(_, chunk)| self.waiting.get(chunk))
    }

    /// The first of the writes that wait for a chunk of which no saved leaf can have seen.
    pub fn first_new(&self, chunk: ChunkKey) -> Option<Sequence> {
        self.of(chunk)?.first_new
    }

    /// The leaves that they are for, and their last sequences, in no order that means anything.
    pub fn leaves(&self) -> impl Iterator<Item = (LeafKey, Sequence)> + '_ {
        self.waiting.values().map(|waiting| (waiting.key, waiting.last))
    }
}
