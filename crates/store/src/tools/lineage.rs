//! Who owns what: no block has two owners, and what a leaf inherits is an ancestor's.

use crate::map::{Entry, Leaf, LeafKey};
use crate::tools::inside::Inside;
use azekura_base::{LayerId, PgId};
use std::borrow::Borrow;
use std::ops::Range;

/// What was owned by leaves seen so far. See the module's description.
#[derive(Debug)]
pub(super) struct Lineage<'a> {
    inside: Inside<'a>,
    /// A bit for each block address of the device.
    owned: Vec<u64>,
    /// Addresses of writes that are not in the map (any more).
    pending: Vec<Range<u32>>,
}

impl<'a> Lineage<'a> {
    pub fn new(inside: &Inside<'a>) -> Lineage<'a> {
        let addresses = inside.segments.address(inside.segments.len(), 0) as usize;
        let writes = inside.groups.iter().flat_map(|(_, group)| group.pending()).filter(|write| !write.applied);
        let places =
            writes.filter_map(|write| Some((write.written?.place.payload?, u32::from(write.info.header.range.count))));
        let pending = places.map(|(address, count)| address..address + count).collect();
        Lineage { inside: *inside, owned: vec![0; addresses.div_ceil(64)], pending }
    }

    /// Notes what `leaf` owns, and gives the first block of it that another leaf owns, too.
    pub fn own(&mut self, key: &LeafKey, leaf: &Leaf) -> Option<usize> {
        // A crash in the middle of a merge may have brought back what is the child's already.
        if self.is_ending(key.layer) {
            return None;
        }
        let mut twice = None;
        for (block, entry) in leaf.entries.present().filter(|(_, entry)| entry.is_own()) {
            let bit = 1 << (entry.address % 64);
            // An address outside of the device is found elsewhere.
            let Some(word) = self.owned.get_mut(entry.address as usize / 64) else { continue };
            if *word & bit != 0 {
                twice.get_or_insert(block);
            }
            *word |= bit;
        }
        twice
    }

    /// The first block that `leaf` inherits from nobody. `ancestor` gives the leaves of other layers for the same
    /// chunk.
    pub fn orphan<L: Borrow<Leaf>>(
        &self,
        key: &LeafKey,
        leaf: &Leaf,
        mut ancestor: impl FnMut(LayerId) -> Option<L>,
    ) -> Option<usize> {
        // What is being given up need not be whole any more.
        if self.is_ending(key.layer) || self.is_forgotten(key.pg) {
            return None;
        }
        let mut wanted: Vec<usize> =
            leaf.entries.present().filter(|(_, entry)| inherits(entry)).map(|(block, _)| block).collect();
        // Few are left of which nobody is found to be the owner: only those are looked for among pending writes.
        let first_orphan =
            |wanted: &[usize]| wanted.iter().copied().find(|block| !self.is_pending(leaf.entries[*block].address));
        let mut layer = key.layer;
        while !wanted.is_empty() {
            let Some(parent) = self.inside.map.parent(layer) else { return first_orphan(&wanted) };
            layer = parent;
            let Some(above) = ancestor(layer) else { continue };
            wanted.retain(|block| !is_same(&leaf.entries[*block], &above.borrow().entries[*block]));
            // Where the nearest ancestor has another block, a farther one's does not show; but a layer that is merged
            // into the one that lies on it gives its blocks away one leaf after the other.
            if !self.is_ending(layer) {
                return first_orphan(&wanted);
            }
        }
        None
    }

    /// A crash may have forgotten that an ancestor's write was committed, but not what a descendant's leaf had of it by
    /// then: once the group says so again, the write is the ancestor's.
    fn is_pending(&self, address: u32) -> bool {
        self.pending.iter().any(|range| range.contains(&address))
    }

    fn is_ending(&self, layer: LayerId) -> bool {
        self.inside.jobs.is_merging(layer) || self.inside.jobs.is_dropped(layer)
    }

    fn is_forgotten(&self, pg: PgId) -> bool {
        self.inside.groups.get(pg).is_some_and(|group| group.is_forgotten())
    }
}

fn inherits(entry: &Entry) -> bool {
    entry.is_allocated() && !entry.is_own()
}

fn is_same(entry: &Entry, other: &Entry) -> bool {
    (entry.address, entry.checksum) == (other.address, other.checksum)
}
