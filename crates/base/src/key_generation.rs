//! The generations of a volume's data key (docs/decisions/0038-encrypted-volumes.md).

use serde::{Deserialize, Serialize};
use std::fmt;

/// Which generation of its volume's data key a block is encrypted under: four bits, so that it has room beside whatever
/// else is known of a block. Numbers are used again, once no block has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct KeyGeneration(u8);

impl KeyGeneration {
    /// The first one; that of blocks that are not encrypted as well.
    pub const FIRST: KeyGeneration = KeyGeneration(0);
    /// How many there are.
    pub const COUNT: u8 = 16;

    /// The generation with this number; `None`: there is no such number.
    #[must_use]
    pub const fn new(number: u8) -> Option<KeyGeneration> {
        if number < KeyGeneration::COUNT { Some(KeyGeneration(number)) } else { None }
    }

    /// The generation in the lowest four bits of `bits`.
    #[must_use]
    pub const fn of_bits(bits: u16) -> KeyGeneration {
        KeyGeneration((bits & 0xf) as u8)
    }

    /// Its number, below [`KeyGeneration::COUNT`].
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The one that follows it: after the last comes the first.
    #[must_use]
    pub const fn next(self) -> KeyGeneration {
        KeyGeneration((self.0 + 1) % KeyGeneration::COUNT)
    }

    /// The first one behind it that is not `taken`; `None`: all are.
    #[must_use]
    pub fn free_after(self, taken: &[KeyGeneration]) -> Option<KeyGeneration> {
        let behind = std::iter::successors(Some(self.next()), |number| Some(number.next()));
        behind.take(usize::from(KeyGeneration::COUNT)).find(|number| !taken.contains(number))
    }
}

impl fmt::Display for KeyGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<KeyGeneration> for u8 {
    fn from(generation: KeyGeneration) -> u8 {
        generation.0
    }
}

/// The number is that of no generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyGenerationError(pub u8);

impl fmt::Display for KeyGenerationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no generation of a key: they are numbered from 0 to {}", self.0, KeyGeneration::COUNT - 1)
    }
}

impl std::error::Error for KeyGenerationError {}

impl TryFrom<u8> for KeyGeneration {
    type Error = KeyGenerationError;

    fn try_from(number: u8) -> Result<KeyGeneration, KeyGenerationError> {
        KeyGeneration::new(number).ok_or(KeyGenerationError(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round() {
        let last = KeyGeneration::new(15).unwrap();
        assert_eq!((last.next(), KeyGeneration::FIRST.next().number()), (KeyGeneration::FIRST, 1));
        assert_eq!(KeyGeneration::new(16), None);
        assert_eq!(KeyGeneration::try_from(16), Err(KeyGenerationError(16)));
        assert_eq!(KeyGeneration::try_from(15), Ok(last));
        assert_eq!(KeyGeneration::of_bits(0xabc7).number(), 7);
        assert_eq!(last.free_after(&[KeyGeneration::FIRST, last]).map(KeyGeneration::number), Some(1));
        let all: Vec<KeyGeneration> = (0..KeyGeneration::COUNT).filter_map(KeyGeneration::new).collect();
        assert_eq!((last.free_after(&all[..15]), last.free_after(&all)), (Some(last), None));
    }
}
