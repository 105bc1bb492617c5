//! The nodes' processes: start, turns, and what they ask for.

use crate::attachments::INSPECTOR;
use crate::check::order::Owner;
use crate::events::{Event, Life};
use crate::front::Front;
use crate::network::{ConnId, Side, describe};
use crate::plan::Lie;
use crate::random::Random;
use crate::world::{CLUSTER, World};
use crate::{Invariant, Mode};
use azekura_base::{ChunkIndex, Endpoint, Generation, NodeId, RequestId, SessionId, VolumeId, WriteHeader};
use azekura_frontend::Frontend;
use azekura_model::FailureKind;
use azekura_node::{Effect, Identity, Node};
use azekura_replica::GroupState;
use azekura_wire::{FenceDone, Message, Prepare, PrepareHeld, PrepareOk};
use std::time::Duration;

/// A machine: its process, if one runs.
pub(crate) struct Machine {
    pub(crate) node: Option<Node>,
    /// Where its clients are.
    pub(crate) front: Front,
    incarnation: u64,
    /// What the process's clock would have shown when the run began.
    clock_ahead: Duration,
    /// How fast that clock runs, in millionths of the run's time.
    clock_rate: u32,
    /// The process and its clock have stood still since then.
    paused: Option<Duration>,
    /// Time that the clock knows nothing of.
    missed: Duration,
    /// The process does nothing until then.
    pub(crate) stalled_until: Duration,
    pub(crate) turn_at: Option<Duration>,
    random: Random,
}

impl Machine {
    pub(crate) fn new(random: Random) -> Machine {
        Machine {
            node: None,
            front: Front::new(),
            incarnation: 0,
            clock_ahead: Duration::ZERO,
            clock_rate: MILLION,
            paused: None,
            missed: Duration::ZERO,
            stalled_until: Duration::ZERO,
            turn_at: None,
            random,
        }
    }

    /// What the process's clock shows.
    pub(crate) fn clock(&self, now: Duration) -> Duration {
        let known = self.paused.unwrap_or(now).saturating_sub(self.missed);
        self.clock_ahead + known * self.clock_rate / MILLION
    }

    /// The process's clock stands still from now on, as the process does.
    pub(crate) fn stop_clock(&mut self, now: Duration) {
        self.paused.get_or_insert(now);
    }

    /// The clock goes on that has stood still since then. False when it did not.
    pub(crate) fn start_clock(&mut self, since: Duration, now: Duration) -> bool {
        let stood = self.paused.take_if(|paused| *paused == since).is_some();
        self.missed += if stood { now - since } else { Duration::ZERO };
        stood
    }

    /// The process stands still, and its clock does.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// When the process's clock shows `clock`.
    fn when(&self, clock: Duration) -> Duration {
        self.missed + clock.saturating_sub(self.clock_ahead) * MILLION / self.clock_rate
    }
}

/// Least time between two turns of a node whose clock, rather than news, wakes it.
const TURN_MIN: Duration = Duration::from_micros(50);
const MILLION: u32 = 1_000_000;
/// A clock runs at most this much too fast or too slow, in millionths.
const CLOCK_SKEW_MAX: u32 = 50_000;

impl World {
    /// The life of the process that runs on a node now.
    pub(crate) fn life_of(&self, node: NodeId) -> Option<Life> {
        let machine = self.machines.get(&node)?;
        machine.node.as_ref().map(|_| Life { node, incarnation: machine.incarnation })
    }

    /// Tells a process something, if it still lives, and lets it take a turn soon.
    pub(crate) fn tell(&mut self, life: Life, what: impl FnOnce(&mut Node)) {
        if self.life_of(life.node) != Some(life) {
            return;
        }
        let Some(machine) = self.machines.get_mut(&life.node) else { return };
        let clock = machine.clock(self.now);
        if let Some(node) = &mut machine.node {
            node.advance(clock);
            what(node);
        }
        self.wake(life);
    }

    /// Lets a process take a turn soon.
    pub(crate) fn wake(&mut self, life: Life) {
        if self.life_of(life.node) != Some(life) {
            return;
        }
        let Some(machine) = self.machines.get_mut(&life.node) else { return };
        let at = self.now + machine.random.micros(1, 20);
        self.turn_by(life, at);
    }

    fn turn_by(&mut self, life: Life, at: Duration) {
        let Some(machine) = self.machines.get_mut(&life.node) else { return };
        if machine.turn_at.is_none_or(|planned| at < planned) {
            machine.turn_at = Some(at);
            self.queue.push(at, Event::Turn(life));
        }
    }

