//! The saved map on disk, in a redb database (docs/formats/map.md).
//!
//! Its calls block: a node runs them on threads of their own. What changes or lists the map is done by one thread, in
//! the order of the effects; leaves are looked up beside that, by others ([`CheckpointDb`] can be cloned): the database
//! gives each reader the map as of the last checkpoint that had ended when it began.
//!
//! The database checks no page when it reads one, and a disk may lose a write that it has called done, so nothing that
//! comes out of it is believed as it is: rows have checksums, small ones exist twice, and an index in another tree than
//! the leaves says which image of each is the latest (docs/decisions/0015-saved-map.md).

use crate::apart::{SavedLeaves, Stumbled, guarded};
use crate::file::MapFile;
use crate::rows::IndexRow;
use crate::tables::{INDEX, Wrong, key_of, read_merged_owners, read_root, read_totals, table, write};
use crate::watched::{Troubles, Watched};
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use azekura_store::{CheckpointBatch, CheckpointRoot, LeafImage, LeafKey, MapError, MergedOwner, SavedLeaf, SavedMap};
use redb::{Database, ReadTransaction, ReadableDatabase, StorageBackend};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Memory that the database may use for its pages, in bytes, where nobody says how much.
const CACHE_BYTES: usize = 16 << 20;
/// What a checkpoint writes is gathered in memory besides, one in so many parts of that: all the pages that a
/// checkpoint of a large map changes, mostly.
const GATHERED_SHARE: usize = 2;
/// What the database refuses is asked for so many times, each time of a database opened anew: it takes no call after an
/// error.
const TRIES: usize = 2;
/// An error takes the database from all who use it. Who has made none asks again so many times.
const INTERRUPTIONS_MAX: usize = 64;
/// Leaves that could not be read and that are remembered.
const SUSPECTS_MAX: usize = 1024;
/// So often one checkpoint may be tried: it goes round leaves whose rows it can't change.
const SAVE_TRIES_MAX: usize = 64;

type OpenBackend = dyn Fn() -> io::Result<Box<dyn StorageBackend>> + Send + Sync;

/// A saved map in a file. A clone is another way to the same one.
#[derive(Clone)]
pub struct CheckpointDb(Arc<Shared>);

struct Shared {
    slot: RwLock<Slot>,
    open: Box<OpenBackend>,
    cache_bytes: usize,
    /// Of the checkpoint that could not be saved yet. Whoever holds it is not interrupted by a leaf that is known to be
    /// unreadable.
    stumbled: Mutex<Stumbled>,
    /// Leaves that could not be read: looked up again, they would take the database from a checkpoint.
    suspects: Mutex<BTreeSet<LeafKey>>,
}

/// The database, held for reading by all who use it, also by who writes to it: to open it anew all have to leave.
#[derive(Default)]
struct Slot {
    /// `None` after a failure, until it can be opened again: the library takes no call after one.
    opened: Option<Opened>,
    /// How often it was opened.
    openings: u64,
}

struct Opened {
    database: Database,
    troubles: Troubles,
}

impl std::fmt::Debug for CheckpointDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CheckpointDb")
    }
}

