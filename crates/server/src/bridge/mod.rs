//! Between the data plane's thread and the control plane: what the one says, and what the other asks of it.

mod admission;
pub(crate) mod attachments;
mod deleted;
pub(crate) mod following;
mod found;
pub(crate) mod holdings;
pub(crate) mod layer_questions;
pub(crate) mod link;
mod nexuses;
mod portals;
pub(crate) mod reports;
pub(crate) mod reservations;
pub(crate) mod scrubs;
pub(crate) mod statistics;
pub(crate) mod targets;
mod wrapping_keys;
