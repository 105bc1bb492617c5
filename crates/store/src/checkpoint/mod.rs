//! Checkpoints: what is saved when, as which rows, and the interface of whatever keeps them.

mod in_memory;
mod pace;
pub(crate) mod position;
mod reader;
mod rows;
mod saved_map;
mod saving;

pub use in_memory::{InMemoryMap, MapDamage, MapRow};
pub(crate) use pace::{replay_bytes, replay_waits};
pub(crate) use reader::Reader;
pub(crate) use rows::NAMELESS;
pub use rows::{GroupRow, PendingRow, Position, Root, SegmentRow};
pub use saved_map::{CheckpointBatch, CheckpointRoot, SavedMap};
pub(crate) use saving::{Checkpoint, Checkpointer, Sources};
