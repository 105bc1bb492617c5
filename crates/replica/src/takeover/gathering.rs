//! A new primary hears how far the copies are, sends them what they lack, and has the in-sync set confirmed.

use super::answer::{Asker, Verdict};
use crate::action::Action;
use crate::context::GroupCx;
use crate::lease::readers_until;
use crate::primary::{Primary, Reign};
use azekura_base::{AckRule, DeviceId, Sequence};
use azekura_wire::{Message, NewEpoch, NewEpochOk};
use std::time::Duration;

/// How long a new primary that has heard enough copies waits for others that it can reach.
const GATHERING: Duration = Duration::from_millis(300);

/// How long a new primary waits for any other copy, if it does not know how far those are at least.
const GATHERING_AT_START: Duration = Duration::from_secs(2);

impl Primary {
    /// The configuration names this process as primary: what was prepared before is to be committed in the new epoch.
    pub(crate) fn begin_gathering(&mut self, cx: &mut GroupCx) -> Reign {
        let now = cx.now;
        #[cfg(feature = "sabotage")]
        if crate::sabotage::forgets_tail() {
            let keep = cx.tail.committed();
            drop(cx.tail.truncate(keep));
            cx.durable = keep;
        }
        let before = &self.takeover.predecessor;
        for (device, peer) in &mut self.peers {
            // 0007: what a copy was told in the epoch before may still let it answer readers.
            if cx.config.has_readers() {
                peer.leases.reads_until = readers_until(now);
            }
            if before.device() == *device {
                peer.leases.reads_until = peer.leases.reads_until.max(before.until());
            }
        }
        self.send_new_epoch_to_all(cx);
        self.gather(cx);
        self.try_commit(cx)
    }

    /// Asks every copy that can be reached.
    pub(crate) fn send_new_epoch_to_all(&mut self, cx: &mut GroupCx) {
        let connected: Vec<DeviceId> = cx.links.all_up().collect();
        connected.into_iter().for_each(|device| self.send_new_epoch(cx, device));
    }

    /// Asks a copy how far it is, unless it has said so, on this connection and since the epoch is being recorded.
    pub(crate) fn send_new_epoch(&mut self, cx: &mut GroupCx, device: DeviceId) {
        let (now, committed) = (cx.now, cx.tail.committed());
        let (epoch, opens_at, ended) = (self.epoch(), self.takeover.opens_at(), self.takeover.ended());
        let Some(peer) = self.peers.get_mut(&device) else { return };
        if peer.counts() && !(peer.follows && peer.opened == opens_at.is_some()) {
            peer.signs.asked = now;
            peer.signs.questions += 1;
            let news = NewEpoch { pg: cx.pg, device, epoch, committed, opens_at, recorded: cx.epochs.logged(), ended };
            cx.act(Action::Send(device, Message::NewEpoch(news)));
        }
    }

    /// The secondary on `device` follows the epoch, or refuses to.
    pub(crate) fn on_new_epoch_ok(&mut self, cx: &mut GroupCx, device: DeviceId, ok: NewEpochOk) -> Reign {
        let now = cx.now;
        if self.epoch() != ok.epoch {
            return Ok(()); // A refusal names a newer epoch; the configuration that made it is on its way here.
        }
        self.predecessor_stopped(cx, device);
        let backlog = cx.links.backlog(device);
        let Some(peer) = self.peers.get_mut(&device) else { return Ok(()) };
        (peer.full, peer.signs.heard) = (ok.full, now);
        peer.signs.answers += 1;
        if !peer.counts() {
            return Ok(()); // The answer to a question that was asked before the copy was left behind.
        }
        let (end, committed) = (cx.tail.end(), cx.tail.committed());
        let opens_at = self.takeover.opens_at();
        let asker = Asker { ack: cx.config.ack, opens_at, logged: cx.epochs.logged(), end, committed };
        let verdict = asker.judge(&ok, peer);
        // One that has more is not heard yet: what it has to say must be taken to heart before it counts (0010, point
        // 4).
        peer.answered |= verdict != Verdict::HasMore;
        match verdict {
            Verdict::Outdated => {}
            Verdict::HasMore => {
                // 0013, the tail: the rest may be on its way here. Else that copy is to be primary (0007).
                if !self.takeover.put_off(device, ok, now) {
                    return self.propose_primary(cx, device);
                }
            }
            Verdict::Diverged(good_upto) => {
                peer.diverged_at = Some(good_upto);
                self.gather(cx);
            }
            Verdict::Level => {
                (peer.follows, peer.opened) = (true, ok.open);
                (peer.stream.sent, peer.stream.acked, peer.stream.again) = (ok.prepared, ok.prepared, end);
                (peer.stream.backlog, peer.stream.missed) = (backlog, false);
                peer.stream.pace.interrupted();
                self.send_prepares(cx, device);
                self.gather(cx);
                self.try_commit(cx)?;
                self.try_open(cx);
            }
        }
        Ok(())
    }

    /// Under a rule that does not wait for all copies, a reign begins with those that have everything that a new
    /// primary has found, once it has heard enough copies to have found every acknowledged write. The others are left
    /// behind.
    pub(crate) fn gather(&mut self, cx: &mut GroupCx) {
        let (now, me, end, low_watermark) = (cx.now, cx.me, cx.tail.end(), cx.low_watermark());
        if cx.config.ack == AckRule::All
            || !self.is_gathering()
            || self.takeover.waits_for_predecessor(now)
            || cx.is_proposing()
        {
            return;
        }
        // 0010, point 4: those that were not heard could not have acknowledged anything by themselves.
        let heard = |device| device == me || self.peers.get(&device).is_some_and(|peer| peer.answered);
        let enough = cx.config.hears_enough(heard);
        #[cfg(feature = "sabotage")]
        let enough = enough || crate::sabotage::is_hasty();
        if !enough || cx.durable < end {
            return;
        }
        // 0010, point 5: one compare-and-swap makes those that have everything the in-sync set.
        let mut config = cx.config.next();
        for (device, peer) in &self.peers {
            let usable = peer.diverged_at.is_none() && !peer.leaving;
            if usable && peer.follows && peer.stream.acked >= end {
                continue;
            }
            // A primary that has just started does not know how far the others are: to leave one behind would be dear.
            let at_start = low_watermark == Sequence::ZERO;
            let patience = if at_start { GATHERING_AT_START } else { GATHERING };
            let in_reach = cx.links.is_up(*device) || at_start;
            #[cfg(feature = "sabotage")]
            let in_reach = in_reach && !crate::sabotage::is_hasty();
            if usable && in_reach && self.takeover.has_just_begun(patience, now) {
                return;
            }
            // 0010, point 6: how far it is has been heard from it now, or from the primary before.
            config.remove(*device, peer.diverged_at.unwrap_or(peer.stream.acked).max(low_watermark));
        }
        self.propose(cx, config);
    }
}
