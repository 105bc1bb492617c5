//! Volumes as NBD exports.

use super::attaching::Attaching;
use azekura_gateway::VolumeView;
use azekura_nbd::{Export, Exports, Listing, Opening};
use azekura_reactor::ConnId;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All volumes that this node's gateway knows, as one connection sees them.
pub struct Volumes<'a> {
    /// The volumes by name.
    pub all: &'a BTreeMap<String, Arc<VolumeView>>,
    /// Their listing, made when somebody asks for the first time after they have changed.
    pub listing: &'a OnceCell<Listing>,
    /// Which of them are attached here.
    pub attaching: &'a Attaching,
    /// What is not among them is certainly not there.
    pub is_certain: bool,
    /// The connection.
    pub conn: ConnId,
}

fn export(volume: &VolumeView) -> Export {
    Export { read_only: volume.read_only, ..Export::new(&volume.name, volume.size) }
}

impl Exports for Volumes<'_> {
    /// Snapshots can be opened by their names; there may be very many.
    fn list(&self) -> Listing {
        let volumes = self.all.values().filter(|volume| !volume.read_only);
        self.listing.get_or_init(|| Listing::of(volumes.map(|volume| (&*volume.name, "")))).clone()
    }

    fn find(&self, name: &str) -> Option<Export> {
        let only = || {
            let mut volumes = self.all.values().filter(|volume| name.is_empty() && !volume.read_only);
            volumes.next().filter(|_| volumes.next().is_none())
        };
        self.all.get(name).or_else(only).map(|volume| export(volume))
    }

    fn may_come(&self, _: &str) -> bool {
        !self.is_certain
    }

    fn open(&self, name: &str) -> Opening {
        self.find(name).map_or(Opening::Unknown, |export| self.attaching.opening(self.conn, export))
    }
}
