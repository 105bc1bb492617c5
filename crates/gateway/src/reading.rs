//! Puts what copies answered back together.

use crate::cut::Part;
use crate::gateway::Piece;
use azekura_base::{BLOCK_SIZE, BlockIndex, block_checksums};
use azekura_wire::Extent;

/// The blocks that a part touches: first and count.
pub(crate) fn blocks(part: Part) -> (BlockIndex, u16) {
    let first = part.offset as usize / BLOCK_SIZE;
    let end = (part.offset as usize + part.len as usize).div_ceil(BLOCK_SIZE);
    (BlockIndex(first as u16), (end - first) as u16)
}

/// True when `extents` are exactly the part's blocks and, where `verify` is set, have the checksums they came with.
pub(crate) fn is_valid(part: Part, extents: &[Extent], verify: bool) -> bool {
    let mut count = 0;
    for extent in extents {
        match extent {
            Extent::Zero { count: zeros } => count += *zeros as usize,
            Extent::Data { bytes, checksums } => {
                if bytes.len() != checksums.len() * BLOCK_SIZE {
                    return false;
                }
                if verify && !block_checksums(bytes).eq(checksums.iter().copied()) {
                    return false;
                }
                count += checksums.len();
            }
        }
    }
    count == blocks(part).1 as usize
}

/// The part's bytes out of the blocks that it touches.
pub(crate) fn trim(part: Part, extents: Vec<Extent>, into: &mut Vec<Piece>) {
    let mut skip = part.offset as usize % BLOCK_SIZE;
    let mut left = part.len as usize;
    for extent in extents {
        let len = match &extent {
            Extent::Zero { count } => *count as usize * BLOCK_SIZE,
            Extent::Data { bytes, .. } => bytes.len(),
        };
        let take = len.saturating_sub(skip).min(left);
        if take > 0 {
            into.push(match extent {
                Extent::Zero { .. } => Piece::Zero(take),
                Extent::Data { bytes, .. } => Piece::Data(bytes.slice(skip..skip + take)),
            });
        }
        left -= take;
        skip = skip.saturating_sub(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{ChunkIndex, checksum};
    use bytes::Bytes;

    #[test]
    fn unaligned_bytes_come_out_of_whole_blocks() {
        let part = Part { chunk: ChunkIndex(0), offset: 4090, len: 4110 };
        let data = Bytes::from((0..4096).map(|i| i as u8).collect::<Vec<_>>());
        let extents = vec![
            Extent::Zero { count: 1 },
            Extent::Data { bytes: data.clone(), checksums: vec![checksum(&data)] },
            Extent::Zero { count: 1 },
        ];
        assert_eq!(blocks(part), (BlockIndex(0), 3));
        assert!(is_valid(part, &extents, true));
        assert!(!is_valid(part, &extents[1..], true));
        let mut pieces = Vec::new();
        trim(part, extents, &mut pieces);
        assert_eq!(pieces, [Piece::Zero(6), Piece::Data(data), Piece::Zero(8)]);
    }

    #[test]
    fn an_extent_of_no_blocks_gives_no_bytes() {
        let part = Part { chunk: ChunkIndex(0), offset: 4090, len: 10 };
        let extents = vec![Extent::Zero { count: 0 }, Extent::Zero { count: 2 }];
        let mut pieces = Vec::new();
        trim(part, extents, &mut pieces);
        assert_eq!(pieces, [Piece::Zero(10)]);
    }

    #[test]
    fn a_wrong_checksum_is_noticed() {
        let part = Part { chunk: ChunkIndex(0), offset: 0, len: 4096 };
        let mut bytes = vec![7; 4096];
        let sum = checksum(&bytes);
        bytes[99] ^= 1;
        let extents = [Extent::Data { bytes: Bytes::from(bytes), checksums: vec![sum] }];
        assert!(!is_valid(part, &extents, true));
    }
}
