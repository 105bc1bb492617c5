//! The primary: one copy's reign over the others, from the claim that stands to the step down.
//!
//! Each file below is one subject of it, and its name says which. Those in the plural (`merges`, `fences`), `peer`,
//! `share` and the folder `repair/` have state of their own; the others are the steps of [`Primary`].

use crate::action::Client;
use crate::context::GroupCx;
use crate::pace::Pace;
use crate::state::GroupState;
use crate::window::Backlog;
use azekura_base::{BlockRange, DeviceId, Epoch, Sequence};
use azekura_wire::WriteRequest;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

mod commit;
mod elsewhere;
mod fence;
mod fences;
mod leases;
mod leave;
mod members;
mod merge;
mod merges;
mod order;
pub(crate) mod peer;
mod replicate;
mod share;
mod shares;
mod slowness;
mod wanted_set;

use crate::repair::Repair;
use crate::repair::resync::Resync;
use crate::takeover::{HandingOver, TakeOver};
use elsewhere::Elsewhere;
use fences::Fences;
use merges::Merges;
pub(crate) use order::check;
use peer::{Peer, Standing};
use share::Retries;

/// A copy's reign: what only a primary knows and has under way.
///
/// # How it is driven
/// Every method is handed the [`GroupCx`], which stays when the role ends. What arrives comes by a method `on_...`;
/// [`Primary::watch_copies`] does what is due at a tick. Both end by doing whatever has become possible: `gather`,
/// `try_commit`, `try_record`, `try_open`, `retry_waiting`, `run_resyncs`, `run_mends`, `run_scrub`. Each of these may
/// be called at any time and does nothing when nothing is possible.
///
/// # How it ends
/// A step that finds that another copy should reign proposes that copy ([`Primary::propose_primary`]). This copy serves
/// nobody from that moment on, so the step gives [`Deposed`], and `?` takes it up to [`crate::Group`], which makes a
/// secondary of the copy. A message of a later epoch, or a configuration that names another primary, ends the reign
/// from there.
///
/// # Costs
/// A write: one place in the tail, one append, and for each other copy one look-up and one `SendPrepare`, which shares
/// the blocks. An acknowledgement: one look-up, and one pass over the copies to see what enough of them hold. What
/// waits (merges, parked writes, repairs) is looked through by blocks for each write, and is bounded
/// (`limits.rs`, and the constants of each file).
pub(crate) struct Primary {
    epoch: Epoch,
    /// When the reign began.
    began: Duration,
    /// How far this primary has come on its way to an open epoch.
    pub(crate) takeover: TakeOver,
    pub(crate) peers: BTreeMap<DeviceId, Peer>,
    /// The in-sync sets that were proposed, by version, and may stand unheard: what is enough must be enough in each.
    proposals_in_doubt: Vec<(u64, BTreeSet<DeviceId>)>,
    /// When a write was last ordered.
    ordered_at: Option<Duration>,
    /// How long writes take on this copy's own device.
    pace: Pace,
    /// Copies that this primary has left behind because they were slow.
    was_slow: BTreeSet<DeviceId>,
    /// This prepared write's blocks are being read back from the log, to be sent again.
    loading: Option<Sequence>,
    pub(crate) merges: Merges,
    /// Blocks that other copies are to give, since this one can't.
    elsewhere: Elsewhere,
    pub(crate) repair: Repair,
    fences: Fences,
    /// Somebody has asked for something since the last tick and was not served. A silent copy is left behind only then:
    /// a cluster that is shut down node by node keeps all its copies in sync (0007).
    clients_wait: bool,
    /// Another copy is to reign in this one's place.
    pub(crate) handing_over: Option<HandingOver>,
    /// When a primary that is to leave tries to hand over next.
    pub(crate) leave_at: Duration,
    /// Perhaps some are.
    pub(crate) has_learners: bool,
    /// Copies for which writes have waited in vain.
    retries: Retries,
    /// Writes that wait for a merge, for a repair, or for what a merge waits for.
    waiting: VecDeque<(Client, WriteRequest)>,
    /// Writes since the last look, by who sent them.
    writers: BTreeMap<Client, u32>,
}

impl Primary {
    /// The configuration names this process, which has claimed `epoch`: the copy may reign when it has taken over.
    pub(crate) fn new(epoch: Epoch, takeover: TakeOver, ordered_at: Option<Duration>, cx: &GroupCx) -> Primary {
        let peers = cx.config.in_sync.iter().filter(|device| **device != cx.me);
        Primary {
            epoch,
            began: cx.now,
            takeover,
            peers: peers.map(|device| (*device, Peer::new(Standing::InSync, cx.now))).collect(),
            proposals_in_doubt: Vec::new(),
            ordered_at,
            pace: Pace::default(),
            was_slow: BTreeSet::new(),
            loading: None,
            merges: Merges::new(epoch),
            elsewhere: Elsewhere::default(),
            repair: Repair::new(epoch),
            fences: Fences::default(),
            clients_wait: false,
            handing_over: None,
            leave_at: Duration::ZERO,
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
        let reserves = |peer: &Peer| matches!(&peer.standing, Standing::Learning(resync) if resync.reserves(blocks));
        let is_reserved = self.has_learners && self.peers.values().any(reserves);
        is_reserved || self.merges.touches(blocks) || self.repair.hold(blocks)
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
            peer.follows = false;
            (peer.signs.asked, peer.signs.questions, peer.signs.answers) = (Duration::ZERO, 0, 0);
            (peer.stream.backlog, peer.stream.missed) = (Backlog::default(), false);
        } else {
            self.forget_learner(device);
        }
    }

