//! The scan: from the last checkpoint, along the log, to its end.
//!
//! A full segment is replayed from its summary, without looking at its payloads, when the summary of the segment after
//! it proves that all of it was durable. The segments after that are walked: headers are followed by their
//! chain, and payloads that may have been in flight at the crash are verified. The first batch that is not whole ends
//! the log; what lies behind it was never acknowledged. If something behind it proves that it *was* durable, the log is
//! damaged, and opening fails instead of losing acknowledged writes. A block that can't be read is one that is not
//! whole.
//!
//! ```text
//!   superblock ─► footer ─► summary ─► footer and summary of the next segment
//!                   ▲          │ none         │ they prove it      │ they don't
//!                   │          ▼              ▼                    ▼
//!                   │        walk ◄───────────┼────────────────────┘
//!                   │          │ chain ended  │
//!                   │          ▼              ▼
//!                   │        probe      replay the segment ─► leaves ─┐
//!                   │          │                                      │
//!                   │          ▼                                      │
//!                   └──────────┼──────────────────────────────────────┘
//!                       replay the tail ─► leaves ─► flush ─► checkpoint ─► open
//! ```
//!
//! The scan reads and decides; whoever drives it replays what it has [`Found`], and says when leaves have settled.

use crate::checkpoint::CheckpointRoot;
use crate::cx::{Io, StoreCx};
use crate::effect::{DeviceError, Effect, OpenError};
use crate::log::format::{Batch, BatchKind, Summary, Superblock, footer_blocks};
use crate::recovery::chain::{Chain, Tail, next_link};
use crate::recovery::rereading::{Next, Rereading};
use crate::segments::{Link, Segment, Segments, State};
use azekura_base::BLOCK_SIZE;
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
    /// The first of some segments in which the log may have gone on, in this generation.
    Probe(Vec<u32>, u64),
    /// Leaves that replayed records need.
    Leaves,
    Flush,
    Checkpoint,
}

/// What the scan has come to.
#[derive(Debug)]
pub(crate) enum Found {
    /// More has been asked for.
    Nothing,
    /// A full segment, to be replayed from its summary.
    Segment(Link, Summary),
    /// The last batches, from the beginning of this segment on. Nothing comes after them.
    Tail(Link, Vec<Tail>),
}

/// The state of the scan. See the module's description.
#[derive(Debug)]
pub(crate) struct Recovery {
    wait: Wait,
    /// What was asked of the device last: address and blocks.
    asked: (u32, u32),
    /// What was asked could not be read at once.
    rereading: Option<Rereading>,
    /// Unreadable blocks of what was read last, counted from its first.
    unreadable: BTreeSet<u32>,
    /// The first segment that has not been replayed.
    current: Link,
    /// The summary of `current`, not yet proven.
    summary: Option<Summary>,
    chain: Chain,
    /// Everything is replayed: what is left is to save the new incarnation.
    ended: bool,
}

impl Recovery {
    pub fn new(checkpoint: &CheckpointRoot) -> Recovery {
        let position = checkpoint.root.position;
        let current = Link {
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
            current,
            summary: None,
            chain: Chain::new(checkpoint),
            ended: false,
        }
    }

    /// Asks for the superblock.
    pub fn start(&mut self, cx: &mut StoreCx) {
        cx.log_mut().set_replaying(Some(self.current));
        let io = cx.new_io(Io::Recovery);
        cx.ask(Effect::Read { io, offset: 0, len: Superblock::BYTES });
    }

