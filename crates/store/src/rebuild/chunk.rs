//! From what the log says of a chunk to the leaves of its layers.
//!
//! Records are gone whose segments were written anew since: of overwritten blocks, of trims, of moves. So what is left
//! is put in the order that it must have had, and what comes out is the latest that the log still shows of each block.

use super::fact::{Fact, Facts};
use super::settings::RebuildSettings;
use super::survey::{Age, Survey};
use crate::log::format::Kind;
use crate::map::{Entry, Leaf, LeafKey};
use azekura_base::{Checksum, KeyGeneration, LayerId, Sequence};
use std::collections::{BTreeMap, BTreeSet};

/// A block that was overwritten while it waited to be moved is found in a record so many generations later at most;
/// what is further apart was overwritten by a record that is gone, whose block was moved.
const MOVE_GENERATIONS: u64 = 1;

/// What a block of a layer holds, by the records seen so far.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// The write that it is of; or a place of the group's order that it is not older than.
    epoch: u64,
    sequence: u64,
    is_write: bool,
    /// When the record was written that brought it.
    generation: u64,
    /// Where it is; `None`: zeros.
    entry: Option<Entry>,
    /// The layer that the record there names.
    named: LayerId,
}

impl Cell {
    fn is_at(&self, address: u32) -> bool {
        self.entry.is_some_and(|entry| entry.address == address)
    }
}

/// Blocks that are moved.
#[derive(Debug, Clone, Copy)]
struct Moving {
    layer: LayerId,
    block: u16,
    old: u32,
    entry: Entry,
    generation: u64,
    /// What had been committed by then, if that is known.
    commit: Option<u64>,
}

/// What all chunks are worked on with.
#[derive(Clone, Copy)]
pub(super) struct Chunks<'a> {
    pub survey: &'a Survey,
    pub settings: &'a RebuildSettings,
    pub facts: &'a Facts,
    /// Segments whose blocks are not used, unless their group's copy counts as it is.
    pub left: &'a BTreeSet<u32>,
    /// The segment of a block address; `None` outside of all.
    pub segment_of: &'a dyn Fn(u32) -> Option<u32>,
    /// A block is on the device as its checksum says.
    pub is_whole: &'a dyn Fn(&Entry) -> bool,
}

/// The leaves of a chunk, and how many of its blocks may be older ones than they should be.
#[derive(Debug, Default)]
pub(super) struct ChunkLeaves {
    pub leaves: Vec<(LeafKey, Leaf)>,
    /// Addresses of blocks that another layer owns than their record names: that one, and the owner.
    pub inherited: Vec<(u32, LayerId, LayerId)>,
    pub ambiguous: u64,
}

/// The blocks of one chunk.
struct Work<'a> {
    with: &'a Chunks<'a>,
    facts: &'a [Fact],
    cells: BTreeMap<(LayerId, u16), Cell>,
    /// For each layer that is named the one that has what it had.
    heirs: BTreeMap<LayerId, LayerId>,
    /// Addresses of what was replaced.
    stale: BTreeSet<u32>,
    ambiguous: u64,
}

impl Chunks<'_> {
    /// The leaves of the chunk that `facts` are of.
    pub fn leaves(&self, facts: &[Fact]) -> ChunkLeaves {
        let heir = |fact: &Fact| Some((fact.layer, self.survey.heir(self.settings, fact.layer)?));
        let heirs = facts.iter().filter_map(heir).collect();
        let (cells, stale) = (BTreeMap::new(), BTreeSet::new());
        let mut work = Work { with: self, facts, cells, heirs, stale, ambiguous: 0 };
        work.play();
        work.leaves()
    }

    fn is_used(&self, fact: &Fact, address: u32) -> bool {
        let segment = (self.segment_of)(address);
        let is_accepted = self.settings.accepted.contains(&fact.pg);
        segment.is_some_and(|segment| is_accepted || !self.left.contains(&segment))
    }

    /// Where block `index` of a record is: `None` if that is not used.
    fn entry(&self, fact: &Fact, index: u16, address: u32) -> Option<Entry> {
        let sum = Checksum(self.facts.sum(fact, index));
        let key = KeyGeneration::of_bits(u16::from(fact.key));
        let entry = Entry::own(address.checked_add(u32::from(index))?, sum).under(key);
        let lost = if fact.kind == Kind::RepairLost { Entry::LOST } else { 0 };
        self.is_used(fact, entry.address).then_some(Entry { flags: entry.flags | lost, ..entry })
    }
}

