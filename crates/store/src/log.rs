//! The writing end of the log: records wait, are sealed into batches, and become durable in order.

use crate::checkpoint::replay_waits;
use crate::cx::log_position;
use crate::effect::{Completion, Effect, IoId};
use crate::format::{BatchHeader, BatchKind, EntryHead, Kind, SummaryBuilder, header_blocks};
use crate::groups::Place;
use crate::jobs::Job;
use crate::options::Options;
use crate::record::{Copy, payload_blocks, stored};
use crate::segments::{GC_SEGMENTS, Link, Segments, ZERO_SEGMENTS};
use crate::store::Store;
use azekura_base::{BLOCK_SIZE, BlockRange, Body, Checksums, Epoch, PgId, Prepared, Sequence, Write, WriteHeader};
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};

/// Live blocks on their way to a new address.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub pg: PgId,
    pub range: BlockRange,
    /// The address of the first block until now; the others follow it.
    pub old: u32,
    pub bytes: Bytes,
    pub checksums: Checksums,
}

#[derive(Debug)]
pub(crate) enum Item {
    Write(Write),
    Copy(Copy),
    Relocate(Move),
    /// The blocks of the prepared write with this `id`, moved.
    WriteAgain {
        info: Prepared,
        id: u64,
        bytes: Bytes,
    },
    Epoch {
        pg: PgId,
        epoch: Epoch,
        committed_before: Sequence,
        committed: Sequence,
        jump: bool,
        /// The group is complete up to here only.
        incomplete: Option<Sequence>,
    },
    Complete {
        pg: PgId,
    },
    Note {
        pg: PgId,
        version: u64,
        note: Bytes,
    },
    Job {
        job: Job,
    },
}

impl Item {
    pub fn payload_blocks(&self) -> u32 {
        let blocks = match self {
            Item::Write(write) => payload_blocks(&write.body),
            Item::Copy(copy) => payload_blocks(&copy.body),
            Item::Relocate(moved) => usize::from(moved.range.count),
            Item::WriteAgain { bytes, .. } => bytes.len() / BLOCK_SIZE,
            Item::Epoch { .. } | Item::Complete { .. } | Item::Note { .. } | Item::Job { .. } => 0,
        };
        blocks as u32
    }

    /// The group whose records this one must stay in order with; `None`: those of all groups.
    fn group(&self) -> Option<PgId> {
        match self {
            Item::Write(write) => Some(write.header.pg),
            Item::Copy(copy) => Some(copy.pg),
            Item::Relocate(moved) => Some(moved.pg),
            Item::WriteAgain { info, .. } => Some(info.header.pg),
            Item::Epoch { pg, .. } | Item::Complete { pg } | Item::Note { pg, .. } => Some(*pg),
            Item::Job { .. } => None,
        }
    }

    fn entry_bytes(&self) -> usize {
        let tail = match self {
            Item::Note { note, .. } => note.len().next_multiple_of(4),
            // Those of what is lost, and of what stands in its place.
            Item::Copy(Copy { body: Body::Lost { checksums }, .. }) => checksums.len() * 2 * 4,
            _ => self.payload_blocks() as usize * 4,
        };
        EntryHead::BYTES + tail
    }
}

/// A record that waits to be put into a batch.
#[derive(Debug)]
pub(crate) struct Queued {
    pub token: Option<u64>,
    pub id: u64,
    pub item: Item,
}

/// What a record does once it is durable.
#[derive(Debug)]
pub(crate) enum Landing {
    Write { pg: PgId, sequence: Sequence, id: u64 },
    Copy,
    Relocate { moved: Move, place: Place, position: u64 },
    WriteAgain { pg: PgId, sequence: Sequence, id: u64, place: Place, count: u16 },
    Epoch { id: u64, pg: PgId, epoch: Epoch, committed: Sequence, incomplete: Option<Sequence> },
    Complete { pg: PgId },
    Note,
    Job { job: Job, segment: u32 },
}

