//! What the other copies do when a new primary asks: whom they follow, when their votes wait, what they record.
//!
//! The answer to a [`NewEpoch`] is a *vote*: from then on the copy follows nobody of an older epoch (`epochs.rs`).
//! Where writes do not wait for all copies, the vote waits until the copy's promise to the former primary has run out
//! (0010, point 3).

use crate::action::Client;
use crate::context::GroupCx;
use crate::secondary::{Question, Secondary};
use azekura_base::{AckRule, Epoch, Sequence};
use azekura_wire::{Message, NewEpoch, NewEpochOk};

impl Secondary {
    /// Becomes, or stays, a secondary of the primary of `epoch`. False when that is a primary of the past. A primary
    /// that this copy has proposed to replace is followed until the proposal stands (0013).
    pub(crate) fn listen_to(&mut self, cx: &mut GroupCx, from: Client, epoch: Epoch) -> bool {
        // 0010, point 3: no primary of an epoch below the one that this copy has voted in, or has read of, is followed.
        let least = cx.epochs.least_acceptable(None);
        if epoch < least {
            if epoch == cx.epochs.followed() && self.primary == Some(from) {
                // That primary began anew: its messages from here on follow on a question that this copy has refused.
                self.primary = None;
            }
            cx.send_refusal(from, least);
            return false;
        }
        let now = cx.now;
        let same_epoch = epoch == cx.epochs.followed();
        cx.epochs.follow(epoch);
        self.follow(from, same_epoch, now);
        true
    }

    /// The primary of an epoch asks, on connection `from`, how far this copy is.
    pub(crate) fn on_new_epoch(&mut self, cx: &mut GroupCx, from: Client, news: NewEpoch) {
        // 0010, point 3: a bound copy follows nobody else, unless the primary that it is bound to has ended (0013,
        // point 2). Under `all` the new primary's own promise is enough, since the former one serves by the leases of
        // all copies.
        let recorded = cx.epochs.recorded();
        let bound = news.epoch > recorded && news.ended != recorded && cx.epochs.is_bound(cx.now);
        if cx.config.ack != AckRule::All && bound && news.epoch > cx.epochs.followed() {
            // The primary before may count on this copy until then, and gets no new promise (`on_heartbeat`).
            self.deferred_vote = Some((from, news));
            self.heard = cx.now;
            return;
        }
        if recorded == news.epoch && self.is_from_primary(cx, from, news.epoch) && cx.config.ack != AckRule::All {
            // Asked twice. To begin anew would drop writes on their way here, which may be committed and are not sent
            // again. While the first question waits for the log, nothing is taken that follows on an answer: there must
            // be one answer.
            self.stay(cx);
            if !(self.is_asked()) {
                self.send_new_epoch_ok(cx, news.epoch, news.opens_at.is_none());
            }
            return;
        }
        if !self.listen_to(cx, from, news.epoch) {
            return;
        }
        cx.epochs.has_ended(news.ended);
        // 0021: a copy whose device hangs says so at once, since its answer waits for the device.
        self.give_way(cx);
        self.question = Some(Question::NewEpoch(news));
        self.answer_primary(cx);
    }

    /// Follows the new primary whose vote has been put off, when the promise to the one before has run out.
    pub(crate) fn cast_deferred_vote(&mut self, cx: &mut GroupCx) {
        if cx.epochs.is_bound(cx.now) {
            return;
        }
        if let Some((from, news)) = self.deferred_vote.take() {
            self.on_new_epoch(cx, from, news);
        }
    }

    /// Answers the primary's question once what the answer speaks of is durable: it must survive this process.
    pub(crate) fn answer_primary(&mut self, cx: &mut GroupCx) {
        let Some(question) = self.question else { return };
        // Where this copy begins to learn is known; writes behind that place may come as fast as they become durable.
        let unknown = matches!(question, Question::NewEpoch(_)) && cx.durable < cx.tail.end();
        if cx.epochs.is_recording() || unknown {
            return;
        }
        let following = cx.epochs.followed();
        if let Question::NewEpoch(news) = question
            && cx.completeness.is_unproven()
            && news.opens_at.is_none()
            && cx.config.ack != AckRule::All
        {
            // 0061: a primary counts on it that one of those which it has heard shows every acknowledged write.
            return;
        }
        match question {
            Question::Learn(_) => {}
            Question::NewEpoch(news) => {
                if self.enter_epoch(cx, news) {
                    return;
                }
            }
        }
        self.question = None;
        match question {
            Question::NewEpoch(news) => self.send_new_epoch_ok(cx, following, news.opens_at.is_none()),
            Question::Learn(ok) => {
                self.send_to_primary(cx, Message::LearnOk(ok));
                self.begun(cx, ok);
            }
        }
    }

    /// Commits what the primary knows to be committed and records the primary's epoch, if that epoch is open. True when
    /// the record is on its way: the question is answered behind it.
    fn enter_epoch(&mut self, cx: &mut GroupCx, news: NewEpoch) -> bool {
        let recorded = cx.epochs.recorded();
        let enters = news.opens_at.filter(|_| recorded < news.epoch);
        if enters.is_some_and(|begin| cx.tail.end() > begin) {
            // 0007: what this copy has prepared beyond was decided otherwise. The copy does not cut that tail off by
            // itself: it says how far it is, and the primary leaves the copy behind.
            return false;
        }
        // What the primary calls committed was durable on every in-sync copy, so this one has it too, unless this one
        // has lost its data. Under other rules that holds only for copies whose order is the primary's (0010, point 4).
        if cx.config.ack == AckRule::All || news.opens_at.is_some() || news.recorded == recorded {
            cx.commit(news.committed.min(cx.durable));
        }
        if enters.is_some() {
            // All that was prepared in earlier epochs is committed, and nothing else is kept.
            let keep = cx.tail.committed();
            drop(cx.tail.truncate(keep));
            cx.durable = keep;
            cx.raise_low_watermark(keep);
            cx.start_epoch(news.epoch, keep);
        }
        if news.opens_at.is_some() && news.committed.max(cx.tail.committed()) == Sequence::ZERO {
            // Nothing was ever written, by all that this copy and its primary know: nothing is missing.
            cx.be_complete();
        }
        enters.is_some()
    }

    /// Says how far this copy is, while the primary `gathers` the tail or when the epoch is open.
    fn send_new_epoch_ok(&mut self, cx: &mut GroupCx, following: Epoch, gathers: bool) {
        let (recorded, mut prepared, committed) = (cx.epochs.recorded(), cx.durable, cx.tail.committed());
        // 0007: a copy that has perhaps lost repairs says that it holds nothing, and is brought up to date again. Where
        // not all have to hold a write, this copy may be the only one that is left of those that have acknowledged the
        // end of the tail, which no repair is a part of: it says so until the tail is decided (0010, point 4).
        if cx.completeness.is_doubtful() && !(gathers && cx.config.ack != AckRule::All) {
            prepared = Sequence::ZERO;
        }
        let (pg, device, open, full) = (cx.pg, cx.me, recorded == following, cx.condition.is_full());
        let ok = NewEpochOk { pg, device, epoch: following, prepared, open, full, recorded, committed };
        self.send_to_primary(cx, Message::NewEpochOk(ok));
    }
}
