//! Garbage collection: a segment with few live blocks is emptied by appending them again.
//!
//! One victim at a time: its summary is read, the map says what of it is live, the live blocks are read in large pieces
//! and queued as relocations. How many of those go into the log is paced by what clients write (see
//! [`Store::earn_gc_credit`]), so that the effort rises smoothly as free segments get fewer. The victim becomes free at
//! a later checkpoint, when neither the saved map nor replay needs it any more.

use crate::effect::{DeviceError, Effect, MapError};
use crate::format::{Kind, Summary, footer_blocks};
use crate::heirs::Heir;
use crate::leaf::LeafKey;
use crate::log::{GC_SEGMENTS, ZERO_SEGMENTS};
use crate::moves::ALONE_PAUSE;
use crate::ops::{Op, Step};
use crate::segments::{Segments, State};
use crate::cx::Io;
use crate::store::Store;
use azekura_base::{BLOCK_SIZE, BlockIndex, BlockRange, Checksum, Checksums, LayerId, Prepared, Sequence};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Questions to the map in flight.
const PROBES_MAX: usize = 128;
/// Blocks in one read of live blocks.
const READ_BLOCKS_MAX: u32 = 64;
/// Dead blocks between live ones that are read along rather than split a read.
const GAP_BLOCKS_MAX: u32 = 4;
/// Free segments that garbage collection aims at, on a device so small or so full that there can't be more.
const TARGET_MIN: u32 = GC_SEGMENTS + ZERO_SEGMENTS + 1;
/// Segments that one checkpoint is to free, at most.
const FREED_AT_ONCE_MAX: u32 = 256;
/// Clients count as idle after this time without a batch; collection then goes on by itself.
const IDLE: Duration = Duration::from_millis(100);
/// What could not be read is tried again after this time.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Blocks that collection may move in each idle millisecond (64 MiB/s).
const IDLE_BLOCKS_PER_MS: f64 = 16.0;
/// Credit does not pile up beyond this, in blocks.
const CREDIT_MAX: f64 = 2048.0;
/// Most blocks that collection writes for one block of a client's.
const RATIO_MAX: f64 = 16.0;

/// Blocks of the victim that one record wrote.
#[derive(Debug)]
struct Candidate {
    key: LeafKey,
    first: BlockIndex,
    count: u16,
    address: u32,
    /// Of a write: its sequence in its group, by which it is found if it is not committed yet.
    sequence: Sequence,
}

/// Blocks of the victim that are live: at one address after the other, in one leaf.
#[derive(Debug)]
struct LiveRun {
    key: LeafKey,
    first: BlockIndex,
    address: u32,
    checksums: Vec<Checksum>,
    /// They are a write's that is not committed yet: what it is, and which append it was.
    prepared: Option<(Prepared, u64)>,
}

impl LiveRun {
    fn end(&self) -> u32 {
        self.address + self.checksums.len() as u32
    }
}

#[derive(Debug)]
enum Stage {
    Footer,
    Summary,
    /// Its summary has been read; who owns now what it names is being looked up.
    Heirs(Summary),
    /// The map is being asked.
    Probing,
    /// Live blocks are being read.
    Reading,
}

#[derive(Debug)]
struct Victim {
    segment: u32,
    generation: u64,
    stage: Stage,
    candidates: VecDeque<Candidate>,
    probes: usize,
    /// By address.
    live: BTreeMap<u32, LiveRun>,
    reads: usize,
    /// Something in it could be moved.
    fruitful: bool,
    /// Some of it was read, and some of it the device refused to read.
    read: bool,
    refused: bool,
    /// No blocks change their owner while it is looked at.
    is_quiet: bool,
}

impl Collector {
    /// The segment that is being emptied.
    pub fn victim_segment(&self) -> Option<u32> {
        self.victim.as_ref().map(|victim| victim.segment)
    }

    /// Takes the live blocks of `layer` out of what is still to be read.
    pub fn forget_layer(&mut self, layer: LayerId) {
        if let Some(victim) = &mut self.victim {
            victim.live.retain(|_, run| run.key.layer != layer || run.prepared.is_some());
        }
    }
}

/// What a read of garbage collection is for.
#[derive(Debug)]
pub(crate) struct CollectRead {
    pub segment: u32,
    /// Of the first block that is read.
    pub address: u32,
    pub runs: Vec<LiveRunOf>,
}

