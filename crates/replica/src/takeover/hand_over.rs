//! A primary hands over: the primary invites its successor, and serves on.
//!
//! A primary that wants another copy to reign invites that copy ([`HandOver`]). The invited copy claims the next epoch
//! and follows the primary until the configuration names that copy as primary: only then does the successor's first
//! word, a `NewEpoch`, make the former primary stop (decision 0013). So as long as the configuration store does not
//! answer, nothing happens.

use super::HandingOver;
use crate::action::{Action, Client};
use crate::context::GroupCx;
use crate::primary::Primary;
use crate::secondary::Secondary;
use azekura_base::DeviceId;
use azekura_wire::{HandOver, Message};
use std::time::Duration;

/// A copy that was invited and does not reign after this time was invited in vain.
const INVITATION: Duration = Duration::from_secs(1);

/// A primary whose device is a member no more tries to hand over this often.
const HAND_OVER_AGAIN: Duration = Duration::from_secs(1);

impl Primary {
    /// Asks another in-sync copy to claim the group; until that copy reigns, everything goes on here. False when that
    /// can't be tried now.
    pub(crate) fn hand_over(&mut self, cx: &mut GroupCx, to: DeviceId) -> bool {
        let now = cx.now;
        let in_sync = to != cx.me && cx.config.in_sync.contains(&to);
        let there =
            self.peers.get(&to).is_some_and(|peer| peer.follows && !peer.leaving && now < peer.leases.lease_until);
        // What its device takes for the first record of its reign, all would wait for.
        let slow = self.is_slower(to, now);
        if cx.is_proposing() || !self.is_open() || self.handing_over.is_some() || !in_sync || !there || slow {
            return false;
        }
        self.handing_over = Some(HandingOver { to, until: now + INVITATION, invited: false });
        self.try_invite(cx);
        true
    }

    /// Invites the copy that is to reign, as soon as that copy holds what is committed.
    pub(crate) fn try_invite(&mut self, cx: &mut GroupCx) {
        let (now, committed) = (cx.now, cx.tail.committed());
        let Some(HandingOver { to, until, invited }) = self.handing_over else { return };
        if now >= until {
            self.handing_over = None;
        } else if !invited && !cx.is_proposing() && self.has_all(to, committed) {
            self.handing_over = Some(HandingOver { to, until, invited: true });
            let hand_over = HandOver { pg: cx.pg, device: to, epoch: self.epoch(), committed };
            cx.act(Action::Send(to, Message::HandOver(hand_over)));
        }
    }

    /// A primary whose device is a member no more makes one of the members primary (0008).
    pub(crate) fn hand_over_and_leave(&mut self, cx: &mut GroupCx) {
        let now = cx.now;
        let is_member = cx.config.members.contains(&cx.me);
        if is_member || !self.is_open() || now < self.leave_at {
            return;
        }
        self.leave_at = now + HAND_OVER_AGAIN;
        let candidates: Vec<DeviceId> = cx.config.in_sync.intersection(&cx.config.members).copied().collect();
        // Groups that leave a device together go to different ones.
        let first = cx.pg.0 as usize % candidates.len().max(1);
        let (later, sooner) = candidates.split_at(first);
        for device in sooner.iter().chain(later) {
            if self.hand_over(cx, *device) {
                return;
            }
        }
    }
}

impl Secondary {
    /// The primary that this copy follows wants this copy to reign.
    pub(crate) fn on_hand_over(&mut self, cx: &mut GroupCx, from: Client, hand_over: HandOver) {
        if !self.is_from_primary(cx, from, hand_over.epoch) || cx.epochs.recorded() != hand_over.epoch {
            return;
        }
        self.inheritance = Some(hand_over);
        self.try_inherit(cx);
    }

    /// Claims the group if the primary has invited this copy, once it knows the configuration that the primary has. A
    /// copy that lacks something of what is committed does not: another is to reign.
    pub(crate) fn try_inherit(&mut self, cx: &mut GroupCx) {
        let config = &cx.config;
        let Some(HandOver { epoch, committed, .. }) = self.inheritance else { return };
        if config.epoch < epoch || cx.is_proposing() {
            return; // The configuration is on its way, or the outcome.
        }
        self.inheritance = None;
        let whole = cx.durable >= committed && config.in_sync.contains(&cx.me);
        let fit = cx.may_claim() && !cx.condition.was_slow(cx.now);
        if config.epoch == epoch && whole && fit && config.primary != cx.me {
            self.claim(cx, true);
        }
    }
}
