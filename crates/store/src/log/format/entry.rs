//! An entry: one record inside a batch header or a segment summary.

use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Checksum, ChunkIndex, Epoch, LayerId, PgId, RequestId, Sequence, SessionId,
    WriteHeader,
};
use bytemuck::{Pod, Zeroable};

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A prepared write with a payload.
    Write = 1,
    /// A prepared write of zeros.
    WriteZero = 2,
    /// Blocks copied from another replica.
    Repair = 3,
    /// Zeros copied from another replica.
    RepairZero = 4,
    /// Live blocks moved by the cleaner.
    Relocate = 5,
    /// The start of an epoch.
    Epoch = 6,
    /// A note of the replication layer.
    Note = 7,
    /// The end of a layer.
    DropLayer = 8,
    /// A prepared write whose blocks the cleaner has moved.
    WriteAgain = 9,
    /// A chunk is level with another replica's.
    Mark = 10,
    /// The group holds all that it has committed.
    Complete = 11,
    /// The end of a group on this device.
    ForgetGroup = 12,
    /// The end of a layer, whose blocks go to its only child.
    MergeLayer = 13,
    /// Blocks that no replica could give: zeros in their place, and the checksums of what they held (decision 0014).
    RepairLost = 14,
    /// Live blocks that the cleaner has moved into a segment that is not in the chain.
    Moved = 15,
}

impl Kind {
    /// As the tools that show a log call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Write => "write",
            Kind::WriteZero => "write-zero",
            Kind::Repair => "repair",
            Kind::RepairZero => "repair-zero",
            Kind::RepairLost => "repair-lost",
            Kind::Relocate => "relocate",
            Kind::Epoch => "epoch",
            Kind::Note => "note",
            Kind::DropLayer => "drop-layer",
            Kind::WriteAgain => "write-again",
            Kind::Mark => "mark",
            Kind::Complete => "complete",
            Kind::ForgetGroup => "forget-group",
            Kind::MergeLayer => "merge-layer",
            Kind::Moved => "moved",
        }
    }
}

impl Kind {
    fn from_code(code: u8) -> Option<Kind> {
        Some(match code {
            1 => Kind::Write,
            2 => Kind::WriteZero,
            3 => Kind::Repair,
            4 => Kind::RepairZero,
            5 => Kind::Relocate,
            6 => Kind::Epoch,
            7 => Kind::Note,
            8 => Kind::DropLayer,
            9 => Kind::WriteAgain,
            10 => Kind::Mark,
            11 => Kind::Complete,
            12 => Kind::ForgetGroup,
            13 => Kind::MergeLayer,
            14 => Kind::RepairLost,
            15 => Kind::Moved,
            _ => return None,
        })
    }

    /// The payload of an entry of this kind is `count` blocks, and `count` checksums follow the head.
    pub fn has_payload(self) -> bool {
        matches!(self, Kind::Write | Kind::Repair | Kind::RepairLost | Kind::Relocate | Kind::WriteAgain)
    }

    /// An entry of this kind names blocks of a chunk.
    pub fn has_range(self) -> bool {
        self.has_payload() || matches!(self, Kind::WriteZero | Kind::RepairZero | Kind::Moved)
    }
}

/// The fixed part of an entry, 64 bytes. Fields that a kind does not use are zero.
#[derive(Debug, Clone, Copy, Pod, Zeroable, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct EntryHead {
    pub kind: u8,
    pub reserved: u8,
    /// Blocks. Epoch: 1 when the commit point jumps beyond what is prepared.
    pub count: u16,
    pub pg: u32,
    pub epoch: u64,
    /// Write: its sequence. Repair: the sequence of the contents. Note: its version.
    pub sequence: u64,
    /// The group's commit point. Epoch: the point after which prepared writes are dropped.
    pub commit: u64,
    /// Relocate, Moved: the old address of the first block. MergeLayer: the child.
    pub session: u64,
    /// Moved: the new address of the first block.
    pub request: u64,
    pub layer: u64,
    pub chunk: u32,
    pub first: u16,
    /// Note: its bytes.
    pub note_bytes: u16,
}

impl EntryHead {
    pub const BYTES: usize = size_of::<EntryHead>();
    /// Longest note.
    pub const NOTE_BYTES_MAX: usize = 1024;

    pub fn new(kind: Kind) -> EntryHead {
        EntryHead { kind: kind as u8, ..EntryHead::zeroed() }
    }

    /// Of a record that names blocks.
    pub fn of_range(kind: Kind, pg: PgId, range: &BlockRange) -> EntryHead {
        EntryHead {
            pg: pg.0,
            layer: range.layer.0,
            chunk: range.chunk.0,
            first: range.first.0,
            count: range.count,
            ..EntryHead::new(kind)
        }
    }

