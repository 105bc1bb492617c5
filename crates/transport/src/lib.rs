//! TLS 1.3 between nodes, without I/O: [`Channel`] stands between the bytes of a socket and those of a protocol. No
//! other crate knows rustls, but for those that put HTTP over what [`https`] gives them.
//!
//! Both ends show a certificate, and the signature proves that they have its key. Which keys are welcome is not decided
//! here: [`Channel::peer`] says whose it is, and the caller looks it up. So neither names nor dates of certificates
//! count. Nothing is resumed, no tickets are given and there is no early data: a recorded session can't be played back.
//! docs/decisions/0037-who-may.md has the reasons.
//!
//! - `channel`: what a connection does with its bytes. `tls`: the same with keys.
//! - `key`: a node's key, and what both ends agree on.
//! - `verifier`: proof of a key, and of nothing else.
//! - [`https`]: the same keys for the REST API, and a certificate authority for its clients.

mod channel;
mod error;
pub mod https;
mod key;
mod tls;
mod verifier;

pub use channel::{Channel, Opened, SEALED_AHEAD_MAX};
pub use error::ChannelError;
pub use key::{Credentials, NodeKey};
pub use tls::HANDSHAKE_BYTES_MAX;

/// What is spoken over a channel (ALPN, RFC 7301): peers of another version end their handshakes.
pub const PROTOCOL: &[u8] = b"azk/5";
