//! What the relay does in the world.

use super::{BURST, Cell, Kept, PendingOp, Reading};
use crate::checks::history::NEVER;
use crate::cluster::cuts::Done;
use crate::cluster::front::Who;
use crate::cluster::records::{SECOND, VOLUME};
use crate::cue::Cue;
use crate::kernel::process::Life;
use crate::report::Invariant;
use crate::workloads::contents::{BLOCK_SECTORS, SECTOR_SIZE, decode, encode};
use crate::world::World;
use azekura_base::{CHUNK_BLOCKS, ChunkIndex, Endpoint, IoStatus};
use azekura_frontend::Request;
use azekura_gateway::{Outcome, Piece};
use std::collections::BTreeMap;
use std::time::Duration;

impl World {
    /// A cut has begun: the relay writes for a while.
    pub(crate) fn relay_starts(&mut self) {
        self.scene.snapshots.relay.until = self.now + BURST;
        self.plan_relay(Duration::ZERO);
    }

    fn plan_relay(&mut self, after: Duration) {
        if !std::mem::replace(&mut self.scene.snapshots.relay.planned, true) {
            self.cue_at(self.now + after, Cue::Relay);
        }
    }

    /// The next client writes, if none does.
    pub(crate) fn relay_turn(&mut self) {
        self.scene.snapshots.relay.planned = false;
        let cutting = !self.cuts.under_way.is_empty();
        if !self.works()
            || self.scene.snapshots.relay.writes()
            || !(cutting || self.now < self.scene.snapshots.relay.until)
        {
            return;
        }
        let ready: Vec<Life> = self.endpoints().into_iter().filter_map(|at| self.ready_life(at)).collect();
        if ready.is_empty() {
            return self.plan_relay(Duration::from_millis(5));
        }
        let life = *self.cuts.random.pick(&ready);
        let start = self.stamp();
        let relay = &mut self.scene.snapshots.relay;
        // Often one that the shard is primary of: it may be the last to hear of a cut.
        let view = self.configuration.view();
        let primary = |cell: &Cell| {
            let group = view.volumes.get(cell.volume)?.group_of(ChunkIndex(cell.chunk as u32))?;
            view.devices.get(&view.groups.get(&group)?.primary).copied()
        };
        let all: Vec<usize> = (0..relay.cells.len()).collect();
        let own: Vec<usize> =
            all.iter().copied().filter(|cell| primary(&relay.cells[*cell]) == Some(life.endpoint())).collect();
        let often = self.cuts.random.chance(70) && !own.is_empty();
        let cell = *self.cuts.random.pick(if often { &own } else { &all });
        relay.times.push((start, NEVER));
        let number = relay.times.len() as u64;
        relay.names += 1;
        let token = relay.names;
        relay.pending.insert(token, PendingOp::Write { asked: self.now, cell, number });
        relay.cells[cell].writes.push(number);
        let (volume, sector) = (relay.cells[cell].volume, relay.cells[cell].sector());
        self.trace.step(self.now, number, || {
            format!("{:?} relay {number}: write of sector {sector} of {volume} starts at {start}", life.endpoint())
        });
        let bytes = encode(number, sector, BLOCK_SECTORS);
        match self.line_to(life, Who("relay", 0), volume) {
            Some(line) => self.submit(line, token, Request::Write { offset: sector * SECTOR_SIZE as u64, bytes }),
            None => self.relay_unanswered(token),
        }
    }

