//! The node: its parts, and one turn of work.

use crate::balance::Balance;
use crate::devices::Device;
use crate::effect::Effect;
use crate::fences::Fences;
use crate::fencing::Fencing;
use crate::heads::Heads;
use crate::heartbeat::Beats;
use crate::layers::Layers;
use crate::links::Links;
use crate::reads::ReadLimits;
use crate::slow::ReportedSlow;
use crate::view::ClusterView;
use crate::{DEVICE_TIMEOUT, DEVICE_TIMEOUT_MIN};
use azekura_base::{DeviceId, Endpoint, Epoch, PgId, Sequence, SessionId};
use azekura_gateway::{Gateway, GroupView};
use azekura_replica::{
    AckRule, Client, Group, GroupConfig, GroupState, Recovered, ResyncProgress, SESSIONS_MAX, ScrubReport,
};
use azekura_wire::{Freeze, Message, NewEpoch};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

/// Who a shard of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: u128,
    /// The node, and which of its shards.
    pub endpoint: Endpoint,
    /// Counts the starts of the node's process: a later one has a higher number. Less than 2^32.
    pub incarnation: u64,
}

/// One copy of a group, for people.
#[derive(Clone, Debug)]
pub struct GroupReport {
    /// The group.
    pub pg: PgId,
    /// The copy's device.
    pub device: DeviceId,
    /// True on the primary.
    pub primary: bool,
    /// The epoch that the copy has entered.
    pub epoch: Epoch,
    /// Everything up to here is committed.
    pub committed: Sequence,
    /// The last prepared write.
    pub prepared: Sequence,
    /// Everything up to here is durable on the copy's device.
    pub durable: Sequence,
    /// The last write that the copy, as primary, has acknowledged to a gateway since its process began.
    pub acknowledged: Sequence,
    /// Its condition.
    pub state: GroupState,
    /// It answers readers as primary now, whomever it waits for.
    pub serving: bool,
    /// Of how many gateways it remembers which writes are committed.
    pub sessions: usize,
    /// Copies that this primary brings up to date, and how far they are.
    pub resyncs: Vec<(DeviceId, ResyncProgress)>,
    /// How far this primary's scrub has come, if one is under way.
    pub scrub: Option<ScrubReport>,
}

/// A claim of one of this node's copies that stands in the configuration.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    revision: u64,
    pg: PgId,
    device: DeviceId,
    version: u64,
}

/// A node's data plane, or one shard of it, which has everything for itself. See the crate's description.
pub struct Node {
    pub(crate) identity: Identity,
    /// The configuration, which all shards of a process have together.
    pub(crate) view: Arc<ClusterView>,
    /// It has not changed up to this revision.
    pub(crate) revision: u64,
    pub(crate) gateway: Gateway,
    pub(crate) devices: BTreeMap<DeviceId, Device>,
    pub(crate) groups: BTreeMap<(PgId, DeviceId), Group>,
    pub(crate) links: Links,
    pub(crate) beats: Beats,
    pub(crate) balance: Balance,
    pub(crate) fences: Fences,
    pub(crate) fencing: Fencing,
    pub(crate) heads: Heads,
    pub(crate) layers: Layers,
    /// Freezes of revisions that are not known here yet.
    pub(crate) early_freezes: Vec<(Client, Freeze)>,
    /// Claims to reign that have been accepted in a revision that is not known here yet.
    accepted_claims: Vec<Accepted>,
    /// Messages from this node to itself.
    pub(crate) local: VecDeque<Message>,
    /// Questions of primaries to copies whose store is not open yet.
    pub(crate) early_new_epochs: BTreeMap<(PgId, DeviceId), (Client, NewEpoch)>,
    /// Groups that may have something to do.
    pub(crate) awake: VecDeque<(PgId, DeviceId)>,
    /// Groups that may owe their primary an acknowledgement at the end of the turn.
    pub(crate) owing: BTreeSet<(PgId, DeviceId)>,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) read_limits: ReadLimits,
    pub(crate) reported_slow: ReportedSlow,
    /// Gateways whose committed writes each group remembers, at most.
    sessions_max: usize,
    /// A device that has not answered for so long is out of service.
    pub(crate) device_timeout: Duration,
    pub(crate) now: Duration,
}

impl Node {
    /// A node without devices or connections, at time `now`.
    #[must_use]
    pub fn new(identity: Identity, now: Duration) -> Node {
        Node {
            identity,
            view: Arc::default(),
            revision: 0,
            gateway: Gateway::new(identity.endpoint, SessionId::new(identity.endpoint, identity.incarnation)),
            devices: BTreeMap::new(),
            groups: BTreeMap::new(),
            links: Links::default(),
            beats: Beats::new(now),
            balance: Balance::new(now),
            fences: Fences::default(),
            fencing: Fencing::default(),
            heads: Heads::default(),
            layers: Layers::default(),
            early_freezes: Vec::new(),
            accepted_claims: Vec::new(),
            reported_slow: ReportedSlow::default(),
            sessions_max: SESSIONS_MAX,
            local: VecDeque::new(),
            early_new_epochs: BTreeMap::new(),
            awake: VecDeque::new(),
            owing: BTreeSet::new(),
            effects: VecDeque::new(),
            read_limits: ReadLimits::default(),
            device_timeout: DEVICE_TIMEOUT,
            now,
        }
    }

