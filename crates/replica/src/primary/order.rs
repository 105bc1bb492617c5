//! Writes get their places in the order, or wait for one, or are refused.

use crate::action::{Action, Client, Mismatch};
use crate::context::GroupCx;
use crate::limits::{PENDING_WRITES_MAX, WAITING_WRITES_MAX};
use crate::pending::Pending;
use crate::primary::Primary;
use azekura_base::{
    BLOCK_SIZE, BlockRange, Body, CHUNK_SIZE, DeviceId, IoStatus, RequestId, Sequence, Write, WriteHeader, checksum,
};
use azekura_wire::WriteRequest;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

impl Primary {
    /// A gateway writes. When the layer is `stale`, only what has a place in the order already is answered.
    pub(crate) fn on_write(&mut self, cx: &mut GroupCx, client: Client, write: WriteRequest, stale: bool) {
        self.drop_given_up(cx, &write);
        let answer = |result| Action::AnswerWrite(client, write.request, result);
        let serving = self.may_serve(cx, cx.now);
        if cx.sessions.is_past(write.session, write.request) {
            return; // Nobody waits for it.
        }
        if cx.sessions.has_ended(write.session) {
            cx.act(answer(Err(IoStatus::Fenced)));
            return;
        }
        if !serving {
            self.clients_wait = true;
        }
        // Also what is committed already: it may be on fewer copies than the class demands.
        if !cx.config.is_writable() {
            cx.act(answer(Err(IoStatus::ReadOnly)));
            return;
        }
        if cx.sessions.is_committed(write.session, write.request) {
            cx.acknowledge_past();
            cx.act(answer(Ok(())));
            return;
        }
        if let Some(pending) = cx.tail.find(write.session, write.request) {
            pending.client = Some(client);
            return;
        }
        if self.adopt_unordered(client, &write) {
            return;
        }
        let too_many = cx.tail.len() >= PENDING_WRITES_MAX
            || self.waiting.len() >= WAITING_WRITES_MAX
            || !cx.sessions.has_room_for(write.session);
        if !self.is_open() || too_many {
            cx.act(answer(Err(IoStatus::Redirect)));
            return;
        }
        if stale {
            cx.act(answer(Err(IoStatus::Stale)));
            return;
        }
        let holds_data = matches!(write.body, Body::Data { .. });
        if holds_data && (cx.condition.is_full() || self.counting().any(|peer| peer.full)) {
            cx.act(answer(Err(IoStatus::NoSpace)));
            return;
        }
        *self.writers.entry(client).or_default() += 1;
        if let Some(write) = self.admit(cx, client, write) {
            self.waiting.push_back((client, write));
        }
    }

    /// Drops what the write's gateway has given up and is parked here: it must not come after this write, which may be
    /// to the same blocks.
    fn drop_given_up(&mut self, cx: &mut GroupCx, write: &WriteRequest) {
        let (session, oldest) = (write.session, write.oldest);
        if !self.drop_unordered(|parked| parked.session == session && parked.request < oldest).is_empty() {
            self.retry_waiting(cx);
        }
    }

    /// Orders the write, or starts its merge; gives it back when it must wait.
    fn admit(&mut self, cx: &mut GroupCx, client: Client, write: WriteRequest) -> Option<WriteRequest> {
        let blocks = blocks_of(&write);
        let partial =
            !(write.offset as usize).is_multiple_of(BLOCK_SIZE) || !(write.len as usize).is_multiple_of(BLOCK_SIZE);
        let merges = partial || write.expected.is_some();
        if self.is_held(&blocks) || (merges && cx.tail.touches(&blocks)) {
            return Some(write);
        }
        if self.has_learners && self.waits_for_learner() {
            return Some(write);
        }
        // Writes of the same blocks get their places in turn, or one that waits would wait for as long as others come.
        // Looked for last: where many wait, most have been given back by now.
        if self.waiting.iter().any(|(_, earlier)| blocks_of(earlier).overlaps(&blocks)) {
            return Some(write);
        }
        if merges {
            self.start_merge(cx, client, write, blocks);
            return None;
        }
        self.order(
            cx,
            Pending {
                header: self.next_header(cx, &write, blocks),
                oldest: write.oldest,
                body: Some(write.body),
                client: Some(client),
                as_sent: true,
                ordered_at: Duration::ZERO,
            },
        );
        None
    }

    /// The header of the write that is ordered next.
    pub(crate) fn next_header(&self, cx: &GroupCx, write: &WriteRequest, range: BlockRange) -> WriteHeader {
        WriteHeader {
            pg: cx.pg,
            epoch: self.epoch(),
            sequence: cx.tail.end().next(),
            commit: cx.tail.committed(),
            session: write.session,
            request: write.request,
            range,
        }
    }

