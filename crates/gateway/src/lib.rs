//! From a volume's bytes to the copies that hold them.
//!
//! A [`Gateway`] takes requests on volumes, cuts them at chunk borders ([`cut`](crate)), sends each part to the shard
//! that can serve it, follows redirections, sends again after a broken connection, and answers when all parts are
//! done. Checksums of written blocks are made here, and those of read blocks checked here. A write may be sent more
//! than once; its session and number let the primary apply it once. Of an encrypted volume only ciphertext leaves the
//! gateway ([`Keyring`]).
//!
//! It decides between parts that each keep a state of their own, none of which knows another's:
//!
//! - `ciphers`: what bytes of encrypted volumes become.
//! - `directory`: volumes, where groups' copies are, and which shards are connected.
//! - `operations`: requests, what of their answers is there, and the counters of each volume.
//! - `parts/`: parts of requests: where each is, which copies it has met, how long it has waited.
//! - `room`: how much may be under way.
//! - `unsettled`: writes that were given up and may still be applied, of all gateways of the process.

mod backend;
mod ciphers;
#[cfg(test)]
mod ciphers_tests;
mod cut;
mod directory;
mod gateway;
mod operations;
mod parts;
mod reading;
#[cfg(test)]
mod rekeying_tests;
mod request;
mod room;
#[cfg(feature = "sabotage")]
#[doc(hidden)]
pub mod sabotage;
#[cfg(test)]
mod settling_tests;
mod statistics;
#[cfg(test)]
mod stuck_tests;
#[cfg(test)]
mod tests;
mod unsettled;
mod uses;
mod view;

pub use azekura_cipher::Keyring;
pub use backend::Backend;
pub use gateway::{Effect, Gateway};
pub use request::{Op, Outcome, Piece, Rekeyed};
pub use statistics::{Counters, LATENCY_BUCKETS, VolumeStatistics};
pub use unsettled::Unsettled;
pub use view::{GroupView, VolumeView};

use std::time::Duration;

/// Bytes of one node's clients that may be under way together; one volume alone takes at most half of them (0018).
pub const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;
/// Bytes of one volume's clients that may be under way whatever those of others hold; the request that passes the limit
/// is let in whole (0018).
pub const VOLUME_BYTES_MIN: usize = 1 << 20;
/// Bytes of one volume's clients that may be under way while some of its requests wait for a group that does not
/// answer (0018).
pub const VOLUME_BYTES_STUCK_MAX: usize = 8 << 20;
/// Parts of reads that may be under way together; one volume alone takes at most half of them.
pub const IN_FLIGHT_READS_MAX: usize = 4096;
/// Parts of one volume's reads that may be under way whatever those of others are (0018).
pub const VOLUME_READS_MIN: usize = 128;
/// Parts of one volume's writes that may wait for room in the windows of their groups, before further requests on it
/// wait at their connection (0018).
pub const VOLUME_BACKLOG_MAX: usize = 1024;
/// Numbers of unanswered writes of a session to one group lie within this many of each other; what a primary remembers
/// of a session is at least that (0018).
pub const WRITE_WINDOW: u64 = 1024;
/// A refused part is sent again after this time, or as soon as the configuration changes; one that has waited for long
/// after a sixteenth of the time that it has waited, at most [`RETRY_INTERVAL_MAX`].
pub const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// See [`RETRY_INTERVAL`] (0018).
pub const RETRY_INTERVAL_MAX: Duration = Duration::from_millis(500);
/// A part that nobody has answered for so long is sent again although the connection stands, and then each time after
/// twice as long: whoever has it knows it by its number.
pub const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// A part of a read that a copy has not answered for so long is sent to another copy, as long as there is one that has
/// not been asked (0018).
pub const READ_WAIT: Duration = Duration::from_secs(3);
/// How long a request waits for a group that does not serve it, before it fails, where its storage class says nothing
/// (0018).
pub const IO_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Times that a damaged block is asked for where only the primary answers, and mends it meanwhile.
pub const MENDING_READS_MAX: usize = 50;
/// One block status request looks at this many chunks at most.
pub const STATUS_CHUNKS_MAX: u64 = 64;