    /// Puts devices out of service that have not answered for `timeout`, or for [`DEVICE_TIMEOUT_MIN`] if that is
    /// longer.
    pub fn set_device_timeout(&mut self, timeout: Duration) {
        self.device_timeout = timeout.max(DEVICE_TIMEOUT_MIN);
    }

    /// Lets each group remember the committed writes of so many gateways: before the first device.
    pub fn limit_sessions(&mut self, limit: usize) {
        self.sessions_max = limit;
    }

    /// A copy of a group, as its store has it, which knows the nodes that there are.
    pub(crate) fn new_copy(&self, pg: PgId, device: DeviceId, config: GroupConfig, recovered: Recovered) -> Group {
        let mut group = Group::new(pg, device, self.identity.incarnation, config, recovered, self.now);
        group.limit_sessions(self.sessions_max);
        group.follow_nodes(self.view.roll.clone());
        group
    }

    /// This is one of so many shards of its node, which share what the node may do in the background.
    pub fn set_shards(&mut self, shards: NonZeroU8) {
        self.balance.set_shards(shards);
    }

    /// Who this node is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The node's gateway, to look at.
    #[must_use]
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// The store of a device of this node, to look at, once it is open.
    #[must_use]
    pub fn store(&self, device: DeviceId) -> Option<&azekura_store::Store> {
        self.devices.get(&device).filter(|d| d.open).map(|d| &d.store)
    }

    /// Whether a device's saved map does not fit into its file system: what waits for that, perhaps its opening, is
    /// tried again by itself.
    #[must_use]
    pub fn waits_for_room(&self, device: DeviceId) -> bool {
        self.devices.get(&device).is_some_and(|device| device.store.waits_for_room())
    }

    /// The devices of this node.
    pub fn device_ids(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.devices.keys().copied()
    }

