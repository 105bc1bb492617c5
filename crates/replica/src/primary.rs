//! The primary's side of an open reign: give writes their order, replicate, commit.

use crate::action::{Action, Client, Mismatch};
use crate::config::GroupConfig;
use crate::fence::Fences;
use crate::flow::{Backlog, Retries, cost};
use crate::group::{Group, Role};
use crate::lease::{LEASE, is_sluggish, readers_until};
use crate::limits::{PENDING_WRITES_MAX, WAITING_WRITES_MAX};
use crate::mend::Mending;
use crate::merge::Merges;
use crate::peer::{Peer, Standing};
use crate::pending::Pending;
use crate::resync::Repairs;
use crate::scrub::Scrub;
use crate::sluggish::Pace;
use crate::state::GroupState;
use crate::takeover::{HandingOver, TakeOver};
use azekura_base::{
    AckRule, BLOCK_SIZE, BlockRange, Body, CHUNK_SIZE, DeviceId, Epoch, IoStatus, RequestId, Sequence, Write,
    WriteHeader, checksum,
};
use azekura_wire::{Prepare, PrepareOk, WriteRequest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What a primary asks its surroundings is numbered from its epoch, shifted by this.
pub(crate) const REIGN_SHIFT: u32 = 32;

/// State that only a primary has.
pub(crate) struct Primary {
    epoch: Epoch,
    /// How far it has come on its way to an open epoch.
    pub(crate) takeover: TakeOver,
    pub(crate) peers: BTreeMap<DeviceId, Peer>,
    /// The in-sync sets that were proposed, by version, and may stand unheard: what is enough must be enough in each.
    pub(crate) proposals_in_doubt: Vec<(u64, BTreeSet<DeviceId>)>,
    /// When a write was last ordered.
    pub(crate) ordered_at: Option<Duration>,
    /// How long writes take on this copy's own device.
    pub(crate) pace: Pace,
    /// Copies that this primary has left behind because they were slow.
    pub(crate) was_slow: BTreeSet<DeviceId>,
    /// This prepared write's blocks are being read back from the log, to be sent again.
    loading: Option<Sequence>,
    /// Copies that had committed more than this one when they were to be brought up to date, and until when they are
    /// left alone (0007).
    pub(crate) ahead: BTreeMap<DeviceId, Duration>,
    pub(crate) merges: Merges,
    pub(crate) repairs: Repairs,
    pub(crate) mending: Mending,
    pub(crate) scrub: Option<Scrub>,
    pub(crate) fences: Fences,
    /// Somebody has asked for something since the last tick and was not served. A silent copy is left behind only then:
    /// a cluster that is shut down node by node keeps all its copies in sync (0007).
    pub(crate) clients_wait: bool,
    /// Another copy is to reign in this one's place.
    pub(crate) handing_over: Option<HandingOver>,
    /// When a primary that is to leave tries to hand over next.
    pub(crate) leave_at: Duration,
    /// Copies may be brought up to date now.
    pub(crate) may_resync: bool,
    /// Perhaps some are.
    pub(crate) has_learners: bool,
    /// Copies for which writes have waited in vain.
    pub(crate) retries: Retries,
    /// Writes that wait for a merge, for a repair, or for what a merge waits for.
    waiting: VecDeque<(Client, WriteRequest)>,
    /// Writes since the last look, by who sent them.
    pub(crate) writers: BTreeMap<Client, u32>,
}

impl Primary {
    pub(crate) fn new(
        epoch: Epoch,
        takeover: TakeOver,
        me: DeviceId,
        in_sync: &BTreeSet<DeviceId>,
        now: Duration,
    ) -> Primary {
        let peers = in_sync.iter().filter(|device| **device != me);
        Primary {
            epoch,
            takeover,
            ahead: BTreeMap::new(),
            peers: peers.map(|device| (*device, Peer::new(Standing::InSync, now))).collect(),
            proposals_in_doubt: Vec::new(),
            ordered_at: None,
            pace: Pace::default(),
            was_slow: BTreeSet::new(),
            loading: None,
            merges: Merges::new(epoch),
            repairs: Repairs::new(epoch),
            mending: Mending::default(),
            scrub: None,
            fences: Fences::default(),
            clients_wait: false,
            handing_over: None,
            leave_at: Duration::ZERO,
            may_resync: false,
            has_learners: false,
            retries: Retries::default(),
            waiting: VecDeque::new(),
            writers: BTreeMap::new(),
        }
    }

    /// The configuration names a copy as in sync.
    pub(crate) fn peer_in_sync(&mut self, device: DeviceId, now: Duration) {
        let peer = self.peers.entry(device).or_insert_with(|| Peer::new(Standing::InSync, now));
        peer.standing = Standing::InSync;
        peer.named = None;
    }

    /// No other write to these blocks may be ordered now.
    pub(crate) fn is_held(&self, blocks: &BlockRange) -> bool {
        self.merges.touches(blocks) || self.repairs.hold(blocks) || self.mending.hold(blocks)
    }

    pub(crate) fn counting(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values().filter(|peer| peer.counts())
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn is_open(&self) -> bool {
        self.takeover.is_open()
    }

    /// The connection to a copy is gone, or new.
    pub(crate) fn forget_peer(&mut self, device: DeviceId) {
        self.takeover.forget_answer(device);
        let Some(peer) = self.peers.get_mut(&device) else { return };
        // A copy that was about to join, and that no proposal names, need not be waited for (0013, leaving).
        if peer.may_be_in_sync() {
            peer.synced = false;
            peer.asked = Duration::ZERO;
            (peer.backlog, peer.missed) = (Backlog::default(), false);
        } else {
            self.forget_learner(device);
        }
    }

    /// Invariant 3, 0013 (point 1): while every copy that could take over has promised to follow nobody else, no other
    /// primary commits.
    fn has_all_leases(&self, now: Duration) -> bool {
        let could_reign = |peer: &&Peer| matches!(peer.standing, Standing::InSync) || peer.named.is_some();
        self.is_open() && self.peers.values().filter(could_reign).all(|peer| now < peer.lease_until)
    }

    /// Everything up to here is durable on enough copies, whichever proposed configuration stands. A copy that joins is
    /// waited for (0010, point 1).
    fn held_by_enough(&self, config: &GroupConfig, me: DeviceId, durable: Sequence) -> Sequence {
        if config.ack == AckRule::All || !self.is_open() {
            return self.counting().map(|peer| peer.acked).min().unwrap_or(durable).min(durable);
        }
        let acked = |device: DeviceId| match self.peers.get(&device) {
            _ if device == me => durable,
            Some(peer) => peer.acked,
            None => Sequence::ZERO,
        };
        let enough = |in_sync: &BTreeSet<DeviceId>| config.held_by_enough(in_sync, me, acked);
        let joining = self.peers.values().filter(|peer| matches!(peer.standing, Standing::Joining));
        let in_doubt = self.proposals_in_doubt.iter().map(|(_, in_sync)| enough(in_sync));
        in_doubt.chain(joining.map(|peer| peer.acked)).min().unwrap_or(durable).min(enough(&config.in_sync))
    }

    /// A copy lacks nothing up to `end`.
    pub(crate) fn has_all(&self, device: DeviceId, end: Sequence) -> bool {
        self.peers.get(&device).is_some_and(|peer| peer.acked >= end)
    }

    /// What was prepared before this epoch is being gathered.
    pub(crate) fn is_gathering(&self) -> bool {
        self.takeover.is_gathering()
    }

    pub(crate) fn state(&self) -> GroupState {
        if let Some((device, _)) = self.peers.iter().find(|(_, peer)| peer.diverged_at.is_some()) {
            return GroupState::CopyLost(*device);
        }
        if let Some(device) = self.ahead.keys().next() {
            return GroupState::CopyAhead(*device);
        }
        match self.peers.iter().find(|(_, peer)| !peer.synced) {
            Some((device, _)) => GroupState::WaitingForCopy(*device),
            None if self.is_open() => GroupState::Active,
            None => GroupState::Opening,
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
}

impl Group {
    /// The secondary on `device` is durable up to `ok.sequence`.
    pub fn prepare_ok(&mut self, device: DeviceId, ok: PrepareOk) {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&device) else { return };
        if ok.epoch != primary.epoch || !peer.synced || ok.sequence > peer.sent {
            return;
        }
        (peer.full, peer.heard) = (ok.full, now);
        if ok.sequence > peer.acked {
            peer.acked = ok.sequence;
            let room = peer.backlog.acked(ok.sequence);
            peer.pace.acked(ok.sequence, now);
            peer.moved = now;
            let lacks = peer.sent < self.tail.end();
            if primary.made_room(device, room) {
                self.retry_waiting();
            }
            if lacks {
                self.pump(device);
            }
        }
        self.gather();
        self.try_commit();
    }

    /// The secondary on `device` has promised, in answer to a heartbeat that was sent at `sent`, to follow nobody
    /// else. True when that lets this copy answer readers.
    pub fn heartbeat_ok(&mut self, device: DeviceId, sent: Duration, full: bool, now: Duration) -> bool {
        let before = self.may_serve(now);
        if let Some(peer) = self.primary_mut().and_then(|primary| primary.peers.get_mut(&device)) {
            // 0004: counted from the sending, so that the lease ends before the promise does.
            peer.lease_until = peer.lease_until.max(sent + LEASE);
            peer.heard = peer.heard.max(now);
            peer.full = full;
        }
        !before && self.may_serve(now)
    }

    /// Invariant 3, 0010 (point 3): nobody else commits while those copies follow this primary of which a new one would
    /// have to hear some.
    pub(crate) fn may_serve(&self, now: Duration) -> bool {
        let Role::Primary(primary) = &self.role else { return false };
        if self.config.ack == AckRule::All {
            return primary.has_all_leases(now);
        }
        let bound = |device: DeviceId| {
            device == self.me || primary.peers.get(&device).is_some_and(|peer| now < peer.lease_until)
        };
        let enough = |in_sync: &BTreeSet<DeviceId>| self.config.could_acknowledge(in_sync, bound);
        primary.is_open()
            && enough(&self.config.in_sync)
            && primary.proposals_in_doubt.iter().all(|(_, in_sync)| enough(in_sync))
    }

    /// Every in-sync copy holds everything up to here, so a copy that is left behind unheard has at least that (0010,
    /// point 6).
    pub(crate) fn raise_low_watermark(&mut self) {
        if let Some(primary) = self.primary().filter(|primary| primary.is_open()) {
            let everywhere = primary.counting().map(|peer| peer.acked).min().unwrap_or(self.durable);
            self.low_watermark = self.low_watermark.max(everywhere.min(self.tail.committed()));
        }
    }

    /// Every in-sync copy holds everything up to here, for heartbeats to tell.
    #[must_use]
    pub fn low_watermark(&self) -> Sequence {
        self.low_watermark
    }

    /// A heartbeat to `device` is on its way, with the secondary's own stamp that arrived here at `stamp_arrived`: that
    /// is what its lease to answer readers counts from.
    pub fn heartbeat_sent(&mut self, device: DeviceId, stamp_arrived: Duration) {
        if let Role::Primary(primary) = &mut self.role
            && let Some(peer) = primary.peers.get_mut(&device).filter(|peer| !peer.leaving)
        {
            // 0007: the copy is not left behind before this time.
            peer.reads_until = peer.reads_until.max(readers_until(stamp_arrived));
        }
    }

    /// Writes that were ordered since the last call, by who sent them.
    pub fn take_writers(&mut self) -> BTreeMap<Client, u32> {
        match &mut self.role {
            Role::Primary(primary) => std::mem::take(&mut primary.writers),
            Role::Secondary(_) => BTreeMap::new(),
        }
    }

    /// The secondaries that a heartbeat must reach, if this copy is primary, and whether they may answer readers by
    /// themselves: only those that commits wait for and the configuration names (0010, reads), and only while this copy
    /// may, since another primary could reign beside this one otherwise.
    pub fn followers(&self, now: Duration) -> impl Iterator<Item = (DeviceId, bool)> + '_ {
        let peers = match &self.role {
            Role::Primary(primary) => Some(&primary.peers),
            Role::Secondary(_) => None,
        };
        let serving = self.is_serving(now);
        let follow = peers.into_iter().flatten().filter(|(_, peer)| peer.synced && peer.counts());
        follow.map(move |(device, peer)| {
            let stays = matches!(peer.standing, Standing::InSync)
                && self.config.members.contains(device)
                && peer.diverged_at.is_none()
                && !is_sluggish(peer.moved, now)
                && !peer.pace.is_slow(now);
            (*device, serving && stays && self.config.has_readers())
        })
    }

    /// A gateway writes. `trusted` says that the data has not left this process since its checksums were made.
    ///
    /// # Errors
    /// When the data is damaged or the request malformed: the connection that it came on must be closed.
    pub fn write(&mut self, client: Client, write: WriteRequest, trusted: bool) -> Result<(), Mismatch> {
        self.take_write(client, write, trusted, false)
    }

    /// As [`Group::write`], for a layer that takes no writes now, or any more: only what has a place in the order
    /// already, under whichever layer's name, is answered; all else is asked to come again.
    ///
    /// # Errors
    /// As [`Group::write`].
    pub fn write_stale(&mut self, client: Client, write: WriteRequest, trusted: bool) -> Result<(), Mismatch> {
        self.take_write(client, write, trusted, true)
    }

    fn take_write(&mut self, client: Client, write: WriteRequest, trusted: bool, stale: bool) -> Result<(), Mismatch> {
        check(&write, trusted)?;
        self.drop_given_up(&write);
        let answer = |result| Action::AnswerWrite(client, write.request, result);
        let serving = self.may_serve(self.now);
        let Role::Primary(primary) = &mut self.role else {
            self.actions.push_back(answer(Err(IoStatus::Redirect)));
            return Ok(());
        };
        if self.sessions.is_past(write.session, write.request) {
            return Ok(()); // Nobody waits for it.
        }
        if self.sessions.has_ended(write.session) {
            self.actions.push_back(answer(Err(IoStatus::Fenced)));
            return Ok(());
        }
        if !serving {
            primary.clients_wait = true;
        }
        // Also what is committed already: it may be on fewer copies than the class demands.
        if !self.config.is_writable() {
            self.actions.push_back(answer(Err(IoStatus::ReadOnly)));
            return Ok(());
        }
        if self.sessions.is_committed(write.session, write.request) {
            self.actions.push_back(answer(Ok(())));
            return Ok(());
        }
        if let Some(pending) = self.tail.find(write.session, write.request) {
            pending.client = Some(client);
            return Ok(());
        }
        if primary.adopt_unordered(client, &write) {
            return Ok(());
        }
        let too_many = self.tail.len() >= PENDING_WRITES_MAX
            || primary.waiting.len() >= WAITING_WRITES_MAX
            || !self.sessions.has_room_for(write.session);
        if !primary.is_open() || too_many {
            self.actions.push_back(answer(Err(IoStatus::Redirect)));
            return Ok(());
        }
        if stale {
            self.actions.push_back(answer(Err(IoStatus::Stale)));
            return Ok(());
        }
        let holds_data = matches!(write.body, Body::Data { .. });
        if holds_data && (self.full || primary.counting().any(|peer| peer.full)) {
            self.actions.push_back(answer(Err(IoStatus::NoSpace)));
            return Ok(());
        }
        *primary.writers.entry(client).or_default() += 1;
        if let Some(write) = self.admit(client, write)
            && let Role::Primary(primary) = &mut self.role
        {
            primary.waiting.push_back((client, write));
        }
        Ok(())
    }

    /// Drops what the write's gateway has given up and is parked here: it must not come after this write, which may be
    /// to the same blocks.
    fn drop_given_up(&mut self, write: &WriteRequest) {
        let (session, oldest) = (write.session, write.oldest);
        self.sessions.heard(session, oldest);
        let Role::Primary(primary) = &mut self.role else { return };
        if !primary.drop_unordered(|parked| parked.session == session && parked.request < oldest).is_empty() {
            self.retry_waiting();
        }
    }

    /// Orders the write, or starts its merge; gives it back when it must wait.
    fn admit(&mut self, client: Client, write: WriteRequest) -> Option<WriteRequest> {
        let blocks = blocks_of(&write);
        let partial =
            !(write.offset as usize).is_multiple_of(BLOCK_SIZE) || !(write.len as usize).is_multiple_of(BLOCK_SIZE);
        let Role::Primary(primary) = &mut self.role else { return Some(write) };
        if primary.is_held(&blocks) || (partial && self.tail.touches(&blocks)) {
            return Some(write);
        }
        if primary.has_learners && primary.waits_for_learner() {
            return Some(write);
        }
        if partial {
            self.start_merge(client, write, blocks);
            return None;
        }
        self.order(Pending {
            header: self.next_header(&write, blocks),
            oldest: write.oldest,
            body: Some(write.body),
            client: Some(client),
            as_sent: true,
            ordered_at: Duration::ZERO,
        });
        None
    }

    /// The header of the write that is ordered next.
    pub(crate) fn next_header(&self, write: &WriteRequest, range: BlockRange) -> WriteHeader {
        WriteHeader {
            pg: self.pg,
            epoch: self.epoch(),
            sequence: self.tail.end().next(),
            commit: self.tail.committed(),
            session: write.session,
            request: write.request,
            range,
        }
    }

    /// Gives a write its place: from here on it will be committed, or be void with this epoch.
    pub(crate) fn order(&mut self, mut write: Pending) {
        write.ordered_at = self.now;
        if let Some(body) = write.body.clone() {
            self.actions.push_back(Action::Append(Write { header: write.header, body }, self.log_life));
        }
        self.tail.push(write);
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        primary.ordered_at = Some(now);
        primary.pace.sent(self.tail.end(), now);
        let followers: Vec<DeviceId> = primary.peers.keys().copied().collect();
        followers.into_iter().for_each(|device| self.pump(device));
    }

    /// Lets waiting writes in whose obstacle may be gone.
    pub(crate) fn retry_waiting(&mut self) {
        let Role::Primary(primary) = &mut self.role else { return };
        if primary.waiting.is_empty() || primary.has_learners && primary.waits_for_learner() {
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
    pub(crate) fn pump(&mut self, device: DeviceId) {
        let (committed, end, now) = (self.tail.committed(), self.tail.end(), self.now);
        loop {
            let Role::Primary(primary) = &mut self.role else { return };
            let Some(peer) = primary.peers.get_mut(&device) else { return };
            // What is committed is not to be had any more: who was not sent it is left behind.
            if !peer.synced || peer.sent >= end || peer.sent < committed {
                return;
            }
            let optional = self.config.ack != AckRule::All && peer.counts();
            if optional && peer.lags() {
                return;
            }
            let next = peer.sent.next();
            if self.tail.get_mut(next).is_some_and(|write| write.body.is_none()) {
                if primary.loading.is_none() {
                    primary.loading = Some(next);
                    self.actions.push_back(Action::LoadPrepared(next, primary.epoch));
                }
                return;
            }
            peer.sent = next;
            peer.pace.sent(next, now);
            let learns = !peer.counts();
            // Nothing waits for a copy that learns: the write may be answered, and forgotten, before this arrives.
            let first_time = next > peer.again && !learns;
            let Some(write) = self.tail.get_mut(next).cloned() else { return };
            if optional || learns {
                peer.backlog.sent(next, cost(write.body.as_ref()));
            }
            if learns {
                peer.backlog.needless(next);
            }
            if let Some(prepare) = prepare_of(self, &write, device) {
                let holder = write.client.filter(|_| write.as_sent && first_time && !optional);
                self.actions.push_back(Action::SendPrepare(device, prepare, holder));
            }
        }
    }

    /// A prepared write's blocks are back from the log; `None` when the device could not read them.
    pub fn prepared_loaded(&mut self, sequence: Sequence, epoch: Epoch, body: Option<Body>) {
        let Role::Primary(primary) = &mut self.role else { return };
        if primary.epoch != epoch {
            return; // Asked for in an earlier reign.
        }
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

    /// Commits what enough copies hold. Before the epoch is open those are all copies in sync, under any rule (0010,
    /// point 5).
    pub(crate) fn try_commit(&mut self) {
        let Role::Primary(primary) = &self.role else { return };
        if primary.takeover.waits(self.now).is_some() {
            return;
        }
        if self.config.ack != AckRule::All && primary.is_gathering() {
            return;
        }
        let upto = primary.held_by_enough(&self.config, self.me, self.durable);
        if upto > self.tail.committed() {
            self.commit(upto);
            self.answer_fences();
            self.retry_waiting();
            self.run_resyncs();
            self.try_hand_over();
        }
        self.try_record();
    }
}

fn prepare_of(group: &Group, write: &Pending, device: DeviceId) -> Option<Prepare> {
    let Role::Primary(primary) = &group.role else { return None };
    let header = WriteHeader { epoch: primary.epoch, commit: group.tail.committed(), ..write.header };
    Some(Prepare { device, oldest: write.oldest, header, body: write.body.clone()? })
}

pub(crate) fn blocks_of(write: &WriteRequest) -> BlockRange {
    BlockRange::of_bytes(write.layer, write.chunk, write.offset, write.len)
}

/// Checks the request's shape and, unless `trusted`, its checksums.
fn check(write: &WriteRequest, trusted: bool) -> Result<(), Mismatch> {
    let (offset, len) = (write.offset as usize, write.len as usize);
    if len == 0 || offset.checked_add(len).is_none_or(|end| end > CHUNK_SIZE) {
        return Err(Mismatch::Request);
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
