//! SCSI commands on a logical unit (SPC-4, SBC-3): what they ask of a volume, and their answers.

pub mod access;
pub mod blocks;
pub mod capacity;
pub mod copy;
pub mod inquiry;
pub mod mode;
pub mod opcodes;
pub mod parameters;
pub mod reservations;
pub mod sense;

use crate::scsi::blocks::plan_blocks;
use azekura_base::LogicalBlock;
use azekura_frontend::{Export, PathState, Verb};
use sense::Sense;

/// The longest read or write, in bytes.
pub const TRANSFER_BYTES_MAX: u32 = azekura_frontend::REQUEST_BYTES_MAX;
/// Bytes of what writes best are made of (1 MiB).
pub const TRANSFER_BYTES_OPTIMAL: u32 = 1 << 20;
/// The most descriptors of one UNMAP.
pub const UNMAP_DESCRIPTORS_MAX: u16 = 256;
/// The most bytes of one UNMAP: 512 MiB.
pub const UNMAP_BYTES_MAX: u32 = 512 << 20;
/// The most bytes that one VERIFY reads: 512 MiB.
pub const VERIFY_BYTES_MAX: u32 = 512 << 20;
/// The most bytes that one GET LBA STATUS tells of: the initiator asks again.
pub const STATUS_BYTES_MAX: u32 = u32::MAX;
/// The most logical blocks of one COMPARE AND WRITE: more might lie in two of the blocks that are written as one.
pub const COMPARED_BLOCKS_MAX: u8 = 1;
/// The most bytes of a parameter list that is looked at.
pub const PARAMETERS_MAX: u32 = 8192;

/// A volume as a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The volume's name.
    pub name: String,
    /// The iSCSI name of the target that it is a unit of.
    pub target: String,
    /// Names it for ever.
    pub id: u64,
    /// What it is counted in.
    pub block: LogicalBlock,
    /// Logical blocks.
    pub blocks: u64,
    /// Nobody can write.
    pub is_read_only: bool,
    /// Hosts can reserve it.
    pub reserves: bool,
    /// COMPARE AND WRITE is there.
    pub compares: bool,
    /// How good a path to it this is.
    pub path: PathState,
    /// The target port by which it is seen, from 1 on: each node is one, in a target port group of its own, and these
    /// have the same numbers.
    pub port: u16,
}

impl Disk {
    /// A volume as a logical unit of this target, as it is seen by a port.
    #[must_use]
    pub fn of(export: &Export, target: &str, port: u16) -> Disk {
        Disk {
            name: export.name.clone(),
            target: target.to_owned(),
            id: export.id.0,
            block: export.logical_block,
            blocks: export.size / u64::from(export.logical_block.bytes()),
            is_read_only: export.is_read_only(),
            reserves: false,
            compares: export.verbs.has(Verb::CompareAndWrite),
            path: export.path,
            port,
        }
    }

    /// Bytes of a logical block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block.bytes()
    }

    /// So many bytes as logical blocks that are whole.
    #[must_use]
    pub fn whole_blocks(&self, bytes: u32) -> u32 {
        bytes >> self.block.power()
    }
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
    /// What is to be replaced, and what by, as long as each other: from this byte on.
    CompareAndWrite(u64),
    /// Bits that are to be set in what there is, from this byte on.
    Or(u64),
    /// One logical block, to be written all over a range.
    Same(Range),
    /// What a range is to be equal to.
    Verify(Range),
    /// One logical block that each block of a range is to be equal to.
    VerifySame(Range),
    /// UNMAP's parameter list.
    Unmap,
    /// EXTENDED COPY's parameter list.
    Copy,
    /// PERSISTENT RESERVE OUT's parameter list.
    Reservations(reservations::Action),
    /// MODE SELECT's parameter list.
    ModeSelect {
        /// Of the ten-byte command: its header is longer.
        is_long: bool,
    },
}

