//! What clients write: every 512-byte sector says which operation wrote it and where it belongs.

pub(crate) use crate::kernel::disk::SECTOR_SIZE;
use azekura_base::BLOCK_SIZE;
use bytes::Bytes;

/// Sectors of a block.
pub(crate) const BLOCK_SECTORS: u64 = (BLOCK_SIZE / SECTOR_SIZE) as u64;
const WORDS: u64 = (SECTOR_SIZE / 8) as u64;

/// What a sector holds. 0 is the value of a sector that was never written, or was zeroed; others are operations.
pub(crate) type Value = u64;

/// The value of zeros.
pub(crate) const ZERO: Value = 0;

fn word(value: Value, sector: u64, index: u64) -> u64 {
    match index {
        0 => value,
        1 => sector,
        _ => (value ^ sector.rotate_left(32) ^ (index << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

/// The bytes that operation `value` writes to `count` sectors from `first` on.
pub(crate) fn encode(value: Value, first: u64, count: u64) -> Bytes {
    let words = (first..first + count).flat_map(|sector| (0..WORDS).map(move |index| word(value, sector, index)));
    words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>().into()
}

/// The value that the bytes of sector `sector` hold.
///
/// # Errors
/// When no operation ever wrote these bytes to this sector.
pub(crate) fn decode(bytes: &[u8], sector: u64) -> Result<Value, String> {
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
    if words.iter().all(|word| *word == 0) {
        return Ok(ZERO);
    }
    let (value, place) = (words[0], words[1]);
    if !(0..).zip(&words).all(|(index, found)| word(value, place, index) == *found) {
        return Err(format!("sector {sector} holds bytes that nobody wrote (they start like operation {value})"));
    }
    if place != sector {
        return Err(format!("sector {sector} holds what operation {value} wrote to sector {place}"));
    }
    Ok(value)
}

/// True when `block` is one that clients wrote.
pub(crate) fn is_clients(block: &[u8]) -> bool {
    let place = |sector: &[u8]| sector[8..16].try_into().map(u64::from_le_bytes);
    let value = |sector: &[u8]| decode(sector, place(sector).unwrap_or(0));
    let mut values = block.chunks_exact(SECTOR_SIZE).map(value);
    values.clone().any(|value| matches!(value, Ok(1..))) && values.all(|value| value.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_names_its_operation_and_place() {
        let bytes = encode(77, 5, 3);
        assert_eq!(decode(&bytes[512..1024], 6), Ok(77));
        assert!(decode(&bytes[512..1024], 5).is_err());
        assert_eq!(decode(&[0; 512], 9), Ok(ZERO));
        let mut torn = encode(77, 5, 1).to_vec();
        torn[400] ^= 1;
        assert!(decode(&torn, 5).is_err());
    }

    #[test]
    fn clients_blocks_are_recognised() {
        assert!(is_clients(&encode(3, 80, 8)));
        assert!(!is_clients(&[0; 4096]));
        assert!(!is_clients(&[9; 4096]));
    }
}
