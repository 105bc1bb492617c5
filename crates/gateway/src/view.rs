//! What a gateway knows of the cluster.

use azekura_base::{CHUNK_SIZE, ChunkIndex, LayerId, NodeId, PgId, VolumeId};
use std::sync::Arc;

/// A volume as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeView {
    /// The volume.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The layer that reads and writes name.
    pub layer: LayerId,
    /// No writes.
    pub read_only: bool,
    /// The groups of its storage class, in order.
    pub groups: Arc<[PgId]>,
    /// Where in `groups` chunk 0 is.
    pub group_offset: u32,
}

impl VolumeView {
    /// The placement group of a chunk: round robin from the volume's offset, so that sequential I/O touches every
    /// group evenly.
    #[must_use]
    pub fn group_of(&self, chunk: ChunkIndex) -> Option<PgId> {
        let count = self.groups.len() as u64;
        let at = (u64::from(self.group_offset) + u64::from(chunk.0)).checked_rem(count)?;
        self.groups.get(at as usize).copied()
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
    /// The node of the primary.
    pub primary: NodeId,
    /// The nodes of the copies that answer readers, the primary's among them.
    pub copies: Vec<NodeId>,
    /// Only the primary answers readers, and mends its damaged blocks from copies that don't.
    pub primary_reads: bool,
}
