//! What an effect that is under way is for.

use crate::jobs::Job;
use crate::leaf::LeafKey;
use crate::questions::ChangedQuery;
use crate::reads::Fetch;
use azekura_base::{PgId, Sequence};

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
    Heirs(u32),
    Changed(ChangedQuery),
    Modified { token: u64, pg: PgId, after: Sequence },
    Totals(PgId),
    Collect,
}
