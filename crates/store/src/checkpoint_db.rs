//! The saved map on disk, in a redb database (docs/formats/map.md).
//!
//! Its calls block: a node runs them on a thread of their own, one at a time, in the order of the effects.

use crate::checkpoint::{CheckpointBatch, CheckpointRoot, Root, SavedMap, SegmentRow};
use crate::effect::MapError;
use crate::heirs::Heir;
use crate::leaf::{Leaf, LeafImage, LeafKey};
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageError,
    TableDefinition, TableError,
};
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The checkpoint root, under the one key "root".
const ROOT: TableDefinition<&str, &[u8]> = TableDefinition::new("root");
/// Segment to [`SegmentRow`].
const SEGMENTS: TableDefinition<u32, &[u8]> = TableDefinition::new("segments");
/// Layer and chunk to leaf image.
const LEAVES: TableDefinition<(u64, u32), &[u8]> = TableDefinition::new("leaves");
/// Group, layer and chunk to the sequence of the last committed write.
const MODIFIED: TableDefinition<(u32, u64, u32), u64> = TableDefinition::new("modified");

/// Layer to the blocks that its leaves own.
const LAYERS: TableDefinition<u64, u64> = TableDefinition::new("layers");
/// Segment and layer to the layer that it was merged into.
const HEIRS: TableDefinition<(u32, u64), u64> = TableDefinition::new("heirs");

const ROOT_KEY: &str = "root";
/// The encoded root, the cells of all segments, the layers.
type RootRows = (Vec<u8>, Vec<SegmentCell>, Vec<(LayerId, u64)>);

/// Memory that the database may use for its pages, in bytes.
const CACHE_BYTES_MAX: usize = 8 << 20;

/// A saved map in a file.
pub struct CheckpointDb {
    /// `None` after a failure, until it can be opened again: the library takes no call after one.
    database: Option<Database>,
    path: PathBuf,
}

impl std::fmt::Debug for CheckpointDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CheckpointDb")
    }
}

fn failed(what: &'static str) -> impl Fn(redb::Error) -> MapError {
    move |error| MapError::Failed(format!("{what}: {error}"))
}

/// A checkpoint that could not be saved.
fn not_saved(error: &redb::Error) -> MapError {
    let what = format!("a checkpoint can't be saved: {error}");
    match error {
        redb::Error::Io(io) if matches!(io.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            MapError::Full(what)
        }
        _ => MapError::Failed(what),
    }
}

fn wrong(error: impl Display) -> MapError {
    MapError::Failed(error.to_string())
}

impl CheckpointDb {
    /// Opens the database file at `path`, and makes it when there is none.
    ///
    /// # Errors
    /// When it can't be opened, is damaged, or another process has it open.
    pub fn open(path: &Path) -> Result<CheckpointDb, MapError> {
        let database = Self::database(path);
        let database = database.map_err(|error| MapError::Failed(format!("{}: {error}", path.display())))?;
        Ok(CheckpointDb { database: Some(database), path: path.to_path_buf() })
    }

    fn database(path: &Path) -> Result<Database, DatabaseError> {
        Database::builder().set_cache_size(CACHE_BYTES_MAX).create(path)
    }

    fn reading(&self) -> Result<ReadTransaction, MapError> {
        self.opened().map_err(wrong)?.begin_read().map_err(wrong)
    }

    fn opened(&self) -> Result<&Database, redb::Error> {
        self.database.as_ref().ok_or(redb::Error::PreviousIo)
    }

