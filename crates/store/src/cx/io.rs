//! What an effect that is under way is for.

use crate::cleaner::VictimId;
use crate::jobs::Job;
use crate::map::LeafKey;
use crate::query::ChangedQuery;
use crate::read::Fetch;
use azekura_base::PgId;

/// See the module's description.
#[derive(Debug)]
pub(crate) enum Io {
    Batch,
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
