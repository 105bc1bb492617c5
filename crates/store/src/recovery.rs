//! Opening: from the last checkpoint, along the log, to its end.
//!
//! A full segment is replayed from its summary, without looking at its payloads, when the summary of the segment after
//! it proves that all of it was durable. The segments after that are walked: headers are followed by their
//! chain, and payloads that may have been in flight at the crash are verified. The first batch that is not whole ends
//! the log; what lies behind it was never acknowledged. If something behind it proves that it *was* durable, the log is
//! damaged, and opening fails instead of losing acknowledged writes. A block that can't be read is one that is not
//! whole.

use crate::checkpoint::CheckpointRoot;
use crate::effect::{DeviceError, Effect, OpenError};
use crate::format::{
    Batch, BatchHeader, BatchKind, Entries, Frame, Summary, SummaryBuilder, Superblock, footer_blocks,
};
use crate::log::Head;
use crate::options::Identity;
use crate::rereading::{Next, Rereading};
use crate::segments::{Link, Segments, State};
use crate::cx::Io;
use crate::store::Store;
use azekura_base::{BLOCK_SIZE, PgId, Sequence};
use bytes::Bytes;
use std::collections::BTreeSet;

/// What recovery waits for.
#[derive(Debug)]
enum Wait {
    Superblock,
    /// The last block of a segment.
    Footer(Link),
    /// The summary of a segment.
    Summary(Link),
    /// A whole segment.
    Walk(Link),
    /// A segment in which the log may have gone on, in this generation.
    Probe(u32, u64),
    /// Leaves that replayed records need.
    Leaves,
    Flush,
    Checkpoint,
}

/// A batch whose header is whole, in the part of the log that was walked.
#[derive(Debug)]
struct Tail {
    header: BatchHeader,
    entries: Vec<u8>,
    payload_whole: bool,
    /// Of a summary: where the log goes on.
    next: Option<Link>,
}

/// What the checkpoint says of who wrote the log.
#[derive(Debug, Clone, Copy)]
struct Saved {
    /// The log was durable up to here.
    durable: u64,
    /// The incarnation that wrote, or would have written, whatever comes after that.
    incarnation: u64,
}

impl Saved {
    /// False: an earlier incarnation wrote the batch, and a later one has opened without it. Pieces of what was written
    /// since may make it whole again.
    fn allows(self, header: &BatchHeader) -> bool {
        header.sequence <= self.durable || header.incarnation >= self.incarnation
    }
}

/// The state of opening. See the module's description.
#[derive(Debug)]
pub(crate) struct Recovery {
    wait: Wait,
    /// What was asked of the device last: address and blocks.
    asked: (u32, u32),
    /// It could not be read at once.
    rereading: Option<Rereading>,
    /// Unreadable blocks of what was read last, counted from its first.
    unreadable: BTreeSet<u32>,
    /// The first segment that has not been replayed.
    current: Link,
    /// Its summary, not yet proven.
    summary: Option<Summary>,
    tail: Vec<Tail>,
    /// The sequence that the next batch must have.
    sequence: u64,
    /// The header checksum that it must name.
    previous: u32,
    /// The incarnation that it must at least have.
    incarnation: u64,
    /// Everything up to here is proven to have been durable.
    durable: u64,
    saved: Saved,
    /// Everything is replayed: what is left is to save the new incarnation.
    ended: bool,
    error: Option<OpenError>,
}

impl Recovery {
    pub fn new(checkpoint: &CheckpointRoot) -> Recovery {
        let position = checkpoint.root.position;
        let link = Link {
            segment: position.segment,
            generation: position.generation,
            first_sequence: position.sequence,
            first_previous: position.previous,
        };
        Recovery {
            wait: Wait::Superblock,
            asked: (0, (Superblock::BYTES / BLOCK_SIZE) as u32),
            rereading: None,
            unreadable: BTreeSet::new(),
            current: link,
            summary: None,
            tail: Vec::new(),
            sequence: position.sequence,
            previous: position.previous,
            incarnation: 0,
            durable: checkpoint.root.durable,
            saved: Saved { durable: checkpoint.root.durable, incarnation: checkpoint.root.incarnation },
            ended: false,
            error: None,
        }
    }
}

