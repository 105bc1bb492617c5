//! What a session knows of the reservations of its volume: its rights, and which changes it has been told of
//! (docs/decisions/0046-reservations.md).

use crate::scsi::lun_is_zero;
use crate::scsi::reservations::{allowed, attention};
use crate::scsi::sense::{Failure, Sense};
use azekura_frontend::{ReservationRequest, Reservations};
use azekura_model::{Access, RegistrantName, ReservationCommand, ReservationsRecord, Rights};
use std::sync::Arc;

/// What a task asks of the record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Read,
    Change(ReservationCommand),
}

/// What a session knows of reservations.
#[derive(Debug)]
pub(crate) struct Reserving {
    /// Its nexus; absent where the initiator's name is none that a record takes.
    name: Option<RegistrantName>,
    /// What it has seen last; absent as long as reservations are not offered.
    seen: Option<Arc<Reservations>>,
    rights: Rights,
    /// The last change that it knows, and whether it was registered then.
    number: Option<u64>,
    is_registered: bool,
}

/// What a session is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub attentions: Vec<Sense>,
    /// Its commands end.
    pub aborts: bool,
}

impl Reserving {
    pub fn new(name: Option<RegistrantName>) -> Reserving {
        let name = name.filter(RegistrantName::is_sound);
        Reserving { name, seen: None, rights: Rights::All, number: None, is_registered: false }
    }

    /// Whether these are what it has seen last.
    pub fn knows(&self, now: &Arc<Reservations>) -> bool {
        self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, now))
    }

    /// Whether it can register.
    pub fn has_name(&self) -> bool {
        self.name.is_some()
    }

    /// What bars a command.
    pub fn conflict(&self, lun: [u8; 8], cdb: &[u8; 16]) -> Option<Failure> {
        let bars =
            self.rights < Rights::All && lun_is_zero(lun) && allowed::access(cdb, self.rights) == Access::Conflict;
        bars.then_some(Failure::ReservationConflict)
    }

    /// The request of a task.
    pub fn request(&self, asks: Asks) -> Option<ReservationRequest> {
        Some(match asks {
            Asks::Read => ReservationRequest::Read,
            Asks::Change(command) => ReservationRequest::Change { from: self.name.clone()?, command },
        })
    }

    /// Reservations are other ones than before. Each change is told once; nothing of those before the session began.
    pub fn renew(&mut self, now: Arc<Reservations>) -> News {
        self.rights = self.name.as_ref().map_or(now.view.others(), |name| now.view.rights(name));
        let news = match (&now.record, &self.name) {
            (Some(record), Some(name)) => {
                let news =
                    self.number.map_or_else(News::default, |number| news(record, name, number, self.is_registered));
                (self.number, self.is_registered) = (Some(record.number), record.key_of(name).is_some());
                news
            }
            _ => News::default(),
        };
        self.seen = Some(now);
        news
    }
}

/// What a registrant is told of the changes after this one.
fn news(record: &ReservationsRecord, name: &RegistrantName, number: u64, was_registered: bool) -> News {
    let Some(changes) = record.changes_after(number) else {
        // They were forgotten. Whoever is not registered any more was preempted, or has hung up himself, elsewhere.
        let is_gone = was_registered && record.key_of(name).is_none();
        return News {
            attentions: is_gone.then_some(Sense::REGISTRATIONS_PREEMPTED).into_iter().collect(),
            aborts: false,
        };
    };
    let notices = changes.iter().flat_map(|change| &change.notices).filter(|notice| notice.to == *name);
    News {
        attentions: notices.map(|notice| attention(notice.what)).collect(),
        aborts: changes.iter().any(|change| change.aborted.contains(name)),
    }
}
