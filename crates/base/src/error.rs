//! The outcome of a block request, as every protocol can express it.

use std::fmt;

/// Why a block request could not be served. The numbers are part of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoStatus {
    /// The data was not readable or not writable on any copy.
    Io,
    /// The pool has no space left; nothing was written.
    NoSpace,
    /// The request lies outside the volume or is malformed.
    Invalid,
    /// The volume, or this attachment of it, takes no writes.
    ReadOnly,
    /// The volume is gone.
    Gone,
    /// This copy can't answer now; ask the primary, or again with a newer configuration.
    Redirect,
    /// This attachment of the volume has been ended: it may be attached elsewhere.
    Fenced,
    /// The layer that the request names is not the volume's head here (any more, or yet), or takes no writes while a
    /// snapshot is made: ask again, with the head that a newer configuration names.
    Stale,
    /// The volume holds something else than a compare-and-write expects; nothing was written. With the first byte that
    /// differs, counted from the first that was compared; of an encrypted volume, with the first of its unit.
    Miscompare(u16),
    /// A block that the request changes or compares in part is encrypted under another generation of its volume's key
    /// than the request: it has to be written whole first, under the request's generation.
    OtherKey,
}

impl IoStatus {
    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            IoStatus::Io => 1,
            IoStatus::NoSpace => 2,
            IoStatus::Invalid => 3,
            IoStatus::ReadOnly => 4,
            IoStatus::Gone => 5,
            IoStatus::Redirect => 6,
            IoStatus::Fenced => 7,
            IoStatus::Stale => 8,
            IoStatus::Miscompare(_) => 9,
            IoStatus::OtherKey => 10,
        }
    }

    /// The status with the wire number `code`, if there is one; a miscompare's place follows its number.
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
            9 => IoStatus::Miscompare(0),
            10 => IoStatus::OtherKey,
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
            IoStatus::Miscompare(_) => "the volume holds something else than was expected",
            IoStatus::OtherKey => "the block is encrypted under another generation of its key",
        })
    }
}

impl std::error::Error for IoStatus {}
