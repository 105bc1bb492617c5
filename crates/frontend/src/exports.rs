//! What clients can open: volumes and snapshots, as one connection sees them.

use crate::REQUEST_BYTES_MAX;
use crate::admission::{Admission, May, Who};
use crate::attaching::Attaching;
use crate::hosts::Admittance;
use crate::portals::{PathState, Portals};
use crate::reservations::{KnownReservations, Reservations};
use crate::targets::Targets;
use crate::verbs::{Verb, Verbs};
use azekura_base::{BLOCK_SIZE, Bounds, HostName, LogicalBlock, VolumeId};
use azekura_gateway::{Keyring, VolumeView};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that are encrypted as one.
const UNIT_BYTES: u32 = 512;

/// The exports of a node, as they are now.
pub trait Exports {
    /// The export called `name`, which was sent by a client. The empty name is the default export: the only one, where
    /// there is just one, and unknown otherwise.
    fn find(&self, name: &str) -> Option<Export>;

    /// No export is called `name`: true if one may be, as far as is known yet. Then the protocol stands still, gives
    /// [`Event::Missing`](crate::Event::Missing) at each poll, and asks again at the next.
    fn may_come(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Why this client may not even ask; what it asks for is not looked at then.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Whether a host of this name is let in; `None`: a name that no grant can have. When it is, and has proved what
    /// it has to, [`Event::Named`](crate::Event::Named) follows, and all else here depends on that.
    fn admittance(&self, host: Option<&HostName>) -> Admittance {
        let _ = host;
        Admittance::Granted(None)
    }

    /// The client wants to send requests to the export called `name`.
    fn open(&self, name: &str) -> Opening {
        self.find(name).map_or(Opening::Unknown, Opening::Ready)
    }

    /// Whether the nexus of [`Event::WantsNexus`](crate::Event::WantsNexus) is this connection's alone. Once it is, it
    /// stays so until the connection is closed, or [leaves](crate::Event::Leaves).
    fn has_nexus(&self) -> bool {
        true
    }

    /// The reservations of an export that can be written; `None`: there is no such thing here. As long as nothing has
    /// changed, the answer is the same one.
    fn reservations(&self, export: VolumeId) -> Option<Arc<Reservations>> {
        let _ = export;
        None
    }

    /// The logical units of a target of this name that the client sees, by number, and each one's export; `None`: there
    /// is no such target for this client.
    fn units(&self, target: &str) -> Option<Vec<(u16, String)>> {
        let _ = target;
        None
    }

    /// Another number than before where [`Exports::units`] may say something else than before.
    fn units_era(&self) -> u64 {
        0
    }

    /// There is no target of some name: true if one may be, as far as is known yet. Then the protocol stands still, as
    /// for [`Exports::may_come`].
    fn units_may_come(&self) -> bool {
        false
    }

    /// Where hosts come to these exports.
    fn portals(&self) -> &Portals {
        Portals::alone()
    }

    /// A protocol's listing of all exports that a client may see: the bytes that `make` makes of them, in order.
    /// They are made once for all connections of `protocol`, and again when the exports have changed.
    fn listing(&self, protocol: &'static str, make: &MakeListing<'_>) -> Listing;

    /// The same for a protocol whose hosts know targets of several logical units: these, and the exports that are units
    /// of none.
    fn units_listing(&self, protocol: &'static str, make: &MakeUnitsListing<'_>) -> Listing {
        self.listing(protocol, &|exports| make(&mut exports.map(|(name, _)| Listed::Export(name))))
    }
}

/// What a host is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed<'a> {
    /// An export of this name.
    Export(&'a str),
    /// A target of this name, whose units are exports.
    Units(&'a str),
}

/// Makes a listing of exports and targets.
pub type MakeUnitsListing<'a> = dyn Fn(&mut dyn Iterator<Item = Listed<'_>>) -> Listing + 'a;

/// Makes a listing of exports' names and descriptions.
pub type MakeListing<'a> = dyn Fn(&mut dyn Iterator<Item = (&str, &str)>) -> Listing + 'a;

/// A protocol's listing of exports; `None` where it would be too long to be sent.
pub type Listing = Option<Bytes>;

/// Whether an export can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Yes.
    Ready(Export),
    /// There is none of this name.
    Unknown,
    /// It is not known yet: the protocol stands still, gives [`Event::Wanted`](crate::Event::Wanted) with the export's
    /// own name at each poll, and asks again at the next.
    Later(String),
    /// It is not, and this is what to tell people.
    Refused(String),
}