impl Store {
    fn recovery(&mut self) -> Option<&mut Recovery> {
        self.recovery.as_deref_mut().filter(|_| self.cx.is_recovering())
    }

    pub(crate) fn start_recovery(&mut self) {
        let first = self.recovery().map(|recovery| recovery.current);
        self.cx.log_mut().set_replaying(first);
        let io = self.cx.new_io(Io::Recovery);
        self.cx.ask(Effect::Read { io, offset: 0, len: Superblock::BYTES });
    }

    fn fail_open(&mut self, error: OpenError) {
        self.cx.fail_open(error);
    }

    fn read_segment(&mut self, segment: u32, first: u32, blocks: u32, wait: Wait) {
        let address = self.cx.segments().address(segment, first);
        if let Some(recovery) = self.recovery() {
            recovery.wait = wait;
            recovery.asked = (address, blocks);
            recovery.unreadable.clear();
        }
        self.ask_device(address, blocks);
    }

    fn ask_device(&mut self, address: u32, blocks: u32) {
        let io = self.cx.new_io(Io::Recovery);
        let (offset, len) = (Segments::offset(address), blocks as usize * BLOCK_SIZE);
        self.cx.ask(Effect::Read { io, offset, len });
    }

    /// A read that recovery asked for has ended.
    pub(crate) fn recovery_read(&mut self, result: Result<Bytes, DeviceError>) {
        let Some(recovery) = self.recovery() else { return };
        let next = match (recovery.rereading.as_mut(), result) {
            (Some(rereading), result) => rereading.read(result),
            (None, Ok(bytes)) => Next::Done(bytes, BTreeSet::new()),
            (None, Err(_)) => {
                let (address, blocks) = recovery.asked;
                let (first, piece) = recovery.rereading.insert(Rereading::new(address, blocks)).first();
                Next::Read(first, piece)
            }
        };
        match next {
            Next::Read(address, blocks) => self.ask_device(address, blocks),
            Next::Failed(error) => self.fail_open(OpenError::Device(error)),
            Next::Done(bytes, unreadable) => {
                (recovery.rereading, recovery.unreadable) = (None, unreadable);
                self.recovery_has(&bytes);
            }
        }
    }

    /// What recovery waited for has been read, as far as it can be.
    fn recovery_has(&mut self, bytes: &Bytes) {
        let Some(recovery) = self.recovery() else { return };
        let wait = std::mem::replace(&mut recovery.wait, Wait::Leaves);
        let saved = recovery.saved;
        match wait {
            Wait::Superblock => self.check_superblock(bytes),
            Wait::Footer(link) => match footer_blocks(bytes, self.cx.options().segment_blocks) {
                Some(blocks) => {
                    let first = self.cx.options().segment_blocks - blocks;
                    self.read_segment(link.segment, first, blocks, Wait::Summary(link));
                }
                None => self.summary_known(link, None),
            },
            Wait::Summary(link) => {
                let summary = Summary::decode(bytes, self.cx.identity()).filter(|summary| {
                    let header = &summary.header;
                    header.generation == link.generation
                        && header.segment == link.segment
                        && header.block + header.blocks() == self.cx.options().segment_blocks
                        && summary.first_sequence == link.first_sequence
                        && summary.first_previous == link.first_previous
                        && header.sequence == link.first_sequence + u64::from(summary.batches)
                        && saved.allows(header)
                        && summary.next_segment < self.cx.options().segments
                        && summary.next_segment != link.segment
                });
                self.summary_known(link, summary);
            }
            Wait::Walk(link) => self.walk(link, bytes),
            Wait::Probe(segment, generation) => self.probe(segment, generation, bytes),
            Wait::Leaves | Wait::Flush | Wait::Checkpoint => {}
        }
    }