/// What a command comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It is done, and this is its data, which is not longer than was asked for.
    Data(Vec<u8>),
    /// It fails.
    Check(Sense),
    /// Read this, and send it.
    Read(Range),
    /// Read this, and send nothing: it is to be found out whether it can be read.
    Scan(Range),
    /// Find out what of this holds data, for GET LBA STATUS with so many bytes of room.
    Status(Range, u32),
    /// Find out what the volume's record of reservations says, for this question with so many bytes of room.
    Reservations(reservations::Question, u32),
    /// Find out how the copy of this list identifier is getting on, with so many bytes of room.
    CopyStatus(u8, u32),
    /// Make this read as zeros.
    Zero(Range),
    /// Bring this near.
    Cache(Range),
    /// Make all durable that was answered.
    Flush,
    /// Take so many bytes from the initiator, for this.
    Take(u32, Use),
}

impl Plan {
    /// Done, without data.
    pub(crate) fn good() -> Plan {
        Plan::Data(Vec::new())
    }

    /// Data, as much of it as there is room for.
    pub(crate) fn data(mut bytes: Vec<u8>, room: u32) -> Plan {
        bytes.truncate(room as usize);
        Plan::Data(bytes)
    }
}

/// A command descriptor block: fields by their place.
#[derive(Clone, Copy, Debug)]
pub struct Cdb<'a>(pub &'a [u8; 16]);

impl Cdb<'_> {
    /// The operation code.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// A number of `count` bytes at byte `at`.
    #[must_use]
    pub fn number(&self, at: usize, count: usize) -> u64 {
        self.0[at..at + count].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// A 32-bit number at byte `at`.
    #[must_use]
    pub fn u32(&self, at: usize) -> u32 {
        self.number(at, 4) as u32
    }

    /// A 16-bit number at byte `at`.
    #[must_use]
    pub fn u16(&self, at: usize) -> u16 {
        self.number(at, 2) as u16
    }

    /// Bits of byte `at`.
    #[must_use]
    pub fn has(&self, at: usize, bits: u8) -> bool {
        self.0[at] & bits != 0
    }
}

/// What the command `cdb` for the logical unit `lun` comes to, where `disk` is unit 0 and there is no other one.
#[must_use]
pub fn plan(disk: &Disk, lun: [u8; 8], cdb: &[u8; 16]) -> Plan {
    plan_of(Some(disk).filter(|_| lun_number(lun) == Some(0)), &[0], cdb)
}

/// What a command comes to for a logical unit, or for one that is not there (`None`), of a target that has units of
/// these numbers.
pub(crate) fn plan_of(unit: Option<&Disk>, luns: &[u16], cdb: &[u8; 16]) -> Plan {
    let cdb = Cdb(cdb);
    match (cdb.opcode(), unit) {
        (opcodes::INQUIRY, _) => inquiry::inquiry(unit, cdb),
        (opcodes::REPORT_LUNS, _) => report_luns(luns, cdb),
        (opcodes::REQUEST_SENSE, Some(_)) => request_sense(cdb, Sense::NONE),
        (opcodes::REQUEST_SENSE, None) => request_sense(cdb, Sense::NO_LUN),
        (_, None) => Plan::Check(Sense::NO_LUN),
        (_, Some(disk)) => plan_disk(disk, cdb),
    }
}

