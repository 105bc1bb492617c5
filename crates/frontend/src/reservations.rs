//! Reservations of volumes, as connections see them (docs/decisions/0046-reservations.md): what a protocol asks of the
//! record, and what of it a session checks its commands against.

use crate::request::Request;
use crate::verbs::Verb;
use azekura_base::{IoStatus, VolumeId};
use azekura_model::{
    Access, CommandKind, RegistrantName, ReservationCommand, ReservationStatus, ReservationsRecord, ReservationsView,
    Rights,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a client asks of the reservations of the export that its connection has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservationRequest {
    /// What the record says now: PERSISTENT RESERVE IN, Reservation Report.
    Read,
    /// A command that may change it.
    Change {
        /// Who sends it.
        from: RegistrantName,
        /// The command.
        command: ReservationCommand,
    },
}

/// What comes of it. It is told when the connection's shard knows the record that it is of, and when no fence is due
/// any more.
#[derive(Clone, Debug, PartialEq)]
pub enum ReservationAnswer {
    /// The record.
    Record(Box<ReservationsRecord>),
    /// How the command is answered.
    Status(ReservationStatus),
    /// Nothing is known of it: the client is to ask again.
    Later,
    /// There is no such volume any more, or its record can't be read.
    Failed,
}

/// The reservations of a volume, as all connections of a process see them.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservations {
    /// What each may do.
    pub view: ReservationsView,
    /// The record; `None`: it can't be read, and nobody may do anything.
    pub record: Option<ReservationsRecord>,
}

impl Reservations {
    /// Those of a record.
    #[must_use]
    pub fn of(record: ReservationsRecord) -> Reservations {
        Reservations { view: ReservationsView::of(&record), record: Some(record) }
    }

    /// Those of a record that can't be read.
    #[must_use]
    pub fn closed() -> Reservations {
        Reservations { view: ReservationsView::closed(), record: None }
    }
}

/// All that a front end knows of reservations. Until it has been told, it offers none.
#[derive(Debug, Default)]
pub(crate) struct KnownReservations {
    /// Those of volumes that have a record; `None`: not told yet.
    by_volume: Option<BTreeMap<VolumeId, Arc<Reservations>>>,
    /// Those of all other volumes, one for each: whoever looks compares by identity.
    without: Option<Arc<Reservations>>,
}

impl KnownReservations {
    /// Those of a volume; `None` where they are not offered.
    pub fn of(&self, volume: VolumeId) -> Option<&Arc<Reservations>> {
        self.by_volume.as_ref()?.get(&volume).or(self.without.as_ref())
    }

    /// All of them, as they are now. Answers whether those of a volume are other ones than before.
    pub fn replace(&mut self, now: BTreeMap<VolumeId, Arc<Reservations>>) -> impl Fn(VolumeId) -> bool + use<> {
        let is_first = self.by_volume.is_none();
        // The number of the volume in it is nobody's: who asks for the record itself asks the configuration.
        self.without.get_or_insert_with(|| Arc::new(Reservations::of(ReservationsRecord::none(VolumeId(0)))));
        let before = self.by_volume.replace(now.clone()).unwrap_or_default();
        move |volume| {
            let same = match (before.get(&volume), now.get(&volume)) {
                (Some(before), Some(now)) => Arc::ptr_eq(before, now) || before == now,
                (None, None) => true,
                _ => false,
            };
            is_first || !same
        }
    }

    /// Why a request is not let in, of a connection whose protocol does not know of reservations: nobody has a
    /// registration by such a one.
    pub fn why_barred(&self, volume: VolumeId, request: &Request) -> Option<IoStatus> {
        let rights = self.of(volume)?.view.others();
        match rights.access(kind(request.verb())) {
            Access::Allowed => None,
            Access::Conflict if rights == Rights::Read => Some(IoStatus::ReadOnly),
            Access::Conflict => Some(IoStatus::Fenced),
        }
    }
}

/// What a request does, as far as reservations care.
fn kind(verb: Verb) -> CommandKind {
    match verb {
        Verb::Read | Verb::Extents | Verb::Cache => CommandKind::Read,
        Verb::Write | Verb::CompareAndWrite | Verb::Trim | Verb::Zero | Verb::Flush => CommandKind::Write,
    }
}
