//! From a volume's bytes to the copies that hold them.
//!
//! A [`Gateway`] takes requests on volumes, cuts them at chunk borders ([`cut`](crate)), sends each part to the node
//! that can serve it, follows redirections, sends again after a broken connection, and answers when all parts are
//! done. Checksums of written blocks are made here, and those of read blocks checked here. A write may be sent more
//! than once; its session and number let the primary apply it once.

mod answers;
mod cut;
mod ended;
mod gateway;
mod reading;
mod sending;
mod statistics;
#[cfg(test)]
mod tests;
mod view;

pub use gateway::{Effect, Gateway, Op, Outcome, Piece};
pub use statistics::{Counters, LATENCY_BUCKETS, VolumeStatistics};
pub use view::{GroupView, VolumeView};

use std::time::Duration;

/// Most bytes of one node's clients that may be under way.
pub const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;
/// Most parts of reads that may be under way.
pub const IN_FLIGHT_READS_MAX: usize = 2048;
/// Numbers of unanswered writes of a session lie within this many of each other; what a primary remembers of a
/// session is at least that.
pub const WRITE_WINDOW: u64 = 1024;
/// Most parts that one request is cut into (32 MiB at any alignment, with edges), with room to spare.
pub const PARTS_PER_OP_MAX: u64 = 16;
/// A refused part is sent again after this time, or as soon as the configuration changes.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// A part that nobody has answered for so long is sent again although the connection stands, and then each time after twice
/// as long: whoever has it knows it by its number.
pub const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long a write waits for a group that has too few copies in sync, before it fails.
pub const COPIES_WAIT: Duration = Duration::from_secs(30);
/// Times that a damaged block is asked for where only the primary answers, and mends it meanwhile.
pub const MENDING_READS_MAX: usize = 50;
/// One block status request looks at this many chunks at most.
pub const STATUS_CHUNKS_MAX: u64 = 64;
