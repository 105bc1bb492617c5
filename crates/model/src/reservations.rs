//! Reservations of a volume: who has registered with which key, who holds it how, and what each may do
//! (docs/decisions/0046-reservations.md, docs/formats/reservations.md). The same record serves SCSI's persistent
//! reservations (SPC-4 section 5.13) and NVMe's (Base 2.0 section 8.19).
//!
//! The functions here only compute; `transitions::reservations` puts the next record in the place of the one that it
//! was made from.

use std::collections::BTreeSet;

use azekura_base::{Generation, VolumeId};
use serde::{Deserialize, Serialize};

use crate::Unknown;

mod names;
#[cfg(test)]
mod reference;
mod rights;
mod rules;
#[cfg(test)]
mod tests;

pub use names::{Hex64, RegistrantName};
pub use rights::{Access, CommandKind, ReservationsView, Rights, access};

/// What a node's record says that it understands when it bars whom reservations bar, and confirms that it does.
pub const RESERVATIONS: &str = "reservations";

/// Most registrants that a volume has at once.
pub const REGISTRANTS_MAX: usize = 256;

/// How many changes a record still knows.
pub const RESERVATION_CHANGES_KEPT: usize = 32;

/// How many names they may have in all; the newest change is kept whatever it has.
const CHANGE_NAMES_KEPT: usize = 2 * REGISTRANTS_MAX;

/// What a reservation allows whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationKind {
    /// One registrant writes, everybody reads.
    WriteExclusive,
    /// One registrant writes and reads.
    ExclusiveAccess,
    /// Registrants write, everybody reads; one holds it.
    WriteExclusiveRegistrantsOnly,
    /// Registrants write and read; one holds it.
    ExclusiveAccessRegistrantsOnly,
    /// Registrants write, everybody reads; all registrants hold it.
    WriteExclusiveAllRegistrants,
    /// Registrants write and read; all registrants hold it.
    ExclusiveAccessAllRegistrants,
}

/// Each kind with its number in SCSI and in NVMe.
const KIND_CODES: [(ReservationKind, u8, u8); 6] = [
    (ReservationKind::WriteExclusive, 1, 1),
    (ReservationKind::ExclusiveAccess, 3, 2),
    (ReservationKind::WriteExclusiveRegistrantsOnly, 5, 3),
    (ReservationKind::ExclusiveAccessRegistrantsOnly, 6, 4),
    (ReservationKind::WriteExclusiveAllRegistrants, 7, 5),
    (ReservationKind::ExclusiveAccessAllRegistrants, 8, 6),
];

impl ReservationKind {
    /// The kind that SCSI calls by this number.
    #[must_use]
    pub fn from_scsi(code: u8) -> Option<ReservationKind> {
        KIND_CODES.iter().find(|(_, scsi, _)| *scsi == code).map(|(kind, ..)| *kind)
    }

    /// The kind that NVMe calls by this number.
    #[must_use]
    pub fn from_nvme(code: u8) -> Option<ReservationKind> {
        KIND_CODES.iter().find(|(.., nvme)| *nvme == code).map(|(kind, ..)| *kind)
    }

    /// Its number in SCSI.
    #[must_use]
    pub fn scsi(self) -> u8 {
        KIND_CODES[self as usize].1
    }

    /// Its number in NVMe.
    #[must_use]
    pub fn nvme(self) -> u8 {
        KIND_CODES[self as usize].2
    }

    /// All registrants hold it.
    #[must_use]
    pub fn is_of_all(self) -> bool {
        self >= ReservationKind::WriteExclusiveAllRegistrants
    }

    /// Registrants may do what its holder may.
    #[must_use]
    pub fn lets_registrants_in(self) -> bool {
        self >= ReservationKind::WriteExclusiveRegistrantsOnly
    }

    /// What it leaves to those whom it does not let in.
    #[must_use]
    pub fn left_to_others(self) -> Rights {
        use ReservationKind as K;
        match self {
            K::WriteExclusive | K::WriteExclusiveRegistrantsOnly | K::WriteExclusiveAllRegistrants => Rights::Read,
            K::ExclusiveAccess | K::ExclusiveAccessRegistrantsOnly | K::ExclusiveAccessAllRegistrants => {
                Rights::Nothing
            }
        }
    }
}

