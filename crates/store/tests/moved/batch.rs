//! What a write to the log holds, as docs/formats/log.md says.

pub const KIND_MOVES: u16 = 3;
pub const ENTRY_MOVED: u8 = 15;
const ENTRY_RELOCATED: u8 = 16;
const WITH_PAYLOAD: [u8; 6] = [1, 3, 5, 9, 14, ENTRY_RELOCATED];

pub struct Entry {
    pub kind: u8,
    pub count: u16,
    /// Where blocks were moved to, of a record that says it.
    pub new: u64,
}

pub struct Batch {
    pub kind: u16,
    pub generation: u64,
    pub segment: u32,
    pub block: u32,
    pub header_blocks: u32,
    pub payload_blocks: u32,
    /// None of a summary.
    pub entries: Vec<Entry>,
}

impl Batch {
    /// Of a whole batch.
    pub fn of(bytes: &[u8]) -> Batch {
        assert_eq!(&bytes[..8], b"AZKBATCH");
        let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let kind = u16_at(10);
        let (mut at, mut entries) = (112, Vec::new());
        let end = if kind == 2 { at } else { at + u32_at(100) as usize };
        while at < end {
            let entry = Entry { kind: bytes[at], count: u16_at(at + 2), new: u64::from(u32_at(at + 36)) };
            let head = match entry.kind {
                ENTRY_MOVED => 40,
                ENTRY_RELOCATED => 28,
                _ => 64,
            };
            at += head + if WITH_PAYLOAD.contains(&entry.kind) { usize::from(entry.count) * 4 } else { 0 };
            entries.push(entry);
        }
        let (segment, block) = (u32_at(80), u32_at(84));
        let generation = u64::from_le_bytes(bytes[72..80].try_into().unwrap());
        Batch { kind, generation, segment, block, header_blocks: u32_at(88), payload_blocks: u32_at(92), entries }
    }

    /// It says where blocks were moved to.
    pub fn moves_blocks(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == ENTRY_MOVED)
    }
}
