//! Persistent reservations (SPC-4 section 5.13): PERSISTENT RESERVE IN and OUT as functions of their bytes. Who may do
//! what is not decided here but by the record of the volume (docs/decisions/0046-reservations.md).

pub mod allowed;
pub mod answers;
pub mod lists;
mod transport;

use super::sense::{Failure, Sense};
use super::{Cdb, PARAMETERS_MAX};
use azekura_model::{NoticeKind, ReservationKind, ReservationStatus};

/// LU_SCOPE: all of the logical unit (section 6.15.3.3). There is no other one.
const SCOPE_OF_UNIT: u8 = 0;

/// What PERSISTENT RESERVE IN asks for (section 6.15.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// READ KEYS.
    Keys,
    /// READ RESERVATION.
    Reservation,
    /// REPORT CAPABILITIES.
    Capabilities,
    /// READ FULL STATUS.
    FullStatus,
}

/// What PERSISTENT RESERVE OUT is to do (section 6.16.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// REGISTER.
    Register,
    /// RESERVE.
    Reserve(ReservationKind),
    /// RELEASE.
    Release(ReservationKind),
    /// CLEAR.
    Clear,
    /// PREEMPT, and PREEMPT AND ABORT.
    Preempt {
        /// The kind of reservation that is made where one is taken away.
        kind: ReservationKind,
        /// Commands of the victims end.
        abort: bool,
    },
    /// REGISTER AND IGNORE EXISTING KEY.
    RegisterIgnoringKey,
    /// REGISTER AND MOVE.
    RegisterAndMove,
}

/// What PERSISTENT RESERVE IN asks for, and for how many bytes there is room.
///
/// # Errors
/// When there is no such service action.
pub fn question(cdb: Cdb<'_>) -> Result<(Question, u32), Sense> {
    let question = match cdb.0[1] & 0x1f {
        0 => Question::Keys,
        1 => Question::Reservation,
        2 => Question::Capabilities,
        3 => Question::FullStatus,
        _ => return Err(Sense::FIELD),
    };
    Ok((question, u32::from(cdb.u16(7))))
}

/// What PERSISTENT RESERVE OUT is to do, and how many bytes of parameters come with the command.
///
/// # Errors
/// When there is no such service action, scope or type, or a list of that length means nothing.
pub fn action(cdb: Cdb<'_>) -> Result<(Action, u32), Sense> {
    let action = match cdb.0[1] & 0x1f {
        0 => Action::Register,
        1 => Action::Reserve(kind(cdb)?),
        2 => Action::Release(kind(cdb)?),
        3 => Action::Clear,
        4 => Action::Preempt { kind: kind(cdb)?, abort: false },
        5 => Action::Preempt { kind: kind(cdb)?, abort: true },
        6 => Action::RegisterIgnoringKey,
        7 => Action::RegisterAndMove,
        // 8 is REPLACE LOST RESERVATION: nothing here says yet that reservations were lost.
        _ => return Err(Sense::FIELD),
    };
    let bytes = cdb.u32(5);
    // Section 6.16.3: the basic list has 24 bytes. A longer one would be that of REGISTER with SPEC_I_PT, which is not
    // taken; that the list says so itself is found only when it has come.
    let is_short = bytes < lists::BASIC_BYTES;
    if is_short || bytes > PARAMETERS_MAX { Err(Sense::LIST_LENGTH) } else { Ok((action, bytes)) }
}

/// Scope and type (sections 6.15.3.3 and 6.15.3.4), of those actions that heed them.
fn kind(cdb: Cdb<'_>) -> Result<ReservationKind, Sense> {
    let (scope, code) = (cdb.0[2] >> 4, cdb.0[2] & 0xf);
    if scope != SCOPE_OF_UNIT {
        return Err(Sense::FIELD);
    }
    ReservationKind::from_scsi(code).ok_or(Sense::FIELD)
}

/// How PERSISTENT RESERVE OUT is answered. `None`: GOOD.
#[must_use]
pub fn failure(status: ReservationStatus) -> Option<Failure> {
    Some(match status {
        ReservationStatus::Good => return None,
        ReservationStatus::Conflict => Failure::ReservationConflict,
        ReservationStatus::InvalidRelease => Failure::Check(Sense::INVALID_RELEASE),
        ReservationStatus::InvalidParameter => Failure::Check(Sense::PARAMETER),
        ReservationStatus::InvalidField => Failure::Check(Sense::FIELD),
        ReservationStatus::TooManyRegistrants => Failure::Check(Sense::NO_REGISTRATION_RESOURCES),
    })
}

/// The unit attention by which a registrant is told of another's command (section 5.13.1).
#[must_use]
pub fn attention(notice: NoticeKind) -> Sense {
    match notice {
        NoticeKind::ReservationsPreempted => Sense::RESERVATIONS_PREEMPTED,
        NoticeKind::ReservationsReleased => Sense::RESERVATIONS_RELEASED,
        NoticeKind::RegistrationsPreempted => Sense::REGISTRATIONS_PREEMPTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cdb(action: u8, second: u8, bytes: u32) -> [u8; 16] {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2]) = (0x5f, action, second);
        cdb[5..9].copy_from_slice(&bytes.to_be_bytes());
        cdb
    }

    #[test]
    fn actions_have_their_numbers() {
        let kind = ReservationKind::ExclusiveAccess;
        let all = [
            Action::Register,
            Action::Reserve(kind),
            Action::Release(kind),
            Action::Clear,
            Action::Preempt { kind, abort: false },
            Action::Preempt { kind, abort: true },
            Action::RegisterIgnoringKey,
            Action::RegisterAndMove,
        ];
        for (code, expected) in all.into_iter().enumerate() {
            assert_eq!(action(Cdb(&cdb(code as u8, 3, 24))), Ok((expected, 24)));
        }
        assert_eq!(action(Cdb(&cdb(8, 3, 24))), Err(Sense::FIELD));
        assert_eq!(action(Cdb(&cdb(0, 3, 23))), Err(Sense::LIST_LENGTH));
        assert_eq!(action(Cdb(&cdb(7, 3, PARAMETERS_MAX + 1))), Err(Sense::LIST_LENGTH));
        assert_eq!(action(Cdb(&cdb(1, 0x13, 24))), Err(Sense::FIELD), "another scope");
        assert_eq!(action(Cdb(&cdb(0, 0x13, 24))), Ok((Action::Register, 24)), "registering has no scope");
        for (code, expected) in [Question::Keys, Question::Reservation, Question::Capabilities, Question::FullStatus]
            .into_iter()
            .enumerate()
        {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1], cdb[7], cdb[8]) = (0x5e, code as u8, 1, 2);
            assert_eq!(question(Cdb(&cdb)), Ok((expected, 0x102)));
        }
    }

    proptest! {
        /// No bytes do harm; what is taken is a kind that SCSI has, for the whole unit, with a list of bounded length.
        #[test]
        fn any_bytes_are_a_command_or_refused(bytes in any::<[u8; 16]>(), code in 0..10_u8, short in any::<bool>()) {
            let mut bytes = bytes;
            bytes[1] = bytes[1] & 0xe0 | code;
            if short {
                bytes[5..8].copy_from_slice(&[0, 0, 0]);
            }
            let _ = question(Cdb(&bytes));
            let Ok((taken, len)) = action(Cdb(&bytes)) else { return Ok(()) };
            prop_assert!((24..=PARAMETERS_MAX).contains(&len));
            if let Action::Reserve(kind) | Action::Release(kind) | Action::Preempt { kind, .. } = taken {
                prop_assert_eq!(kind.scsi(), bytes[2]);
            }
        }
    }
}
