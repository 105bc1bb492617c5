//! The node: its parts, and one turn of work.

use crate::balance::Balance;
use crate::copies::Copies;
use crate::devices::Device;
use crate::directory::Directory;
use crate::effect::Effect;
use crate::fencing::Fencing;
use crate::mesh::Mesh;
use crate::reads::ReadLimits;
use crate::slow::ReportedSlow;
use crate::view::ClusterView;
use crate::{DEVICE_TIMEOUT, DEVICE_TIMEOUT_MIN};
use azekura_base::{DeviceId, Endpoint, Epoch, PgId, Sequence, SessionId, Warning};
use azekura_gateway::{Gateway, GroupView, Keyring, Unsettled};
use azekura_replica::{
    AckRule, Client, Group, GroupConfig, GroupState, Recovered, ResyncProgress, SESSIONS_MAX, ScrubReport,
};
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

/// What a node was told to keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Gateways whose committed writes each group remembers, at most.
    sessions_max: usize,
    /// Clients' reads that each device takes.
    pub(crate) reads: ReadLimits,
    /// A device that has not answered for so long is out of service.
    pub(crate) device_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { sessions_max: SESSIONS_MAX, reads: ReadLimits::default(), device_timeout: DEVICE_TIMEOUT }
    }
}

/// A node's data plane, or one shard of it, which has everything for itself. See the crate's description.
///
/// # How it is driven
/// An event loop owns the node, its sockets and its files, and goes round like this:
///
/// 1. It waits for events, at most until [`Node::next_wake`].
/// 2. It says what time it is, once for all events that it has: [`Node::advance`].
/// 3. It tells the node of each event: [`Node::received`], [`Node::connected`], [`Node::closed`], [`Node::store_done`],
///    [`Node::submit`], [`Node::configure`] and so on. These note what came, and may let groups act; nothing is sent or
///    written yet.
/// 4. It calls [`Node::poll`]. Groups, stores and the gateway work on what the others have for them until none has
///    anything left to do. Only then do stores hand out what they have collected, so that one write to a device carries
///    all that a turn brought.
/// 5. It takes every [`Effect`] that [`Node::next_effect`] has, and performs them in this order. Messages of a
///    connection must not overtake each other, nor what is written to a device.
///
/// Time comes in by `advance` and `poll` alone, and nothing here is random, so the same calls give the same effects.
///
/// # What it is made of
/// | part | what is in it |
/// |---|---|
/// | `Directory` | the configuration, and what others know beyond it of attachments, heads and layers |
/// | `Mesh` | connections, heartbeats, messages to itself |
/// | `Copies` | the groups that have a copy here, and which of them have something to do |
/// | `Device` | a store, what it was asked for, its readers, its errors and its silences |
/// | `Fencing`, `Balance`, `Gateway` | wishes to fence and freeze; work in the background; clients' requests |
///
/// Each part is a file without a step in it. Steps through several parts are methods of the node, in `steps.rs` below
/// the part that they are about, and no file imports one of these.
///
/// # Its states
/// The node has none of its own. What has some:
///
/// ```text
/// a device      added --Recovered--> open --fails, silent for long--> gone, with its copies
///                 |                  hangs <--> answers, while open: its copies take leave, and come back
///                 '--can't be recovered--> gone
/// a connection  not needed --needed--> idle --Connect--> dialling --connected--> greeting --Welcome--> up
///   out             ^                    ^------- failed, refused, closed, too long: dialled anew ------|
///                   '--------- not needed for `LINK_IDLE`: hung up; not connected: at once -------------'
/// a connection  accepted --Hello--> from a peer --closed, or a later one of the peer--> gone
///   in
/// a copy        none --named in the configuration, and its device open--> there --not named any more--> forgotten
/// ```
///
/// What a copy is in its group, primary or secondary, is [`azekura_replica::Group`]'s matter.
///
/// # What that costs
/// A turn without events looks at every device, and every [`azekura_replica::TICK`] at every copy; apart from that,
/// work is in proportion to what came. Only copies that something came for are asked for actions. A message finds its
/// copy by one look-up in a tree, a completion finds whoever waits for it by one in a slab. A read that a device has no
/// room for costs about 100 bytes until its turn comes; blocks are passed on, and never copied here.
pub struct Node {
    pub(crate) identity: Identity,
    pub(crate) directory: Directory,
    pub(crate) mesh: Mesh,
    pub(crate) gateway: Gateway,
    pub(crate) copies: Copies,
    pub(crate) devices: BTreeMap<DeviceId, Device>,
    pub(crate) fencing: Fencing,
    pub(crate) balance: Balance,
    pub(crate) reported_slow: ReportedSlow,
    pub(crate) limits: Limits,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) now: Duration,
}

