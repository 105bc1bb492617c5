//! One step of the model.

use crate::model::{Action, Membership};
use crate::state::{Broken, State};

/// A state that is being changed under the rules of a model.
pub(crate) struct Run<'a> {
    pub(crate) model: &'a Membership,
    pub(crate) s: State,
}

impl Run<'_> {
    /// Does one step; `None` when it can't be done now.
    pub(crate) fn step(&mut self, action: Action) -> Option<()> {
        self.act(action)?;
        self.renew();
        Some(())
    }

    fn act(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Order(primary) => self.order(primary),
            Action::Prepare(primary, copy) => self.prepare(primary, copy),
            Action::Acknowledge(primary, copy) => self.acknowledge(primary, copy),
            Action::Heartbeat(primary, copy) => self.heartbeat(primary, copy),
            Action::WaitOut(primary) => self.wait_out(primary),
            Action::Claim(copy) => self.claim(copy, false),
            Action::HandOver(primary, copy) => self.hand_over(primary, copy),
            Action::Execute(copy) => self.execute(copy),
            Action::ExecuteOrphan => self.execute_orphan(),
            Action::Hear(copy) => self.hear(copy),
            Action::Configure(copy) => self.configure(copy),
            Action::Ask(primary, copy) => self.ask(primary, copy),
            Action::Answer(primary, copy) => self.answer(primary, copy),
            Action::InheritWrite(primary) => self.inherit_write(primary),
            Action::Gather(primary) => self.gather(primary),
            Action::Record(primary) => self.record(primary),
            Action::Change(primary, in_sync) => self.change(primary, in_sync),
            Action::Learn(primary, copy) => self.learn(primary, copy),
            Action::Learnt(primary, copy) => self.learnt(primary, copy),
            Action::Restart { copy, late, forgetful, cut } => self.restart(copy, late, forgetful, cut),
        }
    }

    /// Notes the first rule that was broken.
    pub(crate) fn breaks(&mut self, rule: Broken) {
        self.s.witness.broken.get_or_insert(rule);
    }
}
