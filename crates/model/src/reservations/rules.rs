//! What a command of reservations does, by the words of SPC-4 section 5.13 and NVMe Base 2.0 section 8.19.

use super::{
    Hex64, Notice, NoticeKind, REGISTRANTS_MAX, Registrant, RegistrantName, Reservation, ReservationCommand,
    ReservationKind, ReservationStatus, ReservationsRecord,
};

/// What a command comes to that is carried out.
pub(super) struct Verdict {
    /// The registrations and the reservation after it; `None`: nothing has changed.
    pub(super) next: Option<ReservationsRecord>,
    pub(super) notices: Vec<Notice>,
    pub(super) aborted: Vec<RegistrantName>,
}

/// A command that changes something, under way.
struct Work<'a> {
    from: &'a RegistrantName,
    next: ReservationsRecord,
    notices: Vec<Notice>,
    aborted: Vec<RegistrantName>,
}

const UNCHANGED: Result<Verdict, ReservationStatus> =
    Ok(Verdict { next: None, notices: Vec::new(), aborted: Vec::new() });

/// Carries a command out, or says why not.
pub(super) fn decide(
    now: &ReservationsRecord,
    from: &RegistrantName,
    command: &ReservationCommand,
) -> Result<Verdict, ReservationStatus> {
    use ReservationCommand as C;
    use ReservationStatus as S;
    if !from.is_sound() {
        return Err(S::InvalidParameter);
    }
    let mine = now.key_of(from);
    match *command {
        C::Register { key, new } => match mine {
            None if key != 0 => Err(S::Conflict),
            Some(mine) if mine != key => Err(S::Conflict),
            None if new == 0 => UNCHANGED,
            _ => Work::new(now, from).register(new),
        },
        C::RegisterIgnoringKey { new } => match mine {
            None if new == 0 => UNCHANGED,
            _ => Work::new(now, from).register(new),
        },
        C::RegisterNew { new } | C::ReplaceKey { new, .. } if new == 0 => Err(S::InvalidParameter),
        C::RegisterNew { new } => match mine {
            Some(mine) if mine != new => Err(S::Conflict),
            _ => Work::new(now, from).register(new),
        },
        C::ReplaceKey { key, new } => match (mine, key) {
            (None, Some(_)) => Err(S::Conflict),
            (Some(mine), Some(key)) if mine != key => Err(S::Conflict),
            _ => Work::new(now, from).register(new),
        },
        C::Unregister { key } => match mine {
            Some(mine) if key.is_none_or(|key| key == mine) => Work::new(now, from).register(0),
            _ => Err(S::Conflict),
        },
        C::RegisterAndMove { key, .. }
        | C::Reserve { key, .. }
        | C::Release { key, .. }
        | C::Clear { key }
        | C::Preempt { key, .. }
            if mine != Some(key) =>
        {
            Err(S::Conflict)
        }
        C::RegisterAndMove { new, ref to, unregister, .. } => register_and_move(now, from, new, to, unregister),
        C::Reserve { kind, .. } => reserve(now, from, kind),
        C::Release { kind, .. } => release(now, from, kind),
        C::Clear { .. } => Ok(Work::new(now, from).clear()),
        C::Preempt { victim, kind, abort, .. } => preempt(now, from, Hex64(victim), kind, abort),
    }
}

/// SPC-4 section 5.13.8, table 70.
fn register_and_move(
    now: &ReservationsRecord,
    from: &RegistrantName,
    new: u64,
    to: &RegistrantName,
    unregister: bool,
) -> Result<Verdict, ReservationStatus> {
    let reservation = now.reservation.as_ref().ok_or(ReservationStatus::InvalidField)?;
    if reservation.holder.as_ref() != Some(from) {
        return Err(ReservationStatus::Conflict);
    }
    if new == 0 || !to.is_sound() || to.is_same_initiator(from) {
        return Err(ReservationStatus::InvalidParameter);
    }
    let mut work = Work::new(now, from);
    work.put(to, new)?;
    work.next.reservation = Some(Reservation { kind: reservation.kind, holder: Some(to.clone()) });
    if unregister {
        work.next.registrants.retain(|registrant| registrant.name != *from);
    }
    Ok(work.counted())
}

/// SPC-4 section 5.13.9.
fn reserve(
    now: &ReservationsRecord,
    from: &RegistrantName,
    kind: ReservationKind,
) -> Result<Verdict, ReservationStatus> {
    match &now.reservation {
        Some(held) if held.kind == kind && now.is_holder(from) => UNCHANGED,
        Some(_) => Err(ReservationStatus::Conflict),
        None => {
            let mut work = Work::new(now, from);
            work.hold(kind);
            Ok(work.uncounted())
        }
    }
}

/// SPC-4 section 5.13.11.2.2.
fn release(
    now: &ReservationsRecord,
    from: &RegistrantName,
    kind: ReservationKind,
) -> Result<Verdict, ReservationStatus> {
    match &now.reservation {
        Some(held) if now.is_holder(from) => {
            if held.kind != kind {
                return Err(ReservationStatus::InvalidRelease);
            }
            let mut work = Work::new(now, from);
            work.next.reservation = None;
            if kind.lets_registrants_in() {
                work.tell_others(NoticeKind::ReservationsReleased);
            }
            Ok(work.uncounted())
        }
        _ => UNCHANGED,
    }
}