impl Node {
    /// A node without devices or connections, at time `now`.
    #[must_use]
    pub fn new(identity: Identity, now: Duration) -> Node {
        Node {
            identity,
            directory: Directory::default(),
            mesh: Mesh::new(identity, now),
            gateway: Gateway::new(identity.endpoint, SessionId::new(identity.endpoint, identity.incarnation)),
            copies: Copies::default(),
            devices: BTreeMap::new(),
            fencing: Fencing::default(),
            balance: Balance::new(now),
            reported_slow: ReportedSlow::default(),
            limits: Limits::default(),
            effects: VecDeque::new(),
            now,
        }
    }

    /// Puts devices out of service that have not answered for `timeout`, or for [`DEVICE_TIMEOUT_MIN`] if that is
    /// longer.
    pub fn set_device_timeout(&mut self, timeout: Duration) {
        self.limits.device_timeout = timeout.max(DEVICE_TIMEOUT_MIN);
    }

    /// Lets each group remember the committed writes of so many gateways: before the first device.
    pub fn limit_sessions(&mut self, limit: usize) {
        self.limits.sessions_max = limit;
    }

    /// A copy of a group, as its store has it, which knows the nodes that there are.
    pub(crate) fn new_copy(&self, pg: PgId, device: DeviceId, config: GroupConfig, recovered: Recovered) -> Group {
        let mut group = Group::new(pg, device, self.identity.incarnation, config, recovered, self.now);
        group.limit_sessions(self.limits.sessions_max);
        group.follow_nodes(self.directory.view.roll.clone());
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

    /// The keys of encrypted volumes that this node has from now on, or why not.
    pub fn set_keys(&mut self, keys: Arc<Keyring>) {
        self.gateway.set_keys(keys);
    }

    /// What the gateways of the process have given up, which this shard shares with the others: before its first
    /// request.
    pub fn share(&mut self, unsettled: Arc<Unsettled>) {
        self.gateway.share(unsettled);
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
        self.copies.groups.iter().map(|((pg, device), group)| GroupReport {
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
        self.directory.revision
    }

    /// The cluster's configuration changed.
    pub fn configure(&mut self, view: impl Into<Arc<ClusterView>>) {
        let mut view = view.into();
        if view.revision < self.directory.revision {
            Arc::make_mut(&mut view).revision = self.directory.revision;
        }
        self.directory.revision = view.revision;
        let before = std::mem::replace(&mut self.directory.view, view);
        // First of all: a copy that begins to reign refuses what was fenced, or frozen, before its claim.
        if self.directory.fences.follow(&before.attachments, &self.directory.view.attachments) {
            self.attachments_ended();
        }
        let closed = self.follow_layers(&before);
        let place_of = |device: &DeviceId| self.directory.view.devices.get(device).copied();
        let groups = self.directory.view.groups.iter().filter_map(|(pg, config)| {
            let primary = place_of(&config.primary)?;
            // Where not every copy has to hold a write before it is acknowledged, none knows alone what is.
            let primary_reads = config.ack != AckRule::All;
            let readers = config.in_sync.iter().filter(|device| !primary_reads || **device == config.primary);
            let copies: BTreeSet<Endpoint> = readers.filter_map(place_of).collect();
            Some((*pg, GroupView { primary, copies: copies.into_iter().collect(), primary_reads }))
        });
        let groups = groups.collect();
        self.gateway.configure(self.directory.view.volumes.clone(), groups);
        // A copy that begins to reign knows of the nodes that had left before its claim.
        if self.directory.view.roll != before.roll {
            self.copies.groups.values_mut().for_each(|group| group.follow_nodes(self.directory.view.roll.clone()));
        }
        for (key, group) in &mut self.copies.groups {
            if let Some(config) = self.directory.view.groups.get(&key.0) {
                group.configure(config.clone());
                self.copies.awake.push_back(*key);
            }
        }
        self.meet_new_devices(&before);
        let devices: Vec<DeviceId> = self.devices.keys().copied().collect();
        for device in devices {
            self.follow_view(device);
        }
        self.demand_keys(self.directory.view.transport.needs_tls());
        self.follow_keys();
        self.mesh.needs.shares_changed();
        self.follow_needs();
        self.send_back_writes(&closed);
        self.tell_accepted_claims();
        self.run_early_freezes();
    }

    /// A shard may have been reached before it was known which devices it has.
    fn meet_new_devices(&mut self, before: &ClusterView) {
        let mut reachable: BTreeSet<Endpoint> = self.mesh.links.up_peers().collect();
        reachable.insert(self.identity.endpoint);
        let new = self.directory.view.devices.iter().filter(|(device, at)| before.devices.get(device) != Some(at));
        for (device, at) in new.filter(|(_, at)| reachable.contains(at)) {
            let window = self.mesh.links.window(*at);
            for (key, group) in self.copies.groups.iter_mut().filter(|(key, _)| key.1 != *device) {
                group.share_window(*device, window.clone());
                group.peer_up(*device);
                self.copies.awake.push_back(*key);
            }
        }
    }

    /// The configuration that this node knows is that of a later revision, too.
    pub fn known_up_to(&mut self, revision: u64) {
        self.directory.revision = self.directory.revision.max(revision);
        self.directory.heads.forget_learned(self.directory.revision);
        self.tell_accepted_claims();
        self.run_early_freezes();
    }

    /// The outcome of [`Effect::Propose`]; when it was accepted, in which revision of the configuration.
    ///
    /// A copy reigns only when this node knows the configuration up to its claim: attachments that were ended before
    /// are fenced from the first moment on.
    pub fn proposal_done(&mut self, pg: PgId, device: DeviceId, version: u64, accepted: Option<u64>) {
        let claiming = self.copies.groups.get(&(pg, device)).is_some_and(Group::is_claiming);
        match accepted {
            Some(revision) if claiming && revision > self.directory.revision => {
                self.copies.accept_later(revision, (pg, device), version);
            }
            _ => self.tell_outcome(pg, device, version, accepted.is_some()),
        }
    }

    fn tell_accepted_claims(&mut self) {
        for ((pg, device), version) in self.copies.take_accepted(self.directory.revision) {
            self.tell_outcome(pg, device, version, true);
        }
    }

    fn tell_outcome(&mut self, pg: PgId, device: DeviceId, version: u64, accepted: bool) {
        if let Some(group) = self.copies.groups.get_mut(&(pg, device)) {
            group.proposal_done(version, accepted);
            self.copies.awake.push_back((pg, device));
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
        self.mesh.beats.void_stamps(self.now);
        self.copies.groups.values_mut().for_each(Group::void_leases);
        self.beats_soon();
    }

    /// The groups that this node would answer as primary at time `now`.
    pub fn serving(&self, now: Duration) -> impl Iterator<Item = PgId> + '_ {
        self.copies.groups.iter().filter(move |(_, group)| group.is_serving(now)).map(|((pg, _), _)| *pg)
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
            self.run_rekeying();
            self.run_gateway();
            self.run_groups();
            devices.iter().for_each(|device| self.run_completions(*device));
            devices.iter().for_each(|device| self.let_reads_in(*device));
            let me = self.identity.endpoint;
            if let Some(message) = self.mesh.to_self.pop_front() {
                self.deliver(me, Client::Own, message);
                continue;
            }
            if self.copies.awake.is_empty() && !self.flush_acks() {
                break;
            }
        }
        devices.iter().for_each(|device| self.run_store(*device));
    }

    /// Lets secondaries tell their primaries what has become durable. False when none had to.
    fn flush_acks(&mut self) -> bool {
        let owing = std::mem::take(&mut self.copies.owing);
        for key in &owing {
            if let Some(group) = self.copies.groups.get_mut(key) {
                group.flush_acks();
                self.copies.awake.push_back(*key);
            }
        }
        !owing.is_empty()
    }

    pub(crate) fn warn(&mut self, warning: Warning) {
        self.effects.push_back(Effect::Warn(Box::new(warning)));
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Node::poll`] is to be called at the latest, even if nothing happens.
    #[must_use]
    pub fn next_wake(&self) -> Duration {
        let mut wake = self.mesh.beats.next().min(self.balance.next());
        if let Some(retry) = self.gateway.next_tick() {
            wake = wake.min(retry);
        }
        if let Some(ask) = self.fencing.next() {
            wake = wake.min(ask);
        }
        if let Some(chunk) = self.balance.rekeying.next() {
            wake = wake.min(chunk);
        }
        if let Some(dial) = self.mesh.links.next_dial() {
            wake = wake.min(dial);
        }
        wake
    }
}
