//! Operation codes, and REPORT SUPPORTED OPERATION CODES (SPC-4 section 6.35).

use super::sense::Sense;
use super::{Cdb, Disk, Plan};

macro_rules! opcodes {
    ($($name:ident = $code:literal, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: u8 = $code;)*
    };
}

opcodes! {
    TEST_UNIT_READY = 0x00, "SPC-4 section 6.47.";
    REQUEST_SENSE = 0x03, "SPC-4 section 6.39.";
    READ_6 = 0x08, "SBC-3 section 5.10.";
    WRITE_6 = 0x0a, "SBC-3 section 5.35.";
    INQUIRY = 0x12, "SPC-4 section 6.6.";
    MODE_SELECT_6 = 0x15, "SPC-4 section 6.11.";
    MODE_SENSE_6 = 0x1a, "SPC-4 section 6.13.";
    START_STOP_UNIT = 0x1b, "SBC-3 section 5.25.";
    READ_CAPACITY_10 = 0x25, "SBC-3 section 5.15.";
    READ_10 = 0x28, "SBC-3 section 5.11.";
    WRITE_10 = 0x2a, "SBC-3 section 5.36.";
    WRITE_VERIFY_10 = 0x2e, "SBC-3 section 5.40.";
    VERIFY_10 = 0x2f, "SBC-3 section 5.29.";
    PREFETCH_10 = 0x34, "SBC-3 section 5.8.";
    SYNCHRONIZE_CACHE_10 = 0x35, "SBC-3 section 5.26.";
    WRITE_SAME_10 = 0x41, "SBC-3 section 5.44.";
    UNMAP = 0x42, "SBC-3 section 5.28.";
    MODE_SELECT_10 = 0x55, "SPC-4 section 6.12.";
    MODE_SENSE_10 = 0x5a, "SPC-4 section 6.14.";
    PERSISTENT_RESERVE_IN = 0x5e, "SPC-4 section 6.15.";
    PERSISTENT_RESERVE_OUT = 0x5f, "SPC-4 section 6.16.";
    EXTENDED_COPY = 0x83, "SPC-4 sections 6.4 and 6.5.";
    RECEIVE_COPY_RESULTS = 0x84, "SPC-4 section 5.17.";
    READ_16 = 0x88, "SBC-3 section 5.13.";
    COMPARE_AND_WRITE = 0x89, "SBC-3 section 5.3.";
    WRITE_16 = 0x8a, "SBC-3 section 5.38.";
    ORWRITE_16 = 0x8b, "SBC-3 section 5.6.";
    WRITE_VERIFY_16 = 0x8e, "SBC-3 section 5.42.";
    VERIFY_16 = 0x8f, "SBC-3 section 5.31.";
    PREFETCH_16 = 0x90, "SBC-3 section 5.9.";
    SYNCHRONIZE_CACHE_16 = 0x91, "SBC-3 section 5.27.";
    WRITE_SAME_16 = 0x93, "SBC-3 section 5.45.";
    SERVICE_ACTION_IN_16 = 0x9e, "SPC-4 section 4.2.5.";
    REPORT_LUNS = 0xa0, "SPC-4 section 6.33.";
    MAINTENANCE_IN = 0xa3, "SPC-4 section 6.7.";
    READ_12 = 0xa8, "SBC-3 section 5.12.";
    WRITE_12 = 0xaa, "SBC-3 section 5.37.";
    WRITE_VERIFY_12 = 0xae, "SBC-3 section 5.41.";
    VERIFY_12 = 0xaf, "SBC-3 section 5.30.";
    REPORT_TARGET_PORT_GROUPS = 0x0a, "A service action of MAINTENANCE IN: SPC-4 section 6.37.";
    REPORT_SUPPORTED_OPCODES = 0x0c, "A service action of MAINTENANCE IN.";
    READ_CAPACITY_16 = 0x10, "A service action of SERVICE ACTION IN(16).";
    GET_LBA_STATUS = 0x12, "A service action of SERVICE ACTION IN(16).";
}

