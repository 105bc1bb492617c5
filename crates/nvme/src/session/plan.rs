//! What a command of an I/O queue asks of its volume: a function of the command's bytes.

use crate::command::io::{Blocks, Io};
use crate::command::reservation::Reservation;
use crate::command::{Command, Entry, Fuse, Queue, Sgl};
use crate::completion::Status;
use crate::names::Identity;
use crate::{COMPARED_BLOCKS_MAX, TRANSFER_MAX};
use azekura_base::LogicalBlock;
use azekura_frontend::{Export, PathState, Verb};

/// The most data that a command of reservations brings, most of which means nothing.
const KEY_BYTES_MAX: usize = 4096;

/// A volume as a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The export's name.
    pub name: String,
    /// What names it for ever.
    pub identity: Identity,
    /// What it is counted in.
    pub block: LogicalBlock,
    /// Logical blocks.
    pub blocks: u64,
    /// Nobody can write.
    pub is_read_only: bool,
    /// How good a path to it this is.
    pub path: PathState,
    /// Hosts can reserve it.
    pub reserves: bool,
    /// Compare and Write can be fused.
    pub compares: bool,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What the data of a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// To be written from this byte on.
    Write(u64),
    /// What the volume is to hold from this byte on.
    Compare(u64),
    /// The same, as the first of two fused commands: what is held is replaced by the data of the second.
    Expect(u64),
    /// What is written from this byte on by the second of two fused commands.
    Replace(u64),
    /// So many ranges whose blocks are not needed any more.
    Deallocate(u16),
    /// The keys of a command that changes reservations.
    Reserve(Reservation),
}

/// What a command comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// There is nothing to do.
    Done,
    /// Read this, and send it.
    Read(Range),
    /// Read this, and send nothing.
    Scan(Range),
    /// Make this read as zeros.
    Zero(Range),
    /// Take so many bytes from the host, for this.
    Take(usize, Use),
    /// Send so many bytes of what is reserved.
    Report(u32),
}

impl Disk {
    /// The namespace of a volume of this cluster.
    #[must_use]
    pub fn of(export: &Export, cluster: u128) -> Disk {
        Disk {
            name: export.name.clone(),
            identity: Identity { cluster, volume: export.id.0 },
            block: export.logical_block,
            blocks: export.size >> export.logical_block.power(),
            is_read_only: export.is_read_only(),
            path: export.path,
            reserves: false,
            compares: export.verbs.has(Verb::CompareAndWrite),
        }
    }

    /// The size of its export, in logical blocks.
    pub(crate) fn blocks_of(&self, export: &Export) -> u64 {
        export.size >> self.block.power()
    }

    fn range(&self, blocks: &Blocks) -> Result<Range, Status> {
        self.own(blocks.namespace)?;
        self.bytes(blocks.first, u64::from(blocks.count))
    }

    /// Blocks as bytes, if they are there.
    pub(crate) fn bytes(&self, first: u64, count: u64) -> Result<Range, Status> {
        let end = first.checked_add(count).filter(|end| *end <= self.blocks);
        end.ok_or(Status::LBA_OUT_OF_RANGE)?;
        Ok(Range { offset: first << self.block.power(), len: count << self.block.power() })
    }

    /// Whether a fused command is of no more than what is compared and written as one (ACWU).
    fn fits(&self, range: Range, is_fused: bool) -> Result<(), Status> {
        let is_longer = range.len > COMPARED_BLOCKS_MAX << self.block.power();
        if is_fused && is_longer { Err(Status::INVALID_FIELD) } else { Ok(()) }
    }

    fn own(&self, namespace: u32) -> Result<(), Status> {
        if namespace == 1 { Ok(()) } else { Err(Status::INVALID_NAMESPACE) }
    }

    fn writable(&self) -> Result<(), Status> {
        if self.is_read_only { Err(Status::WRITE_PROTECTED) } else { Ok(()) }
    }
}

