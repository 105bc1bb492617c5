//! The target's side of NVMe over TCP, sans-IO: so far its bytes, in both directions, and single parts of a
//! controller.
//!
//! Written from the NVMe/TCP Transport Specification 1.0 ("TCP" in comments), the NVM Express Base Specification 2.0
//! ("Base") and the NVM Command Set Specification 1.0 ("NVM"); comments name their sections. What is there and what is
//! not is in decision 0045.
//!
//! - [`pdu`]: protocol data units out of a stream and into one, digests, alignment, transfers, fatal errors;
//! - [`command`]: submission queue entries, and where their data is;
//! - [`completion`]: completion queue entries, and status codes by name;
//! - [`identify`]: what controllers and namespaces say of themselves;
//! - [`properties`]: how a host enables, resets and shuts down a controller;
//! - [`keep_alive`]: when a host is taken for gone.

pub mod command;
pub mod completion;
mod fields;
pub mod identify;
pub mod keep_alive;
pub mod pdu;
pub mod properties;

pub use command::Command;
pub use completion::{Completion, Status};

/// Bytes of in-capsule data that every target of NVMe/TCP takes with a command of the admin queue, or with a Fabrics
/// command (TCP section 3.4.1): it is not negotiated.
pub const ADMIN_CAPSULE_DATA_MAX: u32 = 8192;
/// Bytes of one H2CData PDU that this side takes (MAXH2CDATA, TCP section 3.6.2.3), 256 KiB: small enough to be
/// received in one buffer, large enough that headers cost nothing.
pub const H2C_DATA_MAX: u32 = 256 << 10;
/// The least that MAXH2CDATA may be (TCP section 3.6.2.3).
pub const H2C_DATA_MAX_LEAST: u32 = 4096;
/// Transfers from the host that are asked for at a time, of all commands of a queue: one each of the deepest queue.
pub const TRANSFERS_MAX: usize = 1024;
