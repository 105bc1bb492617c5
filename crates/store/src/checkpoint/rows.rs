//! The rows that a checkpoint saves (docs/formats/map.md).

use crate::checkpoint::reader::Reader;
use crate::effect::MapError;
use crate::groups::Requests;
use crate::jobs::Job;
use crate::options::Identity;
use azekura_base::{
    BlockIndex, BlockRange, Checksum, Checksums, ChunkIndex, DeviceId, Epoch, KeyGeneration, LayerId, PgId, Prepared,
    RequestId, Sequence, SessionId, WriteHeader, checksum,
};
use bytes::Bytes;

/// Bits of a number of blocks, below those of a key's generation.
const COUNT_BITS: u32 = 12;

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
    /// The copy is of a map that was made from the log alone: nothing of it counts before the group is complete.
    pub unproven: bool,
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
    /// The address of its first block; none for a write of zeros.
    pub address: Option<u32>,
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
    /// The generation of the segment when it was last opened.
    pub generation: u64,
    /// Blocks in it that the saved leaves own.
    pub live: u32,
    /// The segment holds log; otherwise the segment is free.
    pub used: bool,
}

const MAGIC: &[u8; 8] = b"AZKROOT\0";
const VERSION: u16 = 4;
/// Some of its groups are unproven. Programs that know only the version before it must not take those for what they
/// were.
const VERSION_WITH_UNPROVEN: u16 = 5;
/// The oldest version that can be read: its groups name no requests.
const VERSION_WITHOUT_REQUESTS: u16 = 3;
/// Stands for the session of a write whose name the group's note or requests have already.
pub(crate) const NAMELESS: SessionId = SessionId(u64::MAX);
/// Stands for a group that is complete up to its commit point.
const COMPLETE: u64 = u64::MAX;
/// Stands for an unproven group, from [`VERSION_WITH_UNPROVEN`] on.
const UNPROVEN: u64 = u64::MAX - 1;

impl GroupRow {
    /// Up to where it is complete, as a row says it.
    fn stated_complete(&self) -> u64 {
        if self.unproven { UNPROVEN } else { self.complete.map_or(COMPLETE, |complete| complete.0) }
    }

    /// The same read: up to where it is complete, and whether the copy is unproven. Nothing of such a copy is complete.
    fn read_complete(version: u16, stated: u64) -> (Option<Sequence>, bool) {
        match stated {
            COMPLETE => (None, false),
            UNPROVEN if version >= VERSION_WITH_UNPROVEN => (Some(Sequence::ZERO), true),
            complete => (Some(Sequence(complete)), false),
        }
    }
}

impl Root {
    /// The first version of the format that has all that it says.
    fn version(&self) -> u16 {
        if self.groups.iter().any(|group| group.unproven) { VERSION_WITH_UNPROVEN } else { VERSION }
    }

    /// The root as it is saved (docs/formats/map.md, "Root").
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + self.groups.len() * 32);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version().to_le_bytes());
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
            out.extend_from_slice(&group.stated_complete().to_le_bytes());
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
        let mut reader = Reader::new(bytes);
        if reader.take::<8>().ok_or_else(short)? != *MAGIC {
            return Err(MapError::Failed("the checkpoint root is damaged: wrong magic".into()));
        }
        let version = u16::from_le_bytes(reader.take().ok_or_else(short)?);
        if !(VERSION_WITHOUT_REQUESTS..=VERSION_WITH_UNPROVEN).contains(&version) {
            return Err(MapError::Failed(format!("checkpoint format version {version} is not known")));
        }
        let mut copy = bytes.to_vec();
        copy.get_mut(12..16).ok_or_else(short)?.fill(0);
        if bytes[12..16] != checksum(&copy).0.to_le_bytes() {
            return Err(MapError::Failed("the checkpoint root is damaged: its checksum does not match".into()));
        }
        reader.take::<6>().ok_or_else(short)?;
        let root = Root::read(&mut reader, version).ok_or_else(short)?;
        if !reader.is_empty() {
            return Err(MapError::Failed("the checkpoint root is damaged: it is too long".into()));
        }
        Ok(root)
    }
}

