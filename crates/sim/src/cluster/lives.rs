//! Lives of processes: how they start, stand still, stop as planned, and end without warning.

use crate::cluster::events::Event;
use crate::cluster::machine::{EventLoop, Machine, shards_of_later};
use crate::cluster::records::{CLUSTER, VOLUME};
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::kernel::random::Random;
use crate::plan::{Lie, Mode};
use crate::report::Invariant;
use azekura_base::{Endpoint, NodeId, Shard};
use azekura_gateway::Unsettled;
use azekura_node::{Identity, Node};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

/// Longest time for handing over, as the binary has it.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Pause between two looks whether that is done.
const STEP: Duration = Duration::from_millis(10);
/// From the last word to the end of the process.
const LAST_WORD: Duration = Duration::from_millis(1);
/// From a start that was refused to the next.
const START_PAUSE: Duration = Duration::from_millis(700);
/// How many times a process's clock runs slower that lies.
const SLOW_CLOCK: u32 = 3;

impl<S: Scene> Cluster<S> {
    /// The life of a shard whose gateway takes requests.
    pub(crate) fn ready_life(&self, at: Endpoint) -> Option<Life> {
        self.ready_life_for(at, VOLUME)
    }

    /// The same, of a volume.
    pub(crate) fn ready_life_for(&self, at: Endpoint, volume: &str) -> Option<Life> {
        let life = self.life_of(at).filter(|life| self.stalled(*life).is_none())?;
        let node = self.node_at(at)?;
        (node.gateway().volumes().contains_key(volume) && node.has_room(volume)).then_some(life)
    }

    /// All shards of the nodes that run, reach the configuration store and believe what it says.
    pub(crate) fn reaching(&self) -> Vec<Life> {
        let mut lives = self.lives();
        lives.retain(|life| {
            self.configuration.away(life.node, self.now).is_none() && !self.configuration.is_former(*life)
        });
        lives
    }

    /// There is another machine, whose process has yet to start.
    pub(crate) fn add_machine(&mut self, node: NodeId, random: Random) {
        self.machines.insert(node, Machine::new(random, shards_of_later(node)));
    }

    /// A machine whose process has ended is gone for good.
    pub(crate) fn remove_machine(&mut self, node: NodeId) {
        self.machines.remove(&node);
    }

    /// Starts the process of a node, if it does not run.
    pub(crate) fn start(&mut self, id: NodeId) {
        if self.machines.get(&id).is_none_or(Machine::runs) {
            return;
        }
        self.look_for_devices(id);
        let Some(incarnation) = self.register_start(id) else {
            // Its key is not in its record; somebody starts it again and again.
            return self.start_at(self.now + START_PAUSE, id);
        };
        self.read_key(id, incarnation);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let skewed = self.plan.mode != Mode::Calm;
        machine.boot(incarnation, skewed);
        if skewed && self.plan.lie == Some(Lie::SlowClock) && id == NodeId(1) {
            machine.clock.slow_down(SLOW_CLOCK);
        }
        let (clock, shards) = (machine.clock.shows(self.now), machine.shards);
        let endpoints = (0..shards.get()).map(|shard| Endpoint { node: id, shard: Shard(shard) });
        let unsettled = Arc::default();
        let new_node = |at| self.new_node((at, &unsettled), shards, incarnation, clock);
        let mut nodes: Vec<Node> = endpoints.map(new_node).collect();
        for (device, state) in self.devices.iter().filter(|(_, device)| device.node == id) {
            let shard = usize::from(self.shard_of(*device).0) % nodes.len();
            match (state.open(), nodes.get_mut(shard)) {
                (Ok(store), Some(node)) => node.add_device(*device, store),
                (Ok(_), None) => {}
                (Err(why), _) => return self.violate(Invariant::StoreKeeps, format!("{device:?}: {why}")),
            }
        }
        self.report.starts += 1;
        self.trace.step(self.now, incarnation, || match shards.get() {
            1 => format!("{id:?} starts, life {incarnation}"),
            shards => format!("{id:?} starts, life {incarnation}, with {shards} shards"),
        });
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.run(nodes);
        for life in self.lives_on(id) {
            self.inform(life);
            self.turn_by(life, self.now);
        }
    }

    fn new_node(
        &self,
        (endpoint, unsettled): (Endpoint, &Arc<Unsettled>),
        shards: NonZeroU8,
        incarnation: u64,
        clock: Duration,
    ) -> Node {
        let identity = Identity { cluster: CLUSTER, endpoint, incarnation };
        let mut node = Node::new(identity, clock);
        node.share(unsettled.clone());
        node.limit_reads(self.plan.reads);
        node.limit_windows(self.plan.windows);
        node.limit_sessions(self.plan.sessions_limit());
        node.set_link_idle(self.plan.link_idle);
        if self.plan.mode == Mode::Keys {
            node.demand_keys(true);
        }
        if self.plan.joined {
            node.join(shards);
        }
        node
    }