    /// The condition of every copy on this node.
    pub fn groups(&self) -> impl Iterator<Item = GroupReport> + '_ {
        self.groups.iter().map(|((pg, device), group)| GroupReport {
            pg: *pg,
            device: *device,
            primary: group.config().primary == *device,
            epoch: group.epoch(),
            committed: group.committed(),
            prepared: group.prepared(),
            durable: group.durable(),
            acknowledged: group.acknowledged(),
            state: group.state(self.now),
            serving: group.is_serving(self.now),
            sessions: group.sessions(),
            resyncs: group.resyncs().collect(),
            scrub: group.scrubbing(),
        })
    }

    /// The revision of the cluster's configuration that this node works by.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The cluster's configuration changed.
    pub fn configure(&mut self, view: impl Into<Arc<ClusterView>>) {
        let mut view = view.into();
        if view.revision < self.revision {
            Arc::make_mut(&mut view).revision = self.revision;
        }
        self.revision = view.revision;
        let before = std::mem::replace(&mut self.view, view);
        // First of all: a copy that begins to reign refuses what was fenced, or frozen, before its claim.
        if self.fences.follow(&before.attachments, &self.view.attachments) {
            self.attachments_ended();
        }
        let closed = self.follow_layers(&before);
        let place_of = |device: &DeviceId| self.view.devices.get(device).copied();
        let groups = self.view.groups.iter().filter_map(|(pg, config)| {
            let primary = place_of(&config.primary)?;
            // Where not every copy has to hold a write before it is acknowledged, none knows alone what is.
            let primary_reads = config.ack != AckRule::All;
            let readers = config.in_sync.iter().filter(|device| !primary_reads || **device == config.primary);
            let copies: BTreeSet<Endpoint> = readers.filter_map(place_of).collect();
            Some((*pg, GroupView { primary, copies: copies.into_iter().collect(), primary_reads }))
        });
        let groups = groups.collect();
        self.gateway.configure(self.view.volumes.clone(), groups);
        // A copy that begins to reign knows of the nodes that had left before its claim.
        if self.view.roll != before.roll {
            self.groups.values_mut().for_each(|group| group.follow_nodes(self.view.roll.clone()));
        }
        for (key, group) in &mut self.groups {
            if let Some(config) = self.view.groups.get(&key.0) {
                group.configure(config.clone());
                self.awake.push_back(*key);
            }
        }
        self.meet_new_devices(&before);
        let devices: Vec<DeviceId> = self.devices.keys().copied().collect();
        for device in devices {
            self.follow_view(device);
        }
        self.follow_links();
        self.send_back_writes(&closed);
        self.tell_accepted_claims();
        self.run_early_freezes();
    }

    /// A shard may have been reached before it was known which devices it has.
    fn meet_new_devices(&mut self, before: &ClusterView) {
        let mut reachable: BTreeSet<Endpoint> = self.links.up_peers().collect();
        reachable.insert(self.identity.endpoint);
        let new = self.view.devices.iter().filter(|(device, at)| before.devices.get(device) != Some(at));
        for (device, at) in new.filter(|(_, at)| reachable.contains(at)) {
            let window = self.links.window(*at);
            for (key, group) in self.groups.iter_mut().filter(|(key, _)| key.1 != *device) {
                group.share_window(*device, window.clone());
                group.peer_up(*device);
                self.awake.push_back(*key);
            }
        }
    }

    /// The configuration that this node knows is that of a later revision, too.
    pub fn known_up_to(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
        self.heads.forget_learned(self.revision);
        self.tell_accepted_claims();
        self.run_early_freezes();
    }

    /// The outcome of [`Effect::Propose`]; when it was accepted, in which revision of the configuration.
    ///
    /// A copy reigns only when this node knows the configuration up to its claim: attachments that were ended before
    /// are fenced from the first moment on.
    pub fn proposal_done(&mut self, pg: PgId, device: DeviceId, version: u64, accepted: Option<u64>) {
        let claiming = self.groups.get(&(pg, device)).is_some_and(Group::is_claiming);
        match accepted {
            Some(revision) if claiming && revision > self.revision => {
                self.accepted_claims.push(Accepted { revision, pg, device, version });
            }
            _ => self.tell_outcome(pg, device, version, accepted.is_some()),
        }
    }

    fn tell_accepted_claims(&mut self) {
        let known = self.revision;
        let due: Vec<Accepted> = self.accepted_claims.extract_if(.., |claim| claim.revision <= known).collect();
        for Accepted { pg, device, version, .. } in due {
            self.tell_outcome(pg, device, version, true);
        }
    }

    fn tell_outcome(&mut self, pg: PgId, device: DeviceId, version: u64, accepted: bool) {
        if let Some(group) = self.groups.get_mut(&(pg, device)) {
            group.proposal_done(version, accepted);
            self.awake.push_back((pg, device));
        }
    }

    /// It is `now`: to be called when messages and completions have arrived, before the node is told of them, so that
    /// leases are not judged by the time of an earlier turn.
    pub fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    /// This process and its clock may have stood still for a time that nobody can tell: no lease from before counts any
    /// more. Promises that this node's copies have made last longer by that, which harms nobody.
    pub fn void_leases(&mut self) {
        self.beats.void_stamps(self.now);
        self.groups.values_mut().for_each(Group::void_leases);
        self.beats_soon();
    }

    /// The groups that this node would answer as primary at time `now`.
    pub fn serving(&self, now: Duration) -> impl Iterator<Item = PgId> + '_ {
        self.groups.iter().filter(move |(_, group)| group.is_serving(now)).map(|((pg, _), _)| *pg)
    }

    /// Does everything that can be done at time `now`, which never goes back. To be called after the node was told
    /// something and when [`Node::next_wake`] says so; then [`Node::next_effect`] gives what is to be performed.
    pub fn poll(&mut self, now: Duration) {
        self.now = now;
        self.gateway.tick(now);
        self.tick_links();
        self.run_fencing();
        self.beat();
        self.tick_groups();
        self.grant_background();
        let devices: Vec<DeviceId> = self.devices.keys().copied().collect();
        for device in &devices {
            self.tick_device(*device);
        }
        loop {
            self.run_gateway();
            self.run_groups();
            devices.iter().for_each(|device| self.run_completions(*device));
            devices.iter().for_each(|device| self.let_reads_in(*device));
            let me = self.identity.endpoint;
            if let Some(message) = self.local.pop_front() {
                self.deliver(me, Client::Own, message);
                continue;
            }
            if self.awake.is_empty() && !self.flush_acks() {
                break;
            }
        }
        devices.iter().for_each(|device| self.run_store(*device));
    }

    /// Lets secondaries tell their primaries what has become durable. False when none had to.
    fn flush_acks(&mut self) -> bool {
        let owing = std::mem::take(&mut self.owing);
        for key in &owing {
            if let Some(group) = self.groups.get_mut(key) {
                group.flush_acks();
                self.awake.push_back(*key);
            }
        }
        !owing.is_empty()
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Node::poll`] is to be called at the latest, even if nothing happens.
    #[must_use]
    pub fn next_wake(&self) -> Duration {
        let mut wake = self.beats.next().min(self.balance.next());
        if let Some(retry) = self.gateway.next_tick() {
            wake = wake.min(retry);
        }
        if let Some(ask) = self.fencing.next() {
            wake = wake.min(ask);
        }
        if let Some(dial) = self.links.next_dial() {
            wake = wake.min(dial);
        }
        wake
    }
}