#[derive(Debug)]
pub(crate) struct InFlight {
    pub io: IoId,
    pub sequence: u64,
    pub generation: u64,
    pub done: bool,
    pub landings: Vec<(Option<u64>, Landing)>,
}

/// The segment being written.
#[derive(Debug)]
pub(crate) struct Head {
    pub link: Link,
    /// The next block to write.
    pub block: u32,
    /// It was opened for what garbage collection moves, out of its own reserve.
    pub for_gc: bool,
    pub summary: SummaryBuilder,
}

/// The writing end of the log.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Clients' records, oldest first.
    pub queue: VecDeque<Queued>,
    /// Payload blocks in `queue`.
    pub queue_blocks: u64,
    pub head: Option<Head>,
    pub in_flight: VecDeque<InFlight>,
    pub next_sequence: u64,
    pub last_crc: u32,
    /// Encoded entries of the batch being made.
    pub scratch: Vec<u8>,
}

/// Which records a batch takes.
#[derive(Debug, Default)]
struct Plan {
    clients: usize,
    gc: usize,
    /// Of the last of garbage collection's records it takes so many blocks only.
    cut: Option<u16>,
    payload: u32,
    entries_bytes: usize,
}

impl Plan {
    fn fits(&self, item: &Item, head: &Head, segment_blocks: u32) -> bool {
        self.fits_with(item.payload_blocks(), item.entry_bytes(), head, segment_blocks)
    }

    fn fits_with(&self, payload: u32, entry_bytes: usize, head: &Head, segment_blocks: u32) -> bool {
        let entries_bytes = self.entries_bytes + entry_bytes;
        let blocks = header_blocks(entries_bytes) + self.payload + payload;
        head.block + blocks + head.summary.blocks_with(entries_bytes) <= segment_blocks
    }

    fn take(&mut self, payload: u32, entry_bytes: usize) {
        self.payload += payload;
        self.entries_bytes += entry_bytes;
    }

    /// The blocks of a move that still fit into the segment, if it is too large as a whole: clients' records must stay
    /// in one piece, so the end of a segment can be too small for them; a move fills it.
    fn cut(&self, item: &Item, head: &Head, options: &Options) -> Option<u16> {
        let Item::Relocate(moved) = item else { return None };
        let room = options.batch_blocks_max.saturating_sub(self.payload);
        let count = moved.range.count;
        let most = if self.is_empty() { count } else { count.min(room.min(u32::from(u16::MAX)) as u16) };
        if self.fits(item, head, options.segment_blocks) || self.clients + self.gc >= options.batch_records_max as usize
        {
            return None;
        }
        let fits = |blocks: u16| {
            self.fits_with(u32::from(blocks), EntryHead::BYTES + usize::from(blocks) * 4, head, options.segment_blocks)
        };
        let (mut fit, mut too_many) = (0, most + 1);
        while fit + 1 < too_many {
            let middle = fit + (too_many - fit) / 2;
            *(if fits(middle) { &mut fit } else { &mut too_many }) = middle;
        }
        (fit > 0).then_some(fit)
    }

    fn is_empty(&self) -> bool {
        self.clients + self.gc == 0
    }
}

impl Store {
    /// Seals waiting records into batches, as many as may be in flight.
    pub(crate) fn seal_batches(&mut self) {
        if self.cx.is_running()
            && self.log.in_flight.len() < self.cx.options().batches_in_flight_max as usize
            && !self.jobs.is_empty()
            && self.job_waits_for_roll()
        {
            self.seal_segment(false);
        }
        while self.cx.is_running()
            && self.log.in_flight.len() < self.cx.options().batches_in_flight_max as usize
            && !(self.log.queue.is_empty() && self.cleaner.queue().is_empty())
        {
            if !self.seal_batch() {
                return;
            }
        }
    }

