//! What work in the background is about.

use azekura_base::{LayerId, PgId};

/// What a job is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// All that a layer holds is given up.
    DropLayer(LayerId),
    /// What a layer holds goes to its only child, or is given up if the child has its own.
    MergeLayer {
        /// The layer that ends.
        layer: LayerId,
        /// Its only child.
        into: LayerId,
    },
    /// All that a group holds on this device is given up.
    ForgetGroup(PgId),
}
