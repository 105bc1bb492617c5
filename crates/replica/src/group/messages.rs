//! What other nodes say: gateways, primaries, secondaries.

use super::{Group, Role};
use crate::action::{Action, Client, Mismatch};
use crate::primary::{Primary, check};
use azekura_base::{BlockRange, DeviceId, Epoch, IoStatus, LayerId, Sequence, VolumeId};
use azekura_wire::{
    Compare, CompareOk, Damaged, Fence, Fetch, Fetched, Freeze, HandOver, Learn, LearnOk, Leaving, NewEpoch,
    NewEpochOk, Prepare, PrepareOk, ReadRequest, Repair, RepairOk, StatusRequest, WriteRequest,
};
use std::time::Duration;

/// From gateways.
impl Group {
    /// A gateway writes. `trusted` says that the data has not left this process since its checksums were made.
    ///
    /// # Errors
    /// When the data is damaged or the request malformed: the connection that it came on must be closed.
    pub fn write(&mut self, client: Client, write: WriteRequest, trusted: bool) -> Result<(), Mismatch> {
        self.take_write(client, write, trusted, false)
    }

    /// As [`Group::write`], for a layer that takes no writes now, or any more: only what has a place in the order
    /// already, under whichever layer's name, is answered; all else is asked to come again.
    ///
    /// # Errors
    /// As [`Group::write`].
    pub fn write_stale(&mut self, client: Client, write: WriteRequest, trusted: bool) -> Result<(), Mismatch> {
        self.take_write(client, write, trusted, true)
    }

    fn take_write(&mut self, client: Client, write: WriteRequest, trusted: bool, stale: bool) -> Result<(), Mismatch> {
        check(&write, trusted)?;
        self.cx.sessions.heard(write.session, write.oldest);
        match &mut self.role {
            Role::Primary(primary) => primary.on_write(&mut self.cx, client, write, stale),
            Role::Secondary(_) => self.cx.act(Action::AnswerWrite(client, write.request, Err(IoStatus::Redirect))),
        }
        Ok(())
    }

    /// A gateway reads. Answered here if this copy may; else the gateway is sent to the primary.
    pub fn read(&mut self, client: Client, read: ReadRequest, now: Duration) {
        let action = if self.may_answer(&read.range, now) {
            Action::ServeRead(client, read)
        } else {
            Action::Refuse(client, read.request, IoStatus::Redirect)
        };
        self.cx.act(action);
    }

    /// A gateway asks for a chunk's block status; as [`Group::read`].
    pub fn status(&mut self, client: Client, status: StatusRequest, now: Duration) {
        let action = if self.may_answer(&BlockRange::chunk(status.layer, status.chunk), now) {
            Action::ServeStatus(client, status)
        } else {
            Action::Refuse(client, status.request, IoStatus::Redirect)
        };
        self.cx.act(action);
    }

    /// Invariant 2, 0004. The primary answers from its committed state while no other primary can exist. A secondary
    /// answers while it has a lease and knows of no uncommitted write to these blocks. For an acknowledged write is
    /// prepared here: that write is committed here too, or is in the tail, perhaps under the name of a layer below,
    /// which was the head when the write was ordered.
    fn may_answer(&mut self, blocks: &BlockRange, now: Duration) -> bool {
        match &mut self.role {
            Role::Primary(primary) => primary.serves(&self.cx, now),
            Role::Secondary(secondary) => secondary.has_lease(now) && !self.cx.tail.may_show_in(blocks),
        }
    }

    /// Somebody asks what whole layers hold: whether this copy may say. Only the primary may, while no other primary
    /// can exist, whatever the ack rule: others may lack what is in their tail.
    pub fn may_tell_of_layers(&mut self, now: Duration) -> bool {
        self.as_primary(|primary, cx| primary.serves(cx, now)).unwrap_or(false)
    }

    /// Attachments of a volume have ended. Answered when no write of theirs can be applied in this group any more, as
    /// far as the caller refuses what arrives from now on.
    pub fn fence(&mut self, client: Client, fence: &Fence) {
        if self.as_primary(|primary, cx| primary.on_fence(cx, client, fence)).is_none() {
            self.cx.send_fence_done(client, fence.request, Err(IoStatus::Redirect));
        }
    }

