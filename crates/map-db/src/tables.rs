//! The tables of the saved map (docs/formats/map.md): what a checkpoint writes, and what of it is believed when it is
//! read.

use crate::apart::{ChangedLeaves, Stumbled};
use crate::rows::{IndexRow, Totals, merged_owner_key, number, opened, sealed};
use azekura_base::{ChunkIndex, LayerId, PgId};
use azekura_store::{
    CheckpointBatch, CheckpointRoot, DamagedLeaf, Leaf, LeafError, LeafKey, MapError, MergedOwner, Root, SavedLeaf,
    SegmentRow,
};
use redb::{
    Database, ReadTransaction, ReadableTable, ReadableTableMetadata, Table, TableDefinition, TableError,
    WriteTransaction,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) type PlaceKey = (u64, u32, u32);
pub(crate) type LeavesTable = redb::ReadOnlyTable<PlaceKey, &'static [u8]>;
pub(crate) type IndexTable = redb::ReadOnlyTable<(u32, u64, u32), &'static [u8]>;
/// The checkpoint root, under the one key "root"; and once more.
pub(crate) const ROOT: [TableDefinition<&str, &[u8]>; 2] =
    [TableDefinition::new("root"), TableDefinition::new("root copy")];
/// Segment to [`SegmentRow`]; and once more.
pub(crate) const SEGMENTS: [TableDefinition<u32, &[u8]>; 2] =
    [TableDefinition::new("segments"), TableDefinition::new("segments copy")];
/// Layer, chunk and group to leaf image.
pub(crate) const LEAVES: TableDefinition<PlaceKey, &[u8]> = TableDefinition::new("leaves");
/// Group, layer and chunk to [`IndexRow`].
pub(crate) const INDEX: TableDefinition<(u32, u64, u32), &[u8]> = TableDefinition::new("index");
/// Group to [`Totals`] of its rows in the index.
pub(crate) const TOTALS: TableDefinition<u32, &[u8]> = TableDefinition::new("totals");
/// Leaves that don't know where some of their blocks are.
pub(crate) const DAMAGED: TableDefinition<PlaceKey, ()> = TableDefinition::new("damaged");
/// Layer to the blocks that its leaves own; and once more.
pub(crate) const LAYERS: [TableDefinition<u64, &[u8]>; 2] =
    [TableDefinition::new("layers"), TableDefinition::new("layers copy")];
/// Segment and layer to the layer that it was merged into; and once more.
pub(crate) const MERGED_OWNERS: [TableDefinition<(u32, u64), &[u8]>; 2] =
    [TableDefinition::new("heirs"), TableDefinition::new("heirs copy")];

pub(crate) const ROOT_KEY: &str = "root";

pub(crate) fn place(key: &LeafKey) -> PlaceKey {
    (key.layer.0, key.chunk.0, key.pg.0)
}

pub(crate) fn in_index(key: &LeafKey) -> (u32, u64, u32) {
    (key.pg.0, key.layer.0, key.chunk.0)
}

pub(crate) fn key_of((layer, chunk, pg): PlaceKey) -> LeafKey {
    LeafKey { layer: LayerId(layer), chunk: ChunkIndex(chunk), pg: PgId(pg) }
}

/// Why there is no answer.
pub(crate) enum Wrong {
    /// The database did not give it.
    Refused(redb::Error),
    /// There is none.
    Failed(MapError),
}

impl<E: Into<redb::Error>> From<E> for Wrong {
    fn from(error: E) -> Wrong {
        Wrong::Refused(error.into())
    }
}

