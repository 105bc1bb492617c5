//! What a checkpoint saves, and the interface of whatever saves it.

pub(crate) mod position;

use crate::effect::{Done, Effect, IoId, MapError};
use crate::heirs::Heir;
use crate::jobs::Job;
use crate::leaf::{LeafImage, LeafKey, SavedLeaf};
use crate::options::Identity;
use crate::requests::Requests;
use azekura_base::{
    BlockIndex, BlockRange, Checksum, Checksums, ChunkIndex, DeviceId, Epoch, LayerId, PgId, Prepared, RequestId,
    Sequence, SessionId, WriteHeader, checksum,
};
use bytes::Bytes;

/// The place in the log from which replay starts: the beginning of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The segment's generation: how many segments had been opened when it was.
    pub generation: u64,
    /// The segment.
    pub segment: u32,
    /// The log sequence of its first batch.
    pub sequence: u64,
    /// The header checksum of the batch before that; 0 at the start of the log.
    pub previous: u32,
}

/// A placement group's state at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRow {
    /// The group.
    pub pg: PgId,
    /// The last epoch durably started.
    pub epoch: Epoch,
    /// Committed and durable up to here.
    pub committed: Sequence,
    /// The group is complete up to here only; `None`: up to the commit point.
    pub complete: Option<Sequence>,
    /// Counts the group's notes.
    pub note_version: u64,
    /// What the replication layer wants kept. Opaque.
    pub note: Bytes,
    /// Durable writes that are not in the saved leaves yet and lie before the replay position.
    pub pending: Vec<PendingRow>,
    /// Who asked for writes that were committed since the note was given and may lie before the replay position.
    pub requests: Requests,
}

/// A write that replay would not find any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRow {
    /// The write, as [`PendingRow::kept`] has it.
    pub info: Prepared,
    /// The log sequence of its batch.
    pub log: u64,
    /// The generation of its segment when it was written.
    pub generation: u64,
    /// The address of its first block; 0 for a write of zeros.
    pub address: u32,
    /// The checksums of its blocks; none for a write of zeros.
    pub checksums: Option<Checksums>,
}

/// The root of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Whose log this map belongs to.
    pub identity: Identity,
    /// Counts the openings of the store.
    pub incarnation: u64,
    /// The log was durable up to this sequence.
    pub durable: u64,
    /// Where replay starts.
    pub position: Position,
    /// All groups.
    pub groups: Vec<GroupRow>,
    /// Work in the background that is not over.
    pub jobs: Vec<Job>,
}

/// A segment's state at a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentRow {
    /// Its generation when it was last opened.
    pub generation: u64,
    /// Blocks in it that the saved leaves own.
    pub live: u32,
    /// It holds log; otherwise it is free.
    pub used: bool,
}

/// What one checkpoint transaction writes.
#[derive(Debug, Clone)]
pub struct CheckpointBatch {
    /// Replaces the root.
    pub root: Root,
    /// Rows of segments that changed.
    pub segments: Vec<(u32, SegmentRow)>,
    /// Leaves to write.
    pub leaves: Vec<(LeafKey, LeafImage)>,
    /// Leaves to remove.
    pub removed: Vec<LeafKey>,
    /// Layers whose count of owned blocks changed; 0 removes the row.
    pub layers: Vec<(LayerId, u64)>,
    /// Segments that become free: their heirs are removed, before new ones are added.
    pub heirs_gone: Vec<u32>,
    /// Heirs to add.
    pub heirs: Vec<Heir>,
}

/// What the saved map gives at open.
#[derive(Debug, Clone)]
pub struct CheckpointRoot {
    /// The root.
    pub root: Root,
    /// Rows of all segments that were ever used.
    pub segments: Vec<(u32, SegmentRow)>,
    /// Blocks that the saved leaves of each layer own.
    pub layers: Vec<(LayerId, u64)>,
    /// Leaves that don't know where some of their blocks are.
    pub damaged: Vec<LeafKey>,
}