    /// A node's process ends without warning, and its devices lose power.
    pub(crate) fn crash(&mut self, id: NodeId) {
        S::crashes(self, id);
        let lives = self.lives_on(id);
        if lives.is_empty() {
            return;
        }
        self.collect_statistics(id);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.halt();
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?} crashes"));
        for life in &lives {
            let coming = self.network.ends_die(*life, self.now);
            self.expect(coming);
            self.rings.end_die(*life);
        }
        self.devices.values_mut().filter(|device| device.node == id).for_each(|device| device.crash());
        self.take_away_retired(id);
        for life in lives {
            self.clients_lose(life);
            self.holders_lose(life);
            self.reservers_lose(life);
        }
    }

    pub(crate) fn crash_for(&mut self, node: NodeId, time: Duration) {
        self.crash(node);
        let back = self.now + time;
        self.queue.push(back, Event::Start(node));
    }

    /// A node stops, if it runs, and comes back.
    pub(crate) fn restart_as_planned(&mut self, node: NodeId) {
        if let Some(life) = self.process_on(node) {
            self.leave(life, self.now + PATIENCE);
        }
    }

    /// The process hands over what it can.
    pub(crate) fn leave(&mut self, life: Life, until: Duration) {
        let mut busy = 0;
        for shard in self.lives_of(life) {
            self.tell(shard, |node| busy += node.leave());
        }
        if busy > 0 && self.now < until {
            self.queue.push(self.now + STEP, Event::Leave(life, until));
        } else {
            self.queue.push(self.now + LAST_WORD, Event::Exit(life));
        }
    }

    /// The process ends, and another one starts on its node some time later.
    pub(crate) fn exit(&mut self, life: Life) {
        if self.is_alive(life) {
            let time = self.random.spread_millis(10, 10_000);
            self.crash_for(life.node, time);
        }
    }

    /// A process goes on whose clock has stood still since then, and so does its clock. Its driver sees by another
    /// clock that something is wrong.
    pub(crate) fn resume(&mut self, life: Life, since: Duration) {
        let now = self.now;
        let machine = self.machines.get_mut(&life.node);
        if machine.is_some_and(|machine| machine.clock.go_on(since, now)) && self.plan.lie != Some(Lie::UnnoticedPause)
        {
            for shard in self.lives_of(life) {
                self.tell(shard, Node::void_leases);
            }
        }
    }

    /// Until when a process stands still; `None` when it does not.
    pub(crate) fn stalled(&self, life: Life) -> Option<Duration> {
        self.machines.get(&life.node)?.stalled(life.shard, self.now)
    }

    /// What a process is told while it stands still, it hears afterwards. Gives back other events.
    pub(crate) fn put_off(&mut self, event: Event<S::Cue>) -> Option<Event<S::Cue>> {
        let Some(until) = event.receiver(&self.network, &self.rings).and_then(|life| self.stalled(life)) else {
            return Some(event);
        };
        let now = self.now;
        if let Event::Turn(life) = event
            && let Some(at) = self.loop_of_mut(life)
        {
            at.put_off_turn(now, until);
        }
        self.queue.push(until, event);
        None
    }

    /// Adds up what the stores of a node have counted.
    pub(crate) fn collect_statistics(&mut self, id: NodeId) {
        let Some(machine) = self.machines.get(&id) else { return };
        let mut damaged = 0;
        for EventLoop { node, .. } in machine.loops() {
            self.report.asked_again += node.gateway().asked_again();
            for store in node.device_ids().filter_map(|device| node.store(device)) {
                let statistics = store.statistics();
                self.report.log_bytes += statistics.log_bytes;
                self.report.cleaned_segments += statistics.cleaned_segments;
                self.report.moved_blocks += statistics.moved_blocks;
                self.report.moved_apart_blocks += statistics.moved_apart_blocks;
                self.report.gathered_blocks += statistics.gathered_blocks;
                self.report.checkpoints += statistics.checkpoints;
                damaged += statistics.checksum_errors;
            }
        }
        self.report.checksum_errors += damaged;
        // Readers get them from another copy; that there are any is a fault of the store's.
        if damaged > 0 && self.plan.mode != Mode::Flips && !self.plan.devices_fail {
            self.violate(Invariant::StoreKeeps, format!("{damaged} blocks on {id:?} fail their checksums"));
        }
    }
}
