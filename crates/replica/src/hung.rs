//! A copy whose device neither completes operations nor fails them (decision 0021), or a primary whose device has been
//! slow for long (`sluggish.rs`). Nobody is to wait for such a copy, so the copy takes leave as one does whose process
//! is about to end: it promises nothing, answers no reader, and says so. Nothing of that needs the device.
//!
//! A primary hands over. Its successor claims the group and leaves the former primary in the set at first; in answer to
//! its Sync it hears that the former primary has taken leave, and leaves that one behind before it commits what it has
//! inherited. What the former primary alone has prepared was promised to nobody, since nothing is committed that is not
//! durable on the primary itself.
//!
//! A copy that has taken leave and is still there after a while has not ended: it is asked again (`leaving.rs`:
//! `DEPARTURE`), and brought up to date when it was left behind meanwhile. docs/decisions/0021 has the numbers.

use crate::action::{Action, Client};
use crate::group::{Group, Role};
use crate::peer::{Peer, Standing};
use crate::primary::Primary;
use azekura_base::DeviceId;
use azekura_wire::{Learn, Leaving, Message};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Primary {
    /// In-sync copies that have taken leave and are still connected, and that nobody has wanted to leave behind: their
    /// processes have not ended, so perhaps they go on after all. Each says so in answer to a Sync, or takes leave
    /// again (0021, point 4).
    pub(crate) fn ask_who_stayed(
        &mut self,
        connected: &BTreeSet<DeviceId>,
        departed: &mut BTreeMap<DeviceId, Duration>,
        now: Duration,
    ) {
        for (device, peer) in &mut self.peers {
            let stayed = departed.get(device).is_some_and(|until| now >= *until);
            if peer.leaving && stayed && matches!(peer.standing, Standing::InSync) && connected.contains(device) {
                departed.remove(device);
                (peer.leaving, peer.synced, peer.asked) = (false, false, Duration::ZERO);
            }
        }
    }

    /// The in-sync copy that should reign in the place of one whose device hangs or is slow.
    fn successor(&self, now: Duration) -> Option<DeviceId> {
        let fit = self.peers.iter().filter(|(_, peer)| {
            let there = peer.synced && now < peer.lease_until || !self.is_open();
            matches!(peer.standing, Standing::InSync) && !peer.leaving && peer.diverged_at.is_none() && there
        });
        let rank = |(device, peer): &(&DeviceId, &Peer)| {
            (peer.synced, !self.is_slower(**device, now), peer.acked, Reverse(**device))
        };
        fit.max_by_key(rank).map(|(device, _)| *device)
    }
}

impl Group {
    /// This copy's device does not answer, or answers again.
    pub fn set_hung(&mut self, hung: bool) {
        self.hung = hung;
        if let Role::Secondary(secondary) = &mut self.role
            && hung
        {
            secondary.lease_until = Duration::ZERO;
        }
        self.give_way();
    }

    /// Nobody is to wait for this copy. Where too few would stay in sync for writing, all wait for the device instead
    /// (0021).
    pub(crate) fn keeps_out(&self) -> bool {
        let (in_sync, now) = (self.config.in_sync.len(), self.now);
        if !self.config.in_sync.contains(&self.me) {
            return self.hung || self.yields.keep_away(now);
        }
        (self.hung || self.yields.hold(in_sync, now)) && in_sync > self.config.copies_min as usize
    }

    /// While the device hangs, or is slow: another copy is to reign, and no primary is to wait for this one.
    pub(crate) fn give_way(&mut self) {
        if !self.keeps_out() {
            return;
        }
        let now = self.now;
        match &mut self.role {
            Role::Primary(primary) => {
                let open = primary.is_open();
                let Some(successor) = primary.successor(now).filter(|to| self.connected.contains(to)) else { return };
                if open {
                    self.hand_over(successor);
                } else {
                    // This copy can't open its epoch, and serves nobody: the other one need not hear from it to begin.
                    self.propose_primary(successor);
                }
            }
            Role::Secondary(secondary) => {
                secondary.lease_until = Duration::ZERO;
                if secondary.primary.is_some() && !std::mem::replace(&mut secondary.told_leaving, true) {
                    let leaving = Leaving { pg: self.pg, device: self.me, epoch: self.epochs.followed() };
                    self.send_to_primary(Message::Leaving(leaving));
                }
            }
        }
    }

    /// A primary asks this copy how far it is. If the copy had taken leave it goes on after all, unless its device
    /// still hangs.
    pub(crate) fn stay(&mut self) {
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.told_leaving = false;
        }
        self.give_way();
    }

    /// A primary wants to bring this copy up to date. While this device hangs, and for some time after it was slow, the
    /// primary is to try again later; false at other times.
    pub(crate) fn refuse_to_learn(&mut self, from: Client, learn: &Learn) -> bool {
        let refuses = self.hung || self.yields.keep_away(self.now);
        if refuses {
            let leaving = Leaving { pg: self.pg, device: self.me, epoch: learn.epoch };
            self.actions.push_back(Action::Answer(from, Message::Leaving(leaving)));
            // The writes that come behind the question begin at a place that this copy has not jumped to.
            if let Role::Secondary(secondary) = &mut self.role {
                secondary.primary.take_if(|primary| *primary == from);
            }
        }
        refuses
    }
}
