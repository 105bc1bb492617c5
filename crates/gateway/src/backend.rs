//! What front ends ask of a node.

use crate::{Keyring, Op, VolumeView};
use azekura_base::{Generation, VolumeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The volumes of a node, for whoever serves clients.
pub trait Backend {
    /// All volumes and snapshots that the node knows, by name.
    fn volumes(&self) -> &BTreeMap<String, Arc<VolumeView>>;

    /// The keys of encrypted volumes that the node has, or why not.
    fn keys(&self) -> &Keyring;

    /// The node knows the configuration up to this revision.
    fn revision(&self) -> u64;

    /// True while more requests on this volume may be submitted.
    fn has_room(&self, volume: &str) -> bool;

    /// True when an attachment of a volume has ended: what carries it fails.
    fn is_ended(&self, volume: VolumeId, attachment: Generation) -> bool;

    /// The request of a client that has opened a volume under an attachment. It is answered with `token`, later.
    fn submit(&mut self, token: u64, volume: &str, attachment: Generation, op: Op);
}
