//! Volumes whose blocks get another key (docs/decisions/0038-encrypted-volumes.md, rotation of the data key).

use crate::{KeyGeneration, LayerId};

/// A volume whose blocks are to get another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RekeyWish {
    /// Its head layer: with another one the volume may show other blocks, and the pass begins anew.
    pub head: LayerId,
    /// The generation that all blocks are to have: the one that the node's gateway writes with.
    pub key: KeyGeneration,
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
