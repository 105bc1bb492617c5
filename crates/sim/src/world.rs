//! The world of one run: nodes, devices, network, configuration, clients, and the loop that moves time.

use crate::Mode;
use crate::attachments::Holders;
use crate::check::minimum::Minimum;
use crate::check::order::Order;
use crate::check::{linearizable, zeroed};
use crate::clients::Clients;
use crate::configuration::Configuration;
use crate::device::{Device, Honesty};
use crate::events::{Event, Queue};
use crate::faults::{Faults, Wear};
use crate::front::Connections;
use crate::fsx::Fsx;
use crate::history::{History, Register};
use crate::lost::{LOST, Lost};
use crate::machine::Machine;
use crate::network::{Narrow, Network};
use crate::operator::Operator;
use crate::plan::{Lie, Plan, QUIET_MAX, WORKLOAD_MAX};
use crate::random::Random;
use crate::records;
use crate::report::{Invariant, Report, Violation};
use crate::snapshots::{CLEARING_MAX, Snapshots};
use crate::trace::Trace;
use azekura_base::{CHUNK_SIZE, ChunkIndex, DeviceId, Endpoint, LayerId, NodeId, PgId, VolumeId};
use azekura_gateway::ANSWER_WAIT;
use azekura_node::Views;
use azekura_replica::{AckRule, GroupState};
use azekura_wire::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) const CLUSTER: u128 = 0x617a_656b;
pub(crate) const VOLUME: &str = "volume";
pub(crate) const VOLUME_ID: VolumeId = VolumeId(1);
/// The second volume, where there is one.
pub(crate) const SECOND: &str = "second";
/// How often the copies are looked at while they settle.
pub(crate) const SETTLE_STEP: Duration = Duration::from_millis(50);
/// From this share of live blocks on, in percent, a copy on a device of segments and batches as small as these can't
/// take what it lacks: each batch has a header, and what is left of a segment may be too little for the next.
const NEARLY_FULL_PERCENT: u64 = 85;
/// And from this one on there is no room for what has been let in already. A device in use takes nothing from clients
/// then.
const FULL_PERCENT: u64 = 95;

/// See the module's description.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Duration,
    pub(crate) queue: Queue,
    pub(crate) machines: BTreeMap<NodeId, Machine>,
    pub(crate) devices: BTreeMap<DeviceId, Device>,
    pub(crate) network: Network,
    pub(crate) configuration: Configuration,
    pub(crate) clients: Clients,
    pub(crate) history: History,
    pub(crate) order: Order,
    pub(crate) minimum: Minimum,
    pub(crate) faults: Faults,
    pub(crate) connections: Connections,
    pub(crate) holders: Holders,
    pub(crate) snapshots: Snapshots,
    pub(crate) operator: Operator,
    pub(crate) wear: Wear,
    /// Draws which devices hang.
    pub(crate) hangs: Random,
    pub(crate) fsx: Fsx,
    pub(crate) lost: Lost,
    pub(crate) trace: Trace,
    pub(crate) report: Report,
    /// Clients start operations and faults happen.
    pub(crate) working: bool,
    pub(crate) violation: Option<Violation>,
    /// What the observer has been sent.
    pub(crate) observed: Vec<Message>,
    /// Questions that the observer has asked.
    pub(crate) questions: u64,
}