    /// A volume's head layer is frozen. Answered when no write to it can be applied in this group any more, as far as
    /// the caller refuses what arrives from now on.
    pub fn freeze(&mut self, client: Client, freeze: &Freeze) {
        if self.as_primary(|primary, cx| primary.on_freeze(cx, client, freeze)).is_none() {
            self.cx.send_fence_done(client, freeze.request, Err(IoStatus::Redirect));
        }
    }

    /// Asks the writes without a place whose volume and layer `stale` names to come again: the configuration says that
    /// the layer takes no writes now, or any more.
    pub fn send_back(&mut self, stale: impl Fn(VolumeId, LayerId) -> bool) {
        self.as_primary(|primary, cx| primary.send_back(cx, stale));
    }
}

/// From primaries.
impl Group {
    /// The primary of an epoch asks, on connection `from`, how far this copy is.
    pub fn new_epoch(&mut self, from: Client, news: NewEpoch) {
        if let Some(reigns) = self.reigns() {
            let least = self.cx.epochs.least_acceptable(Some(reigns));
            if news.epoch < least {
                return self.cx.send_refusal(from, least);
            }
            // 0013: what this copy promised while its own claim was on its way still holds, so its vote may have to
            // wait.
            self.become_secondary();
        }
        self.as_secondary(|secondary, cx| secondary.on_new_epoch(cx, from, news));
    }

    /// The primary starts to bring this copy up to date.
    ///
    /// # Errors
    /// When the note is damaged: the connection must be closed.
    pub fn learn(&mut self, from: Client, learn: Learn) -> Result<(), Mismatch> {
        if azekura_base::checksum(&learn.note) != learn.note_checksum {
            return Err(Mismatch::Checksum);
        }
        if let Some(reigns) = self.reigns() {
            let least = self.cx.epochs.least_acceptable(Some(reigns));
            if self.cx.refuse_to_learn(from, &learn) {
                return Ok(());
            }
            if learn.epoch < least {
                self.cx.send_refusal(from, least);
                return Ok(());
            }
            self.become_secondary();
        }
        self.as_secondary(|secondary, cx| secondary.on_learn(cx, from, learn));
        Ok(())
    }

    /// The epoch in which this copy is primary.
    fn reigns(&self) -> Option<Epoch> {
        match &self.role {
            Role::Primary(primary) => Some(primary.epoch()),
            Role::Secondary(_) => None,
        }
    }

    /// The primary orders a write, on connection `from`. `trusted` says that the blocks have not left this process
    /// since their checksums were made.
    ///
    /// # Errors
    /// When the write is damaged or out of order: the connection must be closed.
    pub fn prepare(&mut self, from: Client, prepare: Prepare, trusted: bool) -> Result<(), Mismatch> {
        match &mut self.role {
            Role::Primary(primary) => {
                if primary.on_late_prepare(&mut self.cx, from, prepare, trusted)? {
                    self.reign(Primary::hear_late_answers);
                }
                Ok(())
            }
            Role::Secondary(secondary) => secondary.on_prepare(&mut self.cx, from, prepare, trusted),
        }
    }

    /// A prepared write refers to blocks that this node's gateway does not hold (any more).
    ///
    /// # Errors
    /// When the write is from the primary that this copy follows: the connection must be closed. A former
    /// primary's may be late.
    pub fn refuse_reference(&mut self, from: Client, epoch: Epoch) -> Result<(), Mismatch> {
        let follows = self.as_secondary(|secondary, cx| secondary.is_from_primary(cx, from, epoch));
        if follows == Some(true) { Err(Mismatch::NotOurs) } else { Ok(()) }
    }

    /// Tells the primary what has become durable, once for everything since the last call: to be called when the
    /// surroundings have handled a batch of completions.
    pub fn flush_acks(&mut self) {
        self.as_secondary(|secondary, cx| secondary.send_prepare_ok(cx));
    }

    /// The primary of `epoch` is alive at time `now` and has committed up to `commit`; every in-sync copy holds
    /// everything up to `low_watermark`. Reads may be answered here until `lease_until`. False when this copy does not
    /// follow that epoch, or has not recorded it, or takes leave: then the primary gets no promise (0013, 0021).
    pub fn heartbeat(
        &mut self,
        epoch: Epoch,
        commit: Sequence,
        low_watermark: Sequence,
        lease_until: Duration,
        now: Duration,
    ) -> bool {
        let act = |cx: &mut _, secondary: &mut crate::secondary::Secondary| {
            secondary.on_heartbeat(cx, epoch, commit, low_watermark, lease_until, now)
        };
        self.as_secondary(|secondary, cx| act(cx, secondary)).unwrap_or(false)
    }