/// Somebody who has registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registrant {
    /// Who.
    pub name: RegistrantName,
    /// With which key; never 0.
    pub key: Hex64,
}

/// The reservation of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// What it allows whom.
    pub kind: ReservationKind,
    /// Who holds it; `None`: all registrants do, which is so for two kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<RegistrantName>,
}

/// What a registrant is told of another's command: a unit attention in SCSI, a notification in NVMe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// RESERVATIONS PREEMPTED (2Ah/03h): somebody has cleared all.
    ReservationsPreempted,
    /// RESERVATIONS RELEASED (2Ah/04h): the reservation is another one, or none.
    ReservationsReleased,
    /// REGISTRATIONS PREEMPTED (2Ah/05h): his registration is gone.
    RegistrationsPreempted,
}

/// A registrant is told something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Notice {
    /// Who.
    pub to: RegistrantName,
    /// What.
    pub what: NoticeKind,
}

/// A command that has changed something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationChange {
    /// Which change it is, counted from 1.
    pub number: u64,
    /// The command's random number, by which whoever sends it again learns that it has happened.
    pub command: Hex64,
    /// Who is told what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// Whose commands end that are under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aborted: Vec<RegistrantName>,
}

/// An attachment whose process heeds changes: nothing is under way there that was begun by rights from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heeding {
    /// The attachment, by its name.
    pub attachment: Generation,
    /// Up to this change.
    pub number: u64,
}

/// A volume's registrations and its reservation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationsRecord {
    /// The volume.
    pub volume: VolumeId,
    /// PRGENERATION of SCSI, GEN of NVMe: counts what the standards say, and wraps.
    pub generation: u32,
    /// The number of the last change.
    pub number: u64,
    /// Up to this change somebody may do less or more than before or is told of something, and not every gateway has
    /// confirmed that the sessions are told, and that nothing is under way any more that was begun before. Until all
    /// have, no command of reservations is answered.
    #[serde(default, with = "crate::zero_is_none")]
    pub fence_due: Option<u64>,
    /// The attachments that have confirmed the change for which a fence is due; none when no fence is due.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heeding: Vec<Heeding>,
    /// Those who have registered, by name.
    #[serde(default)]
    pub registrants: Vec<Registrant>,
    /// The reservation, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Reservation>,
    /// The last changes.
    #[serde(default)]
    pub changes: Vec<ReservationChange>,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

/// A command of reservations. Keys of 0 are no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// SCSI REGISTER: `key` is what the sender has, 0 if nothing; `new` of 0 removes the registration.
    Register {
        /// RESERVATION KEY.
        key: u64,
        /// SERVICE ACTION RESERVATION KEY.
        new: u64,
    },
    /// SCSI REGISTER AND IGNORE EXISTING KEY.
    RegisterIgnoringKey {
        /// SERVICE ACTION RESERVATION KEY.
        new: u64,
    },
    /// SCSI REGISTER AND MOVE.
    RegisterAndMove {
        /// RESERVATION KEY.
        key: u64,
        /// SERVICE ACTION RESERVATION KEY.
        new: u64,
        /// Who gets the reservation.
        to: RegistrantName,
        /// UNREG: the sender's registration goes.
        unregister: bool,
    },
    /// NVMe Reservation Register, RREGA 0.
    RegisterNew {
        /// NRKEY.
        new: u64,
    },
    /// NVMe Reservation Register, RREGA 1.
    Unregister {
        /// CRKEY; `None`: IEKEY.
        key: Option<u64>,
    },
    /// NVMe Reservation Register, RREGA 2.
    ReplaceKey {
        /// CRKEY; `None`: IEKEY, which registers also who was not registered.
        key: Option<u64>,
        /// NRKEY.
        new: u64,
    },
    /// SCSI RESERVE; NVMe Reservation Acquire, RACQA 0.
    Reserve {
        /// RESERVATION KEY, CRKEY.
        key: u64,
        /// TYPE, RTYPE.
        kind: ReservationKind,
    },
    /// SCSI RELEASE; NVMe Reservation Release, RRELA 0.
    Release {
        /// RESERVATION KEY, CRKEY.
        key: u64,
        /// TYPE, RTYPE.
        kind: ReservationKind,
    },
    /// SCSI CLEAR; NVMe Reservation Release, RRELA 1.
    Clear {
        /// RESERVATION KEY, CRKEY.
        key: u64,
    },
    /// SCSI PREEMPT and PREEMPT AND ABORT; NVMe Reservation Acquire, RACQA 1 and 2.
    Preempt {
        /// RESERVATION KEY, CRKEY.
        key: u64,
        /// SERVICE ACTION RESERVATION KEY, PRKEY.
        victim: u64,
        /// TYPE, RTYPE.
        kind: ReservationKind,
        /// Commands of the victims that are under way end.
        abort: bool,
    },
}

