//! Snapshots: an operator makes, clones, reads and deletes them while clients write and faults happen.
//!
//! A snapshot is a read of everything at one instant between its request and its answer. Which instant that can have
//! been is narrowed by what it holds: not before any write in it was asked for. So when the history is checked, every
//! sector that was read of a snapshot counts as a read of the volume in the time that is left. A write that had been
//! acknowledged by then and is missing is noticed, whatever group it is in. What is read of a clone, which nobody
//! writes, is read of its snapshot. A second volume is cut with the first or alone: [`relay`] looks at both.
//!
//! - `steps`: what the operator does.
//! - [`relay`]: writes that depend on each other, in all groups and both volumes.

mod steps;

pub(crate) mod relay;

use crate::checks::history::Seen;
use crate::kernel::time::Stamp;
use crate::plan::{Mode, Plan};
use crate::workloads::contents::{Value, ZERO};
use relay::Relay;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Snapshots and clones that are kept at once.
const KEPT_MAX: usize = 6;
/// How long the layers of deleted snapshots may take to go when nothing else happens: a store rests for half a minute
/// before it ends a segment early.
pub(crate) const CLEARING_MAX: Duration = Duration::from_secs(400);

/// A snapshot of the first volume, also one that is deleted.
struct Snapshot {
    asked: Stamp,
    answered: Stamp,
    /// What was read of it.
    seen: BTreeMap<u64, Value>,
}

/// All snapshots.
pub(crate) struct Snapshots {
    /// Made in this run by an operator.
    pub(crate) on: bool,
    pub(crate) relay: Relay,
    made: BTreeMap<String, Snapshot>,
    /// What is not deleted: snapshots and clones.
    kept: BTreeSet<String>,
    /// Clones, and what they were made from.
    clones: BTreeMap<String, String>,
    named: u64,
    /// All of them are to be deleted.
    pub(crate) clearing: bool,
}

impl Snapshots {
    pub(crate) fn new(plan: &Plan) -> Snapshots {
        Snapshots {
            on: plan.mode == Mode::Snapshots,
            relay: Relay::new(plan.chunks),
            made: BTreeMap::new(),
            kept: BTreeSet::new(),
            clones: BTreeMap::new(),
            named: 0,
            clearing: false,
        }
    }

    /// Nothing is being read or written by the relay.
    pub(crate) fn idle(&self) -> bool {
        self.relay.idle()
    }

    /// Those of the first volume that can be read, and clones of them.
    pub(crate) fn kept(&self) -> Vec<String> {
        self.kept.iter().filter(|name| self.made.contains_key(self.origin(name))).cloned().collect()
    }

    /// The snapshot that a name stands for.
    fn origin<'a>(&'a self, name: &'a str) -> &'a str {
        self.clones.get(name).map_or(name, String::as_str)
    }

    /// A sector of a snapshot was read.
    ///
    /// # Errors
    /// When it held something else before.
    pub(crate) fn saw(&mut self, name: &str, sector: u64, value: Value) -> Result<(), String> {
        let origin = self.origin(name).to_owned();
        let Some(snapshot) = self.made.get_mut(&origin) else { return Ok(()) };
        let before = *snapshot.seen.entry(sector).or_insert(value);
        if before == value { Ok(()) } else { Err(format!("sector {sector} of {name} was {before} and is {value}")) }
    }

    /// What was read of snapshots, by sector, as reads of the volume; `started` says when a write was asked for.
    ///
    /// # Errors
    /// When a snapshot holds what was asked for after it was there.
    pub(crate) fn reads(
        &self,
        started: impl Fn(u64, Value) -> Option<Stamp>,
    ) -> Result<BTreeMap<u64, Vec<Seen>>, String> {
        let mut reads: BTreeMap<u64, Vec<Seen>> = BTreeMap::new();
        for (name, Snapshot { asked, answered, seen, .. }) in &self.made {
            let mut start = *asked;
            for (sector, value) in seen.iter().filter(|(_, value)| **value != ZERO) {
                let begun = started(*sector, *value).unwrap_or(0);
                if begun > *answered {
                    return Err(format!(
                        "{name}, there at {answered}, holds operation {value}, which began at {begun}"
                    ));
                }
                start = start.max(begun);
            }
            for (sector, value) in seen {
                reads.entry(*sector).or_default().push(Seen { value: *value, start, end: *answered });
            }
        }
        Ok(reads)
    }
}
