//! The chain of batch headers: what may come next, what has come, and what proves that more was durable.

use crate::checkpoint::CheckpointRoot;
use crate::log::format::{Batch, BatchHeader, Frame};
use crate::options::Identity;
use crate::segments::Link;
use azekura_base::BLOCK_SIZE;

/// A batch whose header is whole, in the part of the log that was walked.
#[derive(Debug)]
pub(crate) struct Tail {
    pub header: BatchHeader,
    pub entries: Vec<u8>,
    pub payload_whole: bool,
    /// Of a summary: where the log goes on.
    pub next: Option<Link>,
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

/// What has been followed of the log, from the first segment that was not replayed from its summary.
#[derive(Debug)]
pub(super) struct Chain {
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
}

impl Chain {
    pub fn new(checkpoint: &CheckpointRoot) -> Chain {
        let root = &checkpoint.root;
        Chain {
            tail: Vec::new(),
            sequence: root.position.sequence,
            previous: root.position.previous,
            incarnation: 0,
            durable: root.durable,
            saved: Saved { durable: root.durable, incarnation: root.incarnation },
        }
    }

    /// The sequence that the next batch must have.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Everything up to here is proven to have been durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// `sequence` is proven to have been durable.
    pub fn proven(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence);
    }

    /// What comes next is in `link`, after a segment of `incarnation`.
    pub fn go_on_at(&mut self, link: Link, incarnation: u64) {
        self.sequence = link.first_sequence;
        self.previous = link.first_previous;
        self.incarnation = incarnation;
    }

    /// See [`Saved::allows`].
    pub fn allows(&self, header: &BatchHeader) -> bool {
        self.saved.allows(header)
    }

    /// `header` is the batch that must come next, at `block` of `link`.
    pub fn follows(&self, header: &BatchHeader, link: Link, block: u32) -> bool {
        header.sequence == self.sequence
            && header.previous == self.previous
            && header.incarnation >= self.incarnation
            && self.saved.allows(header)
            && header.generation == link.generation
            && header.segment == link.segment
            && header.block == block
    }

    /// Takes the batch that comes next in the chain.
    pub fn walked(&mut self, header: BatchHeader, entries: &[u8], payload_whole: bool, next: Option<Link>) {
        self.tail.push(Tail { header, entries: entries.to_vec(), payload_whole, next });
        self.sequence = header.sequence + 1;
        self.previous = header.crc;
        self.incarnation = header.incarnation;
        self.durable = self.durable.max(header.durable);
    }

    /// The sequence of a batch somewhere in `bytes`, blocks of a segment in `generation`, that comes later than the end
    /// of the chain and says that the missing batch was durable.
    pub fn proof(&self, bytes: &[u8], identity: &Identity, generation: u64) -> Option<u64> {
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

    /// What was followed, up to the first batch that was not known to be durable and is not whole.
    pub fn take_whole(&mut self) -> Vec<Tail> {
        let mut tail = std::mem::take(&mut self.tail);
        let torn = tail.iter().position(|t| !t.payload_whole && t.header.sequence > self.durable);
        tail.truncate(torn.unwrap_or(tail.len()));
        tail
    }
}

pub(super) fn next_link(summary: &BatchHeader, next_segment: u32, link: Link) -> Link {
    Link {
        segment: next_segment,
        generation: link.generation + 1,
        first_sequence: summary.sequence + 1,
        first_previous: summary.crc,
    }
}

// A frame of a summary stands for a batch header; the two must not drift apart.
const _: () = assert!(size_of::<Frame>() == 24);
