//! How a session stands with the reservations of its volume: its rights, and which changes it has been told of
//! (docs/decisions/0046-reservations.md). For sessions of protocols that heed reservations.

use crate::reservations::{ReservationRequest, Reservations};
use azekura_model::{Access, CommandKind, NoticeKind, RegistrantName, ReservationCommand, ReservationsRecord, Rights};
use std::sync::Arc;

/// See the module's description.
#[derive(Debug)]
pub struct Standing {
    /// Its client as a registrant; absent where that is none that a record takes.
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
pub struct ReservationNews {
    /// What the registrant is told, in the order of the changes.
    pub notices: Vec<NoticeKind>,
    /// Its commands end, but for those of reservations: PREEMPT AND ABORT leaves itself, which may have named its own
    /// sender.
    pub aborts: bool,
}

impl Standing {
    /// Of a session that has just begun, whose client is this registrant.
    #[must_use]
    pub fn new(name: Option<RegistrantName>) -> Standing {
        let name = name.filter(RegistrantName::is_sound);
        Standing { name, seen: None, rights: Rights::All, number: None, is_registered: false }
    }

    /// Whether these are what it has seen last.
    #[must_use]
    pub fn knows(&self, now: &Arc<Reservations>) -> bool {
        self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, now))
    }

    /// Whether it can register.
    #[must_use]
    pub fn has_name(&self) -> bool {
        self.name.is_some()
    }

    /// What it may do.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Whether a command of its client goes through.
    #[must_use]
    pub fn access(&self, command: CommandKind) -> Access {
        self.rights.access(command)
    }

    /// The request of a command; `None`: who sends it can't register.
    #[must_use]
    pub fn request(&self, command: ReservationCommand) -> Option<ReservationRequest> {
        Some(ReservationRequest::Change { from: self.name.clone()?, command })
    }

    /// Reservations are other ones than before. Each change is told once; nothing of those before the session began.
    pub fn renew(&mut self, now: Arc<Reservations>) -> ReservationNews {
        self.rights = self.name.as_ref().map_or(now.view.others(), |name| now.view.rights(name));
        let news = match (&now.record, &self.name) {
            (Some(record), Some(name)) => {
                let before = self.number.replace(record.number);
                let was_registered = std::mem::replace(&mut self.is_registered, record.key_of(name).is_some());
                before.map_or_else(ReservationNews::default, |number| news(record, name, number, was_registered))
            }
            _ => ReservationNews::default(),
        };
        self.seen = Some(now);
        news
    }
}

/// What a registrant is told of the changes after this one.
fn news(record: &ReservationsRecord, name: &RegistrantName, number: u64, was_registered: bool) -> ReservationNews {
    let Some(changes) = record.changes_after(number) else {
        // They were forgotten. Whoever is not registered any more was preempted, or has hung up himself, elsewhere.
        let is_gone = was_registered && record.key_of(name).is_none();
        let notices = is_gone.then_some(NoticeKind::RegistrationsPreempted).into_iter().collect();
        return ReservationNews { notices, aborts: false };
    };
    let notices = changes.iter().flat_map(|change| &change.notices).filter(|notice| notice.to == *name);
    ReservationNews {
        notices: notices.map(|notice| notice.what).collect(),
        aborts: changes.iter().any(|change| change.aborted.contains(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::VolumeId;
    use azekura_model::{RESERVATION_CHANGES_KEPT, ReservationKind};

    const A: RegistrantName = RegistrantName::Nvme { host: 0xa };
    const B: RegistrantName = RegistrantName::Nvme { host: 0xb };
    const KIND: ReservationKind = ReservationKind::WriteExclusive;

    fn after(record: &ReservationsRecord, from: &RegistrantName, command: &ReservationCommand) -> ReservationsRecord {
        let (outcome, next) = record.carry_out(from, command, record.number + 1);
        next.unwrap_or_else(|| panic!("{command:?} has changed nothing: {outcome:?}"))
    }

    fn told(standing: &mut Standing, record: &ReservationsRecord) -> ReservationNews {
        standing.renew(Arc::new(Reservations::of(record.clone())))
    }

    fn both_registered() -> ReservationsRecord {
        let record = ReservationsRecord::none(VolumeId(1));
        let record = after(&record, &A, &ReservationCommand::RegisterNew { new: 1 });
        let record = after(&record, &B, &ReservationCommand::RegisterNew { new: 2 });
        after(&record, &A, &ReservationCommand::Reserve { key: 1, kind: KIND })
    }

    #[test]
    fn each_change_is_told_once_and_none_from_before() {
        let (mut a, mut b) = (Standing::new(Some(A)), Standing::new(Some(B)));
        assert_eq!((a.rights(), b.rights()), (Rights::All, Rights::All), "nothing is offered yet");
        let record = both_registered();
        for standing in [&mut a, &mut b] {
            assert_eq!(told(standing, &record), ReservationNews::default());
        }
        assert_eq!((a.rights(), b.rights()), (Rights::All, Rights::Read));
        let preempt = ReservationCommand::Preempt { key: 2, victim: 1, kind: KIND, abort: true };
        let record = after(&record, &B, &preempt);
        let gone = ReservationNews { notices: vec![NoticeKind::RegistrationsPreempted], aborts: true };
        assert_eq!([told(&mut a, &record), told(&mut b, &record)], [gone, ReservationNews::default()]);
        assert_eq!((a.access(CommandKind::Write), b.access(CommandKind::Write)), (Access::Conflict, Access::Allowed));
        assert_eq!(told(&mut a, &record), ReservationNews::default(), "once");
    }

    #[test]
    fn who_has_missed_changes_hears_of_the_loss_alone() {
        let (mut a, mut record) = (Standing::new(Some(A)), both_registered());
        told(&mut a, &record);
        let preempt = ReservationCommand::Preempt { key: 2, victim: 1, kind: KIND, abort: true };
        record = after(&record, &B, &preempt);
        for _ in 0..=RESERVATION_CHANGES_KEPT {
            record = after(&record, &B, &ReservationCommand::RegisterNew { new: 2 });
        }
        let gone = ReservationNews { notices: vec![NoticeKind::RegistrationsPreempted], aborts: false };
        assert_eq!(told(&mut a, &record), gone);
        assert_eq!(told(&mut a, &record), ReservationNews::default());
    }

    #[test]
    fn who_can_not_register_has_what_is_left_to_others() {
        let mut nobody = Standing::new(Some(RegistrantName::Nvme { host: 0 }));
        assert!(!nobody.has_name());
        assert_eq!(nobody.request(ReservationCommand::RegisterNew { new: 1 }), None);
        let now = Arc::new(Reservations::of(both_registered()));
        nobody.renew(Arc::clone(&now));
        assert!(nobody.knows(&now) && !nobody.knows(&Arc::new((*now).clone())));
        assert_eq!(nobody.rights(), Rights::Read);
        nobody.renew(Arc::new(Reservations::closed()));
        assert_eq!(nobody.rights(), Rights::Nothing);
    }
}
