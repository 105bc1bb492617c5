//! Digests of blocks: what two copies compare instead of sending blocks.
//!
//! A block's digest is the first eight bytes of its BLAKE3 hash, to which the number of the key's generation is added:
//! the same bytes under another key are other contents. A span's is that of the hash of its blocks' digests. The block
//! checksums would not do to bring a copy up to date: with 32 bits, one in four billion changed blocks would be
//! taken for the same (decision 0007). Checksums do for a light scrub, which looks for copies that should be equal and
//! are not.

use azekura_base::{BLOCK_SIZE, BlockSum, CHUNK_BLOCKS, Extent, KeyGeneration};
use azekura_wire::DIGEST_SPAN_BLOCKS;

/// Stands for a block that takes no space. Written zeros have another digest: copies agree on space, too.
const NO_BLOCK: u64 = 0;

/// Tells the digest of a checksum from that of a block that takes no space.
const CHECKSUM: u64 = 1 << 32;

fn digest(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
    u64::from_le_bytes(*first)
}

fn under(key: KeyGeneration, digest: u64) -> u64 {
    digest.wrapping_add(u64::from(key.number()))
}

/// One digest for each block of a chunk, of which `extents` are the contents.
pub(crate) fn blocks(extents: &[Extent]) -> Vec<u64> {
    let mut digests = Vec::with_capacity(CHUNK_BLOCKS);
    for extent in extents {
        match extent {
            Extent::Zero { count } => digests.extend(std::iter::repeat_n(NO_BLOCK, usize::from(*count))),
            Extent::Data { bytes, checksums } => {
                digests.extend(bytes.chunks(BLOCK_SIZE).map(|block| under(checksums.key(), digest(block))));
            }
        }
    }
    digests.resize(CHUNK_BLOCKS, NO_BLOCK);
    digests
}

/// One digest for each block of a chunk, of which these are the checksums.
pub(crate) fn of_checksums(checksums: &[Option<BlockSum>]) -> Vec<u64> {
    let digest = |sum: BlockSum| CHECKSUM * (1 + u64::from(sum.key.number())) + u64::from(sum.checksum.0);
    let mut digests: Vec<u64> = checksums.iter().map(|sum| sum.map_or(NO_BLOCK, digest)).collect();
    digests.resize(CHUNK_BLOCKS, NO_BLOCK);
    digests
}

/// One digest for each span of a chunk whose blocks have these digests.
pub(crate) fn spans(blocks: &[u64]) -> Vec<u64> {
    let span = |blocks: &[u64]| {
        let bytes: Vec<u8> = blocks.iter().flat_map(|digest| digest.to_le_bytes()).collect();
        digest(&bytes)
    };
    blocks.chunks(DIGEST_SPAN_BLOCKS).map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{Checksum, block_checksums};
    use bytes::Bytes;

    fn data(bytes: Vec<u8>) -> Extent {
        let bytes = Bytes::from(bytes);
        Extent::Data { checksums: block_checksums(&bytes).collect(), bytes }
    }

    #[test]
    fn zeros_that_take_space_differ_from_those_that_do_not() {
        let written = blocks(&[data(vec![0; 4 * BLOCK_SIZE]), Extent::Zero { count: 1020 }]);
        let never = blocks(&[Extent::Zero { count: 1024 }]);
        assert_eq!((0..1024).filter(|n| written[*n] != never[*n]).count(), 4);
    }

    #[test]
    fn one_bit_changes_one_block_and_its_span() {
        let mut bytes = vec![7; CHUNK_BLOCKS * BLOCK_SIZE];
        let before = blocks(&[data(bytes.clone())]);
        bytes[40 * BLOCK_SIZE + 99] ^= 1;
        let after = blocks(&[data(bytes)]);
        let differ = |a: &[u64], b: &[u64]| (0..a.len()).filter(|i| a[*i] != b[*i]).collect::<Vec<_>>();
        assert_eq!(differ(&before, &after), [40]);
        assert_eq!(differ(&spans(&before), &spans(&after)), [1]);
    }

    #[test]
    fn a_checksum_of_zero_is_not_the_lack_of_a_block() {
        let digests = of_checksums(&[Some(Checksum(0).into()), None, Some(Checksum(u32::MAX).into())]);
        assert_eq!(digests.len(), CHUNK_BLOCKS);
        assert_eq!(digests[..4], [1 << 32, 0, (1 << 33) - 1, 0]);
    }

    #[test]
    fn the_same_bytes_under_another_key_differ() {
        let second = KeyGeneration::FIRST.next();
        let block = data(vec![5; BLOCK_SIZE]);
        let Extent::Data { bytes, checksums } = block.clone() else { panic!("it is data") };
        let other = Extent::Data { bytes, checksums: checksums.clone().under(second) };
        assert_ne!(blocks(&[block])[0], blocks(&[other])[0]);
        let sums = |key| of_checksums(&[Some(BlockSum { checksum: checksums[0], key })])[0];
        assert_ne!(sums(KeyGeneration::FIRST), sums(second));
    }

    /// A value of the protocol (docs/formats/wire.md).
    #[test]
    fn a_digest_is_the_start_of_the_blake3_hash() {
        // `printf '' | b3sum` begins with af1349b9f5f9a1a6.
        assert_eq!(digest(b"").to_le_bytes(), [0xaf, 0x13, 0x49, 0xb9, 0xf5, 0xf9, 0xa1, 0xa6]);
    }
}
