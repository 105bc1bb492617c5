//! One client after the other writes, each only when the write before was acknowledged, through any node, to any group
//! and either volume: around cuts, as fast as it goes. A cut of both volumes has to be a beginning of that row of
//! writes: it never holds one without all before it.

mod steps;

use crate::cluster::records::{SECOND, VOLUME};
use crate::kernel::time::Stamp;
use crate::workloads::contents::{BLOCK_SECTORS, Value, ZERO};
use azekura_base::CHUNK_BLOCKS;
use std::collections::BTreeMap;
use std::time::Duration;

/// Tokens of the relay's requests begin here, those of other clients' operations below.
pub(crate) const TOKENS: u64 = 1 << 40;
/// Blocks of a chunk that the relay writes, one after the other as outcomes get lost: where no other client does.
const BLOCKS: std::ops::Range<u64> = 300..400;
/// How long the relay goes on after a cut has begun.
const BURST: Duration = Duration::from_millis(300);

/// A block that the relay writes.
struct Cell {
    volume: &'static str,
    chunk: u64,
    block: u64,
    /// Its writes: numbers, in their order. The outcome of each but the last is known.
    writes: Vec<u64>,
}

impl Cell {
    fn sector(&self) -> u64 {
        (self.chunk * CHUNK_BLOCKS as u64 + self.block) * BLOCK_SECTORS
    }
}

/// A cut, for as long as its snapshots are there.
struct Kept {
    asked: Stamp,
    answered: Stamp,
    /// Whole names of its snapshots, by volume.
    names: BTreeMap<&'static str, String>,
    checked: bool,
}

/// The cells of a cut are being read at a node.
struct Reading {
    cut: u64,
    left: usize,
    /// What the cells hold, by their index and block.
    seen: BTreeMap<(usize, u64), Value>,
}

enum PendingOp {
    Write { asked: Duration, cell: usize, number: u64 },
    Read { asked: Duration, reading: u64, cell: usize, block: u64 },
}

/// See the module's description.
pub(crate) struct Relay {
    cells: Vec<Cell>,
    /// When each write was begun and acknowledged.
    times: Vec<(Stamp, Stamp)>,
    pending: BTreeMap<u64, PendingOp>,
    readings: BTreeMap<u64, Reading>,
    kept: BTreeMap<u64, Kept>,
    until: Duration,
    /// Its next turn is planned.
    planned: bool,
    names: u64,
}

impl Relay {
    pub(crate) fn new(chunks: u32) -> Relay {
        let cell = |volume, chunk: u32| Cell { volume, chunk: chunk.into(), block: BLOCKS.start, writes: Vec::new() };
        let cells = [VOLUME, SECOND].into_iter().flat_map(|volume| (0..chunks).map(move |chunk| cell(volume, chunk)));
        Relay {
            cells: cells.collect(),
            times: Vec::new(),
            pending: BTreeMap::new(),
            readings: BTreeMap::new(),
            kept: BTreeMap::new(),
            until: Duration::ZERO,
            planned: false,
            names: TOKENS,
        }
    }

    /// Nothing is under way.
    pub(crate) fn idle(&self) -> bool {
        self.pending.is_empty()
    }

    fn writes(&self) -> bool {
        self.pending.values().any(|pending| matches!(pending, PendingOp::Write { .. }))
    }

    /// Cuts of which something is there, and not looked at yet.
    fn unchecked(&self) -> Vec<u64> {
        self.kept.iter().filter(|(_, kept)| !kept.checked).map(|(cut, _)| *cut).collect()
    }

    /// A snapshot is not there any more.
    pub(crate) fn forget(&mut self, name: &str) {
        self.kept.values_mut().for_each(|kept| kept.names.retain(|_, snapshot| snapshot != name));
        self.kept.retain(|_, kept| !kept.names.is_empty());
    }

    /// The write of a cell has come to an unknown end: another block takes the cell's place.
    fn lose(&mut self, cell: usize) {
        let cell = &mut self.cells[cell];
        cell.block = if cell.block + 1 < BLOCKS.end { cell.block + 1 } else { BLOCKS.start };
        cell.writes.clear();
    }

    /// What a cut holds is what some beginning of all writes leaves.
    fn check(&self, cut: u64, seen: &BTreeMap<(usize, u64), Value>) -> Result<(), String> {
        let Some(kept) = self.kept.get(&cut) else { return Ok(()) };
        let seen = || seen.iter().filter(|((cell, block), _)| self.cells[*cell].block == *block);
        let newest = seen().map(|(_, value)| *value).max().unwrap_or(ZERO);
        let time = |number: Value| self.times[number as usize - 1];
        if newest != ZERO && time(newest).0 > kept.answered {
            let (begun, answered) = (time(newest).0, kept.answered);
            return Err(format!("cut {cut}, done at {answered}, holds write {newest} of the relay, begun at {begun}"));
        }
        let before = self.times.iter().rposition(|(_, end)| *end < kept.asked).map_or(ZERO, |index| index as u64 + 1);
        let upto = newest.max(before);
        for ((index, block), value) in seen() {
            let cell = &self.cells[*index];
            let expected = cell.writes.iter().rev().find(|number| **number <= upto).copied().unwrap_or(ZERO);
            if *value != expected {
                return Err(format!(
                    "cut {cut} has write {upto} of the relay, but {value} in the place of {expected} in block {block} \
                     of chunk {} of {}",
                    cell.chunk, cell.volume
                ));
            }
        }
        Ok(())
    }
}
