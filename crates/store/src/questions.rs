//! Questions about whole chunks: which have changed, and what one holds.

use crate::effect::{MapError, ReadError};
use crate::jobs::following;
use crate::leaf::{Entry, LeafKey};
use crate::leaf_cache::Content;
use crate::ops::Step;
use crate::report::{ChangedChunk, ChangedPage, ChunkDigest, DigestRun, Report};
use crate::store::Store;
use azekura_base::{BlockIndex, CHUNK_BLOCKS, Checksum, ChunkIndex, LayerId, PgId, Sequence};
use std::collections::BTreeMap;

/// A page of a list of changed chunks that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangedQuery {
    pub token: u64,
    pub pg: PgId,
    pub after: Sequence,
    pub from: (LayerId, ChunkIndex),
    pub limit: usize,
}

impl Store {
    /// The saved map has answered; what it does not know yet is added.
    pub(crate) fn changed_listed(&mut self, query: &ChangedQuery, result: Result<Vec<(LeafKey, Sequence)>, MapError>) {
        let result = result.map_err(ReadError::Map).map(|saved| {
            let last = saved.last().filter(|_| saved.len() >= query.limit).map(|(key, _)| (key.layer, key.chunk));
            let changed = self.changed_chunks(query, saved, last);
            let chunks = changed.into_iter().map(|((layer, chunk), modified)| ChangedChunk { layer, chunk, modified });
            ChangedPage { chunks: chunks.collect(), next: last.and_then(|(layer, chunk)| following(layer, chunk)) }
        });
        self.cx.report(Report::Changed { token: query.token, result });
    }

    /// Of the chunks from the query's start to `last`: those that were changed, with what memory knows.
    pub(crate) fn changed_chunks(
        &self,
        query: &ChangedQuery,
        saved: Vec<(LeafKey, Sequence)>,
        last: Option<(LayerId, ChunkIndex)>,
    ) -> BTreeMap<(LayerId, ChunkIndex), Sequence> {
        let in_page = |key: (LayerId, ChunkIndex)| key >= query.from && last.is_none_or(|last| key <= last);
        let mut chunks: BTreeMap<(LayerId, ChunkIndex), Sequence> =
            saved.into_iter().map(|(key, modified)| ((key.layer, key.chunk), modified)).collect();
        for slot in self.cache.unsaved().filter(|slot| slot.key.pg == query.pg) {
            let key = (slot.key.layer, slot.key.chunk);
            match &slot.content {
                Content::Present(leaf) if in_page(key) => chunks.insert(key, leaf.modified),
                Content::Present(_) => None,
                _ => chunks.remove(&key),
            };
        }
        let group = self.groups.get(query.pg);
        for write in group.into_iter().flat_map(|g| &g.pending).map(|p| p.info.header) {
            let (layer, chunk) = (write.range.layer, write.range.chunk);
            let committed = group.is_some_and(|g| write.sequence <= g.committed);
            if committed && !self.dropped.contains(&layer) && in_page((layer, chunk)) {
                let modified = chunks.entry((layer, chunk)).or_default();
                *modified = write.sequence.max(*modified);
            }
        }
        chunks.retain(|_, modified| *modified > query.after || query.after == Sequence::ZERO);
        chunks
    }

    pub(crate) fn step_digest(&mut self, token: u64, key: LeafKey) -> Step {
        let slot = match self.nearest(key) {
            Ok(slot) => slot,
            Err(step) => return step,
        };
        let own = self.cache.find(key).and_then(|own| self.cache.leaf(own)).map(|leaf| leaf.modified);
        let mut runs = Vec::new();
        match slot.and_then(|slot| self.cache.leaf(slot)) {
            None => runs.push(DigestRun { first: BlockIndex(0), count: CHUNK_BLOCKS as u16, checksums: None }),
            Some(leaf) => {
                for entries in leaf.entries.chunk_by(|a, b| a.has_contents() == b.has_contents()) {
                    let first = runs.last().map_or(0, |run: &DigestRun| run.first.0 + run.count);
                    // A lost block counts as what it held, like a damaged one: copies that have it, or miss it as well,
                    // are level with this one. One of which nothing is known counts as what no block is.
                    let sums = || entries.iter().map(|entry: &Entry| Checksum(entry.checksum)).collect();
                    runs.push(DigestRun {
                        first: BlockIndex(first),
                        count: entries.len() as u16,
                        checksums: entries[0].has_contents().then(sums),
                    });
                }
            }
        }
        let digest = ChunkDigest { modified: own.unwrap_or(Sequence::ZERO), runs };
        self.cx.report(Report::Digest { token, result: Ok(digest) });
        Step::Done
    }
}