    /// A read has ended.
    ///
    /// # Errors
    /// When the device can't be opened.
    pub fn on_read(&mut self, cx: &mut StoreCx, result: Result<Bytes, DeviceError>) -> Result<Found, OpenError> {
        let next = match (self.rereading.as_mut(), result) {
            (Some(rereading), result) => rereading.read(result),
            (None, Ok(bytes)) => Next::Done(bytes, BTreeSet::new()),
            (None, Err(_)) => {
                let (address, blocks) = self.asked;
                let (first, piece) = self.rereading.insert(Rereading::new(address, blocks)).first();
                Next::Read(first, piece)
            }
        };
        match next {
            Next::Read(address, blocks) => {
                ask_device(cx, address, blocks);
                Ok(Found::Nothing)
            }
            Next::Failed(error) => Err(OpenError::Device(error)),
            Next::Done(bytes, unreadable) => {
                (self.rereading, self.unreadable) = (None, unreadable);
                self.has(cx, &bytes)
            }
        }
    }

    /// What was replayed last has settled: the next segment may follow.
    pub fn waits_for_leaves(&self) -> bool {
        matches!(self.wait, Wait::Leaves)
    }

    /// All of the log has been replayed.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The checkpoint that is being saved is the one that opening ends with.
    pub fn waits_for_checkpoint(&self) -> bool {
        matches!(self.wait, Wait::Checkpoint)
    }

    /// Goes on with the next segment.
    pub fn go_on(&mut self, cx: &mut StoreCx) -> Found {
        let link = self.current;
        match self.summary.take() {
            // The summary of this one has been read as proof for the one before.
            Some(summary) => self.summary_known(cx, link, Some(summary)),
            None => self.read_footer(cx, link),
        }
    }

    /// All of the log has been replayed and has settled: asks that what was read is on stable storage. False: all of it
    /// is there already.
    ///
    /// # Errors
    /// When the map knows of blocks behind the end of the log.
    pub fn flush(&mut self, cx: &mut StoreCx) -> Result<bool, OpenError> {
        // Segments that the checkpoint saw in use, but that the log never durably reached, hold nothing.
        let head = cx.log().generation();
        if let Err(segment) = cx.segments_mut().forget_after(head) {
            let what = format!("segment {segment} has live blocks, but lies behind the end of the log");
            return Err(OpenError::Damaged(what));
        }
        if !cx.options().flush {
            return Ok(false);
        }
        let io = cx.new_io(Io::Recovery);
        cx.ask(Effect::Flush { io });
        self.wait = Wait::Flush;
        Ok(true)
    }

    /// A new incarnation is to be saved before anything is written in it: no two lives of the store ever write batches
    /// that could be taken for each other's.
    pub fn begin_incarnation(&mut self, cx: &mut StoreCx) {
        cx.log_mut().begin_incarnation();
        self.wait = Wait::Checkpoint;
    }

    fn read_segment(&mut self, cx: &mut StoreCx, segment: u32, first: u32, blocks: u32, wait: Wait) -> Found {
        let address = cx.segments().address(segment, first);
        self.wait = wait;
        self.asked = (address, blocks);
        self.unreadable.clear();
        ask_device(cx, address, blocks);
        Found::Nothing
    }

    fn read_footer(&mut self, cx: &mut StoreCx, link: Link) -> Found {
        let last = cx.options().segment_blocks - 1;
        self.read_segment(cx, link.segment, last, 1, Wait::Footer(link))
    }

    fn read_whole(&mut self, cx: &mut StoreCx, segment: u32, wait: Wait) -> Found {
        let blocks = cx.options().segment_blocks;
        self.read_segment(cx, segment, 0, blocks, wait)
    }