/// Whatever keeps the checkpoints: a database on disk (`crates/map-db`), [`crate::MemoryMap`] in tests.
pub trait SavedMap {
    /// The last checkpoint; `None` when there never was one.
    ///
    /// # Errors
    /// When it can't be read or is damaged.
    fn root(&self) -> Result<Option<CheckpointRoot>, MapError>;

    /// Does one transaction: when it returns all is durable, or nothing happened.
    ///
    /// # Errors
    /// When it can't be written.
    fn checkpoint(&mut self, batch: CheckpointBatch) -> Result<(), MapError>;

    /// Looks leaves up, in the order of `keys`.
    ///
    /// # Errors
    /// When one can't be read.
    fn load_leaves(&self, keys: &[LeafKey]) -> Result<Vec<SavedLeaf>, MapError>;

    /// Lists at most `limit` leaves of `layer`, by chunk, starting at chunk `from`.
    ///
    /// # Errors
    /// When they can't be read.
    fn scan_layer(&self, layer: LayerId, from: ChunkIndex, limit: usize) -> Result<Vec<LeafKey>, MapError>;

    /// Lists at most `limit` leaves of `pg` modified after `after` (all, if that is 0), by layer and chunk, starting
    /// with `from`.
    ///
    /// # Errors
    /// When they can't be read.
    fn scan_modified(
        &self,
        pg: PgId,
        after: Sequence,
        from: (LayerId, ChunkIndex),
        limit: usize,
    ) -> Result<Vec<(LeafKey, Sequence)>, MapError>;

    /// Lists the heirs of a segment.
    ///
    /// # Errors
    /// When they can't be read.
    fn load_heirs(&self, segment: u32) -> Result<Vec<Heir>, MapError>;

    /// Compares what there is of a group with how much it should be, and says what differs: then leaves of it were
    /// saved, and are not there any more without a trace.
    ///
    /// # Errors
    /// When it can't be read.
    fn compare_totals(&self, pg: PgId) -> Result<Option<String>, MapError>;

    /// Calls `visit` with every leaf; a damaged one comes as an error.
    ///
    /// # Errors
    /// When the leaves can't be listed.
    fn for_each_leaf(&self, visit: &mut dyn FnMut(Result<(LeafKey, LeafImage), MapError>)) -> Result<(), MapError>;

    /// Performs `effect` if it is one of the map's; gives it back if not.
    // What is not the map's goes back whole, to whoever it is for; that is no error to be kept small.
    #[allow(clippy::result_large_err)]
    fn perform(&mut self, effect: Effect) -> Result<(IoId, Done), Effect> {
        Ok(match effect {
            Effect::LoadLeaves { io, keys } => (io, Done::Leaves(self.load_leaves(&keys))),
            Effect::ScanLayer { io, layer, from, limit } => (io, Done::Layer(self.scan_layer(layer, from, limit))),
            Effect::ScanModified { io, pg, after, from, limit } => {
                (io, Done::Modified(self.scan_modified(pg, after, from, limit)))
            }
            Effect::LoadHeirs { io, segment } => (io, Done::Heirs(self.load_heirs(segment))),
            Effect::CompareTotals { io, pg } => (io, Done::Totals(self.compare_totals(pg))),
            Effect::Checkpoint { io, batch } => (io, Done::Checkpointed(self.checkpoint(*batch))),
            other => return Err(other),
        })
    }
}

const MAGIC: &[u8; 8] = b"AZKROOT\0";
const VERSION: u16 = 4;
/// The oldest version that can be read: its groups name no requests.
const VERSION_WITHOUT_REQUESTS: u16 = 3;
/// Stands for a group that is complete up to its commit point.
const COMPLETE: u64 = u64::MAX;

