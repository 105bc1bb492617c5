//! Turns of processes: what they are told, and what they ask for.

use crate::cluster::events::Event;
use crate::cluster::links::describe;
use crate::cluster::{Cluster, Scene};
use crate::kernel::network::ConnId;
use crate::kernel::process::Life;
use crate::plan::Mode;
use crate::report::Invariant;
use azekura_frontend::Frontend;
use azekura_model::FailureKind;
use azekura_node::{Effect, Node};
use azekura_replica::GroupState;
use std::time::Duration;

/// Least time between two turns of a node whose clock, rather than news, wakes it.
const TURN_MIN: Duration = Duration::from_micros(50);

impl<S: Scene> Cluster<S> {
    /// Tells a process something, if it still lives, and lets it take a turn soon.
    pub(crate) fn tell(&mut self, life: Life, what: impl FnOnce(&mut Node)) {
        let clock = self.clock_on(life.node);
        let Some(at) = self.loop_of_mut(life) else { return };
        at.node.advance(clock);
        what(&mut at.node);
        self.wake(life);
    }

    /// Lets a process take a turn soon.
    pub(crate) fn wake(&mut self, life: Life) {
        if !self.is_alive(life) {
            return;
        }
        let Some(machine) = self.machines.get_mut(&life.node) else { return };
        let at = self.now + machine.draw_turn();
        self.turn_by(life, at);
    }

    /// Lets a process take a turn then, if none is planned before.
    pub(super) fn turn_by(&mut self, life: Life, at: Duration) {
        if self.loop_of_mut(life).is_some_and(|shard| shard.plan_turn(at)) {
            self.queue.push(at, Event::Turn(life));
        }
    }

    /// A process takes a turn.
    pub(crate) fn turn(&mut self, life: Life) {
        let now = self.now;
        if !self.loop_of_mut(life).is_some_and(|at| at.take_turn(now)) {
            return;
        }
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
        S::turned(self, life);
    }

    /// The node works, and what it asks for is done. Gives the time when it is to work again.
    fn poll_node(&mut self, life: Life) -> Option<Duration> {
        let now = self.now;
        let clock = self.clock_on(life.node);
        let at = self.loop_of_mut(life)?;
        let node = &mut at.node;
        node.poll(clock);
        let effects: Vec<Effect> = std::iter::from_fn(|| node.next_effect()).collect();
        let wake = at.front.next_look().map_or(node.next_wake(), |look| look.min(node.next_wake()));
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
                claims.push((group.pg, group.epoch, group.device));
            }
        }
        let wake = self.machines.get(&life.node)?.clock.when(wake).max(now + TURN_MIN);
        for (pg, epoch, device) in claims {
            S::acts_as_primary(self, life, device, (pg, epoch));
        }
        for effect in effects {
            self.perform(life, effect);
        }
        Some(wake)
    }

    fn perform(&mut self, life: Life, effect: Effect) {
        let now = self.now;
        let name = life.endpoint();
        match effect {
            Effect::Connect(to, ..) => self.dial(life, to),
            Effect::ConnectLocal(to) => self.join(life, to),
            Effect::Send(key, mut message) => {
                self.tamper(&mut message);
                if let Some((_, write)) = message.prepared() {
                    S::orders(self, life, write);
                }
                self.trace.remark(now, || format!("{name:?} on {key:?}: {}", describe(&message)));
                S::sends(self, life, ConnId::of(key), &message);
                self.send(key, &message);
                self.lie_about(key, message);
            }
            Effect::Close(key) => self.close(key),
            Effect::Store(device, effect) => self.device_effect(life, device, effect),
            Effect::Complete(request, outcome) => {
                self.front(life, |frontend, context| frontend.complete(request, outcome, context));
            }
            Effect::Scrubbed(pg, _, report, _) => S::scrubbed(self, pg, &report),
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
            Effect::DeviceOut(device, why) => self.device_is_out(device, &why),
            Effect::DeviceOpensLate(device, silence) => {
                self.trace.remark(now, || format!("{name:?} {device:?} does not open: silent for {silence:?}"));
            }
            Effect::DeviceFailing(device, why) => {
                self.trace.remark(now, || format!("{name:?} {device:?} is failing: {why}"));
                self.note_failure(device, Some(FailureKind::Failing));
            }
            Effect::DeviceHangs(device, hangs, silence) => {
                if hangs {
                    self.count("device found to hang");
                }
                self.devices.entry(device).and_modify(|device| device.avoided = hangs);
                self.trace
                    .step(now, u64::from(device.0), || format!("{name:?} {device:?} hangs: {hangs}, {silence:?}"));
            }
            Effect::DeviceSlow(device, time) => {
                self.count("device found to be slow");
                self.trace.step(now, u64::from(device.0), || format!("{name:?} {device:?} is slow: {time:?}"));
            }
            Effect::Warn(what) => {
                self.trace.remark(now, || format!("{name:?} warns: {what}"));
                self.report.warnings += 1;
                if self.plan.mode != Mode::Flips && self.plan.lie.is_none() && !S::may_complain(self) {
                    self.violate(Invariant::Protocol, format!("{name:?} warns: {what}"));
                }
            }
        }
    }
}
