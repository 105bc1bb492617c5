//! A session's commands of reservations (SPC-4 section 5.13), and what it does when these change.

use super::full::Full;
use super::room::Pending;
use crate::scsi::Plan;
use crate::scsi::reservations::{answers, attention, failure};
use crate::scsi::sense::{Failure, Sense};
use azekura_base::{Outbox, VolumeId};
use azekura_frontend::{Exports, ReservationAnswer, Tag};
use azekura_gateway::Piece;

impl Full {
    /// Looks whether reservations have changed: a comparison, where they have not.
    pub fn look_at_reservations(&mut self, exports: &dyn Exports, outbox: &mut Outbox) {
        let mut goes = Vec::new();
        for (number, unit) in self.units.iter_mut().filter(|(_, unit)| !unit.disk.is_read_only) {
            let Some(now) = exports.reservations(VolumeId(unit.disk.id)) else { continue };
            if unit.standing.knows(&now) {
                continue;
            }
            unit.disk.reserves = unit.standing.has_name();
            let news = unit.standing.renew(now);
            news.notices.into_iter().for_each(|notice| unit.raise(attention(notice)));
            if news.aborts {
                let tasks = self.tasks.iter().filter(|(_, task)| task.unit == Some(number));
                goes.extend(tasks.filter(|(_, task)| !task.is_of_reservations()).map(|(id, _)| id));
            }
        }
        goes.into_iter().for_each(|id| self.abort(id, true, outbox));
    }

    /// What came of a task's command of reservations.
    pub fn reserved(&mut self, tag: Tag, answer: ReservationAnswer, outbox: &mut Outbox) {
        let Some(Pending::Task(id)) = self.room.requests.remove(tag.0) else { return };
        let task = self.tasks.get_mut(id).expect("a task is there until all of its requests are answered");
        task.outstanding -= 1;
        let mut pieces = Vec::new();
        match (answer, &task.plan) {
            (ReservationAnswer::Record(record), Plan::Reservations(question, room)) => {
                let mut bytes = answers::answer(*question, &record);
                bytes.truncate(*room as usize);
                task.length = bytes.len() as u64;
                pieces.push(Piece::Data(bytes.into()));
            }
            (ReservationAnswer::Status(status), _) => task.failure = failure(status),
            (ReservationAnswer::Later, _) => task.failure = Some(Failure::Busy),
            // Nobody is told that all is well who has not heard how it is.
            (ReservationAnswer::Failed | ReservationAnswer::Record(_), _) => {
                task.failure = Some(Failure::Check(Sense::UNAVAILABLE));
            }
        }
        self.finish(id, pieces, outbox);
    }
}
