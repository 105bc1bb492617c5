//! The writer: one batch after the other, in one segment after the other.
//!
//! A record waits in the queue until [`LogWriter::seal_batches`] puts it into a batch, which is one device write. Some
//! batches are on their way at once; they become durable in order, whatever order the device has
//! ([`LogWriter::next_durable`]). A full segment ends with a summary.

use crate::checkpoint::replay_waits;
use crate::cleaner::Cleaner;
use crate::cx::{Io, StoreCx};
use crate::effect::{Effect, IoId};
use crate::groups::{Groups, Place};
use crate::jobs::Jobs;
use crate::log::encode::Encoder;
use crate::log::format::{BatchHeader, BatchKind, SummaryBuilder, header_blocks};
use crate::log::plan::{Head, Plan};
use crate::log::queue::{DurableRecord, Item, Queued};
use crate::map::{Map, Repairs};
use crate::segments::{Link, Segments};
use azekura_base::BLOCK_SIZE;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};

/// What sealing looks at and changes beside the log.
pub(crate) struct Sealing<'a> {
    pub cx: &'a mut StoreCx,
    pub groups: &'a mut Groups,
    pub repairs: &'a mut Repairs,
    pub cleaner: &'a mut Cleaner,
    pub jobs: &'a Jobs,
    pub map: &'a Map,
    /// A checkpoint is being saved.
    pub is_saving: bool,
}

/// What the records of a batch do once they are durable, and what to tell then.
type DurableRecords = Vec<(Option<u64>, DurableRecord)>;

/// A batch on its way to the device.
#[derive(Debug)]
struct InFlight {
    io: IoId,
    sequence: u64,
    generation: u64,
    done: bool,
    records: DurableRecords,
}

/// The writing end of the log. See the module's description.
#[derive(Debug, Default)]
pub(crate) struct LogWriter {
    /// Clients' records, oldest first.
    queue: VecDeque<Queued>,
    /// Payload blocks in `queue`.
    queue_blocks: u64,
    head: Option<Head>,
    in_flight: VecDeque<InFlight>,
    next_sequence: u64,
    last_crc: u32,
    /// Encoded entries of the batch being made.
    scratch: Vec<u8>,
}

impl LogWriter {
    /// Takes up the log where replay has ended: `block` of `link`, after the batch `last`.
    pub fn take_up(
        &mut self,
        cx: &mut StoreCx,
        link: Link,
        block: u32,
        summary: SummaryBuilder,
        last: Option<&BatchHeader>,
    ) {
        self.next_sequence = last.map_or(link.first_sequence, |header| header.sequence + 1);
        self.last_crc = last.map_or(link.first_previous, |header| header.crc);
        cx.log_mut().set_durable(self.next_sequence - 1);
        self.head = Some(Head { link, block, reserved: false, summary });
        cx.log_mut().set_head(link, block);
    }

    /// Queues a record. Who has a token is told when it is durable.
    pub fn push(&mut self, id: u64, token: Option<u64>, item: Item) {
        self.queue_blocks += u64::from(item.payload_blocks());
        self.queue.push_back(Queued { token, id, item });
    }

    /// Queues a record ahead of all others: what waits for space may be waiting for it. It has no payload.
    pub fn push_first(&mut self, id: u64, token: u64, item: Item) {
        self.queue.push_front(Queued { token: Some(token), id, item });
    }

    /// Takes records out of the queue that no batch has taken, and gives their tokens.
    pub fn forget(&mut self, ids: &BTreeSet<u64>) -> Vec<u64> {
        let (gone, stays): (VecDeque<_>, _) =
            std::mem::take(&mut self.queue).into_iter().partition(|queued| ids.contains(&queued.id));
        self.queue = stays;
        let blocks = |queued: &Queued| u64::from(queued.item.payload_blocks());
        self.queue_blocks -= gone.iter().map(blocks).sum::<u64>();
        gone.into_iter().filter_map(|queued| queued.token).collect()
    }

    /// Records that wait, oldest first.
    pub fn queue(&self) -> &VecDeque<Queued> {
        &self.queue
    }

    pub(super) fn take_queue(&mut self) -> VecDeque<Queued> {
        std::mem::take(&mut self.queue)
    }

    /// Puts back what was taken, in another order.
    pub(super) fn put_queue(&mut self, first: VecDeque<Queued>, rest: VecDeque<Queued>) {
        self.queue = first;
        self.queue.extend(rest);
    }

    /// Payload blocks that wait.
    pub fn queue_blocks(&self) -> u64 {
        self.queue_blocks
    }

    /// Batches on their way to the device.
    pub fn batches_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn may_send(&self, cx: &StoreCx) -> bool {
        cx.is_running() && self.in_flight.len() < cx.options().batches_in_flight_max as usize
    }