impl Root {
    /// The root as it is saved (docs/formats/map.md, "Root").
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + self.groups.len() * 32);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.identity.cluster.to_le_bytes());
        out.extend_from_slice(&self.identity.device.0.to_le_bytes());
        out.extend_from_slice(&self.position.segment.to_le_bytes());
        out.extend_from_slice(&self.identity.instance.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.durable.to_le_bytes());
        out.extend_from_slice(&self.position.generation.to_le_bytes());
        out.extend_from_slice(&self.position.sequence.to_le_bytes());
        out.extend_from_slice(&self.position.previous.to_le_bytes());
        out.extend_from_slice(&(self.groups.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.jobs.len() as u32).to_le_bytes());
        for group in &self.groups {
            out.extend_from_slice(&group.pg.0.to_le_bytes());
            out.extend_from_slice(&(group.note.len() as u32).to_le_bytes());
            out.extend_from_slice(&group.epoch.0.to_le_bytes());
            out.extend_from_slice(&group.committed.0.to_le_bytes());
            out.extend_from_slice(&group.complete.map_or(COMPLETE, |complete| complete.0).to_le_bytes());
            out.extend_from_slice(&group.note_version.to_le_bytes());
            out.extend_from_slice(&(group.pending.len() as u64).to_le_bytes());
            out.extend_from_slice(&group.note);
            group.pending.iter().for_each(|row| row.encode(&mut out));
            group.requests.encode(&mut out);
        }
        for job in &self.jobs {
            let (kind, first, second) = match job {
                Job::DropLayer(layer) => (1u64, layer.0, 0),
                Job::MergeLayer { layer, into } => (2, layer.0, into.0),
                Job::ForgetGroup(pg) => (3, u64::from(pg.0), 0),
            };
            [kind, first, second].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
        let crc = checksum(&out).0.to_le_bytes();
        out[12..16].copy_from_slice(&crc);
        out
    }

    /// The root that was saved as `bytes`.
    ///
    /// # Errors
    /// When it is damaged or of an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Root, MapError> {
        let short = || MapError::Failed("the checkpoint root is damaged: it is too short".into());
        let mut reader = Reader { bytes };
        if reader.take::<8>().ok_or_else(short)? != *MAGIC {
            return Err(MapError::Failed("the checkpoint root is damaged: wrong magic".into()));
        }
        let version = u16::from_le_bytes(reader.take().ok_or_else(short)?);
        if !(VERSION_WITHOUT_REQUESTS..=VERSION).contains(&version) {
            return Err(MapError::Failed(format!("checkpoint format version {version} is not known")));
        }
        let mut copy = bytes.to_vec();
        copy.get_mut(12..16).ok_or_else(short)?.fill(0);
        if bytes[12..16] != checksum(&copy).0.to_le_bytes() {
            return Err(MapError::Failed("the checkpoint root is damaged: its checksum does not match".into()));
        }
        reader.take::<6>().ok_or_else(short)?;
        let root = reader.root(version).ok_or_else(short)?;
        if !reader.bytes.is_empty() {
            return Err(MapError::Failed("the checkpoint root is damaged: it is too long".into()));
        }
        Ok(root)
    }
}

pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn root(&mut self, version: u16) -> Option<Root> {
        let cluster = u128::from_le_bytes(self.take()?);
        let device = DeviceId(self.u32()?);
        let segment = self.u32()?;
        let instance = self.u64()?;
        let incarnation = self.u64()?;
        let durable = self.u64()?;
        let generation = self.u64()?;
        let sequence = self.u64()?;
        let previous = self.u32()?;
        let (group_count, job_count) = (self.u32()?, self.u32()?);
        let mut groups = Vec::new();
        for _ in 0..group_count {
            let pg = PgId(self.u32()?);
            let note_len = self.u32()? as usize;
            let (epoch, committed) = (Epoch(self.u64()?), Sequence(self.u64()?));
            let complete = Some(self.u64()?).filter(|complete| *complete != COMPLETE).map(Sequence);
            let note_version = self.u64()?;
            let pending_count = self.u64()?;
            let (note, rest) = self.bytes.split_at_checked(note_len)?;
            self.bytes = rest;
            let note = Bytes::copy_from_slice(note);
            let mut pending = Vec::new();
            for _ in 0..pending_count {
                pending.push(self.pending(pg)?);
            }
            let requests = if version > VERSION_WITHOUT_REQUESTS { self.requests()? } else { Requests::default() };
            groups.push(GroupRow { pg, epoch, committed, complete, note_version, note, pending, requests });
        }
        let mut jobs = Vec::new();
        for _ in 0..job_count {
            let (kind, first, second) = (self.u64()?, self.u64()?, self.u64()?);
            jobs.push(match kind {
                1 => Job::DropLayer(LayerId(first)),
                2 => Job::MergeLayer { layer: LayerId(first), into: LayerId(second) },
                3 => Job::ForgetGroup(PgId(u32::try_from(first).ok()?)),
                _ => return None,
            });
        }
        Some(Root {
            identity: Identity { cluster, device, instance },
            incarnation,
            durable,
            position: Position { generation, segment, sequence, previous },
            groups,
            jobs,
        })
    }
}

impl PendingRow {
    /// What a row keeps of a write: a durable one, and not what was committed when it was sent.
    #[must_use]
    pub fn kept(write: &Prepared) -> Prepared {
        Prepared { header: WriteHeader { commit: Sequence::ZERO, ..write.header }, durable: true, ..*write }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let WriteHeader { epoch, sequence, session, request, range, .. } = &self.info.header;
        let words = [self.log, self.generation, epoch.0, sequence.0, session.0, request.0, range.layer.0];
        words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&range.chunk.0.to_le_bytes());
        out.extend_from_slice(&self.address.to_le_bytes());
        out.extend_from_slice(&range.first.0.to_le_bytes());
        out.extend_from_slice(&range.count.to_le_bytes());
        for sum in self.checksums.iter().flat_map(|sums| sums.iter()) {
            out.extend_from_slice(&sum.0.to_le_bytes());
        }
    }
}

impl Reader<'_> {
    fn pending(&mut self, pg: PgId) -> Option<PendingRow> {
        let (log, generation) = (self.u64()?, self.u64()?);
        let (epoch, sequence) = (Epoch(self.u64()?), Sequence(self.u64()?));
        let (session, request) = (SessionId(self.u64()?), RequestId(self.u64()?));
        let (layer, chunk, address) = (LayerId(self.u64()?), ChunkIndex(self.u32()?), self.u32()?);
        let first = BlockIndex(u16::from_le_bytes(self.take()?));
        let count = u16::from_le_bytes(self.take()?);
        let zero = address == 0;
        let mut sums = Vec::new();
        for _ in 0..if zero { 0 } else { count } {
            sums.push(Checksum(self.u32()?));
        }
        let range = BlockRange { layer, chunk, first, count };
        let header = WriteHeader { pg, epoch, sequence, commit: Sequence::ZERO, session, request, range };
        let checksums = (!zero).then(|| Checksums::from(&sums[..]));
        Some(PendingRow { info: Prepared { header, zero, durable: true }, log, generation, address, checksums })
    }
}

impl SegmentRow {
    /// Bytes of a saved row.
    pub const BYTES: usize = 16;

    /// The row as it is saved (docs/formats/map.md, "Segments").
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.generation.to_le_bytes());
        out[8..12].copy_from_slice(&self.live.to_le_bytes());
        out[12] = u8::from(self.used);
        out
    }

    /// The row that was saved as `bytes`; `None` when it has another length.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<SegmentRow> {
        let mut reader = Reader { bytes };
        let (generation, live) = (reader.u64()?, reader.u32()?);
        let [used, ..] = reader.take::<4>()?;
        reader.bytes.is_empty().then_some(SegmentRow { generation, live, used: used != 0 })
    }
}
