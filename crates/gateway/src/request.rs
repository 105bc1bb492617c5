//! What clients ask of volumes, and how that ends.

use azekura_base::IoStatus;
use bytes::Bytes;

/// What a client asks of a volume. Offsets and lengths are bytes, of any alignment.
#[derive(Clone, Debug)]
pub enum Op {
    /// Read `len` bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Write bytes; durable when answered.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Write bytes inside one block of 4 KiB where it holds what is expected, atomically; else it fails with
    /// [`IoStatus::Miscompare`].
    CompareAndWrite {
        /// First byte.
        offset: u64,
        /// What is expected there: as many bytes.
        expected: Bytes,
        /// The bytes.
        bytes: Bytes,
    },
    /// Make bytes read as zeros; whole blocks give their space back.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Give whole blocks' space back; the edges may stay as they are.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Make everything answered before durable: it is already.
    Flush,
    /// Which bytes hold data? The answer may cover less than was asked for.
    Status {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

impl Op {
    /// It changes what the volume holds.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::CompareAndWrite { .. } | Op::Zero { .. } | Op::Trim { .. })
    }
}

/// What [`crate::Gateway::rekey`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rekeyed {
    /// Blocks that have the key now that is written with, and had another.
    pub moved: u32,
    /// Blocks that are left: there were too many, or somebody has written to them meanwhile.
    pub left: u32,
}

/// A piece of what was read, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes.
    Data(Bytes),
    /// This many zeros.
    Zero(usize),
}

/// How an [`Op`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A write, zero, trim or flush is done.
    Done,
    /// What was read.
    Read(Vec<Piece>),
    /// Runs of bytes, in order: (length, holds data).
    Status(Vec<(u64, bool)>),
    /// It was not, or not wholly, done.
    Failed(IoStatus),
}
