//! Whom a shard keeps connections to (docs/decisions/0031, step 3): who shares a group with it, who serves the volumes
//! that its clients use, whom it has to ask something, and of whose process somebody wants to know whether it has
//! ended. All others of the view are not dialled, and that says nothing of them.

use crate::view::ClusterView;
use azekura_base::{DeviceId, Endpoint, NodeId, PgId};
use azekura_replica::GroupConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

mod steps;

/// What a shard's connections are for.
#[derive(Debug)]
pub(crate) struct Needs {
    /// Something has changed on which the other fields depend.
    stale: bool,
    /// The same of [`Needs::shares`].
    shares_stale: bool,
    /// Shards with copies of groups of which this one has a copy, too.
    shares: BTreeSet<Endpoint>,
    /// All that are needed, for whatever reason.
    all: BTreeSet<Endpoint>,
    /// Connections that nothing needs any more, and since when.
    unneeded: BTreeMap<Endpoint, Duration>,
    /// Nodes about whose processes was asked, and until when they are dialled for that.
    asked_about: BTreeMap<NodeId, Duration>,
    /// What the gateway had changed when it was looked at last.
    gateway_changes: u64,
    /// When it is looked next for volumes that nobody uses.
    look_at: Duration,
    /// So long a connection stays that nothing needs.
    idle: Duration,
}

impl Needs {
    pub(crate) fn new(now: Duration) -> Needs {
        Needs {
            stale: false,
            shares_stale: false,
            shares: BTreeSet::new(),
            all: BTreeSet::new(),
            unneeded: BTreeMap::new(),
            asked_about: BTreeMap::new(),
            gateway_changes: 0,
            look_at: now,
            idle: crate::LINK_IDLE,
        }
    }

    /// Something has changed on which it depends who is needed.
    pub(crate) fn changed(&mut self) {
        self.stale = true;
    }

    /// Copies have changed.
    pub(crate) fn shares_changed(&mut self) {
        (self.stale, self.shares_stale) = (true, true);
    }

    /// There is a reason to have a connection to the peer.
    pub(crate) fn has(&self, peer: Endpoint) -> bool {
        self.all.contains(&peer)
    }
}

/// The devices that a copy of the group may have to ask something, or to tell.
pub(crate) fn holders(config: &GroupConfig) -> impl Iterator<Item = DeviceId> + '_ {
    let devices = config.members.iter().chain(&config.in_sync).chain(config.away.keys()).chain(&config.leaving);
    devices.copied().chain([config.primary])
}

/// The shards that have copies of groups of which a device of `mine` has one. `copies` is what the copies that are
/// there know of their groups, also of those that the view does not name.
fn sharers<'a>(
    view: &'a ClusterView,
    mine: &[DeviceId],
    copies: impl Iterator<Item = &'a GroupConfig>,
) -> BTreeSet<Endpoint> {
    let ours = |config: &&GroupConfig| holders(config).any(|device| mine.contains(&device));
    let devices = view.groups.values().filter(ours).chain(copies).flat_map(holders);
    devices.filter_map(|device| view.devices.get(&device).copied()).collect()
}

/// The shards of the primaries of these groups.
fn primaries<'a>(
    view: &'a ClusterView,
    groups: impl Iterator<Item = PgId> + 'a,
) -> impl Iterator<Item = Endpoint> + 'a {
    let primary = |pg: PgId| view.groups.get(&pg).and_then(|config| view.devices.get(&config.primary)).copied();
    groups.filter_map(primary)
}

#[cfg(test)]
mod tests;
