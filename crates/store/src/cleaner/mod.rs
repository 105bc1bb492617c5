//! Cleaning: a segment with few live blocks is emptied by appending them again.
//!
//! One victim at a time: its summary is read, the map says what of it is live, the live blocks are read in large pieces
//! and queued as relocations. How many of those go into the log is paced by what clients write (`pace.rs`). The victim
//! becomes free at a later checkpoint, when neither the saved map nor replay needs it any more.
//!
//! ```text
//!   choose ─► footer ─► summary ─► merged owners ─► probing ─► reading ─► done
//!                │          │         ▲   │            │          │
//!                └──────────┴─► headers   │            │          │
//!                                 └───────┴────────────┴──────────┴─► put off, or left alone: not what was written
//! ```
//!
//! What is moved goes into segments of its own (`apart.rs`), which have headers and no summary. Where space is short it
//! goes into the log, among clients' writes.
//!
//! The cleaner asks the device by itself. The map is asked by whoever drives it: [`Cleaner::next_probe`] says of what,
//! [`Cleaner::probed`] is told the leaf. Its moves wait until the log takes them ([`Cleaner::take`]).

mod apart;
mod gathering;
mod headers;
mod mover;
mod pace;
mod steps;
#[cfg(test)]
mod tests;
mod victim;

pub(crate) use pace::{free_target, freed_at_once};
pub(crate) use victim::Probe;

use crate::checkpoint::position::oldest_unsettled;
use crate::cx::{StoreCx, VictimId};
use crate::effect::{DeviceError, IoId, MapError};
use crate::groups::Groups;
use crate::jobs::Jobs;
use crate::log::Queued;
use crate::log::format::{Summary, footer_blocks};
use crate::map::Leaf;
use crate::map::{MergedOwner, MergedOwners};
use crate::segments::{CLEANER_SEGMENTS, State, ZERO_SEGMENTS};
use apart::Apart;
use azekura_base::LayerId;
use bytes::Bytes;
use gathering::Gathering;
use mover::{ALONE_PAUSE, Mover};
use pace::{Pace, available};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use victim::{Candidate, LiveRun, Stage, Victim, VictimRead, candidates, owners};

/// Questions to the map in flight.
const PROBES_MAX: usize = 128;
/// What could not be read is tried again after this time.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The state of cleaning. See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    victim: Option<Victim>,
    /// Victims so far.
    victims: u64,
    /// The last victim: segment and generation.
    last: Option<(u32, u64)>,
    /// Victims that had nothing to move, because what they hold waits to be applied to the map: not tried again before
    /// something has changed.
    fruitless: BTreeSet<u32>,
    /// Victims that the device or the map refused to read: not tried again for a while.
    refused: BTreeSet<u32>,
    /// When they are tried again.
    retry_at: Duration,
    pace: Pace,
    mover: Mover,
    apart: Apart,
    /// More is to be moved soon: a batch may wait for that.
    goes_on: bool,
    gathering: Gathering,
}

impl Cleaner {
    /// Moves that wait for a batch of the log, oldest first.
    pub fn queue(&self) -> &VecDeque<Queued> {
        self.mover.queue()
    }

    /// Blocks that may be moved now.
    pub fn credit(&self) -> f64 {
        self.pace.credit()
    }

    /// Takes the first move into a batch.
    pub fn take(&mut self) -> Option<Queued> {
        let queued = self.mover.pop()?;
        self.pace.spend(queued.item.payload_blocks());
        Some(queued)
    }

    /// Moves into segments of their own, whose records wait for a batch of the log.
    pub fn placed(&self) -> &VecDeque<Queued> {
        self.apart.placed()
    }

    /// Takes the first of those records into a batch.
    pub fn take_placed(&mut self) -> Option<Queued> {
        self.apart.pop_placed()
    }