/// A live run in a read, without its place in the map of runs.
pub(crate) type LiveRunOf = (LeafKey, BlockIndex, u32, Checksums, Option<(Prepared, u64)>);

/// The state of garbage collection.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    victim: Option<Victim>,
    /// Share of live blocks in the victims of late.
    fullness: f64,
    /// The last victim: segment and generation.
    last: Option<(u32, u64)>,
    /// Victims that had nothing to move, because what they hold waits to be applied to the map: not tried again before
    /// something has changed.
    fruitless: BTreeSet<u32>,
    /// Victims that the device or the map refused to read: not tried again for a while.
    refused: BTreeSet<u32>,
    /// When they are tried again.
    retry_at: Duration,
    /// Blocks being read or queued.
    pub blocks_in_flight: u32,
    last_client: Duration,
    last_idle: Duration,
    /// Blocks moved since clients last wrote.
    moved_idle: u64,
}

impl Store {
    /// Segments that one checkpoint should free. Blocks that were moved or overwritten at random lie in nearly every
    /// leaf, so each checkpoint for the sake of space saves nearly every leaf: 12 bytes for each live block. Four
    /// tenths of the reserve at a time, 4 % of the device, makes that 5 % of what goes into the log meanwhile on a
    /// device of which 70 % is live. On a fuller one so much free space would cost more, by fuller victims, than it
    /// wins: what a free segment costs goes with the inverse square of what is not live.
    pub(crate) fn freed_at_once(&self) -> u32 {
        let ready = u64::from(self.cx.segments().ready());
        let share = ready * u64::from(self.cx.options().gc_reserve_percent) / 250;
        let live = self.cx.segments().live().div_ceil(u64::from(self.cx.options().segment_blocks));
        let slack = ready.saturating_sub(live + u64::from(TARGET_MIN));
        share.min(slack * slack * 5 / (ready * 8).max(1)).min(u64::from(FREED_AT_ONCE_MAX)) as u32
    }

    /// Free segments that garbage collection aims at: beyond the least, those that the next checkpoint is to free, and
    /// what is written while it is being saved.
    pub(crate) fn gc_target(&self) -> u32 {
        let freed = self.freed_at_once();
        TARGET_MIN + freed + freed.min(1) + freed / 16
    }

    /// Segments that are free, or will be at the next checkpoint: what an epoch whose record waits keeps from becoming
    /// free is not among them.
    fn available(&self) -> u32 {
        self.cx.segments().free() + self.cx.segments().empty(self.oldest_epoch_waiting())
    }

    /// How much is missing to the target: 0 nothing, 1 so much that collection has to do its utmost.
    fn urgency(&self) -> f64 {
        let missing = self.gc_target().saturating_sub(self.available());
        let all = TARGET_MIN - GC_SEGMENTS + self.freed_at_once() / 4;
        (f64::from(missing) / f64::from(all)).min(1.0)
    }

    /// Clients have written `blocks` blocks of log. To stay level, collecting victims that are `fullness` full takes
    /// fullness / (1 - fullness) blocks for each of them; it is 0.8 to 2.4 times that, by urgency.
    pub(crate) fn earn_gc_credit(&mut self, blocks: u32) {
        self.collector.last_client = self.cx.now();
        self.collector.moved_idle = 0;
        let urgency = self.urgency();
        if urgency > 0.0 {
            let full = self.collector.fullness;
            let level = (full / (1.0 - full).max(0.01)).max(0.1);
            let ratio = (level * (0.8 + 1.6 * urgency)).min(RATIO_MAX);
            self.log.gc_credit = (self.log.gc_credit + ratio * f64::from(blocks)).min(CREDIT_MAX);
        }
    }

    /// While clients are idle, collection goes on by itself; but not in circles, if the device is so full that the
    /// target is out of reach: everything moved once is enough.
    fn earn_idle_credit(&mut self) {
        let blocks = u64::from(self.cx.options().segments) * u64::from(self.cx.options().segment_blocks);
        if self.collector.moved_idle > blocks {
            return;
        }
        let since = self.collector.last_idle.max(self.collector.last_client + IDLE);
        if self.cx.now() > since && self.urgency() > 0.0 {
            let elapsed = (self.cx.now() - since).as_secs_f64() * 1e3;
            self.log.gc_credit = (self.log.gc_credit + elapsed * IDLE_BLOCKS_PER_MS).min(CREDIT_MAX);
        }
        self.collector.last_idle = self.cx.now();
    }

