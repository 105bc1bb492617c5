//! NVMe over TCP, driven by a host that sends bytes.
//!
//! One program, since each is linked for itself, with all that it uses.
#![allow(clippy::unwrap_used)]

mod authentication;
mod blocks;
mod command;
mod connect;
mod controller;
mod errors;
mod fused;
mod golden;
mod identify;
mod pdu;
mod queues;
mod reservations;
mod reservations_told;
mod support;