/// One export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// Names it for ever: another export of the same name has another one.
    pub id: VolumeId,
    /// What to tell people about it; empty for nothing.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// What protocols that count in blocks count it in; a whole number of them.
    pub logical_block: LogicalBlock,
    /// What may be asked of it.
    pub verbs: Verbs,
    /// Alignment that requests must have, in bytes.
    pub block_size_min: u32,
    /// Alignment that requests should have, in bytes.
    pub block_size_preferred: u32,
    /// Longest read or write, in bytes; a protocol may allow less.
    pub block_size_max: u32,
    /// How good a path to it this is, for the host that has opened it: it stays so as long as the connection does.
    pub path: PathState,
}

impl Export {
    /// A writable export without description, that takes requests of any alignment up to [`REQUEST_BYTES_MAX`] and
    /// prefers whole blocks of 4 KiB. `size` is in bytes.
    #[must_use]
    pub fn new(name: &str, id: VolumeId, size: u64) -> Export {
        Export {
            name: name.to_owned(),
            id,
            description: String::new(),
            size,
            logical_block: LogicalBlock::default(),
            verbs: Verbs::ALL,
            block_size_min: 1,
            block_size_preferred: BLOCK_SIZE as u32,
            block_size_max: REQUEST_BYTES_MAX,
            path: PathState::Optimized,
        }
    }

    fn of(volume: &VolumeView) -> Export {
        let verbs = if volume.read_only { Verbs::READ_ONLY } else { Verbs::ALL };
        let logical_block = volume.logical_block;
        let block_size_min = match (logical_block, volume.key) {
            // A block that is smaller than this is none of the disk's, whatever a client counts in.
            (LogicalBlock::Bytes4096, _) => logical_block.bytes(),
            // What is encrypted as one can't be written in parts.
            (LogicalBlock::Bytes512, Some(_)) => UNIT_BYTES,
            (LogicalBlock::Bytes512, None) => 1,
        };
        Export { logical_block, verbs, block_size_min, ..Export::new(&volume.name, volume.id, volume.size) }
    }

    /// Nobody can change it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        ![Verb::Write, Verb::CompareAndWrite, Verb::Trim, Verb::Zero].into_iter().any(|verb| self.verbs.has(verb))
    }
}

/// Listings that were asked for since the exports have changed: of all exports within some bounds.
#[derive(Debug, Default)]
pub(crate) struct Listings(RefCell<BTreeMap<(&'static str, Bounds), Listing>>);

impl Listings {
    /// The exports have changed.
    pub fn clear(&mut self) {
        self.0.get_mut().clear();
    }
}

/// All volumes that this node's gateway knows, as one connection sees them.
pub(crate) struct Volumes<'a, K> {
    /// The volumes by name.
    pub all: &'a BTreeMap<String, Arc<VolumeView>>,
    /// The keys of those that are encrypted.
    pub keys: &'a Keyring,
    pub listings: &'a Listings,
    /// Which of them are attached here.
    pub attaching: &'a Attaching<K>,
    /// Their reservations.
    pub reservations: &'a KnownReservations,
    /// What is not among them is certainly not there.
    pub is_certain: bool,
    /// Who is at its other end, and what such may.
    pub who: &'a Who,
    /// The host that it belongs to.
    pub host: Option<&'a HostName>,
    pub admission: &'a Admission,
    pub portals: &'a Portals,
    pub targets: &'a Targets,
    pub units_era: u64,
    /// The connection has its nexus.
    pub has_nexus: bool,
    /// The connection.
    pub conn: K,
}

impl<K> Volumes<'_, K> {
    fn may(&self) -> May<'_> {
        self.admission.of(self.who)
    }

    /// What may be asked of it that all nodes can do.
    fn export(&self, volume: &VolumeView) -> Export {
        let export = Export::of(volume);
        let verbs = if self.admission.compares { export.verbs } else { export.verbs.without(Verb::CompareAndWrite) };
        Export { verbs, ..export }
    }

    fn volume(&self, name: &str) -> Option<&VolumeView> {
        let may = self.may();
        let seen = |volume: &&Arc<VolumeView>| may.sees(&volume.name);
        let only = || {
            let mut volumes = self.all.values().filter(|volume| name.is_empty() && !volume.read_only).filter(seen);
            volumes.next().filter(|_| volumes.next().is_none())
        };
        self.all.get(name).filter(seen).or_else(only).map(|volume| &**volume)
    }
}

