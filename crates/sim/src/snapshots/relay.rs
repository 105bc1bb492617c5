//! One client after the other writes, each only when the write before was acknowledged, through any node, to any group
//! and either volume: around cuts, as fast as it goes. A cut of both volumes has to be a beginning of that row of
//! writes: it never holds one without all before it.

use crate::Invariant;
use crate::contents::{BLOCK_SECTORS, SECTOR_SIZE, Value, ZERO, decode, encode};
use crate::events::{Event, Life};
use crate::front::Who;
use crate::history::{NEVER, Stamp};
use crate::snapshots::cuts::Done;
use crate::world::{SECOND, VOLUME, World};
use azekura_base::{CHUNK_BLOCKS, ChunkIndex, IoStatus, NodeId};
use azekura_frontend::Request;
use azekura_gateway::{Outcome, Piece};
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

enum Under {
    Write { asked: Duration, cell: usize, number: u64 },
    Read { asked: Duration, reading: u64, cell: usize, block: u64 },
}

/// See the module's description.
pub(crate) struct Relay {
    cells: Vec<Cell>,
    /// When each write was begun and acknowledged.
    times: Vec<(Stamp, Stamp)>,
    under: BTreeMap<u64, Under>,
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
            under: BTreeMap::new(),
            readings: BTreeMap::new(),
            kept: BTreeMap::new(),
            until: Duration::ZERO,
            planned: false,
            names: TOKENS,
        }
    }

    /// Nothing is under way.
    pub(crate) fn idle(&self) -> bool {
        self.under.is_empty()
    }

    fn writes(&self) -> bool {
        self.under.values().any(|under| matches!(under, Under::Write { .. }))
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

impl World {
    /// A cut has begun: the relay writes for a while.
    pub(crate) fn relay_starts(&mut self) {
        self.snapshots.relay.until = self.now + BURST;
        self.plan_relay(Duration::ZERO);
    }

    fn plan_relay(&mut self, after: Duration) {
        if !std::mem::replace(&mut self.snapshots.relay.planned, true) {
            self.queue.push(self.now + after, Event::Relay);
        }
    }

    /// The next client writes, if none does.
    pub(crate) fn relay_turn(&mut self) {
        self.snapshots.relay.planned = false;
        let cutting = !self.snapshots.cuts.under_way.is_empty();
        if !self.working || self.snapshots.relay.writes() || !(cutting || self.now < self.snapshots.relay.until) {
            return;
        }
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let ready: Vec<Life> = nodes.into_iter().filter_map(|node| self.ready_life(node)).collect();
        if ready.is_empty() {
            return self.plan_relay(Duration::from_millis(5));
        }
        let life = *self.snapshots.random.pick(&ready);
        let start = self.history.stamp();
        let relay = &mut self.snapshots.relay;
        // Often one that the node is primary of: it may be the last to hear of a cut.
        let view = self.configuration.view();
        let primary = |cell: &Cell| {
            let group = view.volumes.get(cell.volume)?.group_of(ChunkIndex(cell.chunk as u32))?;
            view.devices.get(&view.groups.get(&group)?.primary).map(|at| at.node)
        };
        let all: Vec<usize> = (0..relay.cells.len()).collect();
        let own: Vec<usize> =
            all.iter().copied().filter(|cell| primary(&relay.cells[*cell]) == Some(life.node)).collect();
        let often = self.snapshots.random.chance(70) && !own.is_empty();
        let cell = *self.snapshots.random.pick(if often { &own } else { &all });
        relay.times.push((start, NEVER));
        let number = relay.times.len() as u64;
        relay.names += 1;
        let token = relay.names;
        relay.under.insert(token, Under::Write { asked: self.now, cell, number });
        relay.cells[cell].writes.push(number);
        let (volume, sector) = (relay.cells[cell].volume, relay.cells[cell].sector());
        self.trace.step(self.now, number, || {
            format!("{:?} relay {number}: write of sector {sector} of {volume} starts at {start}", life.node)
        });
        let bytes = encode(number, sector, BLOCK_SECTORS);
        match self.line_to(life, Who::Relay, volume) {
            Some(line) => self.submit(line, token, Request::Write { offset: sector * SECTOR_SIZE as u64, bytes }),
            None => self.relay_unanswered(token),
        }
    }

    /// A request of the relay is answered.
    pub(crate) fn relay_answered(&mut self, token: u64, outcome: Outcome) {
        let Some(under) = self.snapshots.relay.under.remove(&token) else { return };
        match (under, outcome) {
            (Under::Write { number, .. }, Outcome::Done) => {
                let end = self.history.stamp();
                self.trace.step(self.now, number, || format!("relay {number}: done, ends at {end}"));
                let relay = &mut self.snapshots.relay;
                relay.times[number as usize - 1].1 = end;
                let pause = self.snapshots.random.micros(20, 300);
                self.plan_relay(pause);
            }
            (Under::Write { asked, cell, number, .. }, outcome) => {
                self.trace.step(self.now, number, || format!("relay {number}: {outcome:?}"));
                self.snapshots.relay.lose(cell);
                let refused = outcome == Outcome::Failed(IoStatus::Io) && self.may_fail(asked);
                if !refused && outcome != Outcome::Failed(IoStatus::NoSpace) {
                    self.violate(Invariant::Liveness, format!("write {number} of the relay ended with {outcome:?}"));
                }
            }
            (Under::Read { reading, cell, block, .. }, Outcome::Read(pieces)) => {
                self.relay_saw(reading, cell, block, &pieces);
            }
            // It was deleted meanwhile.
            (Under::Read { reading, .. }, Outcome::Failed(IoStatus::Gone)) => {
                self.snapshots.relay.readings.remove(&reading);
            }
            // The device refuses it.
            (Under::Read { asked, reading, .. }, Outcome::Failed(IoStatus::Io)) if self.may_fail(asked) => {
                self.snapshots.relay.readings.remove(&reading);
            }
            (Under::Read { .. }, outcome) => {
                self.violate(Invariant::Liveness, format!("a read of a snapshot ended with {outcome:?}"));
            }
        }
    }

    fn relay_saw(&mut self, reading: u64, cell: usize, block: u64, pieces: &[Piece]) {
        let bytes: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| match piece {
                Piece::Data(bytes) => bytes.to_vec(),
                Piece::Zero(count) => vec![0; *count],
            })
            .collect();
        let chunk = self.snapshots.relay.cells[cell].chunk;
        let sector = (chunk * CHUNK_BLOCKS as u64 + block) * BLOCK_SECTORS;
        let value = match decode(bytes.get(..SECTOR_SIZE).unwrap_or_default(), sector) {
            Ok(value) => value,
            Err(what) => return self.violate(Invariant::Snapshot, what),
        };
        let relay = &mut self.snapshots.relay;
        let Some(now) = relay.readings.get_mut(&reading) else { return };
        now.seen.insert((cell, block), value);
        now.left -= 1;
        if now.left > 0 {
            return;
        }
        let Some(Reading { cut, seen, .. }) = relay.readings.remove(&reading) else { return };
        let result = relay.check(cut, &seen);
        if let Some(kept) = relay.kept.get_mut(&cut) {
            kept.checked = true;
        }
        self.trace.step(self.now, cut, || format!("cut {cut} holds {seen:?} of the relay: {result:?}"));
        if let Err(what) = result {
            self.violate(Invariant::Snapshot, what);
        }
    }

    /// A request of the relay is not answered any more: its connection has ended.
    pub(crate) fn relay_unanswered(&mut self, token: u64) {
        let relay = &mut self.snapshots.relay;
        match relay.under.remove(&token) {
            Some(Under::Write { cell, .. }) => {
                relay.lose(cell);
                self.plan_relay(Duration::from_millis(1));
            }
            Some(Under::Read { reading, .. }) => drop(relay.readings.remove(&reading)),
            None => {}
        }
    }

    /// A cut is finished.
    pub(crate) fn relay_keeps(&mut self, cut: u64, done: &Done) {
        let names = done.wishes.iter().map(|wish| {
            let volume = if wish.volume == VOLUME { VOLUME } else { SECOND };
            (volume, wish.full_name())
        });
        let kept = Kept { asked: done.asked, answered: done.answered, names: names.collect(), checked: false };
        self.snapshots.relay.kept.insert(cut, kept);
    }

    /// Looks at cuts that nobody has looked at, where that is possible.
    pub(crate) fn relay_looks(&mut self) {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.snapshots.random.pick(&nodes);
        self.snapshots.relay.unchecked().into_iter().for_each(|cut| self.relay_reads(node, cut));
    }

    /// Looks at all cuts that are there, at a node.
    pub(crate) fn relay_reads_all(&mut self, node: NodeId) {
        let cuts: Vec<u64> = self.snapshots.relay.kept.keys().copied().collect();
        cuts.into_iter().for_each(|cut| self.relay_reads(node, cut));
    }

    fn relay_reads(&mut self, node: NodeId, cut: u64) {
        let Some(life) = self.ready_life(node) else { return };
        let gateway = self.machines.get(&node).and_then(|machine| machine.node.as_ref()).map(|node| node.gateway());
        let relay = &mut self.snapshots.relay;
        let Some(kept) = relay.kept.get(&cut) else { return };
        let known = |name: &String| gateway.is_some_and(|gateway| gateway.volumes().contains_key(name));
        if !kept.names.values().all(known) {
            return;
        }
        relay.names += 1;
        let reading = relay.names;
        let mut asked = Vec::new();
        for (index, cell) in relay.cells.iter().enumerate() {
            if let Some(name) = kept.names.get(cell.volume) {
                relay.names += 1;
                let (token, block) = (relay.names, cell.block);
                relay.under.insert(token, Under::Read { asked: self.now, reading, cell: index, block });
                asked.push((token, name.clone(), cell.sector()));
            }
        }
        relay.readings.insert(reading, Reading { cut, left: asked.len(), seen: BTreeMap::new() });
        for (token, name, sector) in asked {
            let (offset, len) = (sector * SECTOR_SIZE as u64, SECTOR_SIZE as u64);
            match self.line_to(life, Who::Relay, &name) {
                Some(line) => self.submit_quietly(line, token, Request::Read { offset, len }),
                None => self.relay_unanswered(token),
            }
        }
        self.wake(life);
    }
}