/// A table, if there is one yet.
pub(crate) fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
    transaction: &ReadTransaction,
    definition: TableDefinition<K, V>,
) -> Result<Option<redb::ReadOnlyTable<K, V>>, redb::Error> {
    match transaction.open_table(definition) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Saves a checkpoint. The rows of leaves that it has `stumbled` over are left alone; `at` says which leaf's row is
/// being changed when that fails.
pub(crate) fn write(
    database: &Database,
    batch: &CheckpointBatch,
    stumbled: &Stumbled,
    at: &Cell<Option<LeafKey>>,
) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    // Else the database is read as a whole after an unclean stop (decision 0035).
    transaction.set_quick_repair(true);
    let root = batch.root.encode();
    for copy in 0..2 {
        transaction.open_table(ROOT[copy])?.insert(ROOT_KEY, &root[..])?;
        let mut segments = transaction.open_table(SEGMENTS[copy])?;
        for (segment, row) in &batch.segments {
            segments.insert(segment, &sealed(&segment.to_le_bytes(), row.encode().to_vec())[..])?;
        }
        let mut layers = transaction.open_table(LAYERS[copy])?;
        for (layer, blocks) in &batch.layers {
            match blocks {
                0 => layers.remove(layer.0)?,
                blocks => {
                    let row = sealed(&layer.0.to_le_bytes(), blocks.to_le_bytes().to_vec());
                    layers.insert(layer.0, &row[..])?
                }
            };
        }
        let mut merged_owners = transaction.open_table(MERGED_OWNERS[copy])?;
        if !merged_owners.is_empty()? {
            for segment in &batch.merged_owners_gone {
                merged_owners.retain_in((*segment, 0)..=(*segment, u64::MAX), |_, _| false)?;
            }
        }
        for merged in &batch.merged_owners {
            let row = sealed(&merged_owner_key(merged.segment, merged.layer.0), merged.owner.0.to_le_bytes().to_vec());
            merged_owners.insert((merged.segment, merged.layer.0), &row[..])?;
        }
    }
    write_leaves(&transaction, batch, ChangedLeaves::of(&transaction, stumbled, at)?)?;
    transaction.commit()?;
    Ok(())
}

fn write_leaves(
    transaction: &WriteTransaction,
    batch: &CheckpointBatch,
    mut leaves: ChangedLeaves<'_>,
) -> Result<(), redb::Error> {
    let mut index = transaction.open_table(INDEX)?;
    let mut damaged = transaction.open_table(DAMAGED)?;
    let mut totals =
        GroupTotals { table: transaction.open_table(TOTALS)?, groups: BTreeMap::new(), recount: BTreeSet::new() };
    for key in &batch.removed {
        leaves.remove(key)?;
        damaged.remove(place(key))?;
        let before = index.remove(in_index(key))?.map(|row| row.value().to_vec());
        totals.change(key, before, None)?;
    }
    for (key, leaf) in &batch.leaves {
        let image = leaf.encode(key);
        leaves.insert(key, &image)?;
        if leaf.has_unknown() {
            damaged.insert(place(key), ())?;
        } else {
            damaged.remove(place(key))?;
        }
        let row = IndexRow::of(leaf, &image).encode(key);
        let before = index.insert(in_index(key), &row[..])?.map(|row| row.value().to_vec());
        totals.change(key, before, Some(&row))?;
    }
    totals.save(&index)
}

/// The totals of the groups of which a transaction changes leaves.
struct GroupTotals<'a> {
    table: Table<'a, u32, &'static [u8]>,
    groups: BTreeMap<PgId, Totals>,
    /// Groups of which a row was damaged: what has to be taken off for it is not known.
    recount: BTreeSet<PgId>,
}

impl GroupTotals<'_> {
    fn change(&mut self, key: &LeafKey, before: Option<Vec<u8>>, now: Option<&[u8]>) -> Result<(), redb::Error> {
        let pg = key.pg;
        if !self.groups.contains_key(&pg) {
            let saved = self.table.get(pg.0)?.map(|row| Totals::decode(pg.0, row.value()));
            if saved == Some(None) {
                self.recount.insert(pg);
            }
            self.groups.insert(pg, saved.flatten().unwrap_or_default());
        }
        let totals = self.groups.entry(pg).or_default();
        if let Some(before) = before {
            if IndexRow::decode(key, &before).is_none() {
                self.recount.insert(pg);
            }
            totals.remove(&before);
        }
        now.into_iter().for_each(|row| totals.add(row));
        Ok(())
    }

    fn save(mut self, index: &impl ReadableTable<(u32, u64, u32), &'static [u8]>) -> Result<(), redb::Error> {
        for (pg, mut totals) in self.groups {
            if self.recount.contains(&pg) {
                totals = Totals::default();
                for row in index.range((pg.0, 0, 0)..=(pg.0, u64::MAX, u32::MAX))? {
                    totals.add(row?.1.value());
                }
            }
            match totals.rows {
                0 => self.table.remove(pg.0)?,
                _ => self.table.insert(pg.0, &totals.encode(pg.0)[..])?,
            };
        }
        Ok(())
    }
}