    fn check_superblock(&mut self, bytes: &[u8]) {
        let superblock = match Superblock::decode(bytes) {
            Ok(superblock) => superblock,
            Err(error) => return self.fail_open(error),
        };
        let (ours, theirs) = (*self.cx.identity(), superblock.identity);
        let problem = if theirs.cluster != ours.cluster {
            Some(format!("the device belongs to cluster {:032x}, not {:032x}", theirs.cluster, ours.cluster))
        } else if theirs.device != ours.device {
            Some(format!("it is device {}, not {}", theirs.device, ours.device))
        } else if theirs.instance != ours.instance {
            Some("the log was formatted at another time than its map".into())
        } else {
            None
        };
        if let Some(problem) = problem {
            return self.fail_open(OpenError::Identity(problem));
        }
        if (superblock.segments, superblock.segment_blocks) != (self.cx.options().segments, self.cx.options().segment_blocks) {
            return self.fail_open(OpenError::Options(format!(
                "the device was formatted with {} segments of {} blocks, not {} of {}",
                superblock.segments, superblock.segment_blocks, self.cx.options().segments, self.cx.options().segment_blocks
            )));
        }
        self.look_for_summary();
    }

    /// Asks for the summary of the current segment.
    fn look_for_summary(&mut self) {
        if let Some(recovery) = self.recovery() {
            let link = recovery.current;
            self.read_footer(link);
        }
    }

    fn read_footer(&mut self, link: Link) {
        self.read_segment(link.segment, self.cx.options().segment_blocks - 1, 1, Wait::Footer(link));
    }

    /// It is known whether `link` has a summary.
    fn summary_known(&mut self, link: Link, summary: Option<Summary>) {
        let Some(recovery) = self.recovery() else { return };
        if link == recovery.current {
            let Some(summary) = summary else { return self.start_walk() };
            // That the checkpoint saw this sequence durable proves nothing: the summary may be of an incarnation before
            // it, given up since. Only a segment that names this very summary as the one before it is proof.
            let next = next_link(&summary.header, summary.next_segment, link);
            recovery.summary = Some(summary);
            return self.read_footer(next);
        }
        // This was about the segment after the current one: is the current one proven by it?
        let Some(current) = &recovery.summary else { return };
        let proof = summary.filter(|summary| {
            summary.header.durable >= current.header.sequence
                && summary.header.incarnation >= current.header.incarnation
        });
        match proof {
            Some(proof) => {
                recovery.durable = recovery.durable.max(proof.header.durable);
                self.replay_summary(link, Some(proof));
            }
            None => self.start_walk(),
        }
    }

    /// Replays the current segment from its summary; the log goes on at `next`, whose summary may be known already.
    fn replay_summary(&mut self, next: Link, next_summary: Option<Summary>) {
        self.cx.log_mut().set_replaying(Some(next));
        let Some(recovery) = self.recovery() else { return };
        let Some(summary) = recovery.summary.take() else { return };
        let link = recovery.current;
        recovery.current = next;
        recovery.summary = next_summary;
        recovery.sequence = next.first_sequence;
        recovery.previous = next.first_previous;
        recovery.incarnation = summary.header.incarnation;
        recovery.wait = Wait::Leaves;
        self.enter_segment(link);
        for (sequence, (frame, entries)) in (link.first_sequence..).zip(summary.frames()) {
            let replayed = self.replay_batch(link, sequence, frame.block + frame.header_blocks, entries);
            if let Err(error) = replayed {
                return self.fail_open(error);
            }
        }
        self.cx.log_mut().set_durable(summary.header.sequence);
        self.run_blocked();
        self.cx.segments_mut().seal(link.segment);
        self.replay_goes_on();
    }

    fn enter_segment(&mut self, link: Link) {
        self.cx.segments_mut().reopen(link);
    }

