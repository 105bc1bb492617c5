//! An entry: one record inside a batch header or a segment summary.

use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Checksum, ChunkIndex, Epoch, KeyGeneration, LayerId, PgId, RequestId, Sequence,
    SessionId, WriteHeader,
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
    /// Live blocks that the cleaner has moved, in the segment of moved blocks that has them.
    Relocated = 16,
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
            Kind::Relocated => "relocated",
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
            16 => Kind::Relocated,
            _ => return None,
        })
    }

    /// The payload of an entry of this kind is `count` blocks, and `count` checksums follow the head.
    pub fn has_payload(self) -> bool {
        matches!(
            self,
            Kind::Write | Kind::Repair | Kind::RepairLost | Kind::Relocate | Kind::WriteAgain | Kind::Relocated
        )
    }

    /// Bytes of the fixed part of an entry of this kind.
    pub const fn head_bytes(self) -> usize {
        match self {
            Kind::Moved => size_of::<MovedHead>(),
            Kind::Relocated => size_of::<RelocatedHead>(),
            _ => EntryHead::BYTES,
        }
    }

    /// An entry of this kind names blocks of a chunk.
    pub fn has_range(self) -> bool {
        self.has_payload() || matches!(self, Kind::WriteZero | Kind::RepairZero | Kind::Moved)
    }
}

/// The fixed part of an entry, 64 bytes; of some kinds a shorter one is written. Fields that a kind does not use are
/// zero.
#[derive(Debug, Clone, Copy, Pod, Zeroable, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct EntryHead {
    pub kind: u8,
    /// The generation of the key that the blocks are encrypted under.
    pub key: u8,
    /// Blocks. Epoch: 1 when the commit point jumps beyond what is prepared.
    pub count: u16,
    pub pg: u32,
    pub epoch: u64,
    /// Write: its sequence. Repair: the sequence of the contents. Note: its version.
    pub sequence: u64,
    /// The group's commit point. Epoch: the point after which prepared writes are dropped.
    pub commit: u64,
    /// Relocate, Moved, Relocated: the old address of the first block. MergeLayer: the child.
    pub session: u64,
    /// Moved: the new address of the first block.
    pub request: u64,
    pub layer: u64,
    pub chunk: u32,
    pub first: u16,
    /// Note: its bytes.
    pub note_bytes: u16,
}

/// The fixed part of an entry of kind 15: there is one for each run of moved blocks, in a header and a summary.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MovedHead {
    kind: u8,
    key: u8,
    count: u16,
    pg: u32,
    commit: u64,
    layer: u64,
    chunk: u32,
    first: u16,
    reserved_too: u16,
    old: u32,
    new: u32,
}

/// The fixed part of an entry of kind 16: there is one for each run of moved blocks.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RelocatedHead {
    kind: u8,
    key: u8,
    count: u16,
    pg: u32,
    layer: [u8; 8],
    chunk: u32,
    first: u16,
    reserved_too: u16,
    old: u32,
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

    /// Appends what is written of it.
    pub fn write_to(&self, bytes: &mut Vec<u8>) {
        let EntryHead { kind, key, count, pg, commit, layer, chunk, first, .. } = *self;
        let reserved_too = 0;
        let (old, new) = (self.session as u32, self.request as u32);
        match Kind::from_code(kind) {
            Some(Kind::Moved) => {
                let head = MovedHead { kind, key, count, pg, commit, layer, chunk, first, reserved_too, old, new };
                bytes.extend_from_slice(bytemuck::bytes_of(&head));
            }
            Some(Kind::Relocated) => {
                let layer = layer.to_le_bytes();
                let head = RelocatedHead { kind, key, count, pg, layer, chunk, first, reserved_too, old };
                bytes.extend_from_slice(bytemuck::bytes_of(&head));
            }
            _ => bytes.extend_from_slice(bytemuck::bytes_of(self)),
        }
    }

    /// The fixed part of an entry of this kind, of which `bytes` are all.
    fn read(kind: Kind, bytes: &[u8]) -> EntryHead {
        match kind {
            Kind::Moved => {
                let MovedHead { kind, key, count, pg, commit, layer, chunk, first, old, new, .. } =
                    bytemuck::pod_read_unaligned(bytes);
                let (session, request) = (u64::from(old), u64::from(new));
                let head = EntryHead { kind, key, count, pg, commit, layer, chunk, first, ..EntryHead::zeroed() };
                EntryHead { session, request, ..head }
            }
            Kind::Relocated => {
                let RelocatedHead { kind, key, count, pg, layer, chunk, first, old, .. } =
                    bytemuck::pod_read_unaligned(bytes);
                let (layer, session) = (u64::from_le_bytes(layer), u64::from(old));
                EntryHead { kind, key, count, pg, layer, chunk, first, session, ..EntryHead::zeroed() }
            }
            _ => bytemuck::pod_read_unaligned(bytes),
        }
    }

    /// The same, of blocks that are encrypted under this generation of a key.
    pub fn under(self, key: KeyGeneration) -> EntryHead {
        EntryHead { key: key.number(), ..self }
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
        let kind = Kind::from_code(*bytes.first()?)?;
        let (head, rest) = bytes.split_at_checked(kind.head_bytes())?;
        let head = EntryHead::read(kind, head);
        let entry = EntryView { kind, head, tail: &[] };
        if kind.has_range() && !entry.range().is_valid() || head.key >= KeyGeneration::COUNT {
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

    /// The generation of the key that its blocks are encrypted under.
    pub fn key(&self) -> KeyGeneration {
        KeyGeneration::of_bits(u16::from(self.head.key))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Short heads keep all that their kinds use, up to the largest numbers.
    #[test]
    fn what_is_written_of_a_head_is_read_again() {
        let all = |kind: Kind| EntryHead {
            kind: kind as u8,
            key: 9,
            count: 1,
            pg: u32::MAX - 1,
            epoch: u64::MAX - 2,
            sequence: u64::MAX - 3,
            commit: u64::MAX - 4,
            session: u64::from(u32::MAX - 5),
            request: u64::from(u32::MAX - 6),
            layer: u64::MAX - 7,
            chunk: u32::MAX - 8,
            first: 1_023,
            note_bytes: 0,
        };
        let moved = EntryHead { epoch: 0, sequence: 0, ..all(Kind::Moved) };
        let relocated = EntryHead { epoch: 0, sequence: 0, commit: 0, request: 0, ..all(Kind::Relocated) };
        for (head, tail) in [(moved, 0), (relocated, 4), (all(Kind::Relocate), 4), (all(Kind::Write), 4)] {
            let mut bytes = Vec::new();
            head.write_to(&mut bytes);
            let kind = Kind::from_code(head.kind).unwrap();
            assert_eq!(bytes.len(), kind.head_bytes());
            bytes.resize(bytes.len() + tail, 0xab);
            assert!(Entries::new(&bytes).are_whole(1, if tail > 0 { 1 } else { 0 }), "{kind:?}");
            assert_eq!(Entries::new(&bytes).next().unwrap().head, head);
            bytes.pop();
            assert!(Entries::new(&bytes).next().is_none(), "{kind:?} without the last byte is none");
        }
        assert_eq!((Kind::Moved.head_bytes(), Kind::Relocated.head_bytes(), EntryHead::BYTES), (40, 28, 64));
    }
}
