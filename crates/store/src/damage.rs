//! Leaves of the saved map that can't be used: they cost their chunk on this copy, and nothing else.
//!
//! Such a leaf is replaced by one in which nothing is known of any block, with the stamps of the lost one, so that
//! records of the log find it as if it were that: what the lost leaf had seen is passed over, what came later is
//! applied. It is saved like any other, and so are the leaves of descendants, in which what they inherited becomes
//! unknown, too. Readers get an error and go to another copy; a group that is told of it has the blocks written anew
//! from there, like other damaged blocks (docs/decisions/0015-saved-map.md).
//!
//! The segments go on counting what the leaf owned: these blocks are *ghosts*. They are taken off a segment when
//! collection has looked at all of it and found that no leaf owns anything there.
//!
//! A leaf that the database refuses to read for the moment is asked for again: readers get an error at once, changes
//! wait. When that goes on, whoever knows the group says whether the leaf is given up ([`Store::overdue_leaves`]):
//! only where another copy has its blocks. The device may yet give it, and nobody else can.

use crate::cx::log_position;
use crate::effect::{Completion, Failure, MapError, ReadError};
use crate::groups::Pending;
use crate::leaf::{DamagedLeaf, Entry, Leaf, LeafKey, LeafStamps, SavedLeaf};
use crate::leaf_cache::{Content, SlotId};
use crate::ops::{Op, Step};
use crate::report::Report;
use crate::store::Store;
use azekura_base::{BlockIndex, LayerId, Sequence};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

/// A leaf that the map refuses to read, and that a change waits for, is asked for again after this time.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// When that has gone on for this time, the leaf is overdue; and again after each such time.
const OVERDUE: Duration = Duration::from_secs(10);
/// Damaged chunks that are remembered; others are found again by readers and scrubs.
const DAMAGED_MAX: usize = 4096;
/// Of those, the ones that are named in one answer.
const DAMAGED_PAGE: usize = 64;
/// The saved map is given up when it has done nothing for so long while it was asked for something.
const MAP_PATIENCE: Duration = Duration::from_secs(10);
/// Longer between two ticks counts as this long: the whole process may have stood still, and the map with it.
const TICK_MAX: Duration = Duration::from_secs(1);

/// Blocks of which nothing is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownBlocks {
    /// Whose leaf it is.
    pub key: LeafKey,
    /// Runs of blocks: the first, and how many.
    pub runs: Vec<(BlockIndex, u16)>,
}

/// What is known of leaves that can't be used.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// Leaves with blocks of which nothing is known.
    known: BTreeSet<LeafKey>,
    /// The last that was named.
    named: Option<LeafKey>,
    /// Leaves that the map refuses and that changes wait for.
    refused: BTreeMap<LeafKey, Refused>,
}

#[derive(Debug, Clone, Copy)]
struct Refused {
    since: Duration,
    /// `None` while it is being asked for.
    again_at: Option<Duration>,
    /// When it is named as overdue, again and again.
    overdue_at: Duration,
    /// Refused once more, it counts as damaged.
    given_up: bool,
}

impl Damage {
    pub fn new(saved: &[LeafKey]) -> Damage {
        Damage { known: saved.iter().copied().take(DAMAGED_MAX).collect(), ..Damage::default() }
    }

    pub fn found(&mut self, key: LeafKey) {
        if self.known.len() < DAMAGED_MAX {
            self.known.insert(key);
        }
    }

    /// A leaf is saved, or removed.
    pub fn saved(&mut self, key: &LeafKey, leaf: Option<&Leaf>) {
        if self.known.contains(key) && leaf.is_none_or(|leaf| !leaf.has_unknown()) {
            self.known.remove(key);
        }
    }
}

/// Whether the saved map does anything at all.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// What it has been asked for and has not done.
    under_way: u32,
    /// How long it has done none of that.
    silent: Duration,
}

impl Watchdog {
    pub fn asked(&mut self) {
        self.under_way += 1;
    }

    pub fn done(&mut self) {
        self.under_way -= 1;
        self.silent = Duration::ZERO;
    }

    /// Time passes. True when it is to be given up.
    fn tick(&mut self, passed: Duration) -> bool {
        if self.under_way > 0 {
            self.silent += passed.min(TICK_MAX);
        }
        self.silent >= MAP_PATIENCE
    }
}