    /// Blocks may change their owner from here on: not all of those in the victim are found, perhaps.
    pub(crate) fn owners_change(&mut self) {
        self.collector.victim.iter_mut().for_each(|victim| victim.is_quiet = false);
    }

    /// More is durable, committed or in memory than before.
    pub(crate) fn collector_may_retry(&mut self) {
        if !self.collector.fruitless.is_empty() {
            self.collector.fruitless.clear();
        }
    }

    pub(crate) fn gc_written(&mut self, blocks: u32) {
        self.collector.blocks_in_flight -= blocks;
        self.collector.moved_idle += u64::from(blocks);
        // What was moved because clients waited is not owed.
        self.log.gc_credit = (self.log.gc_credit - f64::from(blocks)).max(0.0);
    }

    /// Goes on with garbage collection, if it is needed.
    pub(crate) fn collect(&mut self) {
        self.earn_idle_credit();
        if self.cx.now() >= self.collector.retry_at && !self.collector.refused.is_empty() {
            // A late answer must not be taken for one of the next try.
            let segments = self.cx.segments();
            self.collector.refused.retain(|segment| segments.get(*segment).readers > 0);
        }
        // A victim may become free while the map is asked about it: its last live blocks were overwritten.
        if let Some(victim) = &self.collector.victim {
            let segment = self.cx.segments().get(victim.segment);
            if victim.reads == 0 && (segment.generation != victim.generation || segment.state != State::Sealed) {
                self.collector.victim = None;
            }
        }
        if self.collector.victim.is_none() && !self.choose_victim() {
            return;
        }
        match self.collector.victim.as_ref().map(|victim| &victim.stage) {
            Some(Stage::Probing) => self.probe_more(),
            Some(Stage::Reading) => self.read_more(),
            _ => {}
        }
    }

    /// Collection has won all the space that it is to win, and the last of it can't become free before records are
    /// durable that wait for space: a checkpoint's position does not pass what they have begun.
    pub(crate) fn space_waits_for_clients(&self) -> bool {
        self.collection_rests()
            && self.available() >= self.gc_target()
            && self.cx.segments().reclaimable(self.oldest_unsettled()).is_none()
    }

    /// Nothing can be won before the record of an epoch is durable that waits behind clients' records: a checkpoint's
    /// position does not pass the place where the epoch began.
    pub(crate) fn space_waits_for_an_epoch(&self) -> bool {
        !self.epochs_waiting.is_empty() && self.nothing_can_be_won()
    }

    /// Neither collection nor a checkpoint can give space back as things are. A device that refuses to be read may do
    /// so in a while.
    pub(crate) fn nothing_can_be_won(&self) -> bool {
        self.collection_rests()
            && self.cx.segments().reclaimable(self.oldest_unsettled()).is_none()
            && self.collector.refused.is_empty()
            && self.best_victim().is_none()
    }

    fn collection_rests(&self) -> bool {
        self.collector.victim.is_none() && self.log.gc_queue.is_empty() && self.saving.is_none()
    }

    /// The segment to be collected next.
    fn best_victim(&self) -> Option<u32> {
        let (head, _) = self.cx.log().head()?;
        let head = head.generation;
        let durable = self.cx.log().whole_before().unwrap_or(head);
        // What was written since an epoch began whose record waits can't become free before that is durable. To move it
        // would use up the very space that the record needs.
        let pinned = self.oldest_epoch_waiting();
        // When space is short, all that counts is to win a segment with as little of it as possible.
        let short = self.cx.segments().free() <= GC_SEGMENTS;
        let limit = pinned.map_or(durable, |pinned| pinned.min(durable));
        let Collector { fruitless, refused, .. } = &self.collector;
        self.cx.segments().victim(head, limit, short, |segment| {
            let alone = self.cx.segments().get(segment).alone_until > self.cx.now();
            alone || fruitless.contains(&segment) || refused.contains(&segment)
        })
    }

