//! What a gateway knows of the cluster.

use azekura_base::{CHUNK_SIZE, ChunkIndex, Endpoint, IoLimits, KeyId, LayerId, LogicalBlock, PgId, VolumeId};
use std::sync::Arc;
use std::time::Duration;

/// A volume as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeView {
    /// The volume.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// What its clients count blocks in.
    pub logical_block: LogicalBlock,
    /// The layer that reads and writes name.
    pub layer: LayerId,
    /// The layer that is about to be put on top of it: until it is there, or is not to come any more, nothing is
    /// written.
    pub cut: Option<LayerId>,
    /// No writes: a snapshot.
    pub read_only: bool,
    /// How long a request waits for a group that does not serve it, before it fails; `None`: for ever.
    pub io_timeout: Option<Duration>,
    /// The groups of its storage class, in order.
    pub groups: Arc<[PgId]>,
    /// Where in `groups` chunk 0 is.
    pub group_offset: u32,
    /// The data key that it is encrypted with.
    pub key: Option<KeyId>,
    /// What its clients may ask for in a second, if that is limited.
    pub limits: Option<IoLimits>,
}

/// Volumes of this bit are snapshots: the rest of the number is that of their layer.
const SNAPSHOT: u64 = 1 << 63;

impl VolumeView {
    /// The id that requests on a snapshot of this layer carry. It is another one than the volume's, whose requests name
    /// the layer only while it is the head.
    #[must_use]
    pub fn snapshot_id(layer: LayerId) -> VolumeId {
        VolumeId(SNAPSHOT | layer.0)
    }

    /// A request of this id may name this layer: a snapshot's names its own, a volume's any that was ever its head.
    #[must_use]
    pub fn snapshot_layer(id: VolumeId) -> Option<LayerId> {
        (id.0 & SNAPSHOT != 0).then_some(LayerId(id.0 & !SNAPSHOT))
    }

    /// The placement group of a chunk: round robin from the volume's offset, so that sequential I/O touches every
    /// group evenly.
    #[must_use]
    pub fn group_of(&self, chunk: ChunkIndex) -> Option<PgId> {
        let count = self.groups.len() as u64;
        let at = (u64::from(self.group_offset) + u64::from(chunk.0)).checked_rem(count)?;
        self.groups.get(at as usize).copied()
    }

    /// A chunk of the group that no client ever reads or writes: it lies behind the largest size of a volume.
    pub(crate) fn spare_chunk(&self, pg: PgId) -> Option<ChunkIndex> {
        let last = u32::MAX - 1;
        (0..self.groups.len() as u32)
            .map(|back| ChunkIndex(last - back))
            .find(|chunk| self.group_of(*chunk) == Some(pg))
    }

    /// The groups that have chunks of it, each once.
    pub(crate) fn groups_of_chunks(&self) -> impl Iterator<Item = PgId> + '_ {
        let chunks = self.size.div_ceil(CHUNK_SIZE as u64).min(self.groups.len() as u64);
        (0..chunks).filter_map(|chunk| self.group_of(ChunkIndex(chunk as u32)))
    }

    /// The chunk that holds the byte at `offset`, and the byte's place in it.
    #[must_use]
    pub fn locate(offset: u64) -> (ChunkIndex, u32) {
        (ChunkIndex((offset / CHUNK_SIZE as u64) as u32), (offset % CHUNK_SIZE as u64) as u32)
    }
}

/// Where a group's copies are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The shard of the primary.
    pub primary: Endpoint,
    /// The shards of the copies that answer readers, the primary's among them.
    pub copies: Vec<Endpoint>,
    /// Only the primary answers readers, and mends its damaged blocks from copies that don't.
    pub primary_reads: bool,
}
