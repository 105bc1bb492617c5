//! Copies that take leave, so that nobody has to miss them first: their process is about to end, their device hangs
//! (`hung.rs`), or they are members no more.

use crate::config::GroupConfig;
use crate::group::{Group, Role};
use crate::lease::GRACE;
use crate::peer::Standing;
use azekura_base::DeviceId;
use azekura_wire::{Leaving, Message};
use std::cmp::Reverse;
use std::time::Duration;

/// A process that takes leave has ended after this time (0013, leaving); a copy that is still there is brought up to
/// date again.
const DEPARTURE: Duration = Duration::from_secs(5);
/// A group that was written to within this time is about to be written to again.
const BUSY: Duration = Duration::from_secs(5);

/// Writes have come until a moment ago.
pub(crate) fn is_recent(ordered_at: Option<Duration>, now: Duration) -> bool {
    ordered_at.is_some_and(|at| now < at + BUSY)
}

impl Group {
    /// The process is about to end: another copy is to reign, and the primary need not wait until this one is missed.
    /// True while there is something left to do that could succeed.
    pub fn leave(&mut self) -> bool {
        self.leaving = true;
        let now = self.now;
        match &mut self.role {
            Role::Primary(primary) => {
                let ready = primary.peers.iter().filter(|(_, peer)| {
                    matches!(peer.standing, Standing::InSync) && peer.synced && !peer.leaving && now < peer.lease_until
                });
                // The copy with the most: one that lacks nothing is invited at once.
                let ready = ready.max_by_key(|(device, peer)| (peer.acked, Reverse(**device)));
                let Some(to) = ready.map(|(device, _)| *device) else { return false };
                self.hand_over(to);
                true
            }
            Role::Secondary(secondary) => {
                let following = self.epochs.followed();
                let told = std::mem::replace(&mut secondary.told_leaving, true);
                secondary.lease_until = Duration::ZERO;
                // A busy group's primary is about to go on without this copy: until then the group's writes need this
                // process. So does a successor that has not said its first word.
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

    /// A copy whose device is a member no more takes leave of its primary once its replacement is there (0008): the
    /// copies that stay in sync must be as many as there are members. When several are to go, those with the lowest
    /// numbers go first, so that not more go than may.
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

    /// The copy on `device` is about to stop or to be given up, or its device hangs, and it answers no reader from now
    /// on.
    pub fn peer_leaving(&mut self, device: DeviceId, leaving: Leaving) {
        let Role::Primary(primary) = &mut self.role else { return };
        if leaving.epoch != primary.epoch() {
            return;
        }
        self.departed.insert(device, self.now + DEPARTURE);
        if primary.peers.get(&device).is_some_and(|peer| !peer.may_be_in_sync()) {
            // If this copy comes back, it is brought up to date from the beginning.
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