/// A leaf as its image and its row in the index together give it.
pub(crate) fn decode(key: &LeafKey, image: Option<&[u8]>, row: Option<Option<IndexRow>>) -> Result<SavedLeaf, Wrong> {
    let bad = |what: &str, row: Option<IndexRow>| {
        let what = format!("the leaf of layer {} chunk {}: {what}", key.layer, key.chunk);
        SavedLeaf::Damaged(Box::new(DamagedLeaf {
            what,
            stamps: row.map(|row| row.stamps),
            own: row.map(|row| row.own),
        }))
    };
    let Some(image) = image else {
        return Ok(match row {
            None => SavedLeaf::Absent,
            Some(row) => bad("it was saved, and is not there", row),
        });
    };
    let leaf = match Leaf::decode(image) {
        Ok((stated, leaf)) if stated == *key => leaf,
        Ok(_) => return Ok(bad("another one is stored in its place", row.flatten())),
        Err(error @ LeafError::Version(_)) => return Err(Wrong::Failed(MapError::Failed(error.to_string()))),
        Err(error) => return Ok(bad(&error.to_string(), row.flatten())),
    };
    Ok(match row {
        Some(Some(row)) if row.image_crc == Leaf::image_crc(image) => SavedLeaf::Whole(Arc::new(leaf)),
        // The index is damaged, and nothing speaks against the leaf.
        Some(None) => SavedLeaf::Whole(Arc::new(leaf)),
        Some(Some(row)) => {
            bad("an older one is stored in its place", Some(IndexRow { stamps: row.stamps.max(leaf.stamps()), ..row }))
        }
        None => bad("the index does not know it", Some(IndexRow { stamps: leaf.stamps(), own: 0, image_crc: 0 })),
    })
}

/// The rows of both copies of a small table. Where one is damaged the other counts; where a page of one was lost,
/// `later` says what is safe to believe.
pub(crate) fn both<K: redb::Key + 'static, T: Copy + PartialEq, N: Ord + Copy>(
    transaction: &ReadTransaction,
    definitions: &[TableDefinition<K, &'static [u8]>; 2],
    decode: impl Fn(&K::SelfType<'_>, &[u8]) -> (N, Option<T>),
    later: impl Fn(T, T) -> T,
) -> Result<BTreeMap<N, Option<T>>, redb::Error> {
    let mut rows: BTreeMap<N, Option<T>> = BTreeMap::new();
    for definition in definitions {
        let Some(table) = table(transaction, *definition)? else { continue };
        for row in table.iter()? {
            let (key, row) = row?;
            let (name, row) = decode(&key.value(), row.value());
            rows.entry(name).and_modify(|known| *known = merged(*known, row, &later)).or_insert(row);
        }
    }
    Ok(rows)
}

pub(crate) fn merged<T>(one: Option<T>, other: Option<T>, later: impl Fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(later(one, other)),
        (one, other) => one.or(other),
    }
}

/// What is right of two copies of a segment's row that differ: one is older. To count too many live blocks costs space,
/// too few would cost blocks.
pub(crate) fn safer(one: SegmentRow, other: SegmentRow) -> SegmentRow {
    SegmentRow {
        generation: one.generation.max(other.generation),
        live: one.live.max(other.live),
        used: one.used || other.used,
    }
}