    /// What is queued fills a good part of a batch, or there is no more to come soon: each batch costs a header.
    pub(crate) fn gc_batch_is_worthwhile(&self) -> bool {
        let reading = self.collector.victim.as_ref().is_some_and(|victim| victim.reads > 0);
        !reading || self.log.gc_queue.len() * 2 >= self.cx.options().batch_records_max as usize || {
            let queued: u32 = self.log.gc_queue.iter().map(|queued| queued.item.payload_blocks()).sum();
            queued * 2 >= self.cx.options().batch_blocks_max
        }
    }

    fn choose_victim(&mut self) -> bool {
        // What is queued already may be enough; more would only grow stale.
        if self.available() >= self.gc_target() || !self.log.gc_queue.is_empty() {
            return false;
        }
        let Some(segment) = self.best_victim() else { return false };
        let entry = self.cx.segments().get(segment);
        // A segment that was collected looks nearly empty until its blocks are durable where they are now: chosen
        // again, it says nothing of how full victims are.
        let chosen = Some((segment, entry.generation));
        if chosen != self.collector.last {
            let fullness = f64::from(entry.needed()) / f64::from(self.cx.options().segment_blocks);
            // The first victim counts in full, later ones smooth.
            let before = self.collector.fullness;
            self.collector.fullness = if before == 0.0 { fullness } else { before * 0.75 + fullness * 0.25 };
            self.collector.last = chosen;
        }
        self.collector.victim = Some(Victim {
            segment,
            generation: entry.generation,
            stage: Stage::Footer,
            candidates: VecDeque::new(),
            probes: 0,
            live: BTreeMap::new(),
            reads: 0,
            fruitful: false,
            read: false,
            refused: false,
            is_quiet: self.jobs.is_empty(),
        });
        let last = self.cx.segments().address(segment, self.cx.options().segment_blocks - 1);
        self.collect_device(segment, last, 1, Vec::new());
        true
    }

    fn collect_device(&mut self, segment: u32, address: u32, blocks: u32, runs: Vec<LiveRunOf>) {
        self.cx.segments_mut().get_mut(segment).readers += 1;
        let io = self.cx.new_io(Io::Collect(CollectRead { segment, address, runs }));
        let offset = Segments::offset(address);
        self.cx.ask(Effect::Read { io, offset, len: blocks as usize * BLOCK_SIZE });
    }

    /// A read that garbage collection asked for has ended.
    pub(crate) fn collect_read(&mut self, read: CollectRead, result: Result<Bytes, DeviceError>) {
        self.cx.segments_mut().get_mut(read.segment).readers -= 1;
        let Some(victim) = self.collector.victim.as_mut().filter(|v| v.segment == read.segment) else { return };
        let bytes = match result {
            Ok(bytes) => bytes,
            // The rest of it may be readable.
            Err(_) if matches!(victim.stage, Stage::Reading) => {
                victim.reads -= 1;
                victim.refused = true;
                self.collector.blocks_in_flight -=
                    read.runs.iter().map(|(.., checksums, _)| checksums.len() as u32).sum::<u32>();
                return self.read_more();
            }
            Err(_) => return self.put_off_victim(),
        };
        match victim.stage {
            Stage::Footer => match footer_blocks(&bytes, self.cx.options().segment_blocks) {
                Some(blocks) => {
                    victim.stage = Stage::Summary;
                    let segment = victim.segment;
                    let first = self.cx.segments().address(segment, self.cx.options().segment_blocks - blocks);
                    self.collect_device(segment, first, blocks, Vec::new());
                }
                None => self.give_up_victim(),
            },
            Stage::Summary => {
                let summary = Summary::decode(&bytes, self.cx.identity());
                match summary.filter(|s| s.header.generation == victim.generation) {
                    Some(summary) => {
                        let segment = victim.segment;
                        victim.stage = Stage::Heirs(summary);
                        let io = self.cx.new_io(Io::Heirs(segment));
                        self.cx.ask(Effect::LoadHeirs { io, segment });
                    }
                    None => self.give_up_victim(),
                }
            }
            Stage::Heirs(_) | Stage::Probing => {}
            Stage::Reading => {
                victim.reads -= 1;
                victim.read = true;
                self.queue_moves(&read, &bytes);
                self.read_more();
            }
        }
    }