impl<K: Copy + Ord> Exports for Volumes<'_, K> {
    fn find(&self, name: &str) -> Option<Export> {
        self.volume(name).map(|volume| self.export(volume))
    }

    /// What is not for this client does not come for it either.
    fn may_come(&self, name: &str) -> bool {
        !self.is_certain && self.admission.may_come(self.who, name)
    }

    fn refusal(&self) -> Option<String> {
        self.admission.refusal(self.who)
    }

    fn admittance(&self, host: Option<&HostName>) -> Admittance {
        match self.who {
            Who::Host(_) => self.admission.admittance(host),
            // Of others no name is asked.
            _ => Admittance::Granted(None),
        }
    }

    fn open(&self, name: &str) -> Opening {
        let Some(volume) = self.volume(name) else { return Opening::Unknown };
        if let Some(why) = self.may().why_not_open() {
            return Opening::Refused(why);
        }
        match volume.why_sealed(self.keys) {
            Some(why) => Opening::Refused(why),
            None => self.attaching.opening(self.conn, self.host, self.export(volume)),
        }
    }

    fn has_nexus(&self) -> bool {
        self.has_nexus
    }

    fn reservations(&self, export: VolumeId) -> Option<Arc<Reservations>> {
        self.reservations.of(export).cloned()
    }

    fn units(&self, target: &str) -> Option<Vec<(u16, String)>> {
        let (units, may) = (self.targets.units(target)?, self.may());
        let seen = units.iter().filter(|(_, volume)| self.all.contains_key(*volume) && may.sees(volume));
        let seen: Vec<(u16, String)> = seen.map(|(number, volume)| (*number, volume.clone())).collect();
        // One that is still empty is there for whoever sees all that will be in it.
        let is_empty = || units.is_empty() && may.sees_all_within().is_some() && may.sees(target);
        (!seen.is_empty() || is_empty()).then_some(seen)
    }

    fn units_era(&self) -> u64 {
        self.units_era
    }

    fn units_may_come(&self) -> bool {
        !self.is_certain && !matches!(self.may(), May::Nothing)
    }

    fn portals(&self) -> &Portals {
        self.portals
    }

    /// Snapshots can be opened by their names; there may be very many, so that they are not listed.
    fn listing(&self, protocol: &'static str, make: &MakeListing<'_>) -> Listing {
        let may = self.may();
        let volumes = self.all.values().filter(|volume| !volume.read_only && may.sees(&volume.name));
        let Some(bounds) = may.sees_all_within() else {
            // It is for nobody else.
            return make(&mut volumes.map(|volume| (volume.name.as_str(), "")));
        };
        let mut listings = self.listings.0.borrow_mut();
        listings
            .entry((protocol, bounds))
            .or_insert_with(|| make(&mut volumes.map(|volume| (volume.name.as_str(), ""))))
            .clone()
    }

    fn units_listing(&self, protocol: &'static str, make: &MakeUnitsListing<'_>) -> Listing {
        let may = self.may();
        let volumes = self.all.values().filter(|volume| !volume.read_only && may.sees(&volume.name));
        let alone = volumes.map(|volume| volume.name.as_str()).filter(|name| !self.targets.has_volume(name));
        let targets = self.targets.names().filter(|name| self.units(name).is_some());
        let mut all = alone.map(Listed::Export).chain(targets.map(Listed::Units));
        let Some(bounds) = may.sees_all_within() else { return make(&mut all) };
        let mut listings = self.listings.0.borrow_mut();
        listings.entry((protocol, bounds)).or_insert_with(|| make(&mut all)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{KeyId, LayerId};

    #[test]
    fn requests_are_as_small_as_the_volume_bears() {
        let of = |logical_block, key| {
            let volume = VolumeView {
                id: VolumeId(1),
                name: "v".into(),
                size: 1 << 20,
                logical_block,
                layer: LayerId(1),
                cut: None,
                read_only: false,
                io_timeout: None,
                groups: Arc::from([]),
                group_offset: 0,
                key,
                limits: None,
            };
            let export = Export::of(&volume);
            assert_eq!(export.logical_block, logical_block);
            export.block_size_min
        };
        assert_eq!(of(LogicalBlock::Bytes512, None), 1);
        assert_eq!(of(LogicalBlock::Bytes512, Some(KeyId(1))), 512);
        for key in [None, Some(KeyId(1))] {
            assert_eq!(of(LogicalBlock::Bytes4096, key), 4096);
        }
    }
}