    /// Cuts a move that waits in two, of which the first has `blocks` blocks.
    pub fn cut_move(&mut self, cx: &mut StoreCx, index: usize, blocks: u16) {
        self.mover.cut(cx, index, blocks);
    }

    /// Clients have written `blocks` blocks of log.
    pub fn on_written(&mut self, cx: &StoreCx, groups: &Groups, blocks: u32) {
        self.pace.earn(cx, groups, blocks);
    }

    /// A move that no batch has taken is out of `segment`.
    pub fn has_move_from(&self, cx: &StoreCx, segment: u32) -> bool {
        self.mover.waits_from(cx.segments(), segment) || self.apart.waits_from(cx.segments(), segment)
    }

    /// Blocks may change their owner from here on: not all of those in the victim are found, perhaps.
    pub fn owners_change(&mut self) {
        self.victim.iter_mut().for_each(|victim| victim.is_quiet = false);
    }

    /// A checkpoint is saved, with those of the merged owners that were being saved.
    pub fn checkpointed(&mut self, merged_owners: &MergedOwners) {
        self.victim.iter_mut().for_each(|victim| victim.owners_saved |= merged_owners.is_saving(victim.segment));
    }

    /// More is durable, committed or in memory than before.
    pub fn may_retry(&mut self) {
        if !self.fruitless.is_empty() {
            self.fruitless.clear();
        }
    }

    /// Nothing is moved under the name of `layer` any more: all it had was given up, or is another's. A record that
    /// names a layer must not come after its end, because a replay would not know any more who inherits from it.
    pub fn forget_layer(&mut self, cx: &mut StoreCx, layer: LayerId) {
        self.mover.forget_layer(cx, layer, self.victim.as_ref().map(|victim| victim.id));
        self.apart.drop_moves(cx, |_, moved| moved.range.layer == layer);
        if let Some(victim) = &mut self.victim {
            victim.forget_layer(layer);
        }
    }

    /// The segments `freeing` hold nothing any more that is needed, and will be written anew.
    pub fn forget_segments(&mut self, cx: &mut StoreCx, freeing: &[u32]) {
        self.mover.forget_from(cx, freeing);
        self.apart.drop_moves(cx, |segments, moved| freeing.contains(&segments.segment_of(moved.old)));
        self.apart.forget_segments(freeing);
    }

    /// What is queued fills a good part of a batch, or there is no more to come soon: each batch costs a header.
    pub fn batch_is_worthwhile(&self, cx: &StoreCx) -> bool {
        let reading = self.victim.as_ref().is_some_and(|victim| victim.reads > 0);
        !reading || self.queue().len() * 2 >= cx.options().batch_records_max as usize || {
            self.mover.queued_blocks() * 2 >= cx.options().batch_blocks_max
        }
    }

    /// Nothing is being moved, and no checkpoint is being saved.
    fn rests(&self, is_saving: bool) -> bool {
        self.victim.is_none() && self.mover.queued_blocks() == 0 && self.apart.is_idle() && !is_saving
    }

    /// Cleaning has won all the space that it is to win, and the last of it can't become free before records are
    /// durable that wait for space: a checkpoint's position does not pass what they have begun.
    pub fn waits_for_clients(&self, cx: &StoreCx, groups: &Groups, is_saving: bool) -> bool {
        self.rests(is_saving)
            && available(cx, groups) >= free_target(cx)
            && cx.segments().reclaimable(oldest_unsettled(cx, groups)).is_none()
    }

    /// Neither cleaning nor a checkpoint can give space back as things are. A device that refuses to be read may do
    /// so in a while.
    pub fn can_win_nothing(&self, cx: &StoreCx, groups: &Groups, is_saving: bool) -> bool {
        self.rests(is_saving)
            && cx.segments().reclaimable(oldest_unsettled(cx, groups)).is_none()
            && self.refused.is_empty()
            && !self.apart.is_open()
            && self.best_victim(cx, groups).is_none()
    }

