//! Leaves apart: those that stand behind a page which the device does not give any more.
//!
//! A change of such a row would have to read the page, and the database takes no call after an error: one bad sector
//! would be the end of every checkpoint that has to pass there. So the leaf's next version goes into a small table of
//! its own, where it is looked up first, and the old row is left alone for good. It does no harm if the page can be
//! read after all (docs/decisions/0015-saved-map.md).

use crate::rows::IndexRow;
use crate::tables::{INDEX, IndexTable, LEAVES, LeavesTable, PlaceKey, Wrong, decode, in_index, key_of, place, table};
use azekura_base::{ChunkIndex, LayerId};
use azekura_store::{CheckpointBatch, DamagedLeaf, Leaf, LeafKey, SavedLeaf};
use redb::{AccessGuard, ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};
use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Leaves as they were saved since a page of [`LEAVES`] could not be read for them; nothing for one that was removed.
const APART: TableDefinition<PlaceKey, &[u8]> = TableDefinition::new("leaves apart");

/// The database panics at pages that it does not understand: here that is an error like any other.
pub(crate) fn guarded<T, E: From<redb::Error>>(act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(E::from(not_understood(panic.as_ref()))))
}

fn not_understood(panic: &(dyn Any + Send)) -> redb::Error {
    let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    redb::Error::Corrupted(format!("the database does not understand a page: {}", said.unwrap_or("no reason given")))
}

type Image = AccessGuard<'static, &'static [u8]>;

/// The leaves as a transaction of the database has them.
pub(crate) struct SavedLeaves<'a> {
    transaction: &'a ReadTransaction,
    /// Opened when it is needed: to open a table is to read its root.
    leaves: OnceCell<Option<LeavesTable>>,
    apart: Option<LeavesTable>,
    index: Option<IndexTable>,
}

impl SavedLeaves<'_> {
    pub fn of(transaction: &ReadTransaction) -> Result<SavedLeaves<'_>, redb::Error> {
        let leaves = OnceCell::new();
        Ok(SavedLeaves { transaction, leaves, apart: table(transaction, APART)?, index: table(transaction, INDEX)? })
    }

    fn leaves(&self) -> Result<Option<&LeavesTable>, redb::Error> {
        if self.leaves.get().is_none() {
            let _ = self.leaves.set(table(self.transaction, LEAVES)?);
        }
        Ok(self.leaves.get().and_then(Option::as_ref))
    }

    /// A leaf as its image and the index together give it.
    pub fn leaf(&self, key: &LeafKey) -> Result<SavedLeaf, Wrong> {
        guarded(|| {
            let image = self.image(key)?;
            decode(key, image.as_ref().map(AccessGuard::value), self.row(key)?)
        })
    }

    /// What to make of a leaf whose page can't be read, or is not understood: the index has what has to be known of it.
    /// Without a row there, it never was: the page is one that its key would belong to.
    pub fn leaf_without_image(&self, key: &LeafKey, error: &redb::Error) -> Result<SavedLeaf, Wrong> {
        let Some(row) = self.row(key)? else { return Ok(SavedLeaf::Absent) };
        let damaged = Box::new(DamagedLeaf {
            what: format!("the leaf of layer {} chunk {} can't be read: {error}", key.layer, key.chunk),
            stamps: row.map(|row| row.stamps),
            own: row.map(|row| row.own),
        });
        Ok(match error {
            // Bytes that are read and are wrong stay so.
            redb::Error::Corrupted(_) => SavedLeaf::Damaged(damaged),
            _ => SavedLeaf::Refused(damaged),
        })
    }

    pub fn has(&self, key: &LeafKey) -> Result<bool, redb::Error> {
        Ok(self.image(key)?.is_some())
    }

    fn image(&self, key: &LeafKey) -> Result<Option<Image>, redb::Error> {
        if let Some(apart) = get(self.apart.as_ref(), key)? {
            return Ok(Some(apart).filter(|image| !image.value().is_empty()));
        }
        get(self.leaves()?, key)
    }

    fn row(&self, key: &LeafKey) -> Result<Option<Option<IndexRow>>, redb::Error> {
        let row = self.index.as_ref().map(|index| index.get(in_index(key))).transpose()?.flatten();
        Ok(row.map(|row| IndexRow::decode(key, row.value())))
    }

    /// At most `limit` leaves of a layer, from a chunk on.
    pub fn of_layer(&self, layer: LayerId, from: ChunkIndex, limit: usize) -> Result<Vec<LeafKey>, redb::Error> {
        guarded(|| {
            let range = (layer.0, from.0, 0)..=(layer.0, u32::MAX, u32::MAX);
            let mut apart: BTreeMap<PlaceKey, bool> = BTreeMap::new();
            for row in self.apart.as_ref().map(|apart| apart.range(range.clone())).transpose()?.into_iter().flatten() {
                let (key, image) = row?;
                apart.insert(key.value(), !image.value().is_empty());
            }
            let mut keys = Vec::new();
            for row in self.leaves()?.map(|leaves| leaves.range(range)).transpose()?.into_iter().flatten() {
                let (key, image) = row?;
                if apart.contains_key(&key.value()) {
                    continue;
                }
                let key = key_of(key.value());
                // A flipped bit in a key must not make up a leaf.
                if Leaf::stated_key(image.value()) == Some(key) || self.row(&key)?.is_some() {
                    keys.push(key);
                    if keys.len() >= limit {
                        break;
                    }
                }
            }
            keys.extend(apart.into_iter().filter(|(_, is_there)| *is_there).map(|(key, _)| key_of(key)));
            Ok(first_by_chunk(keys, limit))
        })
    }

    /// The same by the index alone, group by group: for when not all pages of the leaves can be read.
    pub fn indexed_of_layer(
        &self,
        layer: LayerId,
        from: ChunkIndex,
        limit: usize,
    ) -> Result<Vec<LeafKey>, redb::Error> {
        let (mut keys, mut next) = (Vec::new(), Some(0));
        let Some(index) = &self.index else { return Ok(keys) };
        while let Some(first) = next {
            let Some(row) = index.range((first, 0, 0)..)?.next() else { break };
            let (pg, ..) = row?.0.value();
            for row in index.range((pg, layer.0, from.0)..=(pg, layer.0, u32::MAX))?.take(limit) {
                let (_, layer, chunk) = row?.0.value();
                keys.push(key_of((layer, chunk, pg)));
            }
            next = pg.checked_add(1);
        }
        Ok(first_by_chunk(keys, limit))
    }

    /// All leaves, as far as their pages can be read.
    pub fn places(&self) -> Result<BTreeSet<PlaceKey>, redb::Error> {
        guarded(|| {
            let mut places = BTreeSet::new();
            for table in [self.leaves()?, self.apart.as_ref()].into_iter().flatten() {
                for row in table.iter()? {
                    places.insert(row?.0.value());
                }
            }
            Ok(places)
        })
    }

    /// All leaves that the index has.
    pub fn indexed_places(&self) -> Result<BTreeSet<PlaceKey>, redb::Error> {
        let mut places = BTreeSet::new();
        for row in self.index.as_ref().map(ReadableTable::iter).transpose()?.into_iter().flatten() {
            let (pg, layer, chunk) = row?.0.value();
            places.insert((layer, chunk, pg));
        }
        Ok(places)
    }
}

