//! The writing end of the log: records wait, are sealed into batches, and become durable in order.

mod encode;
pub(crate) mod format;
mod plan;
mod queue;
mod space;
mod writer;

pub(crate) use queue::{DurableRecord, Item, Move, Queued};
pub(crate) use writer::{LogWriter, Sealing};