    /// The victim is not what was written: it is left alone for a while.
    fn give_up_victim(&mut self) {
        if let Some(victim) = &self.collector.victim {
            self.cx.segments_mut().get_mut(victim.segment).alone_until = self.cx.now() + ALONE_PAUSE;
        }
        self.put_off_victim();
    }

    /// All of the victim that can be read has been.
    fn end_victim(&mut self) {
        let Some(victim) = self.collector.victim.take() else { return };
        if !victim.fruitful {
            self.collector.fruitless.insert(victim.segment);
        }
        match (victim.refused, victim.read) {
            // The device is fine, but for some blocks.
            (true, true) => self.cx.segments_mut().get_mut(victim.segment).alone_until = self.cx.now() + ALONE_PAUSE,
            (true, false) => {
                self.collector.refused.insert(victim.segment);
                self.collector.retry_at = self.cx.now() + RETRY_PAUSE;
            }
            (false, _) => {}
        }
        if !victim.fruitful && !victim.refused && victim.is_quiet && self.jobs.is_empty() {
            self.drop_ghosts(victim.segment);
        }
    }

    /// The victim can't be read now. A device that refuses for a while must not lose the segment's space for ever.
    fn put_off_victim(&mut self) {
        if let Some(victim) = self.collector.victim.take() {
            self.collector.refused.insert(victim.segment);
            self.collector.retry_at = self.cx.now() + RETRY_PAUSE;
            let queued: u32 = self.log.gc_queue.iter().map(|q| q.item.payload_blocks()).sum();
            self.collector.blocks_in_flight = queued;
        }
    }

    /// The saved map has listed who owns the blocks of merged layers in the victim.
    pub(crate) fn heirs_listed(&mut self, segment: u32, result: Result<Vec<Heir>, MapError>) {
        let Some(victim) = self.collector.victim.as_mut().filter(|v| v.segment == segment) else { return };
        // An answer may be for an earlier victim in the same place.
        if !matches!(victim.stage, Stage::Heirs(_)) {
            return;
        }
        let Stage::Heirs(summary) = std::mem::replace(&mut victim.stage, Stage::Probing) else { return };
        let Ok(heirs) = result else { return self.put_off_victim() };
        let heirs: BTreeMap<LayerId, LayerId> = heirs.iter().map(|heir| (heir.layer, heir.heir)).collect();
        let candidates = self.candidates(segment, &summary, &heirs);
        if let Some(victim) = &mut self.collector.victim {
            victim.candidates = candidates;
        }
        self.probe_more();
    }

    /// The layers that may own what `layer` wrote into `segment`.
    fn owners(&self, segment: u32, layer: LayerId, heirs: &BTreeMap<LayerId, LayerId>) -> Vec<LayerId> {
        let mut owners = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = Some(layer);
        // Damaged rows must not lead in circles.
        while let Some(layer) = next.filter(|layer| seen.insert(*layer)) {
            next = self.heirs.get(segment, layer).or_else(|| heirs.get(&layer).copied());
            if next.is_none() || self.jobs.is_merging(layer) {
                owners.push(layer);
            }
        }
        owners
    }

    fn candidates(&self, segment: u32, summary: &Summary, heirs: &BTreeMap<LayerId, LayerId>) -> VecDeque<Candidate> {
        let mut owners: BTreeMap<LayerId, Vec<LayerId>> = BTreeMap::new();
        let mut candidates = VecDeque::new();
        for (frame, entries) in summary.frames() {
            let mut address = self.cx.segments().address(segment, frame.block + frame.header_blocks);
            for entry in crate::format::Entries::new(entries) {
                let blocks = entry.payload_blocks();
                if blocks > 0 {
                    let BlockRange { first, count, chunk, layer } = entry.range();
                    let is_write = matches!(entry.kind, Kind::Write | Kind::WriteAgain);
                    let sequence = Sequence(if is_write { entry.head.sequence } else { 0 });
                    let owners = owners.entry(layer).or_insert_with(|| self.owners(segment, layer, heirs));
                    for layer in owners.iter().copied() {
                        let key = LeafKey { layer, chunk, pg: entry.pg() };
                        candidates.push_back(Candidate { key, first, count, address, sequence });
                    }
                }
                address += blocks;
            }
        }
        candidates
    }

