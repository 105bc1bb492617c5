//! What is durable on as many copies as the ack rule asks for is committed, and answered.

use crate::config::GroupConfig;
use crate::context::GroupCx;
use crate::primary::peer::Standing;
use crate::primary::{Primary, Reign};
use azekura_base::{AckRule, DeviceId, Sequence};
use azekura_wire::PrepareOk;
use std::collections::BTreeSet;

impl Primary {
    /// The secondary on `device` is durable up to `ok.sequence`.
    pub(crate) fn on_prepare_ok(&mut self, cx: &mut GroupCx, device: DeviceId, ok: PrepareOk) -> Reign {
        let now = cx.now;
        let Some(peer) = self.peers.get_mut(&device) else { return Ok(()) };
        if ok.epoch != self.epoch || !peer.follows || ok.sequence > peer.stream.sent {
            return Ok(());
        }
        (peer.full, peer.signs.heard) = (ok.full, now);
        if ok.sequence > peer.stream.acked {
            peer.stream.acked = ok.sequence;
            let room = peer.stream.backlog.acked(ok.sequence);
            peer.stream.pace.acked(ok.sequence, now);
            peer.signs.moved = now;
            let lacks = peer.stream.sent < cx.tail.end();
            if self.made_room(device, room) {
                self.retry_waiting(cx);
            }
            if lacks {
                self.send_prepares(cx, device);
            }
        }
        self.gather(cx);
        self.try_commit(cx)
    }

    /// Everything up to `sequence` is durable on this copy's own device.
    pub(crate) fn on_appended(&mut self, cx: &mut GroupCx, sequence: Sequence) -> Reign {
        self.pace.acked(sequence, cx.now);
        self.try_commit(cx)
    }

    /// Commits what enough copies hold. Before the epoch is open those are all copies in sync, under any rule (0010,
    /// point 5).
    pub(crate) fn try_commit(&mut self, cx: &mut GroupCx) -> Reign {
        if self.takeover.waits(cx.now).is_some() {
            return Ok(());
        }
        if cx.config.ack != AckRule::All && self.is_gathering() {
            return Ok(());
        }
        let upto = self.held_by_enough(&cx.config, cx.me, cx.durable);
        if upto > cx.tail.committed() {
            cx.commit(upto);
            self.count_laggards(cx, upto);
            self.answer_fences(cx);
            self.retry_waiting(cx);
            self.run_resyncs(cx);
            self.try_invite(cx);
        }
        self.try_record(cx)
    }

    /// Every in-sync copy holds everything up to here, so a copy that is left behind unheard has at least that (0010,
    /// point 6).
    pub(crate) fn raise_low_watermark(&mut self, cx: &mut GroupCx) {
        if self.is_open() {
            let everywhere = self.counting().map(|peer| peer.stream.acked).min().unwrap_or(cx.durable);
            cx.raise_low_watermark(everywhere.min(cx.tail.committed()));
        }
    }

    /// Everything up to here is durable on enough copies, whichever proposed configuration stands. A copy that joins is
    /// waited for (0010, point 1).
    fn held_by_enough(&self, config: &GroupConfig, me: DeviceId, durable: Sequence) -> Sequence {
        #[cfg(feature = "sabotage")]
        if config.ack == AckRule::All && self.is_open() && crate::sabotage::is_content_with_one() {
            return durable;
        }
        if config.ack == AckRule::All || !self.is_open() {
            return self.counting().map(|peer| peer.stream.acked).min().unwrap_or(durable).min(durable);
        }
        let acked = |device: DeviceId| match self.peers.get(&device) {
            _ if device == me => durable,
            Some(peer) => peer.stream.acked,
            None => Sequence::ZERO,
        };
        let enough = |in_sync: &BTreeSet<DeviceId>| config.held_by_enough(in_sync, me, acked);
        let joining = self.peers.values().filter(|peer| matches!(peer.standing, Standing::Joining));
        let in_doubt = self.proposals_in_doubt.iter().map(|(_, in_sync)| enough(in_sync));
        in_doubt.chain(joining.map(|peer| peer.stream.acked)).min().unwrap_or(durable).min(enough(&config.in_sync))
    }
}
