//! Puts what copies answered back together.

use crate::ciphers::Cipher;
use crate::cut::Part;
use crate::request::Piece;
use azekura_base::{BLOCK_SIZE, BlockRange, Extent, KeyGeneration, LayerId, block_checksums};

/// The blocks that a part touches.
pub(crate) fn blocks(layer: LayerId, part: Part) -> BlockRange {
    BlockRange::of_bytes(layer, part.chunk, part.offset, part.len)
}

/// True when `extents` are exactly the part's blocks and, where `verify` is set, have the checksums they came with.
pub(crate) fn is_valid(part: Part, extents: &[Extent], verify: bool) -> bool {
    for extent in extents {
        if let Extent::Data { bytes, checksums } = extent {
            if bytes.len() != checksums.len() * BLOCK_SIZE {
                return false;
            }
            if verify && !block_checksums(bytes).eq(checksums.iter().copied()) {
                return false;
            }
        }
    }
    let count = extents.iter().map(|extent| usize::from(extent.count())).sum::<usize>();
    count == usize::from(blocks(LayerId(0), part).count)
}

/// The generations of the keys that blocks are encrypted under.
pub(crate) fn keys(extents: &[Extent]) -> impl Iterator<Item = KeyGeneration> {
    extents.iter().filter_map(|extent| match extent {
        Extent::Data { checksums, .. } => Some(checksums.key()),
        Extent::Zero { .. } => None,
    })
}

/// The part's bytes out of the blocks that it touches, as its client sees them: decrypted with what `reads` what is
/// under each generation. `None`: it is not known with what.
pub(crate) fn trim<'a>(
    part: Part,
    extents: Vec<Extent>,
    reads: impl Fn(KeyGeneration) -> Option<&'a Cipher>,
) -> Option<Vec<Piece>> {
    let mut pieces = Vec::with_capacity(extents.len());
    let mut skip = part.offset as usize % BLOCK_SIZE;
    let mut at = 0;
    for extent in extents {
        let len = match &extent {
            Extent::Zero { count } => *count as usize * BLOCK_SIZE,
            Extent::Data { bytes, .. } => bytes.len(),
        };
        let take = len.saturating_sub(skip).min(part.len as usize - at);
        if take > 0 {
            match extent {
                Extent::Zero { .. } => pieces.push(Piece::Zero(take)),
                Extent::Data { bytes, checksums } => {
                    let (key, bytes) = (checksums.key(), bytes.slice(skip..skip + take));
                    reads(key)?.decrypt(part, at, bytes, key, |seen| pieces.push(Piece::Data(seen)))?;
                }
            }
        }
        at += take;
        skip = skip.saturating_sub(len);
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{BlockIndex, ChunkIndex, checksum};
    use bytes::Bytes;

    #[test]
    fn unaligned_bytes_come_out_of_whole_blocks() {
        let part = Part { chunk: ChunkIndex(0), offset: 4090, len: 4110 };
        let data = Bytes::from((0..4096).map(|i| i as u8).collect::<Vec<_>>());
        let extents = vec![
            Extent::Zero { count: 1 },
            Extent::Data { bytes: data.clone(), checksums: checksum(&data).into() },
            Extent::Zero { count: 1 },
        ];
        let range = blocks(LayerId(1), part);
        assert_eq!((range.first, range.count), (BlockIndex(0), 3));
        assert!(is_valid(part, &extents, true));
        assert!(!is_valid(part, &extents[1..], true));
        let pieces = trim(part, extents, |_| Some(&Cipher::Plain)).unwrap();
        assert_eq!(pieces, [Piece::Zero(6), Piece::Data(data), Piece::Zero(8)]);
    }

    #[test]
    fn an_extent_of_no_blocks_gives_no_bytes() {
        let part = Part { chunk: ChunkIndex(0), offset: 4090, len: 10 };
        let extents = vec![Extent::Zero { count: 0 }, Extent::Zero { count: 2 }];
        let pieces = trim(part, extents, |_| Some(&Cipher::Plain)).unwrap();
        assert_eq!(pieces, [Piece::Zero(10)]);
    }

    #[test]
    fn a_wrong_checksum_is_noticed() {
        let part = Part { chunk: ChunkIndex(0), offset: 0, len: 4096 };
        let mut bytes = vec![7; 4096];
        let sum = checksum(&bytes);
        bytes[99] ^= 1;
        let extents = [Extent::Data { bytes: Bytes::from(bytes), checksums: sum.into() }];
        assert!(!is_valid(part, &extents, true));
    }
}
