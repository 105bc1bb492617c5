//! What a driver has put into a ring: a chain of descriptors (virtio 2.7.5). A chain is copied once, and what it says
//! is judged by the copy: the guest may write on meanwhile.

use crate::CHAIN_MAX;
use crate::fault::Fault;
use crate::memory::{Place, Regions};

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;
/// The chain goes on (VIRTQ_DESC_F_NEXT).
const NEXT: u16 = 1;
/// This side writes (VIRTQ_DESC_F_WRITE).
const WRITE: u16 = 2;
/// More descriptors are there (VIRTQ_DESC_F_INDIRECT).
const INDIRECT: u16 = 4;

/// Bytes of the guest's memory, one after the other; never none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The guest's address of the first.
    pub address: u64,
    /// How many.
    pub bytes: u32,
}

/// A chain. Segments without bytes are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// What this side reads.
    pub readable: Vec<Segment>,
    /// What this side writes.
    pub writable: Vec<Segment>,
    /// All that is to be read stands before all that is to be written (virtio 2.7.4.2).
    pub is_ordered: bool,
}

/// One descriptor.
struct Descriptor {
    address: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn of(bytes: &[u8]) -> Descriptor {
        let short = |at| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Descriptor {
            address: u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
            bytes: u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")),
            flags: short(12),
            next: short(14),
        }
    }
}

impl Chain {
    /// Reads the chain that begins at `head` in a table of `entries` descriptors.
    ///
    /// # Errors
    /// When it leads out of the table, or has more than [`CHAIN_MAX`] descriptors, as one that never ends; or when an
    /// indirect table (virtio 2.7.5.3) comes unasked or is none.
    pub fn read(
        regions: &Regions,
        table: Place,
        entries: u16,
        head: u16,
        may_be_indirect: bool,
    ) -> Result<Chain, Fault> {
        let mut chain = Chain { is_ordered: true, ..Chain::default() };
        let (mut index, mut count) = (head, 0);
        loop {
            if index >= entries {
                return Err(Fault::Descriptor(index));
            }
            count += 1;
            if count > entries {
                return Err(Fault::Endless);
            }
            let mut bytes = [0; DESCRIPTOR_BYTES];
            let at = table.plus(usize::from(index) * DESCRIPTOR_BYTES);
            regions.read_at(at, &mut bytes).ok_or(Fault::NotInMemory)?;
            let descriptor = Descriptor::of(&bytes);
            if descriptor.flags & INDIRECT != 0 {
                if !may_be_indirect || descriptor.flags & NEXT != 0 {
                    return Err(Fault::Indirect("it was not agreed on, or the chain goes on behind"));
                }
                chain.read_table(regions, &descriptor)?;
                return Ok(chain);
            }
            chain.add(&descriptor);
            if descriptor.flags & NEXT == 0 {
                return Ok(chain);
            }
            index = descriptor.next;
        }
    }

    fn read_table(&mut self, regions: &Regions, table: &Descriptor) -> Result<(), Fault> {
        let len = table.bytes as usize;
        if len == 0 || !len.is_multiple_of(DESCRIPTOR_BYTES) || len > CHAIN_MAX * DESCRIPTOR_BYTES {
            return Err(Fault::Indirect("its length is none of a table"));
        }
        let mut bytes = vec![0; len];
        regions.read(table.address, &mut bytes).ok_or(Fault::NotInMemory)?;
        let entries = len / DESCRIPTOR_BYTES;
        let mut index = 0;
        for _ in 0..entries {
            let at = index * DESCRIPTOR_BYTES;
            let bytes = bytes.get(at..at + DESCRIPTOR_BYTES).ok_or(Fault::Descriptor(index as u16))?;
            let descriptor = Descriptor::of(bytes);
            if descriptor.flags & INDIRECT != 0 {
                return Err(Fault::Indirect("it is in a table itself"));
            }
            self.add(&descriptor);
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next.into();
        }
        Err(Fault::Endless)
    }

    fn add(&mut self, descriptor: &Descriptor) {
        let is_writable = descriptor.flags & WRITE != 0;
        self.is_ordered &= is_writable || self.writable.is_empty();
        if descriptor.bytes > 0 {
            let side = if is_writable { &mut self.writable } else { &mut self.readable };
            side.push(Segment { address: descriptor.address, bytes: descriptor.bytes });
        }
    }

    /// Bytes that can be read.
    #[must_use]
    pub fn readable_bytes(&self) -> u64 {
        bytes(&self.readable)
    }

    /// Takes the last byte that can be written: where the status goes. Its address; `None` when nothing can be written.
    pub fn take_status(&mut self) -> Option<u64> {
        let last = self.writable.last_mut()?;
        last.bytes -= 1;
        let address = last.address.checked_add(last.bytes.into());
        if last.bytes == 0 {
            self.writable.pop();
        }
        address
    }

    /// Copies what can be read, from byte `skip` on.
    pub fn copy_from(&self, regions: &Regions, mut skip: u64, into: &mut [u8]) -> Option<()> {
        let mut done = 0;
        for segment in &self.readable {
            let (address, bytes) = (segment.address, u64::from(segment.bytes));
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let part = usize::try_from(bytes - skip).unwrap_or(usize::MAX).min(into.len() - done);
            regions.read(address.checked_add(skip)?, &mut into[done..done + part])?;
            (done, skip) = (done + part, 0);
            if done == into.len() {
                break;
            }
        }
        (done == into.len()).then_some(())
    }
}

/// Bytes of all.
#[must_use]
pub fn bytes(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.bytes)).sum()
}

/// Fills segments from the first byte on.
pub struct Filler<'a> {
    regions: &'a Regions,
    segments: std::slice::Iter<'a, Segment>,
    /// What is left of the segment that is being filled.
    address: u64,
    bytes: usize,
}

impl<'a> Filler<'a> {
    /// Nothing is filled yet.
    #[must_use]
    pub fn new(regions: &'a Regions, segments: &'a [Segment]) -> Filler<'a> {
        Filler { regions, segments: segments.iter(), address: 0, bytes: 0 }
    }

    /// Copies what comes next. `None` when there is no room for it, or its memory is gone.
    pub fn put(&mut self, mut from: &[u8]) -> Option<()> {
        while !from.is_empty() {
            if self.bytes == 0 {
                let segment = self.segments.next()?;
                (self.address, self.bytes) = (segment.address, segment.bytes as usize);
            }
            let (part, rest) = from.split_at(self.bytes.min(from.len()));
            self.regions.write(self.address, part)?;
            self.address = self.address.checked_add(part.len() as u64)?;
            self.bytes -= part.len();
            from = rest;
        }
        Some(())
    }
}