impl World {
    /// The world that `seed` draws.
    pub(crate) fn new(seed: u64, plan: &Plan) -> Result<World, Violation> {
        let mut random = Random::new(seed);
        let options = plan.store_options(&mut random);
        let lost = Lost::new(plan.mode, Random::new(seed ^ 0x6c6f_7374));
        let store = records::draw(plan, &mut random);
        let view = Views::default().of(store.model());
        let honesty = match plan.lie {
            Some(Lie::LosingDisk) => Honesty::Liar,
            _ if plan.devices_fail => Honesty::Doubtful,
            _ => Honesty::Honest,
        };
        let mut devices = BTreeMap::new();
        for (id, at) in &view.devices {
            let device = Device::format(*id, at.node, options.clone(), random.fork(), honesty, plan.disk_depth);
            let device =
                device.map_err(|what| Violation { invariant: Invariant::StoreKeeps, what, at: Duration::ZERO })?;
            devices.insert(*id, device);
        }
        // A node may be far from the configuration store.
        let far = *random.clone().pick(&view.nodes.keys().copied().map(Some).chain([None]).collect::<Vec<_>>());
        let far = far.filter(|_| matches!(plan.mode, Mode::Snapshots | Mode::Fsx));
        let nodes: Vec<NodeId> = view.nodes.keys().copied().collect();
        let node = *Random::new(seed ^ 0x6e6f_6465).pick(&nodes);
        let narrow = plan.narrow.map(|bytes_per_second| Narrow { node, bytes_per_second });
        let fsx = Fsx::new(plan, &view, Random::new(seed ^ 0x6673_7821));
        let decaying = *random.pick(&devices.keys().copied().collect::<Vec<_>>());
        Ok(World {
            machines: view.nodes.keys().map(|node| (*node, Machine::new(random.fork()))).collect(),
            devices,
            network: Network::new(random.fork(), narrow),
            configuration: Configuration::new(store, io_timeouts(plan, &lost), far, random.fork()),
            clients: Clients::new(plan, random.fork()),
            faults: Faults::new(random.fork(), Random::new(seed ^ 0x766f_7465), decaying),
            connections: Connections::default(),
            holders: Holders::new(plan, random.fork(), Random::new(seed ^ 0x6c65_6176)),
            snapshots: Snapshots::new(plan, random.fork()),
            fsx,
            lost,
            operator: Operator::new(
                plan,
                options,
                view.devices.iter().map(|(id, at)| (*id, at.node)).collect(),
                random.fork(),
            ),
            wear: Wear::new(random.fork()),
            hangs: Random::new(seed ^ 0x6861_6e67),
            history: History::default(),
            order: Order::default(),
            minimum: Minimum::default(),
            trace: Trace::new(plan.trace),
            report: Report::default(),
            plan: plan.clone(),
            now: Duration::ZERO,
            queue: Queue::default(),
            working: true,
            violation: None,
            observed: Vec::new(),
            questions: 0,
        })
    }

