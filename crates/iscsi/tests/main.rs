//! iSCSI and SCSI, driven by an initiator that sends bytes.
//!
//! One program, since each is linked for itself, with all that it uses.
#![allow(clippy::unwrap_used)]

mod blocks;
mod chap;
mod copying;
mod login;
mod pdu;
mod pings;
mod reinstatement;
mod reservations;
mod resets;
mod scsi;
mod support;
mod transfer;
mod units;