    /// The primary says what some blocks hold.
    ///
    /// # Errors
    /// When the blocks are damaged: the connection must be closed.
    pub fn repair(&mut self, from: Client, repair: Repair) -> Result<(), Mismatch> {
        self.as_secondary(|secondary, cx| secondary.on_repair(cx, from, repair)).unwrap_or(Ok(()))
    }

    /// The primary asks whether a chunk is the same here.
    pub fn compare(&mut self, from: Client, compare: Compare) {
        self.as_secondary(|secondary, cx| secondary.on_compare(cx, from, compare));
    }

    /// The primary asks for a chunk of a layer that this device does not have any more.
    pub fn compare_gone(&mut self, from: Client, compare: &Compare) {
        self.as_secondary(|secondary, cx| secondary.on_compare_gone(cx, from, compare));
    }

    /// The primary asks for blocks.
    pub fn fetch(&mut self, from: Client, fetch: Fetch) {
        self.as_secondary(|secondary, cx| secondary.on_fetch(cx, from, fetch));
    }

    /// The primary asks for blocks of a layer of which this copy has nothing, or not for long.
    pub fn fetch_gone(&mut self, from: Client, fetch: Fetch) {
        self.as_secondary(|secondary, cx| secondary.on_fetch_gone(cx, from, fetch));
    }

    /// The primary that this copy follows wants this copy to reign.
    pub fn inherit(&mut self, from: Client, hand_over: HandOver) {
        self.as_secondary(|secondary, cx| secondary.on_hand_over(cx, from, hand_over));
    }
}

/// From secondaries.
impl Group {
    /// The secondary on `device` is durable up to `ok.sequence`.
    pub fn prepare_ok(&mut self, device: DeviceId, ok: PrepareOk) {
        self.reign(|primary, cx| primary.on_prepare_ok(cx, device, ok));
    }

    /// The secondary on `device` follows the epoch, or refuses to.
    pub fn new_epoch_ok(&mut self, device: DeviceId, ok: NewEpochOk) {
        self.reign(|primary, cx| primary.on_new_epoch_ok(cx, device, ok));
    }

    /// The secondary on `device` has promised, in answer to a heartbeat that was sent at `sent`, to follow nobody
    /// else. True when that lets this copy answer readers.
    pub fn heartbeat_ok(&mut self, device: DeviceId, sent: Duration, full: bool, now: Duration) -> bool {
        self.as_primary(|primary, cx| primary.on_heartbeat_ok(cx, device, sent, full, now)).unwrap_or(false)
    }

    /// A heartbeat to `device` is on its way, with the secondary's own stamp that arrived here at `stamp_arrived`: the
    /// secondary's lease to answer readers counts from that moment.
    pub fn heartbeat_sent(&mut self, device: DeviceId, stamp_arrived: Duration) {
        self.as_primary(|primary, _| primary.on_heartbeat_sent(device, stamp_arrived));
    }

    /// The copy on `device` is about to stop or to be given up, or its device hangs, and the copy answers no reader
    /// from now on.
    pub fn peer_leaving(&mut self, device: DeviceId, leaving: Leaving) {
        self.reign(|primary, cx| primary.on_leaving(cx, device, leaving));
    }

    /// A copy has begun; when it says so again, it has also kept which writes it need not apply again.
    pub fn learn_ok(&mut self, device: DeviceId, ok: LearnOk) {
        self.as_primary(|primary, cx| primary.on_learn_ok(cx, device, ok));
    }

    /// A copy says what differs in a chunk.
    pub fn compare_ok(&mut self, device: DeviceId, ok: CompareOk) {
        self.as_primary(|primary, cx| primary.on_compare_ok(cx, device, ok));
    }

    /// A repair is durable.
    pub fn repair_ok(&mut self, device: DeviceId, ok: RepairOk) {
        self.as_primary(|primary, cx| primary.on_repair_ok(cx, device, ok));
    }

    /// Blocks of the copy on `device` are damaged, it says.
    pub fn damaged(&mut self, device: DeviceId, damaged: Damaged) {
        self.as_primary(|primary, cx| primary.on_damaged(cx, device, damaged));
    }

    /// A copy gives blocks that were asked for.
    pub fn fetched(&mut self, device: DeviceId, fetched: Fetched) {
        self.as_primary(|primary, cx| primary.on_fetched(cx, device, fetched));
    }
}
