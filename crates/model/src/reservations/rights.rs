//! What a reservation leaves to whom.

use std::collections::BTreeMap;

use super::{RegistrantName, ReservationsRecord};

/// What somebody may do with a volume's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// Neither read nor write.
    Nothing,
    /// Read.
    Read,
    /// Read and write.
    All,
}

/// What a command does, as far as reservations care (SPC-4 section 5.13.1, SBC-3 and NVMe's figure of command
/// behavior in the presence of a reservation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// It tells of the device: INQUIRY, TEST UNIT READY, REPORT LUNS, READ CAPACITY, PERSISTENT RESERVE IN; Identify.
    Inform,
    /// It reads blocks, or settings: READ, VERIFY, GET LBA STATUS, MODE SENSE; Read, Compare, Verify.
    Read,
    /// It changes blocks or settings, or makes them durable: WRITE, UNMAP, WRITE SAME, COMPARE AND WRITE, SYNCHRONIZE
    /// CACHE, MODE SELECT; Write, Flush, Write Zeroes, Dataset Management.
    Write,
}

/// Whether a command goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It does.
    Allowed,
    /// It is answered with RESERVATION CONFLICT.
    Conflict,
}

impl Rights {
    /// Whether a command goes through for whoever has these.
    #[must_use]
    pub fn access(self, command: CommandKind) -> Access {
        let needed = match command {
            CommandKind::Inform => Rights::Nothing,
            CommandKind::Read => Rights::Read,
            CommandKind::Write => Rights::All,
        };
        if self >= needed { Access::Allowed } else { Access::Conflict }
    }
}

/// Whether somebody's command goes through, registered or not.
#[must_use]
pub fn access(record: &ReservationsRecord, of: &RegistrantName, command: CommandKind) -> Access {
    record.rights(of).access(command)
}

/// What a gateway needs on the way of every request: rights by name, most of which are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationsView {
    /// The change that it is of.
    pub number: u64,
    others: Rights,
    named: BTreeMap<RegistrantName, Rights>,
}

impl ReservationsView {
    /// Everybody may do everything: there is no reservation.
    #[must_use]
    pub fn open() -> ReservationsView {
        ReservationsView { number: 0, others: Rights::All, named: BTreeMap::new() }
    }

    /// Nobody may do anything: the record can't be read.
    #[must_use]
    pub fn closed() -> ReservationsView {
        ReservationsView { others: Rights::Nothing, ..ReservationsView::open() }
    }

    /// The view of a record.
    #[must_use]
    pub fn of(record: &ReservationsRecord) -> ReservationsView {
        let others = record.rights_of(false, false);
        let names = record.registrants.iter().map(|registrant| &registrant.name);
        let named = names.map(|name| (name.clone(), record.rights(name))).filter(|(_, rights)| *rights != others);
        ReservationsView { number: record.number, others, named: named.collect() }
    }

    /// What somebody may do who is not registered.
    #[must_use]
    pub fn others(&self) -> Rights {
        self.others
    }

    /// What somebody may do.
    #[must_use]
    pub fn rights(&self, of: &RegistrantName) -> Rights {
        self.named.get(of).copied().unwrap_or(self.others)
    }
}

impl ReservationsRecord {
    /// What somebody may do.
    #[must_use]
    pub fn rights(&self, of: &RegistrantName) -> Rights {
        self.rights_of(self.key_of(of).is_some(), self.is_holder(of))
    }

    pub(super) fn rights_of(&self, registered: bool, holds: bool) -> Rights {
        match &self.reservation {
            None => Rights::All,
            Some(_) if holds => Rights::All,
            Some(held) if registered && held.kind.lets_registrants_in() => Rights::All,
            Some(held) => held.kind.left_to_others(),
        }
    }
}