    /// Gives a write its place: from here on it will be committed, or be void with this epoch.
    pub(crate) fn order(&mut self, cx: &mut GroupCx, mut write: Pending) {
        write.ordered_at = cx.now;
        if let Some(body) = write.body.clone() {
            cx.append(Write { header: write.header, body });
        }
        cx.tail.push(write);
        let now = cx.now;
        self.ordered_at = Some(now);
        self.pace.sent(cx.tail.end(), now);
        let followers: Vec<DeviceId> = self.peers.keys().copied().collect();
        followers.into_iter().for_each(|device| self.send_prepares(cx, device));
    }

    /// Lets waiting writes in whose obstacle may be gone.
    pub(crate) fn retry_waiting(&mut self, cx: &mut GroupCx) {
        if self.waiting.is_empty() || self.has_learners && self.waits_for_learner() {
            return;
        }
        for (client, write) in std::mem::take(&mut self.waiting) {
            if let Some(write) = self.admit(cx, client, write) {
                self.waiting.push_back((client, write));
            }
        }
    }

    /// Takes out those of the writes that have no place in the order yet.
    pub(crate) fn drop_unordered(&mut self, which: impl Fn(&WriteRequest) -> bool) -> Vec<(Client, RequestId)> {
        let mut gone = VecDeque::new();
        if self.waiting.iter().any(|(_, write)| which(write)) {
            let waiting = std::mem::take(&mut self.waiting);
            (gone, self.waiting) = waiting.into_iter().partition(|(_, write)| which(write));
        }
        let merging = self.merges.remove(which);
        gone.into_iter().map(|(client, write)| (client, write.request)).chain(merging).collect()
    }

    /// A write that has no place in the order yet was sent again: the answer goes to `client`.
    fn adopt_unordered(&mut self, client: Client, write: &WriteRequest) -> bool {
        let same = |w: &WriteRequest| w.session == write.session && w.request == write.request;
        match self.waiting.iter_mut().find(|(_, waiting)| same(waiting)) {
            Some((waiting, _)) => *waiting = client,
            None => return self.merges.adopt(client, write.session, write.request),
        }
        true
    }

    pub(crate) fn drain_clients(&mut self) -> Vec<(Client, RequestId)> {
        let mut clients: Vec<_> = self.waiting.drain(..).map(|(client, write)| (client, write.request)).collect();
        clients.extend(self.merges.drain());
        clients
    }

    /// Writes that were ordered since the last call, by who sent them.
    pub(crate) fn take_writers(&mut self) -> BTreeMap<Client, u32> {
        std::mem::take(&mut self.writers)
    }

    /// Sends everybody who waits here to ask again.
    pub(crate) fn drop_clients(&mut self, cx: &mut GroupCx) {
        let mut waiting = self.drain_clients();
        for sequence in cx.tail.committed().0 + 1..=cx.tail.end().0 {
            if let Some(write) = cx.tail.get_mut(Sequence(sequence))
                && let Some(client) = write.client.take()
            {
                waiting.push((client, write.header.request));
            }
        }
        for (client, request) in waiting {
            cx.act(Action::AnswerWrite(client, request, Err(IoStatus::Redirect)));
        }
        for (client, request) in self.elsewhere.drain_readers() {
            cx.act(Action::Refuse(client, request, IoStatus::Redirect));
        }
    }
}

pub(crate) fn blocks_of(write: &WriteRequest) -> BlockRange {
    BlockRange::of_bytes(write.layer, write.chunk, write.offset, write.len)
}

/// Checks the request's shape and, unless `trusted`, its checksums.
pub(crate) fn check(write: &WriteRequest, trusted: bool) -> Result<(), Mismatch> {
    let (offset, len) = (write.offset as usize, write.len as usize);
    if len == 0 || offset.checked_add(len).is_none_or(|end| end > CHUNK_SIZE) {
        return Err(Mismatch::Request);
    }
    if let Some(expected) = &write.expected {
        if expected.bytes.len() != len || blocks_of(write).count != 1 || !matches!(write.body, Body::Data { .. }) {
            return Err(Mismatch::Request);
        }
        if !trusted && checksum(&expected.bytes) != expected.checksum {
            return Err(Mismatch::Checksum);
        }
    }
    match &write.body {
        // Gateways cut zeros at block borders and send the edges as data.
        Body::Zero if !offset.is_multiple_of(BLOCK_SIZE) || !len.is_multiple_of(BLOCK_SIZE) => Err(Mismatch::Request),
        Body::Zero => Ok(()),
        Body::Lost { .. } => Err(Mismatch::Request),
        Body::Data { bytes, checksums } => {
            if bytes.len() != len || checksums.len() != blocks_of(write).count as usize {
                return Err(Mismatch::Request);
            }
            if trusted || pieces(offset, bytes).map(checksum).eq(checksums.iter().copied()) {
                Ok(())
            } else {
                Err(Mismatch::Checksum)
            }
        }
    }
}

/// `bytes`, which start at `offset` in a chunk, cut at block borders.
pub(crate) fn pieces(offset: usize, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let head = (BLOCK_SIZE - offset % BLOCK_SIZE).min(bytes.len());
    let (head, rest) = bytes.split_at(head);
    std::iter::once(head).chain(rest.chunks(BLOCK_SIZE))
}