    /// A request of the relay is answered.
    pub(crate) fn relay_answered(&mut self, token: u64, outcome: Outcome) {
        let Some(pending) = self.scene.snapshots.relay.pending.remove(&token) else { return };
        match (pending, outcome) {
            (PendingOp::Write { number, .. }, Outcome::Done) => {
                let end = self.stamp();
                self.trace.step(self.now, number, || format!("relay {number}: done, ends at {end}"));
                let relay = &mut self.scene.snapshots.relay;
                relay.times[number as usize - 1].1 = end;
                let pause = self.cuts.random.micros(20, 300);
                self.plan_relay(pause);
            }
            (PendingOp::Write { asked, cell, number, .. }, outcome) => {
                self.trace.step(self.now, number, || format!("relay {number}: {outcome:?}"));
                self.scene.snapshots.relay.lose(cell);
                let refused = outcome == Outcome::Failed(IoStatus::Io) && self.may_fail(asked);
                if !refused && outcome != Outcome::Failed(IoStatus::NoSpace) {
                    self.violate(Invariant::Liveness, format!("write {number} of the relay ended with {outcome:?}"));
                }
            }
            (PendingOp::Read { reading, cell, block, .. }, Outcome::Read(pieces)) => {
                self.relay_saw(reading, cell, block, &pieces);
            }
            // It was deleted meanwhile.
            (PendingOp::Read { reading, .. }, Outcome::Failed(IoStatus::Gone)) => {
                self.scene.snapshots.relay.readings.remove(&reading);
            }
            // The device refuses it.
            (PendingOp::Read { asked, reading, .. }, Outcome::Failed(IoStatus::Io)) if self.may_fail(asked) => {
                self.scene.snapshots.relay.readings.remove(&reading);
            }
            (PendingOp::Read { .. }, outcome) => {
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
        let chunk = self.scene.snapshots.relay.cells[cell].chunk;
        let sector = (chunk * CHUNK_BLOCKS as u64 + block) * BLOCK_SECTORS;
        let value = match decode(bytes.get(..SECTOR_SIZE).unwrap_or_default(), sector) {
            Ok(value) => value,
            Err(what) => return self.violate(Invariant::Snapshot, what),
        };
        let relay = &mut self.scene.snapshots.relay;
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
        let relay = &mut self.scene.snapshots.relay;
        match relay.pending.remove(&token) {
            Some(PendingOp::Write { cell, .. }) => {
                relay.lose(cell);
                self.plan_relay(Duration::from_millis(1));
            }
            Some(PendingOp::Read { reading, .. }) => drop(relay.readings.remove(&reading)),
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
        self.scene.snapshots.relay.kept.insert(cut, kept);
    }

    /// Looks at cuts that nobody has looked at, where that is possible.
    pub(crate) fn relay_looks(&mut self) {
        let all = self.endpoints();
        let at = *self.cuts.random.pick(&all);
        self.scene.snapshots.relay.unchecked().into_iter().for_each(|cut| self.relay_reads(at, cut));
    }

    /// Looks at all cuts that are there, at a shard.
    pub(crate) fn relay_reads_all(&mut self, at: Endpoint) {
        let cuts: Vec<u64> = self.scene.snapshots.relay.kept.keys().copied().collect();
        cuts.into_iter().for_each(|cut| self.relay_reads(at, cut));
    }

    fn relay_reads(&mut self, at: Endpoint, cut: u64) {
        let Some(life) = self.ready_life(at) else { return };
        let machine = self.machines.get(&at.node).and_then(|machine| machine.at(at.shard));
        let gateway = machine.map(|shard| shard.node.gateway());
        let relay = &mut self.scene.snapshots.relay;
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
                relay.pending.insert(token, PendingOp::Read { asked: self.now, reading, cell: index, block });
                asked.push((token, name.clone(), cell.sector()));
            }
        }
        relay.readings.insert(reading, Reading { cut, left: asked.len(), seen: BTreeMap::new() });
        for (token, name, sector) in asked {
            let (offset, len) = (sector * SECTOR_SIZE as u64, SECTOR_SIZE as u64);
            match self.line_to(life, Who("relay", 0), &name) {
                Some(line) => self.submit_quietly(line, token, Request::Read { offset, len }),
                None => self.relay_unanswered(token),
            }
        }
        self.wake(life);
    }
}
