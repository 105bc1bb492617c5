//! What nodes say to each other: messages, and how they are framed on a TCP connection.
//!
//! A shard dials one connection to every peer. Its requests (as gateway and as primary) go out on that connection and
//! the answers come back on it, in any order. The layout is in docs/formats/wire.md; [`encode()`] and
//! [`Decoder`] are its implementation. Every frame's header and body are covered by a CRC-32C; block payloads are
//! covered by the block checksums in the body, which whoever uses the blocks verifies.

mod codec;
mod decode;
mod encode;
mod expected;
mod frame;
mod layouts;
mod message;
mod weight;

pub use decode::{Decoder, WireError};
pub use encode::encode;
pub use expected::Expected;
pub use frame::is_urgent;
pub use message::{
    Compare, CompareOk, CopyBeat, Damaged, Fence, FenceDone, Fetch, Fetched, Freeze, GroupBeat, HandOver, Heartbeat,
    HeartbeatOk, Hello, Layers, Learn, LearnOk, Leaving, Message, NewEpoch, NewEpochOk, Prepare, PrepareHeld,
    PrepareOk, ReadDone, ReadRequest, Repair, RepairOk, Span, StatusDone, StatusRequest, WriteDone, WriteRequest,
};
pub use weight::held_bytes;

/// The protocol's version: nodes refuse to talk to another one. A greeting is understood in all of them, as far as it
/// says who speaks.
pub const VERSION: u16 = 5;
/// First bytes of every frame.
pub const MAGIC: u32 = u32::from_le_bytes(*b"AZKw");
/// Bytes of a frame's header.
pub const HEADER_SIZE: usize = 24;
/// Longest body of a frame.
pub const BODY_SIZE_MAX: usize = 96 << 10;
/// Longest payload of a frame: one chunk.
pub const PAYLOAD_SIZE_MAX: usize = azekura_base::CHUNK_SIZE;
/// Most groups that one heartbeat names; more go into several.
pub const HEARTBEAT_GROUPS_MAX: usize = 2048;
/// Most attachments that a volume has at once.
pub const ATTACHMENTS_MAX: usize = 256;
/// Most layers, and volumes, that one [`Layers`] names; more go into several.
pub const LAYERS_MAX: usize = 2048;
/// Blocks that one digest of a [`Compare`] stands for.
pub const DIGEST_SPAN_BLOCKS: usize = 32;
/// Digests of one chunk.
pub const DIGEST_SPANS: usize = azekura_base::CHUNK_BLOCKS / DIGEST_SPAN_BLOCKS;
/// Longest note of a [`Learn`], in bytes.
pub const NOTE_SIZE_MAX: usize = 2 << 20;
