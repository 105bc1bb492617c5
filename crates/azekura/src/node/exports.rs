//! Volumes as NBD exports.

use azekura_gateway::VolumeView;
use azekura_nbd::{Export, Exports};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All volumes that this node's gateway knows.
pub struct Volumes<'a>(pub &'a BTreeMap<String, Arc<VolumeView>>);

fn export(volume: &VolumeView) -> Export {
    Export { read_only: volume.read_only, ..Export::new(&volume.name, volume.size) }
}

impl Exports for Volumes<'_> {
    fn list(&self) -> Vec<Export> {
        self.0.values().map(|volume| export(volume)).collect()
    }

    fn find(&self, name: &str) -> Option<Export> {
        let only = || if name.is_empty() && self.0.len() == 1 { self.0.values().next() } else { None };
        self.0.get(name).or_else(only).map(|volume| export(volume))
    }
}
