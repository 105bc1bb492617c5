//! What every part of Azekura agrees on: block geometry, identifiers, checksums, and the buffers that
//! carry client data from a socket to a device and back without copies.
//!
//! Nothing in here does input or output.

mod api_access;
mod block;
mod buffer;
mod chap;
mod checksum;
mod checksums;
mod dhchap;
mod endpoint;
mod error;
mod hex32;
mod host_name;
mod ids;
mod inbox;
mod io_limits;
mod io_queue;
mod join_token;
mod key_generation;
mod layers;
mod logical_block;
mod mix;
mod outbox;
mod peer_key;
mod project;
mod rekey;
mod repeats;
mod role;
mod secret_text;
mod shared_memory;
mod size;
mod slab;
mod time;
mod token;
mod transport;
mod warning;

pub use api_access::{ApiAccess, ApiAccessError};
pub use block::{AckRule, BlockRange, Body, Extent, Prepared, Run, Write, WriteHeader};
pub use buffer::{PageBuf, copy_to_pages, trim_free_buffers};
pub use chap::{CHAP_MAX, CHAP_SECRET_MIN, ChapSecret, ChapSecrets, check_chap};
pub use checksum::{
    Checksum, UNKNOWN_CHECKSUM, ZERO_BLOCK_CHECKSUM, block_checksums, checksum, checksum_append, is_zero,
};
pub use checksums::{BlockSum, Checksums};
pub use dhchap::{DhchapKey, DhchapKeyError, DhchapTransform};
pub use endpoint::Endpoint;
pub use error::IoStatus;
pub use host_name::{HOST_NAME_MAX, HostName, HostNameError};
pub use ids::{
    BlockIndex, ChunkIndex, DeviceId, Epoch, Generation, KeyId, LayerId, NodeId, PgId, RequestId, Sequence, SessionId,
    Shard, VolumeId,
};
pub use inbox::{Fill, Inbox};
pub use io_limits::{
    IoLimits, LIMIT_BURST_SECONDS_MAX, LIMIT_BYTES_MAX, LIMIT_BYTES_MIN, LIMIT_IOPS_MAX, LIMIT_IOPS_MIN,
};
pub use io_queue::{IoClass, IoQueue, READ_PASSED_OVER_MAX};
pub use join_token::{JoinToken, JoinTokenError};
pub use key_generation::{KeyGeneration, KeyGenerationError};
pub use layers::{CompareLayers, Differences, DifferingBlocks, MeasureLayer, Measured, NotTold};
pub use logical_block::{LogicalBlock, LogicalBlockError};
pub use mix::mix64;
pub use outbox::Outbox;
pub use peer_key::{PeerKey, PeerKeyError};
pub use project::{Bounds, DEFAULT_PROJECT, project_of};
pub use rekey::{KeyUse, RekeyProgress, RekeyWish};
pub use repeats::{REPEAT_INTERVAL, Repeats};
pub use role::{Needs, Role, RoleError};
pub use secret_text::SecretText;
pub use shared_memory::SharedMemory;
pub use size::{Size, SizeError};
pub use slab::Slab;
pub use time::{day_number, rfc3339_seconds, seconds_of_rfc3339};
pub use token::{GrantId, Secret, SecretHash, Token, TokenError};
pub use transport::{Transport, TransportError};
pub use warning::Warning;

/// Size of a block in bytes: the unit of allocation, checksumming and replication.
pub const BLOCK_SIZE: usize = 4096;
/// Blocks in a chunk.
pub const CHUNK_BLOCKS: usize = 1024;
/// Size of a chunk in bytes (4 MiB): the unit of placement.
pub const CHUNK_SIZE: usize = BLOCK_SIZE * CHUNK_BLOCKS;
/// Largest volume, in bytes (64 TiB).
pub const VOLUME_SIZE_MAX: u64 = 64 << 40;