    /// The segment to be emptied next.
    fn best_victim(&self, cx: &StoreCx, groups: &Groups) -> Option<u32> {
        let (head, _) = cx.log().head()?;
        // When space is short, all that counts is to win a segment with as little of it as possible.
        let short = cx.segments().free() <= CLEANER_SEGMENTS;
        cx.segments().victim(head.generation, oldest_unmoved(cx, groups), short, |segment| {
            let alone = cx.segments().get(segment).alone_until > cx.now();
            alone || self.fruitless.contains(&segment) || self.refused.contains(&segment)
        })
    }

    /// Goes on with cleaning, if cleaning is needed. Afterwards the map is to be asked, see [`Cleaner::next_probe`].
    pub fn go_on(&mut self, cx: &mut StoreCx, groups: &Groups, jobs: &Jobs) {
        self.pace.earn_idle(cx, groups);
        if cx.now() >= self.retry_at && !self.refused.is_empty() {
            // What is still being read of them is not asked for once more.
            let segments = cx.segments();
            self.refused.retain(|segment| segments.get(*segment).readers > 0);
        }
        // A victim may become free while the map is asked about it: its last live blocks were overwritten.
        if let Some(victim) = &self.victim {
            let segment = cx.segments().get(victim.segment);
            if victim.reads == 0 && (segment.generation != victim.generation || segment.state != State::Sealed) {
                self.victim = None;
            }
        }
        if self.victim.is_none() {
            self.choose_victim(cx, groups, jobs);
        } else if self.victim.as_ref().is_some_and(|victim| matches!(victim.stage, Stage::Reading)) {
            self.read_more(cx, jobs);
        }
        self.goes_on = self.victim.is_some();
        // What is in the open segment may be all that can be won.
        let is_short = cx.segments().free() <= CLEANER_SEGMENTS + ZERO_SEGMENTS;
        if is_short && self.apart.is_open() && self.rests(false) && self.best_victim(cx, groups).is_none() {
            self.apart.close(cx);
        }
    }

    fn choose_victim(&mut self, cx: &mut StoreCx, groups: &Groups, jobs: &Jobs) {
        // What is queued already may be enough; more would only grow stale.
        let enough = self.mover.apart_blocks() >= cx.options().batch_blocks_max / 2;
        if available(cx, groups) >= free_target(cx) || !self.queue().is_empty() || enough {
            return;
        }
        let Some(segment) = self.best_victim(cx, groups) else { return };
        let entry = cx.segments().get(segment);
        let generation = entry.generation;
        // A segment that was emptied looks nearly empty until its blocks are durable where they are now: chosen
        // again, it says nothing of how full victims are.
        let chosen = Some((segment, generation));
        if chosen != self.last {
            self.pace.chosen(f64::from(entry.needed()) / f64::from(cx.options().segment_blocks));
            self.last = chosen;
        }
        let victim = self.begin(segment, generation, jobs.is_empty());
        if cx.segments().get(segment).apart {
            return self.read_headers(cx);
        }
        let address = cx.segments().address(segment, cx.options().segment_blocks - 1);
        self.mover.read(cx, VictimRead { victim, segment, address, runs: Vec::new() }, 1);
    }

    fn begin(&mut self, segment: u32, generation: u64, is_quiet: bool) -> VictimId {
        self.victims += 1;
        let id = VictimId(self.victims);
        self.victim = Some(Victim::new(id, segment, generation, is_quiet));
        id
    }

    /// The victim with this name, if that is the present one.
    fn victim_of(&mut self, id: VictimId) -> Option<&mut Victim> {
        self.victim.as_mut().filter(|victim| victim.id == id)
    }