pub(crate) fn read_root(transaction: &ReadTransaction) -> Result<Option<CheckpointRoot>, Wrong> {
    let mut roots = Vec::new();
    for definition in ROOT {
        if let Some(row) = table(transaction, definition)?.map(|table| table.get(ROOT_KEY)).transpose()?.flatten() {
            roots.push(Root::decode(row.value()));
        }
    }
    // Of two that are whole and differ one was kept by a disk that lost a later write.
    let latest = roots.iter().flatten().max_by_key(|root| (root.incarnation, root.durable)).cloned();
    let Some(root) = latest else {
        return roots.into_iter().find_map(Result::err).map_or(Ok(None), |error| Err(Wrong::Failed(error)));
    };
    let segment =
        |segment: &u32, row: &[u8]| (*segment, opened(&segment.to_le_bytes(), row).and_then(SegmentRow::decode));
    let rows = both(transaction, &SEGMENTS, |key, row| segment(key, row), safer)?;
    let whole = |(segment, row): (u32, Option<SegmentRow>)| {
        row.map(|row| (segment, row))
            .ok_or_else(|| Wrong::Failed(MapError::both_damaged(&format!("the row of segment {segment}"))))
    };
    let segments = rows.into_iter().map(whole).collect::<Result<_, _>>()?;
    let layer = |layer: &u64, row: &[u8]| (*layer, number(&layer.to_le_bytes(), row));
    let rows = both(transaction, &LAYERS, |key, row| layer(key, row), u64::max)?;
    let whole = |(layer, blocks): (u64, Option<u64>)| {
        blocks
            .map(|blocks| (LayerId(layer), blocks))
            .ok_or_else(|| Wrong::Failed(MapError::both_damaged(&format!("the row of layer {layer}"))))
    };
    let layers = rows.into_iter().map(whole).collect::<Result<_, _>>()?;
    let mut damaged = Vec::new();
    if let Some(table) = table(transaction, DAMAGED)? {
        for row in table.iter()? {
            damaged.push(key_of(row?.0.value()));
        }
    }
    Ok(Some(CheckpointRoot { root, segments, layers, damaged }))
}

pub(crate) fn read_merged_owners(transaction: &ReadTransaction, segment: u32) -> Result<Vec<MergedOwner>, Wrong> {
    let mut merged_owners: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for definition in MERGED_OWNERS {
        let Some(table) = table(transaction, definition)? else { continue };
        for row in table.range((segment, 0)..=(segment, u64::MAX))? {
            let (key, row) = row?;
            let (_, layer) = key.value();
            let owner = number(&merged_owner_key(segment, layer), row.value());
            merged_owners.entry(layer).and_modify(|known| *known = known.or(owner)).or_insert(owner);
        }
    }
    let whole = |(layer, owner): (u64, Option<u64>)| {
        let what = || {
            Wrong::Failed(MapError::Refused(format!(
                "the merged owner of layer {layer} in segment {segment} is damaged"
            )))
        };
        owner.map(|owner| MergedOwner { segment, layer: LayerId(layer), owner: LayerId(owner) }).ok_or_else(what)
    };
    merged_owners.into_iter().map(whole).collect()
}

pub(crate) fn read_totals(transaction: &ReadTransaction, pg: PgId) -> Result<Option<String>, Wrong> {
    let (mut found, mut is_whole) = (Totals::default(), true);
    if let Some(index) = table(transaction, INDEX)? {
        for row in index.range((pg.0, 0, 0)..=(pg.0, u64::MAX, u32::MAX))? {
            let (key, row) = row?;
            let (_, layer, chunk) = key.value();
            is_whole &= IndexRow::decode(&key_of((layer, chunk, pg.0)), row.value()).is_some();
            found.add(row.value());
        }
    }
    let saved = table(transaction, TOTALS)?.map(|table| table.get(pg.0)).transpose()?.flatten();
    let should = match saved.map(|row| Totals::decode(pg.0, row.value())) {
        None => Totals::default(),
        Some(Some(totals)) => totals,
        // It is counted again when a leaf of the group is saved.
        Some(None) => return Ok(None),
    };
    // Of what can't be read whole the leaves say more than the sum.
    let same = found.rows == should.rows && (found.sum == should.sum || !is_whole);
    let (there, saved) = (found.rows, should.rows);
    Ok((!same).then(|| format!("the map has {there} leaves of group {pg}, {saved} were saved, or others: the device has lost writes that it called done")))
}
