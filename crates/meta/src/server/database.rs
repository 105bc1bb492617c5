//! The durable image: a redb database that holds every key, the bounded history and the leases.
//!
//! Tables: `meta` (name → number), `keys` (key → `mvccpb.KeyValue`), `history` ((revision, position) →
//! `mvccpb.Event` with the former value), `leases` (id → seconds to live).

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use prost::Message;
use redb::{Builder, Database as Redb, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use super::batch::Batch;
use super::error::ServerError;
use super::lease::Leases;
use super::limits::CACHE_BYTES_MAX;
use super::state::{Change, State};
use crate::etcd::{Event, KeyValue};

const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const KEYS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("keys");
const HISTORY: TableDefinition<(i64, u32), &[u8]> = TableDefinition::new("history");
const LEASES: TableDefinition<i64, i64> = TableDefinition::new("leases");

/// (revision, position in it) and an encoded event.
type HistoryRow = ((i64, u32), Vec<u8>);

/// Format that this version writes.
const FORMAT: u64 = 1;

/// The open database.
#[derive(Debug)]
pub struct Database {
    redb: Redb,
    path: PathBuf,
}

impl Database {
    /// Opens the database, or makes a new one, and reads the memory image from it.
    pub fn open(path: &Path, now: Instant) -> Result<(Database, State, Leases), ServerError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|source| ServerError::Folder { path: folder.to_path_buf(), source })?;
        }
        let redb = match Builder::new().set_cache_size(CACHE_BYTES_MAX).create(path) {
            Ok(redb) => redb,
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(ServerError::InUse { path: path.to_path_buf() }),
            Err(error) => return Err(failed(path, &error)),
        };
        let database = Database { redb, path: path.to_path_buf() };
        database.prepare().map_err(|error| failed(path, &error))?;
        let (state, leases) = database.load(now)?;
        Ok((database, state, leases))
    }

    /// Makes the tables and, in a new database, the server's identity.
    fn prepare(&self) -> Result<(), redb::Error> {
        let transaction = self.redb.begin_write()?;
        {
            transaction.open_table(KEYS)?;
            transaction.open_table(HISTORY)?;
            transaction.open_table(LEASES)?;
            let mut meta = transaction.open_table(META)?;
            if meta.get("format")?.is_none() {
                meta.insert("format", FORMAT)?;
                meta.insert("cluster_id", random_id())?;
                meta.insert("revision", 1)?;
                meta.insert("compacted", 0)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn load(&self, now: Instant) -> Result<(State, Leases), ServerError> {
        let error = |error: redb::Error| failed(&self.path, &error);
        let numbers = self.numbers().map_err(error)?;
        let number = |name: &str| numbers.get(name).copied().unwrap_or(0);
        if number("format") != FORMAT {
            return Err(ServerError::Format { path: self.path.clone(), found: number("format"), known: FORMAT });
        }
        let mut leases = Leases::default();
        for (id, ttl) in self.leases().map_err(error)? {
            leases.insert(id, ttl, now);
        }
        let broken = |what: &str| ServerError::Database { path: self.path.clone(), reason: format!("broken {what}") };
        let mut keys = BTreeMap::new();
        for bytes in self.keys().map_err(error)? {
            let kv = KeyValue::decode(bytes.as_slice()).map_err(|_| broken("key record"))?;
            leases.move_key(&kv.key, 0, kv.lease);
            keys.insert(kv.key.clone(), Arc::new(kv));
        }
        let mut history = VecDeque::new();
        for ((revision, position), bytes) in self.history().map_err(error)? {
            let event = Event::decode(bytes.as_slice()).map_err(|_| broken("history record"))?;
            let change = decode_change(revision, position, event).ok_or_else(|| broken("history record"))?;
            history.push_back(Arc::new(change));
        }
        let state = State {
            cluster_id: number("cluster_id"),
            revision: number("revision") as i64,
            compacted: number("compacted") as i64,
            keys,
            history,
            failure: None,
        };
        Ok((state, leases))
    }

    fn numbers(&self) -> Result<BTreeMap<String, u64>, redb::Error> {
        let transaction = self.redb.begin_read()?;
        let table = transaction.open_table(META)?;
        table
            .iter()?
            .map(|row| row.map(|(name, value)| (name.value().to_owned(), value.value())))
            .collect::<Result<_, _>>()
            .map_err(Into::into)
    }

    fn leases(&self) -> Result<Vec<(i64, i64)>, redb::Error> {
        let transaction = self.redb.begin_read()?;
        let table = transaction.open_table(LEASES)?;
        table
            .iter()?
            .map(|row| row.map(|(id, ttl)| (id.value(), ttl.value())))
            .collect::<Result<_, _>>()
            .map_err(Into::into)
    }

    fn keys(&self) -> Result<Vec<Vec<u8>>, redb::Error> {
        let transaction = self.redb.begin_read()?;
        let table = transaction.open_table(KEYS)?;
        table
            .iter()?
            .map(|row| row.map(|(_, value)| value.value().to_vec()))
            .collect::<Result<_, _>>()
            .map_err(Into::into)
    }

    fn history(&self) -> Result<Vec<HistoryRow>, redb::Error> {
        let transaction = self.redb.begin_read()?;
        let table = transaction.open_table(HISTORY)?;
        table
            .iter()?
            .map(|row| row.map(|(at, value)| (at.value(), value.value().to_vec())))
            .collect::<Result<_, _>>()
            .map_err(Into::into)
    }

    /// Writes a batch; when this returns it is on the disk.
    pub fn commit(&self, batch: &Batch, revision: i64) -> Result<(), redb::Error> {
        let transaction = self.redb.begin_write()?;
        {
            let mut keys = transaction.open_table(KEYS)?;
            let mut history = transaction.open_table(HISTORY)?;
            for change in &batch.changes {
                match &change.after {
                    Some(kv) => keys.insert(change.key.as_slice(), kv.encode_to_vec().as_slice())?,
                    None => keys.remove(change.key.as_slice())?,
                };
                let event = change.event(true).encode_to_vec();
                history.insert((change.revision, change.position), event.as_slice())?;
            }
            let mut leases = transaction.open_table(LEASES)?;
            for (id, ttl) in &batch.leases {
                match ttl {
                    Some(ttl) => leases.insert(id, ttl)?,
                    None => leases.remove(id)?,
                };
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert("revision", revision as u64)?;
            if let Some(compacted) = batch.compacted {
                meta.insert("compacted", compacted as u64)?;
                history.retain_in((0, 0)..(compacted, 0), |_, _| false)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// Bytes of the database file.
    #[must_use]
    pub fn size(&self) -> u64 {
        std::fs::metadata(&self.path).map(|metadata| metadata.len()).unwrap_or(0)
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> ServerError {
    ServerError::Database { path: path.to_path_buf(), reason: error.to_string() }
}

fn decode_change(revision: i64, position: u32, event: Event) -> Option<Change> {
    let before = event.prev_kv.map(Arc::new);
    let kv = event.kv?;
    let key = kv.key.clone();
    let deleted = event.r#type == i32::from(crate::etcd::EventType::Delete);
    let after = (!deleted).then(|| Arc::new(kv));
    Some(Change { revision, position, key, after, before })
}

/// A random number above 0 that fits etcd's signed ids.
pub fn random_id() -> u64 {
    // The system's random source fails only before the first seed of a booting kernel; the clock is unique enough then.
    let random = getrandom::u64().unwrap_or_else(|_| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64)
    });
    (random >> 1).max(1)
}
