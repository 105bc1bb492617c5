//! A secondary takes leave of its primary, as `primary/leave.rs` describes it.

use crate::config::GroupConfig;
use crate::context::GroupCx;
use crate::lease::{GRACE, is_recent};
use crate::secondary::Secondary;
use azekura_wire::{Leaving, Message};
use std::time::Duration;

impl Secondary {
    /// A copy whose device is a member no more takes leave of its primary once its replacement is there (0008): the
    /// copies that stay in sync must be as many as there are members. When several are to go, those with the lowest
    /// numbers go first, so that not more go than may.
    pub(crate) fn depart(&mut self, cx: &mut GroupCx) {
        let GroupConfig { in_sync, members, epoch, primary, .. } = &cx.config;
        let surplus = in_sync.len().saturating_sub(members.len().max(1));
        let mut former = in_sync.difference(members).filter(|device| *device != primary);
        let goes = former.position(|device| *device == cx.me).is_some_and(|rank| rank < surplus);
        if goes && !self.leave_announced && cx.epochs.followed() == *epoch && self.primary.is_some() {
            self.leave_announced = true;
            self.lease_until = Duration::ZERO;
            let leaving = Leaving { pg: cx.pg, device: cx.me, epoch: cx.epochs.followed() };
            self.send_to_primary(cx, Message::Leaving(leaving));
        }
    }

    /// A primary asks this copy how far it is. If the copy had taken leave it goes on after all, unless its device
    /// still hangs.
    pub(crate) fn stay(&mut self, cx: &mut GroupCx) {
        self.leave_announced = false;
        self.give_way(cx);
    }

    /// The process is about to end: the primary need not wait until this copy is missed. True while there is something
    /// left to do that could succeed.
    pub(crate) fn leave(&mut self, cx: &mut GroupCx) -> bool {
        let following = cx.epochs.followed();
        let announced = std::mem::replace(&mut self.leave_announced, true);
        self.lease_until = Duration::ZERO;
        // A busy group's primary is about to go on without this copy: until then the group's writes need this
        // process. So does a successor that has not said its first word.
        let followed = self.primary.is_some() || cx.now < self.heard + GRACE;
        let missed = cx.config.in_sync.contains(&cx.me) && is_recent(self.ordered_at, cx.now);
        if !announced {
            let leaving = Leaving { pg: cx.pg, device: cx.me, epoch: following };
            self.send_to_primary(cx, Message::Leaving(leaving));
        }
        cx.is_proposing() || followed && missed
    }

    /// While the device hangs, or is slow: no primary is to wait for this copy.
    pub(crate) fn give_way(&mut self, cx: &mut GroupCx) {
        if !cx.keeps_out() {
            return;
        }
        self.lease_until = Duration::ZERO;
        if self.primary.is_some() && !std::mem::replace(&mut self.leave_announced, true) {
            let leaving = Leaving { pg: cx.pg, device: cx.me, epoch: cx.epochs.followed() };
            self.send_to_primary(cx, Message::Leaving(leaving));
        }
    }
}
