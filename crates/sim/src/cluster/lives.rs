//! Lives of processes: how they start, stand still, stop as planned, and end without warning.

use crate::cluster::events::Event;
use crate::cluster::machine::Machine;
use crate::cluster::records::{CLUSTER, VOLUME};
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::kernel::random::Random;
use crate::plan::{Lie, Mode};
use crate::report::Invariant;
use azekura_base::{Endpoint, NodeId};
use azekura_node::{Identity, Node};
use std::time::Duration;

/// Longest time for handing over, as the binary has it.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Pause between two looks whether that is done.
const STEP: Duration = Duration::from_millis(10);
/// From the last word to the end of the process.
const LAST_WORD: Duration = Duration::from_millis(1);
/// How many times a process's clock runs slower that lies.
const SLOW_CLOCK: u32 = 3;

impl<S: Scene> Cluster<S> {
    /// The life of the process that runs on a node now.
    pub(crate) fn life_of(&self, node: NodeId) -> Option<Life> {
        self.machines.get(&node)?.life(node)
    }

    /// The life of a node whose gateway takes requests.
    pub(crate) fn ready_life(&self, node: NodeId) -> Option<Life> {
        self.ready_life_for(node, VOLUME)
    }

    /// The same, of a volume.
    pub(crate) fn ready_life_for(&self, node: NodeId, volume: &str) -> Option<Life> {
        let life = self.life_of(node).filter(|life| self.stalled(*life).is_none())?;
        let node = self.machines.get(&node)?.node.as_ref()?;
        (node.gateway().volumes().contains_key(volume) && node.has_room(volume)).then_some(life)
    }

    /// Nodes that run and reach the configuration store.
    pub(crate) fn reaching(&self) -> Vec<Life> {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let lives = nodes.into_iter().filter_map(|node| self.life_of(node));
        lives.filter(|life| self.configuration.away(life.node, self.now).is_none()).collect()
    }

    /// There is another machine, whose process has yet to start.
    pub(crate) fn add_machine(&mut self, node: NodeId, random: Random) {
        self.machines.insert(node, Machine::new(random));
    }

    /// A machine whose process has ended is gone for good.
    pub(crate) fn remove_machine(&mut self, node: NodeId) {
        self.machines.remove(&node);
    }

    /// Starts the process of a node, if it does not run.
    pub(crate) fn start(&mut self, id: NodeId) {
        if self.machines.get(&id).is_none_or(|machine| machine.node.is_some()) {
            return;
        }
        self.look_for_devices(id);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let skewed = self.plan.mode != Mode::Calm;
        let incarnation = machine.boot(skewed);
        if skewed && self.plan.lie == Some(Lie::SlowClock) && id == NodeId(1) {
            machine.clock.slow_down(SLOW_CLOCK);
        }
        let life = Life { node: id, incarnation };
        let identity = Identity { cluster: CLUSTER, endpoint: Endpoint::first(id), incarnation };
        let mut node = Node::new(identity, machine.clock.shows(self.now));
        node.limit_reads(self.plan.reads);
        node.limit_windows(self.plan.windows);
        node.limit_sessions(self.plan.sessions_max);
        for (device, state) in self.devices.iter().filter(|(_, device)| device.node == id) {
            match state.open() {
                Ok(store) => node.add_device(*device, store),
                Err(why) => return self.violate(Invariant::StoreKeeps, format!("{device:?}: {why}")),
            }
        }
        machine.run(node);
        self.report.starts += 1;
        self.trace.step(self.now, life.incarnation, || format!("{id:?} starts, life {}", life.incarnation));
        self.inform(life);
        self.turn_by(life, self.now);
    }

    /// A node's process ends without warning, and its devices lose power.
    pub(crate) fn crash(&mut self, id: NodeId) {
        S::crashes(self, id);
        let Some(life) = self.life_of(id) else { return };
        self.collect_statistics(id);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.halt();
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?} crashes"));
        let coming = self.network.ends_die(life, self.now);
        self.expect(coming);
        self.devices.values_mut().filter(|device| device.node == id).for_each(|device| device.crash());
        self.take_away_retired(id);
        self.clients_lose(life);
        self.holders_lose(life);
    }

    pub(crate) fn crash_for(&mut self, node: NodeId, time: Duration) {
        self.crash(node);
        let back = self.now + time;
        self.queue.push(back, Event::Start(node));
    }

    /// A node stops, if it runs, and comes back.
    pub(crate) fn restart_as_planned(&mut self, node: NodeId) {
        if let Some(life) = self.life_of(node) {
            self.leave(life, self.now + PATIENCE);
        }
    }

    /// The process hands over what it can.
    pub(crate) fn leave(&mut self, life: Life, until: Duration) {
        let mut busy = 0;
        self.tell(life, |node| busy = node.leave());
        if busy > 0 && self.now < until {
            self.queue.push(self.now + STEP, Event::Leave(life, until));
        } else {
            self.queue.push(self.now + LAST_WORD, Event::Exit(life));
        }
    }

    /// The process ends, and another one starts on its node some time later.
    pub(crate) fn exit(&mut self, life: Life) {
        if self.life_of(life.node) == Some(life) {
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
            self.tell(life, Node::void_leases);
        }
    }

    /// Until when a process stands still; `None` when it does not.
    pub(crate) fn stalled(&self, life: Life) -> Option<Duration> {
        self.machines.get(&life.node)?.stalled(self.now)
    }

    /// What a process is told while it stands still, it hears afterwards. Gives back other events.
    pub(crate) fn put_off(&mut self, event: Event<S::Cue>) -> Option<Event<S::Cue>> {
        let Some(until) = event.told(&self.network).and_then(|life| self.stalled(life)) else { return Some(event) };
        if let Event::Turn(life) = event
            && let Some(machine) = self.machines.get_mut(&life.node)
        {
            machine.put_off_turn(self.now, until);
        }
        self.queue.push(until, event);
        None
    }

    /// Adds up what the stores of a node have counted.
    pub(crate) fn collect_statistics(&mut self, id: NodeId) {
        let Some(node) = self.machines.get(&id).and_then(|machine| machine.node.as_ref()) else { return };
        self.report.asked_again += node.gateway().asked_again();
        let devices: Vec<_> = node.device_ids().collect();
        let mut damaged = 0;
        for store in devices.into_iter().filter_map(|device| node.store(device)) {
            let statistics = store.statistics();
            self.report.log_bytes += statistics.log_bytes;
            self.report.gc_segments += statistics.gc_segments;
            self.report.gc_blocks += statistics.gc_blocks;
            self.report.checkpoints += statistics.checkpoints;
            damaged += statistics.checksum_errors;
        }
        self.report.checksum_errors += damaged;
        // Readers get them from another copy; that there are any is a fault of the store's.
        if damaged > 0 && self.plan.mode != Mode::Flips && !self.plan.devices_fail {
            self.violate(Invariant::StoreKeeps, format!("{damaged} blocks on {id:?} fail their checksums"));
        }
    }
}