    /// Seals waiting records into batches, as many as may be in flight.
    pub fn seal_batches(&mut self, s: &mut Sealing<'_>) {
        if self.may_send(s.cx) && !s.jobs.is_empty() && s.jobs.wait_for_roll(s.cx) {
            self.seal_segment(s.cx, s.cleaner, false);
        }
        let short = self.clients_wait_for_space(s);
        s.cleaner.write_apart(s.cx, short);
        let nothing = |log: &LogWriter, cleaner: &Cleaner| {
            log.queue.is_empty() && cleaner.queue().is_empty() && cleaner.placed().is_empty()
        };
        while self.may_send(s.cx) && !nothing(self, s.cleaner) {
            if !self.seal_batch(s) {
                return;
            }
        }
    }

    /// Makes one batch. False: none can be made now.
    fn seal_batch(&mut self, s: &mut Sealing<'_>) -> bool {
        self.let_pass(s);
        // Neither unsaved leaves nor what a restart replays may outgrow their bounds: a checkpoint is due or in
        // progress, and will make room.
        let map_keeps_up =
            s.map.unsaved_bytes() <= s.cx.options().leaf_cache_bytes_max && !replay_waits(s.cx, s.groups, s.jobs);
        let may_write = self.clients_may_write(s);
        let plan = self.plan(s, map_keeps_up, may_write);
        if !plan.is_empty() {
            self.write_batch(s, &plan);
            return true;
        }
        let clients_wait = map_keeps_up && !self.queue.is_empty();
        let moves_wait = map_keeps_up
            && !s.cleaner.queue().is_empty()
            && self.moves_may_be_written(s)
            && s.cleaner.batch_is_worthwhile(s.cx);
        let moves_wait = moves_wait || map_keeps_up && self.placed_may_be_written(s);
        let for_clients = clients_wait && may_write > 0;
        let reserved = !for_clients || may_write < self.queue.len();
        (for_clients || moves_wait) && self.seal_segment(s.cx, s.cleaner, reserved)
    }

    /// Chooses records that fit into what is left of the open segment. Of clients' records so many may open one.
    fn plan(&self, s: &Sealing<'_>, map_keeps_up: bool, clients_may_open: usize) -> Plan {
        let mut plan = Plan::default();
        let Some(head) = self.head.as_ref().filter(|_| map_keeps_up) else { return plan };
        let options = s.cx.options();
        // A segment out of the reserve must not be filled by those who may not open one: cleaning would be left
        // without the space that it needs to win some, unless it waits for them.
        let all = !head.reserved || self.waits_for_an_epoch(s);
        for queued in self.queue.iter().take(if all { usize::MAX } else { clients_may_open }) {
            if !plan.has_room(&queued.item, head, options) {
                break;
            }
            plan.take_client(&queued.item);
        }
        // The rest of the segment is too small for the next client record: what is to be moved may use it.
        let is_end = plan.is_empty() && !self.queue.is_empty() && clients_may_open > 0;
        if self.moves_may_be_written(s) && (plan.clients > 0 || is_end || s.cleaner.batch_is_worthwhile(s.cx)) {
            let mut credit = if self.clients_wait_for_space(s) { f64::MAX } else { s.cleaner.credit() };
            for queued in s.cleaner.queue() {
                if credit <= 0.0 {
                    break;
                }
                if !plan.has_room(&queued.item, head, options) {
                    plan.take_part_of(&queued.item, head, options);
                    break;
                }
                credit -= f64::from(queued.item.payload_blocks());
                plan.take_move(&queued.item);
            }
        }
        if !plan.is_empty() || self.placed_may_be_written(s) {
            for queued in s.cleaner.placed() {
                if !plan.has_room(&queued.item, head, options) {
                    break;
                }
                plan.take_moved(&queued.item);
            }
        }
        plan
    }

    /// Where blocks were moved to is said along with clients' records; if there are none, as soon as no batch is on its
    /// way, or when there is much to say.
    fn placed_may_be_written(&self, s: &Sealing<'_>) -> bool {
        let placed = s.cleaner.placed().len();
        placed > 0 && (self.in_flight.is_empty() || placed >= s.cx.options().batch_records_max as usize)
    }

