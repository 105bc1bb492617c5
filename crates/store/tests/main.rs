//! The store on a device in memory, which loses, tears and delays what it is told to.
//!
//! One program, since each is linked for itself, with all that it uses.
#![allow(clippy::unwrap_used)]

mod basic;
mod broken_leaves;
mod broken_rows;
mod capacity;
mod cleaning;
mod common;
mod damage;
mod gathered;
mod golden;
mod layers;
mod lost;
mod merged_copies;
mod model;
mod moved;
mod rebuilt;
mod replay;
mod resync;
mod saved_map;
mod sustained;
mod two_broken_leaves;
mod waiting_writes;
