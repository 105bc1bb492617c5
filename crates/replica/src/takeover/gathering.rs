//! A new primary hears how far the copies are, sends them what they lack, and has the in-sync set confirmed.

use super::answer::{Asker, Verdict};
use crate::action::Action;
use crate::group::{Group, Role};
use crate::lease::readers_until;
use azekura_base::{AckRule, DeviceId, Sequence};
use azekura_wire::{Message, Sync, SyncOk};
use std::time::Duration;

/// How long a new primary that has heard enough copies waits for others that it can reach.
const GATHERING: Duration = Duration::from_millis(300);
/// How long it waits for any, if it does not know how far they are at least.
const GATHERING_AT_START: Duration = Duration::from_secs(2);

impl Group {
    /// The configuration names this process as primary: what was prepared before is to be committed in the new epoch.
    pub(super) fn begin_gathering(&mut self) {
        let now = self.now;
        #[cfg(feature = "sabotage")]
        if crate::sabotage::forgets_tail() {
            let keep = self.tail.committed();
            drop(self.tail.truncate(keep));
            self.durable = keep;
        }
        if let Role::Primary(primary) = &mut self.role {
            let before = &primary.takeover.predecessor;
            for (device, peer) in &mut primary.peers {
                // 0007: what a copy was told in the epoch before may still let it answer readers.
                if self.config.has_readers() {
                    peer.reads_until = readers_until(now);
                }
                if before.device() == *device {
                    peer.reads_until = peer.reads_until.max(before.until());
                }
            }
        }
        self.greet_all();
        self.gather();
        self.try_commit();
    }

    /// Asks every copy that can be reached.
    pub(crate) fn greet_all(&mut self) {
        let connected: Vec<DeviceId> = self.connected.iter().copied().collect();
        connected.into_iter().for_each(|device| self.greet(device));
    }

    /// Asks a copy how far it is, unless it has said so, on this connection and since the epoch is being recorded.
    pub(crate) fn greet(&mut self, device: DeviceId) {
        let (now, committed) = (self.now, self.tail.committed());
        let Role::Primary(primary) = &mut self.role else { return };
        let (epoch, opens_at, ended) = (primary.epoch(), primary.takeover.opens_at(), primary.takeover.ended());
        let Some(peer) = primary.peers.get_mut(&device) else { return };
        if peer.counts() && !(peer.synced && peer.opened == opens_at.is_some()) {
            peer.asked = now;
            let sync = Sync { pg: self.pg, device, epoch, committed, opens_at, recorded: self.epochs.logged(), ended };
            self.actions.push_back(Action::Send(device, Message::Sync(sync)));
        }
    }

    /// The secondary on `device` follows the epoch, or refuses to.
    pub fn sync_ok(&mut self, device: DeviceId, ok: SyncOk) {
        let now = self.now;
        if !matches!(&self.role, Role::Primary(primary) if primary.epoch() == ok.epoch) {
            return; // A refusal names a newer epoch; the configuration that made it is on its way here.
        }
        self.predecessor_stopped(device);
        let backlog = self.backlog(device);
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&device) else { return };
        (peer.full, peer.heard) = (ok.full, now);
        if !peer.counts() {
            return; // The answer to a question that was asked before the copy was left behind.
        }
        let (end, committed) = (self.tail.end(), self.tail.committed());
        let opens_at = primary.takeover.opens_at();
        let asker = Asker { ack: self.config.ack, opens_at, logged: self.epochs.logged(), end, committed };
        let verdict = asker.judge(&ok, peer);
        // One that has more is not heard yet: what it has to say must be taken to heart before it counts (0010, point
        // 4).
        peer.answered |= verdict != Verdict::HasMore;
        match verdict {
            Verdict::Outdated => {}
            Verdict::HasMore => {
                // 0013, the tail: the rest may be on its way here. Else that copy is to be primary (0007).
                if !primary.takeover.put_off(device, ok, now) {
                    self.propose_primary(device);
                }
            }
            Verdict::Diverged(good_upto) => {
                peer.diverged_at = Some(good_upto);
                self.gather();
            }
            Verdict::Level => {
                (peer.synced, peer.opened) = (true, ok.open);
                (peer.sent, peer.acked, peer.again) = (ok.prepared, ok.prepared, end);
                (peer.backlog, peer.missed) = (backlog, false);
                peer.pace.interrupted();
                self.pump(device);
                self.gather();
                self.try_commit();
                self.try_open();
            }
        }
    }

    /// Under a rule that does not wait for all copies, a reign begins with those that have everything that a new
    /// primary has found, once it has heard enough copies to have found every acknowledged write. The others are left
    /// behind.
    pub(crate) fn gather(&mut self) {
        let (now, me, end, low_watermark) = (self.now, self.me, self.tail.end(), self.low_watermark);
        let Role::Primary(primary) = &self.role else { return };
        if self.config.ack == AckRule::All
            || !primary.is_gathering()
            || primary.takeover.waits_for_predecessor(now)
            || self.proposal.is_some()
        {
            return;
        }
        // 0010, point 4: those that were not heard could not have acknowledged anything by themselves.
        let heard = |device| device == me || primary.peers.get(&device).is_some_and(|peer| peer.answered);
        let enough = self.config.hears_enough(heard);
        #[cfg(feature = "sabotage")]
        let enough = enough || crate::sabotage::is_hasty();
        if !enough || self.durable < end {
            return;
        }
        // 0010, point 5: one compare-and-swap makes those that have everything the in-sync set.
        let mut config = self.config.next();
        for (device, peer) in &primary.peers {
            let usable = peer.diverged_at.is_none() && !peer.leaving;
            if usable && peer.synced && peer.acked >= end {
                continue;
            }
            // A primary that has just started does not know how far the others are: to leave one behind would be dear.
            let at_start = low_watermark == Sequence::ZERO;
            let patience = if at_start { GATHERING_AT_START } else { GATHERING };
            let in_reach = self.connected.contains(device) || at_start;
            #[cfg(feature = "sabotage")]
            let in_reach = in_reach && !crate::sabotage::is_hasty();
            if usable && in_reach && primary.takeover.has_just_begun(patience, now) {
                return;
            }
            // 0010, point 6: how far it is has been heard from it now, or from the primary before.
            config.remove(*device, peer.diverged_at.unwrap_or(peer.acked).max(low_watermark));
        }
        self.propose(config);
    }
}