    /// Makes one batch. False: none can be made now.
    fn seal_batch(&mut self) -> bool {
        self.let_pass();
        // Neither unsaved leaves nor what a restart replays may outgrow their bounds: a checkpoint is due or in
        // progress, and will make room.
        let map_keeps_up = self.cache.dirty_bytes() <= self.cx.options().leaf_cache_bytes_max
            && !replay_waits(&self.cx, &self.groups, &self.jobs);
        let may_open_for_clients = !self.clients_are_stalled();
        let plan = self.plan(map_keeps_up, may_open_for_clients);
        if !plan.is_empty() {
            self.write_batch(&plan);
            return true;
        }
        let clients_wait = map_keeps_up && !self.log.queue.is_empty();
        let gc_waits = map_keeps_up
            && !self.cleaner.queue().is_empty()
            && self.gc_may_write()
            && self.cleaner.batch_is_worthwhile(&self.cx);
        let for_clients = clients_wait && may_open_for_clients;
        (for_clients || gc_waits) && self.seal_segment(!for_clients)
    }

    /// Chooses records that fit into what is left of the open segment.
    fn plan(&self, map_keeps_up: bool, clients_may_open: bool) -> Plan {
        let mut plan = Plan::default();
        let Some(head) = self.log.head.as_ref().filter(|_| map_keeps_up) else { return plan };
        let options = self.cx.options();
        let has_room = |plan: &Plan, item: &Item| {
            let blocks = plan.payload + item.payload_blocks();
            (plan.is_empty() || blocks <= options.batch_blocks_max)
                && plan.clients + plan.gc < options.batch_records_max as usize
                && plan.fits(item, head, options.segment_blocks)
        };
        // A segment out of the reserve must not be filled by those who may not open one: collection would be left
        // without the space that it needs to win some, unless it waits for them.
        if clients_may_open || !head.for_gc || self.waits_for_an_epoch() {
            for queued in &self.log.queue {
                if !has_room(&plan, &queued.item) {
                    break;
                }
                plan.take(queued.item.payload_blocks(), queued.item.entry_bytes());
                plan.clients += 1;
            }
        }
        // The rest of the segment is too small for the next client record: what is to be moved may use it.
        let is_end = plan.is_empty() && !self.log.queue.is_empty() && clients_may_open;
        if self.gc_may_write() && (plan.clients > 0 || is_end || self.cleaner.batch_is_worthwhile(&self.cx)) {
            let mut credit = if self.clients_wait_for_space() { f64::MAX } else { self.cleaner.credit() };
            for queued in self.cleaner.queue() {
                if credit <= 0.0 {
                    break;
                }
                if !has_room(&plan, &queued.item) {
                    plan.cut = plan.cut(&queued.item, head, options);
                    if let Some(blocks) = plan.cut {
                        plan.take(u32::from(blocks), EntryHead::BYTES + usize::from(blocks) * 4);
                        plan.gc += 1;
                    }
                    break;
                }
                credit -= f64::from(queued.item.payload_blocks());
                plan.take(queued.item.payload_blocks(), queued.item.entry_bytes());
                plan.gc += 1;
            }
        }
        plan
    }

    /// The last free segments are left to garbage collection, and some before them to records that take no space. But
    /// what waits before the record of an epoch goes first if there is room for it: until that is durable, the writes
    /// that the epoch drops keep their segments, and nothing that was written since can become free.
    pub(crate) fn clients_are_stalled(&self) -> bool {
        let free = self.cx.segments().free();
        if free > GC_SEGMENTS + ZERO_SEGMENTS {
            return false;
        }
        let takes_space = self.log.queue.front().is_none_or(|queued| queued.item.payload_blocks() > 0);
        let left = if takes_space { GC_SEGMENTS + ZERO_SEGMENTS } else { GC_SEGMENTS };
        let may_take_last = free > 0 && self.waits_for_an_epoch();
        let may_take = free > 1
            && (self.epoch_has_room()
                || self.cleaner.waits_for_clients(&self.cx, &self.groups, self.checkpointer.is_saving()));
        free <= left && !may_take_last && !may_take
    }

