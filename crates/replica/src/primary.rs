//! The primary's side: give writes their order, replicate, commit.

use crate::action::{Action, Client, Mismatch};
use crate::group::{Group, GroupState, Role};
use crate::lease::LEASE;
use crate::merge::Merges;
use crate::pending::{Blocks, Pending};
use crate::{PENDING_WRITES_MAX, WAITING_WRITES_MAX};
use azekura_base::{BLOCK_SIZE, BlockIndex, CHUNK_SIZE, DeviceId, Epoch, IoStatus, RequestId, Sequence, checksum};
use azekura_wire::{Body, Message, Prepare, PrepareOk, Sync, SyncOk, WriteBody, WriteRequest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What the primary knows of one in-sync secondary.
#[derive(Debug, Default)]
struct Peer {
    /// It has entered the epoch on the present connection.
    synced: bool,
    /// The last write sent to it on that connection.
    sent: Sequence,
    /// Writes up to here have perhaps been sent on an earlier connection; they are sent again in full.
    again: Sequence,
    /// Everything up to here is durable there.
    acked: Sequence,
    /// Until when it follows nobody else.
    lease_until: Duration,
    /// Its device takes no more data.
    full: bool,
    /// It no longer has writes that it had acknowledged.
    lost: bool,
}

/// How far a primary's reign has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody has agreed to the epoch yet.
    Proposed,
    /// The configuration names this epoch. What this copy has prepared before is being committed on all copies.
    ///
    /// Some of it may have been acknowledged in an earlier epoch, whose commit points are forgotten: until all of it is
    /// committed again, neither reads may be answered nor leases given. And only then is the epoch recorded here: a
    /// crash in between finds the prepared writes as they are.
    Reconciling,
    /// Nothing is prepared; the epoch's record is on its way to the log.
    Starting,
    /// Reads and writes are served.
    Open,
}

/// State that only a primary has.
pub(crate) struct Primary {
    epoch: Epoch,
    stage: Stage,
    peers: BTreeMap<DeviceId, Peer>,
    /// A prepared write's blocks are being read back from the log, to be sent again.
    loading: Option<Sequence>,
    pub(crate) merges: Merges,
    /// Writes that wait for a merge, or for what a merge waits for.
    waiting: VecDeque<(Client, WriteRequest)>,
}

