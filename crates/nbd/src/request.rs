//! Requests of the transmission phase: their header, the commands they carry, and what makes one unacceptable.

use crate::error::ErrorCode;
use crate::export::BlockSizes;
use crate::numbers::{
    CMD_BLOCK_STATUS, CMD_CACHE, CMD_FLAG_DF, CMD_FLAG_FAST_ZERO, CMD_FLAG_FUA, CMD_FLAG_NO_HOLE, CMD_FLAG_REQ_ONE,
    CMD_FLUSH, CMD_READ, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES,
};
use crate::{EXTENTS_MAX, REQUEST_MAX};
use azekura_frontend::{Verb, Verbs};
use bytes::Bytes;

/// What a client wants done. Offsets and lengths are in bytes, of any alignment that the export allows, inside the
/// export, and never empty. `fua` asks for durability before the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read; answered with [`crate::Session::reply_read`]. At most the export's largest block size.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes to read.
        length: u32,
    },
    /// Write. At most the export's largest block size.
    Write {
        /// First byte.
        offset: u64,
        /// What to write; in page-aligned memory.
        data: Bytes,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make every write durable that was answered before, on any connection.
    Flush,
    /// The contents are no longer needed. Up to 4 GiB.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes to give up.
        length: u32,
        /// Durable before the reply.
        fua: bool,
    },
    /// Write zeroes. Up to 4 GiB.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes to clear.
        length: u32,
        /// Keep the space allocated.
        no_hole: bool,
        /// Fail with [`ErrorCode::NotSupported`] at once unless it is faster than a write.
        fast: bool,
        /// Durable before the reply.
        fua: bool,
    },
    /// The client will soon read this. A hint. Up to 4 GiB.
    Cache {
        /// First byte.
        offset: u64,
        /// Bytes that will be wanted.
        length: u32,
    },
    /// Which parts are allocated; answered with [`crate::Session::reply_block_status`]. Up to 4 GiB.
    BlockStatus {
        /// First byte.
        offset: u64,
        /// Bytes to look at. A hint: the answer may cover less.
        length: u32,
        /// The first extent is enough.
        one: bool,
    },
}

/// Stands for a request until it is answered. Given to exactly one of the session's reply methods; a request whose
/// connection is gone needs none.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "every request is owed a reply"]
pub struct RequestToken {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) answer: Answer,
    pub(crate) memory: u32,
}

/// What kind of reply a request is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Data; in a single chunk if `whole` (*Command flags*, DF).
    Data { whole: bool },
    /// Extents; just one if `one` (*Command flags*, `REQ_ONE`).
    Extents { one: bool },
    /// That it is done.
    Done,
}

impl RequestToken {
    /// The bytes that a metered session was given for the request and its answer.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory as usize
    }

    /// The client's own number for the request; only good for showing to people, as clients may repeat themselves.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
}

/// *Request message*, behind its magic number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub flags: u16,
    pub command: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

impl Header {
    /// Bytes of a header, its magic number included.
    pub const SIZE: usize = 28;

    /// The magic number and the header.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> (u32, Header) {
        let mut rest = &bytes[..];
        let header = |rest: &mut &[u8]| Header {
            flags: u16::from_be_bytes(take(rest)),
            command: u16::from_be_bytes(take(rest)),
            cookie: u64::from_be_bytes(take(rest)),
            offset: u64::from_be_bytes(take(rest)),
            length: u32::from_be_bytes(take(rest)),
        };
        (u32::from_be_bytes(take(&mut rest)), header(&mut rest))
    }

    /// The most bytes that the request's payload, or its answer, can take.
    pub fn memory_bytes(&self) -> u32 {
        /// Any reply without data, with a sentence for people.
        const REPLY: u32 = 256;
        match self.command {
            CMD_READ => REPLY + self.length.min(REQUEST_MAX),
            // A refused payload is skipped.
            CMD_WRITE if self.length <= REQUEST_MAX => REPLY + self.length,
            CMD_BLOCK_STATUS => REPLY + 8 * EXTENTS_MAX as u32,
            _ => REPLY,
        }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// True when [`Header::length`] bytes of data follow.
    pub fn has_payload(&self) -> bool {
        self.command == CMD_WRITE
    }

    /// True for a FLUSH, which alone may be empty.
    pub fn is_flush(&self) -> bool {
        self.command == CMD_FLUSH
    }

    /// What will be given back with the reply.
    pub fn token(&self) -> RequestToken {
        let answer = match self.command {
            CMD_READ => Answer::Data { whole: self.has(CMD_FLAG_DF) },
            CMD_BLOCK_STATUS => Answer::Extents { one: self.has(CMD_FLAG_REQ_ONE) },
            _ => Answer::Done,
        };
        RequestToken {
            cookie: self.cookie,
            offset: self.offset,
            length: self.length,
            answer,
            memory: self.memory_bytes(),
        }
    }

    /// The command of a header that was found acceptable; `data` is the payload of a write, and empty otherwise.
    ///
    /// # Panics
    /// When the command is none that [`Opened::check`] accepts.
    pub fn command(&self, data: Bytes) -> Command {
        let (offset, length, fua) = (self.offset, self.length, self.has(CMD_FLAG_FUA));
        match self.command {
            CMD_READ => Command::Read { offset, length },
            CMD_WRITE => Command::Write { offset, data, fua },
            CMD_FLUSH => Command::Flush,
            CMD_TRIM => Command::Trim { offset, length, fua },
            CMD_CACHE => Command::Cache { offset, length },
            CMD_WRITE_ZEROES => Command::WriteZeroes {
                offset,
                length,
                no_hole: self.has(CMD_FLAG_NO_HOLE),
                fast: self.has(CMD_FLAG_FAST_ZERO),
                fua,
            },
            CMD_BLOCK_STATUS => Command::BlockStatus { offset, length, one: self.has(CMD_FLAG_REQ_ONE) },
            other => unreachable!("command {other} was accepted"),
        }
    }
}

