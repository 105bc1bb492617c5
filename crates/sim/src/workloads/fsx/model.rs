//! What volumes and snapshots must hold.

use crate::workloads::contents::{BLOCK_SECTORS, Value, ZERO};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What sectors hold; those that are not named hold zeros.
pub(super) type Sectors = BTreeMap<u64, Value>;

/// What a request does to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Zero,
    Trim,
}

/// A request that changes a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) kind: Kind,
    /// First sector.
    pub(super) first: u64,
    /// Sectors.
    pub(super) count: u64,
    /// What is written.
    pub(super) value: Value,
}

impl Change {
    /// What it makes of the sectors that it changes: a trim leaves parts of blocks alone.
    pub(super) fn new_sectors(&self) -> Sectors {
        let (first, end) = (self.first, self.first + self.count);
        match self.kind {
            Kind::Write => (first..end).map(|sector| (sector, self.value)).collect(),
            Kind::Zero => (first..end).map(|sector| (sector, ZERO)).collect(),
            Kind::Trim => self.whole_blocks().map(|sector| (sector, ZERO)).collect(),
        }
    }

    /// The sectors of blocks that it covers wholly.
    fn whole_blocks(&self) -> Range<u64> {
        let end = (self.first + self.count) / BLOCK_SECTORS * BLOCK_SECTORS;
        self.first.next_multiple_of(BLOCK_SECTORS)..end
    }
}

/// A volume, or a snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// Sectors.
    pub(super) size: u64,
    pub(super) sectors: Sectors,
    /// Blocks that take space even if they hold nothing but zeros, perhaps: zeros were once written to a part of them.
    pub(super) zeros: BTreeSet<u64>,
}

impl Image {
    pub(super) fn new(size: u64) -> Image {
        Image { size, ..Image::default() }
    }

    /// A change is done.
    pub(super) fn apply(&mut self, change: &Change) {
        self.set(&change.new_sectors());
        self.note_zeros(change);
    }

    /// Sectors hold something else.
    pub(super) fn set(&mut self, sectors: &Sectors) {
        set(&mut self.sectors, sectors);
    }

    /// A block whose parts become zeros one after the other takes space.
    fn note_zeros(&mut self, change: &Change) {
        if change.kind == Kind::Zero {
            let (first, end) = (change.first, change.first + change.count);
            self.zeros.extend((first % BLOCK_SECTORS != 0).then_some(first / BLOCK_SECTORS));
            self.zeros.extend((end % BLOCK_SECTORS != 0).then_some(end / BLOCK_SECTORS));
        }
    }

    /// A change has come to an unknown end, and this is what its sectors hold now: what they held before, or what it
    /// has made of them. Gives what has changed.
    ///
    /// # Errors
    /// When a sector holds something else.
    pub(super) fn settle(&mut self, change: &Change, seen: &Sectors) -> Result<Sectors, String> {
        let mut changed = Sectors::new();
        for (sector, new) in change.new_sectors() {
            let (old, now) = (self.get(sector), seen.get(&sector).copied().unwrap_or(ZERO));
            if now != old && now != new {
                return Err(format!("sector {sector} held {old}, was to hold {new}, and holds {now}"));
            }
            if now != old {
                changed.insert(sector, now);
            }
        }
        self.set(&changed);
        self.note_zeros(change);
        Ok(changed)
    }

    pub(super) fn get(&self, sector: u64) -> Value {
        self.sectors.get(&sector).copied().unwrap_or(ZERO)
    }

    /// The first of some sectors that does not hold what it must.
    pub(super) fn difference(&self, range: Range<u64>, seen: &Sectors) -> Option<String> {
        let expected: BTreeMap<u64, Value> = self.sectors.range(range).map(|(s, v)| (*s, *v)).collect();
        let (sector, expected, found) = differing(&expected, seen).next()?;
        let block = sector / BLOCK_SECTORS;
        Some(format!("sector {sector} (block {block}) holds {found} instead of {expected}"))
    }

    /// Blocks that take space, and those that may.
    pub(super) fn blocks(&self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let surely: BTreeSet<u64> = self.sectors.keys().map(|sector| sector / BLOCK_SECTORS).collect();
        let perhaps = self.zeros.difference(&surely).copied().collect();
        (surely, perhaps)
    }
}

fn set(sectors: &mut Sectors, new: &Sectors) {
    for (sector, value) in new {
        if *value == ZERO {
            sectors.remove(sector);
        } else {
            sectors.insert(*sector, *value);
        }
    }
}

