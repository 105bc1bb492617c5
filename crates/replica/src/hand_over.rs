//! A group changes hands, and copies take leave, without anybody being missed first.
//!
//! A primary that wants another copy to reign invites it ([`HandOver`]) and serves on. The copy claims the next epoch and
//! follows the primary until the configuration names it: only then does its first word, a `Sync`, make the former primary
//! stop. So as long as the configuration store does not answer, nothing happens.
//!
//! Between the moment that the claim stands and that word, two copies could take themselves for primary. What keeps
//! invariant 3 is the promise of the new primary itself: the former one serves only while this copy follows it, and the
//! new one commits nothing before the former has said that it has stopped, or the promise has run out.
//!
//! What the former primary had sent and not committed is still on its way when it stops. It comes on the connection on
//! which this copy followed it, and is taken up as a part of what was prepared before ([`Group::inherit_write`]).

use crate::action::{Action, Client, Mismatch};
use crate::group::{Group, GroupConfig, Role};
use crate::lease::GRACE;
use crate::peer::Standing;
use crate::primary::Primary;
use crate::secondary::is_undamaged;
use azekura_base::{DeviceId, Epoch};
use azekura_wire::{HandOver, Leaving, Message, Prepare, SyncOk};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// A copy that was invited and does not reign after this time was invited in vain.
const INVITATION: Duration = Duration::from_secs(1);
/// How long a new primary waits for the end of what the one before it has sent.
const TAIL_WAIT: Duration = Duration::from_millis(300);
/// A process that takes leave has ended after this time; what has not is brought up to date again.
const DEPARTURE: Duration = Duration::from_secs(5);
/// A group that was written to within this time is about to be written to again.
const BUSY: Duration = Duration::from_secs(5);

/// A primary's wish that another copy reigns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandingOver {
    to: DeviceId,
    until: Duration,
    invited: bool,
}

/// What a copy has to know when the configuration names it primary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) epoch: Epoch,
    /// The primary has invited this copy.
    pub(crate) invited: bool,
    /// Whom the configuration named before, and for which epoch.
    pub(crate) former: DeviceId,
    pub(crate) former_epoch: Epoch,
    /// A reign that had ended when this was claimed.
    pub(crate) ended: Epoch,
    /// The copy that was to reign before may answer readers.
    pub(crate) after_readers: bool,
    /// This copy had promised nothing that counts; and until when its promises went, to see whether it has since.
    pub(crate) unbound: Option<Duration>,
}

/// The primary that the configuration named before this one. It may never have reigned: then others, this copy among them, may
/// still follow the one before it.
#[derive(Debug)]
pub(crate) struct Predecessor {
    pub(crate) device: DeviceId,
    epoch: Epoch,
    /// The connection that its writes come on, if it has invited this copy.
    conn: Option<Client>,
    /// Until when it, or one before it, may count on this copy.
    pub(crate) until: Duration,
    /// It follows this copy.
    pub(crate) stopped: bool,
    /// Answers of copies that have more than this one: the rest is on its way.
    pub(crate) said: BTreeMap<DeviceId, SyncOk>,
}

impl Primary {
    /// A primary before may still serve.
    pub(crate) fn awaits_predecessor(&self, now: Duration) -> bool {
        self.predecessor.as_ref().is_some_and(|before| now < before.until)
    }

    fn tail_may_come(&self, now: Duration) -> bool {
        let invited = self.predecessor.as_ref().is_some_and(|before| before.conn.is_some());
        invited && self.is_gathering() && now < self.began + TAIL_WAIT
    }

    /// The copy on `device` has more than this one. True when that may still come here by itself.
    pub(crate) fn wait_for_tail(&mut self, device: DeviceId, ok: SyncOk, now: Duration) -> bool {
        let waits = self.tail_may_come(now);
        if let Some(before) = self.predecessor.as_mut().filter(|_| waits) {
            before.said.insert(device, ok);
        }
        waits
    }
}

/// Writes have come until a moment ago.
pub(crate) fn is_recent(ordered_at: Option<Duration>, now: Duration) -> bool {
    ordered_at.is_some_and(|at| now < at + BUSY)
}

impl Group {
    /// Asks another in-sync copy to claim the group; until it reigns, everything goes on here. False when that can't be
    /// tried now.
    pub fn hand_over(&mut self, to: DeviceId) -> bool {
        let now = self.now;
        let in_sync = to != self.me && self.config.in_sync.contains(&to);
        let Role::Primary(primary) = &mut self.role else { return false };
        let there = primary.peers.get(&to).is_some_and(|peer| peer.synced && !peer.leaving && now < peer.lease_until);
        if self.proposal.is_some() || !primary.is_open() || primary.handing_over.is_some() || !in_sync || !there {
            return false;
        }
        primary.handing_over = Some(HandingOver { to, until: now + INVITATION, invited: false });
        self.try_hand_over();
        true
    }

