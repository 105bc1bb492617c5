//! The saved map of a store on disk: [`CheckpointDb`], a [`SavedMap`] in one redb database file.
//!
//! The store asks for leaves and checkpoints as effects and does no I/O; whoever has a device's folder performs them
//! here: a node on a thread of its own, `azekura store` from the command line.
//!
//! - `database.rs`: the database, opened anew after each failure.
//! - `tables.rs`, `rows.rs`: what a checkpoint writes, and what of it is believed when it is read
//!   (`docs/formats/map.md`).
//! - `apart.rs`: leaves, also those behind a page that can't be read.
//! - `file.rs`: the file, read and written without the page cache.
//!
//! [`SavedMap`]: azekura_store::SavedMap

mod apart;
mod database;
mod file;
mod rows;
mod tables;
mod watched;

pub use database::CheckpointDb;
