//! How a reign ends: another copy is primary, or is to be.

use crate::action::Action;
use crate::group::{Group, Role};
use crate::secondary::Secondary;
use azekura_base::{DeviceId, IoStatus, Sequence};

impl Group {
    /// The copy is given up, because its device has failed: whoever waits here is sent to ask again.
    pub fn close(&mut self) {
        self.step_down();
    }

    /// Proposes another copy as primary; this one serves nobody from now on.
    pub(crate) fn propose_primary(&mut self, to: DeviceId) {
        let (None, Some(primary)) = (&self.proposal, self.primary()) else { return };
        let mut config = self.config.next();
        config.epoch = primary.epoch().next();
        config.primary = to;
        // Nobody's: the process on that device claims the epoch after this one.
        config.primary_incarnation = 0;
        self.step_down();
        self.propose(config);
    }

    /// This copy is a secondary from here on, and follows nobody yet.
    pub(crate) fn step_down(&mut self) {
        self.drop_clients();
        self.drop_fences();
        let ordered_at = match &self.role {
            Role::Primary(primary) => {
                self.epochs.step_down(primary.epoch());
                primary.ordered_at
            }
            Role::Secondary(secondary) => secondary.ordered_at,
        };
        let mut secondary = Secondary::new(self.now);
        secondary.ordered_at = ordered_at;
        self.role = Role::Secondary(Box::new(secondary));
    }

    /// Sends everybody who waits here to ask again.
    fn drop_clients(&mut self) {
        let mut waiting = Vec::new();
        if let Some(primary) = self.primary_mut() {
            waiting = primary.drain_clients();
        }
        for sequence in self.tail.committed().0 + 1..=self.tail.end().0 {
            if let Some(write) = self.tail.get_mut(Sequence(sequence))
                && let Some(client) = write.client.take()
            {
                waiting.push((client, write.header.request));
            }
        }
        for (client, request) in waiting {
            self.actions.push_back(Action::AnswerWrite(client, request, Err(IoStatus::Redirect)));
        }
    }
}
