//! A copy that is being brought up to date, or whose blocks are repaired: the receiving side of `repair/`.

use crate::action::{Action, Client, Mismatch};
use crate::context::GroupCx;
use crate::pending::Tail;
use crate::secondary::{Question, Secondary};
use crate::sessions::Sessions;
use azekura_wire::{Learn, LearnOk, Message, Repair, RepairOk};
use std::time::Duration;

impl Secondary {
    /// The primary starts to bring this copy up to date.
    pub(crate) fn on_learn(&mut self, cx: &mut GroupCx, from: Client, learn: Learn) {
        if cx.refuse_to_learn(from, &learn) {
            // The writes that come behind the question begin at a place that this copy has not jumped to.
            self.primary.take_if(|primary| *primary == from);
            return;
        }
        if !self.listen_to(cx, from, learn.epoch) {
            return;
        }
        if cx.is_ahead_of(learn.base) {
            // 0007: the group has lost what this copy has committed, and this copy may be the only one that holds those
            // writes. So they stay, and people must know; also when the group has written as much since, which is
            // something else.
            let (pg, device, base) = (cx.pg, cx.me, cx.tail.committed().max(learn.base.next()));
            let refusal = LearnOk { pg, device, epoch: learn.epoch, base, complete: learn.since };
            self.send_to_primary(cx, Message::LearnOk(refusal));
            // What comes behind the question follows on what this copy does not have.
            self.primary = None;
            return;
        }
        // What was committed when this copy was left behind is durable here, and the same as everywhere. What this copy
        // has prepared after that may have been decided otherwise.
        cx.commit(learn.since.min(cx.durable));
        let complete = learn.since.min(cx.completeness.limit(cx.tail.committed()));
        cx.completeness.learns();
        let keep = cx.tail.committed();
        drop(cx.tail.truncate(keep));
        cx.start_epoch(learn.epoch, keep);
        if learn.base > keep {
            cx.start_epoch(learn.epoch, learn.base);
            cx.completeness.jumped(keep);
        }
        cx.tail = Tail::new(learn.base);
        cx.durable = learn.base;
        if let Some(sessions) = Sessions::from_note(&learn.note) {
            cx.sessions.replace(sessions);
        }
        // This copy lacks writes from here on, so it must not answer readers.
        self.lease_until = Duration::ZERO;
        let ok = LearnOk { pg: cx.pg, device: cx.me, epoch: learn.epoch, base: learn.base, complete };
        self.question = Some(Question::Learn(ok));
        self.learner.note = cx.save_note();
    }

    /// [`Action::SaveNote`] is done.
    pub(crate) fn on_note_saved(&mut self, cx: &mut GroupCx, name: u64) {
        if self.learner.note == name {
            self.learner.note_saved = true;
            self.confirm_note(cx);
        }
    }

    /// The primary has heard that this copy has begun.
    pub(crate) fn begun(&mut self, cx: &mut GroupCx, ok: LearnOk) {
        self.learner.learnt = Some(ok);
        self.confirm_note(cx);
    }

    fn confirm_note(&mut self, cx: &mut GroupCx) {
        if self.learner.note_saved
            && let Some(ok) = self.learner.learnt.take()
        {
            self.send_to_primary(cx, Message::LearnOk(ok));
        }
    }

    /// The primary says what some blocks hold.
    ///
    /// # Errors
    /// When the blocks are damaged: the connection must be closed.
    pub(crate) fn on_repair(&mut self, cx: &mut GroupCx, from: Client, mut repair: Repair) -> Result<(), Mismatch> {
        if !self.is_from_primary(cx, from, repair.epoch) {
            return Ok(());
        }
        if !repair.body.is_undamaged() {
            return Err(Mismatch::Checksum);
        }
        if repair.commit > cx.tail.end() {
            return Err(Mismatch::Gap { got: repair.commit, expected: cx.tail.end() });
        }
        // A heartbeat may have overtaken it, and told of commits of writes that came before it. None of them is to
        // these blocks: those that were ordered behind its contents have not come yet.
        repair.commit = repair.commit.max(cx.tail.committed());
        self.learner.repairs.push_back(repair);
        self.run_repairs(cx);
        Ok(())
    }

    /// Appends the repairs before which everything is durable.
    pub(crate) fn run_repairs(&mut self, cx: &mut GroupCx) {
        loop {
            if self.learner.commit_limit().is_none_or(|commit| commit > cx.durable) {
                return;
            }
            let Some(repair) = self.learner.repairs.pop_front() else { return };
            cx.commit(repair.commit);
            cx.act(Action::AppendRepair(repair));
        }
    }

    /// [`Action::AppendRepair`] is durable.
    pub(crate) fn on_repair_appended(
        &mut self,
        cx: &mut GroupCx,
        epoch: azekura_base::Epoch,
        id: Option<std::num::NonZeroU64>,
    ) {
        if cx.epochs.followed() == epoch {
            let ok = RepairOk { pg: cx.pg, device: cx.me, epoch, id };
            self.send_to_primary(cx, Message::RepairOk(ok));
        }
    }
}
