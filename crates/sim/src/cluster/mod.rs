//! A cluster: machines with real nodes, their devices and connections, the configuration store, and the control plane.
//!
//! A [`Cluster`] knows of those who use, trouble and watch it only what [`Scene`] says. What they have of their own is
//! its `scene`, which nothing in this folder can touch.
//!
//! - [`machine`], [`shards`], [`lives`], [`turns`]: processes and their shards, how they come and go, what they ask.
//! - [`links`], [`devices`]: what of the network and of devices concerns the cluster.
//! - [`records`], [`configuration`]: what the configuration store holds, who hears of it and when.
//! - [`front`]: clients' connections. [`attachments`]: who has which volume. [`reservations`]: who may write to it.
//! - [`notes`], [`operator`], [`cuts`], [`layers`], [`classes`]: the control plane.
//! - [`events`]: what happens. [`later`]: what others want to happen.
//! - [`observer`]: asks copies in the end. [`lies`]: what a network does that lies. [`keys`]: who is who.

pub(crate) mod attachments;
mod classes;
pub(crate) mod configuration;
pub(crate) mod cuts;
mod describe;
pub(crate) mod devices;
mod events;
pub(crate) mod front;
mod keys;
mod later;
mod layers;
mod lies;
pub(crate) mod links;
mod lives;
pub(crate) mod machine;
mod notes;
mod observer;
pub(crate) mod operator;
pub(crate) mod records;
pub(crate) mod reservations;
mod scene;
mod shards;
mod turns;

pub(crate) use scene::Scene;

use crate::kernel::device::Device;
use crate::kernel::network::Network;
use crate::kernel::random::Random;
use crate::kernel::rings::Rings;
use crate::kernel::time::{Queue, Stamp};
use crate::kernel::trace::Trace;
use crate::plan::Plan;
use crate::report::{Invariant, Report, Violation};
use attachments::Holders;
use azekura_base::{DeviceId, NodeId};
use azekura_wire::Message;
use configuration::Configuration;
use cuts::Cuts;
use events::Event;
use front::Connections;
use keys::Keyring;
use machine::Machine;
use operator::Operator;
use reservations::Reservers;
use std::collections::BTreeMap;
use std::time::Duration;

/// A cluster, and the time that passes in it.
///
/// # How it is driven
///
/// Nothing happens but what is in the queue. [`Cluster::run_until`] takes the event that comes next, sets the time to
/// when it comes, and tells whom it concerns, until what is waited for is so or the time is over:
///
/// ```text
///   queue ──► event ──► a node is told ──► it takes a turn, soon ──► its effects are performed
///     ▲         └─────► the scene gets its cue                                  │
///     └──────────────── what comes of that, and when ◄──────────────────────────┘
/// ```
///
/// What an effect leads to is drawn when it is performed (a latency, a loss, an error) and comes as an event of its
/// own. Whatever happens is noted in the trace, whose hash says whether two runs were the same.
///
/// # The states of a process
///
/// ```text
///                      start                     leave
///           absent ──────────────► runs ─────────────────────► hands over ──── exit ────┐
///              ▲                   │  ▲                             │                   │
///              │             stall │  │ its time is over            │                   │
///              │                   ▼  │                             │                   │
///              │               stands still                         │                   │
///              └────── crash ──────┴─────────── crash ──────────────┴───────────────────┘
/// ```
///
/// Each shard of a process has a life from the start to the end of that (`kernel/process.rs`): events for an earlier
/// life are void. What comes to a shard that stands still, alone or with its process, it is told afterwards
/// ([`Cluster::put_off`]); the process's clock may stand still with it. Shards start and end together, have one clock,
/// and take turns each for itself.
///
/// # What that costs
///
/// One thread, and for each event one place in a heap: how long a run takes depends on its events, not on its time. All
/// groups of a node are looked at after each of its turns. The cluster is generic over its scene, so that nothing in
/// its folder can know a fault or a check.
pub(crate) struct Cluster<S: Scene> {
    pub(crate) plan: Plan,
    pub(crate) now: Duration,
    queue: Queue<Event<S::Cue>>,
    pub(crate) trace: Trace,
    pub(crate) report: Report,
    violation: Option<Violation>,
    /// Clients start operations and faults happen.
    working: bool,
    /// The latest moment.
    stamps: Stamp,
    /// Draws what happens to the cluster.
    pub(crate) random: Random,
    network: Network,
    /// Connections inside processes.
    rings: Rings,
    pub(crate) machines: BTreeMap<NodeId, Machine>,
    pub(crate) devices: BTreeMap<DeviceId, Device>,
    pub(crate) configuration: Configuration,
    connections: Connections,
    holders: Holders,
    reservers: Reservers,
    pub(crate) cuts: Cuts,
    operator: Operator,
    keyring: Keyring,
    /// What the observer has been sent.
    observed: Vec<Message>,
    /// Those who use, trouble and watch the cluster.
    pub(crate) scene: S,
}

/// What a cluster is made of.
pub(crate) struct Parts {
    pub(crate) random: Random,
    pub(crate) network: Network,
    pub(crate) rings: Rings,
    pub(crate) machines: BTreeMap<NodeId, Machine>,
    pub(crate) devices: BTreeMap<DeviceId, Device>,
    pub(crate) configuration: Configuration,
    pub(crate) holders: Holders,
    pub(crate) cuts: Cuts,
    pub(crate) operator: Operator,
}

