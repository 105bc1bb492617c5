//! The target's side of NVMe over TCP, sans-IO: bytes in, requests of the front end out, outcomes in, bytes
//! out. Its PDUs and entries are read and written in both directions.
//!
//! Written from the NVMe/TCP Transport Specification 1.0 ("TCP" in comments), the NVM Express Base Specification 2.0
//! ("Base") and the NVM Command Set Specification 1.0 ("NVM"); comments name their sections. What is there and what is
//! not is in docs/nvme.md, why it is so in decision 0045.
//!
//! - [`pdu`]: protocol data units out of a stream and into one, digests, alignment, transfers, fatal errors;
//! - [`authentication`]: how a host proves that it knows a secret;
//! - [`command`]: submission queue entries, and where their data is;
//! - [`completion`]: completion queue entries, and status codes by name;
//! - [`identify`]: what controllers and namespaces say of themselves;
//! - [`properties`]: how a host enables, resets and shuts down a controller;
//! - [`keep_alive`]: when a host is taken for gone;
//! - [`log`], [`discovery`]: log pages;
//! - [`reservations`]: what reservations bar, and what hosts are told of them;
//! - [`names`], [`controllers`]: whose queue a connection is;
//! - [`session`]: a [`Connection`], which is a protocol of the front end.

pub mod authentication;
pub mod command;
pub mod completion;
pub mod controllers;
pub mod discovery;
mod fields;
pub mod identify;
pub mod keep_alive;
pub mod log;
pub mod names;
pub mod pdu;
pub mod properties;
pub mod reservations;
pub mod session;

pub use authentication::{CHALLENGE_BYTES, Challenge};
pub use command::Command;
pub use completion::{Completion, Status};
pub use controllers::Controllers;
pub use session::Connection;

/// Bytes of in-capsule data that every target of NVMe/TCP takes with a command of the admin queue, or with a Fabrics
/// command (TCP section 3.4.1): it is not negotiated.
pub const ADMIN_CAPSULE_DATA_MAX: u32 = 8192;
/// Bytes of one H2CData PDU that this side takes (MAXH2CDATA, TCP section 3.6.2.3): all of a command's (1 MiB), for
/// Linux before 5.17 sends all that an R2T asks for in one, whatever it was told.
pub const H2C_DATA_MAX: u32 = TRANSFER_MAX;
/// The least that MAXH2CDATA may be (TCP section 3.6.2.3).
pub const H2C_DATA_MAX_LEAST: u32 = 4096;
/// Transfers from the host that are asked for at a time, of all commands of a queue: one each of the deepest queue.
pub const TRANSFERS_MAX: usize = 1024;

/// The longest fused Compare and Write, in logical blocks: more might lie in two of the blocks that are written as one.
pub const COMPARED_BLOCKS_MAX: u64 = 1;
/// Bytes of the longest read or write (1 MiB), as a power of two of 4 KiB (MDTS).
pub const TRANSFER_MAX: u32 = 4096 << TRANSFER_POWER;
/// See [`TRANSFER_MAX`].
pub const TRANSFER_POWER: u8 = 8;
/// The most that one Write Zeroes makes zeros (WZSL), as a power of two of 4 KiB: all that it can say, 32 MiB.
pub const ZEROES_POWER: u8 = 13;
/// Entries of a queue.
pub const QUEUE_ENTRIES: u16 = 256;
/// Entries of an admin queue, as hosts are told where they discover.
pub const ADMIN_ENTRIES: u16 = 32;
/// I/O queues of a controller.
pub const QUEUES_MAX: u16 = 64;
/// Asynchronous Event Requests of a controller at a time.
pub const EVENTS_MAX: usize = 4;
/// Bytes of a log page that a host may ask for at a time.
pub const LOG_MAX: usize = TRANSFER_MAX as usize;
/// Bytes of data in capsules that are kept for commands that have no memory yet (64 KiB).
pub const PARKED_BYTES_MAX: usize = 64 << 10;
/// Commands of a queue that have memory and whose data is on its way.
pub const RECEIVING_TASKS_MAX: usize = 16;
/// Bytes that such commands have in all (4 MiB), unless there is but one.
pub const RECEIVING_BYTES_MAX: usize = 4 << 20;
/// Bytes of answers for which no memory is asked (256 KiB): beyond that, a queue takes no further input until the host
/// takes them.
pub const UNMETERED_MAX: usize = 256 << 10;
/// With more than this many bytes waiting to be sent, a queue takes no further input.
pub const OUTBOX_MAX: usize = 32 << 20;
/// The same before it has connected.
pub const CONNECT_OUTBOX_MAX: usize = 64 << 10;
