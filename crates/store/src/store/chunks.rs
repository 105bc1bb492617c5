//! Questions about whole chunks, and chunks that this device knows too little of.

use crate::cx::Io;
use crate::effect::Effect;
use crate::engine::Op;
use crate::map::{LeafKey, OverdueLeaf, UnknownBlocks};
use crate::query::ChangedQuery;
use crate::store::Store;
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};

impl Store {
    /// Says which blocks of a chunk take space. [`crate::Completion::Status`] follows.
    pub fn status(&mut self, token: u64, pg: PgId, layer: LayerId, chunk: ChunkIndex) {
        self.engine.submit((pg, chunk), Op::Status { token, pg, layer, chunk });
    }

    /// Says what a chunk holds as committed now, as checksums. [`crate::Report::Digest`] follows.
    pub fn digest(&mut self, token: u64, pg: PgId, layer: LayerId, chunk: ChunkIndex) {
        self.engine.submit((pg, chunk), Op::Digest { token, key: LeafKey { layer, chunk, pg } });
    }

    /// Lists the chunks of `pg` that committed writes after `after` touched. [`crate::Completion::Modified`] follows.
    pub fn modified_since(&mut self, token: u64, pg: PgId, after: Sequence) {
        let from = (LayerId(0), ChunkIndex(0));
        self.list_changed(ChangedQuery { token, pg, after, from, limit: None });
        if after == Sequence::ZERO {
            // Who wants to know of everything can rely on the list only if the map has all that it should have.
            let cx = self.engine.cx_mut();
            let io = cx.new_io(Io::Totals(pg));
            cx.ask(Effect::CompareTotals { io, pg });
        }
    }

    /// Lists the chunks of `pg` that committed writes after `after` touched, or with `after` 0 all that it holds, in
    /// order of layer and chunk: at most about `limit`, from `from` on. [`crate::Report::Changed`] follows.
    ///
    /// # Panics
    /// When `limit` is 0.
    pub fn changed_since(
        &mut self,
        token: u64,
        pg: PgId,
        after: Sequence,
        from: Option<(LayerId, ChunkIndex)>,
        limit: usize,
    ) {
        assert!(limit > 0, "a page of nothing");
        let from = from.unwrap_or((LayerId(0), ChunkIndex(0)));
        self.list_changed(ChangedQuery { token, pg, after, from, limit: Some(limit) });
    }

    fn list_changed(&mut self, query: ChangedQuery) {
        let ChangedQuery { pg, after, from, limit, .. } = query;
        let limit = limit.unwrap_or(usize::MAX);
        let cx = self.engine.cx_mut();
        let io = cx.new_io(Io::Changed(query));
        cx.ask(Effect::ScanModified { io, pg, after, from, limit });
    }

    /// Blocks that this device should have and of which it knows nothing, a page at a time; each chunk is named again
    /// and again until they are known.
    pub fn unknown_blocks(&mut self) -> Vec<UnknownBlocks> {
        self.engine.unknown_blocks()
    }

    /// Leaves that are wanted and that the saved map has refused for ten seconds and more; each is named once in ten
    /// seconds. The caller may give up those whose blocks another copy has ([`Store::give_up_leaf`]).
    pub fn overdue_leaves(&mut self) -> Vec<OverdueLeaf> {
        let now = self.cx().now();
        self.engine.map_mut().overdue_leaves(now)
    }

    /// A leaf that the saved map refuses counts as damaged when it is refused once more: another copy has its blocks.
    pub fn give_up_leaf(&mut self, key: &LeafKey) {
        self.engine.map_mut().give_up_leaf(key);
    }
}
