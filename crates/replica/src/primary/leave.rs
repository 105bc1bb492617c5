//! Copies that take leave of their primary, so that nobody has to miss them first, and a primary that takes leave.
//!
//! A process is about to end, a copy is a member no more, or its device neither completes operations nor fails them
//! (decision 0021); or the device of the primary has been slow for long (`slowness.rs`). Such a copy promises nothing,
//! answers no reader, and says so. Nothing of that needs the device.
//!
//! A primary hands over. Its successor claims the group and leaves the former primary in the set at first; in answer to
//! its NewEpoch it hears that the former primary has taken leave, and leaves that one behind before it commits what it
//! has inherited. What the former primary alone has prepared was promised to nobody, since nothing is committed that is
//! not durable on the primary itself.
//!
//! A copy that has taken leave and is still there after a while has not ended: it is asked again ([`DEPARTURE`]), and
//! brought up to date when it was left behind meanwhile. docs/decisions/0021 has the numbers.

use crate::context::GroupCx;
use crate::primary::peer::{Peer, Standing};
use crate::primary::{Primary, Reign};
use azekura_base::DeviceId;
use azekura_wire::Leaving;
use std::cmp::Reverse;
use std::time::Duration;

/// A process that takes leave has ended after this time (0013, leaving); a copy that is still there is brought up to
/// date again.
const DEPARTURE: Duration = Duration::from_secs(5);

impl Primary {
    /// In-sync copies that have taken leave and are still connected, and that nobody has wanted to leave behind: their
    /// processes have not ended, so perhaps they go on after all. Each says so in answer to a NewEpoch, or takes leave
    /// again (0021, point 4).
    pub(crate) fn ask_who_stayed(&mut self, cx: &mut GroupCx) {
        for (device, peer) in &mut self.peers {
            if peer.leaving && matches!(peer.standing, Standing::InSync) && cx.links.take_stayed(*device, cx.now) {
                peer.stays();
                (peer.follows, peer.signs.asked) = (false, Duration::ZERO);
            }
        }
    }

    /// The in-sync copy that should reign in the place of one whose device hangs or is slow.
    fn successor(&self, now: Duration) -> Option<DeviceId> {
        let fit = self.peers.iter().filter(|(_, peer)| {
            let there = peer.follows && now < peer.leases.lease_until || !self.is_open();
            matches!(peer.standing, Standing::InSync) && !peer.leaving && peer.diverged_at.is_none() && there
        });
        let rank = |(device, peer): &(&DeviceId, &Peer)| {
            (peer.follows, !self.is_slower(**device, now), peer.stream.acked, Reverse(**device))
        };
        fit.max_by_key(rank).map(|(device, _)| *device)
    }

    /// The process is about to end: another copy is to reign, and the primary need not wait until this one is missed.
    /// True while there is something left to do that could succeed.
    pub(crate) fn leave(&mut self, cx: &mut GroupCx) -> bool {
        let now = cx.now;
        let ready = self.peers.iter().filter(|(_, peer)| {
            matches!(peer.standing, Standing::InSync) && peer.follows && !peer.leaving && now < peer.leases.lease_until
        });
        // The copy with the most: one that lacks nothing is invited at once.
        let ready = ready.max_by_key(|(device, peer)| (peer.stream.acked, Reverse(**device)));
        let Some(to) = ready.map(|(device, _)| *device) else { return false };
        self.hand_over(cx, to);
        true
    }

    /// The copy on `device` is about to stop or to be given up, or its device hangs, and it answers no reader from now
    /// on.
    pub(crate) fn on_leaving(&mut self, cx: &mut GroupCx, device: DeviceId, leaving: Leaving) -> Reign {
        if leaving.epoch != self.epoch() {
            return Ok(());
        }
        cx.links.depart(device, cx.now + DEPARTURE);
        if self.peers.get(&device).is_some_and(|peer| !peer.may_be_in_sync()) {
            // If this copy comes back, it is brought up to date from the beginning.
            self.forget_learner(device);
            self.retry_waiting(cx);
            return self.try_commit(cx);
        }
        let open = self.is_open();
        if let Some(peer) = self.peers.get_mut(&device) {
            peer.leaves(open);
            self.predecessor_stopped(cx, device);
            return self.watch_copies(cx);
        }
        Ok(())
    }

    /// While the device hangs, or is slow: another copy is to reign, and no primary is to wait for this one.
    pub(crate) fn give_way(&mut self, cx: &mut GroupCx) -> Reign {
        if !cx.keeps_out() {
            return Ok(());
        }
        let now = cx.now;
        let open = self.is_open();
        let Some(successor) = self.successor(now).filter(|to| cx.links.is_up(*to)) else { return Ok(()) };
        if !open {
            // This copy can't open its epoch, and serves nobody: the other one need not hear from it to begin.
            return self.propose_primary(cx, successor);
        }
        self.hand_over(cx, successor);
        Ok(())
    }
}
