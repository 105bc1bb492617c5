//! The block in which a volume's clients count.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

use crate::BLOCK_SIZE;

/// The logical block of a volume: what clients address it by, and the least that they read or write. As a number, and
/// in records: its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum LogicalBlock {
    /// 512 bytes, eight in a block of ours: what every client takes.
    #[default]
    Bytes512,
    /// 4096 bytes, as disks called "4Kn" have: each is a block of ours.
    Bytes4096,
}

impl LogicalBlock {
    /// All of them.
    pub const ALL: [LogicalBlock; 2] = [LogicalBlock::Bytes512, LogicalBlock::Bytes4096];

    /// Its size as a power of two of bytes.
    #[must_use]
    pub const fn power(self) -> u8 {
        match self {
            LogicalBlock::Bytes512 => 9,
            LogicalBlock::Bytes4096 => 12,
        }
    }

    /// Its size, bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        1 << self.power()
    }

    /// How many of them a block of ours has ([`BLOCK_SIZE`]), as a power of two.
    #[must_use]
    pub const fn physical_power(self) -> u8 {
        BLOCK_SIZE.trailing_zeros() as u8 - self.power()
    }

    /// It is what a volume has that does not say.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == LogicalBlock::default()
    }
}

/// A size that logical blocks don't have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalBlockError(String);

impl fmt::Display for LogicalBlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "logical blocks have 512 or 4096 bytes, not {}", self.0)
    }
}

impl std::error::Error for LogicalBlockError {}

impl TryFrom<u32> for LogicalBlock {
    type Error = LogicalBlockError;

    fn try_from(bytes: u32) -> Result<LogicalBlock, LogicalBlockError> {
        let found = LogicalBlock::ALL.into_iter().find(|block| block.bytes() == bytes);
        found.ok_or_else(|| LogicalBlockError(bytes.to_string()))
    }
}

impl From<LogicalBlock> for u32 {
    fn from(block: LogicalBlock) -> u32 {
        block.bytes()
    }
}

impl FromStr for LogicalBlock {
    type Err = LogicalBlockError;

    /// A number of bytes.
    fn from_str(text: &str) -> Result<LogicalBlock, LogicalBlockError> {
        let wrong = || LogicalBlockError(format!("'{text}'"));
        text.parse::<u32>().map_err(|_| wrong()).and_then(LogicalBlock::try_from)
    }
}

impl fmt::Display for LogicalBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_its_bytes() {
        for (block, bytes, physical) in [(LogicalBlock::Bytes512, 512, 8), (LogicalBlock::Bytes4096, 4096, 1)] {
            assert_eq!((block.bytes(), 1 << block.physical_power(), u32::from(block)), (bytes, physical, bytes));
            assert_eq!(LogicalBlock::try_from(bytes), Ok(block));
            assert_eq!(block.to_string().parse(), Ok(block));
        }
        assert!(LogicalBlock::default().is_default() && !LogicalBlock::Bytes4096.is_default());
    }

    #[test]
    fn there_are_no_others() {
        for bad in ["0", "1", "513", "1024", "2048", "8192", "-512", "", "4k", "4294967808"] {
            let error = bad.parse::<LogicalBlock>().unwrap_err().to_string();
            assert!(error.starts_with("logical blocks have 512 or 4096 bytes, not ") && error.contains(bad), "{error}");
        }
    }
}
