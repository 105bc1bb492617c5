//! Writes of partial blocks: the missing edges are read, and the whole blocks ordered as one write.
//!
//! While a merge reads, no other write to its blocks is ordered, and a merge starts only when no uncommitted write
//! touches its blocks: what it reads is the latest there is, so the write is atomic.

use crate::action::{Action, Client};
use crate::group::{Group, Role};
use crate::pending::{Blocks, Pending};
use crate::primary::REIGN_SHIFT;
use azekura_base::{BLOCK_SIZE, BlockIndex, Epoch, IoStatus, PageBuf, RequestId, SessionId, block_checksums};
use azekura_wire::{Body, WriteBody, WriteRequest};
use bytes::Bytes;

struct Merge {
    id: u64,
    client: Client,
    write: WriteRequest,
    blocks: Blocks,
    /// The blocks at the edges that the write covers in part, and their contents once read.
    edges: Vec<(BlockIndex, Option<Bytes>)>,
}

/// The merges of one group that are reading.
pub(crate) struct Merges {
    merges: Vec<Merge>,
    started: u64,
}

impl Merges {
    /// Names of merges are never used again, also not in a later reign: a late answer finds its own merge, or none.
    pub(crate) fn new(epoch: Epoch) -> Merges {
        Merges { merges: Vec::new(), started: epoch.0 << REIGN_SHIFT }
    }

    pub(crate) fn touches(&self, blocks: &Blocks) -> bool {
        self.merges.iter().any(|merge| merge.blocks.overlaps(blocks))
    }

    /// A write that is being merged was asked for again: the answer goes to `client`.
    pub(crate) fn adopt(&mut self, client: Client, session: SessionId, request: RequestId) -> bool {
        let same = |merge: &&mut Merge| merge.write.session == session && merge.write.request == request;
        self.merges.iter_mut().find(same).map(|merge| merge.client = client).is_some()
    }

    /// Takes out the merges of some writes; the blocks that they read come in vain.
    pub(crate) fn remove(&mut self, which: impl Fn(&WriteRequest) -> bool) -> Vec<(Client, RequestId)> {
        let removed = self.merges.extract_if(.., |merge| which(&merge.write));
        removed.map(|merge| (merge.client, merge.write.request)).collect()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Client, RequestId)> + '_ {
        self.merges.drain(..).map(|merge| (merge.client, merge.write.request))
    }
}

impl Group {
    pub(crate) fn start_merge(&mut self, client: Client, write: WriteRequest, blocks: Blocks) {
        let Role::Primary(primary) = &mut self.role else { return };
        let (start, end) = (write.offset as usize, write.offset as usize + write.len as usize);
        let mut edges = Vec::with_capacity(2);
        if !start.is_multiple_of(BLOCK_SIZE) {
            edges.push((blocks.first, None));
        }
        let last = BlockIndex(((end - 1) / BLOCK_SIZE) as u16);
        if !end.is_multiple_of(BLOCK_SIZE) && edges.first().is_none_or(|(block, _)| *block != last) {
            edges.push((last, None));
        }
        primary.merges.started += 1;
        let id = primary.merges.started;
        for (block, _) in &edges {
            let (merge, layer, chunk, block) = (id, blocks.layer, blocks.chunk, *block);
            self.actions.push_back(Action::LoadEdge { merge, layer, chunk, block });
        }
        primary.merges.merges.push(Merge { id, client, write, blocks, edges });
    }

    /// A block at the edge of a merge is read: one whole block (zeros if it was never written), or why not.
    pub fn edge_loaded(&mut self, merge: u64, block: BlockIndex, contents: Result<Bytes, IoStatus>) {
        let Role::Primary(primary) = &mut self.role else { return };
        let merges = &mut primary.merges.merges;
        let Some(at) = merges.iter().position(|m| m.id == merge) else { return };
        match contents {
            Err(status) => {
                let merge = merges.remove(at);
                self.actions.push_back(Action::AnswerWrite(merge.client, merge.write.request, Err(status)));
            }
            Ok(bytes) => {
                assert_eq!(bytes.len(), BLOCK_SIZE);
                if let Some(edge) = merges[at].edges.iter_mut().find(|(index, _)| *index == block) {
                    edge.1 = Some(bytes);
                }
                if merges[at].edges.iter().any(|(_, contents)| contents.is_none()) {
                    return;
                }
                let merge = merges.remove(at);
                let write = merged(self.tail.end().next(), merge);
                self.order(write);
            }
        }
        self.retry_waiting();
    }
}

/// The write with whole blocks.
fn merged(sequence: azekura_base::Sequence, merge: Merge) -> Pending {
    let Merge { client, write, blocks, edges, .. } = merge;
    let mut buf = PageBuf::new(blocks.count as usize * BLOCK_SIZE);
    for (block, contents) in edges {
        let at = (block.0 - blocks.first.0) as usize * BLOCK_SIZE;
        buf[at..at + BLOCK_SIZE].copy_from_slice(&contents.unwrap_or_default());
    }
    if let WriteBody::Data { bytes, .. } = &write.body {
        let at = write.offset as usize % BLOCK_SIZE;
        buf[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let bytes = buf.freeze();
    let checksums = block_checksums(&bytes).collect();
    Pending {
        sequence,
        session: write.session,
        request: write.request,
        oldest: write.oldest,
        blocks,
        body: Some(Body::Data { bytes, checksums }),
        client: Some(client),
        as_sent: false,
        ordered_at: std::time::Duration::ZERO,
    }
}