    /// Goes on with the next segment once the leaves of the last are settled and memory allows.
    pub(crate) fn replay_goes_on(&mut self) {
        let idle = self.ops.is_empty() && self.saving.is_none();
        let full = self.cache.dirty_bytes() > self.cx.options().leaf_cache_bytes_max / 2;
        let leaves_max = self.cx.options().checkpoint_leaves_max;
        let Some(recovery) = self.recovery() else { return };
        if !idle || !matches!(recovery.wait, Wait::Leaves) {
            return;
        }
        if let Some(error) = recovery.error.take() {
            return self.fail_open(error);
        }
        if recovery.ended {
            return self.finish_replay();
        }
        if full {
            return self.start_checkpoint(leaves_max, |_| None);
        }
        let link = recovery.current;
        match recovery.summary.take() {
            // The summary of this one has been read as proof for the one before.
            Some(summary) => self.summary_known(link, Some(summary)),
            None => self.look_for_summary(),
        }
    }

    pub(crate) fn recovery_checkpointed(&mut self) {
        match self.recovery() {
            Some(Recovery { wait: Wait::Checkpoint, .. }) => {
                self.recovery = None;
                self.cx.start_running();
                self.run_jobs();
            }
            Some(_) => self.replay_goes_on(),
            None => {}
        }
    }

    fn start_walk(&mut self) {
        let blocks = self.cx.options().segment_blocks;
        if let Some(recovery) = self.recovery() {
            let link = recovery.current;
            recovery.summary = None;
            self.read_segment(link.segment, 0, blocks, Wait::Walk(link));
        }
    }

    /// Follows the chain of headers through a segment.
    fn walk(&mut self, link: Link, bytes: &Bytes) {
        let (segment_blocks, segments) = (self.cx.options().segment_blocks, self.cx.options().segments);
        let identity = *self.cx.identity();
        let Some(recovery) = self.recovery() else { return };
        let summary = footer_blocks(&bytes[bytes.len() - BLOCK_SIZE..], segment_blocks).and_then(|blocks| {
            let at = segment_blocks - blocks;
            let summary = Summary::decode(&bytes.slice(at as usize * BLOCK_SIZE..), &identity)?;
            (summary.next_segment < segments && summary.header.blocks() == blocks).then_some(summary)
        });
        let mut block = 0;
        while block < segment_blocks {
            let here = &bytes[block as usize * BLOCK_SIZE..];
            let batch = Batch::decode(here, &identity).filter(|batch| {
                batch.kind == BatchKind::Records
                    && recovery.follows(&batch.header, link, block)
                    && block + batch.header.blocks() < segment_blocks
            });
            // The segment may be full before its last block. What lies there then can be a batch that a crash tore, of
            // an earlier incarnation, which fits the chain as well: the later incarnation has given it up.
            let end = summary.as_ref().filter(|summary| {
                let at = summary.header.block;
                at >= block
                    && recovery.follows(&summary.header, link, at)
                    && batch.is_none_or(|batch| batch.header.incarnation < summary.header.incarnation)
            });
            if let Some(summary) = end {
                let next = next_link(&summary.header, summary.next_segment, link);
                recovery.walked(summary.header, &[], true, Some(next));
                self.read_segment(next.segment, 0, segment_blocks, Wait::Walk(next));
                return;
            }
            let Some(batch) = batch else { break };
            let payload = block + batch.header.header_blocks..block + batch.header.blocks();
            let readable = recovery.unreadable.range(payload).next().is_none();
            block += batch.header.blocks();
            recovery.walked(batch.header, batch.entries, readable && batch.payload_is_whole(), None);
        }
        self.chain_ended(link, bytes);
    }

