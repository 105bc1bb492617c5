//! Data that a controller has asked hosts for (TCP section 3.3.2.2): what may come, and in which order.

use super::{DataHeader, Fatal, ReadyToTransfer};
use std::collections::BTreeMap;

/// An R2T that is not answered in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transfer {
    command: u16,
    /// The first byte, counted from the command's first.
    begin: u32,
    /// The next byte that is to come.
    next: u32,
    /// The byte behind the last.
    end: u32,
}

/// All that a queue's controller has asked for.
#[derive(Debug)]
pub struct Transfers {
    by_tag: BTreeMap<u16, Transfer>,
    max: usize,
    /// The last tag that was given.
    last: u16,
}

impl Transfers {
    /// At most `max` transfers at a time.
    #[must_use]
    pub fn new(max: usize) -> Transfers {
        Transfers { by_tag: BTreeMap::new(), max: max.clamp(1, usize::from(u16::MAX)), last: 0 }
    }

    /// Asks for `len` bytes of a command, from `offset` on: the R2T that says so, under a tag that no other transfer
    /// has, and that was not used a moment ago. `None` when there are as many as there may be, or nothing is asked for,
    /// or a command has no such byte.
    pub fn ask(&mut self, command: u16, offset: u32, len: u32) -> Option<ReadyToTransfer> {
        let end = offset.checked_add(len).filter(|_| len > 0)?;
        if self.by_tag.len() >= self.max {
            return None;
        }
        // There are fewer transfers than tags.
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.by_tag.contains_key(&self.last) {
                break;
            }
        }
        self.by_tag.insert(self.last, Transfer { command, begin: offset, next: offset, end });
        Some(ReadyToTransfer { command, transfer: self.last, offset, len })
    }

    /// What is wrong with the header of an H2CData PDU. Its data may come otherwise; [`Transfers::came`] says that it
    /// has.
    ///
    /// Data of a transfer comes in its order and without gaps, and the last PDU, and no other, says that it is.
    ///
    /// # Errors
    /// When nobody has asked for it.
    pub fn check(&self, data: &DataHeader) -> Result<(), Fatal> {
        let transfer = self.by_tag.get(&data.transfer).ok_or(Fatal::InvalidField(10))?;
        if transfer.command != data.command {
            return Err(Fatal::InvalidField(8));
        }
        let end = data.offset.checked_add(data.len).ok_or(Fatal::OutOfRange)?;
        if data.offset < transfer.begin || end > transfer.end {
            return Err(Fatal::OutOfRange);
        }
        if data.offset != transfer.next {
            return Err(Fatal::Sequence);
        }
        if data.is_last != (end == transfer.end) {
            return Err(Fatal::InvalidField(1));
        }
        Ok(())
    }

    /// The data of this PDU has come, or was skipped. True when its transfer has ended.
    ///
    /// # Errors
    /// As [`Transfers::check`].
    pub fn came(&mut self, data: &DataHeader) -> Result<bool, Fatal> {
        self.check(data)?;
        if data.is_last {
            self.by_tag.remove(&data.transfer);
        } else if let Some(transfer) = self.by_tag.get_mut(&data.transfer) {
            transfer.next += data.len;
        }
        Ok(data.is_last)
    }

    /// How many transfers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_tag.len()
    }

    /// True when nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_tag.is_empty()
    }
}
