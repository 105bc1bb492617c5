//! Completion queue entries (Base section 3.3.3.2) and status codes (Base section 3.3.3.2.1).

use crate::fields::{put_at, u16_at, u64_at};

/// A status: its code type and code, and whether the command may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Status Code Type in bits 10:8, Status Code in bits 7:0.
    pub code: u16,
    /// DNR: it fails again however often it is tried.
    pub do_not_retry: bool,
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $retry:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status = Status { code: $code, do_not_retry: !$retry };)*
        }
    };
}

// Each with whether it helps to try again, which is what multipath and retries of hosts go by.
statuses! {
    /// All is done.
    SUCCESS = 0x000, true;
    /// Invalid Command Opcode.
    INVALID_OPCODE = 0x001, false;
    /// Invalid Field in Command.
    INVALID_FIELD = 0x002, false;
    /// Command ID Conflict.
    COMMAND_ID_CONFLICT = 0x003, false;
    /// Data Transfer Error.
    DATA_TRANSFER_ERROR = 0x004, true;
    /// Internal Error.
    INTERNAL_ERROR = 0x006, true;
    /// Command Abort Requested.
    ABORT_REQUESTED = 0x007, true;
    /// Command Aborted due to Failed Fused Command.
    FUSED_FAILED = 0x009, true;
    /// Command Aborted due to Missing Fused Command.
    FUSED_MISSING = 0x00a, false;
    /// Invalid Namespace or Format.
    INVALID_NAMESPACE = 0x00b, false;
    /// Command Sequence Error.
    SEQUENCE_ERROR = 0x00c, false;
    /// Data SGL Length Invalid.
    SGL_LENGTH_INVALID = 0x00f, false;
    /// SGL Descriptor Type Invalid.
    SGL_TYPE_INVALID = 0x011, false;
    /// SGL Offset Invalid.
    SGL_OFFSET_INVALID = 0x016, false;
    /// Host Identifier Inconsistent Format.
    HOST_ID_FORMAT = 0x018, false;
    /// Keep Alive Timeout Invalid.
    KEEP_ALIVE_INVALID = 0x01a, false;
    /// Command Aborted due to Preempt and Abort: another host has taken the volume.
    ABORTED_BY_PREEMPTION = 0x01b, false;
    /// Namespace is Write Protected.
    WRITE_PROTECTED = 0x020, false;
    /// Command Interrupted: nothing is wrong with it, and it is to be sent again.
    INTERRUPTED = 0x021, true;
    /// Transient Transport Error: a data digest was wrong.
    TRANSIENT_TRANSPORT_ERROR = 0x022, true;
    /// LBA Out of Range (NVM section 3.1.2).
    LBA_OUT_OF_RANGE = 0x080, false;
    /// Capacity Exceeded.
    CAPACITY_EXCEEDED = 0x081, false;
    /// Namespace Not Ready.
    NAMESPACE_NOT_READY = 0x082, true;
    /// Reservation Conflict.
    RESERVATION_CONFLICT = 0x083, false;
    /// Abort Command Limit Exceeded.
    ABORT_LIMIT = 0x103, true;
    /// Asynchronous Event Request Limit Exceeded.
    EVENT_LIMIT = 0x105, false;
    /// Invalid Log Page.
    INVALID_LOG_PAGE = 0x109, false;
    /// Feature Identifier Not Saveable.
    NOT_SAVEABLE = 0x10d, false;
    /// Feature Not Changeable.
    NOT_CHANGEABLE = 0x10e, false;
    /// Connect: Incompatible Format.
    CONNECT_FORMAT = 0x180, false;
    /// Connect: Controller Busy.
    CONNECT_BUSY = 0x181, true;
    /// Connect: Invalid Parameters.
    CONNECT_INVALID = 0x182, false;
    /// Connect: Invalid Host.
    CONNECT_INVALID_HOST = 0x184, false;
    /// Authentication Required.
    AUTHENTICATION_REQUIRED = 0x191, false;
    /// I/O: Conflicting Attributes (NVM section 3.1.2).
    CONFLICTING_ATTRIBUTES = 0x180, false;
    /// I/O: Attempted Write to Read Only Range (NVM section 3.1.2).
    READ_ONLY = 0x182, false;
    /// Write Fault.
    WRITE_FAULT = 0x280, true;
    /// Unrecovered Read Error.
    READ_ERROR = 0x281, true;
    /// Compare Failure.
    COMPARE_FAILURE = 0x285, false;
    /// Internal Path Error.
    INTERNAL_PATH_ERROR = 0x300, true;
    /// Asymmetric Access Persistent Loss.
    ACCESS_LOST = 0x301, true;
    /// Asymmetric Access Inaccessible.
    ACCESS_INACCESSIBLE = 0x302, true;
    /// Asymmetric Access Transition.
    ACCESS_TRANSITION = 0x303, true;
}

/// What is answered to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Dwords 0 and 1: what the command says of its own.
    pub result: u64,
    /// SQHD: how far the submission queue is taken. Without meaning when flow control is off.
    pub queue_head: u16,
    /// SQID; reserved over fabrics, and 0.
    pub queue: u16,
    /// The command.
    pub command: u16,
    /// How it went.
    pub status: Status,
}

impl Completion {
    /// The entry.
    #[must_use]
    pub fn entry(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        put_at(&mut bytes, 0, &self.result.to_le_bytes());
        put_at(&mut bytes, 8, &self.queue_head.to_le_bytes());
        put_at(&mut bytes, 10, &self.queue.to_le_bytes());
        put_at(&mut bytes, 12, &self.command.to_le_bytes());
        // Bit 0 is the phase tag, which fabrics do not use.
        let status = (self.status.code & 0x7ff) << 1 | u16::from(self.status.do_not_retry) << 15;
        put_at(&mut bytes, 14, &status.to_le_bytes());
        bytes
    }

    /// What an entry says.
    #[must_use]
    pub fn of(bytes: &[u8; 16]) -> Completion {
        let status = u16_at(bytes, 14);
        Completion {
            result: u64_at(bytes, 0),
            queue_head: u16_at(bytes, 8),
            queue: u16_at(bytes, 10),
            command: u16_at(bytes, 12),
            status: Status { code: status >> 1 & 0x7ff, do_not_retry: status & 0x8000 != 0 },
        }
    }
}
