//! The back-end's side of vhost-user for a virtio block device, sans-IO: bytes, file descriptors and shared memory in,
//! requests of the front end out, outcomes in, bytes and used descriptors out.
//!
//! Written from QEMU's *Vhost-user Protocol* ("Protocol" in comments, with its headings) and from *Virtual I/O Device
//! (VIRTIO) Version 1.2* ("virtio", with its sections). What is there and what is not is in docs/vhost.md, why it is so
//! in decision 0052.
//!
//! - [`message`]: messages of the control connection, out of bytes and into them;
//! - [`memory`]: regions of a guest's memory, and what its addresses mean;
//! - [`ring`]: split virtqueues; [`chain`]: what a driver has put into one;
//! - [`inflight`]: the record of what is under way, which outlives this process;
//! - [`log`]: the record of the guest's pages that were written;
//! - [`block`]: requests of the block device, and its configuration space;
//! - [`violation`], [`fault`]: what ends a connection;
//! - [`connection`]: a [`Connection`], which is a protocol of the front end.

pub mod block;
pub mod chain;
pub mod connection;
pub mod fault;
pub mod inflight;
pub mod log;
pub mod memory;
pub mod message;
pub mod ring;
#[cfg(test)]
mod tests;
pub mod violation;

pub use connection::Connection;

/// Queues of a connection, for which a client asks by GET_QUEUE_NUM.
pub const QUEUES_MAX: usize = 64;
/// Entries of a ring.
pub const RING_ENTRIES_MAX: u16 = 1024;
/// Regions of a guest's memory (Protocol, *Memory regions description*).
pub const REGIONS_MAX: usize = 8;
/// Segments of data in a request that drivers are told of: with header and status they fill a ring of 128 entries,
/// which is what QEMU makes.
pub const SEGMENTS_MAX: u32 = 126;
/// Descriptors of one chain, those of an indirect table included. Drivers may make a table longer than its ring.
pub const CHAIN_MAX: usize = 1024;
/// Requests in a row that are answered without the volume's being asked, before others have their turn.
pub const EMPTY_REQUESTS_MAX: u32 = 64;
/// Bytes of the longest payload of a message.
pub const PAYLOAD_MAX: usize = 1024;
/// Sectors of 512 bytes that one discard or one write of zeroes may have (1 GiB).
pub const RANGE_SECTORS_MAX: u32 = 2 << 20;