    /// What was waited for has been read, as far as it can be.
    fn has(&mut self, cx: &mut StoreCx, bytes: &Bytes) -> Result<Found, OpenError> {
        match std::mem::replace(&mut self.wait, Wait::Leaves) {
            Wait::Superblock => self.check_superblock(cx, bytes),
            Wait::Footer(link) => Ok(match footer_blocks(bytes, cx.options().segment_blocks) {
                Some(blocks) => {
                    let first = cx.options().segment_blocks - blocks;
                    self.read_segment(cx, link.segment, first, blocks, Wait::Summary(link))
                }
                None => self.summary_known(cx, link, None),
            }),
            Wait::Summary(link) => {
                let options = cx.options();
                let summary = Summary::decode(bytes, cx.identity()).filter(|summary| {
                    let header = &summary.header;
                    header.generation == link.generation
                        && header.segment == link.segment
                        && header.block + header.blocks() == options.segment_blocks
                        && summary.first_sequence == link.first_sequence
                        && summary.first_previous == link.first_previous
                        && header.sequence == link.first_sequence + u64::from(summary.batches)
                        && self.chain.allows(header)
                        && summary.next_segment < options.segments
                        && summary.next_segment != link.segment
                });
                Ok(self.summary_known(cx, link, summary))
            }
            Wait::Walk(link) => self.walk(cx, link, bytes),
            Wait::Probe(candidates, generation) => self.probe(cx, candidates, generation, bytes),
            Wait::Leaves | Wait::Flush | Wait::Checkpoint => Ok(Found::Nothing),
        }
    }

