//! The event loop on the kernel's real rings, sockets and files.
//!
//! One program, since each is linked for itself, with all that it uses.
#![allow(clippy::unwrap_used)]

mod bells;
mod closing;
mod devices;
mod handing_over;
mod listeners;
mod silence;
mod streams;
mod succession;
mod support;
mod wakers;
