//! NBD, driven by clients that send bytes.
//!
//! One program, since each is linked for itself, with all that it uses.
#![allow(clippy::unwrap_used)]

mod clients;
mod handshake;
mod memory;
mod opening;
mod robustness;
mod starttls;
mod support;
mod transmission;
