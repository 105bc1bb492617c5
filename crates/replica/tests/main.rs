//! Replication among a few nodes, driven without sockets, clocks or threads.
//!
//! One program, since each is linked for itself, with all that it uses.
#![allow(clippy::unwrap_used)]

mod acks;
mod attachments;
mod comparing;
mod completeness;
mod decisions;
mod epochs;
mod fencing;
mod flow;
mod handing_over;
mod hung;
mod leases;
mod membership;
mod mending;
mod merging;
mod minimum;
mod patience;
mod reading;
mod schedules;
mod scrubbing;
mod sluggish;
mod support;
mod votes;
mod writing;