/// Sectors that differ: what they hold in the first and in the second.
fn differing<'a>(a: &'a Sectors, b: &'a Sectors) -> impl Iterator<Item = (u64, Value, Value)> + 'a {
    let get = |sectors: &Sectors, sector: u64| sectors.get(&sector).copied().unwrap_or(ZERO);
    let all: BTreeSet<u64> = a.keys().chain(b.keys()).copied().collect();
    all.into_iter().map(move |sector| (sector, get(a, sector), get(b, sector))).filter(|(_, a, b)| a != b)
}

/// Volumes as they were when a cut was asked for, and what was done to them, one change after the other, until it was
/// there.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    pub(super) before: BTreeMap<String, Sectors>,
    pub(super) changes: Vec<(String, Sectors)>,
}

impl Past {
    /// How many changes the snapshots hold: all up to some, and of the next perhaps a part, since a request of several
    /// blocks is not one write. Volumes by name.
    ///
    /// # Errors
    /// When no moment has looked like that.
    pub(super) fn held(&self, snapshots: &BTreeMap<String, Sectors>) -> Result<usize, String> {
        let mut state = self.before.clone();
        let mut first = None;
        for held in 0..=self.changes.len() {
            if let Some((volume, sectors)) = held.checked_sub(1).map(|last| &self.changes[last])
                && let Some(state) = state.get_mut(volume)
            {
                set(state, sectors);
            }
            let next = self.changes.get(held);
            let partial = |volume: &str, sector: u64, value: Value| {
                next.is_some_and(|(of, sectors)| of == volume && sectors.get(&sector) == Some(&value))
            };
            let mut bad = snapshots.iter().flat_map(|(volume, seen)| {
                let state = state.get(volume).into_iter().flat_map(|state| differing(state, seen));
                state.map(move |(sector, expected, found)| (volume, sector, expected, found))
            });
            match bad.find(|(volume, sector, _, found)| !partial(volume, *sector, *found)) {
                None => return Ok(held),
                Some((volume, sector, expected, found)) => {
                    let what = format!("sector {sector} of {volume} holds {found}, then {expected}");
                    first.get_or_insert(what);
                }
            }
        }
        let count = self.changes.len();
        Err(format!("no moment is like it, with none to all of {count} changes: {}", first.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: Kind, first: u64, count: u64) -> Change {
        Change { kind, first, count, value: 7 }
    }

    #[test]
    fn a_trim_leaves_parts_of_blocks_alone() {
        let mut image = Image::new(100);
        image.apply(&change(Kind::Write, 0, 32));
        image.apply(&change(Kind::Trim, 4, 20));
        let left: Vec<u64> = image.sectors.keys().copied().collect();
        assert_eq!(left, (0..8).chain(24..32).collect::<Vec<_>>());
        image.apply(&change(Kind::Zero, 4, 2));
        assert_eq!((image.get(3), image.get(4), image.get(6)), (7, ZERO, 7));
        assert_eq!(image.blocks(), (BTreeSet::from([0, 3]), BTreeSet::new()));
        image.apply(&change(Kind::Zero, 16, 2));
        assert_eq!(image.blocks().1, BTreeSet::from([2]));
    }

    #[test]
    fn an_unknown_end_is_old_or_new() {
        let mut image = Image::new(100);
        let write = change(Kind::Write, 8, 2);
        assert!(image.clone().settle(&write, &Sectors::from([(8, 9)])).is_err());
        assert_eq!(image.settle(&write, &Sectors::from([(9, 7)])), Ok(Sectors::from([(9, 7)])));
        assert_eq!((image.get(8), image.get(9)), (ZERO, 7));
    }

    #[test]
    fn a_cut_holds_the_first_changes_and_no_later_ones() {
        let (a, b) = ("a".to_string(), "b".to_string());
        let one = |sector, value| Sectors::from([(sector, value)]);
        let past = Past {
            before: BTreeMap::from([(a.clone(), one(1, 1)), (b.clone(), Sectors::new())]),
            changes: vec![
                (a.clone(), Sectors::from([(1, 2), (2, 2)])),
                (b.clone(), one(5, 3)),
                ("c".into(), one(5, 4)),
            ],
        };
        let held = |in_a: &[(u64, Value)], in_b: &[(u64, Value)]| {
            let all = |sectors: &[(u64, Value)]| sectors.iter().copied().collect::<Sectors>();
            past.held(&BTreeMap::from([(a.clone(), all(in_a)), (b.clone(), all(in_b))])).ok()
        };
        assert_eq!(held(&[(1, 1)], &[]), Some(0));
        assert_eq!(held(&[(1, 1), (2, 2)], &[]), Some(0), "a part of the first");
        assert_eq!(held(&[(1, 2), (2, 2)], &[(5, 3)]), Some(1), "with the second, as a part of it");
        assert_eq!(held(&[(1, 1)], &[(5, 3)]), None, "the second without the first");
        assert_eq!(held(&[(1, 2), (2, 2), (3, 1)], &[]), None);
    }
}
