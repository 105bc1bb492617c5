//! The server side of the NBD protocol, sans-IO: bytes in, events out, replies in, bytes out.
//!
//! The protocol is the one of the *NBD protocol* document of the NetworkBlockDevice project (`doc/proto.md`); comments
//! name its sections in italics. Served is the fixed newstyle handshake with all its options, and the transmission
//! phase with simple and structured replies. Not served: oldstyle handshake, the `RESIZE` extension, extended headers.
//!
//! TLS is either not served or demanded before all else ([`Session::secured`]); its own bytes are its owner's matter.
//!
//! One [`Session`] is one connection. Its owner, who holds the socket, does this in turn:
//!
//! 1. receives into [`Session::inbox_mut`] while [`Session::wants_bytes`];
//! 2. asks [`Session::poll`] for events until there is none, or until as many requests are in flight as it allows;
//! 3. answers each request with the token it came with, whenever the answer is there, in any order;
//! 4. sends what [`Session::outbox_mut`] holds, and polls again when it had stopped short.
//!
//! ```
//! use azekura_base::VolumeId;
//! use azekura_frontend::{Export, Exports, Listing, MakeListing};
//! use azekura_nbd::{Command, Event, Session};
//!
//! struct One;
//! impl Exports for One {
//!     fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
//!         make(&mut [("vol1", "")].into_iter())
//!     }
//!     fn find(&self, name: &str) -> Option<Export> {
//!         ["", "vol1"].contains(&name).then(|| Export::new("vol1", VolumeId(1), 1 << 30))
//!     }
//! }
//!
//! let mut session = Session::new();
//! // The socket's bytes: here the client's flags, then its wish for the default export by the oldest of options.
//! let mut fill = session.inbox_mut().take_fill();
//! let bytes = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 1], &[0, 0, 0, 0]].concat();
//! fill.buf[..bytes.len()].copy_from_slice(&bytes);
//! session.inbox_mut().filled(fill, bytes.len());
//!
//! let Some(Event::Opened { name }) = session.poll(&One) else { panic!("the handshake is over") };
//! assert_eq!(name, "vol1");
//! assert!(session.poll(&One).is_none() && session.wants_bytes());
//! ```

mod connection;
mod error;
mod event;
mod export;
mod fields;
mod handshake;
pub mod numbers;
mod option_reply;
mod reply;
mod request;
mod session;
mod step;
mod text;
mod violation;

pub use connection::Connection;
pub use error::ErrorCode;
pub use event::Event;
pub use export::{BlockSizes, block_sizes};
pub use reply::{Extent, ReadPiece};
pub use request::{Command, RequestToken};
pub use session::Session;
pub use violation::Violation;

/// The longest READ or WRITE, in bytes (32 MiB): *Block size constraints* asks servers to take no less.
pub const REQUEST_MAX: u32 = 32 << 20;
/// With more than this many bytes waiting to be sent, a session takes no further input.
pub const OUTBOX_MAX: usize = 32 << 20;
/// The same for a metered session before its handshake is over.
pub const HANDSHAKE_OUTBOX_MAX: usize = 64 << 10;
/// The longest name, description or message, in bytes (*Conventions*).
pub const STRING_MAX: usize = 4096;
/// The longest option data that is looked at, in bytes.
pub const OPTION_DATA_MAX: u32 = 64 << 10;
/// Longer option data than this is not even skipped: the connection ends.
pub const OPTION_SKIP_MAX: u32 = 1 << 20;
/// The longest answer to `NBD_OPT_LIST`, in bytes; a longer one is refused as too big.
pub const LIST_REPLY_MAX: usize = 16 << 20;
/// The most descriptors in one answer to `NBD_CMD_BLOCK_STATUS`; the client asks again for the rest.
pub const EXTENTS_MAX: usize = 8192;
