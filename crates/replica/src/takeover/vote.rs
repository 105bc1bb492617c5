//! What the other copies do when a new primary asks: whom they follow, when their votes wait, what they record.
//!
//! The answer to a [`Sync`] is a *vote*: from then on the copy follows nobody of an older epoch (`epochs.rs`). Where
//! writes do not wait for all copies, the vote waits until the copy's promise to the former primary has run out (0010,
//! point 3).

use crate::action::{Action, Client};
use crate::group::{Group, Role};
use crate::secondary::Question;
use azekura_base::{AckRule, Epoch, Sequence};
use azekura_wire::{Message, Sync, SyncOk};

impl Group {
    /// Becomes, or stays, a secondary of the primary of `epoch`. False when that is a primary of the past. A primary
    /// that this copy has proposed to replace is followed until the proposal stands (0013).
    pub(crate) fn listen_to(&mut self, from: Client, epoch: Epoch) -> bool {
        let reigns = match &self.role {
            Role::Primary(primary) => Some(primary.epoch()),
            Role::Secondary(_) => None,
        };
        // 0010, point 3: no primary of an epoch below the one that this copy has voted in, or has read of, is followed.
        let least = self.epochs.least_acceptable(reigns);
        if epoch < least {
            if let Role::Secondary(secondary) = &mut self.role
                && epoch == self.epochs.followed()
                && secondary.primary == Some(from)
            {
                // That primary began anew, and what it sends from here on follows on a question that this copy has
                // refused.
                secondary.primary = None;
            }
            self.refuse_vote(from, least);
            return false;
        }
        if matches!(self.role, Role::Primary(_)) {
            self.step_down();
        }
        let now = self.now;
        let same_epoch = epoch == self.epochs.followed();
        self.epochs.follow(epoch);
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.follow(from, same_epoch, now);
        }
        true
    }

    /// Tells a primary of the past from which epoch on this copy follows anybody.
    fn refuse_vote(&mut self, from: Client, least: Epoch) {
        let (pg, device, full, recorded) = (self.pg, self.me, self.full, self.epochs.recorded());
        let (prepared, committed, open) = (Sequence::ZERO, Sequence::ZERO, false);
        let refusal = SyncOk { pg, device, epoch: least, prepared, open, full, recorded, committed };
        self.actions.push_back(Action::Answer(from, Message::SyncOk(refusal)));
    }

    /// The primary of an epoch asks, on connection `from`, how far this copy is.
    pub fn sync(&mut self, from: Client, sync: Sync) {
        if let Role::Primary(primary) = &self.role
            && sync.epoch >= self.epochs.least_acceptable(Some(primary.epoch()))
        {
            // 0013: what this copy promised while its own claim was on its way still holds, so its vote may have to
            // wait.
            self.step_down();
        }
        // 0010, point 3: a bound copy follows nobody else, unless the primary that it is bound to has ended (0013,
        // point 2). Under `all` the new primary's own promise is enough, since the former one serves by the leases of
        // all copies.
        let recorded = self.epochs.recorded();
        let bound = sync.epoch > recorded && sync.ended != recorded && self.epochs.is_bound(self.now);
        if let Role::Secondary(secondary) = &mut self.role
            && self.config.ack != AckRule::All
            && bound
            && sync.epoch > self.epochs.followed()
        {
            // The primary before may count on this copy until then, and gets no new promise (`Group::heartbeat`).
            secondary.deferred_vote = Some((from, sync));
            secondary.heard = self.now;
            return;
        }
        if recorded == sync.epoch && self.is_from_primary(from, sync.epoch) && self.config.ack != AckRule::All {
            // Asked twice. To begin anew would drop writes on their way here, which may be committed and are not sent
            // again. While the first question waits for the log, nothing is taken that follows on an answer: there must
            // be one answer.
            self.stay();
            if !matches!(&self.role, Role::Secondary(secondary) if secondary.is_asked()) {
                self.report_position(sync.epoch);
            }
            return;
        }
        if !self.listen_to(from, sync.epoch) {
            return;
        }
        self.epochs.has_ended(sync.ended);
        // 0021: a copy whose device hangs says so at once, since its answer waits for the device.
        self.give_way();
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.question = Some(Question::Sync(sync));
        }
        self.answer_primary();
    }

    /// Follows the new primary whose vote has been put off, when the promise to the one before has run out.
    pub(crate) fn cast_deferred_vote(&mut self) {
        if self.epochs.is_bound(self.now) {
            return;
        }
        if let Role::Secondary(secondary) = &mut self.role
            && let Some((from, sync)) = secondary.deferred_vote.take()
        {
            self.sync(from, sync);
        }
    }

    /// Answers the primary's question once what the answer speaks of is durable: it must survive this process.
    pub(crate) fn answer_primary(&mut self) {
        let Role::Secondary(secondary) = &self.role else { return };
        let Some(question) = secondary.question else { return };
        // Where this copy begins to learn is known; writes behind that place may come as fast as they become durable.
        let unknown = matches!(question, Question::Sync(_)) && self.durable < self.tail.end();
        if self.epochs.is_recording() || unknown {
            return;
        }
        let following = self.epochs.followed();
        match question {
            Question::Learn(_) => {}
            Question::Sync(sync) => {
                if self.enter_epoch(sync) {
                    return;
                }
            }
        }
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.question = None;
        }
        match question {
            Question::Sync(_) => self.report_position(following),
            Question::Learn(ok) => {
                self.send_to_primary(Message::LearnOk(ok));
                self.begun(ok);
            }
        }
    }

    /// Commits what the primary knows to be committed and records its epoch, if that is open. True when the record is
    /// on its way: the question is answered behind it.
    fn enter_epoch(&mut self, sync: Sync) -> bool {
        let recorded = self.epochs.recorded();
        let enters = sync.opens_at.filter(|_| recorded < sync.epoch);
        if enters.is_some_and(|begin| self.tail.end() > begin) {
            // 0007: what this copy has prepared beyond was decided otherwise. It does not cut that off by itself: it
            // says how far it is, and the primary leaves it behind.
            return false;
        }
        // What the primary calls committed was durable on every in-sync copy, so this one has it too, unless this one
        // has lost its data. Under other rules that holds only for copies whose order is the primary's (0010, point 4).
        if self.config.ack == AckRule::All || sync.opens_at.is_some() || sync.recorded == recorded {
            self.commit(sync.committed.min(self.durable));
        }
        if enters.is_some() {
            // All that was prepared in earlier epochs is committed, and nothing else is kept.
            let keep = self.tail.committed();
            drop(self.tail.truncate(keep));
            self.durable = keep;
            self.low_watermark = self.low_watermark.max(keep);
            self.start_epoch(sync.epoch, keep);
        }
        enters.is_some()
    }

    /// Says how far this copy is.
    fn report_position(&mut self, following: Epoch) {
        let (recorded, mut prepared, committed) = (self.epochs.recorded(), self.durable, self.tail.committed());
        // 0007: a copy that has perhaps lost repairs says that it holds nothing, and is brought up to date again.
        if self.completeness.is_doubtful() {
            prepared = Sequence::ZERO;
        }
        let (pg, device, open, full) = (self.pg, self.me, recorded == following, self.full);
        let ok = SyncOk { pg, device, epoch: following, prepared, open, full, recorded, committed };
        self.send_to_primary(Message::SyncOk(ok));
    }
}
