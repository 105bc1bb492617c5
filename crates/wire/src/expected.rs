//! What a compare-and-write expects to find (docs/decisions/0055-compare-and-write.md).

use azekura_base::{Checksum, KeyGeneration, checksum, is_zero};
use bytes::Bytes;

/// Bytes that are compared as one, so that what is encrypted can be compared as it is held: a unit of the cipher.
const UNIT_SIZE: usize = 512;

/// The bytes that a volume has to hold, as copies hold them: of an encrypted volume, encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The bytes.
    pub bytes: Bytes,
    /// Their CRC-32C.
    pub checksum: Checksum,
    /// Units of 512 bytes, counted from the first byte, of which zeros will do as well: bit 0 is the first. Zeros in an
    /// encrypted volume are held as they are where nobody has written, and encrypted where somebody has.
    pub or_zeros: u8,
    /// The generation of the key under which the bytes are encrypted, if they are.
    pub key: KeyGeneration,
}

impl Expected {
    /// These bytes, at most one block of them.
    #[must_use]
    pub fn new(bytes: Bytes, or_zeros: u8) -> Expected {
        Expected { checksum: checksum(&bytes), bytes, or_zeros, key: KeyGeneration::FIRST }
    }

    /// The same bytes, encrypted under this generation of the volume's key.
    #[must_use]
    pub fn under(self, key: KeyGeneration) -> Expected {
        Expected { key, ..self }
    }

    /// The units of `bytes` that are zeros, as [`Expected::or_zeros`] has them.
    #[must_use]
    pub fn zeros_of(bytes: &[u8]) -> u8 {
        let units = bytes.chunks(UNIT_SIZE).enumerate();
        units.filter(|(_, unit)| is_zero(unit)).fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// The first byte that differs from what is expected in `held`, which is as long; `None`: none does.
    #[must_use]
    pub fn first_difference(&self, held: &[u8]) -> Option<u16> {
        debug_assert_eq!(held.len(), self.bytes.len());
        let units = self.bytes.chunks(UNIT_SIZE).zip(held.chunks(UNIT_SIZE)).enumerate();
        for (index, (expected, held)) in units {
            let or_zeros = self.or_zeros >> index & 1 == 1 && is_zero(held);
            if expected != held && !or_zeros {
                let equal = expected.iter().zip(held).take_while(|(a, b)| a == b).count();
                return u16::try_from(index * UNIT_SIZE + equal).ok();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::BLOCK_SIZE;

    #[test]
    fn the_first_byte_that_differs_is_told() {
        let bytes: Vec<u8> = (0..BLOCK_SIZE).map(|at| at as u8 | 1).collect();
        let expected = Expected::new(Bytes::from(bytes.clone()), 0);
        assert_eq!(expected.first_difference(&bytes), None);
        for at in [0, 1, 511, 512, 4095] {
            let mut held = bytes.clone();
            held[at] ^= 0x80;
            assert_eq!(expected.first_difference(&held), Some(at as u16));
        }
    }

    #[test]
    fn zeros_do_only_where_they_are_said_to() {
        let mut plain = vec![7; 3 * UNIT_SIZE];
        plain[UNIT_SIZE..2 * UNIT_SIZE].fill(0);
        assert_eq!(Expected::zeros_of(&plain), 0b010);
        let expected = Expected::new(Bytes::from(vec![9; 3 * UNIT_SIZE]), 0b010);
        let mut held = vec![9; 3 * UNIT_SIZE];
        held[UNIT_SIZE..2 * UNIT_SIZE].fill(0);
        assert_eq!(expected.first_difference(&held), None);
        held[700] = 1;
        assert_eq!(expected.first_difference(&held), Some(512));
        held[UNIT_SIZE..].fill(0);
        assert_eq!(expected.first_difference(&held), Some(1024), "zeros in the place of another unit");
    }
}
