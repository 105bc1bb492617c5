//! A primary hands over: it invites its successor, and serves on.
//!
//! A primary that wants another copy to reign invites it ([`HandOver`]). The copy claims the next epoch and follows the
//! primary until the configuration names that copy: only then does its first word, a `Sync`, make the former primary
//! stop (decision 0013). So as long as the configuration store does not answer, nothing happens.

use crate::action::{Action, Client};
use crate::group::{Group, Role};
use azekura_base::DeviceId;
use azekura_wire::{HandOver, Message};
use std::time::Duration;

/// A copy that was invited and does not reign after this time was invited in vain.
const INVITATION: Duration = Duration::from_secs(1);
/// A primary whose device is a member no more tries to hand over this often.
const HAND_OVER_AGAIN: Duration = Duration::from_secs(1);

/// A primary's wish that another copy reigns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandingOver {
    to: DeviceId,
    until: Duration,
    invited: bool,
}

impl Group {
    /// Asks another in-sync copy to claim the group; until that copy reigns, everything goes on here. False when that
    /// can't be tried now.
    pub fn hand_over(&mut self, to: DeviceId) -> bool {
        let now = self.now;
        let in_sync = to != self.me && self.config.in_sync.contains(&to);
        let Role::Primary(primary) = &mut self.role else { return false };
        let there = primary.peers.get(&to).is_some_and(|peer| peer.synced && !peer.leaving && now < peer.lease_until);
        // What its device takes for the first record of its reign, all would wait for.
        let slow = primary.is_slower(to, now);
        if self.proposal.is_some() || !primary.is_open() || primary.handing_over.is_some() || !in_sync || !there || slow
        {
            return false;
        }
        primary.handing_over = Some(HandingOver { to, until: now + INVITATION, invited: false });
        self.try_hand_over();
        true
    }

    /// Invites the copy that is to reign, as soon as that copy holds what is committed.
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

    /// Claims the group if the primary has invited this copy, once it knows the configuration that the primary has. A
    /// copy that lacks something of what is committed does not: another is to reign.
    pub(crate) fn try_inherit(&mut self) {
        let config = &self.config;
        let Role::Secondary(secondary) = &mut self.role else { return };
        let Some(HandOver { epoch, committed, .. }) = secondary.inheritance else { return };
        if config.epoch < epoch || self.proposal.is_some() {
            return; // The configuration is on its way, or the outcome.
        }
        secondary.inheritance = None;
        let whole = self.durable >= committed && config.in_sync.contains(&self.me);
        let fit = !self.leaving && !self.hung && !self.yields.keep_away(self.now);
        if config.epoch == epoch && whole && fit && config.primary != self.me {
            self.claim(true);
        }
    }

    /// A primary whose device is a member no more makes one of the members primary (0008).
    pub(crate) fn hand_over_and_leave(&mut self) {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        let is_member = self.config.members.contains(&self.me);
        if is_member || !primary.is_open() || now < primary.leave_at {
            return;
        }
        primary.leave_at = now + HAND_OVER_AGAIN;
        let candidates: Vec<DeviceId> = self.config.in_sync.intersection(&self.config.members).copied().collect();
        // Groups that leave a device together go to different ones.
        let first = self.pg.0 as usize % candidates.len().max(1);
        let (later, sooner) = candidates.split_at(first);
        for device in sooner.iter().chain(later) {
            if self.hand_over(*device) {
                return;
            }
        }
    }
}
