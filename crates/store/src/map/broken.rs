//! What stands in the place of leaves that can't be used (`damage.rs` says what becomes of them).

use crate::cx::log_position;
use crate::groups::Pending;
use crate::map::cache::{Content, SlotId};
use crate::map::damage::{OverdueLeaf, UnknownBlocks};
use crate::map::leaf::{DamagedLeaf, Entry, Leaf, LeafKey, LeafStamps, SavedLeaf};
use crate::map::right::LiveRight;
use crate::map::step::Step;
use crate::map::{Map, MapCx};
use crate::report::Report;
use azekura_base::{BlockIndex, LayerId, Sequence};
use std::time::Duration;

impl Map {
    /// Blocks that this device should have and of which it knows nothing, a page at a time; each chunk is named again
    /// and again until they are known.
    pub fn unknown_blocks(&mut self, s: &mut MapCx<'_>) -> Vec<UnknownBlocks> {
        let mut blocks = Vec::new();
        for key in self.damage.page() {
            match self.lookup(s, key) {
                Some(Content::Present(leaf)) => {
                    let runs = unknown_runs(&leaf);
                    if runs.is_empty() {
                        self.damage.is_whole(&key);
                    } else {
                        blocks.push(UnknownBlocks { key, runs });
                    }
                }
                Some(Content::Absent) => {
                    self.damage.is_whole(&key);
                }
                // Next time.
                Some(Content::Loading | Content::Broken(_)) | None => {}
            }
        }
        blocks
    }

    /// Puts a leaf of which nothing is known into the place of a damaged one; `Err` when leaves have to be loaded
    /// first.
    pub(super) fn replace_broken(&mut self, s: &mut MapCx<'_>, slot: SlotId) -> Result<(), Step> {
        let key = self.cache.slot(slot).key;
        let Content::Broken(damaged) = self.cache.slot(slot).content.clone() else { return Ok(()) };
        let inheritors = self.leaves_below(s, key)?;
        let generation = s.cx.segments().chain().back().map_or(0, |link| link.generation);
        let stamps = damaged.stamps.unwrap_or_else(|| self.latest_stamps(s, key));
        let ghosts = damaged.own.unwrap_or(0);
        self.cache.replace(slot, Leaf::unknown(stamps), ghosts, generation);
        s.cx.segments_mut().add_ghosts(LiveRight::LEAF, ghosts);
        self.layers.own(key.layer, -i64::from(ghosts));
        self.layers.leaf_made(key.layer);
        for inheritor in inheritors {
            let (leaf, _) = self.cache.change(inheritor, generation);
            let inherited = |entry: &&mut Entry| entry.is_allocated() && !entry.is_own();
            leaf.entries.present_mut().filter(inherited).for_each(|entry| *entry = Entry::unknown().inherited());
            let other = self.cache.slot(inheritor).key;
            self.cache.save_with(slot, other);
        }
        self.damage.replaced(key);
        s.cx.report(Report::LeafDamaged { key, what: damaged.what.clone() });
        Ok(())
    }

    /// The leaves of descendants that inherit something.
    fn leaves_below(&mut self, s: &mut MapCx<'_>, key: LeafKey) -> Result<Vec<SlotId>, Step> {
        let mut layers: Vec<LayerId> = self.layers.children(key.layer).collect();
        let (mut slots, mut missing) = (Vec::new(), false);
        while let Some(layer) = layers.pop() {
            let key = LeafKey { layer, ..key };
            match self.lookup(s, key) {
                Some(Content::Loading | Content::Broken(_)) | None => missing = true,
                Some(Content::Absent) => {}
                Some(Content::Present(leaf)) => {
                    if leaf.entries.present().any(|(_, entry)| entry.is_allocated() && !entry.is_own()) {
                        slots.extend(self.cache.find(key));
                    }
                }
            }
            layers.extend(self.layers.children(layer));
        }
        if missing { Err(Step::Loading) } else { Ok(slots) }
    }

