//! Snapshots: an operator makes, clones, reads and deletes them while clients write and faults happen.
//!
//! A snapshot is a read of everything at one instant between its request and its answer. Which instant that can have
//! been is narrowed by what it holds: not before any write in it was asked for. So when the history is checked, every
//! sector that was read of a snapshot counts as a read of the volume in the time that is left. A write that had been
//! acknowledged by then and is missing is noticed, whatever group it is in. What is read of a clone, which nobody
//! writes, is read of its snapshot. A second volume is cut with the first or alone: [`relay`] looks at both.
//!
//! - [`cuts`]: how snapshots are made.
//! - [`ends`]: how snapshots, volumes and layers come and go.
//! - [`relay`]: writes that depend on each other, in all groups and both volumes.

pub(crate) mod cuts;
mod ends;
pub(crate) mod relay;

use crate::Mode;
use crate::contents::{Value, ZERO};
use crate::events::Event;
use crate::history::{Seen, Stamp};
use crate::plan::Plan;
use crate::random::Random;
use crate::report::Invariant;
use crate::world::{SECOND, VOLUME, World};
use azekura_base::NodeId;
use cuts::{Cuts, Done, Wish};
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
    pub(crate) cuts: Cuts,
    pub(crate) relay: Relay,
    made: BTreeMap<String, Snapshot>,
    /// What is not deleted: snapshots and clones.
    kept: BTreeSet<String>,
    /// Clones, and what they were made from.
    clones: BTreeMap<String, String>,
    named: u64,
    /// All of them are to be deleted.
    pub(crate) clearing: bool,
    pub(crate) random: Random,
}

impl Snapshots {
    pub(crate) fn new(plan: &Plan, random: Random) -> Snapshots {
        Snapshots {
            on: plan.mode == Mode::Snapshots,
            cuts: Cuts::default(),
            relay: Relay::new(plan.chunks),
            made: BTreeMap::new(),
            kept: BTreeSet::new(),
            clones: BTreeMap::new(),
            named: 0,
            clearing: false,
            random,
        }
    }

    /// None is being made, and nothing is being read or written by the relay.
    pub(crate) fn idle(&self) -> bool {
        self.cuts.under_way.is_empty() && self.relay.idle()
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

impl World {
    /// The operator does something.
    pub(crate) fn snapshot_turn(&mut self) {
        if !self.snapshots.on || !self.working && !self.snapshots.clearing {
            return;
        }
        let again = self.now + self.snapshots.random.spread_millis(20, 1500);
        self.queue.push(again, Event::Snapshot);
        if self.snapshots.clearing {
            let kept: Vec<String> = self.snapshots.kept.iter().cloned().collect();
            kept.into_iter().for_each(|name| self.delete(&name));
            return;
        }
        self.relay_looks();
        match self.snapshots.random.below(100) {
            0..45 => self.make_snapshots(),
            45..65 => self.read_some_snapshot(),
            65..72 => self.clone_some_snapshot(),
            _ => {
                let kept: Vec<String> = self.snapshots.kept.iter().cloned().collect();
                if !kept.is_empty() {
                    let name = self.snapshots.random.pick(&kept).clone();
                    self.delete(&name);
                }
            }
        }
    }

    /// Asks for snapshots at one of the nodes.
    fn make_snapshots(&mut self) {
        let reaching = self.reaching();
        if !self.snapshots.cuts.under_way.is_empty() || self.snapshots.kept.len() >= KEPT_MAX || reaching.is_empty() {
            return;
        }
        let random = &mut self.snapshots.random;
        let from = *random.pick(&reaching);
        let volumes: &[&str] = match random.below(10) {
            0..5 => &[VOLUME, SECOND],
            5 => &[SECOND],
            _ => &[VOLUME],
        };
        self.snapshots.named += 1;
        let name = self.snapshots.named.to_string();
        let wishes = volumes.iter().map(|volume| Wish::snapshot(volume, &name)).collect();
        self.begin_cut(from, wishes);
        self.relay_starts();
    }

    /// A cut is finished.
    fn snapshots_made(&mut self, id: u64, done: &Done) {
        for wish in &done.wishes {
            let name = wish.full_name();
            self.snapshots.kept.insert(name.clone());
            if wish.volume == VOLUME {
                let snapshot = Snapshot { asked: done.asked, answered: done.answered, seen: BTreeMap::new() };
                self.snapshots.made.insert(name, snapshot);
            }
        }
        self.relay_keeps(id, done);
        self.relay_starts();
    }

    fn delete(&mut self, name: &str) {
        if !self.snapshots.kept.remove(name) {
            return;
        }
        if self.snapshots.clones.contains_key(name) {
            self.delete_volume(name);
        } else {
            self.snapshots.relay.forget(name);
            self.delete_snapshot(name);
        }
    }

    fn clone_some_snapshot(&mut self) {
        let snapshots = self.snapshots.kept();
        if snapshots.is_empty() || self.snapshots.kept.len() >= KEPT_MAX {
            return;
        }
        let from = self.snapshots.random.pick(&snapshots).clone();
        let Some(size) = self.configuration.view().volumes.get(&from).map(|from| from.size) else { return };
        if self.snapshots.clones.contains_key(&from) {
            return; // A clone is a volume: it has to be cut before it can be cloned.
        }
        self.snapshots.named += 1;
        let name = format!("clone{}", self.snapshots.named);
        if self.clone_snapshot(&from, &name, size).is_some() {
            self.snapshots.clones.insert(name.clone(), from);
            self.snapshots.kept.insert(name);
        }
    }

    fn read_some_snapshot(&mut self) {
        let kept = self.snapshots.kept();
        if kept.is_empty() {
            return;
        }
        let name = self.snapshots.random.pick(&kept).clone();
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.snapshots.random.pick(&nodes);
        self.read_part_of_snapshot(node, &name);
    }

    /// What was read of a snapshot.
    pub(crate) fn saw_snapshot(&mut self, name: &str, sector: u64, value: Value) {
        if let Err(what) = self.snapshots.saw(name, sector, value) {
            self.violate(Invariant::Snapshot, what);
        }
    }
}