    /// Starts the process of a node, if it does not run.
    pub(crate) fn start(&mut self, id: NodeId) {
        if self.machines.get(&id).is_none_or(|machine| machine.node.is_some()) {
            return;
        }
        self.look_for_devices(id);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.incarnation += 1;
        machine.clock_ahead = machine.random.micros(0, 100_000_000);
        machine.turn_at = None;
        machine.stalled_until = Duration::ZERO;
        (machine.paused, machine.missed) = (None, Duration::ZERO);
        if self.plan.mode != Mode::Calm {
            let skew = machine.random.between(0, 2 * u64::from(CLOCK_SKEW_MAX)) as u32;
            machine.clock_rate = MILLION - CLOCK_SKEW_MAX + skew;
            if self.plan.lie == Some(Lie::SlowClock) && id == NodeId(1) {
                machine.clock_rate /= 3;
            }
        }
        let life = Life { node: id, incarnation: machine.incarnation };
        let identity = Identity { cluster: CLUSTER, endpoint: Endpoint::first(id), incarnation: machine.incarnation };
        let mut node = Node::new(identity, machine.clock(self.now));
        node.limit_reads(self.plan.reads);
        node.limit_windows(self.plan.windows);
        for (device, state) in self.devices.iter().filter(|(_, device)| device.node == id) {
            match state.open() {
                Ok(store) => node.add_device(*device, store),
                Err(why) => return self.violate(Invariant::StoreKeeps, format!("{device:?}: {why}")),
            }
        }
        (machine.node, machine.front) = (Some(node), Front::new());
        self.report.starts += 1;
        self.trace.step(self.now, life.incarnation, || format!("{id:?} starts, life {}", life.incarnation));
        self.inform(life);
        self.turn_by(life, self.now);
    }

    /// A node's process ends without warning, and its devices lose power.
    pub(crate) fn crash(&mut self, id: NodeId) {
        self.note_committed(id);
        let Some(life) = self.life_of(id) else { return };
        self.collect_statistics(id);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.node = None;
        machine.turn_at = None;
        self.trace.step(self.now, u64::from(id.0), || format!("{id:?} crashes"));
        self.ends_die(life);
        self.devices.values_mut().filter(|device| device.node == id).for_each(|device| device.crash());
        self.take_away_retired(id);
        self.clients_lose(life);
        self.holders_lose(life);
    }