    /// Stamps that are not less than those of any leaf of the group that was saved: then nothing that such a leaf had
    /// seen is applied again out of turn. What waits to be applied to the chunk was never in it, but at replay: it must
    /// not be taken for done, or what comes before it would stay.
    fn latest_stamps(&self, s: &MapCx<'_>, key: LeafKey) -> LeafStamps {
        let log_upto = s.cx.log().stamp().max(log_position(s.cx.log().durable_before(), usize::MAX));
        let group = s.groups.get(key.pg);
        let committed = group.map_or(Sequence::ZERO, |group| group.known_committed());
        // A leaf that is made on this one has its stamps, and one into which this is merged gets them: what waits for
        // other layers counts as well.
        let waits = |write: &&Pending| !write.applied && write.info.header.range.chunk == key.chunk;
        let first = group.and_then(|group| group.pending().find(waits)).filter(|_| s.cx.is_running());
        let first =
            first.map(|write| write.info.header.sequence).into_iter().chain(self.first_waiting(s.cx, key)).min();
        let modified = first.map_or(committed, |first| committed.min(Sequence(first.0.saturating_sub(1))));
        let first = s.repairs.first_position(key.pg, key.chunk).filter(|_| s.cx.is_running());
        let repaired_upto = first.map_or(log_upto, |position| log_upto.min(position.saturating_sub(1)));
        LeafStamps { modified, log_upto, repaired_upto }
    }

    /// The saved map does not give a leaf now, for which changes wait: it is asked for again. If it
    /// has been given up, it counts as damaged. `alone`: the rest of the map can be read.
    pub fn leaf_refused(&mut self, key: LeafKey, now: Duration, mut damaged: DamagedLeaf, alone: bool) {
        if self.damage.refuse(key, now, &mut damaged, alone, false) {
            self.cache.loaded(key, SavedLeaf::Damaged(Box::new(damaged)));
        }
    }

    /// The same for a leaf that nothing waits for, while the rest of the map can be read: it is to be mended, too.
    pub fn idle_leaf_refused(&mut self, key: LeafKey, now: Duration, mut damaged: DamagedLeaf) {
        if !self.damage.may_wait_idly(&key) {
            self.leaf_not_needed(key);
        } else if self.damage.refuse(key, now, &mut damaged, true, true) {
            self.cache.loaded(key, SavedLeaf::Damaged(Box::new(damaged)));
        } else {
            self.cache.load_failed(key);
        }
    }

    /// Nothing that must not be lost waits for a leaf that the saved map does not give: it is forgotten.
    pub fn leaf_not_needed(&mut self, key: LeafKey) {
        self.damage.not_needed(&key);
        self.cache.load_failed(key);
    }

    /// Some leaves have blocks of which nothing is known, or had when they were looked at last.
    pub fn has_unknown(&self) -> bool {
        self.damage.has_unknown()
    }

    /// Leaves that the saved map has refused for long, see [`crate::Store::overdue_leaves`].
    pub fn overdue_leaves(&mut self, now: Duration) -> Vec<OverdueLeaf> {
        self.damage.overdue(now)
    }

    /// A leaf that the saved map refuses counts as damaged when it is refused once more.
    pub fn give_up_leaf(&mut self, key: &LeafKey) {
        self.damage.give_up(key);
    }

    /// Leaves that were refused and are to be asked for again now.
    pub fn refused_leaves_due(&mut self, now: Duration) -> Vec<LeafKey> {
        let mut keys = Vec::new();
        for (key, idle) in self.damage.due(now) {
            if idle {
                // Whoever has asked for it meanwhile waits for the same answer.
                if self.cache.find(key).is_some() {
                    continue;
                }
                self.cache.start_loading(key);
            }
            keys.push(key);
        }
        keys
    }
}

/// The runs of blocks of which a leaf knows nothing.
fn unknown_runs(leaf: &Leaf) -> Vec<(BlockIndex, u16)> {
    let mut runs: Vec<(BlockIndex, u16)> = Vec::new();
    for (block, _) in leaf.entries.present().filter(|(_, entry)| entry.is_unknown()) {
        match runs.last_mut() {
            Some((first, count)) if usize::from(first.0 + *count) == block => *count += 1,
            _ => runs.push((BlockIndex(block as u16), 1)),
        }
    }
    runs
}
