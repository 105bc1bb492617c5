//! Which commands a reservation lets through (Base section 8.19, Command Behavior in the Presence of a Reservation).

use azekura_model::CommandKind;

/// What a command of an I/O queue does, as far as reservations care. What is not known here is answered with Invalid
/// Command Opcode whatever is reserved; commands of reservations go through, and the record says what comes of them.
#[must_use]
pub fn kind_of(opcode: u8) -> CommandKind {
    match opcode {
        // Read, Compare, Verify.
        0x02 | 0x05 | 0x0c => CommandKind::Read,
        // Flush, Write, Write Uncorrectable, Write Zeroes, Dataset Management, Copy.
        0x00 | 0x01 | 0x04 | 0x08 | 0x09 | 0x19 => CommandKind::Write,
        _ => CommandKind::Inform,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Entry, Queue, Sgl, reservation};
    use azekura_model::{Access, Rights};

    /// The columns of the standard's table for a host that is not registered: write exclusive kinds, exclusive access
    /// kinds.
    #[rustfmt::skip]
    const TABLE: [(u8, bool, bool); 13] = [
        (0x00, false, false), (0x01, false, false), (0x02, true, false), (0x04, false, false), (0x05, true, false),
        (0x08, false, false), (0x09, false, false), (0x0c, true, false), (0x0d, true, true), (0x0e, true, true),
        (0x11, true, true), (0x15, true, true), (0x19, false, false),
    ];

    #[test]
    fn commands_go_through_as_the_table_says() {
        for (opcode, may_read, may_nothing) in TABLE {
            for (rights, goes) in [(Rights::All, true), (Rights::Read, may_read), (Rights::Nothing, may_nothing)] {
                assert_eq!(rights.access(kind_of(opcode)) == Access::Allowed, goes, "{opcode:#x} {rights:?}");
            }
        }
    }

    /// A command that is added later has to be put into the table.
    #[test]
    fn every_command_is_in_the_table() {
        for opcode in 0..=u8::MAX {
            let mut entry = Entry::new(opcode, 1, &Sgl::Transport { len: 0 });
            if matches!(opcode, reservation::ACQUIRE | reservation::RELEASE) {
                entry.put_dword(10, 1 << 8);
            }
            if matches!(Command::of(&entry, Queue::Io), Ok(Command::Io(_))) {
                assert!(TABLE.iter().any(|row| row.0 == opcode), "{opcode:#x}");
            }
        }
    }
}
