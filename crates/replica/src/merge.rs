//! Writes of partial blocks: the missing edges are read, and the whole blocks ordered as one write.
//!
//! While a merge reads, no other write to its blocks is ordered, and a merge starts only when no uncommitted write
//! touches its blocks: what the merge reads is the latest there is, so the write is atomic. Every copy in sync has the
//! same contents then, so an edge that can't be read here is asked for at another copy.

use crate::action::{Action, Client};
use crate::group::{Group, Role};
use crate::mend::is_whole;
use crate::peer::Standing;
use crate::pending::Pending;
use crate::primary::REIGN_SHIFT;
use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, DeviceId, Epoch, Extent, IoStatus, PageBuf, RequestId, SessionId,
    WriteHeader,
};
use azekura_wire::{Fetch, Message, WriteRequest};
use bytes::Bytes;
use std::collections::BTreeMap;

struct Merge {
    id: u64,
    client: Client,
    write: WriteRequest,
    blocks: BlockRange,
    /// The blocks at the edges that the write covers in part, and their contents once read.
    edges: Vec<(BlockIndex, Option<Bytes>)>,
}

/// An edge that this copy can't read was asked for at another.
struct Question {
    merge: u64,
    block: BlockIndex,
    /// Copies that were asked, the present one last.
    asked: Vec<DeviceId>,
}

/// The merges of one group that are reading.
pub(crate) struct Merges {
    merges: Vec<Merge>,
    started: u64,
    /// Edges that other copies are to give, by the question's name.
    questions: BTreeMap<u64, Question>,
}

impl Merges {
    /// Names of merges are never used again, also not in a later reign: a late answer finds its own merge, or none.
    pub(crate) fn new(epoch: Epoch) -> Merges {
        Merges { merges: Vec::new(), started: epoch.0 << REIGN_SHIFT, questions: BTreeMap::new() }
    }

    pub(crate) fn touches(&self, blocks: &BlockRange) -> bool {
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
        self.questions.clear();
        self.merges.drain(..).map(|merge| (merge.client, merge.write.request))
    }

    /// Takes out the merges that wait for an edge from a copy that does not answer any more.
    pub(crate) fn give_up(&mut self, answers: impl Fn(&DeviceId) -> bool) -> Vec<(Client, RequestId)> {
        let in_vain = |question: &Question| !question.asked.last().is_some_and(&answers);
        let lost: Vec<u64> = self.questions.values().filter(|q| in_vain(q)).map(|q| q.merge).collect();
        self.questions.retain(|_, question| !in_vain(question));
        let stopped = self.merges.extract_if(.., |merge| lost.contains(&merge.id));
        stopped.map(|merge| (merge.client, merge.write.request)).collect()
    }
}

impl Group {
    pub(crate) fn start_merge(&mut self, client: Client, write: WriteRequest, blocks: BlockRange) {
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
            let block = BlockRange::block(blocks.layer, blocks.chunk, *block);
            self.actions.push_back(Action::LoadEdge { merge: id, block });
        }
        primary.merges.merges.push(Merge { id, client, write, blocks, edges });
    }

    /// A block at the edge of a merge is read: one whole block (zeros if it was never written), or why not.
    pub fn edge_loaded(&mut self, merge: u64, block: BlockIndex, contents: Result<Bytes, IoStatus>) {
        match contents {
            Ok(bytes) => self.edge_known(merge, block, bytes),
            Err(status) => self.ask_for_edge(Question { merge, block, asked: Vec::new() }, status),
        }
        self.retry_waiting();
    }

    fn edge_known(&mut self, merge: u64, block: BlockIndex, bytes: Bytes) {
        assert_eq!(bytes.len(), BLOCK_SIZE);
        let Role::Primary(primary) = &mut self.role else { return };
        let merges = &mut primary.merges.merges;
        let Some(at) = merges.iter().position(|m| m.id == merge) else { return };
        if let Some(edge) = merges[at].edges.iter_mut().find(|(index, _)| *index == block) {
            edge.1 = Some(bytes);
        }
        if merges[at].edges.iter().all(|(_, contents)| contents.is_some()) {
            let merge = merges.remove(at);
            let header = self.next_header(&merge.write, merge.blocks);
            self.order(merged(header, merge));
        }
    }

    /// Asks the next copy for an edge. Without one the write fails with `status`; it is to be sent again while there is
    /// a copy in sync that can't be asked now.
    fn ask_for_edge(&mut self, mut question: Question, status: IoStatus) {
        let (pg, commit, now) = (self.pg, self.tail.committed(), self.now);
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(at) = primary.merges.merges.iter().position(|merge| merge.id == question.merge) else { return };
        let others = primary
            .peers
            .iter()
            .filter(|(device, peer)| matches!(peer.standing, Standing::InSync) && !question.asked.contains(device));
        let others: Vec<DeviceId> = others.map(|(device, _)| *device).collect();
        let can_give = |device: &DeviceId| primary.answers(device, now) && primary.has_all(*device, commit);
        let status = match others.iter().copied().find(can_give) {
            Some(device) => {
                let (epoch, id) = (primary.epoch(), primary.repairs.name());
                let range = BlockRange { first: question.block, count: 1, ..primary.merges.merges[at].blocks };
                question.asked.push(device);
                primary.merges.questions.insert(id, question);
                let fetch = Fetch { pg, device, epoch, commit, id, range };
                self.actions.push_back(Action::Send(device, Message::Fetch(fetch)));
                return;
            }
            // A copy that may have the edge does not answer now: it will, or is left behind.
            None if !others.is_empty() => {
                primary.clients_wait = true;
                IoStatus::Redirect
            }
            None => status,
        };
        let merge = primary.merges.merges.remove(at);
        self.actions.push_back(Action::AnswerWrite(merge.client, merge.write.request, Err(status)));
    }

    /// A copy gives the edge that it was asked for, or can't either.
    pub(crate) fn edge_fetched(&mut self, id: u64, extents: Option<Vec<Extent>>) {
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(question) = primary.merges.questions.remove(&id) else { return };
        match extents.filter(|extents| is_whole(extents, 1)).and_then(|extents| extents.into_iter().next()) {
            Some(Extent::Data { bytes, .. }) => self.edge_known(question.merge, question.block, bytes),
            Some(Extent::Zero { .. }) => {
                self.edge_known(question.merge, question.block, PageBuf::zeroed(BLOCK_SIZE).freeze());
            }
            None => self.ask_for_edge(question, IoStatus::Io),
        }
        self.retry_waiting();
    }
}

/// The write with whole blocks.
fn merged(header: WriteHeader, merge: Merge) -> Pending {
    let Merge { client, write, blocks, edges, .. } = merge;
    let mut buf = PageBuf::new(blocks.count as usize * BLOCK_SIZE);
    for (block, contents) in edges {
        let at = (block.0 - blocks.first.0) as usize * BLOCK_SIZE;
        buf[at..at + BLOCK_SIZE].copy_from_slice(&contents.unwrap_or_default());
    }
    if let Body::Data { bytes, .. } = &write.body {
        let at = write.offset as usize % BLOCK_SIZE;
        buf[at..at + bytes.len()].copy_from_slice(bytes);
    }
    Pending {
        header,
        oldest: write.oldest,
        body: Some(Body::data(buf.freeze())),
        client: Some(client),
        as_sent: false,
        ordered_at: std::time::Duration::ZERO,
    }
}
