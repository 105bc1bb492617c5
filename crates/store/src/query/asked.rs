//! What is asked of the saved map and answered with what memory knows.

use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};

/// A question for a group's changed chunks.
#[derive(Debug)]
pub(crate) struct ChangedQuery {
    pub token: u64,
    pub pg: PgId,
    pub after: Sequence,
    pub from: (LayerId, ChunkIndex),
    /// `None`: all of them are asked for, and the answer is a completion.
    pub limit: Option<usize>,
}