    /// Runs the whole plan.
    pub(crate) fn run(mut self) -> Result<Report, Violation> {
        self.start_all();
        let clients = if self.fsx.on { 0 } else { self.clients.count() };
        for client in 0..clients {
            self.queue.push(Duration::from_millis(client as u64), Event::Client(client));
        }
        self.queue.push(Duration::from_millis(500), Event::Fault);
        if self.plan.devices_hang {
            self.queue.push(Duration::from_millis(1500), Event::Hang);
        }
        if self.holders.on {
            self.queue.push(Duration::from_millis(700), Event::Usurp);
        }
        self.queue.push(Duration::from_millis(700), Event::Scrub);
        if self.operator.on {
            self.queue.push(Duration::from_millis(900), Event::Wear);
            self.queue.push(Duration::from_millis(900), Event::Operate);
        }
        if self.snapshots.on || self.fsx.on {
            self.queue.push(Duration::from_millis(600), Event::Snapshot);
            self.queue.push(Duration::from_millis(600), Event::Leader);
        }
        if self.lost.on {
            self.lose_the_class();
        }
        if self.fsx.on {
            self.work_fsx();
        } else {
            self.run_until(WORKLOAD_MAX, |world| world.clients.all_issued());
        }
        if self.plan.mode == Mode::Slow {
            self.let_slow_copies_in();
        }
        self.working = false;
        self.end_faults();
        let limit = self.now + QUIET_MAX;
        self.run_until(limit, |world| !world.configuration.is_closed());
        self.trace.remark(self.now, || "no more operations or faults".into());
        self.quiet_down();
        if self.plan.mode != Mode::Flips {
            self.trace.remark(self.now, || "all nodes crash once more".into());
            self.crash_in_the_end();
            self.snapshots.clearing = true;
            self.quiet_down();
        }
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.collect_statistics(node));
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        self.report.operations = self.clients.issued + self.fsx.steps();
        self.report.faults = self.faults.counts;
        self.report.virtual_time = self.now;
        self.report.messages = self.network.messages;
        self.report.message_bytes = self.network.bytes;
        self.report.steps = self.trace.steps;
        self.report.trace_hash = self.trace.hash();
        Ok(self.report)
    }

    fn start_all(&mut self) {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.start(node));
    }

    /// Everything that was begun ends, everything can be read, and the copies are equal.
    fn quiet_down(&mut self) {
        let limit = self.now + QUIET_MAX;
        let up = |world: &World| world.machines.keys().all(|node| world.ready_life(*node).is_some());
        let idle = |world: &World| {
            up(world) && world.clients.idle() && world.holders.idle() && world.snapshots.idle() && world.lost.idle()
        };
        // What was sent to a device that kept silent, while there were faults, is asked for again by then.
        let soon = self.now + ANSWER_WAIT + SETTLE_STEP;
        let (is_idle, asked_again) = (self.run_until(soon, idle), self.asked_again());
        if !is_idle && !self.run_until(limit, idle) {
            let (clients, layers) = (self.clients.describe(), self.describe_layers());
            let what = format!("not done after {QUIET_MAX:?}: {clients}; {}; {layers}", self.describe_groups());
            return self.does_not_end(what);
        }
        let asked_again = self.asked_again().saturating_sub(asked_again);
        if asked_again > 0 && !self.has_too_small_a_device() {
            // Nothing is in their way any more: whoever had them has forgotten them.
            let what = format!("{asked_again} parts of requests had to be asked for again; {}", self.describe_groups());
            return self.violate(Invariant::Liveness, what);
        }
        while !self.settled() {
            let step = self.now + SETTLE_STEP;
            self.run_until(step, |_| false);
            if self.violation.is_some() {
                return;
            }
            if self.now > limit {
                let what = format!("groups do not settle: {}; {}", self.describe_groups(), self.describe_operator());
                return self.does_not_end(what);
            }
        }
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        if self.fsx.on {
            self.fsx_compare_everywhere();
        }
        let readers = if self.fsx.on { Vec::new() } else { nodes };
        for node in readers {
            self.read_snapshots(node);
            self.relay_reads_all(node);
            self.read_everything(node);
            let limit = self.now + QUIET_MAX + self.queueing_max();
            if !self.run_until(limit, |world| world.clients.idle() && world.snapshots.idle()) {
                let what = format!("final reads are not done: {}", self.clients.describe());
                return self.violate(Invariant::Liveness, what);
            }
        }
        if (self.snapshots.on || self.fsx.on) && self.snapshots.clearing {
            if self.fsx.on {
                self.fsx_clear();
            }
            self.queue.push(self.now, Event::Snapshot);
            let limit = self.now + CLEARING_MAX;
            if !self.run_until(limit, World::layers_are_gone) {
                let what = format!("layers do not go: {}; {}", self.describe_layers(), self.describe_groups());
                return self.does_not_end(what);
            }
            self.snapshots.clearing = false;
            if self.fsx.on {
                self.fsx_compare_everywhere();
                self.fsx_count_space();
            }
        }
        self.check_accounts();
        self.let_copies_answer(AckRule::All);
        self.compare_copies();
        self.let_copies_answer(self.plan.ack);
        self.record_unanswered();
        self.check_history();
    }

    fn check_history(&mut self) {
        let check = |register: &Register| {
            if register.is_zeroed() { zeroed::check(register) } else { linearizable::check(register) }
        };
        let registers: BTreeMap<u64, &Register> = self.history.registers().collect();
        let started = |sector, value| {
            let writes = &registers.get(&sector)?.writes;
            writes.iter().find(|write| write.value == value).map(|write| write.start)
        };
        let snapshots = match self.snapshots.reads(started) {
            Ok(reads) => reads,
            Err(what) => return self.violate(Invariant::Snapshot, what),
        };
        let mut bad = None;
        for (sector, register) in self.history.registers() {
            if let Some(reads) = snapshots.get(&sector) {
                let mut register = register.clone();
                register.reads.extend_from_slice(reads);
                if let Err(what) = check(&register)
                    && check(&Register {
                        reads: register.reads[..register.reads.len() - reads.len()].to_vec(),
                        ..register.clone()
                    })
                    .is_ok()
                {
                    bad = Some((Invariant::Snapshot, format!("sector {sector}, with snapshots: {what}")));
                    break;
                }
            }
            // Also with what is known of writes under attachments that have ended.
            let bounded = || register.bounded(|value| self.clients.fenced_at(value, &self.holders));
            let result = check(register).map_err(|what| (Invariant::Linearizable, what));
            let fenced = result.and_then(|()| {
                bounded().and_then(|register| check(&register)).map_err(|what| (Invariant::Fenced, what))
            });
            if let Err((invariant, what)) = fenced {
                let block = sector / crate::contents::BLOCK_SECTORS;
                bad = Some((invariant, format!("sector {sector} (block {block}): {what}")));
                break;
            }
        }
        if let Some((invariant, what)) = bad {
            self.violate(invariant, what);
        }
    }

    /// Links are whole, the configuration store is there, and everybody runs.
    pub(crate) fn end_faults(&mut self) {
        self.end_calm();
        self.heal_links();
        self.configuration.come_back();
        self.end_hangs();
        self.inform_all();
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        for node in nodes {
            self.queue.push(self.now, Event::Start(node));
        }
        self.replace_devices();
    }

    /// All members of all groups are in sync, follow their primaries and have committed the same; former members have
    /// given up their copies.
    fn settled(&self) -> bool {
        let groups = &self.configuration.view().groups;
        if !self.devices_rest() || self.configuration.is_closed() {
            return false;
        }
        let is_left = |device: &DeviceId| self.operator.is_out(*device);
        if groups.values().any(|config| config.in_sync != config.members || !config.leaving.iter().all(is_left)) {
            return false;
        }
        let mut ends = BTreeMap::new();
        let mut copies = 0;
        for node in self.machines.values().filter_map(|machine| machine.node.as_ref()) {
            for group in node.groups() {
                if !groups.get(&group.pg).is_some_and(|config| config.members.contains(&group.device)) {
                    continue;
                }
                copies += 1;
                let end = *ends.entry(group.pg).or_insert(group.committed);
                let steady = matches!(group.state, GroupState::Active | GroupState::Following);
                if !steady || group.committed != end || group.prepared != end {
                    return false;
                }
            }
        }
        copies == groups.values().map(|config| config.members.len()).sum::<usize>()
    }

    /// Parts of requests that gateways have asked for again.
    fn asked_again(&self) -> u64 {
        let nodes = self.machines.values().filter_map(|machine| machine.node.as_ref());
        nodes.map(|node| node.gateway().asked_again()).sum()
    }

    /// A device is full of what volumes and snapshots hold; or a copy that is not in sync lies on one that is nearly
    /// so: it can't take what it lacks. Devices, volumes and snapshots are drawn without regard to each other.
    pub(crate) fn has_too_small_a_device(&self) -> bool {
        let groups = self.configuration.view().groups.values();
        let lacking: BTreeSet<DeviceId> =
            groups.flat_map(|config| config.members.difference(&config.in_sync)).copied().collect();
        self.devices.iter().any(|(id, device)| {
            let node = self.machines.get(&device.node).and_then(|machine| machine.node.as_ref());
            let space = node.and_then(|node| node.store(*id)).map(|store| store.space());
            let limit = if lacking.contains(id) { NEARLY_FULL_PERCENT } else { FULL_PERCENT };
            space.is_some_and(|space| space.live * 100 >= space.capacity * limit)
        })
    }

    /// Something does not end that has to, unless it lacks room. To give something back takes room, too.
    fn does_not_end(&mut self, what: String) {
        if !self.has_too_small_a_device() {
            return self.violate(Invariant::Liveness, what);
        }
        // What could be read was right, at least.
        self.trace.remark(self.now, || "a device is too small for its copies: no end is waited for".into());
        *self.faults.counts.entry("device too small for its copies").or_default() += 1;
        self.check_accounts();
        self.record_unanswered();
        self.check_history();
    }

    /// The volumes and snapshots: their ids and layers, their chunks and the groups that these belong to.
    pub(crate) fn readable_chunks(&self) -> Vec<(VolumeId, LayerId, ChunkIndex, PgId)> {
        let volumes = self.configuration.view().volumes.values();
        let chunks = volumes.flat_map(|volume| {
            let chunks = (0..volume.size.div_ceil(CHUNK_SIZE as u64) as u32).map(ChunkIndex);
            chunks.filter_map(|chunk| Some((volume.id, volume.layer, chunk, volume.group_of(chunk)?)))
        });
        chunks.collect()
    }

    /// Lets time pass until `done`, at most until `limit`. True when it was done.
    pub(crate) fn run_until(&mut self, limit: Duration, done: impl Fn(&World) -> bool) -> bool {
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

    fn happen(&mut self, event: Event) {
        let Some(event) = self.put_off(event) else { return };
        match event {
            Event::Turn(life) => self.turn(life),
            Event::Dialled { from, to } => self.dialled(from, to),
            Event::Connected { from, to, conn } => self.conn_stands(from, to, conn),
            Event::Unreachable { from, to } => self.tell(from, |node| node.connect_failed(Endpoint::first(to), true)),
            Event::Arrive(conn, side) => self.arrive(conn, side),
            Event::Drain(conn, side) => self.drain(conn, side),
            Event::Closed(conn, side) => self.end_learns(conn, side),
            Event::TimeOut(conn) => self.time_out(conn),
            Event::Inject(conn, side, message) => self.send_from(conn, side, &message),
            Event::Disk(device, life, io) => self.disk_done(device, life, io),
            Event::Map(device, life) => self.map_done(device, life),
            Event::Propose { from, pg, device, config } => self.proposed(from, pg, device, config),
            Event::LatePropose { pg, config } => self.execute(pg, config),
            Event::Proposed { to, pg, device, version, accepted } => {
                self.tell(to, |node| node.proposal_done(pg, device, version, accepted));
            }
            Event::Configure(life, view) => self.configure(life, &view),
            Event::Errand(life, volume) => self.run_errand(life, volume),
            Event::Look(life) => self.look(life),
            Event::Usurp => self.usurp(),
            Event::Snapshot => self.snapshot_turn(),
            Event::Leader => self.leader_turn(),
            Event::Relay => self.relay_turn(),
            Event::CutDone(token) => self.cut_done(token),
            Event::CallOff(token) => self.call_off(token),
            Event::Lost => self.lost_turn(),
            Event::Away(node, time) => self.crash_for(node, time),
            Event::Client(client) => self.client_turn(client),
            Event::Start(node) => self.start(node),
            Event::Leave(life, until) => self.leave(life, until),
            Event::Exit(life) => self.exit(life),
            Event::Part => self.part_for_votes(),
            Event::Kill(life) => self.kill(life),
            Event::Fault => self.fault(),
            Event::Wear => self.wear_devices(),
            Event::Hang => self.hang_devices(),
            Event::Answers(device) => self.device_answers(device),
            Event::Resume(life, since) => self.resume(life, since),
            Event::Operate => self.operate(),
            Event::Scrub => self.scrub_some_group(),
            Event::Reopen => self.reopen_groups(),
        }
    }

    /// Something does not hold: the run is over.
    pub(crate) fn violate(&mut self, invariant: Invariant, what: String) {
        self.trace.remark(self.now, || format!("VIOLATION of {invariant}: {what}"));
        self.violation.get_or_insert(Violation { invariant, what, at: self.now });
    }
}

/// How long requests on volumes wait, where they don't for ever.
fn io_timeouts(plan: &Plan, lost: &Lost) -> BTreeMap<String, Duration> {
    let volumes = [(VOLUME, plan.io_timeout), (SECOND, plan.io_timeout), (LOST, lost.io_timeout)];
    volumes.into_iter().filter_map(|(volume, time)| Some((volume.to_owned(), time?))).collect()
}
