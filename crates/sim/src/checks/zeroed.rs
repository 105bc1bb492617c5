//! Invariant 2 where clients zero and trim: zeros have many writers, so only what certainly contradicts is refused.
//!
//! A read may return a value if some write of it started before the read ended, and was not certainly replaced: no
//! other write started after it had ended and itself ended before the read started.

use crate::checks::history::{Register, Written};
use crate::workloads::contents::ZERO;

/// Checks one sector.
///
/// # Errors
/// Says which read can't be explained.
pub(crate) fn check(register: &Register) -> Result<(), String> {
    let initial = Written { value: ZERO, start: 0, end: 0 };
    for read in &register.reads {
        let sources = register.writes.iter().chain([&initial]).filter(|write| write.value == read.value);
        let explained = sources.filter(|source| source.start < read.end).any(|source| {
            !register
                .writes
                .iter()
                .any(|other| other.value != read.value && source.end < other.start && other.end < read.start)
        });
        if !explained {
            return Err(format!(
                "a read at {}..{} returned {}, which nobody wrote or which had been replaced",
                read.start, read.end, read.value
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::history::{NEVER, Seen};

    fn holds(writes: &[(u64, u64, u64)], read: (u64, u64, u64)) -> bool {
        let writes = writes.iter().map(|&(value, start, end)| Written { value, start, end }).collect();
        let reads = vec![Seen { value: read.0, start: read.1, end: read.2 }];
        check(&Register { writes, reads, ..Register::default() }).is_ok()
    }

    #[test]
    fn replaced_values_are_noticed() {
        assert!(holds(&[(1, 1, 2), (ZERO, 3, 4)], (ZERO, 5, 6)));
        assert!(!holds(&[(1, 1, 2), (ZERO, 3, 4)], (1, 5, 6)));
        assert!(!holds(&[(ZERO, 1, 2), (1, 3, 4)], (ZERO, 5, 6)));
        assert!(holds(&[(ZERO, 1, NEVER), (1, 3, 4)], (ZERO, 5, 6)));
        assert!(holds(&[(1, 3, 9)], (ZERO, 5, 6)));
        assert!(!holds(&[(1, 7, 9)], (1, 5, 6)));
    }
}