    /// There is no further whole header in the chain, which ended in `link`.
    fn chain_ended(&mut self, link: Link, bytes: &Bytes) {
        let identity = *self.cx.identity();
        let Some(recovery) = self.recovery() else { return };
        let missing = recovery.sequence;
        if recovery.durable >= missing {
            let unreadable = recovery.unreadable.len();
            let what = format!(
                "batch {missing} is not whole, but was durable (segment {}, of which {unreadable} blocks can't be read)",
                link.segment
            );
            return self.fail_open(OpenError::Damaged(what));
        }
        if let Some(proof) = recovery.proof(bytes, &identity, link.generation) {
            let what = format!(
                "batch {missing} is not whole, but batch {proof} says that it was durable (segment {}, of which {} blocks can't \
                 be read)",
                link.segment,
                recovery.unreadable.len()
            );
            return self.fail_open(OpenError::Damaged(what));
        }
        // If the missing batch is the segment's summary, the proof is in the segment that followed.
        let follows =
            |(_, s): &(u32, &crate::segments::Segment)| s.generation == link.generation + 1 && s.state != State::Free;
        let known = self.cx.segments().iter().find(follows).map(|(segment, _)| segment);
        match known.or_else(|| self.cx.segments().next_free(link.segment)).filter(|s| *s != link.segment) {
            Some(segment) => {
                let blocks = self.cx.options().segment_blocks;
                self.read_segment(segment, 0, blocks, Wait::Probe(segment, link.generation + 1));
            }
            None => self.replay_tail(),
        }
    }

    fn probe(&mut self, segment: u32, generation: u64, bytes: &[u8]) {
        let identity = *self.cx.identity();
        let Some(recovery) = self.recovery() else { return };
        if let Some(proof) = recovery.proof(bytes, &identity, generation) {
            let missing = recovery.sequence;
            let what =
                format!("batch {missing} is not whole, but the log went on in segment {segment} with batch {proof}");
            return self.fail_open(OpenError::Damaged(what));
        }
        self.replay_tail();
    }

    /// Replays what was walked, up to the first batch that was not known to be durable and is not whole.
    fn replay_tail(&mut self) {
        let Some(recovery) = self.recovery() else { return };
        let durable = recovery.durable;
        let torn = recovery.tail.iter().position(|t| !t.payload_whole && t.header.sequence > durable);
        let mut tail = std::mem::take(&mut recovery.tail);
        let first = recovery.current;
        tail.truncate(torn.unwrap_or(tail.len()));
        let (mut link, mut block, mut entered) = (first, 0, false);
        let mut summary = SummaryBuilder::default();
        for batch in &tail {
            if !entered {
                self.enter_segment(link);
                entered = true;
            }
            let header = &batch.header;
            let payload = header.block + header.header_blocks;
            if let Some(next) = batch.next {
                self.cx.log_mut().set_durable(header.sequence);
                self.cx.segments_mut().seal(link.segment);
                (link, block, entered) = (next, 0, false);
                summary = SummaryBuilder::default();
            } else {
                block = header.block + header.blocks();
                summary.push(header, &batch.entries);
                if let Err(error) = self.replay_batch(link, header.sequence, payload, &batch.entries) {
                    return self.fail_open(error);
                }
            }
        }
        if !entered {
            self.enter_segment(link);
        }
        let last = tail.last().map(|batch| batch.header);
        self.log.next_sequence = last.map_or(link.first_sequence, |header| header.sequence + 1);
        self.log.last_crc = last.map_or(link.first_previous, |header| header.crc);
        self.cx.log_mut().set_durable(self.log.next_sequence - 1);
        self.log.head = Some(Head { link, block, for_gc: false, summary });
        self.cx.log_mut().set_head(link, block);
        self.run_blocked();
        self.commit_saved();
        self.cx.log_mut().set_replaying(None);
        if let Some(recovery) = self.recovery() {
            recovery.ended = true;
            recovery.wait = Wait::Leaves;
        }
        self.replay_goes_on();
    }

    /// What the checkpoint knew to be committed is so, also where the log does not say it.
    fn commit_saved(&mut self) {
        let groups: Vec<PgId> = self.groups.iter().map(|(pg, _)| pg).collect();
        for pg in groups {
            let group = self.groups.get_mut(pg);
            let saved = std::mem::take(&mut group.committed_saved);
            if saved >= group.prepared_end {
                group.prepared_end = group.prepared_end.max(saved);
                let end = group.pending.back().map_or(Sequence::ZERO, |p| p.info.header.sequence);
                self.commit_replayed(pg, end);
                let group = self.groups.get_mut(pg);
                group.committed = group.committed.max(saved);
            } else {
                self.commit_replayed(pg, saved);
            }
            let group = self.groups.get_mut(pg);
            group.durable_end = group.prepared_end;
            group.epoch_durable = group.epoch;
            group.incomplete_durable = group.incomplete;
        }
    }