impl Store {
    /// Blocks that this device should have and of which it knows nothing, a page at a time; each chunk is named again
    /// and again until they are known.
    pub fn unknown_blocks(&mut self) -> Vec<UnknownBlocks> {
        let from = self.damage.named.map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<LeafKey> =
            self.damage.known.range((from, Bound::Unbounded)).take(DAMAGED_PAGE).copied().collect();
        self.damage.named = page.last().copied().filter(|_| page.len() == DAMAGED_PAGE);
        let mut blocks = Vec::new();
        for key in page {
            match self.lookup(key) {
                Some(Content::Present(leaf)) => {
                    let runs = unknown_runs(&leaf);
                    if runs.is_empty() {
                        self.damage.known.remove(&key);
                    } else {
                        blocks.push(UnknownBlocks { key, runs });
                    }
                }
                Some(Content::Absent) => {
                    self.damage.known.remove(&key);
                }
                // Next time.
                Some(Content::Loading | Content::Broken(_)) | None => {}
            }
        }
        blocks
    }

    /// Puts a leaf of which nothing is known into the place of a damaged one; `Err` when leaves have to be loaded
    /// first.
    pub(crate) fn replace_broken(&mut self, slot: SlotId) -> Result<(), Step> {
        let key = self.cache.slot(slot).key;
        let Content::Broken(damaged) = self.cache.slot(slot).content.clone() else { return Ok(()) };
        let heirs = self.leaves_below(key)?;
        let generation = self.cx.segments().chain().back().map_or(0, |link| link.generation);
        let stamps = damaged.stamps.unwrap_or_else(|| self.latest_stamps(key));
        let ghosts = damaged.own.unwrap_or(0);
        self.cache.replace(slot, Leaf::unknown(stamps), ghosts, generation);
        self.cx.segments_mut().ghosts += u64::from(ghosts);
        self.layers.own(key.layer, -i64::from(ghosts));
        self.layers.leaf_made(key.layer);
        for heir in heirs {
            let (leaf, _) = self.cache.change(heir, generation);
            let inherited = |entry: &&mut Entry| entry.is_allocated() && !entry.is_own();
            leaf.entries.iter_mut().filter(inherited).for_each(|entry| *entry = Entry::unknown());
            let other = self.cache.slot(heir).key;
            self.cache.save_with(slot, other);
        }
        self.damage.found(key);
        self.cx.report(Report::LeafDamaged { key, what: damaged.what.clone() });
        Ok(())
    }

    /// The leaves of descendants that inherit something.
    fn leaves_below(&mut self, key: LeafKey) -> Result<Vec<SlotId>, Step> {
        let mut layers: Vec<LayerId> = self.layers.children(key.layer).collect();
        let (mut slots, mut missing) = (Vec::new(), false);
        while let Some(layer) = layers.pop() {
            let key = LeafKey { layer, ..key };
            match self.lookup(key) {
                Some(Content::Loading | Content::Broken(_)) | None => missing = true,
                Some(Content::Absent) => {}
                Some(Content::Present(leaf)) => {
                    if leaf.entries.iter().any(|entry| entry.is_allocated() && !entry.is_own()) {
                        slots.extend(self.cache.find(key));
                    }
                }
            }
            layers.extend(self.layers.children(layer));
        }
        if missing { Err(Step::Loading) } else { Ok(slots) }
    }

    /// Stamps that are not less than those of any leaf of the group that was saved: then nothing that such a leaf had
    /// seen is applied again out of turn.
    fn latest_stamps(&self, key: LeafKey) -> LeafStamps {
        let log_upto = self.cx.log().stamp().max(log_position(self.cx.log().durable_before(), usize::MAX));
        let group = self.groups.get(key.pg);
        let committed = group.map_or(Sequence::ZERO, |group| group.committed.max(group.committed_saved));
        // What waits to be applied to the chunk was never in it, but at replay.
        let waits = |write: &&Pending| {
            !write.applied && (write.info.header.range.layer, write.info.header.range.chunk) == (key.layer, key.chunk)
        };
        let first = group.and_then(|group| group.pending.iter().find(waits)).filter(|_| self.cx.is_running());
        let modified =
            first.map_or(committed, |write| committed.min(Sequence(write.info.header.sequence.0.saturating_sub(1))));
        LeafStamps { modified, log_upto, copied_upto: log_upto }
    }

    /// The saved map does not give a leaf now. Readers are told, what changes the chunk waits.
    pub(crate) fn leaf_refused(&mut self, key: LeafKey, error: &MapError) {
        let chunk = (key.pg, key.chunk);
        let queue = self.ops.remove(&chunk).unwrap_or_default();
        let (waits, fails): (VecDeque<Op>, VecDeque<Op>) = queue.into_iter().partition(Op::is_change);
        fails.into_iter().for_each(|op| self.fail_op(op, error));
        if waits.is_empty() {
            self.damage.refused.remove(&key);
            self.cache.load_failed(key);
            return;
        }
        self.ops.insert(chunk, waits);
        let now = self.cx.now();
        let first = Refused { since: now, again_at: None, overdue_at: now + OVERDUE, given_up: false };
        let refused = self.damage.refused.entry(key).or_insert(first);
        if !refused.given_up {
            refused.again_at = Some(now + RETRY_PAUSE);
            return;
        }
        self.damage.refused.remove(&key);
        let damaged = DamagedLeaf { what: error.to_string(), stamps: None, own: None };
        self.cache.loaded(key, SavedLeaf::Damaged(Box::new(damaged)));
    }

