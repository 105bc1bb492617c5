//! The outcome of a block request, as every protocol can express it.

use std::fmt;

/// Why a block request could not be served. The numbers are part of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum IoStatus {
    /// The data was not readable or not writable on any copy.
    Io = 1,
    /// The pool has no space left; nothing was written.
    NoSpace = 2,
    /// The request lies outside the volume or is malformed.
    Invalid = 3,
    /// The volume, or this attachment of it, takes no writes.
    ReadOnly = 4,
    /// The volume is gone.
    Gone = 5,
    /// This copy can't answer now; ask the primary, or again with a newer configuration.
    Redirect = 6,
    /// This attachment of the volume has been ended: it may be attached elsewhere.
    Fenced = 7,
    /// The layer that the request names is not the volume's head here (any more, or yet), or takes no writes while a
    /// snapshot is made: ask again, with the head that a newer configuration names.
    Stale = 8,
}

impl IoStatus {
    /// The status with the wire number `code`, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<IoStatus> {
        Some(match code {
            1 => IoStatus::Io,
            2 => IoStatus::NoSpace,
            3 => IoStatus::Invalid,
            4 => IoStatus::ReadOnly,
            5 => IoStatus::Gone,
            6 => IoStatus::Redirect,
            7 => IoStatus::Fenced,
            8 => IoStatus::Stale,
            _ => return None,
        })
    }
}

impl fmt::Display for IoStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoStatus::Io => "input/output error",
            IoStatus::NoSpace => "no space left in the pool",
            IoStatus::Invalid => "invalid request",
            IoStatus::ReadOnly => "read-only",
            IoStatus::Gone => "the volume is gone",
            IoStatus::Redirect => "ask the primary",
            IoStatus::Fenced => "the volume is not attached here any more",
            IoStatus::Stale => "the volume has another head layer",
        })
    }
}

impl std::error::Error for IoStatus {}
