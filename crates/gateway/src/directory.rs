//! Where things are: volumes by name and number, groups' copies, and which shards are connected.

use crate::view::{GroupView, VolumeView};
use azekura_base::{Endpoint, PgId, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a gateway knows of the cluster.
pub(crate) struct Directory {
    me: Endpoint,
    volumes: BTreeMap<String, Arc<VolumeView>>,
    by_id: BTreeMap<VolumeId, Arc<VolumeView>>,
    groups: BTreeMap<PgId, GroupView>,
    links: BTreeMap<Endpoint, bool>,
    /// This shard, and those that are reached without leaving the process: what they read, their stores have compared.
    trusted: BTreeSet<Endpoint>,
}

impl Directory {
    /// That of the shard `me`, which knows nothing but itself.
    pub(crate) fn new(me: Endpoint) -> Directory {
        Directory {
            me,
            volumes: BTreeMap::new(),
            by_id: BTreeMap::new(),
            groups: BTreeMap::new(),
            links: BTreeMap::from([(me, true)]),
            trusted: BTreeSet::from([me]),
        }
    }

    /// The cluster changed. Gives the groups as they were before.
    pub(crate) fn configure(
        &mut self,
        volumes: BTreeMap<String, Arc<VolumeView>>,
        groups: BTreeMap<PgId, GroupView>,
    ) -> BTreeMap<PgId, GroupView> {
        self.volumes = volumes;
        self.by_id = self.volumes.values().map(|volume| (volume.id, volume.clone())).collect();
        std::mem::replace(&mut self.groups, groups)
    }

    /// The connection to `peer` is up, or gone.
    pub(crate) fn link(&mut self, peer: Endpoint, is_up: bool) {
        self.links.insert(peer, is_up);
    }

    /// What comes from `peer` does, or does not, leave this process's memory.
    pub(crate) fn trust(&mut self, peer: Endpoint, trusted: bool) {
        if trusted {
            self.trusted.insert(peer);
        } else {
            self.trusted.remove(&peer);
        }
    }

    /// As it was said to [`Directory::trust`].
    pub(crate) fn trusts(&self, peer: Endpoint) -> bool {
        self.trusted.contains(&peer)
    }

    /// This shard.
    pub(crate) fn me(&self) -> Endpoint {
        self.me
    }

    /// The volumes by name.
    pub(crate) fn volumes(&self) -> &BTreeMap<String, Arc<VolumeView>> {
        &self.volumes
    }

    /// The volume, if it is there.
    pub(crate) fn volume(&self, id: VolumeId) -> Option<&VolumeView> {
        self.by_id.get(&id).map(|volume| &**volume)
    }

    /// Where the group's copies are.
    pub(crate) fn group(&self, pg: PgId) -> Option<&GroupView> {
        self.groups.get(&pg)
    }

    /// The shard of the group's primary.
    pub(crate) fn primary(&self, pg: PgId) -> Option<Endpoint> {
        self.group(pg).map(|group| group.primary)
    }

    /// The groups that `peer` is the primary of.
    pub(crate) fn led_by(&self, peer: Endpoint) -> BTreeSet<PgId> {
        self.groups.iter().filter(|(_, group)| group.primary == peer).map(|(pg, _)| *pg).collect()
    }

    /// True while the shard is connected.
    pub(crate) fn is_up(&self, peer: Endpoint) -> bool {
        self.links.get(&peer).copied().unwrap_or(false)
    }

    /// True when `peer` may be asked to write, or to read, in the group.
    pub(crate) fn serves(&self, peer: Endpoint, pg: PgId, writes: bool) -> bool {
        match self.group(pg) {
            Some(group) if writes => group.primary == peer,
            Some(group) => group.copies.contains(&peer),
            None => false,
        }
    }
}
