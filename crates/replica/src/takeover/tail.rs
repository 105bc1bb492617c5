//! The end of what the former primary had sent.
//!
//! What the former primary had sent and not committed is still on its way when that primary stops. Those writes come on
//! the connection on which this copy followed it, and are taken up as a part of what was prepared before
//! ([`Primary::on_late_prepare`]).

use crate::action::{Client, Mismatch};
use crate::context::GroupCx;
use crate::primary::{Primary, Reign};
use azekura_base::DeviceId;
use azekura_wire::Prepare;

impl Primary {
    /// The copy on `device` follows this one: if it was primary before, it serves nobody any more.
    pub(crate) fn predecessor_stopped(&mut self, cx: &mut GroupCx, device: DeviceId) {
        let recorded = cx.epochs.recorded();
        if self.takeover.follows(device, recorded) {
            // Who has promised to follow the former primary need not wait any longer.
            self.send_new_epoch_to_all(cx);
        }
    }

    /// A write that the primary before this one had sent, and this copy had not received when this copy began to reign:
    /// the write is a part of what was prepared before. The write is not answered, so its sender does not commit it.
    ///
    /// # Errors
    /// When the write is damaged: the connection must be closed.
    pub(crate) fn on_late_prepare(
        &mut self,
        cx: &mut GroupCx,
        from: Client,
        prepare: Prepare,
        trusted: bool,
    ) -> Result<bool, Mismatch> {
        let inherited = self.is_gathering() && self.takeover.predecessor.has_sent(from, prepare.header.epoch);
        if !inherited || prepare.header.sequence != cx.tail.end().next() {
            return Ok(false);
        }
        if !trusted && !prepare.body.is_undamaged() {
            return Err(Mismatch::Checksum);
        }
        let peers: Vec<DeviceId> = self.peers.keys().copied().collect();
        let body = prepare.body.clone();
        cx.append_prepared(prepare, Some(body));
        peers.into_iter().for_each(|device| self.send_prepares(cx, device));
        Ok(true)
    }

    /// Takes up the answers of copies that had more, once this one has as much or waits for it no longer.
    pub(crate) fn hear_late_answers(&mut self, cx: &mut GroupCx) -> Reign {
        let (now, end) = (cx.now, cx.tail.end());
        for (device, ok) in self.takeover.take_due_answers(end, now) {
            self.on_new_epoch_ok(cx, device, ok)?;
        }
        Ok(())
    }
}
