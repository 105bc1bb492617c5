//! Volumes whose blocks get another key (docs/decisions/0038-encrypted-volumes.md, rotation of the data key).

use crate::KeyGeneration;

/// A volume whose blocks are to get another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RekeyWish {
    /// How often it has gone back to a snapshot: it may show blocks under former keys then, and the pass begins anew.
    pub reverts: u32,
    /// The generation that all blocks are to have: the one that the node's gateway writes with.
    pub key: KeyGeneration,
    /// The revision of the key's record that says so. Numbers of generations are used again: with another revision it
    /// is another rotation.
    pub since: i64,
    /// Its size in bytes.
    pub size: u64,
}

/// How far a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RekeyProgress {
    /// What is wished.
    pub wish: RekeyWish,
    /// Chunks that have been done.
    pub chunks: u32,
    /// Of how many.
    pub of: u32,
    /// Blocks that have got the key.
    pub moved: u64,
}

impl RekeyProgress {
    /// All blocks have the key.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.chunks >= self.of
    }
}

/// What a gateway has of a data key, and does with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The newest generation that it has, with all before; or why it has none.
    pub newest: Result<KeyGeneration, String>,
    /// The oldest one under which it writes, or has something on its way.
    pub writes: Option<KeyGeneration>,
}