    fn write_batch(&mut self, s: &mut Sealing<'_>, plan: &Plan) {
        let mut entries = std::mem::take(&mut self.scratch);
        entries.clear();
        let mut pieces = Vec::with_capacity(1 + plan.clients + plan.moves);
        pieces.push(Bytes::new());
        let mut records = Vec::with_capacity(plan.records());
        let head = self.head.as_ref().expect("a plan is made for an open segment");
        let (link, block) = (head.link, head.block);
        let sequence = self.next_sequence;
        let mut address = s.cx.segments().address(link.segment, block + header_blocks(plan.entries_bytes));
        if let Some(blocks) = plan.cut {
            s.cleaner.cut_move(s.cx, plan.moves - 1, blocks);
        }
        let mut encoder = Encoder { cx: s.cx, groups: s.groups, repairs: s.repairs, entries, pieces };
        for index in 0..plan.records() {
            let queued = match index {
                index if index < plan.clients => self.queue.pop_front(),
                index if index < plan.clients + plan.moves => s.cleaner.take(),
                _ => s.cleaner.take_placed(),
            };
            let queued = queued.expect("the plan counted the records");
            let blocks = queued.item.payload_blocks();
            if index < plan.clients {
                self.queue_blocks -= u64::from(blocks);
                encoder.cx.counters().client_blocks += u64::from(blocks);
            } else {
                encoder.cx.counters().moved_blocks += u64::from(blocks);
            }
            let place = Place {
                log: sequence,
                payload: (blocks > 0).then_some(address),
                segment: link.segment,
                generation: link.generation,
            };
            let token = queued.token;
            records.push((token, encoder.add(queued, place, index)));
            address += blocks;
        }
        let Encoder { entries, mut pieces, .. } = encoder;
        assert_eq!(entries.len(), plan.entries_bytes);
        let mut header = self.batch_header(s.cx, BatchKind::Records, link, block);
        header.entries = plan.records() as u32;
        header.payload_blocks = plan.payload;
        pieces[0] = header.encode(&entries);
        let head = self.head.as_mut().expect("it was there before");
        head.summary.push(&header, &entries);
        head.block += header.blocks();
        s.cx.log_mut().set_head(link, head.block);
        self.scratch = entries;
        if plan.clients > 0 {
            s.cleaner.on_written(s.cx, s.groups, header.blocks());
        }
        s.cx.counters().batches += 1;
        s.cx.counters().records += records.len() as u64;
        self.send_batch(s.cx, &header, pieces, records);
    }

    fn batch_header(&self, cx: &StoreCx, kind: BatchKind, link: Link, block: u32) -> BatchHeader {
        BatchHeader {
            previous: self.last_crc,
            incarnation: cx.log().incarnation(),
            sequence: self.next_sequence,
            durable: cx.log().durable(),
            generation: link.generation,
            segment: link.segment,
            block,
            ..BatchHeader::new(kind, cx.identity())
        }
    }

    fn send_batch(&mut self, cx: &mut StoreCx, header: &BatchHeader, pieces: Vec<Bytes>, records: DurableRecords) {
        self.next_sequence += 1;
        self.last_crc = header.crc;
        cx.counters().log_bytes += u64::from(header.blocks()) * BLOCK_SIZE as u64;
        let io = cx.new_io(Io::Batch);
        let (sequence, generation) = (header.sequence, header.generation);
        self.in_flight.push_back(InFlight { io, sequence, generation, done: false, records });
        self.tell_under_way(cx);
        let offset = Segments::offset(cx.segments().address(header.segment, header.block));
        let durable = cx.options().flush;
        cx.ask(Effect::Write { io, offset, pieces, durable });
    }

    fn tell_under_way(&self, cx: &mut StoreCx) {
        cx.log_mut().set_under_way(self.in_flight.front().map(|batch| batch.generation));
    }

    /// Ends the open segment with its summary and opens the next. False: there is no free segment.
    pub fn seal_segment(&mut self, cx: &mut StoreCx, cleaner: &Cleaner, reserved: bool) -> bool {
        let Some(head) = &self.head else { return false };
        let Some(next) = cx.segments().next_free(head.link.segment) else { return false };
        assert!(!cleaner.has_move_from(cx, next), "segment {next} is to be written, and blocks of it wait to be moved");
        let link = head.link;
        let head = self.head.take().expect("it was looked at just now");
        let mut header = self.batch_header(cx, BatchKind::Summary, link, head.block);
        let segment_blocks = cx.options().segment_blocks;
        assert!(head.block + head.summary.blocks() <= segment_blocks, "no room for the summary");
        let pieces = head.summary.encode(&mut header, segment_blocks, next, link.first_sequence, link.first_previous);
        self.send_batch(cx, &header, pieces.into(), Vec::new());
        cx.segments_mut().seal(link.segment);
        let link = Link {
            segment: next,
            generation: link.generation + 1,
            first_sequence: self.next_sequence,
            first_previous: self.last_crc,
        };
        cx.segments_mut().open(link);
        self.head = Some(Head { link, block: 0, reserved, summary: SummaryBuilder::default() });
        cx.log_mut().set_head(link, 0);
        true
    }

    /// A batch has been written.
    pub fn on_written(&mut self, io: IoId) {
        if let Some(batch) = self.in_flight.iter_mut().find(|b| b.io == io) {
            batch.done = true;
        }
    }

    /// The next batch that has become durable: what its records do now.
    pub fn next_durable(&mut self, cx: &mut StoreCx) -> Option<DurableRecords> {
        self.in_flight.front().filter(|batch| batch.done)?;
        let batch = self.in_flight.pop_front()?;
        cx.log_mut().set_durable(batch.sequence);
        self.tell_under_way(cx);
        Some(batch.records)
    }

    /// For tests that hold records back.
    #[cfg(test)]
    pub fn swap_queue(&mut self, queue: VecDeque<Queued>) -> VecDeque<Queued> {
        std::mem::replace(&mut self.queue, queue)
    }
}
