//! Sense data (SPC-4 section 4.5): why a command failed.

use azekura_base::IoStatus;

/// Sense key, additional sense code and its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    key: u8,
    asc: u8,
    ascq: u8,
    /// What the command says of the place.
    information: Option<u32>,
}

impl Sense {
    /// NO SENSE.
    pub const NONE: Sense = Sense::new(0x0, 0x00, 0x00);
    /// ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE.
    pub const OPCODE: Sense = Sense::new(0x5, 0x20, 0x00);
    /// ILLEGAL REQUEST, LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const OUT_OF_RANGE: Sense = Sense::new(0x5, 0x21, 0x00);
    /// ILLEGAL REQUEST, INVALID FIELD IN CDB.
    pub const FIELD: Sense = Sense::new(0x5, 0x24, 0x00);
    /// ILLEGAL REQUEST, LOGICAL UNIT NOT SUPPORTED.
    pub const NO_LUN: Sense = Sense::new(0x5, 0x25, 0x00);
    /// ILLEGAL REQUEST, INVALID FIELD IN PARAMETER LIST.
    pub const PARAMETER: Sense = Sense::new(0x5, 0x26, 0x00);
    /// ILLEGAL REQUEST, PARAMETER LIST LENGTH ERROR.
    pub const LIST_LENGTH: Sense = Sense::new(0x5, 0x1a, 0x00);
    /// ILLEGAL REQUEST, SAVING PARAMETERS NOT SUPPORTED.
    pub const SAVING: Sense = Sense::new(0x5, 0x39, 0x00);
    /// DATA PROTECT, WRITE PROTECTED.
    pub const WRITE_PROTECTED: Sense = Sense::new(0x7, 0x27, 0x00);
    /// DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT.
    pub const NO_SPACE: Sense = Sense::new(0x7, 0x27, 0x07);
    /// MISCOMPARE, MISCOMPARE DURING VERIFY OPERATION.
    pub const MISCOMPARE: Sense = Sense::new(0xe, 0x1d, 0x00);
    /// MEDIUM ERROR, UNRECOVERED READ ERROR.
    pub const READ_ERROR: Sense = Sense::new(0x3, 0x11, 0x00);
    /// MEDIUM ERROR, WRITE ERROR.
    pub const WRITE_ERROR: Sense = Sense::new(0x3, 0x0c, 0x00);
    /// NOT READY, LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED.
    pub const INTERVENTION_REQUIRED: Sense = Sense::new(0x2, 0x04, 0x03);
    /// NOT READY, LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE.
    pub const UNAVAILABLE: Sense = Sense::new(0x2, 0x04, 0x0c);
    /// ABORTED COMMAND, NOT ENOUGH UNSOLICITED DATA (RFC 7143 section 11.4.7.2).
    pub const NOT_ENOUGH_DATA: Sense = Sense::new(0xb, 0x0c, 0x0d);

    /// ILLEGAL REQUEST, INVALID RELEASE OF PERSISTENT RESERVATION.
    pub const INVALID_RELEASE: Sense = Sense::new(0x5, 0x26, 0x04);
    /// ILLEGAL REQUEST, INSUFFICIENT REGISTRATION RESOURCES.
    pub const NO_REGISTRATION_RESOURCES: Sense = Sense::new(0x5, 0x55, 0x04);

    /// ILLEGAL REQUEST, TOO MANY TARGET DESCRIPTORS.
    pub const TOO_MANY_TARGETS: Sense = Sense::new(0x5, 0x26, 0x06);
    /// ILLEGAL REQUEST, UNSUPPORTED TARGET DESCRIPTOR TYPE CODE.
    pub const TARGET_TYPE: Sense = Sense::new(0x5, 0x26, 0x07);
    /// ILLEGAL REQUEST, TOO MANY SEGMENT DESCRIPTORS.
    pub const TOO_MANY_SEGMENTS: Sense = Sense::new(0x5, 0x26, 0x08);
    /// ILLEGAL REQUEST, UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE.
    pub const SEGMENT_TYPE: Sense = Sense::new(0x5, 0x26, 0x09);
    /// ILLEGAL REQUEST, INLINE DATA LENGTH EXCEEDED.
    pub const INLINE_DATA: Sense = Sense::new(0x5, 0x26, 0x0b);
    /// ILLEGAL REQUEST, OPERATION IN PROGRESS: a copy of this list identifier is.
    pub const IN_PROGRESS: Sense = Sense::new(0x5, 0x00, 0x16);
    /// COPY ABORTED, NO ADDITIONAL SENSE INFORMATION.
    pub const COPY_ABORTED: Sense = Sense::new(0xa, 0x00, 0x00);
    /// COPY ABORTED, UNREACHABLE COPY TARGET.
    pub const UNREACHABLE_TARGET: Sense = Sense::new(0xa, 0x08, 0x04);
    /// COPY ABORTED, THIRD PARTY DEVICE FAILURE.
    pub const THIRD_PARTY_FAILURE: Sense = Sense::new(0xa, 0x0d, 0x01);
    /// COPY ABORTED, COPY TARGET DEVICE NOT REACHABLE.
    pub const TARGET_NOT_REACHABLE: Sense = Sense::new(0xa, 0x0d, 0x02);
    /// COPY ABORTED, INCORRECT COPY TARGET DEVICE TYPE.
    pub const WRONG_TARGET_TYPE: Sense = Sense::new(0xa, 0x0d, 0x03);

