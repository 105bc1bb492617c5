//! Errors after which a connection ends (TCP section 3.5.1), and how the other side is told.

use super::Kind;
use bytes::Bytes;
use std::fmt;

/// What a PDU has that no connection goes on after: Fatal Error Status and Fatal Error Information of H2CTermReq and
/// C2HTermReq (TCP sections 3.6.2.4 and 3.6.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// The field of the header at this byte has a value that it can't have.
    InvalidField(u8),
    /// The PDU has no place here.
    Sequence,
    /// The header's digest is wrong: the one that came.
    HeaderDigest(u32),
    /// Data for bytes that were not asked for.
    OutOfRange,
    /// More data in one PDU than is taken; from a controller, more R2T PDUs of a command than the host takes.
    LimitExceeded,
    /// The field of the header at this byte asks for what this side does not have.
    Unsupported(u8),
}

impl Fatal {
    /// Fatal Error Status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Fatal::InvalidField(_) => 1,
            Fatal::Sequence => 2,
            Fatal::HeaderDigest(_) => 3,
            Fatal::OutOfRange => 4,
            Fatal::LimitExceeded => 5,
            Fatal::Unsupported(_) => 6,
        }
    }

    /// Fatal Error Information: the offset of a field, the digest, or nothing.
    #[must_use]
    pub fn info(self) -> u32 {
        match self {
            Fatal::InvalidField(at) | Fatal::Unsupported(at) => u32::from(at),
            Fatal::HeaderDigest(digest) => digest,
            Fatal::Sequence | Fatal::OutOfRange | Fatal::LimitExceeded => 0,
        }
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fatal::InvalidField(at) => write!(f, "the field at byte {at} of a PDU's header has an impossible value"),
            Fatal::Sequence => f.write_str("a PDU came when it has no place"),
            Fatal::HeaderDigest(_) => f.write_str("a header came with a wrong digest"),
            Fatal::OutOfRange => f.write_str("data came that was not asked for"),
            Fatal::LimitExceeded => f.write_str("a PDU has more data than is taken"),
            Fatal::Unsupported(at) => write!(f, "the field at byte {at} of a PDU's header asks for what is not there"),
        }
    }
}

impl std::error::Error for Fatal {}

/// Ends a connection: what was wrong, and the header of the PDU that had it, which goes back to its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// What was wrong.
    pub fatal: Fatal,
    /// The header: as much of it as was understood when the error was found, at least the common one.
    pub header: Bytes,
}

impl Terminate {
    /// The other side is told. Not so when its own word that the connection ends was wrong: then it just ends.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let kind = self.header.first().copied().and_then(Kind::of);
        !matches!(kind, Some(Kind::HostTerminates | Kind::ControllerTerminates))
    }
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (PDU type {:#04x})", self.fatal, self.header.first().copied().unwrap_or_default())
    }
}

impl std::error::Error for Terminate {}

/// A host's or a controller's word that the connection ends (TCP sections 3.6.2.4 and 3.6.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminateRequest {
    /// Fatal Error Status, also one that is not known here.
    pub status: u16,
    /// Fatal Error Information.
    pub info: u32,
}

impl From<Fatal> for TerminateRequest {
    fn from(fatal: Fatal) -> TerminateRequest {
        TerminateRequest { status: fatal.status(), info: fatal.info() }
    }
}
