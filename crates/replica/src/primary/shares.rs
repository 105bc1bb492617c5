//! How much may be on its way to copies that no write waits for: those that are brought up to date, and, where writes
//! do not wait for all copies, those that lag. What writes wait for is bounded by the gateways' windows and needs no
//! bound here.
//!
//! Everything that has a place in the order is sent at once: a write that is committed can't be read back from the log
//! by its place. So what is on its way is bounded where writes get their places. New writes of a group wait for a copy
//! that is brought up to date, as they will when it is in sync. A copy in sync that lags too much is sent nothing more,
//! and is left behind. docs/decisions/0024 has the numbers.

use crate::context::GroupCx;
use crate::primary::Primary;
use crate::primary::peer::Standing;
use azekura_base::{AckRule, DeviceId, Sequence};
use std::time::Duration;

/// Where nothing has been written for so long, nobody waits for the copy: the copy is tried at once. Twenty times
/// `HOLD_MAX` (`peer.rs`), so that a useless copy costs those who write now and then no more than others.
const RETRY_IDLE: Duration = Duration::from_secs(10);

impl Primary {
    /// A write can't get a place in the order now: a copy that is brought up to date could not keep up.
    pub(crate) fn waits_for_learner(&mut self) -> bool {
        let mut waits = false;
        for peer in self.peers.values_mut().filter(|peer| matches!(peer.standing, Standing::Learning(_))) {
            if !peer.stream.share.has_room(&peer.stream.backlog) {
                peer.stream.share.held = true;
                waits = true;
            }
        }
        waits
    }

    /// Something that was on its way to a copy has arrived. True when writes may wait for that.
    pub(crate) fn made_room(&mut self, device: DeviceId, bytes: usize) -> bool {
        if bytes == 0 {
            return false;
        }
        let Some(peer) = self.peers.get_mut(&device) else { return false };
        peer.stream.share.done += bytes;
        peer.stream.share.held && peer.stream.backlog.bytes <= peer.stream.share.bytes_max / 4 * 3
    }

    /// Measures how fast copies are that are brought up to date, and gives up those for which writes wait in vain.
    pub(crate) fn watch_shares(&mut self, now: Duration) {
        self.retries.forget_old(now);
        let learning = self.peers.iter().filter(|(_, peer)| matches!(peer.standing, Standing::Learning(_)));
        let learners: Vec<DeviceId> = learning.map(|(device, _)| *device).collect();
        self.has_learners = !learners.is_empty();
        for device in learners {
            let slow = !self.keeps_up(device, now);
            let Some(peer) = self.peers.get_mut(&device) else { continue };
            peer.stream.share.look(slow, now);
            if peer.is_held_for_nothing(now) {
                self.forget_learner(device);
                self.retries.put_off(device, Duration::ZERO, now);
            }
        }
    }

    /// Another repair is durable on the copy on `device`.
    pub(crate) fn repair_arrived(&mut self, cx: &mut GroupCx, device: DeviceId, id: u64) {
        let room = self.peers.get_mut(&device).map_or(0, |peer| peer.stream.backlog.repair_done(id));
        if self.made_room(device, room) {
            self.retry_waiting(cx);
        }
    }

    /// A copy is not to be brought up to date now: writes have waited for it in vain, and will again; or its node has
    /// enough on its way.
    pub(crate) fn is_put_off(&self, cx: &GroupCx, device: DeviceId) -> bool {
        let ahead = self.repair.leaves_alone(device, cx.now);
        let written = self.ordered_at.is_some_and(|at| cx.now < at + RETRY_IDLE);
        ahead || written && self.retries.are_due_later(device, cx.now) || cx.links.is_full(device)
    }

    /// Everything up to here is committed: copies that do not have it are not waited for any more.
    pub(crate) fn count_laggards(&mut self, cx: &mut GroupCx, upto: Sequence) {
        if cx.config.ack == AckRule::All {
            return;
        }
        for peer in self.peers.values_mut() {
            peer.stream.backlog.needless(upto);
            peer.stream.missed |= peer.follows && peer.stream.sent < upto;
        }
    }
}