/// What a command comes to that only a logical unit which is there can be asked.
fn plan_disk(disk: &Disk, cdb: Cdb<'_>) -> Plan {
    match cdb.opcode() {
        opcodes::TEST_UNIT_READY => Plan::good(),
        // Volumes do not stop: starting one is what it has done, stopping leaves it as it is (SBC-3 section 5.25).
        opcodes::START_STOP_UNIT => Plan::good(),
        opcodes::MODE_SENSE_6 | opcodes::MODE_SENSE_10 => mode::sense(disk, cdb),
        opcodes::MODE_SELECT_6 | opcodes::MODE_SELECT_10 => mode::select(cdb),
        opcodes::PERSISTENT_RESERVE_IN if disk.reserves => match reservations::question(cdb) {
            Ok((reservations::Question::Capabilities, room)) => Plan::data(reservations::answers::capabilities(), room),
            Ok((question, room)) => Plan::Reservations(question, room),
            Err(sense) => Plan::Check(sense),
        },
        opcodes::PERSISTENT_RESERVE_OUT if disk.reserves => match reservations::action(cdb) {
            Ok((action, bytes)) => Plan::Take(bytes, Use::Reservations(action)),
            Err(sense) => Plan::Check(sense),
        },
        opcodes::PERSISTENT_RESERVE_IN | opcodes::PERSISTENT_RESERVE_OUT => Plan::Check(Sense::OPCODE),
        opcodes::EXTENDED_COPY => copy::extended_copy(disk, cdb),
        opcodes::RECEIVE_COPY_RESULTS => copy::results(disk, cdb),
        opcodes::READ_CAPACITY_10 => capacity::read_10(disk),
        opcodes::SERVICE_ACTION_IN_16 => match cdb.0[1] & 0x1f {
            opcodes::READ_CAPACITY_16 => capacity::read_16(disk, cdb),
            opcodes::GET_LBA_STATUS => capacity::lba_status(disk, cdb),
            _ => Plan::Check(Sense::FIELD),
        },
        opcodes::MAINTENANCE_IN => match cdb.0[1] & 0x1f {
            opcodes::REPORT_SUPPORTED_OPCODES => opcodes::report(disk, cdb),
            opcodes::REPORT_TARGET_PORT_GROUPS => access::report(disk, cdb),
            _ => Plan::Check(Sense::FIELD),
        },
        _ => plan_blocks(disk, cdb),
    }
}

/// REQUEST SENSE (SPC-4 section 6.39), which says this.
pub(crate) fn request_sense(cdb: Cdb<'_>, sense: Sense) -> Plan {
    let bytes = if cdb.has(1, 1) { sense.descriptors().to_vec() } else { sense.fixed().to_vec() };
    Plan::data(bytes, u32::from(cdb.0[4]))
}

/// READ CAPACITY and TEST UNIT READY: what an initiator asks to learn how its disk is now.
#[must_use]
pub(crate) fn asks_how_it_is(cdb: &[u8; 16]) -> bool {
    match cdb[0] {
        opcodes::TEST_UNIT_READY | opcodes::READ_CAPACITY_10 => true,
        opcodes::SERVICE_ACTION_IN_16 => cdb[1] & 0x1f == opcodes::READ_CAPACITY_16,
        _ => false,
    }
}

/// The number of a logical unit by the peripheral or flat method (SAM-5 sections 4.7.7.2 and 4.7.7.3), on the first
/// level and on bus 0; `None`: an address that no unit here has.
#[must_use]
pub fn lun_number(lun: [u8; 8]) -> Option<u16> {
    const FLAT: u8 = 0x40;
    match lun {
        [0, number, 0, 0, 0, 0, 0, 0] => Some(u16::from(number)),
        [high, low, 0, 0, 0, 0, 0, 0] if high & 0xc0 == FLAT => Some(u16::from_be_bytes([high & 0x3f, low])),
        _ => None,
    }
}

/// REPORT LUNS (SPC-4 section 6.33), by the peripheral method as far as that goes.
fn report_luns(luns: &[u16], cdb: Cdb<'_>) -> Plan {
    let room = cdb.u32(6);
    if room < 16 {
        return Plan::Check(Sense::FIELD);
    }
    let luns = match cdb.0[2] {
        0 | 2 => luns,
        // Well known logical units: none.
        1 => &[],
        _ => return Plan::Check(Sense::FIELD),
    };
    let mut bytes = vec![0; 8 + 8 * luns.len()];
    bytes[..4].copy_from_slice(&(8 * luns.len() as u32).to_be_bytes());
    for (place, number) in bytes[8..].chunks_exact_mut(8).zip(luns) {
        let method = if *number > 0xff { 0x4000 } else { 0 };
        place[..2].copy_from_slice(&(method | number).to_be_bytes());
    }
    Plan::data(bytes, room)
}
