//! Which commands a reservation lets through (SPC-4 section 5.13.1, and SBC-3's table for block devices).

use super::super::opcodes as op;
use azekura_model::{Access, CommandKind, Rights};

/// What a command does, as far as reservations care. What is not known here is answered with INVALID COMMAND OPERATION
/// CODE whatever is reserved, and tells nothing but that.
#[must_use]
pub fn kind_of(cdb: &[u8; 16]) -> CommandKind {
    let action = cdb[1] & 0x1f;
    match cdb[0] {
        op::MODE_SENSE_6 | op::MODE_SENSE_10 => CommandKind::Read,
        op::READ_6 | op::READ_10 | op::READ_12 | op::READ_16 => CommandKind::Read,
        op::VERIFY_10 | op::VERIFY_12 | op::VERIFY_16 => CommandKind::Read,
        op::PREFETCH_10 | op::PREFETCH_16 => CommandKind::Read,
        op::SERVICE_ACTION_IN_16 if action == op::GET_LBA_STATUS => CommandKind::Read,
        op::MAINTENANCE_IN if action == op::REPORT_SUPPORTED_OPCODES => CommandKind::Read,
        op::WRITE_6 | op::WRITE_10 | op::WRITE_12 | op::WRITE_16 => CommandKind::Write,
        op::WRITE_VERIFY_10 | op::WRITE_VERIFY_12 | op::WRITE_VERIFY_16 => CommandKind::Write,
        op::WRITE_SAME_10 | op::WRITE_SAME_16 | op::UNMAP | op::COMPARE_AND_WRITE => CommandKind::Write,
        op::ORWRITE_16 | op::EXTENDED_COPY | op::RECEIVE_COPY_RESULTS => CommandKind::Write,
        op::SYNCHRONIZE_CACHE_10 | op::SYNCHRONIZE_CACHE_16 => CommandKind::Write,
        op::MODE_SELECT_6 | op::MODE_SELECT_10 => CommandKind::Write,
        // Starting a unit goes through, all else that the command can say does not.
        op::START_STOP_UNIT if cdb[4] & 0xf0 != 0 || cdb[4] & 0x01 == 0 => CommandKind::Write,
        _ => CommandKind::Inform,
    }
}

/// Whether a command of somebody with these rights goes through.
#[must_use]
pub fn access(cdb: &[u8; 16], rights: Rights) -> Access {
    rights.access(kind_of(cdb))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns of the standards' tables for somebody who is not registered: write exclusive kinds, exclusive access
    /// kinds. All commands that there are, with bytes 1 and 4.
    #[rustfmt::skip]
    const TABLE: [(u8, u8, u8, bool, bool); 44] = [
        (0x00, 0, 0, true, true), (0x03, 0, 0, true, true), (0x08, 0, 0, true, false), (0x0a, 0, 0, false, false),
        (0x12, 0, 0, true, true), (0x15, 0, 0, false, false), (0x1a, 0, 0, true, false),
        (0x1b, 0, 1, true, true), (0x1b, 0, 0, false, false), (0x1b, 0, 0x11, false, false),
        (0x25, 0, 0, true, true), (0x28, 0, 0, true, false), (0x2a, 0, 0, false, false), (0x2e, 0, 0, false, false),
        (0x2f, 0, 0, true, false), (0x34, 0, 0, true, false), (0x35, 0, 0, false, false), (0x41, 0, 0, false, false),
        (0x42, 0, 0, false, false), (0x55, 0, 0, false, false), (0x5a, 0, 0, true, false),
        (0x5e, 0, 0, true, true), (0x5f, 0, 0, true, true),
        (0x88, 0, 0, true, false), (0x8a, 0, 0, false, false), (0x8e, 0, 0, false, false), (0x8f, 0, 0, true, false),
        (0x90, 0, 0, true, false), (0x91, 0, 0, false, false), (0x93, 0, 0, false, false),
        (0x9e, 0x10, 0, true, true), (0x9e, 0x12, 0, true, false), (0xa0, 0, 0, true, true),
        (0xa3, 0x0a, 0, true, true), (0xa3, 0x0c, 0, true, false), (0xa8, 0, 0, true, false), (0xaa, 0, 0, false, false),
        (0xae, 0, 0, false, false), (0xaf, 0, 0, true, false), (0x89, 0, 0, false, false),
        (0x83, 0, 0, false, false), (0x84, 0, 0, false, false), (0x84, 3, 0, false, false), (0x8b, 0, 0, false, false),
    ];

    #[test]
    fn commands_go_through_as_the_tables_say() {
        for (opcode, first, fourth, may_read, may_nothing) in TABLE {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1], cdb[4]) = (opcode, first, fourth);
            for (rights, goes) in [(Rights::All, true), (Rights::Read, may_read), (Rights::Nothing, may_nothing)] {
                assert_eq!(access(&cdb, rights) == Access::Allowed, goes, "{opcode:#x} {first:#x} {rights:?}");
            }
        }
    }

    /// A command that is added later has to be put into the table.
    #[test]
    fn every_command_is_in_the_table() {
        for (opcode, action) in op::all_known() {
            // Those of reservations themselves are the same whatever their service action.
            let is_own = matches!(opcode, op::PERSISTENT_RESERVE_IN | op::PERSISTENT_RESERVE_OUT);
            let is_it = |first: u8| is_own || action.is_none_or(|action| action == first);
            let has = TABLE.iter().any(|row| row.0 == opcode && is_it(row.1));
            assert!(has, "{opcode:#x} {action:?}");
        }
    }
}