/// The next `N` bytes of `rest`, which the caller knows to be there.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (bytes, tail) = rest.split_first_chunk().expect("the fields of a header add up to its size");
    *rest = tail;
    *bytes
}

/// An error for the client, with a sentence for people.
pub(crate) type Refusal = (ErrorCode, &'static str);

/// What the session has to know of the export that it has opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub size: u64,
    pub verbs: Verbs,
    pub block_sizes: BlockSizes,
    /// Structured replies are in use.
    pub structured: bool,
    /// `base:allocation` is selected.
    pub block_status: bool,
}

impl Opened {
    /// Whether the request can be served: its command and flags are known, and it lies inside the export
    /// (*Request types*, *Error values*, *Block size constraints*).
    pub fn check(&self, header: &Header) -> Result<(), Refusal> {
        let (verb, flags) = match header.command {
            CMD_READ if self.structured => (Verb::Read, CMD_FLAG_DF),
            CMD_READ => (Verb::Read, 0),
            CMD_CACHE => (Verb::Cache, 0),
            CMD_WRITE => (Verb::Write, 0),
            CMD_TRIM => (Verb::Trim, 0),
            CMD_WRITE_ZEROES => (Verb::Zero, CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO),
            CMD_BLOCK_STATUS => (Verb::Extents, CMD_FLAG_REQ_ONE),
            CMD_FLUSH => (Verb::Flush, 0),
            _ => return Err((ErrorCode::Invalid, "unknown command")),
        };
        // FUA is to be accepted with every command, whether it writes or not (*Command flags*).
        if header.flags & !(flags | CMD_FLAG_FUA) != 0 {
            return Err((ErrorCode::Invalid, "a command flag is unknown, or not valid for this command"));
        }
        if !self.verbs.has(verb) {
            return Err(match verb {
                Verb::Write | Verb::Trim | Verb::Zero if !self.verbs.has(Verb::Write) => {
                    (ErrorCode::NotPermitted, "the export is read-only")
                }
                _ => (ErrorCode::Invalid, "the export does not offer this command"),
            });
        }
        if header.command == CMD_FLUSH {
            return match (header.offset, header.length) {
                (0, 0) => Ok(()),
                _ => Err((ErrorCode::Invalid, "a flush has neither offset nor length")),
            };
        }
        if header.offset.checked_add(u64::from(header.length)).is_none_or(|end| end > self.size) {
            return match header.command {
                CMD_WRITE | CMD_WRITE_ZEROES => Err((ErrorCode::NoSpace, "behind the end of the export")),
                _ => Err((ErrorCode::Invalid, "behind the end of the export")),
            };
        }
        let misaligned = (header.offset | u64::from(header.length)) & u64::from(self.block_sizes.min - 1) != 0;
        if misaligned {
            return Err((ErrorCode::Invalid, "not aligned to the export's smallest block size"));
        }
        // Commands without a payload may be longer: they cost nothing more to carry.
        if matches!(header.command, CMD_READ | CMD_WRITE) && header.length > self.block_sizes.max {
            return Err((ErrorCode::Invalid, "longer than the export's largest block size"));
        }
        if header.command == CMD_BLOCK_STATUS {
            if !self.block_status {
                return Err((ErrorCode::Invalid, "no metadata context was selected"));
            }
            if header.length == 0 {
                return Err((ErrorCode::Invalid, "block status of nothing"));
            }
        }
        Ok(())
    }
}