impl Root {
    fn read(reader: &mut Reader<'_>, version: u16) -> Option<Root> {
        let cluster = u128::from_le_bytes(reader.take()?);
        let device = DeviceId(reader.u32()?);
        let segment = reader.u32()?;
        let instance = reader.u64()?;
        let incarnation = reader.u64()?;
        let durable = reader.u64()?;
        let generation = reader.u64()?;
        let sequence = reader.u64()?;
        let previous = reader.u32()?;
        let (group_count, job_count) = (reader.u32()?, reader.u32()?);
        let mut groups = Vec::new();
        for _ in 0..group_count {
            let pg = PgId(reader.u32()?);
            let note_len = reader.u32()? as usize;
            let (epoch, committed) = (Epoch(reader.u64()?), Sequence(reader.u64()?));
            let (complete, unproven) = GroupRow::read_complete(version, reader.u64()?);
            let note_version = reader.u64()?;
            let pending_count = reader.u64()?;
            let note = Bytes::copy_from_slice(reader.slice(note_len)?);
            let mut pending = Vec::new();
            for _ in 0..pending_count {
                pending.push(PendingRow::decode(reader, pg)?);
            }
            let requests =
                if version > VERSION_WITHOUT_REQUESTS { Requests::decode(reader)? } else { Requests::default() };
            groups.push(GroupRow { pg, epoch, committed, complete, unproven, note_version, note, pending, requests });
        }
        let mut jobs = Vec::new();
        for _ in 0..job_count {
            let (kind, first, second) = (reader.u64()?, reader.u64()?, reader.u64()?);
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

    /// The row of a committed write that waits for its leaf. Who asked for the write is known otherwise.
    #[must_use]
    pub(crate) fn of_committed(
        pg: PgId,
        sequence: Sequence,
        range: BlockRange,
        (log, generation): (u64, u64),
        (address, checksums): (u32, &Checksums),
    ) -> PendingRow {
        let (epoch, commit, session, request) = (Epoch(0), Sequence::ZERO, NAMELESS, RequestId(0));
        let header = WriteHeader { pg, epoch, sequence, commit, session, request, range };
        let info = Prepared { header, zero: false, durable: true };
        PendingRow { info, log, generation, address: Some(address), checksums: Some(checksums.clone()) }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let WriteHeader { epoch, sequence, session, request, range, .. } = &self.info.header;
        let words = [self.log, self.generation, epoch.0, sequence.0, session.0, request.0, range.layer.0];
        words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&range.chunk.0.to_le_bytes());
        // Block 0 is the superblock, so an address of 0 says that there is none.
        out.extend_from_slice(&self.address.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&range.first.0.to_le_bytes());
        let key = self.checksums.as_ref().map_or(KeyGeneration::FIRST, Checksums::key);
        out.extend_from_slice(&(range.count | u16::from(key.number()) << COUNT_BITS).to_le_bytes());
        for sum in self.checksums.iter().flat_map(|sums| sums.iter()) {
            out.extend_from_slice(&sum.0.to_le_bytes());
        }
    }

    fn decode(reader: &mut Reader<'_>, pg: PgId) -> Option<PendingRow> {
        let (log, generation) = (reader.u64()?, reader.u64()?);
        let (epoch, sequence) = (Epoch(reader.u64()?), Sequence(reader.u64()?));
        let (session, request) = (SessionId(reader.u64()?), RequestId(reader.u64()?));
        let (layer, chunk, address) = (LayerId(reader.u64()?), ChunkIndex(reader.u32()?), reader.u32()?);
        let first = BlockIndex(u16::from_le_bytes(reader.take()?));
        let word = u16::from_le_bytes(reader.take()?);
        let (count, key) = (word & ((1 << COUNT_BITS) - 1), KeyGeneration::of_bits(word >> COUNT_BITS));
        let address = Some(address).filter(|address| *address != 0);
        let zero = address.is_none();
        let mut sums = Vec::new();
        for _ in 0..if zero { 0 } else { count } {
            sums.push(Checksum(reader.u32()?));
        }
        let range = BlockRange { layer, chunk, first, count };
        let header = WriteHeader { pg, epoch, sequence, commit: Sequence::ZERO, session, request, range };
        let checksums = (!zero).then(|| Checksums::from(&sums[..]).under(key));
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
        let mut reader = Reader::new(bytes);
        let (generation, live) = (reader.u64()?, reader.u32()?);
        let [used, ..] = reader.take::<4>()?;
        reader.is_empty().then_some(SegmentRow { generation, live, used: used != 0 })
    }
}