impl<S: Scene> Cluster<S> {
    /// A cluster whose processes have yet to start.
    pub(crate) fn new(plan: &Plan, parts: Parts, scene: S) -> Cluster<S> {
        let Parts { random, network, rings, machines, devices, configuration, holders, cuts, operator } = parts;
        Cluster {
            plan: plan.clone(),
            now: Duration::ZERO,
            queue: Queue::new(),
            trace: Trace::new(plan.trace),
            report: Report::default(),
            violation: None,
            working: true,
            stamps: 0,
            random,
            network,
            rings,
            machines,
            devices,
            configuration,
            connections: Connections::default(),
            holders,
            reservers: Reservers::new(plan),
            cuts,
            operator,
            keyring: Keyring::default(),
            observed: Vec::new(),
            scene,
        }
    }

    /// The next moment.
    pub(crate) fn stamp(&mut self) -> Stamp {
        self.stamps += 1;
        self.stamps
    }

    /// Something has happened that the report counts.
    pub(crate) fn count(&mut self, kind: &'static str) {
        *self.report.faults.entry(kind).or_default() += 1;
    }

    /// Clients start operations and faults happen.
    pub(crate) fn works(&self) -> bool {
        self.working
    }

    /// From now on no client starts an operation, and no fault happens.
    pub(crate) fn stop_working(&mut self) {
        self.working = false;
    }

    /// Something does not hold.
    pub(crate) fn is_over(&self) -> bool {
        self.violation.is_some()
    }

    /// What is on its way between processes.
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// Clients' connections.
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Who has which volume.
    pub(crate) fn holders(&self) -> &Holders {
        &self.holders
    }

    /// Who may write to the volume.
    pub(crate) fn reservers(&self) -> &Reservers {
        &self.reservers
    }

    /// Lets time pass until `done`, at most until `limit`. True when it was done.
    pub(crate) fn run_until(&mut self, limit: Duration, done: impl Fn(&Cluster<S>) -> bool) -> bool {
        while self.violation.is_none() {
            if done(self) {
                return true;
            }
            match self.queue.next_at() {
                Some(at) if at <= limit => {}
                _ => {
                    self.now = self.now.max(limit);
                    return false;
                }
            }
            let Some((at, event)) = self.queue.pop() else { return false };
            self.now = at;
            self.report.events += 1;
            self.happen(event);
        }
        false
    }

    fn happen(&mut self, event: Event<S::Cue>) {
        let Some(event) = self.put_off(event) else { return };
        match event {
            Event::Turn(life) => self.turn(life),
            Event::Dialled { from, to } => self.dialled(from, to),
            Event::Connected { from, to, conn } => self.conn_stands(from, to, conn),
            Event::Unreachable { from, to, refused } => self.tell(from, |node| node.connect_failed(to, refused)),
            Event::Link(passage) => self.pass(passage),
            Event::Ring(conn, side) => self.ring(conn, side),
            Event::Inject(conn, side, message) => self.send_from(conn, side, &message),
            Event::Disk(device, life, io) => self.disk_done(device, life, io),
            Event::Map(device, life) => self.map_done(device, life),
            Event::Propose { from, pg, device, config } => self.proposed(from, pg, device, config),
            Event::LatePropose { pg, config } => self.execute(pg, config),
            Event::Proposed { to, pg, device, version, accepted } => {
                self.tell(to, |node| node.proposal_done(pg, device, version, accepted));
            }
            Event::Configure(life, view, reservations, keys) => self.configure(life, &view, &reservations, &keys),
            Event::Reserve(life, token) => self.reserve_further(life, token),
            Event::Heed(life) => self.heed(life),
            Event::Errand(life, volume) => self.run_errand(life, volume),
            Event::Lingered(life, volume, attachment) => self.has_lingered(life, volume, attachment),
            Event::Look(life) => self.look(life),
            Event::Late(life, line) => self.comes_late(life, line),
            Event::Leader => self.leader_turn(),
            Event::CutDone(token) => self.cut_done(token),
            Event::CallOff(token) => self.call_off(token),
            Event::Away(node, time) => self.crash_for(node, time),
            Event::Start(node) => self.start(node),
            Event::Leave(life, until) => self.leave(life, until),
            Event::Exit(life) => self.exit(life),
            Event::Answers(device) => self.device_answers(device),
            Event::Resume(life, since) => self.resume(life, since),
            Event::Operate => self.operate(),
            Event::Cue(cue) => S::cue(self, cue),
        }
    }

    /// A process is about to stop.
    pub(crate) fn has_planned_stop(&self) -> bool {
        self.queue.iter().any(|event| matches!(event, Event::Leave(..) | Event::Exit(_)))
    }

    /// Something does not hold: the run is over.
    pub(crate) fn violate(&mut self, invariant: Invariant, what: String) {
        self.trace.remark(self.now, || format!("VIOLATION of {invariant}: {what}"));
        self.violation.get_or_insert(Violation { invariant, what, at: self.now });
    }

    /// The run is over: what it came to.
    ///
    /// # Errors
    /// What did not hold.
    pub(crate) fn end(mut self, operations: u64) -> Result<Report, Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        self.report.operations = operations;
        self.report.virtual_time = self.now;
        (self.report.messages, self.report.message_bytes) = self.network.sent();
        self.report.steps = self.trace.steps;
        self.report.trace_hash = self.trace.hash();
        Ok(self.report)
    }
}