    fn probe_more(&mut self) {
        loop {
            let Some(victim) = &mut self.collector.victim else { return };
            if !matches!(victim.stage, Stage::Probing) || victim.probes >= PROBES_MAX {
                return;
            }
            let Some(Candidate { key, first, count, address, sequence }) = victim.candidates.pop_front() else {
                if victim.probes == 0 {
                    victim.stage = Stage::Reading;
                    self.read_more();
                }
                return;
            };
            if let Some(run) = self.prepared_run(key, first, address, sequence) {
                if let Some(victim) = &mut self.collector.victim {
                    victim.live.insert(run.address, run);
                }
                continue;
            }
            let Some(victim) = &mut self.collector.victim else { return };
            victim.probes += 1;
            let generation = victim.generation;
            let position = self.cx.log().durable_position();
            self.submit_ahead((key.pg, key.chunk), position, Op::Probe { key, first, count, address, generation });
        }
    }

    /// The blocks of the victim at `address`, if they are a write's that is not committed yet.
    fn prepared_run(&mut self, key: LeafKey, first: BlockIndex, address: u32, sequence: Sequence) -> Option<LiveRun> {
        let group = self.groups.get_mut(key.pg);
        let committed = group.committed;
        let pending = group.find(sequence).filter(|p| p.info.header.sequence > committed)?;
        pending.place.filter(|place| place.address == address)?;
        let checksums = pending.checksums.as_ref()?.to_vec();
        Some(LiveRun { key, first, address, checksums, prepared: Some((pending.info, pending.id)) })
    }

    /// Looks up which of the blocks are live: in the leaf of the layer that wrote them, as its own.
    pub(crate) fn step_probe(
        &mut self,
        key: LeafKey,
        first: BlockIndex,
        count: u16,
        address: u32,
        generation: u64,
    ) -> Step {
        let slot = match self.leaf_here(key) {
            Ok(slot) => slot,
            Err(step) => return step,
        };
        let segment = self.cx.segments().segment_of(address);
        let asked = |victim: &&mut Victim| (victim.segment, victim.generation) == (segment, generation);
        let Some(victim) = self.collector.victim.as_mut().filter(asked) else { return Step::Done };
        victim.probes -= 1;
        let Some(leaf) = slot.and_then(|slot| self.cache.leaf(slot)) else { return Step::Done };
        let mut run: Option<LiveRun> = None;
        for index in 0..count {
            let entry = &leaf.entries[usize::from(first.0 + index)];
            if !entry.is_own() || entry.address != address + u32::from(index) {
                victim.live.extend(run.take().map(|run| (run.address, run)));
                continue;
            }
            let run = run.get_or_insert_with(|| LiveRun {
                key,
                first: BlockIndex(first.0 + index),
                address: entry.address,
                checksums: Vec::new(),
                prepared: None,
            });
            run.checksums.push(entry.stored_checksum());
        }
        victim.live.extend(run.map(|run| (run.address, run)));
        Step::Done
    }

    /// The leaf can't be loaded.
    pub(crate) fn probe_failed(&mut self) {
        self.put_off_victim();
    }

    /// Reads live blocks, as many as may be in memory.
    fn read_more(&mut self) {
        loop {
            let Some(victim) = &mut self.collector.victim else { return };
            if self.collector.blocks_in_flight >= self.cx.options().gc_blocks_in_flight_max {
                return;
            }
            let Some((start, run)) = victim.live.pop_first() else {
                if victim.reads == 0 {
                    self.end_victim();
                }
                return;
            };
            let mut end = run.end();
            let mut runs = vec![run];
            while let Some(next) = victim.live.first_entry() {
                let next = next.get();
                if next.address > end + GAP_BLOCKS_MAX || next.end() - start > READ_BLOCKS_MAX {
                    break;
                }
                end = next.end();
                runs.extend(victim.live.pop_first().map(|(_, run)| run));
            }
            victim.reads += 1;
            victim.fruitful = true;
            let segment = victim.segment;
            let runs: Vec<LiveRunOf> =
                runs.into_iter().map(|r| (r.key, r.first, r.address, r.checksums[..].into(), r.prepared)).collect();
            self.collector.blocks_in_flight += runs.iter().map(|(.., sums, _)| sums.len() as u32).sum::<u32>();
            self.collect_device(segment, start, end - start, runs);
        }
    }
}

#[cfg(test)]
mod tests;
