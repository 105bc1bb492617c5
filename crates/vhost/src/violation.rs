//! What a client can do that ends its connection.

use crate::fault::Fault;
use thiserror::Error;

/// A breach of the protocol, which ends the connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A header's flags name another version.
    #[error("a vhost-user message of version {0}, and only version 1 is spoken")]
    Version(u32),
    /// A message that is not known, or belongs to a feature that was not offered.
    #[error("vhost-user message {0}, which is not known or belongs to a feature that was not offered")]
    Unknown(u32),
    /// A payload of the wrong length.
    #[error("vhost-user message {name} with a payload of {bytes} bytes")]
    Length {
        /// The message.
        name: &'static str,
        /// Bytes of its payload.
        bytes: usize,
    },
    /// A message that needs file descriptors came with too few.
    #[error("vhost-user message {0} came without a file descriptor that it needs")]
    NoDescriptor(&'static str),
    /// A value that can't be.
    #[error("vhost-user message {name}: {why}")]
    Value {
        /// The message.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Memory that can't be mapped.
    #[error("memory of a vhost-user client can't be used: {0}; QEMU needs memory-backend-memfd with share=on")]
    Memory(String),
    /// An eventfd that is none.
    #[error("an eventfd of a vhost-user client can't be used: {0}")]
    Eventfd(String),
    /// A socket for messages of this side that is none.
    #[error("a socket that a vhost-user client has sent for messages can't be used: {0}")]
    Channel(String),
    /// A page was written that has no place in the log.
    #[error("memory of a vhost-user client was written at {0:#x}, for which the log that it has sent has no place")]
    Log(u64),
    /// The volume of the socket is another one than it was, or can do other things.
    #[error("'{0}' is another volume than when a vhost-user client came to its socket")]
    Changed(String),
    /// A ring with contents that can't be.
    #[error("ring {queue} of a vhost-user client is broken: {fault}")]
    Ring {
        /// The queue.
        queue: usize,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The volume of the socket is not there.
    #[error("a vhost-user client has come to the socket of '{0}', and there is no such volume")]
    NoVolume(String),
    /// The volume of the socket can't be opened.
    #[error("a vhost-user client can't open '{name}': {why}")]
    Refused {
        /// The volume.
        name: String,
        /// Why.
        why: String,
    },
}

impl Violation {
    pub(crate) fn value(name: &'static str, why: impl Into<String>) -> Violation {
        Violation::Value { name, why: why.into() }
    }
}
