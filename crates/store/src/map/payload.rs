//! Blocks that a record has brought to the device.

use crate::map::leaf::Entry;
use azekura_base::Checksums;

/// Blocks that are on the device, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub address: u32,
    pub checksums: &'a Checksums,
    pub lost: bool,
}

impl Payload<'_> {
    /// The entry of the leaf that owns block `index` of it.
    pub fn entry(&self, index: usize) -> Entry {
        let entry = Entry::own(self.address + index as u32, self.checksums[index]).under(self.checksums.key());
        Entry { flags: entry.flags | if self.lost { Entry::LOST } else { 0 }, ..entry }
    }
}
