//! A group changes hands, and copies take leave, without anybody being missed first.
//!
//! A primary that hands over lets writes wait until nothing is under way, stops for good in its epoch and says so to its
//! successor ([`HandOver`]). That one claims the next epoch at once: nobody serves any more whom it would have to wait
//! out. So there is one compare-and-swap, made by the copy that has to learn its outcome.

use crate::action::{Action, Client};
use crate::group::{Group, GroupConfig, Role};
use crate::primary::Standing;
use azekura_base::DeviceId;
use azekura_wire::{HandOver, Leaving, Message};
use std::cmp::Reverse;
use std::time::Duration;

/// How long writes are held back for a hand-over at most.
const HAND_OVER: Duration = Duration::from_millis(300);
/// A primary that has handed over and sees no successor claims the group again after this time.
const SUCCESSION: Duration = Duration::from_secs(1);
/// A group that was written to within this time is about to be written to again.
const BUSY: Duration = Duration::from_secs(5);

/// The primary that has handed over to this one: it has stopped, and answers no readers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predecessor {
    pub(crate) device: DeviceId,
    /// Its process is about to end.
    pub(crate) leaving: bool,
    /// The claim takes it out of the in-sync set.
    pub(crate) removed: bool,
}

/// Writes have come until a moment ago.
pub(crate) fn is_recent(ordered_at: Option<Duration>, now: Duration) -> bool {
    ordered_at.is_some_and(|at| now < at + BUSY)
}

impl Group {
    /// Makes another in-sync copy primary, as soon as nothing is under way: until then writes are asked to come again.
    /// False when that can't be tried now.
    pub fn hand_over(&mut self, to: DeviceId) -> bool {
        let now = self.now;
        let in_sync = to != self.me && self.config.in_sync.contains(&to);
        let Role::Primary(primary) = &mut self.role else { return false };
        let there = primary.peers.get(&to).is_some_and(|peer| peer.synced && !peer.gone && now < peer.lease_until);
        if self.proposal.is_some() || !primary.is_open() || primary.handing_over.is_some() || !in_sync || !there {
            return false;
        }
        primary.handing_over = Some((to, now + HAND_OVER));
        self.try_hand_over();
        true
    }

    /// Hands over if that was asked for and nothing is under way.
    pub(crate) fn try_hand_over(&mut self) {
        let (now, end) = (self.now, self.tail.end());
        let Role::Primary(primary) = &mut self.role else { return };
        let Some((to, until)) = primary.handing_over else { return };
        if now >= until {
            primary.handing_over = None;
        } else if self.tail.len() == 0
            && primary.merges.is_empty()
            && self.proposal.is_none()
            && primary.has_all(to, end)
        {
            self.release(to);
        }
    }

    /// Serves nobody from now on, and lets `to` reign.
    fn release(&mut self, to: DeviceId) {
        let Role::Primary(primary) = &self.role else { return };
        let (epoch, committed, leaving) = (primary.epoch(), self.tail.committed(), self.leaving);
        let until = self.now + SUCCESSION;
        self.step_down();
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.released_until = until;
        }
        let hand_over = HandOver { pg: self.pg, device: to, epoch, committed, leaving };
        self.actions.push_back(Action::Send(to, Message::HandOver(hand_over)));
    }

    /// The primary that this copy follows has stopped, and wants this copy to reign.
    pub fn inherit(&mut self, from: Client, hand_over: HandOver) {
        if !self.is_from_primary(from, hand_over.epoch) || self.epoch != hand_over.epoch {
            return;
        }
        self.follow_commit(hand_over.committed);
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.inheritance = Some(hand_over);
        }
        self.try_inherit();
    }

    /// Claims the group that was handed over to this copy, once it knows the configuration that the former primary had.
    pub(crate) fn try_inherit(&mut self) {
        let (now, config) = (self.now, &self.config);
        let Role::Secondary(secondary) = &mut self.role else { return };
        let Some(HandOver { epoch, committed, leaving, .. }) = secondary.inheritance else { return };
        if config.epoch < epoch || self.proposal.is_some() {
            return; // The configuration is on its way, or the outcome.
        }
        secondary.inheritance = None;
        let whole = self.durable >= committed && config.in_sync.contains(&self.me);
        if config.epoch > epoch || !whole || self.leaving {
            return;
        }
        let removed = leaving && config.waits_for_all() && is_recent(secondary.ordered_at, now);
        let predecessor = Predecessor { device: config.primary, leaving, removed };
        self.claim(Some(predecessor));
    }

    /// The process is about to end: another copy is to reign, and the primary need not wait until this one is missed. True
    /// while there is something left to do that could succeed.
    pub fn leave(&mut self) -> bool {
        self.leaving = true;
        let now = self.now;
        match &mut self.role {
            Role::Primary(primary) if primary.is_proposed() => true,
            Role::Primary(primary) => {
                let ready = primary.peers.iter().filter(|(_, peer)| {
                    matches!(peer.standing, Standing::InSync) && peer.synced && !peer.gone && now < peer.lease_until
                });
                // One that lacks nothing need not be waited for.
                let ready = ready.max_by_key(|(device, peer)| (peer.acked, Reverse(**device)));
                let Some(to) = ready.map(|(device, _)| *device) else { return false };
                self.hand_over(to);
                true
            }
            Role::Secondary(secondary) => {
                let following = secondary.following;
                let told = std::mem::replace(&mut secondary.told_leaving, true);
                secondary.lease_until = Duration::ZERO;
                // A successor may still claim the group, and a busy group's primary is about to go on without this copy:
                // until then its writes need this process.
                let released = self.config.primary == self.me && now < secondary.released_until;
                let followed = secondary.primary.is_some() && self.config.primary != self.me;
                let missed = self.config.in_sync.contains(&self.me) && is_recent(secondary.ordered_at, now);
                if !told {
                    let leaving = Leaving { pg: self.pg, device: self.me, epoch: following };
                    self.send_to_primary(Message::Leaving(leaving));
                }
                self.proposal.is_some() || released || followed && missed
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
        if goes && !secondary.told_leaving && secondary.following == *epoch && secondary.primary.is_some() {
            secondary.told_leaving = true;
            secondary.lease_until = Duration::ZERO;
            let leaving = Leaving { pg: self.pg, device: self.me, epoch: secondary.following };
            self.send_to_primary(Message::Leaving(leaving));
        }
    }

    /// The copy on `device` is about to stop or to be given up, and answers no reader from now on.
    pub fn peer_leaving(&mut self, device: DeviceId, leaving: Leaving) {
        let Role::Primary(primary) = &mut self.role else { return };
        if leaving.epoch != primary.epoch() {
            return;
        }
        if let Some(peer) = primary.peers.get_mut(&device) {
            (peer.gone, peer.reads_until) = (true, Duration::ZERO);
            self.watch_copies(false);
        }
    }
}
