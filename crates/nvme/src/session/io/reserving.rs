//! An I/O queue's commands of reservations (Base sections 7.2 to 7.5), and what it does when these change.

use super::{Io, Pending};
use crate::completion::Status;
use crate::reservations::{report, status};
use crate::session::plan::{Plan, Use};
use azekura_base::{Outbox, VolumeId};
use azekura_frontend::{Event, Exports, ReservationAnswer, ReservationRequest, Tag};
use azekura_gateway::Piece;
use azekura_model::{Access, CommandKind};

impl Io {
    /// Looks whether reservations have changed: a comparison, where they have not.
    pub fn look_at_reservations(&mut self, exports: &dyn Exports) {
        if self.disk.is_read_only {
            return;
        }
        let Some(now) = exports.reservations(VolumeId(self.disk.identity.volume)) else { return };
        if self.standing.knows(&now) {
            return;
        }
        self.disk.reserves = true;
        if self.standing.renew(now).aborts {
            // What is with the front end is waited for, and so is data on its way: a host may not use the number of a
            // command again before that. Nothing more of them is given out.
            let goes = self.tasks.values_mut().filter(|task| task.kind != CommandKind::Inform);
            goes.for_each(|task| task.fail(Status::ABORTED_BY_PREEMPTION));
        }
    }

    /// Whether a command goes through.
    pub(super) fn check_rights(&self, kind: CommandKind) -> Result<(), Status> {
        match self.standing.access(kind) {
            Access::Allowed => Ok(()),
            Access::Conflict => Err(Status::RESERVATION_CONFLICT),
        }
    }

    /// What a task asks of reservations, once it has memory and its keys; `None` when it is none of these, or has
    /// failed. No more is given out of a task that is barred by now.
    pub(super) fn ask(&mut self, id: u16) -> Option<Event> {
        let rights = self.check_rights(self.tasks.get(&id)?.kind);
        let task = self.tasks.get_mut(&id)?;
        if let Err(conflict) = rights {
            task.fail(conflict);
        }
        if task.failure.is_some() {
            return None;
        }
        let asked = match task.plan {
            Plan::Report(_) => Ok(ReservationRequest::Read),
            Plan::Take(_, Use::Reserve(command)) => match command.with_keys(&task.data.finish()) {
                // Who says nothing of himself can't be known again (Base section 8.19).
                Ok(Some(command)) => self.standing.request(command).ok_or(Status::SEQUENCE_ERROR),
                Ok(None) => Ok(ReservationRequest::Read),
                Err(failure) => Err(failure),
            },
            _ => return None,
        };
        match asked {
            Ok(request) => {
                let memory_bytes = task.room.take()?;
                task.outstanding += 1;
                let tag = Tag(self.requests.insert(Pending::Task(id)));
                Some(Event::Reserves { tag, memory_bytes, request: Box::new(request) })
            }
            Err(failure) => {
                task.fail(failure);
                None
            }
        }
    }

    /// What came of a task's command of reservations.
    pub fn reserved(&mut self, tag: Tag, answer: ReservationAnswer, outbox: &mut Outbox) {
        let Some(Pending::Task(id)) = self.requests.remove(tag.0) else { return };
        let task = self.tasks.get_mut(&id).expect("a task is there until its request is answered");
        task.outstanding -= 1;
        let failure = match (answer, task.plan) {
            (ReservationAnswer::Record(record), Plan::Report(len)) => {
                let pieces = vec![Piece::Data(report::report(&record).into())];
                self.tasks.remove(&id);
                return self.link.complete_read(outbox, id, pieces, len as usize);
            }
            (ReservationAnswer::Status(answer), _) => status(answer),
            (ReservationAnswer::Later, _) => Status::INTERRUPTED,
            // Nobody is told that all is well who has not heard how it is.
            (ReservationAnswer::Failed | ReservationAnswer::Record(_), _) => Status::INTERNAL_ERROR,
        };
        if failure != Status::SUCCESS {
            task.fail(failure);
        }
        self.finish(id, outbox);
    }
}
