//! Which chunks of a group changed since a sequence: what a returning replica has to be sent.

use crate::effect::{Completion, MapError, ReadError};
use crate::leaf::LeafKey;
use crate::leaf_cache::Content;
use crate::store::Store;
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use std::collections::BTreeMap;

impl Store {
    /// The saved map has answered; what it does not know yet is added.
    pub(crate) fn modified_listed(
        &mut self,
        token: u64,
        pg: PgId,
        after: Sequence,
        result: Result<Vec<(LeafKey, Sequence)>, MapError>,
    ) {
        let result = result.map_err(ReadError::Map).map(|saved| {
            let mut chunks: BTreeMap<(LayerId, ChunkIndex), Sequence> =
                saved.into_iter().map(|(key, modified)| ((key.layer, key.chunk), modified)).collect();
            for slot in self.cache.unsaved().filter(|slot| slot.key.pg == pg) {
                let key = (slot.key.layer, slot.key.chunk);
                match &slot.content {
                    Content::Present(leaf) => chunks.insert(key, leaf.modified),
                    _ => chunks.remove(&key),
                };
            }
            let group = self.groups.get(pg);
            for info in group.into_iter().flat_map(|g| &g.pending).map(|p| p.info) {
                let committed = group.is_some_and(|g| info.sequence <= g.committed);
                if committed && !self.dropped.contains(&info.layer) {
                    let modified = chunks.entry((info.layer, info.chunk)).or_default();
                    *modified = info.sequence.max(*modified);
                }
            }
            let listed = chunks.into_iter().filter(|(_, modified)| *modified > after);
            listed.map(|((layer, chunk), modified)| (layer, chunk, modified)).collect()
        });
        self.completions.push_back(Completion::Modified { token, result });
    }
}
