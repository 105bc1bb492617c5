//! Commands of I/O queues (NVM section 3.2, Base section 7.1).

use super::reservation::Reservation;
use super::{Entry, Sgl};
use crate::completion::Status;
use crate::fields::{put_at, u32_at, u64_at};

/// Bytes of a range of Dataset Management (NVM section 3.2.3).
pub const RANGE_SIZE: usize = 16;

/// Logical blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// NSID.
    pub namespace: u32,
    /// SLBA: the first.
    pub first: u64,
    /// How many: 1 to 65536, of NLB, which counts from 0.
    pub count: u32,
}

/// What I/O commands of a range have in Command Dword 12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// LR: do not try long.
    pub is_hasty: bool,
    /// FUA: durable when it is answered.
    pub is_durable: bool,
    /// DEAC, of Write Zeroes: the blocks should take no space.
    pub deallocates: bool,
}

/// A command of an I/O queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Flush (Base section 7.1).
    Flush {
        /// NSID; 0xffffffff for all.
        namespace: u32,
    },
    /// Write (NVM section 3.2.6).
    Write(Blocks, Flags),
    /// Read (NVM section 3.2.4).
    Read(Blocks, Flags),
    /// Compare (NVM section 3.2.1).
    Compare(Blocks, Flags),
    /// Write Zeroes (NVM section 3.2.8).
    WriteZeroes(Blocks, Flags),
    /// Verify (NVM section 3.2.5).
    Verify(Blocks, Flags),
    /// Dataset Management (NVM section 3.2.3).
    DatasetManagement {
        /// NSID.
        namespace: u32,
        /// How many ranges its data has: 1 to 256.
        ranges: u16,
        /// AD: the host does not need what is in them.
        deallocates: bool,
    },
    /// A command of reservations (Base sections 7.2 to 7.5).
    Reservation {
        /// NSID.
        namespace: u32,
        /// The command.
        command: Reservation,
    },
}

impl Io {
    pub(super) fn of(entry: &Entry) -> Result<Io, Status> {
        let (namespace, twelve) = (entry.namespace(), entry.dword(12));
        let first = u64::from(entry.dword(10)) | u64::from(entry.dword(11)) << 32;
        let blocks = Blocks { namespace, first, count: (twelve & 0xffff) + 1 };
        let opcode = entry.opcode();
        let flags = Flags {
            is_hasty: twelve & 1 << 31 != 0,
            is_durable: twelve & 1 << 30 != 0,
            deallocates: opcode == 0x08 && twelve & 1 << 25 != 0,
        };
        Ok(match opcode {
            0x00 => Io::Flush { namespace },
            0x01 => Io::Write(blocks, flags),
            0x02 => Io::Read(blocks, flags),
            0x05 => Io::Compare(blocks, flags),
            0x08 => Io::WriteZeroes(blocks, flags),
            0x09 => Io::DatasetManagement {
                namespace,
                ranges: (entry.dword(10) & 0xff) as u16 + 1,
                deallocates: entry.dword(11) & 4 != 0,
            },
            0x0c => Io::Verify(blocks, flags),
            _ => {
                let command = Reservation::of(entry)?.ok_or(Status::INVALID_OPCODE)?;
                Io::Reservation { namespace, command }
            }
        })
    }

    pub(super) fn entry(&self, id: u16, sgl: &Sgl) -> Entry {
        let range = |opcode, blocks: Blocks, flags: Flags| {
            let mut entry = Entry::new(opcode, id, sgl);
            entry.put_namespace(blocks.namespace);
            entry.put_dword(10, blocks.first as u32);
            entry.put_dword(11, (blocks.first >> 32) as u32);
            let deallocates = u32::from(flags.deallocates && opcode == 0x08) << 25;
            let flags = u32::from(flags.is_hasty) << 31 | u32::from(flags.is_durable) << 30 | deallocates;
            entry.put_dword(12, blocks.count.saturating_sub(1) & 0xffff | flags);
            entry
        };
        match *self {
            Io::Flush { namespace } => {
                let mut entry = Entry::new(0x00, id, sgl);
                entry.put_namespace(namespace);
                entry
            }
            Io::Write(blocks, flags) => range(0x01, blocks, flags),
            Io::Read(blocks, flags) => range(0x02, blocks, flags),
            Io::Compare(blocks, flags) => range(0x05, blocks, flags),
            Io::WriteZeroes(blocks, flags) => range(0x08, blocks, flags),
            Io::Verify(blocks, flags) => range(0x0c, blocks, flags),
            Io::DatasetManagement { namespace, ranges, deallocates } => {
                let mut entry = Entry::new(0x09, id, sgl);
                entry.put_namespace(namespace);
                entry.put_dword(10, u32::from(ranges.saturating_sub(1) & 0xff));
                entry.put_dword(11, u32::from(deallocates) << 2);
                entry
            }
            Io::Reservation { namespace, command } => command.entry(namespace, id, sgl),
        }
    }
}

/// A range of Dataset Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first block.
    pub first: u64,
    /// How many; a range may have none.
    pub count: u32,
}

impl Range {
    /// The ranges of a command's data.
    ///
    /// # Errors
    /// When it has fewer than the command says.
    pub fn list(data: &[u8], ranges: u16) -> Result<Vec<Range>, Status> {
        let data = data.get(..usize::from(ranges) * RANGE_SIZE).ok_or(Status::SGL_LENGTH_INVALID)?;
        let (ranges, _) = data.as_chunks::<RANGE_SIZE>();
        Ok(ranges.iter().map(|range| Range { count: u32_at(range, 4), first: u64_at(range, 8) }).collect())
    }

    /// Its bytes; no attributes of its context.
    #[must_use]
    pub fn bytes(&self) -> [u8; RANGE_SIZE] {
        let mut bytes = [0; RANGE_SIZE];
        put_at(&mut bytes, 4, &self.count.to_le_bytes());
        put_at(&mut bytes, 8, &self.first.to_le_bytes());
        bytes
    }
}