    fn check_superblock(&mut self, cx: &mut StoreCx, bytes: &[u8]) -> Result<Found, OpenError> {
        let superblock = Superblock::decode(bytes)?;
        let (ours, theirs) = (*cx.identity(), superblock.identity);
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
            return Err(OpenError::Identity(problem));
        }
        let options = cx.options();
        if (superblock.segments, superblock.segment_blocks) != (options.segments, options.segment_blocks) {
            return Err(OpenError::Options(format!(
                "the device was formatted with {} segments of {} blocks, not {} of {}",
                superblock.segments, superblock.segment_blocks, options.segments, options.segment_blocks
            )));
        }
        Ok(self.read_footer(cx, self.current))
    }

    /// It is known whether `link` has a summary.
    fn summary_known(&mut self, cx: &mut StoreCx, link: Link, summary: Option<Summary>) -> Found {
        if link == self.current {
            let Some(summary) = summary else { return self.start_walk(cx) };
            // That the checkpoint saw this sequence durable proves nothing: the summary may be of an incarnation before
            // it, given up since. Only a segment that names this very summary as the one before it is proof.
            let next = next_link(&summary.header, summary.next_segment, link);
            self.summary = Some(summary);
            return self.read_footer(cx, next);
        }
        // The summary asked for was of the segment after the current one: does it prove the current one?
        let Some(current) = &self.summary else { return Found::Nothing };
        let proof = summary.filter(|summary| {
            summary.header.durable >= current.header.sequence
                && summary.header.incarnation >= current.header.incarnation
        });
        match proof {
            Some(proof) => {
                self.chain.proven(proof.header.durable);
                self.segment_proven(cx, link, proof)
            }
            None => self.start_walk(cx),
        }
    }

    /// The current segment is to be replayed from its summary; the log goes on at `next`, whose summary is known.
    fn segment_proven(&mut self, cx: &mut StoreCx, next: Link, next_summary: Summary) -> Found {
        let Some(summary) = self.summary.replace(next_summary) else { return Found::Nothing };
        let link = std::mem::replace(&mut self.current, next);
        cx.log_mut().set_replaying(Some(next));
        self.chain.go_on_at(next, summary.header.incarnation);
        self.wait = Wait::Leaves;
        Found::Segment(link, summary)
    }

    fn start_walk(&mut self, cx: &mut StoreCx) -> Found {
        let link = self.current;
        self.summary = None;
        self.read_whole(cx, link.segment, Wait::Walk(link))
    }

    /// Follows the chain of headers through a segment.
    fn walk(&mut self, cx: &mut StoreCx, link: Link, bytes: &Bytes) -> Result<Found, OpenError> {
        let (segment_blocks, segments) = (cx.options().segment_blocks, cx.options().segments);
        let identity = *cx.identity();
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
                    && self.chain.follows(&batch.header, link, block)
                    && block + batch.header.blocks() < segment_blocks
            });
            // The segment may be full before its last block. What lies there then can be a batch that a crash tore, of
            // an earlier incarnation, which fits the chain as well: the later incarnation has given it up.
            let end = summary.as_ref().filter(|summary| {
                let at = summary.header.block;
                at >= block
                    && self.chain.follows(&summary.header, link, at)
                    && batch.is_none_or(|batch| batch.header.incarnation < summary.header.incarnation)
            });
            if let Some(summary) = end {
                let next = next_link(&summary.header, summary.next_segment, link);
                self.chain.walked(summary.header, &[], true, Some(next));
                return Ok(self.read_whole(cx, next.segment, Wait::Walk(next)));
            }
            let Some(batch) = batch else { break };
            let payload = block + batch.header.header_blocks..block + batch.header.blocks();
            let readable = self.unreadable.range(payload).next().is_none();
            block += batch.header.blocks();
            self.chain.walked(batch.header, batch.entries, readable && batch.payload_is_whole(), None);
        }
        self.chain_ended(cx, link, bytes)
    }

    /// There is no further whole header in the chain, which ended in `link`.
    fn chain_ended(&mut self, cx: &mut StoreCx, link: Link, bytes: &Bytes) -> Result<Found, OpenError> {
        let (missing, unreadable) = (self.chain.sequence(), self.unreadable.len());
        if self.chain.durable() >= missing {
            let what = format!(
                "batch {missing} is not whole, but was durable (segment {}, of which {unreadable} blocks can't be read)",
                link.segment
            );
            return Err(OpenError::Damaged(what));
        }
        if let Some(proof) = self.chain.proof(bytes, cx.identity(), link.generation) {
            let what = format!(
                "batch {missing} is not whole, but batch {proof} says that it was durable (segment {}, of which \
                 {unreadable} blocks can't be read)",
                link.segment
            );
            return Err(OpenError::Damaged(what));
        }
        // If the missing batch is the segment's summary, the proof is in the segment that followed.
        // Segments of moved blocks have generations of the chain as well, and need not be known as such.
        let follows = |(_, s): &(u32, &Segment)| s.generation == link.generation + 1 && s.state != State::Free;
        let known = cx.segments().iter().filter(follows).map(|(segment, _)| segment);
        let mut candidates: Vec<u32> = known.chain(cx.segments().next_free(link.segment)).collect();
        candidates.retain(|segment| *segment != link.segment);
        Ok(self.probe_next(cx, candidates, link.generation + 1))
    }

    fn probe_next(&mut self, cx: &mut StoreCx, candidates: Vec<u32>, generation: u64) -> Found {
        match candidates.first() {
            Some(segment) => self.read_whole(cx, *segment, Wait::Probe(candidates, generation)),
            None => self.tail(cx),
        }
    }

    fn probe(
        &mut self,
        cx: &mut StoreCx,
        mut candidates: Vec<u32>,
        generation: u64,
        bytes: &[u8],
    ) -> Result<Found, OpenError> {
        let segment = candidates.remove(0);
        if let Some(proof) = self.chain.proof(bytes, cx.identity(), generation) {
            let missing = self.chain.sequence();
            let what =
                format!("batch {missing} is not whole, but the log went on in segment {segment} with batch {proof}");
            return Err(OpenError::Damaged(what));
        }
        Ok(self.probe_next(cx, candidates, generation))
    }

    /// The end of the log has been found.
    fn tail(&mut self, cx: &mut StoreCx) -> Found {
        self.ended = true;
        self.wait = Wait::Leaves;
        cx.log_mut().set_replaying(None);
        Found::Tail(self.current, self.chain.take_whole())
    }
}

fn ask_device(cx: &mut StoreCx, address: u32, blocks: u32) {
    let io = cx.new_io(Io::Recovery);
    let (offset, len) = (Segments::offset(address), blocks as usize * BLOCK_SIZE);
    cx.ask(Effect::Read { io, offset, len });
}