    /// A read has ended.
    pub fn on_read(&mut self, cx: &mut StoreCx, jobs: &Jobs, io: IoId, result: Result<Bytes, DeviceError>) {
        let read = self.mover.take_read(cx, io);
        let Some(victim) = self.victim.as_mut().filter(|victim| victim.id == read.victim) else { return };
        let bytes = match result {
            Ok(bytes) => bytes,
            // The rest of it may be readable.
            Err(_) if matches!(victim.stage, Stage::Reading) => {
                victim.reads -= 1;
                victim.refused = true;
                self.mover.not_read(&read);
                return self.read_more(cx, jobs);
            }
            Err(_) => return self.put_off(cx),
        };
        match &mut victim.stage {
            Stage::Footer => match footer_blocks(&bytes, cx.options().segment_blocks) {
                Some(blocks) => {
                    victim.stage = Stage::Summary;
                    let segment = victim.segment;
                    let address = cx.segments().address(segment, cx.options().segment_blocks - blocks);
                    self.mover.read(cx, VictimRead { victim: read.victim, segment, address, runs: Vec::new() }, blocks);
                }
                None => self.read_headers(cx),
            },
            Stage::Summary => {
                let summary = Summary::decode(&bytes, cx.identity());
                match summary.filter(|s| s.header.generation == victim.generation) {
                    Some(summary) => self.look_up_owners(cx, summary.contents()),
                    // It may be left over from a time when the segment was in the chain.
                    None => self.read_headers(cx),
                }
            }
            Stage::Headers(headers) => {
                let Some((segment, block)) = cx.segments().locate(read.address) else { return };
                headers.read(cx.identity(), cx.options(), (segment, block), &bytes);
                self.read_more_headers(cx);
            }
            Stage::MergedOwners(_) | Stage::Probing => {}
            Stage::Reading => {
                victim.reads -= 1;
                victim.read = true;
                self.mover.add(cx, &read, &bytes);
                self.read_more(cx, jobs);
            }
        }
    }

    /// The saved map has listed who owns the blocks of merged layers in the victim. True: the map is to be asked now.
    pub fn merged_owners_listed(
        &mut self,
        cx: &mut StoreCx,
        merged_owners: &MergedOwners,
        jobs: &Jobs,
        id: VictimId,
        result: Result<Vec<MergedOwner>, MapError>,
    ) -> bool {
        let Some(victim) = self.victim_of(id) else { return false };
        let segment = victim.segment;
        let Stage::MergedOwners(contents) = std::mem::replace(&mut victim.stage, Stage::Probing) else { return false };
        let Ok(saved) = result else {
            self.put_off(cx);
            return false;
        };
        if victim.owners_saved {
            // They are not in memory any more, and were not there yet, perhaps, to be listed.
            self.look_up_owners(cx, contents);
            return false;
        }
        let saved: BTreeMap<LayerId, LayerId> = saved.iter().map(|row| (row.layer, row.owner)).collect();
        let owners = |layer| owners(segment, layer, merged_owners, &saved, jobs);
        victim.ask_about(candidates(cx.segments(), segment, &contents, owners));
        true
    }

    /// What the map is to be asked next. Where nothing is left to ask, live blocks are read.
    pub fn next_probe(&mut self, cx: &mut StoreCx, groups: &mut Groups, jobs: &Jobs) -> Option<Probe> {
        loop {
            let victim = self.victim.as_mut()?;
            if !matches!(victim.stage, Stage::Probing) || victim.probes >= PROBES_MAX {
                return None;
            }
            let Some(candidate) = victim.next_candidate() else {
                if victim.probes == 0 {
                    victim.stage = Stage::Reading;
                    self.read_more(cx, jobs);
                }
                return None;
            };
            if let Some(run) = prepared_run(groups, &candidate) {
                victim.is_live(run);
                continue;
            }
            victim.probes += 1;
            let Candidate { key, first, count, address, .. } = candidate;
            return Some(Probe { key, first, count, address, victim: victim.id });
        }
    }

    /// The leaf that was asked for is here, if there is one.
    pub fn probed(&mut self, probe: &Probe, leaf: Option<&Leaf>) {
        let Some(victim) = self.victim_of(probe.victim) else { return };
        victim.probes -= 1;
        if let Some(leaf) = leaf {
            victim.probed(probe, leaf);
        }
    }