/// How a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationStatus {
    /// GOOD.
    Good,
    /// RESERVATION CONFLICT.
    Conflict,
    /// INVALID RELEASE OF PERSISTENT RESERVATION (26h/04h); in NVMe Invalid Field in Command.
    InvalidRelease,
    /// INVALID FIELD IN PARAMETER LIST (26h/00h); in NVMe Invalid Field in Command.
    InvalidParameter,
    /// INVALID FIELD IN CDB (24h/00h).
    InvalidField,
    /// INSUFFICIENT REGISTRATION RESOURCES (55h/04h): there are [`REGISTRANTS_MAX`].
    TooManyRegistrants,
}

/// What a command has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationOutcome {
    /// How it is answered.
    pub status: ReservationStatus,
    /// The change that it was; if it has changed nothing, the last one before it.
    pub number: u64,
    /// Who is told what.
    pub notices: Vec<Notice>,
    /// Whose commands end that are under way; the sender's own go, too, if he is named, all but this one.
    pub aborted: Vec<RegistrantName>,
    /// Every gateway must have confirmed this change before the answer goes out.
    pub fence_due: Option<u64>,
}

impl ReservationsRecord {
    /// A volume that nobody has registered with.
    #[must_use]
    pub fn none(volume: VolumeId) -> ReservationsRecord {
        ReservationsRecord {
            volume,
            generation: 0,
            number: 0,
            fence_due: None,
            heeding: Vec::new(),
            registrants: Vec::new(),
            reservation: None,
            changes: Vec::new(),
            unknown: Unknown::default(),
        }
    }

