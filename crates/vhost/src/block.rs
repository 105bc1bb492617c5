//! The block device (virtio 5.2): its features, its configuration space, and what a request asks for.

use crate::{RANGE_SECTORS_MAX, SEGMENTS_MAX};
use azekura_frontend::{Export, REQUEST_BYTES_MAX, Verb};

/// Bytes of a sector, in which the device counts (virtio 5.2.4).
pub const SECTOR: u64 = 512;
/// Bytes of a request's head: its kind, a word without meaning, and its first sector (virtio 5.2.6).
pub const HEADER_BYTES: usize = 16;
/// Bytes of a range of a discard or of a write of zeroes.
pub const RANGE_BYTES: usize = 16;
/// Bytes of the device's identity (virtio 5.2.6).
pub const IDENTITY_BYTES: usize = 20;
/// Sectors of a block of 4 KiB.
const BLOCK_SECTORS: u32 = 8;

/// Feature bits (virtio 5.2.3, and 6 for those of all devices).
pub mod features {
    /// The most segments of a request are known.
    pub const SEG_MAX: u64 = 1 << 2;
    /// Nobody can write.
    pub const RO: u64 = 1 << 5;
    /// The size of a block is known.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// What sizes and alignments are best is known.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// There may be more than one queue.
    pub const MQ: u64 = 1 << 12;
    /// Discard.
    pub const DISCARD: u64 = 1 << 13;
    /// Write of zeroes.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Indirect tables of descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Kicks and calls by index.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// The device is one of virtio 1.
    pub const VERSION_1: u64 = 1 << 32;
}

/// Kinds of requests (virtio 5.2.6).
mod kinds {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// A request's status (virtio 5.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// It is not.
    Error = 1,
    /// The device does not know it.
    Unsupported = 2,
}

/// The features of an export. There is none for a cache that could be flushed (VIRTIO_BLK_F_FLUSH): what is answered is
/// durable, so drivers have nothing to wait for.
#[must_use]
pub fn offered(export: &Export) -> u64 {
    use features::{BLK_SIZE, DISCARD, EVENT_IDX, INDIRECT_DESC, MQ, RO, SEG_MAX, TOPOLOGY, VERSION_1, WRITE_ZEROES};
    let has = |verb, feature| if export.verbs.has(verb) { feature } else { 0 };
    let always = SEG_MAX | BLK_SIZE | TOPOLOGY | MQ | INDIRECT_DESC | EVENT_IDX | VERSION_1;
    let read_only = if export.is_read_only() { RO } else { 0 };
    always | read_only | has(Verb::Trim, DISCARD) | has(Verb::Zero, WRITE_ZEROES)
}

/// The configuration space (virtio 5.2.4).
#[must_use]
pub fn configuration(export: &Export, queues: u16) -> [u8; 60] {
    let mut space = [0; 60];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(export.size / SECTOR).to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    let block = export.logical_block;
    put(20, &block.bytes().to_le_bytes());
    put(24, &[block.physical_power(), 0]);
    // The least size that is a good one, in blocks of BLK_SIZE. No best one: Linux would read ahead twice as much.
    put(26, &(1_u16 << block.physical_power()).to_le_bytes());
    put(34, &queues.to_le_bytes());
    if export.verbs.has(Verb::Trim) {
        [RANGE_SECTORS_MAX, 1, BLOCK_SECTORS].iter().zip([36, 40, 44]).for_each(|(n, at)| put(at, &n.to_le_bytes()));
    }
    if export.verbs.has(Verb::Zero) {
        [RANGE_SECTORS_MAX, 1].iter().zip([48, 52]).for_each(|(number, at)| put(at, &number.to_le_bytes()));
        // Zeros give their space back.
        put(56, &[1]);
    }
    space
}

/// What a request comes to. Offsets and lengths are bytes inside the export, and never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Read into what can be written.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// Write what can be read behind the head.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// Make all durable.
    Flush,
    /// The contents are not needed any more.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Make bytes zeros.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Write the device's identity.
    Identity,
    /// Nothing but this answer.
    Answer(Status),
}

/// What a request's chain has behind its head and before its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Bytes that can be read.
    pub readable: u64,
    /// Bytes that can be written.
    pub writable: u64,
}

/// The sectors of a request, if they are in the export.
fn inside(export: &Export, sector: u64, len: u64) -> Option<u64> {
    let offset = sector.checked_mul(SECTOR)?;
    let fits = len > 0 && len.is_multiple_of(SECTOR) && offset.checked_add(len)? <= export.size;
    fits.then_some(offset)
}

/// What a request asks for (virtio 5.2.6.2). `range` reads the first range of what can be read, where the request has
/// one.
pub fn plan(
    export: &Export,
    header: [u8; HEADER_BYTES],
    data: Data,
    range: impl FnOnce() -> Option<[u8; RANGE_BYTES]>,
) -> Plan {
    let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
    let sector = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
    let refused = Plan::Answer(Status::Error);
    let transfer = |len: u64| inside(export, sector, len).filter(|_| len <= u64::from(REQUEST_BYTES_MAX));
    match (kind, data) {
        (kinds::IN, Data { readable: 0, writable }) => {
            transfer(writable).map_or(refused, |offset| Plan::Read { offset, len: writable as usize })
        }
        (kinds::OUT, Data { readable, writable: 0 }) if export.verbs.has(Verb::Write) => {
            transfer(readable).map_or(refused, |offset| Plan::Write { offset, len: readable as usize })
        }
        (kinds::FLUSH, Data { readable: 0, writable: 0 }) => Plan::Flush,
        (kinds::GET_ID, Data { readable: 0, writable }) if writable == IDENTITY_BYTES as u64 => Plan::Identity,
        (kinds::DISCARD, _) if !export.verbs.has(Verb::Trim) => Plan::Answer(Status::Unsupported),
        (kinds::WRITE_ZEROES, _) if !export.verbs.has(Verb::Zero) => Plan::Answer(Status::Unsupported),
        (kinds::DISCARD | kinds::WRITE_ZEROES, Data { readable, writable: 0 }) if readable == RANGE_BYTES as u64 => {
            range().map_or(refused, |range| ranged(export, kind == kinds::DISCARD, range))
        }
        (kinds::IN | kinds::OUT | kinds::FLUSH | kinds::GET_ID | kinds::DISCARD | kinds::WRITE_ZEROES, _) => refused,
        _ => Plan::Answer(Status::Unsupported),
    }
}

fn ranged(export: &Export, is_discard: bool, range: [u8; RANGE_BYTES]) -> Plan {
    let sector = u64::from_le_bytes(range[..8].try_into().expect("eight bytes"));
    let word = |at: usize| u32::from_le_bytes(range[at..at + 4].try_into().expect("four bytes"));
    let (sectors, flags) = (word(8), word(12));
    // A write of zeroes may say that its space is to be given back, which is done in any case.
    let known = u32::from(!is_discard);
    if flags & !known != 0 {
        return Plan::Answer(Status::Unsupported);
    }
    let len = u64::from(sectors) * SECTOR;
    match inside(export, sector, len).filter(|_| sectors <= RANGE_SECTORS_MAX) {
        Some(offset) if is_discard => Plan::Trim { offset, len },
        Some(offset) => Plan::Zero { offset, len },
        None => Plan::Answer(Status::Error),
    }
}