fn is_full(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(io) if matches!(io.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

impl CheckpointDb {
    /// Opens the database file at `path`, and makes it when there is none.
    ///
    /// # Errors
    /// When it can't be opened, is damaged, or another process has it open. The caller names the path.
    pub fn open(path: &Path) -> Result<CheckpointDb, MapError> {
        CheckpointDb::open_with(path, CACHE_BYTES)
    }

    /// The same, with so many bytes of memory for pages at the most, and half as many while a checkpoint is written. A
    /// checkpoint reads each page that it changes: none where the map of what is written fits in.
    ///
    /// # Errors
    /// As [`CheckpointDb::open`].
    pub fn open_with(path: &Path, cache_bytes: usize) -> Result<CheckpointDb, MapError> {
        let file = path.to_path_buf();
        CheckpointDb::over_with(move || Ok(Box::new(MapFile::open(&file)?)), cache_bytes)
    }

    /// Opens the database on what `open` gives; it is called again after each failure.
    ///
    /// # Errors
    /// When it can't be opened or is damaged.
    pub fn over(
        open: impl Fn() -> io::Result<Box<dyn StorageBackend>> + Send + Sync + 'static,
    ) -> Result<CheckpointDb, MapError> {
        CheckpointDb::over_with(open, CACHE_BYTES)
    }

    /// The same, with so much memory as [`CheckpointDb::open_with`] has.
    ///
    /// # Errors
    /// As [`CheckpointDb::over`].
    pub fn over_with(
        open: impl Fn() -> io::Result<Box<dyn StorageBackend>> + Send + Sync + 'static,
        cache_bytes: usize,
    ) -> Result<CheckpointDb, MapError> {
        let map = CheckpointDb(Arc::new(Shared {
            slot: RwLock::default(),
            open: Box::new(open),
            cache_bytes,
            stumbled: Mutex::default(),
            suspects: Mutex::default(),
        }));
        map.with(|_, _| ()).map_err(|error| match is_full(&error) {
            true => MapError::Full(error.to_string()),
            false => MapError::Failed(error.to_string()),
        })?;
        Ok(map)
    }

    /// Does something with the database, which is opened if it is not; `act` is told which opening it is.
    fn with<T>(&self, act: impl FnOnce(&Opened, u64) -> T) -> Result<T, redb::Error> {
        loop {
            let slot = self.0.slot.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(opened) = &slot.opened {
                return Ok(act(opened, slot.openings));
            }
            drop(slot);
            let mut slot = self.0.slot.write().unwrap_or_else(PoisonError::into_inner);
            if slot.opened.is_none() {
                self.open_in(&mut slot)?;
            }
        }
    }

    fn open_in(&self, slot: &mut Slot) -> Result<(), redb::Error> {
        let troubles = Troubles::default();
        let backend = Watched::new((self.0.open)()?, troubles.clone(), self.0.cache_bytes / GATHERED_SHARE);
        let database = Database::builder().set_cache_size(self.0.cache_bytes).create_with_backend(backend)?;
        *slot = Slot { opened: Some(Opened { database, troubles }), openings: slot.openings + 1 };
        Ok(())
    }

    /// Asks the database, opened anew, while nobody else does: what goes wrong then is nobody else's doing.
    fn alone<T>(&self, ask: impl FnOnce(&Opened) -> Result<T, Wrong>) -> Result<T, Wrong> {
        let mut slot = self.0.slot.write().unwrap_or_else(PoisonError::into_inner);
        slot.opened = None;
        self.open_in(&mut slot)?;
        let answer = slot.opened.as_ref().map_or(Err(Wrong::Refused(redb::Error::PreviousIo)), ask);
        if matches!(answer, Err(Wrong::Refused(_))) {
            slot.opened = None;
        }
        answer
    }

    /// An opening of the database has failed: who wants it next opens it anew.
    fn close(&self, opening: u64) {
        let mut slot = self.0.slot.write().unwrap_or_else(PoisonError::into_inner);
        if slot.openings == opening {
            slot.opened = None;
        }
    }

    /// Asks for something. The database is opened anew once for it: most errors of a device are over after a moment,
    /// and the library takes no call after one, whoever has met it.
    fn ask<T>(&self, ask: impl Fn(&ReadTransaction) -> Result<T, Wrong>) -> Result<T, Wrong> {
        let in_transaction = |opened: &Opened| {
            let transaction = opened.database.begin_read().map_err(|error| Wrong::Refused(error.into()));
            transaction.and_then(|transaction| ask(&transaction))
        };
        let (mut tries, mut interruptions) = (0, 0);
        loop {
            let error = match self.with(|opened, opening| (in_transaction(opened), opening)) {
                Ok((Err(Wrong::Refused(error)), opening)) => {
                    self.close(opening);
                    error
                }
                Ok((answer, _)) => return answer,
                Err(error) => error,
            };
            match error {
                redb::Error::PreviousIo if interruptions < INTERRUPTIONS_MAX => interruptions += 1,
                // What it does not understand now is nobody else's doing.
                redb::Error::Corrupted(_) => return self.alone(in_transaction),
                error if tries + 1 >= TRIES => return Err(Wrong::Refused(error)),
                _ => tries += 1,
            }
        }
    }

    /// Looks leaves up that are not known to be unreadable, or while no checkpoint is being saved.
    fn look_up(&self, keys: &[LeafKey]) -> Result<Vec<SavedLeaf>, Wrong> {
        let ask = || {
            self.ask(|transaction| {
                let leaves = SavedLeaves::of(transaction)?;
                keys.iter().map(|key| leaves.leaf(key)).collect()
            })
        };
        let suspects = || self.0.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.iter().any(|key| suspects().contains(key)) {
            let leaves = ask();
            if let (Err(Wrong::Refused(_)), [key]) = (&leaves, keys)
                && suspects().len() < SUSPECTS_MAX
            {
                suspects().insert(*key);
            }
            return leaves;
        }
        let _no_checkpoint = self.0.stumbled.lock().unwrap_or_else(PoisonError::into_inner);
        let leaves = ask();
        if leaves.is_ok() {
            suspects().retain(|key| !keys.contains(key));
        }
        leaves
    }

    /// The same; `what` is told to people when it can't be read.
    fn read<T>(&self, what: &str, ask: impl Fn(&ReadTransaction) -> Result<T, Wrong>) -> Result<T, MapError> {
        self.ask(ask).map_err(|wrong| match wrong {
            Wrong::Failed(error) => error,
            Wrong::Refused(error) => MapError::Refused(format!("{what} can't be read: {error}")),
        })
    }

    fn save(&self, batch: &CheckpointBatch) -> Result<(), MapError> {
        let mut stumbled = self.0.stumbled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = redb::Error::PreviousIo;
        let mut tries = 0;
        for _ in 0..SAVE_TRIES_MAX {
            let at = Cell::new(None);
            let saved = self.with(|opened, opening| {
                opened.troubles.forget();
                guarded(|| write(&opened.database, batch, &stumbled, &at))
                    .map_err(|error| (error, opened.troubles.clone(), opening))
            });
            match saved {
                Ok(Ok(())) => {
                    *stumbled = Stumbled::default();
                    return Ok(());
                }
                Ok(Err((error, troubles, opening))) => {
                    // What was saved before is still there: it is wanted for reading, too.
                    self.close(opening);
                    last = may_be_tried_again(error, &troubles, at.get().is_some())?;
                }
                Err(error) if is_full(&error) => return Err(MapError::Full(not_saved(&error))),
                Err(error) => last = error,
            }
            match at.get() {
                // It was interrupted.
                _ if matches!(last, redb::Error::PreviousIo) => {}
                Some(key) => stumbled.over(key, batch),
                None => tries += 1,
            }
            if tries >= TRIES {
                break;
            }
        }
        Err(MapError::Refused(not_saved(&last)))
    }
}

/// Why a checkpoint was not saved, if it may be tried again.
fn may_be_tried_again(error: redb::Error, troubles: &Troubles, at_a_leaf: bool) -> Result<redb::Error, MapError> {
    // Nobody knows what of the transaction is durable, and asking again would not tell.
    if troubles.sync_failed() {
        return Err(MapError::Failed(not_saved(&error)));
    }
    if is_full(&error) {
        return Err(MapError::Full(not_saved(&error)));
    }
    // What the database does not understand elsewhere it will not understand the next time.
    if troubles.write_failed() || matches!(error, redb::Error::Corrupted(_)) && !at_a_leaf {
        return Err(MapError::Failed(not_saved(&error)));
    }
    Ok(error)
}

fn not_saved(error: &redb::Error) -> String {
    format!("a checkpoint can't be saved: {error}")
}

impl SavedMap for CheckpointDb {
    fn root(&self) -> Result<Option<CheckpointRoot>, MapError> {
        self.read("the checkpoint root", read_root)
    }

    fn checkpoint(&mut self, batch: CheckpointBatch) -> Result<(), MapError> {
        self.save(&batch)
    }

    fn load_leaves(&self, keys: &[LeafKey]) -> Result<Vec<SavedLeaf>, MapError> {
        match (self.look_up(keys), keys) {
            (Ok(leaves), _) => Ok(leaves),
            (Err(Wrong::Failed(error)), _) => Err(error),
            (Err(Wrong::Refused(error)), [key]) => self
                .read("a leaf", |transaction| Ok(vec![SavedLeaves::of(transaction)?.leaf_without_image(key, &error)?])),
            // Whoever asked asks for one after the other.
            (Err(Wrong::Refused(error)), _) => Err(MapError::Refused(format!("leaves can't be read: {error}"))),
        }
    }

    fn scan_layer(&self, layer: LayerId, from: ChunkIndex, limit: usize) -> Result<Vec<LeafKey>, MapError> {
        let listed = self.ask(|transaction| Ok(SavedLeaves::of(transaction)?.of_layer(layer, from, limit)?));
        listed.or_else(|_| {
            self.read("a layer", |transaction| Ok(SavedLeaves::of(transaction)?.indexed_of_layer(layer, from, limit)?))
        })
    }

    fn for_each_leaf(&self, visit: &mut dyn FnMut(Result<(LeafKey, LeafImage), MapError>)) -> Result<(), MapError> {
        let indexed = self.read("the index", |transaction| Ok(SavedLeaves::of(transaction)?.indexed_places()?))?;
        let mut places = self.ask(|transaction| Ok(SavedLeaves::of(transaction)?.places()?)).unwrap_or_default();
        places.extend(indexed);
        for key in places.into_iter().map(key_of) {
            match self.load_leaves(&[key]).map(|mut leaves| leaves.pop()) {
                Ok(Some(SavedLeaf::Whole(leaf))) => visit(Ok((key, leaf))),
                Ok(Some(SavedLeaf::Damaged(damaged) | SavedLeaf::Refused(damaged))) => {
                    visit(Err(MapError::Refused(damaged.what)));
                }
                Ok(Some(SavedLeaf::Absent) | None) => {}
                Err(error) => visit(Err(error)),
            }
        }
        Ok(())
    }

    fn load_merged_owners(&self, segment: u32) -> Result<Vec<MergedOwner>, MapError> {
        self.read("the merged owners of a segment", |transaction| read_merged_owners(transaction, segment))
    }

    fn compare_totals(&self, pg: PgId) -> Result<Option<String>, MapError> {
        self.read("the index of a group", |transaction| read_totals(transaction, pg))
    }

    fn scan_modified(
        &self,
        pg: PgId,
        after: Sequence,
        from: (LayerId, ChunkIndex),
        limit: usize,
    ) -> Result<Vec<(LeafKey, Sequence)>, MapError> {
        self.read("the index of a group", |transaction| {
            let Some(index) = table(transaction, INDEX)? else { return Ok(Vec::new()) };
            let leaves = SavedLeaves::of(transaction)?;
            let mut listed = Vec::new();
            for row in index.range((pg.0, from.0.0, from.1.0)..=(pg.0, u64::MAX, u32::MAX))? {
                let (key, row) = row?;
                let (_, layer, chunk) = key.value();
                let key = key_of((layer, chunk, pg.0));
                let modified = match IndexRow::decode(&key, row.value()) {
                    Some(row) => row.stamps.modified,
                    // Nobody knows when it was modified: it counts as if it was just now. Without a leaf, the key
                    // itself is not to be believed.
                    None if leaves.has(&key)? => Sequence(u64::MAX),
                    None => continue,
                };
                if modified > after || after == Sequence::ZERO {
                    listed.push((key, modified));
                    if listed.len() >= limit {
                        break;
                    }
                }
            }
            Ok(listed)
        })
    }
}
