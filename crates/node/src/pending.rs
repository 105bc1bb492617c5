//! What a store was asked for, so that its completion finds whoever waits for it.

use azekura_base::{BlockIndex, BlockRange, ChunkIndex, DeviceId, Epoch, LayerId, PgId, RequestId, Sequence};
use azekura_replica::Client;
use std::num::NonZeroU64;
use std::time::Duration;

/// Something that a store was asked for.
pub(crate) enum PendingOp {
    Append {
        pg: PgId,
        sequence: Sequence,
        life: u32,
    },
    Repair {
        pg: PgId,
        epoch: Epoch,
        id: Option<NonZeroU64>,
    },
    Changes {
        pg: PgId,
        copy: DeviceId,
        id: u64,
    },
    Blocks {
        pg: PgId,
        layer: LayerId,
        chunk: ChunkIndex,
        id: u64,
    },
    Checksums {
        pg: PgId,
        id: u64,
    },
    Epoch {
        pg: PgId,
        epoch: Epoch,
    },
    Prepared {
        pg: PgId,
        sequence: Sequence,
        epoch: Epoch,
    },
    Edge {
        pg: PgId,
        merge: u64,
        block: BlockIndex,
    },
    Read {
        pg: PgId,
        range: BlockRange,
        client: Client,
        request: RequestId,
        at: Duration,
    },
    Status {
        client: Client,
        request: RequestId,
    },
    Drop {
        layer: LayerId,
    },
    Compare {
        asker: u64,
        from: Option<LayerId>,
        to: LayerId,
    },
    Measure {
        asker: u64,
    },
    /// A read whose client was sent to another copy meanwhile.
    Void {
        blocks: u16,
    },
    Merge,
    Forget,
    Complete,
}

impl PendingOp {
    /// The chunk that is read.
    pub(crate) fn chunk(&self) -> Option<(LayerId, ChunkIndex)> {
        match self {
            PendingOp::Read { range, .. } => Some((range.layer, range.chunk)),
            PendingOp::Blocks { layer, chunk, .. } => Some((*layer, *chunk)),
            _ => None,
        }
    }
}
