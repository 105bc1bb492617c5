//! The store of one device: a log that is also the data, and a map that says where each block is.
mod checkpoint;
mod effect;
mod leaf;
mod memory_map;
mod options;
mod record;
mod store;

pub use checkpoint::{CheckpointBatch, CheckpointRoot, GroupRow, Position, Root, SavedMap, SegmentRow};
pub use effect::{Completion, DeviceError, Done, Effect, Extent, Failure, IoId, MapError, OpenError, ReadError, Run};
pub use leaf::{Entry, Leaf, LeafImage, LeafKey};
pub use memory_map::MemoryMap;
pub use options::{Identity, Options, SUPERBLOCK_AREA_BLOCKS};
pub use record::{Body, Checksums, Copy, GroupState, PreparedInfo, Record, Write};
pub use store::{Format, Space, Statistics, Store};