impl Work<'_> {
    /// Goes through the records in the order of the log.
    fn play(&mut self) {
        let mut apart = self.moved_blocks();
        for fact in self.facts {
            match fact.kind {
                Kind::Write | Kind::WriteZero | Kind::WriteAgain => self.write(fact),
                Kind::Repair | Kind::RepairZero | Kind::RepairLost => self.repair(fact),
                Kind::Relocate => {
                    for index in 0..fact.count {
                        if let Some(entry) = self.with.entry(fact, index, fact.address) {
                            self.relocate(&moving(fact, index, entry, Some(fact.commit)));
                        }
                    }
                }
                Kind::Moved => {
                    for index in 0..fact.count {
                        let at = fact.address.checked_add(u32::from(index));
                        let told = at.and_then(|at| apart.get(&at)).filter(|told| {
                            (told.layer, told.block) == (fact.layer, fact.first + index)
                                && told.old == fact.old.saturating_add(u32::from(index))
                        });
                        let Some(entry) = told.map(|told| told.entry) else { continue };
                        apart.remove(&entry.address);
                        self.relocate(&moving(fact, index, entry, Some(fact.commit)));
                    }
                }
                _ => {}
            }
        }
        self.relocate_untold(apart.into_values().collect());
    }

    /// The blocks in segments of moved blocks, by their addresses.
    fn moved_blocks(&self) -> BTreeMap<u32, Moving> {
        let mut blocks = BTreeMap::new();
        for fact in self.facts.iter().filter(|fact| fact.kind == Kind::Relocated) {
            for index in 0..fact.count {
                if let Some(entry) = self.with.entry(fact, index, fact.address) {
                    blocks.insert(entry.address, moving(fact, index, entry, None));
                }
            }
        }
        blocks
    }

    /// Moves of which the record is gone that says when they were made. In segments that were being filled when the log
    /// ended it can't be gone: there none was written.
    fn relocate_untold(&mut self, mut untold: Vec<Moving>) {
        let young = &self.with.survey.young;
        untold.retain(|moving| {
            (self.with.segment_of)(moving.entry.address).is_none_or(|segment| !young.contains(&segment))
        });
        untold.sort_by_key(|moving| (moving.generation, moving.entry.address));
        let torn: Vec<Moving> = untold.extract_if(.., |moving| self.is_torn(moving)).collect();
        loop {
            let before = untold.len();
            untold.retain(|moving| !self.follow(moving));
            if untold.len() == before {
                break;
            }
        }
        untold.iter().for_each(|moving| self.relocate(moving));
        torn.iter().for_each(|moving| self.leave_torn(moving));
    }

    /// A crash may have cut off the move, and the block did not arrive.
    fn is_torn(&self, moving: &Moving) -> bool {
        let segment = (self.with.segment_of)(moving.entry.address);
        segment.is_some_and(|segment| self.with.survey.cut.contains(&segment)) && !(self.with.is_whole)(&moving.entry)
    }

    /// A block that did not arrive is where it was, or what replaced it is in the log. If it was damaged later instead,
    /// and its copy counts as it is, whoever reads it is to get an error, and not what was there before.
    fn leave_torn(&mut self, moving: &Moving) {
        let is_accepted = self.facts.first().is_some_and(|fact| self.with.settings.accepted.contains(&fact.pg));
        if is_accepted && self.at_old(moving).is_none() {
            self.relocate(moving);
        } else {
            self.stale.insert(moving.entry.address);
        }
    }

    fn write(&mut self, fact: &Fact) {
        for index in 0..fact.count {
            let entry = match fact.kind {
                Kind::WriteZero => None,
                _ => match self.with.entry(fact, index, fact.address) {
                    Some(entry) => Some(entry),
                    None => continue,
                },
            };
            let place = (fact.layer, fact.first + index);
            let is_newer = |cell: &Cell| match cell.is_write {
                true => (fact.epoch, fact.sequence) >= (cell.epoch, cell.sequence),
                false => fact.sequence > cell.sequence,
            };
            if self.cells.get(&place).is_none_or(is_newer) {
                let Fact { epoch, sequence, age: Age { generation, .. }, layer: named, .. } = *fact;
                self.put(place, Cell { epoch, sequence, is_write: true, generation, entry, named });
            } else {
                self.stale.extend(entry.map(|entry| entry.address));
            }
        }
    }

    /// Contents that another copy had at a commit point. A write behind that point may lie before it in the log.
    fn repair(&mut self, fact: &Fact) {
        for index in 0..fact.count {
            let entry = match fact.kind {
                Kind::RepairZero => None,
                _ => match self.with.entry(fact, index, fact.address) {
                    Some(entry) => Some(entry),
                    None => continue,
                },
            };
            let place = (fact.layer, fact.first + index);
            if self.cells.get(&place).is_some_and(|cell| cell.is_write && cell.sequence > fact.sequence) {
                self.stale.extend(entry.map(|entry| entry.address));
                continue;
            }
            let Fact { sequence, age: Age { generation, .. }, layer: named, .. } = *fact;
            self.put(place, Cell { epoch: 0, sequence, is_write: false, generation, entry, named });
        }
    }

    fn put(&mut self, place: (LayerId, u16), cell: Cell) {
        let replaced = self.cells.insert(place, cell).and_then(|cell| cell.entry);
        self.stale.extend(replaced.map(|entry| entry.address));
    }

    /// Whose block is in the place that it is moved from.
    fn at_old(&self, moving: &Moving) -> Option<(LayerId, u16)> {
        let family = *self.heirs.get(&moving.layer)?;
        // The record may name a layer that has the block since a merge, or had it before one.
        let named = std::iter::once(moving.layer);
        let others = self.heirs.iter().filter(|(layer, heir)| **heir == family && **layer != moving.layer);
        let layers = named.chain(others.map(|(layer, _)| *layer));
        let mut places = layers.map(|layer| (layer, moving.block));
        places.find(|place| self.cells.get(place).is_some_and(|cell| cell.is_at(moving.old)))
    }

    /// A block is where it was moved to, if it still was in the old place: as in a leaf.
    fn follow(&mut self, moving: &Moving) -> bool {
        let place = self.at_old(moving);
        let Some(cell) = place.and_then(|place| self.cells.get_mut(&place)) else { return false };
        // What was lost stays lost.
        let lost = cell.entry.filter(Entry::is_lost);
        cell.entry = Some(lost.map_or(moving.entry, |entry| Entry { address: moving.entry.address, ..entry }));
        (cell.generation, cell.named) = (cell.generation.max(moving.generation), moving.layer);
        self.stale.insert(moving.old);
        true
    }

    fn relocate(&mut self, moving: &Moving) {
        if self.follow(moving) {
            return;
        }
        if self.stale.contains(&moving.old) {
            // It had been overwritten before it was moved.
            self.stale.insert(moving.entry.address);
            return;
        }
        // The record that brought it is gone.
        let place = (moving.layer, moving.block);
        if let Some(cell) = self.cells.get(&place) {
            let is_newer = cell.is_write && moving.commit.is_some_and(|commit| cell.sequence > commit);
            let waited = moving.generation <= cell.generation.saturating_add(MOVE_GENERATIONS);
            self.ambiguous += u64::from(!is_newer);
            if is_newer || waited {
                self.stale.insert(moving.entry.address);
                return;
            }
        }
        let (sequence, generation) = (moving.commit.unwrap_or(0), moving.generation);
        let (entry, named) = (Some(moving.entry), moving.layer);
        self.put(place, Cell { epoch: 0, sequence, is_write: false, generation, entry, named });
    }

    /// What each layer has of the chunk now. A layer without a block of its own has no leaf: it shows what it lies on.
    fn leaves(mut self) -> ChunkLeaves {
        let Some(first) = self.facts.first() else { return ChunkLeaves::default() };
        let committed = self.with.survey.groups.get(&first.pg);
        let committed = committed.map_or(0, |group| match self.with.settings.accepted.contains(&first.pg) {
            true => group.end(),
            false => group.committed,
        });
        // Of layers that were merged into each other, what lies on top shows: it has the higher number.
        let mut owned: BTreeMap<LayerId, BTreeMap<u16, Cell>> = BTreeMap::new();
        for ((layer, block), cell) in std::mem::take(&mut self.cells).into_iter().rev() {
            let Some(heir) = self.heirs.get(&layer) else { continue };
            owned.entry(*heir).or_default().entry(block).or_insert(cell);
        }
        owned.retain(|_, cells| cells.values().any(|cell| cell.entry.is_some()));
        let (mut leaves, mut inherited): (BTreeMap<LayerId, Leaf>, _) = (BTreeMap::new(), Vec::new());
        // A layer has a higher number than what it lies on.
        for (layer, cells) in owned {
            let mut leaf = self.nearest(&leaves, layer).map(Leaf::child).unwrap_or_default();
            for (block, cell) in cells {
                leaf.modified = leaf.modified.max(Sequence(cell.sequence.min(committed)));
                leaf.entries.set(usize::from(block), cell.entry.unwrap_or_default());
                let named = cell.entry.filter(|_| cell.named != layer);
                inherited.extend(named.map(|entry| (entry.address, cell.named, layer)));
            }
            leaves.insert(layer, leaf);
        }
        let key = |layer| LeafKey { layer, chunk: first.chunk, pg: first.pg };
        let leaves = leaves.into_iter().map(|(layer, leaf)| (key(layer), leaf)).collect();
        ChunkLeaves { leaves, inherited, ambiguous: self.ambiguous }
    }

    /// The leaf that a layer without one shows.
    fn nearest<'l>(&self, leaves: &'l BTreeMap<LayerId, Leaf>, layer: LayerId) -> Option<&'l Leaf> {
        let mut below = layer;
        // A tree that is damaged may have a circle; it has no more layers than there are parents.
        for _ in 0..=self.with.settings.layers.parents.len() {
            below = self.with.survey.parent(self.with.settings, below)?;
            if let Some(leaf) = leaves.get(&below) {
                return Some(leaf);
            }
        }
        None
    }
}

fn moving(fact: &Fact, index: u16, entry: Entry, commit: Option<u64>) -> Moving {
    Moving {
        layer: fact.layer,
        block: fact.first + index,
        old: fact.old.saturating_add(u32::from(index)),
        entry,
        generation: fact.age.generation,
        commit,
    }
}