    /// Leaves that changes wait for and that the saved map has refused for ten seconds and more, and for how long; each
    /// is named once in ten seconds. The caller may give up those whose blocks another copy has
    /// ([`Store::give_up_leaf`]).
    pub fn overdue_leaves(&mut self) -> Vec<(LeafKey, Duration)> {
        let now = self.cx.now();
        let overdue =
            self.damage.refused.iter_mut().filter(|(_, refused)| !refused.given_up && refused.overdue_at <= now);
        overdue
            .map(|(key, refused)| {
                refused.overdue_at = now + OVERDUE;
                (*key, now - refused.since)
            })
            .collect()
    }

    /// A leaf that the saved map refuses counts as damaged when it is refused once more: another copy has its blocks.
    pub fn give_up_leaf(&mut self, key: &LeafKey) {
        if let Some(refused) = self.damage.refused.get_mut(key) {
            refused.given_up = true;
        }
    }

    pub(crate) fn leaf_came(&mut self, key: &LeafKey, leaf: &SavedLeaf) {
        if !self.damage.refused.is_empty() {
            self.damage.refused.remove(key);
        }
        if matches!(leaf, SavedLeaf::Whole(leaf) if leaf.has_unknown()) {
            self.damage.found(*key);
        }
    }

    /// Asks again for leaves that were refused.
    fn retry_leaves(&mut self) {
        if self.damage.refused.is_empty() {
            return;
        }
        let now = self.cx.now();
        let due = self.damage.refused.iter_mut().filter(|(_, refused)| refused.again_at.is_some_and(|at| at <= now));
        let due: Vec<LeafKey> = due
            .map(|(key, refused)| {
                refused.again_at = None;
                *key
            })
            .collect();
        due.into_iter().for_each(|key| self.load_leaves(vec![key]));
    }

    /// Time passes: looks after the saved map.
    pub(crate) fn watch_map(&mut self, passed: Duration) {
        self.retry_leaves();
        self.retry_listings();
        if self.watchdog.tick(passed) {
            let what = format!("the saved map has done nothing for {} s", MAP_PATIENCE.as_secs());
            self.cx.fail(Failure::Map(MapError::Failed(what)));
        }
    }

    /// The counts of the saved map and its leaves must fit; both come from a disk.
    pub(crate) fn check_counts(&mut self) {
        let segment = self.cx.segments_mut().mismatch.take().map(|segment| format!("segment {segment}"));
        let layer = self.layers.mismatch.take().map(|layer| format!("layer {layer}"));
        if let Some(of) = segment.or(layer) {
            let what = format!(
                "{of} owns fewer blocks by the saved map than its leaves give up: the device has lost writes that it called \
                 done; let it be replaced by another (azekura store check names what differs)"
            );
            self.cx.fail(Failure::Map(MapError::Failed(what)));
        }
    }

    /// A question that needs a leaf can't be answered.
    pub(crate) fn fail_op(&mut self, op: Op, error: &MapError) {
        match op {
            Op::Read { token, .. } => {
                let result = Err(ReadError::Map(error.clone()));
                self.cx.complete(Completion::Read { token, result });
            }
            Op::Status { token, .. } => {
                let result = Err(ReadError::Map(error.clone()));
                self.cx.complete(Completion::Status { token, result });
            }
            Op::Digest { token, .. } => {
                let result = Err(ReadError::Map(error.clone()));
                self.cx.report(Report::Digest { token, result });
            }
            Op::Measure { token, .. } => self.measure_failed(token, error.clone()),
            Op::Difference { token, .. } => self.difference_failed(token, error.clone()),
            Op::Probe { .. } => self.cleaner.put_off(&self.cx),
            Op::Apply { .. } | Op::Copy { .. } | Op::Relocate { .. } | Op::Job { .. } => {
                self.cx.fail(Failure::Map(error.clone()));
            }
        }
    }
}

/// The runs of blocks of which a leaf knows nothing.
fn unknown_runs(leaf: &Leaf) -> Vec<(BlockIndex, u16)> {
    let mut runs: Vec<(BlockIndex, u16)> = Vec::new();
    for (block, _) in leaf.entries.iter().enumerate().filter(|(_, entry)| entry.is_unknown()) {
        match runs.last_mut() {
            Some((first, count)) if usize::from(first.0 + *count) == block => *count += 1,
            _ => runs.push((BlockIndex(block as u16), 1)),
        }
    }
    runs
}