/// SPC-4 sections 5.13.11.2.4 to 5.13.11.2.6.
fn preempt(
    now: &ReservationsRecord,
    from: &RegistrantName,
    victim: Hex64,
    kind: ReservationKind,
    abort: bool,
) -> Result<Verdict, ReservationStatus> {
    let of_all = now.reservation.as_ref().is_some_and(|held| held.holder.is_none());
    if victim.0 == 0 && !of_all {
        return Err(ReservationStatus::InvalidParameter);
    }
    let is_victim = |registrant: &Registrant| victim.0 == 0 || registrant.key == victim;
    if !now.registrants.iter().any(is_victim) {
        return Err(ReservationStatus::Conflict);
    }
    let holders_key = now.reservation.as_ref().and_then(|held| held.holder.as_ref()).and_then(|of| now.key_of(of));
    // Whoever takes the reservation keeps his registration.
    let takes = victim.0 == 0 || holders_key == Some(victim.0);
    let mut work = Work::new(now, from);
    let (removed, kept): (Vec<Registrant>, Vec<Registrant>) =
        now.registrants.iter().cloned().partition(|of| is_victim(of) && !(takes && of.name == *from));
    work.next.registrants = kept;
    for gone in removed.iter().filter(|gone| gone.name != *from) {
        work.notices.push(Notice { to: gone.name.clone(), what: NoticeKind::RegistrationsPreempted });
    }
    if takes {
        if now.reservation.as_ref().is_some_and(|before| before.kind != kind) {
            work.tell_others(NoticeKind::ReservationsReleased);
        }
        work.hold(kind);
    } else if of_all && work.next.registrants.is_empty() {
        work.next.reservation = None;
    }
    if abort {
        // In SCSI the sender's, too, where the key is his: with key 0 all commands of all registrants. In NVMe those of
        // hosts that have lost their registration (Base 2.0 section 8.19).
        let stays = |of: &Registrant| takes && of.name == *from && matches!(from, RegistrantName::Nvme { .. });
        let victims = now.registrants.iter().filter(|of| is_victim(of) && !stays(of));
        work.aborted = victims.map(|victim| victim.name.clone()).collect();
    }
    Ok(work.counted())
}

impl<'a> Work<'a> {
    fn new(now: &ReservationsRecord, from: &'a RegistrantName) -> Work<'a> {
        Work { from, next: now.clone(), notices: Vec::new(), aborted: Vec::new() }
    }

    /// Registers a key for whoever has sent the command; 0 removes his registration (SPC-4 sections 5.13.7 and
    /// 5.13.11.2.3).
    fn register(mut self, key: u64) -> Result<Verdict, ReservationStatus> {
        if key != 0 {
            let from = self.from;
            self.put(from, key)?;
            return Ok(self.counted());
        }
        let held = self.next.reservation.as_ref();
        let (holds, of_all) = (self.next.is_holder(self.from), held.is_some_and(|held| held.holder.is_none()));
        let let_in = held.is_some_and(|held| held.kind.lets_registrants_in());
        self.next.registrants.retain(|registrant| registrant.name != *self.from);
        if holds && (!of_all || self.next.registrants.is_empty()) {
            self.next.reservation = None;
            if let_in {
                self.tell_others(NoticeKind::ReservationsReleased);
            }
        }
        Ok(self.counted())
    }

    /// SPC-4 section 5.13.11.2.7.
    fn clear(mut self) -> Verdict {
        self.tell_others(NoticeKind::ReservationsPreempted);
        self.next.registrants.clear();
        self.next.reservation = None;
        self.counted()
    }

    fn put(&mut self, name: &RegistrantName, key: u64) -> Result<(), ReservationStatus> {
        let registrants = &mut self.next.registrants;
        match registrants.binary_search_by(|registrant| registrant.name.cmp(name)) {
            Ok(at) => registrants[at].key = Hex64(key),
            Err(_) if registrants.len() >= REGISTRANTS_MAX => return Err(ReservationStatus::TooManyRegistrants),
            Err(at) => registrants.insert(at, Registrant { name: name.clone(), key: Hex64(key) }),
        }
        Ok(())
    }

    fn hold(&mut self, kind: ReservationKind) {
        let holder = (!kind.is_of_all()).then(|| self.from.clone());
        self.next.reservation = Some(Reservation { kind, holder });
    }

    /// Tells all registrants but the one who has sent the command.
    fn tell_others(&mut self, what: NoticeKind) {
        let others = self.next.registrants.iter().filter(|other| other.name != *self.from);
        self.notices.extend(others.map(|other| Notice { to: other.name.clone(), what }));
    }

    fn uncounted(self) -> Verdict {
        Verdict { next: Some(self.next), notices: self.notices, aborted: self.aborted }
    }

    fn counted(mut self) -> Verdict {
        self.next.generation = self.next.generation.wrapping_add(1);
        self.uncounted()
    }
}
