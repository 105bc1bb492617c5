//! Which chunks of a group changed since a sequence: what a returning replica has to be sent.

use crate::cx::StoreCx;
use crate::effect::{Completion, MapError, ReadError};
use crate::groups::Groups;
use crate::jobs::Jobs;
use crate::map::{Content, LeafKey, Map};
use crate::query::asked::ChangedQuery;
use crate::report::{ChangedChunk, ChangedPage, Report};
use azekura_base::{ChunkIndex, LayerId, Sequence};
use std::collections::BTreeMap;

impl ChangedQuery {
    /// The saved map has answered; what it does not know yet is added.
    pub fn listed(
        &self,
        cx: &mut StoreCx,
        map: &Map,
        groups: &Groups,
        jobs: &Jobs,
        result: Result<Vec<(LeafKey, Sequence)>, MapError>,
    ) {
        let token = self.token;
        let result = result.map_err(ReadError::Map);
        let Some(limit) = self.limit else {
            let result = result.map(|saved| {
                let chunks = self.chunks(map, groups, jobs, saved, None);
                chunks.into_iter().map(|((layer, chunk), modified)| (layer, chunk, modified)).collect()
            });
            return cx.complete(Completion::Modified { token, result });
        };
        let result = result.map(|saved| {
            let last = saved.last().filter(|_| saved.len() >= limit).map(|(key, _)| *key);
            let changed = self.chunks(map, groups, jobs, saved, last.map(|key| (key.layer, key.chunk)));
            let chunks = changed.into_iter().map(|((layer, chunk), modified)| ChangedChunk { layer, chunk, modified });
            ChangedPage { chunks: chunks.collect(), next: last.and_then(|key| key.following()) }
        });
        cx.report(Report::Changed { token, result });
    }

    /// Of the chunks from the query's start to `last`: those that were changed, with what memory knows.
    fn chunks(
        &self,
        map: &Map,
        groups: &Groups,
        jobs: &Jobs,
        saved: Vec<(LeafKey, Sequence)>,
        last: Option<(LayerId, ChunkIndex)>,
    ) -> BTreeMap<(LayerId, ChunkIndex), Sequence> {
        let in_page = |key: (LayerId, ChunkIndex)| key >= self.from && last.is_none_or(|last| key <= last);
        let mut chunks: BTreeMap<(LayerId, ChunkIndex), Sequence> =
            saved.into_iter().map(|(key, modified)| ((key.layer, key.chunk), modified)).collect();
        for slot in map.unsaved().filter(|slot| slot.key.pg == self.pg) {
            let key = (slot.key.layer, slot.key.chunk);
            match &slot.content {
                Content::Present(leaf) if in_page(key) => chunks.insert(key, leaf.modified),
                Content::Present(_) => None,
                _ => chunks.remove(&key),
            };
        }
        for (key, last) in map.waiting_leaves().filter(|(key, _)| key.pg == self.pg) {
            let place = (key.layer, key.chunk);
            if !jobs.is_dropped(key.layer) && in_page(place) {
                let modified = chunks.entry(place).or_default();
                *modified = last.max(*modified);
            }
        }
        let group = groups.get(self.pg);
        for write in group.into_iter().flat_map(|group| group.pending()).map(|p| p.info.header) {
            let (layer, chunk) = (write.range.layer, write.range.chunk);
            let committed = group.is_some_and(|g| write.sequence <= g.committed());
            if committed && !jobs.is_dropped(layer) && in_page((layer, chunk)) {
                let modified = chunks.entry((layer, chunk)).or_default();
                *modified = write.sequence.max(*modified);
            }
        }
        chunks.retain(|_, modified| *modified > self.after || self.after == Sequence::ZERO);
        chunks
    }
}