/// What an entry of an I/O queue comes to.
///
/// # Errors
/// How the command fails.
pub fn plan(disk: &Disk, entry: &Entry) -> Result<Plan, Status> {
    let fuse = entry.fuse()?;
    let io = match Command::of(entry, Queue::Io)? {
        Command::Io(io) => io,
        Command::Fabrics(_) => return Err(Status::SEQUENCE_ERROR),
        Command::Admin(_) => return Err(Status::INVALID_OPCODE),
    };
    // Compare and Write is the one fused operation that there is (NVM section 3.2.7).
    let is_fused = match (fuse, &io) {
        (Fuse::No, _) => false,
        (Fuse::First, Io::Compare(..)) | (Fuse::Second, Io::Write(..)) if disk.compares => true,
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok(match io {
        Io::Flush { namespace } => {
            if namespace != u32::MAX {
                disk.own(namespace)?;
            }
            Plan::Done
        }
        Io::Read(blocks, _) => {
            let (range, sgl) = (disk.range(&blocks)?, entry.sgl()?);
            is_of(&sgl, range.len)?;
            if matches!(sgl, Sgl::InCapsule { .. }) {
                return Err(Status::SGL_TYPE_INVALID);
            }
            Plan::Read(range)
        }
        Io::Write(blocks, _) => {
            let range = disk.range(&blocks)?;
            disk.writable()?;
            is_of(&entry.sgl()?, range.len)?;
            disk.fits(range, is_fused)?;
            Plan::Take(range.len as usize, if is_fused { Use::Replace(range.offset) } else { Use::Write(range.offset) })
        }
        Io::WriteZeroes(blocks, _) => {
            let range = disk.range(&blocks)?;
            disk.writable()?;
            Plan::Zero(range)
        }
        Io::Verify(blocks, _) => Plan::Scan(disk.range(&blocks)?),
        Io::DatasetManagement { namespace, ranges, deallocates } => {
            disk.own(namespace)?;
            disk.writable()?;
            let (least, len) = (u32::from(ranges) * 16, entry.sgl()?.len());
            // Linux always sends all 256 ranges, whatever their number is.
            if len < least || len > 4096 {
                return Err(Status::SGL_LENGTH_INVALID);
            }
            if deallocates { Plan::Take(len as usize, Use::Deallocate(ranges)) } else { Plan::Done }
        }
        Io::Compare(blocks, _) => {
            let range = disk.range(&blocks)?;
            is_of(&entry.sgl()?, range.len)?;
            disk.fits(range, is_fused)?;
            Plan::Take(
                range.len as usize,
                if is_fused { Use::Expect(range.offset) } else { Use::Compare(range.offset) },
            )
        }
        Io::Reservation { .. } if !disk.reserves => return Err(Status::INVALID_OPCODE),
        Io::Reservation { namespace, command } => {
            disk.own(namespace)?;
            reservation(command, &entry.sgl()?)?
        }
    })
}

/// What a command of reservations comes to (Base sections 7.2 to 7.5).
fn reservation(command: Reservation, sgl: &Sgl) -> Result<Plan, Status> {
    let Reservation::Report { len, is_extended } = command else {
        // Linux sends two keys, also where one is wanted.
        let fits = (command.key_bytes()..=KEY_BYTES_MAX).contains(&(sgl.len() as usize));
        return if fits {
            Ok(Plan::Take(sgl.len() as usize, Use::Reserve(command)))
        } else {
            Err(Status::SGL_LENGTH_INVALID)
        };
    };
    // Hosts of fabrics have identifiers of 128 bits.
    if !is_extended {
        return Err(Status::HOST_ID_FORMAT);
    }
    is_of(sgl, len)?;
    if matches!(sgl, Sgl::InCapsule { .. }) { Err(Status::SGL_TYPE_INVALID) } else { Ok(Plan::Report(len as u32)) }
}

/// Whether a descriptor is of as many bytes as its command has, and of not more than a command may.
fn is_of(sgl: &Sgl, len: u64) -> Result<(), Status> {
    if len > u64::from(TRANSFER_MAX) {
        return Err(Status::INVALID_FIELD);
    }
    if u64::from(sgl.len()) == len { Ok(()) } else { Err(Status::SGL_LENGTH_INVALID) }
}
