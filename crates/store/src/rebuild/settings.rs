//! What the log can't tell and the configuration can: which layers and groups there are.

use azekura_base::{LayerId, PgId};
use std::collections::{BTreeMap, BTreeSet};

/// The tree of layers, as the configuration has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownLayers {
    /// Layers that there are. What the device holds of others is not taken into the map.
    pub living: BTreeSet<LayerId>,
    /// On which layer another lies.
    pub parents: BTreeMap<LayerId, LayerId>,
    /// Layers that are being merged, and into which.
    pub merging: BTreeMap<LayerId, LayerId>,
    /// The highest number that was ever given. A layer with a higher one is younger than what is known here, and lives.
    pub newest: LayerId,
}

/// What a map is to be made by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RebuildSettings {
    /// The layers.
    pub layers: KnownLayers,
    /// Groups of which the device has a copy. Of others that its log names, the map says that they are unproven, and
    /// has no blocks: the copy was given up long ago, or is younger than what is known here, and then it is sent anew.
    pub groups: BTreeSet<PgId>,
    /// Groups whose copies count as what they were, without being compared with any other: what the log shows may be
    /// older than what the device held.
    pub accepted: BTreeSet<PgId>,
    /// Segments from this one on are not initialised on the device yet.
    pub segments_ready: u32,
    /// Memory that records may take at a time, in bytes. With less, the log is read more often.
    pub memory_bytes: u64,
}
