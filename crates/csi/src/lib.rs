//! The driver of the Container Storage Interface: what Kubernetes asks to have volumes made and mounted (docs/csi.md).
//!
//! - `controller` makes volumes, snapshots and attachments. It runs once in a cluster.
//! - `metadata` tells which blocks of snapshots have data, or have changed. It runs beside the controller.
//! - `node` brings attached volumes to containers of its machine. It runs on every machine.
//! - `orphans` shows and ends what nobody in Kubernetes owns any more. It is run by hand.
//! - All talk to Azekura through its REST API alone (`cluster`), and keep nothing in memory: what was done is seen
//!   in the cluster, in the kernel and in files, so that a call can be repeated at any time, by any process.
//!
//! Calls are ordinary functions that may wait; `calls` runs each on a thread for such.

mod attributes;
mod calls;
mod capability;
mod cluster;
mod command;
mod controller;
mod error;
mod health;
mod identity;
mod locks;
mod metadata;
mod names;
mod node;
mod orphans;
mod pages;
mod parameters;
mod proto;
mod secrets;
mod serve;
mod sizes;
mod topology;

pub use command::CsiCommand;
pub use error::CsiError;

/// How the driver is known to Kubernetes, unless it is told otherwise.
pub const DRIVER_NAME: &str = "csi.azekura.io";

/// The outcome of a call.
pub(crate) type Outcome<T> = Result<T, tonic::Status>;