    fn finish_replay(&mut self) {
        // Segments that the checkpoint saw in use, but that the log never durably reached, hold nothing.
        let head = self.cx.log().generation();
        if let Err(segment) = self.cx.segments_mut().forget_after(head) {
            let what = format!("segment {segment} has live blocks, but lies behind the end of the log");
            return self.fail_open(OpenError::Damaged(what));
        }
        if !self.cx.options().flush {
            return self.save_incarnation();
        }
        let io = self.cx.new_io(Io::Recovery);
        self.cx.ask(Effect::Flush { io });
        if let Some(recovery) = self.recovery() {
            recovery.wait = Wait::Flush;
        }
    }

    /// What was read is on stable storage: what is handed out from here on can't be lost.
    pub(crate) fn recovery_flushed(&mut self, result: Result<(), DeviceError>) {
        match result {
            Ok(()) => self.save_incarnation(),
            Err(error) => self.fail_open(OpenError::Device(error)),
        }
    }

    /// A new incarnation is saved before anything is written in it: no two lives of the store ever write batches
    /// that could be taken for each other's.
    fn save_incarnation(&mut self) {
        self.cx.log_mut().begin_incarnation();
        if let Some(recovery) = self.recovery() {
            recovery.wait = Wait::Checkpoint;
        }
        self.start_checkpoint(0, |_| None);
    }

    /// Replays the entries of one batch, whose payload starts at block `payload` of the segment.
    fn replay_batch(&mut self, link: Link, sequence: u64, payload: u32, entries: &[u8]) -> Result<(), OpenError> {
        self.cx.log_mut().set_durable(sequence - 1);
        let mut address = self.cx.segments().address(link.segment, payload);
        for (index, entry) in Entries::new(entries).enumerate() {
            self.replay_entry(link, sequence, index, address, &entry)?;
            address += entry.payload_blocks();
        }
        self.cx.log_mut().set_durable(sequence);
        self.run_blocked();
        Ok(())
    }
}

impl Recovery {
    /// `header` is the batch that must come next, at `block` of `link`.
    fn follows(&self, header: &BatchHeader, link: Link, block: u32) -> bool {
        header.sequence == self.sequence
            && header.previous == self.previous
            && header.incarnation >= self.incarnation
            && self.saved.allows(header)
            && header.generation == link.generation
            && header.segment == link.segment
            && header.block == block
    }

    /// Takes the batch that comes next in the chain.
    fn walked(&mut self, header: BatchHeader, entries: &[u8], payload_whole: bool, next: Option<Link>) {
        self.tail.push(Tail { header, entries: entries.to_vec(), payload_whole, next });
        self.sequence = header.sequence + 1;
        self.previous = header.crc;
        self.incarnation = header.incarnation;
        self.durable = self.durable.max(header.durable);
    }

    /// The sequence of a batch somewhere in `bytes`, blocks of a segment in `generation`, that comes later than the end
    /// of the chain and says that the missing batch was durable.
    fn proof(&self, bytes: &[u8], identity: &Identity, generation: u64) -> Option<u64> {
        let headers = (0..bytes.len()).step_by(BLOCK_SIZE).filter_map(|at| Batch::decode(&bytes[at..], identity));
        let mut proofs = headers.map(|batch| batch.header).filter(|header| {
            header.generation == generation
                && header.incarnation >= self.incarnation
                && self.saved.allows(header)
                && header.sequence > self.sequence
                && header.durable >= self.sequence
        });
        proofs.next().map(|header| header.sequence)
    }
}

fn next_link(summary: &BatchHeader, next_segment: u32, link: Link) -> Link {
    Link {
        segment: next_segment,
        generation: link.generation + 1,
        first_sequence: summary.sequence + 1,
        first_previous: summary.crc,
    }
}

// A frame of a summary stands for a batch header; the two must not drift apart.
const _: () = assert!(size_of::<Frame>() == 24);
