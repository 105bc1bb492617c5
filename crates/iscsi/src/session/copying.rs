//! A session's copies by the target, by their list identifiers (SPC-4 section 5.17).

use super::full::Full;
use crate::scsi::Plan;
use crate::scsi::copy::{State, status_data};
use crate::scsi::sense::Sense;

impl Full {
    /// What RECEIVE COPY RESULTS comes to that asks for this copy.
    pub(super) fn copy_status(&self, id: u8, room: u32) -> Plan {
        let running = self.tasks.iter().find_map(|(_, task)| task.copying.as_ref().filter(|copy| copy.id == Some(id)));
        let running = running.map(|copying| (State::InProgress, copying.progress()));
        match running.or_else(|| self.copies().of(id)) {
            Some((state, progress)) => Plan::data(status_data(state, progress), room),
            None => Plan::Check(Sense::FIELD),
        }
    }

    /// A copy has begun: what ended under its name is forgotten. False: another one of that name is under way.
    pub(super) fn begins_copy(&mut self, task: u64) -> bool {
        let id_of = |id: u64| self.tasks.get(id).and_then(|task| task.copying.as_ref()).and_then(|copy| copy.id);
        let Some(id) = id_of(task) else { return true };
        if self.tasks.iter().any(|(other, _)| other != task && id_of(other) == Some(id)) {
            return false;
        }
        self.copies_mut().forget(id);
        true
    }
}
