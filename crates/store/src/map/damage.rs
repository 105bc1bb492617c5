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
//! wait. When that goes on, whoever knows the group says whether the leaf is given up ([`Damage::overdue`]):
//! only where another copy has its blocks. The device may yet give it, and nobody else can. When the rest of the map
//! can be read, that goes for a leaf that only readers have asked for, too: what nobody writes to is to be mended as
//! well.

use crate::map::leaf::{DamagedLeaf, Leaf, LeafKey, LeafStamps, SavedLeaf};
use azekura_base::BlockIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

/// A leaf that the map refuses to read, and that a change waits for, is asked for again after this time.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// One that nothing waits for, after this time.
const IDLE_RETRY_PAUSE: Duration = Duration::from_secs(10);
/// Leaves that nothing waits for and that are asked for again, at most.
const IDLE_MAX: usize = 1024;
/// When that has gone on for this time, the leaf is overdue; and again after each such time.
const OVERDUE: Duration = Duration::from_secs(10);
/// Damaged chunks that are remembered; others are found again by readers and scrubs.
const DAMAGED_MAX: usize = 4096;
/// Of those, the ones that are named in one answer.
const DAMAGED_PAGE: usize = 64;

/// A leaf that the saved map has refused for some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverdueLeaf {
    /// Whose leaf it is.
    pub key: LeafKey,
    /// For how long.
    pub refused_for: Duration,
    /// For how long the rest of the map could be read meanwhile: then it is no path that is down.
    pub alone_for: Duration,
}

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
    /// Leaves that the map refuses and that are asked for again.
    refused: BTreeMap<LeafKey, Refused>,
}

#[derive(Debug, Clone, Copy)]
struct Refused {
    since: Duration,
    /// Since when it alone has been refused, and not the rest of the map.
    alone_since: Option<Duration>,
    /// `None` while it is being asked for.
    again_at: Option<Duration>,
    /// When it is named as overdue, again and again.
    overdue_at: Duration,
    /// Refused once more, it counts as damaged.
    given_up: bool,
    /// Nothing waits for it.
    idle: bool,
    /// What the index has said of it. As long as nobody has read the leaf, nobody has changed it.
    stamps: Option<LeafStamps>,
    own: Option<u32>,
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

    /// The saved map has given a leaf.
    pub fn leaf_came(&mut self, key: &LeafKey, leaf: &SavedLeaf) {
        if !self.refused.is_empty() {
            self.refused.remove(key);
        }
        if matches!(leaf, SavedLeaf::Whole(leaf) if leaf.has_unknown()) {
            self.found(*key);
        }
    }

    /// Leaves have blocks of which nothing is known, or had when they were looked at last.
    pub fn has_unknown(&self) -> bool {
        !self.known.is_empty()
    }

    /// The next damaged chunks to name, in turn.
    pub fn page(&mut self) -> Vec<LeafKey> {
        let from = self.named.map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<LeafKey> = self.known.range((from, Bound::Unbounded)).take(DAMAGED_PAGE).copied().collect();
        self.named = page.last().copied().filter(|_| page.len() == DAMAGED_PAGE);
        page
    }

    /// All of the chunk's blocks are known again.
    pub fn is_whole(&mut self, key: &LeafKey) {
        self.known.remove(key);
    }

    /// The saved map does not give a leaf now: it will be asked for again. `alone`: it gives others; `idle`: nothing
    /// waits for it. True: it has been given up. `damaged` is told then what was known of the leaf when the map gave
    /// others: when all of the map is refused, the index is, too.
    pub fn refuse(&mut self, key: LeafKey, now: Duration, damaged: &mut DamagedLeaf, alone: bool, idle: bool) -> bool {
        let refused = self.refused.entry(key).or_insert(Refused {
            since: now,
            alone_since: None,
            again_at: None,
            overdue_at: now + OVERDUE,
            given_up: false,
            idle,
            stamps: None,
            own: None,
        });
        refused.stamps = damaged.stamps.or(refused.stamps);
        refused.own = damaged.own.or(refused.own);
        (damaged.stamps, damaged.own) = (refused.stamps, refused.own);
        refused.alone_since = refused.alone_since.or(Some(now)).filter(|_| alone);
        refused.again_at = None;
        if !refused.given_up {
            refused.idle = idle;
            refused.again_at = Some(now + if idle { IDLE_RETRY_PAUSE } else { RETRY_PAUSE });
        }
        refused.given_up
    }

    /// There is room to remember a leaf that nothing waits for.
    pub fn may_wait_idly(&self, key: &LeafKey) -> bool {
        self.refused.len() < IDLE_MAX || self.refused.contains_key(key)
    }

    /// A leaf that can't be used has been replaced by one of which nothing is known.
    pub fn replaced(&mut self, key: LeafKey) {
        self.refused.remove(&key);
        self.found(key);
    }

    /// Nothing waits for a leaf any more that the saved map does not give.
    pub fn not_needed(&mut self, key: &LeafKey) {
        self.refused.remove(key);
    }

    /// Leaves that the saved map has refused for ten seconds and more; each is named once in ten seconds.
    pub fn overdue(&mut self, now: Duration) -> Vec<OverdueLeaf> {
        let overdue = self.refused.iter_mut().filter(|(_, refused)| !refused.given_up && refused.overdue_at <= now);
        overdue
            .map(|(key, refused)| {
                refused.overdue_at = now + OVERDUE;
                let alone_for = refused.alone_since.map_or(Duration::ZERO, |since| now - since);
                OverdueLeaf { key: *key, refused_for: now - refused.since, alone_for }
            })
            .collect()
    }

    /// A leaf that the saved map refuses counts as damaged when it is refused once more.
    pub fn give_up(&mut self, key: &LeafKey) {
        let Some(refused) = self.refused.get_mut(key) else { return };
        refused.given_up = true;
        // Whoever lists what is not known has it replaced.
        if refused.idle {
            self.found(*key);
        }
    }

    /// Leaves that were refused and are to be asked for again now, and whether nothing waits for them.
    pub fn due(&mut self, now: Duration) -> Vec<(LeafKey, bool)> {
        let due = self.refused.iter_mut().filter(|(_, refused)| refused.again_at.is_some_and(|at| at <= now));
        due.map(|(key, refused)| {
            refused.again_at = None;
            (*key, refused.idle)
        })
        .collect()
    }
}
