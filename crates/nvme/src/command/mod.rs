//! Submission queue entries (Base section 3.3.3.1), by the queue that they come on.

pub mod admin;
pub mod fabrics;
pub mod io;
pub mod reservation;
pub mod sgl;

pub use sgl::Sgl;

use crate::completion::Status;
use crate::fields::{put_at, u16_at, u32_at};

/// The opcode of all Fabrics commands.
pub const FABRICS: u8 = 0x7f;

/// Which part of a fused operation a command is (FUSE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fuse {
    /// None.
    No = 0,
    /// The first: a compare.
    First = 1,
    /// The second: a write.
    Second = 2,
}

/// A submission queue entry, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub [u8; 64]);

impl Entry {
    /// An entry with its opcode and command identifier, and a descriptor of its data (PSDT 01b, which is what fabrics
    /// have).
    #[must_use]
    pub fn new(opcode: u8, id: u16, sgl: &Sgl) -> Entry {
        let mut bytes = [0; 64];
        (bytes[0], bytes[1]) = (opcode, 0x40);
        put_at(&mut bytes, 2, &id.to_le_bytes());
        put_at(&mut bytes, 24, &sgl.bytes());
        Entry(bytes)
    }

    /// The opcode.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// CID: names the command among those of its queue.
    #[must_use]
    pub fn id(&self) -> u16 {
        u16_at(&self.0, 2)
    }

    /// NSID; in Fabrics commands something else.
    #[must_use]
    pub fn namespace(&self) -> u32 {
        u32_at(&self.0, 4)
    }

    /// FUSE.
    ///
    /// # Errors
    /// When it is the reserved value.
    pub fn fuse(&self) -> Result<Fuse, Status> {
        match self.0[1] & 3 {
            0 => Ok(Fuse::No),
            1 => Ok(Fuse::First),
            2 => Ok(Fuse::Second),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Where the data is.
    ///
    /// # Errors
    /// When it is not said by a descriptor that NVMe/TCP has.
    pub fn sgl(&self) -> Result<Sgl, Status> {
        // PSDT: fabrics have SGLs, and no PRPs. Of Fabrics commands these bits are reserved.
        if self.opcode() != FABRICS && self.0[1] >> 6 != 1 {
            return Err(Status::INVALID_FIELD);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[24..40]);
        Sgl::of(&bytes)
    }

    /// Command Dword `number`: 10 to 15.
    pub(crate) fn dword(&self, number: usize) -> u32 {
        u32_at(&self.0, number * 4)
    }

    pub(crate) fn put_dword(&mut self, number: usize, value: u32) {
        put_at(&mut self.0, number * 4, &value.to_le_bytes());
    }

    pub(crate) fn put_namespace(&mut self, namespace: u32) {
        put_at(&mut self.0, 4, &namespace.to_le_bytes());
    }
}

/// Which queue a command came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Queue 0.
    Admin,
    /// Any other.
    Io,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Fabrics: on either queue.
    Fabrics(fabrics::Fabrics),
    /// On the admin queue.
    Admin(admin::Admin),
    /// On an I/O queue.
    Io(io::Io),
}

impl Command {
    /// What an entry asks for.
    ///
    /// # Errors
    /// When it is not known, or has a field with an impossible value.
    pub fn of(entry: &Entry, queue: Queue) -> Result<Command, Status> {
        match (entry.opcode(), queue) {
            (FABRICS, _) => fabrics::Fabrics::of(entry).map(Command::Fabrics),
            (_, Queue::Admin) => admin::Admin::of(entry).map(Command::Admin),
            (_, Queue::Io) => io::Io::of(entry).map(Command::Io),
        }
    }

    /// The entry of a command.
    #[must_use]
    pub fn entry(&self, id: u16, sgl: &Sgl) -> Entry {
        match self {
            Command::Fabrics(command) => command.entry(id, sgl),
            Command::Admin(command) => command.entry(id, sgl),
            Command::Io(command) => command.entry(id, sgl),
        }
    }
}
