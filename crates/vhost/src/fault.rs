//! What can be wrong with a ring.

use thiserror::Error;

/// What is wrong with a ring, so that nobody can go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// It, or an indirect table, is not in the memory that was handed over.
    #[error("it leads out of the memory that was handed over")]
    NotInMemory,
    /// Parts of it are not aligned as virtio 2.7 wants them.
    #[error("its parts are not aligned to 16, 2 and 4 bytes")]
    Alignment,
    /// More is available than it has entries.
    #[error("{0} requests are available, more than it has entries")]
    Overrun(u16),
    /// A number is of no descriptor.
    #[error("there is no descriptor {0}")]
    Descriptor(u16),
    /// A chain was made available that is under way.
    #[error("descriptor {0} is available although it is under way")]
    Busy(u16),
    /// A chain does not end.
    #[error("a chain of descriptors does not end")]
    Endless,
    /// An indirect table is of no use.
    #[error("an indirect table is of no use: {0}")]
    Indirect(&'static str),
    /// A request has no byte for its status.
    #[error("a request has no byte for its status")]
    NoStatus,
    /// The record of what is under way is for smaller rings.
    #[error("it has more entries than the memory for requests in flight")]
    Unrecorded,
}
