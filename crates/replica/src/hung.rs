//! A copy whose device neither completes what it is asked for nor fails it. Nobody is to wait for such a copy, so it takes leave as one
//! does whose process is about to end: it promises nothing, answers no reader, and says so. Nothing of that needs the device.
//!
//! A primary hands over. Its successor claims the group with it, and hears in answer to its first word that it has taken leave:
//! the successor leaves it behind before it commits what it has inherited. What the former primary alone has
//! prepared was promised to nobody, since nothing is committed that is not durable on the primary itself.
//!
//! A copy that has taken leave and is there for long has not ended: it is asked again (`hand_over.rs`: `DEPARTURE`), and
//! brought up to date when it was left behind meanwhile. docs/decisions/0021 has the numbers.

use crate::action::{Action, Client};
use crate::group::{Group, Role};
use crate::peer::Standing;
use crate::primary::Primary;
use azekura_base::DeviceId;
use azekura_wire::{Learn, Leaving, Message};
use std::cmp::Reverse;
use std::time::Duration;

impl Primary {
    /// The in-sync copy that should reign in the place of one whose device hangs.
    fn successor(&self, now: Duration) -> Option<DeviceId> {
        let fit = self.peers.iter().filter(|(_, peer)| {
            let there = peer.synced && now < peer.lease_until || !self.is_open();
            matches!(peer.standing, Standing::InSync) && !peer.leaving && peer.diverged_at.is_none() && there
        });
        fit.max_by_key(|(device, peer)| (peer.synced, peer.acked, Reverse(**device))).map(|(device, _)| *device)
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

    /// Nobody is to wait for this copy. Where too few would stay in sync for writing, all wait for the device instead.
    pub(crate) fn keeps_out(&self) -> bool {
        let missed = self.config.in_sync.contains(&self.me);
        self.hung && (!missed || self.config.in_sync.len() > self.config.copies_min as usize)
    }

    /// While the device hangs: another copy is to reign, and no primary is to wait for this one.
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
                    // It can't begin, and serves nobody: it need not be there when the other begins.
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

    /// A primary asks a copy that has taken leave, perhaps, how far it is: it goes on, unless its device still hangs.
    pub(crate) fn stay(&mut self) {
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.told_leaving = false;
        }
        self.give_way();
    }

    /// A primary wants to bring this copy up to date, whose device hangs: it is to try again later. False when the device does not hang.
    pub(crate) fn refuse_to_learn(&mut self, from: Client, learn: &Learn) -> bool {
        if self.hung {
            let leaving = Leaving { pg: self.pg, device: self.me, epoch: learn.epoch };
            self.actions.push_back(Action::Answer(from, Message::Leaving(leaving)));
            // The writes that come behind the question begin at a place that this copy has not gone to.
            if let Role::Secondary(secondary) = &mut self.role {
                secondary.primary.take_if(|primary| *primary == from);
            }
        }
        self.hung
    }

    /// In-sync copies that have taken leave and are still there, and that nobody has wanted to leave behind: their processes have not ended, so
    /// perhaps they go on after all. Each says so in answer to a Sync, or takes leave again.
    pub(crate) fn ask_who_stayed(&mut self) {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        for (device, peer) in &mut primary.peers {
            let stayed = self.departed.get(device).is_some_and(|until| now >= *until);
            if peer.leaving && stayed && matches!(peer.standing, Standing::InSync) && self.connected.contains(device) {
                self.departed.remove(device);
                (peer.leaving, peer.synced, peer.asked) = (false, false, Duration::ZERO);
            }
        }
    }
}
