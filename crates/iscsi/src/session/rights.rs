//! What a session's commands ask of the reservations of their volume, and what bars them
//! (docs/decisions/0046-reservations.md).

use crate::scsi::reservations::allowed;
use crate::scsi::sense::Failure;
use azekura_frontend::{ReservationRequest, Standing};
use azekura_model::{Access, ReservationCommand, Rights};

/// What a task asks of the record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Read,
    Change(ReservationCommand),
}

/// What bars a command.
pub(crate) fn conflict(standing: &Standing, cdb: &[u8; 16]) -> Option<Failure> {
    let rights = standing.rights();
    let bars = rights < Rights::All && allowed::access(cdb, rights) == Access::Conflict;
    bars.then_some(Failure::ReservationConflict)
}

/// The request of a task.
pub(crate) fn request(standing: &Standing, asks: Asks) -> Option<ReservationRequest> {
    match asks {
        Asks::Read => Some(ReservationRequest::Read),
        Asks::Change(command) => standing.request(command),
    }
}