    /// Whether it says nothing that can't be: who holds the reservation is registered, and once.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let ascending = self.registrants.windows(2).all(|two| two[0].name < two[1].name);
        let held = self.reservation.as_ref().is_none_or(|held| match &held.holder {
            Some(holder) => !held.kind.is_of_all() && self.key_of(holder).is_some(),
            None => held.kind.is_of_all() && !self.registrants.is_empty(),
        });
        let counted = self.changes.windows(2).all(|two| two[0].number < two[1].number)
            && self.changes.last().is_none_or(|last| last.number <= self.number)
            && self.fence_due <= Some(self.number);
        let keys = self.registrants.iter().all(|registrant| registrant.key.0 != 0);
        ascending && held && counted && keys && self.registrants.len() <= REGISTRANTS_MAX
    }

    /// The key that somebody is registered with.
    #[must_use]
    pub fn key_of(&self, name: &RegistrantName) -> Option<u64> {
        let at = self.registrants.binary_search_by(|registrant| registrant.name.cmp(name)).ok()?;
        Some(self.registrants[at].key.0)
    }

    /// Whether somebody holds the reservation, alone or with all registrants.
    #[must_use]
    pub fn is_holder(&self, name: &RegistrantName) -> bool {
        self.reservation.as_ref().is_some_and(|held| match &held.holder {
            Some(holder) => holder == name,
            None => self.key_of(name).is_some(),
        })
    }

    /// Carries a command out: what it comes to, and the next record if it changes something. `id`: 64 random bits, the
    /// same each time that the command is tried.
    #[must_use]
    pub fn carry_out(
        &self,
        from: &RegistrantName,
        command: &ReservationCommand,
        id: u64,
    ) -> (ReservationOutcome, Option<ReservationsRecord>) {
        let fence_due = self.fence_due;
        if let Some(done) = self.changes.iter().find(|change| change.command == Hex64(id)) {
            return (ReservationOutcome::of(done.clone(), fence_due), None);
        }
        let nothing = |status| ReservationOutcome {
            status,
            number: self.number,
            notices: Vec::new(),
            aborted: Vec::new(),
            fence_due,
        };
        let verdict = match rules::decide(self, from, command) {
            Ok(verdict) => verdict,
            Err(status) => return (nothing(status), None),
        };
        let Some(mut next) = verdict.next else { return (nothing(ReservationStatus::Good), None) };
        next.number = self.number + 1;
        let is_told = !verdict.notices.is_empty() || !verdict.aborted.is_empty();
        if is_told || self.gives_other_rights_than(&next) {
            next.fence_due = Some(next.number);
        }
        let change = ReservationChange {
            number: next.number,
            command: Hex64(id),
            notices: verdict.notices,
            aborted: verdict.aborted,
        };
        next.changes.push(change.clone());
        next.forget_old_changes();
        (ReservationOutcome::of(change, next.fence_due), Some(next))
    }

    /// Whether somebody may do more or less by this record than by a later one.
    fn gives_other_rights_than(&self, later: &ReservationsRecord) -> bool {
        let names = self.registrants.iter().chain(&later.registrants).map(|registrant| &registrant.name);
        let mut names = names.map(|name| (self.rights(name), later.rights(name)));
        self.rights_of(false, false) != later.rights_of(false, false) || names.any(|(before, after)| before != after)
    }

    fn forget_old_changes(&mut self) {
        let mut names = 0;
        let kept = self.changes.iter().rev().take(RESERVATION_CHANGES_KEPT).enumerate().take_while(|(age, change)| {
            names += change.notices.len() + change.aborted.len();
            *age == 0 || names <= CHANGE_NAMES_KEPT
        });
        let kept = kept.count();
        self.changes.drain(..self.changes.len() - kept);
    }

    /// The changes after this one; `None`: not all of them are known any more.
    #[must_use]
    pub fn changes_after(&self, number: u64) -> Option<&[ReservationChange]> {
        let from = self.changes.partition_point(|change| change.number <= number);
        let later = &self.changes[from..];
        (number >= self.number || later.first().is_some_and(|first| first.number == number + 1)).then_some(later)
    }

    /// Whether the process of an attachment has confirmed that it heeds the change for which a fence is due.
    #[must_use]
    pub fn is_heeded_by(&self, attachment: Generation) -> bool {
        self.heeding.iter().any(|heeding| heeding.attachment == attachment && Some(heeding.number) >= self.fence_due)
    }

    /// The record when the process that has these attachments heeds all up to this change; `None`: nobody waits for
    /// that. `standing`: the names of the attachments that stand, to which what others have confirmed is of use.
    #[must_use]
    pub fn heeded(
        &self,
        mine: &BTreeSet<Generation>,
        number: u64,
        standing: &[Generation],
    ) -> Option<ReservationsRecord> {
        let due = self.fence_due.filter(|due| *due <= number)?;
        let stands = |name: &Generation| standing.contains(name);
        if mine.iter().filter(|name| stands(name)).all(|name| self.is_heeded_by(*name)) {
            return None;
        }
        let mut next = self.clone();
        next.heeding
            .retain(|other| !mine.contains(&other.attachment) && other.number >= due && stands(&other.attachment));
        next.heeding.extend(mine.iter().filter(|name| stands(name)).map(|name| Heeding { attachment: *name, number }));
        Some(next)
    }

    /// The record when every gateway has confirmed a change, and so all before it; `None`: nothing was due up to there.
    #[must_use]
    pub fn fenced(&self, number: u64) -> Option<ReservationsRecord> {
        let due = self.fence_due.filter(|due| *due <= number);
        due.map(|_| ReservationsRecord { fence_due: None, heeding: Vec::new(), ..self.clone() })
    }
}

impl ReservationOutcome {
    fn of(change: ReservationChange, fence_due: Option<u64>) -> ReservationOutcome {
        ReservationOutcome {
            status: ReservationStatus::Good,
            number: change.number,
            notices: change.notices,
            aborted: change.aborted,
            fence_due,
        }
    }
}