    /// The leaf that was asked for can't be had.
    pub fn probe_failed(&mut self, cx: &StoreCx, probe: &Probe) {
        if self.victim_of(probe.victim).is_some() {
            self.put_off(cx);
        }
    }

    /// The victim can't be read now. A device that refuses for a while must not lose the segment's space for ever.
    fn put_off(&mut self, cx: &StoreCx) {
        if let Some(victim) = self.victim.take() {
            self.refused.insert(victim.segment);
            self.retry_at = cx.now() + RETRY_PAUSE;
            self.mover.put_off();
        }
    }

    /// The victim is not what was written: the segment is left alone for a while.
    fn give_up(&mut self, cx: &mut StoreCx) {
        if let Some(victim) = &self.victim {
            leave_alone(cx, victim.segment);
        }
        self.put_off(cx);
    }

    /// All of the victim that can be read has been.
    fn end(&mut self, cx: &mut StoreCx, jobs: &Jobs) {
        let Some(victim) = self.victim.take() else { return };
        if !victim.fruitful {
            self.fruitless.insert(victim.segment);
        }
        match (victim.refused, victim.read) {
            // The device is fine, but for some blocks.
            (true, true) => leave_alone(cx, victim.segment),
            (true, false) => {
                self.refused.insert(victim.segment);
                self.retry_at = cx.now() + RETRY_PAUSE;
            }
            (false, _) => {}
        }
        if !victim.fruitful && !victim.refused && victim.is_quiet && jobs.is_empty() {
            // Every block has been looked at, and no leaf owns one.
            if victim.walked || !cx.segments_mut().drop_ghosts(victim.segment) {
                leave_alone(cx, victim.segment);
            }
        }
    }

    /// Reads live blocks, as many as may be in memory.
    fn read_more(&mut self, cx: &mut StoreCx, jobs: &Jobs) {
        loop {
            let Some(victim) = &mut self.victim else { return };
            if self.mover.blocks() >= cx.options().cleaning_blocks_in_flight_max {
                return;
            }
            let Some((read, blocks)) = victim.next_read() else {
                if victim.reads == 0 {
                    self.end(cx, jobs);
                }
                return;
            };
            victim.reads += 1;
            victim.fruitful = true;
            self.mover.read(cx, read, blocks);
        }
    }
}

/// Segments of the chain of generations before the first number are whole on the device, and nothing is moved out of
/// those from the second on: what was written since an epoch began whose record waits can't become free before that is
/// durable. To move it would use up the very space that the record needs.
fn oldest_unmoved(cx: &StoreCx, groups: &Groups) -> (u64, u64) {
    let head = cx.log().head().map_or(0, |(head, _)| head.generation);
    (cx.log().whole_before().unwrap_or(head), groups.oldest_epoch_waiting().unwrap_or(u64::MAX))
}

fn leave_alone(cx: &mut StoreCx, segment: u32) {
    let until = cx.now() + ALONE_PAUSE;
    cx.segments_mut().leave_alone(segment, until);
}

/// The candidate's blocks, if they are a write's that is not committed yet.
fn prepared_run(groups: &mut Groups, candidate: &Candidate) -> Option<LiveRun> {
    let Candidate { key, first, address, sequence, .. } = *candidate;
    let group = groups.get_mut(key.pg);
    let committed = group.committed();
    let pending = group.find(sequence).filter(|p| p.info.header.sequence > committed)?;
    pending.written.filter(|written| written.place.payload == Some(address))?;
    let checksums = pending.checksums.as_ref()?;
    let (checksums, encrypted_under) = (checksums.to_vec(), checksums.key());
    Some(LiveRun { key, first, address, checksums, encrypted_under, prepared: Some((pending.info, pending.id)) })
}
