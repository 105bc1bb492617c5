//! What a store must hold after a list of calls.

use crate::common::*;
use azekura_base::{Body, Checksum, PgId};
use std::collections::{BTreeMap, BTreeSet};

pub const GROUPS: u32 = 3;
pub const CHUNKS: u32 = 6;

pub fn group_of(chunk: u32) -> u32 {
    chunk % GROUPS
}

/// Stands for what no copy could give.
pub const LOST: u64 = u64::MAX;
/// What the model shows in the place of a lost block, of which the store shows nothing.
pub const LOST_BYTE: u8 = 0xee;

/// Blocks of a chunk; a value of 0 stands for zeros.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub layer: u64,
    pub chunk: u32,
    pub first: u16,
    pub count: u16,
    pub value: u64,
}

impl Range {
    pub fn body(&self) -> Body {
        match self.value {
            0 => Body::Zero,
            LOST => Body::Lost { checksums: (0..self.count).map(|n| Checksum(n.into())).collect() },
            value => filled(value, self.count),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Call {
    Write {
        record: usize,
        pg: u32,
        epoch: u64,
        sequence: u64,
        range: Range,
    },
    Repair {
        record: usize,
        range: Range,
    },
    Epoch {
        record: usize,
        pg: u32,
        epoch: u64,
        committed: u64,
        jump: bool,
    },
    Drop {
        record: usize,
        layer: u64,
    },
    /// What a job comes to is the same as before, but for a group that is forgotten.
    Merge {
        record: usize,
    },
    Mark {
        record: usize,
    },
    Forget {
        record: usize,
        pg: u32,
    },
    Commit {
        pg: u32,
        upto: u64,
    },
    Parent {
        layer: u64,
        parent: u64,
    },
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    pub epoch: u64,
    pub committed: u64,
    /// At most so much may be known as committed.
    pub committed_max: u64,
    pub prepared: BTreeMap<u64, (u64, Range)>,
    pub end: u64,
    pub epoch_lost: bool,
}

/// What a list of calls comes to.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub groups: BTreeMap<u32, Group>,
    pub blocks: BTreeMap<(u64, u32), BTreeMap<u16, (u64, u16)>>,
    pub parents: BTreeMap<u64, u64>,
    pub dropped: BTreeSet<u64>,
}

impl State {
    /// The groups of the store are as these are.
    pub fn compare_groups(&self, rig: &Rig) -> Result<(), String> {
        for pg in (0..GROUPS).filter(|pg| !rig.store.is_forgetting(PgId(*pg))) {
            let ours = self.groups.get(&pg).cloned().unwrap_or_default();
            let theirs = rig.store.group(PgId(pg));
            if theirs.prepared_end.0 != ours.end {
                return Err(format!("group {pg} ends at {}, not {}", theirs.prepared_end, ours.end));
            }
            if theirs.epoch.0 != ours.epoch {
                return Err(format!("group {pg} is in epoch {}, not {}", theirs.epoch, ours.epoch));
            }
            if theirs.committed.0 > ours.committed_max.max(ours.committed) {
                return Err(format!("group {pg} is committed to {}, not {}", theirs.committed, ours.committed));
            }
            for info in rig.store.prepared(PgId(pg)).filter(|info| info.header.sequence.0 > ours.committed) {
                let Some((epoch, range)) = ours.prepared.get(&info.header.sequence.0) else {
                    return Err(format!("group {pg} has prepared {}", info.header.sequence));
                };
                let same = info.header.epoch.0 == *epoch
                    && info.header.range == blocks(range.layer, range.chunk, range.first, range.count)
                    && info.zero == (range.value == 0)
                    && info.durable;
                if !same {
                    return Err(format!("group {pg} has {info:?} for {range:?}"));
                }
            }
        }
        Ok(())
    }

    /// Runs `calls`, leaving out records from `limit` on.
    pub fn run(calls: &[Call], limit: usize) -> State {
        let mut state = State::default();
        for call in calls {
            match *call {
                Call::Write { record, pg, epoch, sequence, range } if record < limit => {
                    let group = state.groups.entry(pg).or_default();
                    assert_eq!(sequence, group.end + 1);
                    group.end = sequence;
                    group.prepared.insert(sequence, (epoch, range));
                }
                Call::Repair { record, range } if record < limit => state.put(range),
                Call::Epoch { record, pg, epoch, committed, jump } => {
                    let group = state.groups.entry(pg).or_default();
                    if record >= limit {
                        if !jump && !group.epoch_lost {
                            group.committed_max = group.committed_max.max(committed.min(group.end));
                        }
                        group.epoch_lost = true;
                        continue;
                    }
                    let keep = if jump { group.committed } else { committed };
                    state.commit(pg, keep);
                    let group = state.groups.entry(pg).or_default();
                    group.prepared.clear();
                    group.epoch = epoch;
                    (group.committed, group.end) = (committed, committed);
                }
                Call::Drop { record, layer } if record < limit => {
                    state.dropped.insert(layer);
                    state.blocks.retain(|(l, _), _| *l != layer);
                }
                Call::Forget { record, pg } if record < limit => {
                    state.groups.remove(&pg);
                    state.blocks.retain(|(_, chunk), _| group_of(*chunk) != pg);
                }
                Call::Commit { pg, upto } => {
                    let group = state.groups.entry(pg).or_default();
                    if !group.epoch_lost {
                        let upto = upto.min(group.end);
                        state.commit(pg, upto);
                    }
                }
                Call::Parent { layer, parent } => {
                    state.parents.insert(layer, parent);
                }
                _ => {}
            }
        }
        state
    }

    pub fn commit(&mut self, pg: u32, upto: u64) {
        let group = self.groups.entry(pg).or_default();
        let mut ranges = Vec::new();
        while group.committed < upto {
            group.committed += 1;
            if let Some((_, range)) = group.prepared.remove(&group.committed) {
                ranges.push(range);
            }
        }
        group.committed_max = group.committed_max.max(group.committed);
        ranges.into_iter().for_each(|range| self.put(range));
    }

    pub fn put(&mut self, range: Range) {
        if self.dropped.contains(&range.layer) {
            return;
        }
        let key = (range.layer, range.chunk);
        if !self.blocks.contains_key(&key) {
            let inherited = self.nearest(range.layer, range.chunk);
            if inherited.is_none() && range.value == 0 {
                return;
            }
            self.blocks.insert(key, inherited.unwrap_or_default());
        }
        let leaf = self.blocks.get_mut(&key).unwrap();
        for index in 0..range.count {
            if range.value == 0 {
                leaf.remove(&(range.first + index));
            } else {
                leaf.insert(range.first + index, (range.value, index));
            }
        }
    }

    pub fn nearest(&self, layer: u64, chunk: u32) -> Option<BTreeMap<u16, (u64, u16)>> {
        let mut layer = layer;
        loop {
            if let Some(leaf) = self.blocks.get(&(layer, chunk)) {
                return Some(leaf.clone());
            }
            layer = *self.parents.get(&layer)?;
        }
    }

    pub fn read(&self, layer: u64, chunk: u32, first: u16, count: u16) -> Vec<u8> {
        let leaf = self.nearest(layer, chunk).unwrap_or_default();
        let mut out = Vec::new();
        for block in first..first + count {
            match leaf.get(&block) {
                Some((LOST, _)) => out.resize(out.len() + 4096, LOST_BYTE),
                Some((value, index)) => {
                    let body = bytes_of(&filled(*value, index + 1), index + 1);
                    out.extend_from_slice(&body[usize::from(*index) * 4096..]);
                }
                None => out.resize(out.len() + 4096, 0),
            }
        }
        out
    }
}

/// The first block that is lost in what [`State::read`] has given.
pub fn first_lost(contents: &[u8]) -> Option<u16> {
    let lost = contents.chunks(4096).position(|block| block.iter().all(|byte| *byte == LOST_BYTE));
    lost.map(|block| block as u16)
}