fn get(table: Option<&LeavesTable>, key: &LeafKey) -> Result<Option<Image>, redb::Error> {
    Ok(table.map(|table| table.get(place(key))).transpose()?.flatten())
}

fn first_by_chunk(mut keys: Vec<LeafKey>, limit: usize) -> Vec<LeafKey> {
    keys.sort_unstable_by_key(place);
    keys.truncate(limit);
    keys
}

/// Leaves that a checkpoint has stumbled over, and goes round.
#[derive(Debug, Default)]
pub(crate) struct Stumbled {
    /// They are saved apart from here on.
    around: BTreeSet<LeafKey>,
    /// It has stumbled over this one once.
    once: Option<LeafKey>,
}

/// A checkpoint that has stumbled over so many leaves goes round all that it has: each costs an opening of the
/// database.
const STUMBLED_MAX: usize = 16;

impl Stumbled {
    /// Changing this leaf's row has failed. The second time it is taken out of the way.
    pub fn over(&mut self, key: LeafKey, batch: &CheckpointBatch) {
        if self.once.replace(key) != Some(key) {
            return;
        }
        self.around.insert(key);
        if self.around.len() > STUMBLED_MAX {
            self.around.extend(batch.leaves.iter().map(|(key, _)| key).chain(&batch.removed));
        }
    }
}

/// The leaves, to be changed by a checkpoint.
pub(crate) struct ChangedLeaves<'a> {
    leaves: Table<'a, PlaceKey, &'static [u8]>,
    apart: Table<'a, PlaceKey, &'static [u8]>,
    stumbled: &'a Stumbled,
    /// The leaf whose row is being changed.
    at: &'a Cell<Option<LeafKey>>,
}

impl<'a> ChangedLeaves<'a> {
    pub fn of(
        transaction: &'a WriteTransaction,
        stumbled: &'a Stumbled,
        at: &'a Cell<Option<LeafKey>>,
    ) -> Result<ChangedLeaves<'a>, redb::Error> {
        Ok(ChangedLeaves {
            leaves: transaction.open_table(LEAVES)?,
            apart: transaction.open_table(APART)?,
            stumbled,
            at,
        })
    }

    fn is_apart(&self, key: &LeafKey) -> Result<bool, redb::Error> {
        Ok(self.stumbled.around.contains(key) || self.apart.get(place(key))?.is_some())
    }

    pub fn insert(&mut self, key: &LeafKey, image: &[u8]) -> Result<(), redb::Error> {
        if self.is_apart(key)? {
            self.apart.insert(place(key), image)?;
            return Ok(());
        }
        self.at.set(Some(*key));
        self.leaves.insert(place(key), image)?;
        self.at.set(None);
        Ok(())
    }

    pub fn remove(&mut self, key: &LeafKey) -> Result<(), redb::Error> {
        if self.is_apart(key)? {
            // The old row is still in its place, and must not come back.
            self.apart.insert(place(key), &[][..])?;
            return Ok(());
        }
        self.at.set(Some(*key));
        self.leaves.remove(place(key))?;
        self.at.set(None);
        Ok(())
    }
}