    /// Invites the copy that is to reign, as soon as it holds what is committed.
    pub(crate) fn try_hand_over(&mut self) {
        let (now, committed) = (self.now, self.tail.committed());
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(HandingOver { to, until, invited }) = primary.handing_over else { return };
        if now >= until {
            primary.handing_over = None;
        } else if !invited && self.proposal.is_none() && primary.has_all(to, committed) {
            primary.handing_over = Some(HandingOver { to, until, invited: true });
            let hand_over = HandOver { pg: self.pg, device: to, epoch: primary.epoch(), committed };
            self.actions.push_back(Action::Send(to, Message::HandOver(hand_over)));
        }
    }

    /// The primary that this copy follows wants this copy to reign.
    pub fn inherit(&mut self, from: Client, hand_over: HandOver) {
        if !self.is_from_primary(from, hand_over.epoch) || self.epochs.recorded() != hand_over.epoch {
            return;
        }
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.inheritance = Some(hand_over);
        }
        self.try_inherit();
    }

    /// Claims the group to whose reign this copy is invited, once it knows the configuration that the primary has.
    pub(crate) fn try_inherit(&mut self) {
        let config = &self.config;
        let Role::Secondary(secondary) = &mut self.role else { return };
        let Some(HandOver { epoch, committed, .. }) = secondary.inheritance else { return };
        if config.epoch < epoch || self.proposal.is_some() {
            return; // The configuration is on its way, or the outcome.
        }
        secondary.inheritance = None;
        let whole = self.durable >= committed && config.in_sync.contains(&self.me);
        if config.epoch == epoch && whole && !self.leaving && !self.hung && config.primary != self.me {
            self.claim(true);
        }
    }

    /// The configuration names this copy primary, as it has claimed.
    pub(crate) fn begin_reign(&mut self) {
        let Some(claim) = self.claim.take_if(|claim| claim.epoch == self.config.epoch) else { return };
        let Role::Secondary(secondary) = &self.role else { return };
        if self.epochs.followed() >= claim.epoch {
            return; // Overtaken: the configuration that says so is on its way.
        }
        let unbound = claim.unbound == Some(self.epochs.promised_until());
        let predecessor = Predecessor {
            device: claim.former,
            epoch: claim.former_epoch,
            conn: secondary.primary.filter(|_| claim.invited),
            until: if unbound { Duration::ZERO } else { self.epochs.promised_until() },
            stopped: false,
            said: BTreeMap::new(),
        };
        let mut primary = Primary::new(claim.epoch, self.me, &self.config.in_sync, self.now);
        primary.ordered_at = secondary.ordered_at;
        primary.after_readers = claim.after_readers;
        primary.ended = claim.ended;
        primary.predecessor = Some(predecessor);
        self.role = Role::Primary(Box::new(primary));
        self.begin_gathering();
    }

    /// The copy on `device` follows this one: if it was primary before, it serves nobody any more.
    pub(crate) fn predecessor_stopped(&mut self, device: DeviceId) {
        let Role::Primary(primary) = &mut self.role else { return };
        let before = primary.predecessor.as_mut().filter(|before| before.device == device && !before.stopped);
        let Some(before) = before else { return };
        before.stopped = true;
        if before.epoch == self.epochs.recorded() {
            // It was the one that this copy has made its promise to.
            before.until = Duration::ZERO;
        }
        if primary.ended < before.epoch {
            // Who has promised to follow it need not wait any longer.
            primary.ended = before.epoch;
            self.greet_all();
        }
    }

    /// A write that the primary before this one had sent, and this copy had not received when it began to reign: it is a
    /// part of what was prepared before. It is not answered, so its sender does not commit it.
    ///
    /// # Errors
    /// When it is damaged: the connection must be closed.
    pub(crate) fn inherit_write(&mut self, from: Client, prepare: Prepare, trusted: bool) -> Result<(), Mismatch> {
        let Role::Primary(primary) = &self.role else { return Ok(()) };
        let sender = |before: &Predecessor| before.conn == Some(from) && before.epoch == prepare.epoch;
        let inherited = primary.is_gathering() && primary.predecessor.as_ref().is_some_and(sender);
        if !inherited || prepare.sequence != self.tail.end().next() {
            return Ok(());
        }
        if !trusted && !is_undamaged(&prepare) {
            return Err(Mismatch::Checksum);
        }
        let peers: Vec<DeviceId> = primary.peers.keys().copied().collect();
        let body = prepare.body.clone();
        self.append_prepared(prepare, Some(body));
        peers.into_iter().for_each(|device| self.pump(device));
        self.hear_late_answers();
        Ok(())
    }

    /// Takes up the answers of copies that had more, once this one has as much or waits for it no longer.
    pub(crate) fn hear_late_answers(&mut self) {
        let (now, end) = (self.now, self.tail.end());
        let Role::Primary(primary) = &mut self.role else { return };
        let waits = primary.tail_may_come(now);
        let Some(before) = &mut primary.predecessor else { return };
        let due: Vec<DeviceId> =
            before.said.iter().filter(|(_, ok)| !waits || ok.prepared <= end).map(|(device, _)| *device).collect();
        let due: Vec<(DeviceId, SyncOk)> =
            due.into_iter().filter_map(|device| before.said.remove(&device).map(|ok| (device, ok))).collect();
        due.into_iter().for_each(|(device, ok)| self.sync_ok(device, ok));
    }

    /// The process is about to end: another copy is to reign, and the primary need not wait until this one is missed. True
    /// while there is something left to do that could succeed.
    pub fn leave(&mut self) -> bool {
        self.leaving = true;
        let now = self.now;
        match &mut self.role {
            Role::Primary(primary) => {
                let ready = primary.peers.iter().filter(|(_, peer)| {
                    matches!(peer.standing, Standing::InSync) && peer.synced && !peer.leaving && now < peer.lease_until
                });
                // One that lacks nothing need not be waited for.
                let ready = ready.max_by_key(|(device, peer)| (peer.acked, Reverse(**device)));
                let Some(to) = ready.map(|(device, _)| *device) else { return false };
                self.hand_over(to);
                true
            }
            Role::Secondary(secondary) => {
                let following = self.epochs.followed();
                let told = std::mem::replace(&mut secondary.told_leaving, true);
                secondary.lease_until = Duration::ZERO;
                // A busy group's primary is about to go on without this copy: until then its writes need this process. So does
                // a successor that has not said its first word.
                let followed = secondary.primary.is_some() || now < secondary.heard + GRACE;
                let missed = self.config.in_sync.contains(&self.me) && is_recent(secondary.ordered_at, now);
                if !told {
                    let leaving = Leaving { pg: self.pg, device: self.me, epoch: following };
                    self.send_to_primary(Message::Leaving(leaving));
                }
                self.proposal.is_some() || followed && missed
            }
        }
    }

    /// A copy whose device is a member no more takes leave of its primary once its replacement is there: what stays in
    /// sync without it must be as many as there are members. When several are to go, those with the lowest numbers go
    /// first, so that not more go than may.
    pub(crate) fn depart(&mut self) {
        let GroupConfig { in_sync, members, epoch, primary, .. } = &self.config;
        let surplus = in_sync.len().saturating_sub(members.len().max(1));
        let mut former = in_sync.difference(members).filter(|device| *device != primary);
        let goes = former.position(|device| *device == self.me).is_some_and(|rank| rank < surplus);
        let Role::Secondary(secondary) = &mut self.role else { return };
        if goes && !secondary.told_leaving && self.epochs.followed() == *epoch && secondary.primary.is_some() {
            secondary.told_leaving = true;
            secondary.lease_until = Duration::ZERO;
            let leaving = Leaving { pg: self.pg, device: self.me, epoch: self.epochs.followed() };
            self.send_to_primary(Message::Leaving(leaving));
        }
    }

    /// The copy on `device` is about to stop or to be given up, or its device hangs, and it answers no reader from now on.
    pub fn peer_leaving(&mut self, device: DeviceId, leaving: Leaving) {
        let Role::Primary(primary) = &mut self.role else { return };
        if leaving.epoch != primary.epoch() {
            return;
        }
        self.departed.insert(device, self.now + DEPARTURE);
        if primary.peers.get(&device).is_some_and(|peer| !peer.may_be_in_sync()) {
            // It comes back as one that is brought up to date from the beginning.
            primary.forget_learner(device);
            self.retry_waiting();
            self.try_commit();
        } else if let Some(peer) = primary.peers.get_mut(&device) {
            (peer.leaving, peer.reads_until) = (true, Duration::ZERO);
            self.predecessor_stopped(device);
            self.watch_copies(false);
        }
    }
}
