//! CRC-32C (Castagnoli, RFC 3720 appendix B.4) of blocks and frames.

use crate::BLOCK_SIZE;
use crc_fast::{CrcAlgorithm, Digest};
use std::fmt;

/// Castagnoli's polynomial goes by the name of its first great user here.
const CRC_32C: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// A CRC-32C.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Checksum(pub u32);

/// The checksum of a block of zeros.
pub const ZERO_BLOCK_CHECKSUM: Checksum = Checksum(0x98f9_4189);

/// Stands for the checksum of a block of which a copy knows nothing any more, where copies compare checksums. Were it
/// that of contents by chance, they would be taken for unknown: they are read from another copy, and written anew.
pub const UNKNOWN_CHECKSUM: Checksum = Checksum(0xffff_ffff);

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// CRC-32C of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> Checksum {
    Checksum(crc_fast::checksum(CRC_32C, bytes) as u32)
}

/// CRC-32C of what `before` is the checksum of, followed by `bytes`.
#[must_use]
pub fn checksum_append(before: Checksum, bytes: &[u8]) -> Checksum {
    // The register holds the complement of the checksum so far.
    let mut digest = Digest::new_with_init_state(CRC_32C, u64::from(!before.0));
    digest.update(bytes);
    Checksum(digest.finalize() as u32)
}

/// The checksums of the 4 KiB blocks in `data`, whose length must be a multiple of the block size.
///
/// # Panics
/// When `data` is not whole blocks.
pub fn block_checksums(data: &[u8]) -> impl Iterator<Item = Checksum> + '_ {
    assert!(data.len().is_multiple_of(BLOCK_SIZE), "{} bytes are not whole blocks", data.len());
    data.chunks_exact(BLOCK_SIZE).map(checksum)
}

/// True when every byte of `data` is zero.
#[must_use]
pub fn is_zero(data: &[u8]) -> bool {
    let (chunks, rest) = data.as_chunks::<64>();
    chunks.iter().all(|chunk| chunk.iter().fold(0, |acc, b| acc | b) == 0) && rest.iter().all(|b| *b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_block_checksum_is_right() {
        assert_eq!(checksum(&[0; BLOCK_SIZE]), ZERO_BLOCK_CHECKSUM);
    }

    #[test]
    fn standard_check_value() {
        assert_eq!(checksum(b"123456789"), Checksum(0xe306_9283));
        assert_eq!(checksum_append(checksum(b"1234"), b"56789"), Checksum(0xe306_9283));
    }

    #[test]
    fn zero_is_recognised_to_the_last_byte() {
        let mut data = vec![0u8; 4096 + 3];
        assert!(is_zero(&data));
        for at in [0, 63, 64, 4095, 4098] {
            data[at] = 1;
            assert!(!is_zero(&data));
            data[at] = 0;
        }
    }
}