    /// A copy lacks nothing up to `end`.
    pub(crate) fn has_all(&self, device: DeviceId, end: Sequence) -> bool {
        self.peers.get(&device).is_some_and(|peer| peer.stream.acked >= end)
    }

    /// What was prepared before this epoch is being gathered.
    pub(crate) fn is_gathering(&self) -> bool {
        self.takeover.is_gathering()
    }

    /// The group's condition at time `now`.
    pub(crate) fn state(&self, cx: &GroupCx, now: Duration) -> GroupState {
        if self.is_open() && !cx.config.is_writable() {
            return GroupState::ReadOnly;
        }
        if let Some((device, _)) = self.peers.iter().find(|(_, peer)| peer.diverged_at.is_some()) {
            return GroupState::CopyLost(*device);
        }
        if let Some(device) = self.repair.ahead() {
            return GroupState::CopyAhead(device);
        }
        match self.peers.iter().find(|(_, peer)| !peer.follows) {
            Some((device, _)) => self.state_without(cx, *device, now),
            None if self.is_open() => GroupState::Active,
            None => GroupState::Opening,
        }
    }

    /// When a write was last ordered.
    pub(crate) fn ordered_at(&self) -> Option<Duration> {
        self.ordered_at
    }

    /// This copy may answer readers. When it may not, somebody waits until it may.
    pub(crate) fn serves(&mut self, cx: &GroupCx, now: Duration) -> bool {
        let serving = self.may_serve(cx, now);
        self.clients_wait |= !serving;
        serving
    }

    /// The connection to the node that has `device` is up, and what was sent before is gone.
    pub(crate) fn on_peer_up(&mut self, cx: &mut GroupCx, device: DeviceId) {
        self.forget_peer(device);
        self.repair.mend_again(device, cx.now);
        // Another process, perhaps.
        self.peers.entry(device).and_modify(Peer::stays);
        self.give_up_questions(cx);
        self.send_new_epoch(cx, device);
    }

    /// The connection to the node that has `device` is gone.
    pub(crate) fn on_peer_down(&mut self, cx: &mut GroupCx, device: DeviceId) -> Reign {
        self.forget_peer(device);
        self.repair.mend_again(device, cx.now);
        self.give_up_questions(cx);
        self.retry_waiting(cx);
        self.try_commit(cx)
    }

    /// Nothing is known of the time that has passed since the copies gave their leases.
    pub(crate) fn void_leases(&mut self) {
        self.peers.values_mut().for_each(|peer| peer.leases.lease_until = Duration::ZERO);
    }

    /// The background may move something.
    pub(crate) fn run_background(&mut self, cx: &mut GroupCx) {
        self.run_resyncs(cx);
        self.run_scrub(cx);
    }

    /// What was under way for a copy that learns is of no use any more.
    pub(crate) fn forget_learner(&mut self, device: DeviceId) {
        self.peers.remove(&device);
        self.repair.forget(device);
    }

    pub(crate) fn resync(&mut self, device: DeviceId) -> Option<(&mut Resync, &mut Duration)> {
        match self.peers.get_mut(&device)? {
            Peer { standing: Standing::Learning(resync), signs, .. } => Some((resync, &mut signs.heard)),
            _ => None,
        }
    }

    /// A copy has what this one has, and can be asked for it.
    pub(crate) fn answers(&self, device: &DeviceId, now: Duration) -> bool {
        self.peers.get(device).is_some_and(|peer| peer.answers(now))
    }

    pub(crate) fn is_with_us(&self, device: DeviceId) -> bool {
        self.peers.get(&device).is_some_and(|peer| peer.follows && peer.counts())
    }

    /// The primary brings copies up to date, or scrubs.
    pub(crate) fn has_background(&self) -> bool {
        self.repair.is_scrubbing() || self.peers.values().any(|peer| !peer.counts())
    }

    /// An in-sync copy that has everything up to `end`, and stays.
    fn copy_that_has_all(&self, end: Sequence) -> Option<DeviceId> {
        let has_all = self.peers.iter().find(|(_, peer)| {
            peer.counts() && peer.follows && !peer.leaving && peer.diverged_at.is_none() && peer.stream.acked >= end
        });
        has_all.map(|(device, _)| *device)
    }

    /// Where this copy is not sure to be complete: another one that has everything, and should be primary in its place
    /// (0007).
    pub(crate) fn more_complete_copy(&self, cx: &GroupCx) -> Option<DeviceId> {
        if cx.completeness.is_doubtful() { self.copy_that_has_all(cx.tail.end()) } else { None }
    }
}

/// A reign that ends within a step: another copy is proposed as primary, and this one serves nobody any more.
#[derive(Debug)]
pub(crate) struct Deposed;

/// What a step gives after which this copy may be primary no more: whoever calls it stops when it is [`Deposed`].
pub(crate) type Reign = Result<(), Deposed>;
