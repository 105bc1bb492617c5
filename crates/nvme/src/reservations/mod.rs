//! Reservations (Base section 8.19) as NVMe has them: what a namespace says of them, what they bar, and how their
//! commands are answered. Who may do what is not decided here but by the record of the volume
//! (docs/decisions/0046-reservations.md).

pub mod allowed;
pub mod notices;
pub mod report;

use crate::completion::Status;
use azekura_model::ReservationStatus;

/// RESCAP (NVM section 4.1.5.1): reservations outlast a loss of power (bit 0), all six kinds (bits 6:1), and IEKEY as
/// revision 1.3 has it (bit 7).
pub const CAPABILITIES: u8 = 0xff;

/// How a command is answered that registers, acquires or releases.
#[must_use]
pub fn status(status: ReservationStatus) -> Status {
    match status {
        ReservationStatus::Good => Status::SUCCESS,
        ReservationStatus::Conflict => Status::RESERVATION_CONFLICT,
        // What SCSI tells apart is one status here: the kind is not that of the reservation, or a key is 0.
        ReservationStatus::InvalidRelease | ReservationStatus::InvalidParameter | ReservationStatus::InvalidField => {
            Status::INVALID_FIELD
        }
        // There is no word for it, and it helps nobody to try again.
        ReservationStatus::TooManyRegistrants => Status { do_not_retry: true, ..Status::INTERNAL_ERROR },
    }
}