    fn write(&mut self, batch: &CheckpointBatch) -> Result<(), redb::Error> {
        if self.database.is_none() {
            self.database = Some(Self::database(&self.path)?);
        }
        let transaction = self.opened()?.begin_write()?;
        {
            let mut root = transaction.open_table(ROOT)?;
            root.insert(ROOT_KEY, &batch.root.encode()[..])?;
            let mut segments = transaction.open_table(SEGMENTS)?;
            for (segment, row) in &batch.segments {
                segments.insert(segment, &row.encode()[..])?;
            }
            let mut leaves = transaction.open_table(LEAVES)?;
            let mut modified = transaction.open_table(MODIFIED)?;
            for key in &batch.removed {
                leaves.remove((key.layer.0, key.chunk.0))?;
                modified.remove((key.pg.0, key.layer.0, key.chunk.0))?;
            }
            for (key, leaf) in &batch.leaves {
                leaves.insert((key.layer.0, key.chunk.0), &leaf.encode(key)[..])?;
                modified.insert((key.pg.0, key.layer.0, key.chunk.0), leaf.modified.0)?;
            }
            let mut layers = transaction.open_table(LAYERS)?;
            for (layer, blocks) in &batch.layers {
                match blocks {
                    0 => layers.remove(layer.0)?,
                    blocks => layers.insert(layer.0, blocks)?,
                };
            }
            let mut heirs = transaction.open_table(HEIRS)?;
            if !heirs.is_empty()? {
                for segment in &batch.heirs_gone {
                    heirs.retain_in((*segment, 0)..=(*segment, u64::MAX), |_, _| false)?;
                }
            }
            for heir in &batch.heirs {
                heirs.insert((heir.segment, heir.layer.0), heir.heir.0)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn read_root(&self) -> Result<Option<RootRows>, redb::Error> {
        let transaction = self.opened()?.begin_read()?;
        let table = match transaction.open_table(ROOT) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(root) = table.get(ROOT_KEY)? else { return Ok(None) };
        let rows = transaction.open_table(SEGMENTS)?;
        let cells = rows.iter()?.map(|row| row.map(|(segment, row)| (segment.value(), row.value().to_vec())));
        let cells: Result<_, StorageError> = cells.collect();
        let rows = transaction.open_table(LAYERS)?;
        let layers = rows.iter()?.map(|row| row.map(|(layer, blocks)| (LayerId(layer.value()), blocks.value())));
        let layers: Result<_, StorageError> = layers.collect();
        Ok(Some((root.value().to_vec(), cells?, layers?)))
    }
}

type SegmentCell = (u32, Vec<u8>);

fn decode(key: (LayerId, ChunkIndex), image: &[u8]) -> Result<(LeafKey, LeafImage), MapError> {
    let (stated, leaf) = Leaf::decode(image)?;
    if (stated.layer, stated.chunk) != key {
        return Err(MapError::Failed(format!(
            "the leaf of {:?} {:?} is stored as {:?} {:?}",
            stated.layer, stated.chunk, key.0, key.1
        )));
    }
    Ok((stated, Arc::new(leaf)))
}

impl SavedMap for CheckpointDb {
    fn root(&self) -> Result<Option<CheckpointRoot>, MapError> {
        let Some((root, cells, layers)) = self.read_root().map_err(failed("the checkpoint root can't be read"))? else {
            return Ok(None);
        };
        let rows = cells.iter().map(|(segment, row)| SegmentRow::decode(row).map(|row| (*segment, row)));
        let (root, segments) = (Root::decode(&root)?, rows.collect::<Result<_, _>>()?);
        Ok(Some(CheckpointRoot { root, segments, layers }))
    }

    fn checkpoint(&mut self, batch: CheckpointBatch) -> Result<(), MapError> {
        self.write(&batch).map_err(|error| {
            // What was saved before is still there: it is wanted for reading, too.
            drop(self.database.take());
            self.database = Self::database(&self.path).ok();
            not_saved(&error)
        })
    }

    fn load_leaves(&self, keys: &[LeafKey]) -> Result<Vec<Option<LeafImage>>, MapError> {
        let transaction = self.reading()?;
        let table = match transaction.open_table(LEAVES) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(vec![None; keys.len()]),
            Err(error) => return Err(wrong(error)),
        };
        let load = |key: &LeafKey| match table.get((key.layer.0, key.chunk.0)).map_err(wrong)? {
            Some(image) => decode((key.layer, key.chunk), image.value()).map(|(_, leaf)| Some(leaf)),
            None => Ok(None),
        };
        keys.iter().map(load).collect()
    }

    fn scan_layer(&self, layer: LayerId, from: ChunkIndex, limit: usize) -> Result<Vec<LeafKey>, MapError> {
        let transaction = self.reading()?;
        let table = match transaction.open_table(LEAVES) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(wrong(error)),
        };
        let rows = table.range((layer.0, from.0)..=(layer.0, u32::MAX)).map_err(wrong)?;
        let key = |row: Result<_, StorageError>| {
            let (key, image): (redb::AccessGuard<'_, (u64, u32)>, redb::AccessGuard<'_, &[u8]>) = row.map_err(wrong)?;
            let (layer, chunk) = key.value();
            decode((LayerId(layer), ChunkIndex(chunk)), image.value()).map(|(key, _)| key)
        };
        rows.take(limit).map(key).collect()
    }

    fn for_each_leaf(&self, visit: &mut dyn FnMut(Result<(LeafKey, LeafImage), MapError>)) -> Result<(), MapError> {
        let transaction = self.reading()?;
        let table = match transaction.open_table(LEAVES) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            Err(error) => return Err(wrong(error)),
        };
        for row in table.iter().map_err(wrong)? {
            let (key, image) = row.map_err(wrong)?;
            let (layer, chunk) = key.value();
            visit(decode((LayerId(layer), ChunkIndex(chunk)), image.value()));
        }
        Ok(())
    }

    fn load_heirs(&self, segment: u32) -> Result<Vec<Heir>, MapError> {
        let transaction = self.reading()?;
        let table = match transaction.open_table(HEIRS) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(wrong(error)),
        };
        let rows = table.range((segment, 0)..=(segment, u64::MAX)).map_err(wrong)?;
        let heir = |row: Result<_, StorageError>| {
            let (key, heir): (redb::AccessGuard<'_, (u32, u64)>, redb::AccessGuard<'_, u64>) = row.map_err(wrong)?;
            let (segment, layer) = key.value();
            Ok(Heir { segment, layer: LayerId(layer), heir: LayerId(heir.value()) })
        };
        rows.map(heir).collect()
    }

    fn scan_modified(
        &self,
        pg: PgId,
        after: Sequence,
        from: (LayerId, ChunkIndex),
        limit: usize,
    ) -> Result<Vec<(LeafKey, Sequence)>, MapError> {
        let transaction = self.reading()?;
        let table = match transaction.open_table(MODIFIED) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(wrong(error)),
        };
        let rows = table.range((pg.0, from.0.0, from.1.0)..=(pg.0, u64::MAX, u32::MAX)).map_err(wrong)?;
        let mut listed = Vec::new();
        for row in rows {
            let (key, modified) = row.map_err(wrong)?;
            let (_, layer, chunk) = key.value();
            if modified.value() > after.0 || after == Sequence::ZERO {
                let key = LeafKey { layer: LayerId(layer), chunk: ChunkIndex(chunk), pg };
                listed.push((key, Sequence(modified.value())));
                if listed.len() >= limit {
                    break;
                }
            }
        }
        Ok(listed)
    }
}
