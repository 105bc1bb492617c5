//! The steps of a merge (`merges.rs`): its edges are read, here or at another copy, and the whole blocks are ordered.

use super::elsewhere::{For, Question};
use super::merges::{Merge, merged};
use crate::action::{Action, Client};
use crate::context::GroupCx;
use crate::primary::Primary;
use azekura_base::{BLOCK_SIZE, BlockIndex, BlockRange, Extent, IoStatus};
use azekura_wire::WriteRequest;

impl Primary {
    pub(crate) fn start_merge(&mut self, cx: &mut GroupCx, client: Client, write: WriteRequest, blocks: BlockRange) {
        let (start, end) = (write.offset as usize, write.offset as usize + write.len as usize);
        let mut edges = Vec::with_capacity(2);
        // Of what is compared the whole block is read, however much of it is written.
        if !start.is_multiple_of(BLOCK_SIZE) || write.expected.is_some() {
            edges.push((blocks.first, None));
        }
        let last = BlockIndex(((end - 1) / BLOCK_SIZE) as u16);
        if !end.is_multiple_of(BLOCK_SIZE) && edges.first().is_none_or(|(block, _)| *block != last) {
            edges.push((last, None));
        }
        self.merges.started += 1;
        let id = self.merges.started;
        for (block, _) in &edges {
            let block = BlockRange::block(blocks.layer, blocks.chunk, *block);
            cx.act(Action::LoadEdge { merge: id, block });
        }
        self.merges.merges.push(Merge { id, client, write, blocks, edges });
    }

    /// A block at the edge of a merge is read: one whole block, or why not.
    pub(crate) fn on_edge_loaded(
        &mut self,
        cx: &mut GroupCx,
        merge: u64,
        block: BlockIndex,
        contents: Result<Extent, IoStatus>,
    ) {
        match contents {
            Ok(contents) => self.edge_known(cx, merge, block, contents),
            Err(status) => {
                let Some(blocks) = self.merges.blocks(merge) else { return self.retry_waiting(cx) };
                let edge = BlockRange { first: block, count: 1, ..blocks };
                self.ask_elsewhere(cx, Question::new(For::Merge(merge), edge), status);
            }
        }
        self.retry_waiting(cx);
    }

    /// The contents of an edge are there: one whole block.
    pub(super) fn edge_known(&mut self, cx: &mut GroupCx, merge: u64, block: BlockIndex, contents: Extent) {
        assert_eq!(contents.count(), 1);
        let merges = &mut self.merges.merges;
        let Some(at) = merges.iter().position(|m| m.id == merge) else { return };
        if let Some(edge) = merges[at].edges.iter_mut().find(|(index, _)| *index == block) {
            edge.1 = Some(contents);
        }
        if merges[at].edges.iter().all(|(_, contents)| contents.is_some()) {
            let merge = merges.remove(at);
            if let Some(refused) = self.refusal(cx, &merge) {
                return cx.act(Action::AnswerWrite(merge.client, merge.write.request, Err(refused)));
            }
            let header = self.next_header(cx, &merge.write, merge.blocks);
            self.order(cx, merged(header, merge));
        }
    }

    /// Why a merge is not carried out: its blocks are encrypted under another key, or hold something else than the
    /// write expects. Both are answers as that of a read is: they are given under the lease alone. Without one,
    /// somebody else may have let in what is expected.
    fn refusal(&mut self, cx: &mut GroupCx, merge: &Merge) -> Option<IoStatus> {
        let refusal = merge.other_key().or_else(|| merge.difference().map(IoStatus::Miscompare))?;
        if !self.may_serve(cx, cx.now) {
            self.clients_wait = true;
            return Some(IoStatus::Redirect);
        }
        Some(refusal)
    }
}