    /// A process takes a turn.
    pub(crate) fn turn(&mut self, life: Life) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&life.node).filter(|machine| machine.incarnation == life.incarnation)
        else {
            return;
        };
        if machine.turn_at != Some(now) {
            return;
        }
        machine.turn_at = None;
        self.front(life, |frontend, context| {
            frontend.close_late(context.now);
            frontend.admit(context);
        });
        let mut admitted = true;
        while admitted && self.violation.is_none() {
            admitted = false;
            let Some(wake) = self.poll_node(life) else { return };
            self.turn_by(life, wake);
            self.front(life, |frontend, context| admitted = frontend.admit(context));
        }
        self.front(life, Frontend::settle);
        self.check_serving(life);
        self.check_windows(life);
    }

    /// The node works, and what it asks for is done. Gives the time when it is to work again.
    fn poll_node(&mut self, life: Life) -> Option<Duration> {
        let now = self.now;
        let machine = self.machines.get_mut(&life.node).filter(|machine| machine.incarnation == life.incarnation)?;
        let clock = machine.clock(now);
        let node = machine.node.as_mut()?;
        node.poll(clock);
        let effects: Vec<Effect> = std::iter::from_fn(|| node.next_effect()).collect();
        let wake = machine.front.next_look().map_or(node.next_wake(), |look| look.min(node.next_wake()));
        let mut claims = Vec::new();
        for group in node.groups() {
            if matches!(
                group.state,
                GroupState::Active
                    | GroupState::WaitingForCopy(_)
                    | GroupState::Idle(_)
                    | GroupState::ReadOnly
                    | GroupState::CopyLost(_)
                    | GroupState::CopyAhead(_)
            ) {
                claims.push((group.pg, group.epoch, Owner { life, device: group.device }));
            }
        }
        let wake = machine.when(wake).max(now + TURN_MIN);
        for (pg, epoch, owner) in claims {
            if let Err(what) = self.order.reigns(pg, epoch, owner) {
                self.violate(Invariant::OnePrimary, what);
            }
        }
        for effect in effects {
            self.perform(life, effect);
        }
        Some(wake)
    }

    fn perform(&mut self, life: Life, effect: Effect) {
        let now = self.now;
        let name = life.node;
        match effect {
            Effect::Connect(to, _) => self.dial(life, to.node),
            Effect::Send(key, mut message) => {
                self.tamper(&mut message);
                if let Some((_, write)) = message.prepared()
                    && let Err((invariant, what)) = self.order.prepared(life, write)
                {
                    self.violate(invariant, what);
                }
                self.trace.remark(now, || format!("{name:?} on {key:?}: {}", describe(&message)));
                self.watch_votes(life, &message);
                self.check_minimum(life, ConnId::of(key), &message);
                self.send(key, &message);
                self.lie_about(key, message);
            }
            Effect::Close(key) => self.close(key),
            Effect::Store(device, effect) => self.device_effect(life, device, effect),
            Effect::Complete(request, outcome) => {
                self.front(life, |frontend, context| frontend.complete(request, outcome, context));
            }
            Effect::Scrubbed(pg, report, _) => self.scrubbed(pg, &report),
            Effect::Found(pg, found) => self.trace.remark(now, || format!("{name:?} {pg:?}: {found:?}")),
            Effect::Fenced(token, result) => {
                if !self.freeze_ended(token, &result) {
                    self.fence_ended(token, &result);
                }
            }
            Effect::AttachmentsEnded => self.front(life, |frontend, _| frontend.attachments_ended()),
            Effect::Propose(pg, device, config) => self.propose(life, pg, device, config),
            Effect::LayerDropped(device, layer) | Effect::LayerMerged(device, layer) => {
                self.layer_ended(device, layer);
            }
            Effect::CopyForgotten(device, pg) => self.copy_forgotten(device, pg),
            // Nobody asks for them here.
            Effect::Compared(..) | Effect::Measured(..) => {}
            Effect::DeviceOpen(device, Ok(())) => {
                self.trace.remark(now, || format!("{name:?} {device:?} is open"));
                self.device_opened(device);
            }
            Effect::DeviceOpen(device, Err(why)) => self.device_stopped(device, &why),
            Effect::DeviceOpensLate(device, silence) => {
                self.trace.remark(now, || format!("{name:?} {device:?} does not open: silent for {silence:?}"));
            }
            Effect::DeviceFailing(device, why) => {
                self.trace.remark(now, || format!("{name:?} {device:?} is failing: {why}"));
                self.note_failure(device, Some(FailureKind::Failing));
            }
            Effect::DeviceHangs(device, hangs, silence) => {
                if hangs {
                    *self.faults.counts.entry("device found to hang").or_default() += 1;
                }
                self.trace
                    .step(now, u64::from(device.0), || format!("{name:?} {device:?} hangs: {hangs}, {silence:?}"));
            }
            Effect::DeviceSlow(device, time) => {
                *self.faults.counts.entry("device found to be slow").or_default() += 1;
                self.trace.step(now, u64::from(device.0), || format!("{name:?} {device:?} is slow: {time:?}"));
            }
            Effect::Warn(what) => {
                self.trace.remark(now, || format!("{name:?} warns: {what}"));
                self.report.warnings += 1;
                if self.plan.mode != Mode::Flips && self.plan.lie.is_none() && !self.may_complain() {
                    self.violate(Invariant::Protocol, format!("{name:?} warns: {what}"));
                }
            }
        }
    }

    /// What a lying network makes of a message.
    fn tamper(&mut self, message: &mut Message) {
        let groups = &self.configuration.view().groups;
        match (self.plan.lie, message) {
            (
                Some(Lie::NoLiveWrites),
                Message::Prepare(Prepare { device, header, .. })
                | Message::PrepareHeld(PrepareHeld { device, header, .. }),
            ) if groups.get(&header.pg).is_some_and(|config| !config.in_sync.contains(device)) => {
                header.range.chunk = ChunkIndex(self.plan.chunks + header.pg.0);
            }
            (Some(Lie::UnheardFence), Message::Fence(fence)) => fence.generation = Generation(0),
            (Some(Lie::UnheardFreeze), Message::Freeze(freeze)) => freeze.volume = VolumeId(0),
            (Some(Lie::UnheardLayers), Message::Layers(layers)) => {
                layers.heads.clear();
                layers.parents.clear();
            }
            (Some(Lie::NoFence), Message::Write(write)) => write.attachment = INSPECTOR,
            (Some(Lie::SkippedChanges), Message::CompareOk(ok)) => drop(ok.differing.pop()),
            _ => {}
        }
    }

    /// What a lying network adds to a message that was sent on `key`.
    fn lie_about(&mut self, key: azekura_node::ConnKey, message: Message) {
        let (id, side) = (ConnId::of(key), Side::Dialler);
        let (injected_from, after, message) = match (self.plan.lie, message) {
            (Some(Lie::DoubledWrites), Message::Write(mut write)) if self.faults.random.chance(20) => {
                write.session = SessionId(write.session.0 ^ 0x5555 << 32); // Another node's.
                write.request = RequestId(write.request.0 + (1 << 40));
                (side, self.faults.random.spread_millis(1, 200), Message::Write(write))
            }
            (
                Some(Lie::EarlyPrepareOk),
                Message::Prepare(Prepare { device, header, .. })
                | Message::PrepareHeld(PrepareHeld { device, header, .. }),
            ) => {
                let WriteHeader { pg, epoch, sequence, .. } = header;
                let ok = PrepareOk { pg, device, epoch, sequence, full: false };
                (side.other(), Duration::from_micros(400), Message::PrepareOk(ok))
            }
            (Some(Lie::UnheardFreeze), Message::Freeze(freeze)) => {
                let done = FenceDone { request: freeze.request, result: Ok(()) };
                (side.other(), Duration::from_micros(400), Message::FenceDone(done))
            }
            (Some(Lie::UnheardFence), Message::Fence(fence)) => {
                let done = FenceDone { request: fence.request, result: Ok(()) };
                (side.other(), Duration::from_micros(400), Message::FenceDone(done))
            }
            _ => return,
        };
        self.queue.push(self.now + after, Event::Inject(id, injected_from, Box::new(message)));
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