    /// Nothing can be won before the record of an epoch is durable that waits behind clients' records: a checkpoint's
    /// position does not pass the place where the epoch began.
    fn waits_for_an_epoch(&self) -> bool {
        self.groups.epoch_waits() && self.cleaner.can_win_nothing(&self.cx, &self.groups, self.checkpointer.is_saving())
    }

    /// All free segments but one have room for what waits up to the first record of an epoch.
    fn epoch_has_room(&self) -> bool {
        if !self.groups.epoch_waits() {
            return false;
        }
        let segment = self.cx.options().segment_blocks;
        // A batch has a header, and the end of a segment may be too small for the next record.
        let usable = segment - self.cx.options().batch_blocks_max.min(segment / 2) - 2;
        let room = self.cx.segments().free().saturating_sub(1) * usable;
        let ahead = self.log.queue.iter().take_while(|queued| !matches!(queued.item, Item::Epoch { .. }));
        ahead.map(|queued| queued.item.payload_blocks() + 1).sum::<u32>() <= room
    }

    /// Nothing is to be won, and data waits for space: what takes none goes first, since it may give some back. Each
    /// group's records keep their order, and those that begin work in the background stay where they are.
    fn let_pass(&mut self) {
        let waits = |log: &Log| log.queue.front().is_some_and(|queued| queued.item.payload_blocks() > 0);
        if !waits(&self.log)
            || !self.clients_are_stalled()
            || !self.cleaner.can_win_nothing(&self.cx, &self.groups, self.checkpointer.is_saving())
        {
            return;
        }
        let mut behind: BTreeSet<PgId> = BTreeSet::new();
        let (first, rest): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.log.queue).into_iter().partition(|queued| match queued.item.group() {
                Some(pg) if queued.item.payload_blocks() > 0 => {
                    behind.insert(pg);
                    false
                }
                Some(pg) => !behind.contains(&pg),
                None => false,
            });
        self.log.queue = first;
        self.log.queue.extend(rest);
    }

    fn clients_wait_for_space(&self) -> bool {
        !self.log.queue.is_empty() && self.clients_are_stalled()
    }

    fn gc_may_write(&self) -> bool {
        self.cleaner.credit() > 0.0 || self.clients_wait_for_space()
    }

    fn write_batch(&mut self, plan: &Plan) {
        let mut entries = std::mem::take(&mut self.log.scratch);
        entries.clear();
        let mut pieces = Vec::with_capacity(1 + plan.clients + plan.gc);
        pieces.push(Bytes::new());
        let mut landings = Vec::with_capacity(plan.clients + plan.gc);
        let head = self.log.head.as_ref().expect("a plan is made for an open segment");
        let (link, block) = (head.link, head.block);
        let sequence = self.log.next_sequence;
        let mut address = self.cx.segments().address(link.segment, block + header_blocks(plan.entries_bytes));
        if let Some(blocks) = plan.cut {
            self.cleaner.cut_move(&mut self.cx, plan.gc - 1, blocks);
        }
        for index in 0..plan.clients + plan.gc {
            let queued = if index < plan.clients { self.log.queue.pop_front() } else { self.cleaner.take() };
            let queued = queued.expect("the plan counted the records");
            let blocks = queued.item.payload_blocks();
            if index < plan.clients {
                self.log.queue_blocks -= u64::from(blocks);
                self.cx.counters().client_blocks += u64::from(blocks);
            } else {
                self.cx.counters().gc_blocks += u64::from(blocks);
            }
            let place = Place {
                log: sequence,
                address: if blocks > 0 { address } else { 0 },
                segment: link.segment,
                generation: link.generation,
            };
            let landing = self.place_record(queued.item, queued.id, place, index, &mut entries, &mut pieces);
            landings.push((queued.token, landing));
            address += blocks;
        }
        assert_eq!(entries.len(), plan.entries_bytes);
        let mut header = self.batch_header(BatchKind::Records, link, block);
        header.entries = (plan.clients + plan.gc) as u32;
        header.payload_blocks = plan.payload;
        pieces[0] = header.encode(&entries);
        let head = self.log.head.as_mut().expect("it was there before");
        head.summary.push(&header, &entries);
        head.block += header.blocks();
        self.cx.log_mut().set_head(link, head.block);
        self.log.scratch = entries;
        if plan.clients > 0 {
            self.cleaner.on_written(&self.cx, &self.groups, header.blocks());
        }
        self.cx.counters().batches += 1;
        self.cx.counters().records += landings.len() as u64;
        self.send_batch(&header, pieces, landings);
    }

    fn batch_header(&self, kind: BatchKind, link: Link, block: u32) -> BatchHeader {
        BatchHeader {
            previous: self.log.last_crc,
            incarnation: self.cx.log().incarnation(),
            sequence: self.log.next_sequence,
            durable: self.cx.log().durable(),
            generation: link.generation,
            segment: link.segment,
            block,
            ..BatchHeader::new(kind, self.cx.identity())
        }
    }

    fn send_batch(&mut self, header: &BatchHeader, pieces: Vec<Bytes>, landings: Vec<(Option<u64>, Landing)>) {
        self.log.next_sequence += 1;
        self.log.last_crc = header.crc;
        self.cx.counters().log_bytes += u64::from(header.blocks()) * BLOCK_SIZE as u64;
        let io = self.cx.new_io(crate::cx::Io::Batch);
        let (sequence, generation) = (header.sequence, header.generation);
        self.log.in_flight.push_back(InFlight { io, sequence, generation, done: false, landings });
        self.cx.log_mut().set_under_way(self.log.in_flight.front().map(|batch| batch.generation));
        let offset = Segments::offset(self.cx.segments().address(header.segment, header.block));
        self.cx.ask(Effect::Write { io, offset, pieces, durable: self.cx.options().flush });
    }

    /// Ends the open segment with its summary and opens the next. False: there is no free segment.
    pub(crate) fn seal_segment(&mut self, for_gc: bool) -> bool {
        let Some(head) = &self.log.head else { return false };
        let Some(next) = self.cx.segments().next_free(head.link.segment) else { return false };
        assert!(
            !self.cleaner.has_move_from(&self.cx, next),
            "segment {next} is to be written, and blocks of it wait to be moved"
        );
        let link = head.link;
        let head = self.log.head.take().expect("it was looked at just now");
        let mut header = self.batch_header(BatchKind::Summary, link, head.block);
        assert!(head.block + head.summary.blocks() <= self.cx.options().segment_blocks, "no room for the summary");
        let pieces = head.summary.encode(
            &mut header,
            self.cx.options().segment_blocks,
            next,
            link.first_sequence,
            link.first_previous,
        );
        self.send_batch(&header, pieces.into(), Vec::new());
        self.cx.segments_mut().seal(link.segment);
        let link = Link {
            segment: next,
            generation: link.generation + 1,
            first_sequence: self.log.next_sequence,
            first_previous: self.log.last_crc,
        };
        self.cx.segments_mut().open(link);
        self.log.head = Some(Head { link, block: 0, for_gc, summary: SummaryBuilder::default() });
        self.cx.log_mut().set_head(link, 0);
        true
    }

    /// Encodes one record, gives it its place, and says what it does when durable.
    fn place_record(
        &mut self,
        item: Item,
        id: u64,
        place: Place,
        index: usize,
        entries: &mut Vec<u8>,
        pieces: &mut Vec<Bytes>,
    ) -> Landing {
        match item {
            Item::Write(write) => {
                let kind = if matches!(write.body, Body::Zero) { Kind::WriteZero } else { Kind::Write };
                let header = &write.header;
                let head = EntryHead::of_write(kind, header);
                put(entries, &head, &write.body);
                if let Body::Data { bytes, .. } = write.body {
                    pieces.push(bytes);
                }
                let pending = self.groups.get_mut(header.pg).find(header.sequence).filter(|p| p.id == id);
                if let Some(pending) = pending {
                    pending.place = Some(place);
                    pending.origin = place.generation;
                    self.pin_write(place, header.range.count);
                }
                Landing::Write { pg: header.pg, sequence: header.sequence, id }
            }
            Item::Copy(copy) => {
                let kind = match copy.body {
                    // A copy of no blocks is a mark.
                    Body::Zero if copy.range.count == 0 => Kind::Mark,
                    Body::Zero => Kind::CopyZero,
                    Body::Data { .. } => Kind::Copy,
                    Body::Lost { .. } => Kind::CopyLost,
                };
                let mut head = EntryHead::of_range(kind, copy.pg, &copy.range);
                (head.sequence, head.commit) = (copy.sequence.0, copy.sequence.0);
                let lost = match &copy.body {
                    Body::Lost { checksums } => Some(checksums.clone()),
                    _ => None,
                };
                let body = stored(copy.body);
                put(entries, &head, &body);
                lost.into_iter().for_each(|checksums| put_checksums(entries, &checksums));
                if let Body::Data { bytes, .. } = body {
                    pieces.push(bytes);
                }
                self.groups.get_mut(copy.pg).copies_waiting.pop_front();
                self.place_copy(id, place, log_position(place.log, index));
                Landing::Copy
            }
            Item::Relocate(moved) => {
                let mut head = EntryHead::of_range(Kind::Relocate, moved.pg, &moved.range);
                head.commit = self.groups.get(moved.pg).map_or(0, |g| g.committed_ahead().0);
                head.session = u64::from(moved.old);
                entries.extend_from_slice(bytemuck::bytes_of(&head));
                put_checksums(entries, &moved.checksums);
                pieces.push(moved.bytes.clone());
                self.cx.segments_mut().hold(place.segment);
                Landing::Relocate { moved, place, position: log_position(place.log, index) }
            }
            Item::WriteAgain { info, id, bytes } => {
                pieces.push(bytes.clone());
                self.place_again(&info, id, &bytes, place, entries)
            }
            Item::Epoch { pg, epoch, committed_before, committed, jump, incomplete } => {
                let mut head = EntryHead::new(Kind::Epoch);
                head.count = u16::from(jump);
                head.pg = pg.0;
                head.epoch = epoch.0;
                head.sequence = committed_before.0;
                head.commit = committed.0;
                entries.extend_from_slice(bytemuck::bytes_of(&head));
                Landing::Epoch { id, pg, epoch, committed, incomplete }
            }
            Item::Complete { pg } => {
                let mut head = EntryHead::new(Kind::Complete);
                head.pg = pg.0;
                entries.extend_from_slice(bytemuck::bytes_of(&head));
                Landing::Complete { pg }
            }
            Item::Note { pg, version, note } => {
                let mut head = EntryHead::new(Kind::Note);
                head.pg = pg.0;
                head.sequence = version;
                head.note_bytes = note.len() as u16;
                entries.extend_from_slice(bytemuck::bytes_of(&head));
                entries.extend_from_slice(&note);
                entries.resize(entries.len().next_multiple_of(4), 0);
                Landing::Note
            }
            Item::Job { job } => {
                let mut head = EntryHead::new(match job {
                    Job::DropLayer(_) => Kind::DropLayer,
                    Job::MergeLayer { .. } => Kind::MergeLayer,
                    Job::ForgetGroup(_) => Kind::ForgetGroup,
                });
                match job {
                    Job::DropLayer(layer) => head.layer = layer.0,
                    Job::MergeLayer { layer, into } => (head.layer, head.session) = (layer.0, into.0),
                    Job::ForgetGroup(pg) => head.pg = pg.0,
                }
                entries.extend_from_slice(bytemuck::bytes_of(&head));
                self.cx.segments_mut().hold(place.segment);
                Landing::Job { job, segment: place.segment }
            }
        }
    }

    /// Encodes a prepared write whose blocks are moved. If it has been committed or dropped meanwhile, the entry has
    /// the sequence 0, and nothing comes of it.
    fn place_again(&mut self, info: &Prepared, id: u64, bytes: &Bytes, place: Place, entries: &mut Vec<u8>) -> Landing {
        let (pg, sequence, count) = (info.header.pg, info.header.sequence, info.header.range.count);
        let group = self.groups.get_mut(pg);
        let (commit, committed) = (group.committed_ahead(), group.committed);
        let mut head = EntryHead::of_write(Kind::WriteAgain, &WriteHeader { commit, ..info.header });
        if !group.find(sequence).is_some_and(|p| p.id == id && sequence > committed) {
            head.sequence = 0;
        }
        entries.extend_from_slice(bytemuck::bytes_of(&head));
        put_checksums(entries, &azekura_base::block_checksums(bytes).collect());
        if head.sequence == 0 {
            return Landing::Note;
        }
        self.pin_write(place, count);
        Landing::WriteAgain { pg, sequence, id, place, count }
    }

    /// A batch write ended. Batches become durable in order.
    pub(crate) fn batch_written(&mut self, io: IoId) {
        if let Some(batch) = self.log.in_flight.iter_mut().find(|b| b.io == io) {
            batch.done = true;
        }
        let mut advanced = false;
        while self.log.in_flight.front().is_some_and(|b| b.done) {
            let Some(batch) = self.log.in_flight.pop_front() else { break };
            self.cx.log_mut().set_durable(batch.sequence);
            self.cx.log_mut().set_under_way(self.log.in_flight.front().map(|batch| batch.generation));
            advanced = true;
            for (token, landing) in batch.landings {
                self.land(landing);
                if let Some(token) = token {
                    self.cx.complete(Completion::Durable { token });
                }
            }
        }
        if advanced {
            self.cleaner.may_retry();
            self.run_blocked();
        }
    }

    fn land(&mut self, landing: Landing) {
        match landing {
            Landing::Write { pg, sequence, id } => {
                let group = self.groups.get_mut(pg);
                if let Some(pending) = group.find(sequence).filter(|p| p.id == id) {
                    pending.bytes = None;
                    pending.info.durable = true;
                    group.durable_end = sequence;
                }
            }
            Landing::Copy | Landing::Note => {}
            Landing::Relocate { moved, place, position } => self.relocate(moved, place, position),
            Landing::WriteAgain { pg, sequence, id, place, count } => {
                let waits = self.groups.get_mut(pg).find(sequence).is_some_and(|p| p.id == id && !p.applied);
                if waits {
                    self.write_moved(pg, sequence, id, place);
                } else {
                    self.cx.segments_mut().unpin(place.segment, u32::from(count));
                }
            }
            Landing::Epoch { id, pg, epoch, committed, incomplete } => {
                for pending in self.groups.epoch_has_begun(id) {
                    self.unpin_write(&pending);
                }
                let group = self.groups.get_mut(pg);
                group.epoch_durable = group.epoch_durable.max(epoch);
                group.incomplete_durable = incomplete;
                // A later epoch may have begun since: it keeps all that this one has committed.
                group.durable_end = group.durable_end.max(committed);
            }
            Landing::Complete { pg } => self.groups.get_mut(pg).incomplete_durable = None,
            Landing::Job { job, segment } => self.begin_job(job, segment),
        }
    }
}

fn put(entries: &mut Vec<u8>, head: &EntryHead, body: &Body) {
    entries.extend_from_slice(bytemuck::bytes_of(head));
    if let Body::Data { checksums, .. } = body {
        put_checksums(entries, checksums);
    }
}

fn put_checksums(entries: &mut Vec<u8>, checksums: &Checksums) {
    for sum in checksums.iter() {
        entries.extend_from_slice(&sum.0.to_le_bytes());
    }
}
