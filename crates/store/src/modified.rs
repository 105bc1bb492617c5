//! Which chunks of a group changed since a sequence: what a returning replica has to be sent.

use crate::effect::{Completion, MapError, ReadError};
use crate::leaf::LeafKey;
use crate::questions::ChangedQuery;
use crate::store::Store;
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};

impl Store {
    /// The saved map has answered; what it does not know yet is added.
    pub(crate) fn modified_listed(
        &mut self,
        token: u64,
        pg: PgId,
        after: Sequence,
        result: Result<Vec<(LeafKey, Sequence)>, MapError>,
    ) {
        let query = ChangedQuery { token, pg, after, from: (LayerId(0), ChunkIndex(0)), limit: usize::MAX };
        let result = result.map_err(ReadError::Map).map(|saved| {
            let chunks = self.changed_chunks(&query, saved, None);
            chunks.into_iter().map(|((layer, chunk), modified)| (layer, chunk, modified)).collect()
        });
        self.cx.complete(Completion::Modified { token, result });
    }
}
