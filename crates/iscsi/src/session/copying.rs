//! A session's copies by the target, by their list identifiers (SPC-4 section 5.17).

use super::full::Full;
use crate::scsi::Plan;
use crate::scsi::copy::{State, status_data};
use crate::scsi::sense::Sense;

impl Full {
    /// What RECEIVE COPY RESULTS comes to that asks a logical unit for this copy.
    pub(super) fn copy_status(&self, unit: Option<u16>, id: u8, room: u32) -> Plan {
        let tasks = self.tasks.iter().filter(|(_, task)| task.unit == unit);
        let running = tasks.filter_map(|(_, task)| task.copying.as_ref()).find(|copy| copy.id == Some(id));
        let running = running.map(|copying| (State::InProgress, copying.progress()));
        match running.or_else(|| self.units.get(unit)?.copies.of(id)) {
            Some((state, progress)) => Plan::data(status_data(state, progress), room),
            None => Plan::Check(Sense::FIELD),
        }
    }

    /// A copy has begun: what ended under its name is forgotten. False: another one of that name is under way.
    pub(super) fn begins_copy(&mut self, task: u64) -> bool {
        let Some(begins) = self.tasks.get(task) else { return true };
        let (unit, Some(id)) = (begins.unit, begins.copying.as_ref().and_then(|copy| copy.id)) else { return true };
        let others = self.tasks.iter().filter(|(other, task_of)| *other != task && task_of.unit == unit);
        if others.filter_map(|(_, other)| other.copying.as_ref()).any(|copy| copy.id == Some(id)) {
            return false;
        }
        self.units.get_mut(unit).into_iter().for_each(|unit| unit.copies.forget(id));
        true
    }
}
