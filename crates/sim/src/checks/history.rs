//! What clients did to every sector, and when.

use crate::kernel::time::Stamp;
use crate::workloads::contents::{Value, ZERO};
use std::collections::{BTreeMap, BTreeSet};

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

/// One write of one sector that was carried out because the sector held what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) value: Value,
    pub(crate) expected: Value,
    /// Its client knows that it has happened; else it may have.
    pub(crate) is_certain: bool,
}

/// One sector's life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Register {
    pub(crate) writes: Vec<Written>,
    pub(crate) reads: Vec<Seen>,
    /// Those of the writes that expected something.
    pub(crate) compared: Vec<Compared>,
    /// Values of which a client was told that something else was there.
    pub(crate) differed: Vec<Seen>,
    /// Writes of unknown outcome that have an end because a later one was acknowledged: they happened by then, or
    /// never.
    pub(crate) overtaken: BTreeSet<Value>,
    /// Writes of unknown outcome that come before a later one, if they happen at all, and when that one was
    /// acknowledged.
    pub(crate) replaced: BTreeMap<Value, Stamp>,
}

impl Register {
    /// True when clients have zeroed the sector, so that zeros do not name their writer.
    pub(crate) fn is_zeroed(&self) -> bool {
        self.writes.iter().any(|write| write.value == ZERO)
    }

    /// Whoever reads after a write was replaced reads something else.
    pub(crate) fn check_replaced(&self) -> Result<(), String> {
        let late = |read: &&Seen| self.replaced.get(&read.value).is_some_and(|at| read.start > *at);
        self.reads.iter().find(late).map_or(Ok(()), |read| {
            let (value, start) = (read.value, read.start);
            Err(format!("a read that began at {start} saw operation {value}, which its host had overwritten by then"))
        })
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
            let is_certain = write.end != NEVER && !self.overtaken.contains(&write.value);
            if !is_certain && !seen {
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
        let Some(register) = self.registers.get_mut(&sector) else { return };
        for write in register.writes.iter_mut().filter(|write| write.value == value && write.end == NEVER) {
            write.end = end;
            register.overtaken.insert(value);
        }
    }

    /// A write of unknown outcome has happened, or never will, before one that was acknowledged at `at`.
    pub(crate) fn replaced(&mut self, sector: u64, value: Value, at: Stamp) {
        let replaced = &mut self.registers.entry(sector).or_default().replaced;
        replaced.entry(value).and_modify(|first| *first = at.min(*first)).or_insert(at);
    }

    pub(crate) fn saw(&mut self, sector: u64, seen: Seen) {
        self.registers.entry(sector).or_default().reads.push(seen);
    }

    pub(crate) fn compared(&mut self, sector: u64, compared: Compared) {
        self.registers.entry(sector).or_default().compared.push(compared);
    }

    pub(crate) fn differed(&mut self, sector: u64, expected: Seen) {
        self.registers.entry(sector).or_default().differed.push(expected);
    }

    pub(crate) fn registers(&self) -> impl Iterator<Item = (u64, &Register)> {
        self.registers.iter().map(|(sector, register)| (*sector, register))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::linearizable::check;

    /// Write 5 of sector 1 fails at once, zeros are read later, and write 6 is acknowledged after that. Gives whether
    /// it may be that write 5 happened by 20 or never, when it was seen by a read that began at this time, or by none.
    fn may_have_happened_by_20(seen: Option<Stamp>) -> bool {
        let mut history = History::default();
        history.wrote(1..2, Written { value: 5, start: 10, end: NEVER });
        history.saw(1, Seen { value: ZERO, start: 30, end: 31 });
        if let Some(start) = seen {
            history.saw(1, Seen { value: 5, start, end: start + 1 });
        }
        history.wrote(1..2, Written { value: 6, start: 40, end: 50 });
        history.ends_by(1, 5, 50);
        let (_, register) = history.registers().next().expect("the sector was touched");
        assert!(check(register).is_ok(), "without the bound all of that may be");
        register.bounded(|value| (value == 5).then_some(20)).is_ok_and(|bounded| check(&bounded).is_ok())
    }

    #[test]
    fn a_write_that_was_overtaken_and_never_seen_need_not_have_happened() {
        assert!(may_have_happened_by_20(None));
        assert!(!may_have_happened_by_20(Some(35)), "it happened after zeros were read");
    }
}
