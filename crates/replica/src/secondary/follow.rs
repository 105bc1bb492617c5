//! The write path of a copy that follows: what the primary orders is appended, and committed when the primary says so.

use crate::action::{Client, Mismatch};
use crate::context::GroupCx;
use crate::secondary::Secondary;
use azekura_base::{Epoch, Sequence, WriteHeader};
use azekura_wire::{Message, Prepare, PrepareOk};
use std::time::Duration;

impl Secondary {
    /// The primary orders a write, on connection `from`. `trusted` says that the blocks have not left this process
    /// since their checksums were made.
    ///
    /// # Errors
    /// When the write is damaged or out of order: the connection must be closed.
    pub(crate) fn on_prepare(
        &mut self,
        cx: &mut GroupCx,
        from: Client,
        prepare: Prepare,
        trusted: bool,
    ) -> Result<(), Mismatch> {
        let now = cx.now;
        let asked = self.is_asked();
        if prepare.header.epoch != cx.epochs.followed() || self.primary != Some(from) || asked {
            return Ok(()); // From before the vote of this copy, or from another connection: nobody waits for the answer.
        }
        let WriteHeader { sequence, commit, .. } = prepare.header;
        if sequence <= cx.tail.end() {
            if sequence <= cx.durable {
                self.owe_ack();
            }
            return Ok(());
        }
        if sequence != cx.tail.end().next() {
            return Err(Mismatch::Gap { got: sequence, expected: cx.tail.end().next() });
        }
        if !trusted && !prepare.body.is_undamaged() {
            return Err(Mismatch::Checksum);
        }
        self.ordered_at = Some(now);
        cx.append_prepared(prepare, None);
        self.follow_commit(cx, commit);
        Ok(())
    }

    /// The primary has committed up to `commit`.
    pub(crate) fn follow_commit(&mut self, cx: &mut GroupCx, commit: Sequence) {
        let repaired = self.learner.commit_limit().unwrap_or(commit);
        cx.commit(commit.min(repaired).min(cx.durable));
    }

    /// Tells the primary what has become durable, once for everything since the last call: to be called when the
    /// surroundings have handled a batch of completions.
    pub(crate) fn send_prepare_ok(&mut self, cx: &mut GroupCx) {
        if std::mem::take(&mut self.ack_owed) {
            let epoch = cx.epochs.followed();
            let ok = PrepareOk { pg: cx.pg, device: cx.me, epoch, sequence: cx.durable, full: cx.condition.is_full() };
            self.send_to_primary(cx, Message::PrepareOk(ok));
        }
    }

    /// The primary of `epoch` is alive at time `now` and has committed up to `commit`; every in-sync copy holds
    /// everything up to `low_watermark`. Reads may be answered here until `lease_until`. False when this copy does not
    /// follow that epoch, or has not recorded it, or takes leave: then the primary gets no promise (0013, 0021).
    pub(crate) fn on_heartbeat(
        &mut self,
        cx: &mut GroupCx,
        epoch: Epoch,
        commit: Sequence,
        low_watermark: Sequence,
        lease_until: Duration,
        now: Duration,
    ) -> bool {
        let (hung, keeps_out) = (cx.condition.is_hung(), cx.keeps_out());
        if epoch != cx.epochs.followed() || self.deferred_vote.is_some() {
            return false;
        }
        // The primary is alive, whether or not it may count on this copy: a copy that has taken leave does not take
        // over.
        self.heard = self.heard.max(now);
        if cx.condition.is_leaving() || keeps_out || self.leave_announced {
            return false;
        }
        // A copy must not answer reads while it waits for the epoch's record, or has not said how far it is.
        if !cx.epochs.may_promise(epoch) || self.question.is_some() || cx.completeness.is_unproven() {
            return false;
        }
        if !hung && self.claim.is_none() {
            self.lease_until = self.lease_until.max(lease_until);
        }
        cx.epochs.promise(now);
        cx.raise_low_watermark(low_watermark);
        cx.completeness.counts();
        cx.follow_completeness();
        self.follow_commit(cx, commit);
        true
    }
}
