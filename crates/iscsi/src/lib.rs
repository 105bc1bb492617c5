//! The target's side of iSCSI, sans-IO: bytes in, requests of the front end out, outcomes in, bytes out.
//!
//! Written from RFC 7143 (iSCSI) and RFC 7144 (what SAM-5 adds), SPC-4 and SBC-3; comments name their sections. A
//! volume is a target with one logical unit ([`names`]); a session has one connection and error recovery level 0. What
//! is there and what is not is in docs/iscsi.md, why it is so in decision 0044.
//!
//! - [`pdu`]: protocol data units, in and out, with their digests;
//! - [`login`]: what both sides agree on;
//! - [`session`]: a [`Connection`], which is a protocol of the front end: commands in order, data, task management;
//! - [`scsi`]: what a command asks of a volume, as a function of its bytes.

pub mod login;
pub mod names;
pub mod pdu;
pub mod scsi;
pub mod session;

pub use login::chap::{CHALLENGE_BYTES, Challenge};
pub use session::Connection;

use std::time::Duration;

/// Bytes of a data segment that this side takes once a login is over (256 KiB).
pub const SEGMENT_MAX: u32 = 256 << 10;
/// Bytes of a data segment before that (RFC 7143 section 13.12).
pub const LOGIN_SEGMENT_MAX: u32 = 8192;
/// Bytes of one sequence of data.
pub const BURST_MAX: u32 = 0x00ff_fe00;
/// Bytes that may come with a command, unasked for (64 KiB).
pub const FIRST_BURST_MAX: u32 = 64 << 10;
/// Bytes of requests that came before others that are numbered lower (64 KiB): for these nobody asks for memory.
pub const PARKED_BYTES_MAX: usize = 64 << 10;
/// Tasks of a session that have memory and whose data is on its way.
pub const RECEIVING_TASKS_MAX: usize = 16;
/// Bytes that such tasks have in all (4 MiB), unless there is but one.
pub const RECEIVING_BYTES_MAX: usize = 4 << 20;
/// Functions of task management that wait for the tasks that they end.
pub const FUNCTIONS_MAX: usize = 16;
/// Bytes of answers for which no memory is asked (256 KiB): beyond that, a session takes no further input until the
/// initiator takes them.
pub const UNMETERED_MAX: usize = 256 << 10;
/// Tasks of a session at a time: no more commands are let in (RFC 7143 section 4.2.2.1).
pub const TASKS_MAX: u32 = 128;
/// Tasks beyond that which immediate commands may begin.
pub const IMMEDIATE_TASKS_MAX: u32 = 16;
/// With more than this many bytes waiting to be sent, a session takes no further input.
pub const OUTBOX_MAX: usize = 32 << 20;
/// The same before its login is over.
pub const LOGIN_OUTBOX_MAX: usize = 64 << 10;
/// A host that has sent nothing for this long is asked whether it lives, and so again; when it has answered none of two
/// questions, its session ends. So a host is missed 45 to 60 s after its last word.
pub const PING_PERIOD: Duration = Duration::from_secs(15);
/// The longest list of targets, in bytes.
pub const LISTING_MAX: usize = 16 << 20;
