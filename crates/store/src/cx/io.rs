//! What an effect that is under way is for.

use crate::jobs::Job;
use crate::map::LeafKey;
use crate::query::ChangedQuery;
use crate::read::Fetch;
use azekura_base::PgId;

/// Tells apart the cleaner's victims in one life of the store. One segment may be a victim more than once, also in one
/// generation: an answer that comes late must not be taken for one to a later victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct VictimId(pub u64);

/// See the module's description.
#[derive(Debug)]
pub(crate) enum Io {
    Batch,
    /// Moved blocks, into a segment of their own.
    Moves,
    Fetch(Fetch),
    Leaves(Vec<LeafKey>),
    Checkpoint,
    Recovery,
    Job(Job),
    Measure(u64),
    Comparison(u64),
    MergedOwners(VictimId),
    Changed(ChangedQuery),
    Totals(PgId),
    Clean,
}