    /// ABORTED COMMAND, NO ADDITIONAL SENSE INFORMATION.
    pub const ABORTED: Sense = Sense::new(0xb, 0x00, 0x00);
    /// ABORTED COMMAND, DATA PHASE ERROR.
    pub const DATA_PHASE: Sense = Sense::new(0xb, 0x4b, 0x00);
    /// UNIT ATTENTION, BUS DEVICE RESET FUNCTION OCCURRED.
    pub const RESET: Sense = Sense::new(0x6, 0x29, 0x03);
    /// UNIT ATTENTION, REPORTED LUNS DATA HAS CHANGED.
    pub const LUNS_CHANGED: Sense = Sense::new(0x6, 0x3f, 0x0e);
    /// UNIT ATTENTION, COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub const CLEARED: Sense = Sense::new(0x6, 0x2f, 0x00);
    /// UNIT ATTENTION, RESERVATIONS PREEMPTED.
    pub const RESERVATIONS_PREEMPTED: Sense = Sense::new(0x6, 0x2a, 0x03);
    /// UNIT ATTENTION, RESERVATIONS RELEASED.
    pub const RESERVATIONS_RELEASED: Sense = Sense::new(0x6, 0x2a, 0x04);
    /// UNIT ATTENTION, REGISTRATIONS PREEMPTED.
    pub const REGISTRATIONS_PREEMPTED: Sense = Sense::new(0x6, 0x2a, 0x05);
    /// UNIT ATTENTION, ASYMMETRIC ACCESS STATE CHANGED.
    pub const ACCESS_CHANGED: Sense = Sense::new(0x6, 0x2a, 0x06);
    /// UNIT ATTENTION, CAPACITY DATA HAS CHANGED.
    pub const CAPACITY_CHANGED: Sense = Sense::new(0x6, 0x2a, 0x09);

    const fn new(key: u8, asc: u8, ascq: u8) -> Sense {
        Sense { key, asc, ascq, information: None }
    }

    /// With this in the INFORMATION field (section 4.5.2.2).
    #[must_use]
    pub const fn at(self, information: u32) -> Sense {
        Sense { information: Some(information), ..self }
    }

    /// In the fixed format (section 4.5.3).
    #[must_use]
    pub fn fixed(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        (bytes[0], bytes[2], bytes[7]) = (0x70, self.key, 10);
        (bytes[12], bytes[13]) = (self.asc, self.ascq);
        if let Some(information) = self.information {
            const VALID: u8 = 0x80;
            bytes[0] |= VALID;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes
    }

    /// In the descriptor format (section 4.5.2), without descriptors.
    #[must_use]
    pub fn descriptors(&self) -> [u8; 8] {
        [0x72, self.key, self.asc, self.ascq, 0, 0, 0, 0]
    }
}

/// The end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// CHECK CONDITION.
    Check(Sense),
    /// BUSY: to be asked again.
    Busy,
    /// TASK SET FULL: to be asked again when less is under way.
    TaskSetFull,
    /// RESERVATION CONFLICT: somebody else's reservation bars it.
    ReservationConflict,
    /// TASK ABORTED: another initiator has ended it (SAM-5 section 5.3.1; TAS 1 of the control mode page).
    TaskAborted,
}

impl Failure {
    /// What the initiator is told when the volume could not do it.
    #[must_use]
    pub fn of(status: IoStatus, is_read: bool) -> Failure {
        Failure::Check(match status {
            IoStatus::Io if is_read => Sense::READ_ERROR,
            IoStatus::Io | IoStatus::OtherKey => Sense::WRITE_ERROR,
            IoStatus::NoSpace => Sense::NO_SPACE,
            IoStatus::Invalid => Sense::FIELD,
            IoStatus::ReadOnly => Sense::WRITE_PROTECTED,
            IoStatus::Gone => Sense::NO_LUN,
            IoStatus::Fenced => Sense::UNAVAILABLE,
            // The offset from the start of the data to the first byte that is not equal (SBC-3 section 5.3).
            IoStatus::Miscompare(at) => Sense::MISCOMPARE.at(u32::from(at)),
            IoStatus::Redirect | IoStatus::Stale => return Failure::Busy,
        })
    }
}
