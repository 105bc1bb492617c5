//! Rows of the saved map, each with a checksum that covers its key as well (docs/formats/map.md).

use azekura_base::{Sequence, checksum, checksum_append};
use azekura_store::{Leaf, LeafKey, LeafStamps};

/// Appends the checksum of a row to its value.
pub(crate) fn sealed(key: &[u8], mut value: Vec<u8>) -> Vec<u8> {
    let crc = checksum_append(checksum(key), &value);
    value.extend_from_slice(&crc.0.to_le_bytes());
    value
}

/// The value of a row without its checksum; `None` if that is wrong.
pub(crate) fn opened<'a>(key: &[u8], row: &'a [u8]) -> Option<&'a [u8]> {
    let (value, crc) = row.split_last_chunk::<4>()?;
    (checksum_append(checksum(key), value).0.to_le_bytes() == *crc).then_some(value)
}

/// The checksum that a row carries.
pub(crate) fn seal_of(row: &[u8]) -> u64 {
    row.last_chunk::<4>().map_or(0, |crc| u64::from(u32::from_le_bytes(*crc)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// What the index says of a leaf: enough to tell whether the image is what was last saved, and to go on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexRow {
    pub stamps: LeafStamps,
    /// Blocks that the leaf owns.
    pub own: u32,
    /// The checksum in the leaf's image.
    pub image_crc: u32,
}

impl IndexRow {
    pub fn of(leaf: &Leaf, image: &[u8]) -> IndexRow {
        IndexRow { stamps: leaf.stamps(), own: leaf.own(), image_crc: Leaf::image_crc(image) }
    }

    fn key(key: &LeafKey) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&key.pg.0.to_le_bytes());
        bytes[4..12].copy_from_slice(&key.layer.0.to_le_bytes());
        bytes[12..].copy_from_slice(&key.chunk.0.to_le_bytes());
        bytes
    }

    pub fn encode(&self, key: &LeafKey) -> Vec<u8> {
        let mut out = Vec::with_capacity(36);
        out.extend_from_slice(&self.stamps.modified.0.to_le_bytes());
        out.extend_from_slice(&self.stamps.log_upto.to_le_bytes());
        out.extend_from_slice(&self.stamps.repaired_upto.to_le_bytes());
        out.extend_from_slice(&self.own.to_le_bytes());
        out.extend_from_slice(&self.image_crc.to_le_bytes());
        sealed(&IndexRow::key(key), out)
    }

    pub fn decode(key: &LeafKey, row: &[u8]) -> Option<IndexRow> {
        let value = opened(&IndexRow::key(key), row).filter(|value| value.len() == 32)?;
        let stamps = LeafStamps {
            modified: Sequence(u64_at(value, 0)?),
            log_upto: u64_at(value, 8)?,
            repaired_upto: u64_at(value, 16)?,
        };
        Some(IndexRow { stamps, own: u32_at(value, 24)?, image_crc: u32_at(value, 28)? })
    }
}

/// How many rows the index has of a group, and the sum of their checksums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub rows: u64,
    pub sum: u64,
}

impl Totals {
    pub fn add(&mut self, row: &[u8]) {
        self.rows = self.rows.wrapping_add(1);
        self.sum = self.sum.wrapping_add(seal_of(row));
    }

    pub fn remove(&mut self, row: &[u8]) {
        self.rows = self.rows.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(seal_of(row));
    }

    pub fn encode(&self, pg: u32) -> Vec<u8> {
        let mut out = self.rows.to_le_bytes().to_vec();
        out.extend_from_slice(&self.sum.to_le_bytes());
        sealed(&pg.to_le_bytes(), out)
    }

    pub fn decode(pg: u32, row: &[u8]) -> Option<Totals> {
        let value = opened(&pg.to_le_bytes(), row).filter(|value| value.len() == 16)?;
        Some(Totals { rows: u64_at(value, 0)?, sum: u64_at(value, 8)? })
    }
}

/// The value of a row of `segments`, `layers` or `heirs`.
pub(crate) fn number(key: &[u8], row: &[u8]) -> Option<u64> {
    opened(key, row).filter(|value| value.len() == 8).and_then(|value| u64_at(value, 0))
}

/// The key of a row of `heirs`, as its checksum covers it.
pub(crate) fn merged_owner_key(segment: u32, layer: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&segment.to_le_bytes());
    bytes[4..].copy_from_slice(&layer.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{ChunkIndex, LayerId, PgId};

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The rows byte by byte (docs/formats/map.md).
    #[test]
    fn rows_have_their_checksums_at_the_end() {
        let key = LeafKey { layer: LayerId(7), chunk: ChunkIndex(3), pg: PgId(2) };
        let stamps = LeafStamps { modified: Sequence(5), log_upto: 6, repaired_upto: 7 };
        let row = IndexRow { stamps, own: 12, image_crc: 0x1234_5678 };
        assert_eq!(hex(&row.encode(&key)), "0500000000000000060000000000000007000000000000000c0000007856341272ddd774");
        let totals = Totals { rows: 3, sum: 0x1_2345_6789 };
        assert_eq!(hex(&totals.encode(2)), "03000000000000008967452301000000feaaaa79");
        assert_eq!(Totals::decode(2, &totals.encode(2)), Some(totals));
        let segment = azekura_store::SegmentRow { generation: 77, live: 17, used: true };
        let row = sealed(&9u32.to_le_bytes(), segment.encode().to_vec());
        assert_eq!(hex(&row), "4d0000000000000011000000010000007f980fc1");
    }

    #[test]
    fn a_row_under_another_key_or_with_a_flipped_bit_is_noticed() {
        let key = LeafKey { layer: LayerId(7), chunk: ChunkIndex(3), pg: PgId(2) };
        let stamps = LeafStamps { modified: Sequence(5), log_upto: 6, repaired_upto: 7 };
        let row = IndexRow { stamps, own: 12, image_crc: 0x1234_5678 };
        let bytes = row.encode(&key);
        assert_eq!(IndexRow::decode(&key, &bytes), Some(row));
        assert_eq!(IndexRow::decode(&LeafKey { chunk: ChunkIndex(4), ..key }, &bytes), None);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(IndexRow::decode(&key, &bad), None);
        }
    }
}
