//! What clients did to every sector, and when.

use crate::kernel::time::Stamp;
use crate::workloads::contents::{Value, ZERO};
use std::collections::BTreeMap;

/// The end of a write whose outcome is unknown: it may happen at any later time, or never.
pub(crate) const NEVER: Stamp = Stamp::MAX;

/// One write of one sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) value: Value,
    pub(crate) start: Stamp,
    pub(crate) end: Stamp,
}

/// One read of one sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) value: Value,
    pub(crate) start: Stamp,
    pub(crate) end: Stamp,
}

/// One sector's life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Register {
    pub(crate) writes: Vec<Written>,
    pub(crate) reads: Vec<Seen>,
}

impl Register {
    /// True when clients have zeroed the sector, so that zeros do not name their writer.
    pub(crate) fn is_zeroed(&self) -> bool {
        self.writes.iter().any(|write| write.value == ZERO)
    }

    /// The same life, with what `latest` says of writes: it happened by then, or never.
    ///
    /// # Errors
    /// When a write that began later has happened.
    pub(crate) fn bounded(&self, latest: impl Fn(Value) -> Option<Stamp>) -> Result<Register, String> {
        let mut register = self.clone();
        for write in register.writes.iter_mut().filter(|write| write.value != ZERO) {
            let Some(latest) = latest(write.value) else { continue };
            let seen = self.reads.iter().any(|read| read.value == write.value);
            if write.end == NEVER && !seen {
                continue;
            }
            if write.start > latest {
                return Err(format!("operation {} began at {}, after {latest}", write.value, write.start));
            }
            write.end = write.end.min(latest);
        }
        Ok(register)
    }
}

/// All sectors that were touched.
#[derive(Default)]
pub(crate) struct History {
    registers: BTreeMap<u64, Register>,
}

impl History {
    pub(crate) fn wrote(&mut self, sectors: impl Iterator<Item = u64>, written: Written) {
        sectors.for_each(|sector| self.registers.entry(sector).or_default().writes.push(written));
    }

    /// A write of unknown outcome happened by `end`, or what it wrote was overwritten then.
    pub(crate) fn ends_by(&mut self, sector: u64, value: Value, end: Stamp) {
        let writes = self.registers.get_mut(&sector).into_iter().flat_map(|register| &mut register.writes);
        writes.filter(|write| write.value == value && write.end == NEVER).for_each(|write| write.end = end);
    }

    pub(crate) fn saw(&mut self, sector: u64, seen: Seen) {
        self.registers.entry(sector).or_default().reads.push(seen);
    }

    pub(crate) fn registers(&self) -> impl Iterator<Item = (u64, &Register)> {
        self.registers.iter().map(|(sector, register)| (*sector, register))
    }
}
