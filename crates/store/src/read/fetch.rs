//! A part of a read that the device has to give, and whether what it gives is what was written.

use crate::effect::{DeviceError, ReadError};
use azekura_base::{BLOCK_SIZE, BlockIndex, Checksum, Checksums, checksum};
use bytes::Bytes;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub read: u64,
    /// The index of the extent.
    pub part: usize,
    pub first: BlockIndex,
    pub address: u32,
    pub checksums: Checksums,
}

impl Fetch {
    /// What the device gave, if it is what was written.
    pub fn verified(&self, result: Result<Bytes, DeviceError>) -> Result<Bytes, ReadError> {
        let bytes = result.map_err(ReadError::Device)?;
        if bytes.len() != self.checksums.len() * BLOCK_SIZE {
            let error = format!("{} bytes came instead of {}", bytes.len(), self.checksums.len() * BLOCK_SIZE);
            return Err(ReadError::Device(DeviceError(error)));
        }
        match first_bad(&bytes, &self.checksums) {
            Some(index) => Err(ReadError::Checksum { block: BlockIndex(self.first.0 + index as u16) }),
            None => Ok(bytes),
        }
    }
}

/// The first block of `bytes` that does not match its checksum.
pub(crate) fn first_bad(bytes: &[u8], checksums: &[Checksum]) -> Option<usize> {
    bytes.chunks_exact(BLOCK_SIZE).zip(checksums).position(|(block, sum)| checksum(block) != *sum)
}
