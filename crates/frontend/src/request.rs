//! What clients ask of an export, in the words of no protocol.

use crate::verbs::Verb;
use crate::work::Work;
use azekura_gateway::Op;
use bytes::Bytes;

/// A request on the export that a connection has opened. Offsets and lengths are bytes, of any alignment, inside the
/// export, and never empty, and its kind is one of the export's [`Verbs`](crate::Verbs). The protocol has checked all
/// of that.
///
/// No request asks for durability: whatever is answered is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read; answered with pieces.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Write; best in page-aligned memory.
    Write {
        /// First byte.
        offset: u64,
        /// What to write.
        bytes: Bytes,
    },
    /// Write where the export holds what is expected, atomically; else it fails with a miscompare. Inside one block of
    /// 4 KiB: see [`COMPARED_BYTES_MAX`](crate::COMPARED_BYTES_MAX).
    CompareAndWrite {
        /// First byte.
        offset: u64,
        /// What is expected there: as many bytes.
        expected: Bytes,
        /// What to write.
        bytes: Bytes,
    },
    /// Copy bytes to another place of the export. Not atomic: what others write there meanwhile may be copied or not,
    /// and stays or not. It takes twice the memory of its bytes: what was read, and that joined to be written. The two
    /// places may overlap.
    Copy {
        /// First byte of what is copied.
        from: u64,
        /// First byte of where it goes to.
        to: u64,
        /// Bytes.
        len: u64,
    },
    /// The same from another export, which the branch of this number has opened for the session that this one is a
    /// branch of. It fails as gone when that branch is.
    CopyFrom {
        /// The number of the branch.
        branch: u32,
        /// First byte of what is copied, of the other export.
        from: u64,
        /// First byte of where it goes to.
        to: u64,
        /// Bytes.
        len: u64,
    },
    /// Set the bits of `bytes` in what the export holds. Atomic for each block of 4 KiB: bits that others set or clear
    /// at the same time, through any node, are lost in none of them. Only where compare-and-write is one of the
    /// export's verbs, by which it is made. A block that others change again and again fails as stale: to be asked for
    /// again. It takes the memory of its bytes and [`OR_BYTES`](crate::OR_BYTES).
    Or {
        /// First byte.
        offset: u64,
        /// The bits to set.
        bytes: Bytes,
    },
    /// Make all durable that was answered before, on any connection.
    Flush,
    /// The contents are not needed any more. What is read afterwards may be zeros or the old contents.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Make bytes read as zeros. Whole blocks give their space back.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Which bytes hold data? Answered with runs, which may cover less than was asked for.
    Extents {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The client will soon read this. A hint.
    Cache {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

impl Request {
    /// Its kind.
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self {
            Request::Read { .. } => Verb::Read,
            Request::Write { .. } | Request::Copy { .. } | Request::CopyFrom { .. } => Verb::Write,
            Request::CompareAndWrite { .. } | Request::Or { .. } => Verb::CompareAndWrite,
            Request::Flush => Verb::Flush,
            Request::Trim { .. } => Verb::Trim,
            Request::Zero { .. } => Verb::Zero,
            Request::Extents { .. } => Verb::Extents,
            Request::Cache { .. } => Verb::Cache,
        }
    }

    /// What the gateway has to do; `None` where nothing is to be done.
    pub(crate) fn asked(self) -> Option<Asked> {
        Some(Asked::Op(match self {
            Request::Read { offset, len } => Op::Read { offset, len },
            Request::Write { offset, bytes } => Op::Write { offset, bytes },
            Request::CompareAndWrite { offset, expected, bytes } => Op::CompareAndWrite { offset, expected, bytes },
            Request::Trim { offset, len } => Op::Trim { offset, len },
            Request::Zero { offset, len } => Op::Zero { offset, len },
            Request::Extents { offset, len } => Op::Status { offset, len },
            // Whatever has been answered is durable; and there is no cache to warm before a client reads.
            Request::Flush | Request::Cache { .. } => return None,
            Request::Copy { from, to, len } => return Some(Asked::Work(Work::copy(None, from, to, len))),
            Request::CopyFrom { branch, from, to, len } => {
                return Some(Asked::Work(Work::copy(Some(branch), from, to, len)));
            }
            Request::Or { offset, bytes } => return Some(Asked::Work(Work::or(offset, bytes))),
        }))
    }
}

/// What a request asks of the gateway.
#[derive(Debug)]
pub(crate) enum Asked {
    /// One thing.
    Op(Op),
    /// One after the other.
    Work(Work),
}

impl Asked {
    /// It changes what the volume holds, be it at its end.
    pub fn is_write(&self) -> bool {
        match self {
            Asked::Op(op) => op.is_write(),
            Asked::Work(_) => true,
        }
    }
}