    /// Of a write.
    pub fn of_write(kind: Kind, write: &WriteHeader) -> EntryHead {
        EntryHead {
            epoch: write.epoch.0,
            sequence: write.sequence.0,
            commit: write.commit.0,
            session: write.session.0,
            request: write.request.0,
            ..EntryHead::of_range(kind, write.pg, &write.range)
        }
    }
}

/// A checked entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryView<'a> {
    pub kind: Kind,
    pub head: EntryHead,
    tail: &'a [u8],
}

impl<'a> EntryView<'a> {
    /// Cuts the first entry off `bytes`.
    fn split(bytes: &'a [u8]) -> Option<(EntryView<'a>, &'a [u8])> {
        let (head, rest) = bytes.split_at_checked(EntryHead::BYTES)?;
        let head: EntryHead = bytemuck::pod_read_unaligned(head);
        let kind = Kind::from_code(head.kind)?;
        let entry = EntryView { kind, head, tail: &[] };
        if kind.has_range() && !entry.range().is_valid() {
            return None;
        }
        let tail_bytes = match kind {
            Kind::Note if usize::from(head.note_bytes) <= EntryHead::NOTE_BYTES_MAX => {
                usize::from(head.note_bytes).next_multiple_of(4)
            }
            Kind::Note => return None,
            Kind::RepairLost => usize::from(head.count) * 8,
            kind if kind.has_payload() => usize::from(head.count) * 4,
            _ => 0,
        };
        let (tail, rest) = rest.split_at_checked(tail_bytes)?;
        Some((EntryView { tail, ..entry }, rest))
    }

    pub fn payload_blocks(&self) -> u32 {
        if self.kind.has_payload() { u32::from(self.head.count) } else { 0 }
    }

    pub fn pg(&self) -> PgId {
        PgId(self.head.pg)
    }

    pub fn layer(&self) -> LayerId {
        LayerId(self.head.layer)
    }

    /// The blocks that it names.
    pub fn range(&self) -> BlockRange {
        BlockRange {
            layer: self.layer(),
            chunk: ChunkIndex(self.head.chunk),
            first: BlockIndex(self.head.first),
            count: self.head.count,
        }
    }

    /// Of a write.
    pub fn write(&self) -> WriteHeader {
        WriteHeader {
            pg: self.pg(),
            epoch: Epoch(self.head.epoch),
            sequence: Sequence(self.head.sequence),
            commit: Sequence(self.head.commit),
            session: SessionId(self.head.session),
            request: RequestId(self.head.request),
            range: self.range(),
        }
    }

    pub fn checksums(&self) -> impl ExactSizeIterator<Item = Checksum> + 'a {
        let blocks = if self.kind.has_payload() { usize::from(self.head.count) } else { 0 };
        sums(&self.tail[..blocks * 4])
    }

    /// Of what the blocks held that are lost.
    pub fn lost_checksums(&self) -> impl ExactSizeIterator<Item = Checksum> + 'a {
        let blocks = if self.kind == Kind::RepairLost { usize::from(self.head.count) } else { 0 };
        sums(&self.tail[blocks * 4..blocks * 8])
    }

    pub fn note(&self) -> &'a [u8] {
        if self.kind == Kind::Note { &self.tail[..usize::from(self.head.note_bytes)] } else { &[] }
    }

    /// The payload, whose first byte is at `payload[0]`, is what was written.
    pub fn payload_is_whole(&self, payload: &[u8]) -> bool {
        self.checksums().zip(payload.chunks_exact(BLOCK_SIZE)).all(|(sum, block)| azekura_base::checksum(block) == sum)
    }
}

fn sums(bytes: &[u8]) -> impl ExactSizeIterator<Item = Checksum> {
    bytes.chunks_exact(4).map(|c| Checksum(u32::from_le_bytes([c[0], c[1], c[2], c[3]])))
}

/// Walks over encoded entries. `None` in the middle means that they are malformed.
#[derive(Debug, Clone)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
}

impl<'a> Entries<'a> {
    pub fn new(bytes: &'a [u8]) -> Entries<'a> {
        Entries { bytes }
    }

    /// All bytes are whole entries: `count` of them, with `payload_blocks` blocks between them.
    pub fn are_whole(&self, count: u32, payload_blocks: u32) -> bool {
        let mut rest = self.bytes;
        let (mut entries, mut blocks) = (0, 0);
        while !rest.is_empty() {
            let Some((entry, after)) = EntryView::split(rest) else { return false };
            entries += 1;
            blocks += entry.payload_blocks();
            rest = after;
        }
        entries == count && blocks == payload_blocks
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = EntryView<'a>;

    fn next(&mut self) -> Option<EntryView<'a>> {
        let (entry, rest) = EntryView::split(self.bytes)?;
        self.bytes = rest;
        Some(entry)
    }
}
