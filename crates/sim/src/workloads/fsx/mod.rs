//! Everything that there is to do with volumes, one operation at a time, against a model: reads and writes of any
//! alignment, zeros, trims, snapshots of one volume and of several, reverts, clones, other sizes, deletions. Every read
//! is compared with the model at once.
//!
//! There is one client, which attaches each volume to the node that it uses it through, and fences what a dead node may
//! have left under way, as the control plane does. Whatever has come to an unknown end by then is read, and known from
//! there on. So the model is exact, whatever happens to the cluster.
//!
//! A cut may be under way while the client goes on: what the snapshots hold then is the state after some of the
//! operations, of all volumes together, and not less than was acknowledged when the cut was asked for.
//!
//! - [`state`]: the client, and the model, at a moment.
//! - [`model`]: what volumes and snapshots must hold.
//! - [`client`]: attachments, requests, and how they end.
//! - [`draw`]: which operation is next.
//! - [`admin`]: operations on volumes as wholes.
//! - [`reuse`]: names that another volume has had.
//! - [`compare`]: everything is read, and space is counted.

mod steps;

mod admin;
pub(crate) mod client;
mod compare;
mod draw;
mod model;
mod reuse;
mod state;

pub(crate) use state::Fsx;

use std::time::Duration;

/// How long the client waits while faults happen.
const PATIENCE: Duration = Duration::from_secs(120);
