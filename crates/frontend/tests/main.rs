//! The front end, driven without sockets, clocks or threads.
//!
//! One program, since each is linked for itself, with all that it uses.
#![allow(clippy::unwrap_used)]

mod admission;
mod attaching;
mod branches;
mod host_paths;
mod leaving;
mod limits;
mod nexus;
mod requests;
mod reservations;
mod support;
mod turns;
mod working;
