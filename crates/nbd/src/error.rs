//! Errors as the protocol numbers them.

use azekura_base::IoStatus;

/// Why a request failed, in the protocol's own numbers (*Error values*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// `NBD_EPERM`: the export takes no writes.
    NotPermitted = 1,
    /// `NBD_EIO`: it could not be read or written.
    Io = 5,
    /// `NBD_EINVAL`: the request is wrong.
    Invalid = 22,
    /// `NBD_ENOSPC`: no space left, or behind the export's end.
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: too long to be answered in one piece.
    Overflow = 75,
    /// `NBD_ENOTSUP`: it would not be fast.
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`: the server is going away.
    Shutdown = 108,
}

impl From<IoStatus> for ErrorCode {
    fn from(status: IoStatus) -> ErrorCode {
        match status {
            IoStatus::Io | IoStatus::Redirect | IoStatus::Stale | IoStatus::Miscompare(_) | IoStatus::OtherKey => {
                ErrorCode::Io
            }
            IoStatus::NoSpace => ErrorCode::NoSpace,
            IoStatus::Invalid => ErrorCode::Invalid,
            IoStatus::ReadOnly => ErrorCode::NotPermitted,
            IoStatus::Gone | IoStatus::Fenced => ErrorCode::Shutdown,
        }
    }
}