impl Primary {
    pub(crate) fn new(epoch: Epoch, me: DeviceId, in_sync: &BTreeSet<DeviceId>) -> Primary {
        let peers = in_sync.iter().filter(|device| **device != me).map(|device| (*device, Peer::default())).collect();
        Primary {
            epoch,
            stage: Stage::Proposed,
            peers,
            loading: None,
            merges: Merges::default(),
            waiting: VecDeque::new(),
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    pub(crate) fn is_proposed(&self) -> bool {
        self.stage == Stage::Proposed
    }

    pub(crate) fn forget_peer(&mut self, device: DeviceId) {
        if let Some(peer) = self.peers.get_mut(&device) {
            peer.synced = false;
            peer.lost = false;
        }
    }

    /// Invariant 3: while every in-sync secondary has promised to follow nobody else, no other primary commits.
    pub(crate) fn may_serve(&self, now: Duration) -> bool {
        self.is_open() && self.peers.values().all(|peer| now < peer.lease_until)
    }

    pub(crate) fn state(&self) -> GroupState {
        if self.is_proposed() {
            return GroupState::Opening;
        }
        if let Some((device, _)) = self.peers.iter().find(|(_, peer)| peer.lost) {
            return GroupState::CopyLost(*device);
        }
        match self.peers.iter().find(|(_, peer)| !peer.synced) {
            Some((device, _)) => GroupState::WaitingForCopy(*device),
            None if self.is_open() => GroupState::Active,
            None => GroupState::Opening,
        }
    }

    pub(crate) fn drain_clients(&mut self) -> Vec<(Client, RequestId)> {
        let mut clients: Vec<_> = self.waiting.drain(..).map(|(client, write)| (client, write.request)).collect();
        clients.extend(self.merges.drain());
        clients
    }
}

impl Group {
    /// The configuration names this copy as primary: the whole tail is to be committed in the new epoch.
    pub(crate) fn reconcile(&mut self) {
        let connected: Vec<DeviceId> = self.connected.iter().copied().collect();
        if let Role::Primary(primary) = &mut self.role {
            primary.stage = Stage::Reconciling;
        }
        connected.into_iter().for_each(|device| self.greet(device));
        self.try_commit();
    }

    /// Records the epoch once the tail is committed.
    fn try_start(&mut self) {
        let keep = self.tail.committed();
        if let Role::Primary(primary) = &mut self.role
            && primary.stage == Stage::Reconciling
            && keep == self.tail.end()
        {
            primary.stage = Stage::Starting;
            self.actions.push_back(Action::StartEpoch { epoch: primary.epoch, keep });
        }
    }

    /// The epoch's record is durable.
    pub(crate) fn open(&mut self) {
        if let Role::Primary(primary) = &mut self.role {
            primary.stage = Stage::Open;
        }
    }

    /// Asks a secondary that has just become reachable how far it is.
    pub(crate) fn greet(&mut self, device: DeviceId) {
        let Role::Primary(primary) = &self.role else { return };
        if !primary.is_proposed() && primary.peers.contains_key(&device) {
            let sync = Sync { pg: self.pg, device, epoch: primary.epoch, committed: self.tail.committed() };
            self.actions.push_back(Action::Send(device, Message::Sync(sync)));
        }
    }

    /// The secondary on `device` has entered the epoch, or refuses to.
    pub fn sync_ok(&mut self, device: DeviceId, ok: SyncOk) {
        let Role::Primary(primary) = &mut self.role else { return };
        if ok.epoch != primary.epoch || primary.is_proposed() {
            return; // A refusal names a newer epoch; the configuration that made it is on its way here.
        }
        let Some(peer) = primary.peers.get_mut(&device) else { return };
        peer.full = ok.full;
        // Fewer than are committed, or than it acknowledged: its log is not the one that it was.
        if ok.prepared < self.tail.committed() || ok.prepared < peer.acked || ok.prepared > self.tail.end() {
            peer.lost = true;
            return;
        }
        peer.synced = true;
        peer.sent = ok.prepared;
        peer.again = self.tail.end();
        peer.acked = ok.prepared;
        self.pump(device);
        self.try_commit();
    }

    /// The secondary on `device` is durable up to `ok.sequence`.
    pub fn prepare_ok(&mut self, device: DeviceId, ok: PrepareOk) {
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&device) else { return };
        if ok.epoch != primary.epoch || !peer.synced || ok.sequence > peer.sent {
            return;
        }
        peer.full = ok.full;
        peer.acked = peer.acked.max(ok.sequence);
        self.try_commit();
    }

    /// The secondary on `device` has promised, in answer to a heartbeat that was sent at `sent`, to follow nobody
    /// else.
    pub fn heartbeat_ok(&mut self, device: DeviceId, sent: Duration, full: bool) {
        let Role::Primary(primary) = &mut self.role else { return };
        if let Some(peer) = primary.peers.get_mut(&device) {
            peer.lease_until = peer.lease_until.max(sent + LEASE);
            peer.full = full;
        }
    }

    /// The secondaries that a heartbeat must reach, if this copy is an open primary.
    pub fn followers(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let peers = match &self.role {
            Role::Primary(primary) if primary.is_open() => Some(&primary.peers),
            _ => None,
        };
        peers.into_iter().flatten().filter(|(_, peer)| peer.synced).map(|(device, _)| *device)
    }

    /// A gateway writes. `trusted` says that the data has not left this process since its checksums were made.
    ///
    /// # Errors
    /// When the data is damaged or the request malformed: the connection that it came on must be closed.
    pub fn write(&mut self, client: Client, write: WriteRequest, trusted: bool) -> Result<(), Mismatch> {
        check(&write, trusted)?;
        let answer = |result| Action::AnswerWrite(client, write.request, result);
        let Role::Primary(primary) = &mut self.role else {
            self.actions.push_back(answer(Err(IoStatus::Redirect)));
            return Ok(());
        };
        if self.sessions.is_committed(write.session, write.request) {
            self.actions.push_back(answer(Ok(())));
            return Ok(());
        }
        if let Some(pending) = self.tail.find(write.session, write.request) {
            pending.client = Some(client);
            return Ok(());
        }
        if !primary.is_open() || self.tail.len() >= PENDING_WRITES_MAX || primary.waiting.len() >= WAITING_WRITES_MAX {
            self.actions.push_back(answer(Err(IoStatus::Redirect)));
            return Ok(());
        }
        let holds_data = matches!(write.body, WriteBody::Data { .. });
        if holds_data && (self.full || primary.peers.values().any(|peer| peer.full)) {
            self.actions.push_back(answer(Err(IoStatus::NoSpace)));
            return Ok(());
        }
        let same = |w: &WriteRequest| w.session == write.session && w.request == write.request;
        if let Some((waiting, _)) = primary.waiting.iter_mut().find(|(_, w)| same(w)) {
            *waiting = client;
            return Ok(());
        }
        if primary.merges.adopt(client, write.session, write.request) {
            return Ok(());
        }
        if let Some(write) = self.admit(client, write)
            && let Role::Primary(primary) = &mut self.role
        {
            primary.waiting.push_back((client, write));
        }
        Ok(())
    }

    /// Orders the write, or starts its merge; gives it back when it must wait.
    fn admit(&mut self, client: Client, write: WriteRequest) -> Option<WriteRequest> {
        let blocks = blocks_of(&write);
        let partial =
            !(write.offset as usize).is_multiple_of(BLOCK_SIZE) || !(write.len as usize).is_multiple_of(BLOCK_SIZE);
        let Role::Primary(primary) = &mut self.role else { return Some(write) };
        if primary.merges.touches(&blocks) || (partial && self.tail.touches(&blocks)) {
            return Some(write);
        }
        if partial {
            self.start_merge(client, write, blocks);
            return None;
        }
        let body = match write.body {
            WriteBody::Data { bytes, checksums } => Body::Data { bytes, checksums },
            WriteBody::Zero => Body::Zero,
        };
        self.order(Pending {
            sequence: self.tail.end().next(),
            session: write.session,
            request: write.request,
            oldest: write.oldest,
            blocks,
            body: Some(body),
            client: Some(client),
            as_sent: true,
        });
        None
    }

    /// Gives a write its place: from here on it will be committed, or be void with this epoch.
    pub(crate) fn order(&mut self, write: Pending) {
        let prepare = prepare_of(self, &write, self.me);
        self.tail.push(write);
        if let Some(prepare) = prepare {
            self.actions.push_back(Action::Append(prepare));
        }
        let Role::Primary(primary) = &self.role else { return };
        let followers: Vec<DeviceId> = primary.peers.keys().copied().collect();
        followers.into_iter().for_each(|device| self.pump(device));
    }

    /// Lets waiting writes in whose obstacle may be gone.
    pub(crate) fn retry_waiting(&mut self) {
        let Role::Primary(primary) = &mut self.role else { return };
        if primary.waiting.is_empty() {
            return;
        }
        for (client, write) in std::mem::take(&mut primary.waiting) {
            if let Some(write) = self.admit(client, write)
                && let Role::Primary(primary) = &mut self.role
            {
                primary.waiting.push_back((client, write));
            }
        }
    }

    /// Sends a secondary what it has not been sent.
    fn pump(&mut self, device: DeviceId) {
        let end = self.tail.end();
        loop {
            let Role::Primary(primary) = &mut self.role else { return };
            let Some(peer) = primary.peers.get_mut(&device) else { return };
            if !peer.synced || peer.sent >= end {
                return;
            }
            let next = peer.sent.next();
            if self.tail.get_mut(next).is_some_and(|write| write.body.is_none()) {
                if primary.loading.is_none() {
                    primary.loading = Some(next);
                    self.actions.push_back(Action::LoadPrepared(next));
                }
                return;
            }
            peer.sent = next;
            let first_time = next > peer.again;
            let Some(write) = self.tail.get_mut(next).cloned() else { return };
            if let Some(prepare) = prepare_of(self, &write, device) {
                let holder = write.client.filter(|_| write.as_sent && first_time);
                self.actions.push_back(Action::SendPrepare(device, prepare, holder));
            }
        }
    }

    /// A prepared write's blocks are back from the log; `None` when the device could not read them.
    pub fn prepared_loaded(&mut self, sequence: Sequence, body: Option<Body>) {
        let Role::Primary(primary) = &mut self.role else { return };
        if primary.loading.take_if(|loading| *loading == sequence).is_none() {
            return;
        }
        let Some(body) = body else { return };
        if let Some(write) = self.tail.get_mut(sequence) {
            write.body = Some(body);
        }
        let followers: Vec<DeviceId> = primary.peers.keys().copied().collect();
        followers.into_iter().for_each(|device| self.pump(device));
    }

    /// Commits what every in-sync copy holds (ack rule `all`).
    pub(crate) fn try_commit(&mut self) {
        let Role::Primary(primary) = &self.role else { return };
        if primary.is_proposed() {
            return;
        }
        let everywhere = primary.peers.values().map(|peer| peer.acked).min().unwrap_or(self.durable);
        let upto = everywhere.min(self.durable);
        if upto > self.tail.committed() {
            self.commit(upto);
            self.retry_waiting();
        }
        self.try_start();
    }
}

fn prepare_of(group: &Group, write: &Pending, device: DeviceId) -> Option<Prepare> {
    let Role::Primary(primary) = &group.role else { return None };
    Some(Prepare {
        pg: group.pg,
        device,
        epoch: primary.epoch,
        sequence: write.sequence,
        commit: group.tail.committed(),
        session: write.session,
        request: write.request,
        oldest: write.oldest,
        layer: write.blocks.layer,
        chunk: write.blocks.chunk,
        first: write.blocks.first,
        count: write.blocks.count,
        body: write.body.clone()?,
    })
}

pub(crate) fn blocks_of(write: &WriteRequest) -> Blocks {
    let first = write.offset as usize / BLOCK_SIZE;
    let end = (write.offset as usize + write.len as usize).div_ceil(BLOCK_SIZE);
    Blocks { layer: write.layer, chunk: write.chunk, first: BlockIndex(first as u16), count: (end - first) as u16 }
}

/// Checks the request's shape and, unless `trusted`, its checksums.
fn check(write: &WriteRequest, trusted: bool) -> Result<(), Mismatch> {
    let (offset, len) = (write.offset as usize, write.len as usize);
    if len == 0 || offset.checked_add(len).is_none_or(|end| end > CHUNK_SIZE) {
        return Err(Mismatch::Request);
    }
    match &write.body {
        // Gateways cut zeros at block borders and send the edges as data.
        WriteBody::Zero if !offset.is_multiple_of(BLOCK_SIZE) || !len.is_multiple_of(BLOCK_SIZE) => {
            Err(Mismatch::Request)
        }
        WriteBody::Zero => Ok(()),
        WriteBody::Data { bytes, checksums } => {
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
