//! Why a device can't be had, or given back.

use std::fmt;

/// What kind of reason it is: what may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What was asked for makes no sense.
    Invalid,
    /// What was named is not attached.
    NotFound,
    /// Something has to be there, or to be ended, before.
    Precondition,
    /// The kernel has no more of something.
    Exhausted,
    /// It may come later by itself.
    Unavailable,
    /// It has taken too long, and may still go on.
    Late,
    /// The machine does not do what it should.
    Internal,
}

/// Why, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachError {
    /// What kind of reason.
    pub kind: Kind,
    /// The reason in words.
    pub message: String,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AttachError {}

impl AttachError {
    fn new(kind: Kind, message: impl Into<String>) -> AttachError {
        AttachError { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> AttachError {
        AttachError::new(Kind::Invalid, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> AttachError {
        AttachError::new(Kind::NotFound, message)
    }

    pub(crate) fn precondition(message: impl Into<String>) -> AttachError {
        AttachError::new(Kind::Precondition, message)
    }

    pub(crate) fn exhausted(message: impl Into<String>) -> AttachError {
        AttachError::new(Kind::Exhausted, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> AttachError {
        AttachError::new(Kind::Unavailable, message)
    }

    pub(crate) fn late(message: impl Into<String>) -> AttachError {
        AttachError::new(Kind::Late, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> AttachError {
        AttachError::new(Kind::Internal, message)
    }
}
