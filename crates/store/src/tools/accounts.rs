//! Invariant 9: what the map reaches and what segments count as live are equal.

use crate::map::{Content, Leaf, LeafImage, LeafKey};
use crate::segments::{Segment, Segments};
use crate::tools::inside::Inside;
use crate::tools::lineage::Lineage;
use azekura_base::{ChunkIndex, LayerId, PgId};
use std::collections::BTreeMap;

/// Counts again, from the leaves alone.
#[derive(Debug)]
pub(super) struct Accounts<'a> {
    inside: Inside<'a>,
    /// Leaves that differ from the saved map; `None`: removed.
    unsaved: BTreeMap<(LayerId, ChunkIndex), Option<&'a Leaf>>,
    live: Vec<u32>,
    saved_live: Vec<u32>,
    layers: BTreeMap<LayerId, u64>,
}

impl<'a> Accounts<'a> {
    pub fn new(inside: &Inside<'a>) -> Accounts<'a> {
        let segments = inside.segments.len() as usize;
        let unsaved = inside.map.unsaved().map(|slot| match &slot.content {
            Content::Present(leaf) => ((slot.key.layer, slot.key.chunk), Some(&**leaf)),
            _ => ((slot.key.layer, slot.key.chunk), None),
        });
        let unsaved: BTreeMap<_, _> = unsaved.collect();
        let (live, saved_live) = (vec![0; segments], vec![0; segments]);
        let mut accounts = Accounts { inside: *inside, live, saved_live, unsaved, layers: BTreeMap::new() };
        let leaves: Vec<(LayerId, &Leaf)> =
            accounts.unsaved.iter().filter_map(|((layer, _), leaf)| Some((*layer, (*leaf)?))).collect();
        for (layer, leaf) in leaves {
            let own = count(inside.segments, leaf, &mut accounts.live);
            *accounts.layers.entry(layer).or_default() += own;
        }
        accounts
    }

    /// Takes a leaf of the saved map into account.
    pub fn add_saved(&mut self, key: &LeafKey, leaf: &Leaf) {
        count(self.inside.segments, leaf, &mut self.saved_live);
        if !self.unsaved.contains_key(&(key.layer, key.chunk)) {
            *self.layers.entry(key.layer).or_default() += count(self.inside.segments, leaf, &mut self.live);
        }
    }

    /// What differs, once all saved leaves have been added.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        // What a damaged leaf owned is counted in some segments until the cleaner has looked at them.
        let ghosts = self.inside.segments.ghosts();
        let counted = |entry: &Segment| (u64::from(entry.live), u64::from(entry.saved_live));
        let sums = self.inside.segments.iter().map(|(_, entry)| counted(entry));
        let (live, saved) = sums.fold((0, 0), |(live, saved), (l, s)| (live + l, saved + s));
        let sum = |blocks: &[u32]| blocks.iter().map(|blocks| u64::from(*blocks)).sum::<u64>();
        let live_fits = live == sum(&self.live) + ghosts;
        let saved_fits = (sum(&self.saved_live)..=sum(&self.saved_live) + ghosts).contains(&saved);
        let mut total = 0;
        for (segment, entry) in self.inside.segments.iter() {
            let (live, saved) = (self.live[segment as usize], self.saved_live[segment as usize]);
            total += u64::from(live);
            if entry.live < live || entry.live > live && !(live_fits && ghosts > 0) {
                let counted = entry.live;
                problems.push(format!("segment {segment} counts {counted} live blocks, the map reaches {live}"));
            }
            let differs = entry.saved_live < saved || entry.saved_live > saved && !(saved_fits && ghosts > 0);
            if differs && !self.inside.is_saving {
                let counted = entry.saved_live;
                problems.push(format!("segment {segment} has {counted} saved live blocks, saved leaves own {saved}"));
            }
        }
        if self.inside.segments.live() != total + ghosts {
            let counted = self.inside.segments.live();
            problems.push(format!("the store counts {counted} live blocks in all, the map reaches {total}"));
        }
        let counted: BTreeMap<LayerId, u64> = self.inside.map.layers().collect();
        let own: BTreeMap<LayerId, u64> = self.layers.iter().map(|(l, b)| (*l, *b)).filter(|(_, b)| *b > 0).collect();
        if counted != own {
            problems.push(format!("the layers count {counted:?} own blocks, their leaves own {own:?}"));
        }
        problems
    }
}

/// Adds a leaf's own blocks to their segments, and gives their number.
fn count(segments: &Segments, leaf: &Leaf, live: &mut [u32]) -> u64 {
    let mut own = 0;
    for (_, entry) in leaf.entries.present().filter(|(_, e)| e.is_own()) {
        if let Some((segment, _)) = segments.locate(entry.address) {
            live[segment as usize] += 1;
            own += 1;
        }
    }
    own
}

/// What differs between the live counts and the whole map, and which blocks have not exactly one owner: `saved` are all
/// leaves of the saved map. Of groups for which `is_kept` is not true, what they inherit is not looked at.
pub(crate) fn accounts_problems<'a>(
    inside: &Inside<'_>,
    saved: impl Iterator<Item = (LeafKey, &'a LeafImage)>,
    is_kept: impl Fn(PgId) -> bool,
) -> Vec<String> {
    let mut accounts = Accounts::new(inside);
    let mut leaves: BTreeMap<(LayerId, ChunkIndex), (LeafKey, &Leaf)> = BTreeMap::new();
    for (key, leaf) in saved {
        accounts.add_saved(&key, leaf);
        leaves.insert((key.layer, key.chunk), (key, leaf));
    }
    for slot in inside.map.unsaved() {
        let place = (slot.key.layer, slot.key.chunk);
        match &slot.content {
            Content::Present(leaf) => leaves.insert(place, (slot.key, leaf)),
            _ => leaves.remove(&place),
        };
    }
    let mut problems = accounts.problems();
    let mut lineage = Lineage::new(inside);
    for (key, leaf) in leaves.values() {
        problems
            .extend(lineage.own(key, leaf).map(|block| format!("{key:?} owns block {block}, as another leaf does")));
    }
    for (key, leaf) in leaves.values().filter(|(key, _)| is_kept(key.pg)) {
        let ancestor = |layer| leaves.get(&(layer, key.chunk)).map(|(_, leaf)| *leaf);
        let orphan = lineage.orphan(key, leaf, ancestor);
        problems.extend(orphan.map(|block| format!("{key:?} inherits block {block} from nobody")));
    }
    problems
}
