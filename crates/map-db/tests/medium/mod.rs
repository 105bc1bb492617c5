//! A disk in memory that fails in the ways disks do, and leaves to save on it.
#![allow(dead_code, clippy::unwrap_used)]

use crate::common::{IDENTITY, tiny};
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use azekura_map_db::CheckpointDb;
use azekura_store::{CheckpointBatch, Entry, Leaf, LeafKey, MergedOwner, SavedLeaf, SavedMap, SegmentRow, Store};
use redb::StorageBackend;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

pub const BLOCK_BYTES: u64 = 4096;

/// What a simulated disk does, and what it holds. It outlives the databases that are opened on it.
#[derive(Debug, Default)]
pub struct Medium {
    pub bytes: Vec<u8>,
    /// So many reads fail from here on, then so many writes, then so many flushes.
    pub fails: [u32; 3],
    /// Contents before the last write of each place.
    pub before: BTreeMap<u64, Vec<u8>>,
    /// Blocks that can't be read for good.
    pub bad: BTreeSet<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct Backend(pub Arc<Mutex<Medium>>);

impl Backend {
    fn with<T>(&self, which: usize, f: impl FnOnce(&mut Medium) -> T) -> io::Result<T> {
        let mut medium = self.0.lock().unwrap();
        if medium.fails[which] > 0 {
            medium.fails[which] -= 1;
            return Err(io::Error::other("Input/output error"));
        }
        Ok(f(&mut medium))
    }

    pub fn open(&self) -> CheckpointDb {
        let backend = self.clone();
        CheckpointDb::over(move || Ok(Box::new(backend.clone()))).unwrap()
    }

    pub fn fail(&self, which: usize, times: u32) {
        self.0.lock().unwrap().fails[which] = times;
    }

    /// Where some bytes are on the medium.
    pub fn places(&self, bytes: &[u8]) -> Vec<usize> {
        let medium = self.0.lock().unwrap();
        (0..=medium.bytes.len() - bytes.len()).filter(|at| medium.bytes[*at..].starts_with(bytes)).collect()
    }

    /// The block at this place can't be read for good.
    pub fn spoil(&self, at: usize) {
        self.0.lock().unwrap().bad.insert(at as u64 / BLOCK_BYTES);
    }

    /// A copy of what it holds.
    pub fn copied(&self) -> Backend {
        let copy = Backend::default();
        copy.0.lock().unwrap().bytes = self.0.lock().unwrap().bytes.clone();
        copy
    }

    pub fn flip(&self, at: usize) {
        self.0.lock().unwrap().bytes[at] ^= 0x10;
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().bytes.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(0, |medium| {
            let end = (offset + out.len() as u64).div_ceil(BLOCK_BYTES);
            if medium.bad.range(offset / BLOCK_BYTES..end).next().is_some() {
                return Err(io::Error::other("Medium error"));
            }
            out.copy_from_slice(&medium.bytes[offset as usize..][..out.len()]);
            Ok(())
        })?
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(1, |medium| medium.bytes.resize(len as usize, 0))
    }
    fn sync_data(&self) -> io::Result<()> {
        self.with(2, |_| ())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(1, |medium| {
            let at = offset as usize;
            // A disk has another sector for one that is written anew.
            (offset.div_ceil(BLOCK_BYTES)..(offset + data.len() as u64) / BLOCK_BYTES).for_each(|block| {
                medium.bad.remove(&block);
            });
            medium.before.insert(offset, medium.bytes[at..at + data.len()].to_vec());
            medium.bytes[at..at + data.len()].copy_from_slice(data);
        })
    }
}

/// Leaves that don't all fit into the database's own memory.
pub const MORE_THAN_CACHED: u32 = 1500;

pub fn key(chunk: u32) -> LeafKey {
    LeafKey { layer: LayerId(10), chunk: ChunkIndex(chunk), pg: PgId(1) }
}

pub fn leaf(modified: u64) -> Arc<Leaf> {
    let mut leaf = Leaf { modified: Sequence(modified), log_upto: modified * 2, ..Leaf::default() };
    for block in 0..1024 {
        leaf.entries.set(block, Entry::own(300 + block as u32, azekura_base::Checksum(modified as u32)));
    }
    Arc::new(leaf)
}

/// A checkpoint with some leaves, two segments, a layer and a merged owner.
pub fn batch(leaves: impl IntoIterator<Item = (u32, u64)>) -> CheckpointBatch {
    let format = Store::format(&tiny(), &IDENTITY).unwrap();
    let row = |live| SegmentRow { generation: 77, live, used: true };
    CheckpointBatch {
        segments: vec![(0, row(0x5a5a)), (1, row(0x1234))],
        leaves: leaves.into_iter().map(|(chunk, modified)| (key(chunk), leaf(modified))).collect(),
        layers: vec![(LayerId(10), 0x7777_1111)],
        merged_owners: vec![MergedOwner { segment: 1, layer: LayerId(5), owner: LayerId(0x6666_2222) }],
        ..format.checkpoint
    }
}

pub fn loads(map: &CheckpointDb, chunk: u32) -> SavedLeaf {
    map.load_leaves(&[key(chunk)]).unwrap().remove(0)
}