/// One command: its operation code, service action, and which bits of its CDB are looked at, by byte from the second
/// on (SPC-4 section 6.35.3).
struct Command(u8, Option<u8>, &'static [u8]);

#[rustfmt::skip]
const COMMANDS: [Command; 52] = [
    Command(TEST_UNIT_READY, None, &[0, 0, 0, 0, 0]),
    Command(REQUEST_SENSE, None, &[1, 0, 0, 0xff, 0]),
    Command(READ_6, None, &[0x1f, 0xff, 0xff, 0xff, 0]),
    Command(WRITE_6, None, &[0x1f, 0xff, 0xff, 0xff, 0]),
    Command(INQUIRY, None, &[0x01, 0xff, 0xff, 0xff, 0]),
    Command(MODE_SELECT_6, None, &[0x11, 0, 0, 0xff, 0]),
    Command(MODE_SENSE_6, None, &[0x08, 0xff, 0xff, 0xff, 0]),
    Command(START_STOP_UNIT, None, &[0x01, 0, 0x0f, 0xf7, 0]),
    Command(READ_CAPACITY_10, None, &[0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01, 0]),
    Command(READ_10, None, &[0xfa, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0]),
    Command(WRITE_10, None, &[0xfa, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0]),
    Command(WRITE_VERIFY_10, None, &[0xf2, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0]),
    Command(VERIFY_10, None, &[0xf6, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0]),
    Command(PREFETCH_10, None, &[0x02, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0]),
    Command(SYNCHRONIZE_CACHE_10, None, &[0x02, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0]),
    Command(WRITE_SAME_10, None, &[0xf8, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0]),
    Command(UNMAP, None, &[0x01, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    Command(MODE_SELECT_10, None, &[0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    Command(MODE_SENSE_10, None, &[0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_IN, Some(0), &[0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_IN, Some(1), &[0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_IN, Some(2), &[0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_IN, Some(3), &[0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_OUT, Some(0), &[0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_OUT, Some(1), &[0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_OUT, Some(2), &[0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_OUT, Some(3), &[0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_OUT, Some(4), &[0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_OUT, Some(5), &[0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_OUT, Some(6), &[0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    Command(PERSISTENT_RESERVE_OUT, Some(7), &[0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    Command(EXTENDED_COPY, Some(0), &[0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(RECEIVE_COPY_RESULTS, Some(0), &[0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(RECEIVE_COPY_RESULTS, Some(3), &[0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(READ_16, None, &[0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(COMPARE_AND_WRITE, None, &[0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0, 0]),
    Command(WRITE_16, None, &[0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(ORWRITE_16, None, &[0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(WRITE_VERIFY_16, None, &[0xf2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(VERIFY_16, None, &[0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(PREFETCH_16, None, &[0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(SYNCHRONIZE_CACHE_16, None, &[0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(WRITE_SAME_16, None, &[0xf9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(SERVICE_ACTION_IN_16, Some(READ_CAPACITY_16), &[0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(SERVICE_ACTION_IN_16, Some(GET_LBA_STATUS), &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(REPORT_LUNS, None, &[0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(MAINTENANCE_IN, Some(REPORT_TARGET_PORT_GROUPS), &[0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(MAINTENANCE_IN, Some(REPORT_SUPPORTED_OPCODES), &[0x1f, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(READ_12, None, &[0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(WRITE_12, None, &[0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(WRITE_VERIFY_12, None, &[0xf2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    Command(VERIFY_12, None, &[0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
];

/// All commands: operation code and service action.
#[cfg(test)]
pub(crate) fn all_known() -> impl Iterator<Item = (u8, Option<u8>)> {
    COMMANDS.iter().map(|command| (command.0, command.1))
}

/// Whether there is such a command.
pub(crate) fn is_known(opcode: u8) -> bool {
    COMMANDS.iter().any(|command| command.0 == opcode)
}

impl Command {
    fn cdb_len(&self) -> u16 {
        self.2.len() as u16 + 1
    }
}

/// Command timeouts (SPC-4 section 6.35.4): nothing is said.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The commands of a disk: those of reservations, COMPARE AND WRITE and ORWRITE are not offered everywhere.
fn there(disk: &Disk) -> impl Iterator<Item = &'static Command> + Clone + use<> {
    let (reserves, compares) = (disk.reserves, disk.compares);
    let is_of_reservations = |opcode| matches!(opcode, PERSISTENT_RESERVE_IN | PERSISTENT_RESERVE_OUT);
    let commands = COMMANDS.iter().filter(move |command| reserves || !is_of_reservations(command.0));
    commands.filter(move |command| compares || !matches!(command.0, COMPARE_AND_WRITE | ORWRITE_16))
}

pub(crate) fn report(disk: &Disk, cdb: Cdb<'_>) -> Plan {
    let (has_timeouts, options) = (cdb.has(2, 0x80), cdb.0[2] & 7);
    let (opcode, action, room) = (cdb.0[3], cdb.u16(4), cdb.u32(6));
    if options == 0 {
        return Plan::data(all(disk, has_timeouts), room);
    }
    let mut of_opcode = there(disk).filter(|command| command.0 == opcode).peekable();
    let takes_action = of_opcode.peek().is_some_and(|command| command.1.is_some());
    let is_known = of_opcode.peek().is_some();
    let is_asked = |command: &&Command| command.1.is_none_or(|known| u16::from(known) == action);
    let command = of_opcode.find(is_asked);
    match options {
        1 if takes_action => Plan::Check(Sense::FIELD),
        2 if is_known && !takes_action => Plan::Check(Sense::FIELD),
        1..=3 => Plan::data(one(command, has_timeouts), room),
        _ => Plan::Check(Sense::FIELD),
    }
}

/// All commands (SPC-4 section 6.35.2).
fn all(disk: &Disk, has_timeouts: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for command in there(disk) {
        let len = command.cdb_len().to_be_bytes();
        let flags = u8::from(has_timeouts) << 1 | u8::from(command.1.is_some());
        bytes.extend_from_slice(&[command.0, 0, 0, command.1.unwrap_or(0), 0, flags, len[0], len[1]]);
        if has_timeouts {
            bytes.extend_from_slice(&TIMEOUTS);
        }
    }
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// One command (SPC-4 section 6.35.3), or that there is none.
fn one(command: Option<&Command>, has_timeouts: bool) -> Vec<u8> {
    const NOT_SUPPORTED: u8 = 1;
    const AS_STANDARD: u8 = 3;
    let Some(command) = command else { return vec![0, NOT_SUPPORTED, 0, 0] };
    let len = command.cdb_len().to_be_bytes();
    let mut bytes = vec![0, u8::from(has_timeouts) << 7 | AS_STANDARD, len[0], len[1], command.0];
    bytes.extend_from_slice(command.2);
    if has_timeouts {
        bytes.extend_from_slice(&TIMEOUTS);
    }
    bytes
}
