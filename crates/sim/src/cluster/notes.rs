//! What the records say of nodes and devices, changed by the transitions of `azekura_model`: signs of life, what is
//! wrong with devices, which of them are drained and taken out of the cluster.

use crate::cluster::operator::Leadership;
use crate::cluster::{Cluster, Scene};
use crate::plan::Lie;
use crate::report::Invariant;
use azekura_base::{DeviceId, NodeId, PgId, Shard};
use azekura_model::transitions::alive::{Claim, LIFE_TTL_SECONDS};
use azekura_model::transitions::devices::{note_device_failure, set_device_state};
use azekura_model::transitions::removal::remove_device;
use azekura_model::{DeviceFailure, DeviceRecord, DeviceState, FailureKind, Key, MetaError, SettingsRecord, Txn};
use azekura_plans::Leader;
use std::time::Duration;

/// A sign of life ends so long after it was given last, and so does a leadership.
const LIFE: Duration = Duration::from_secs(LIFE_TTL_SECONDS as u64);

/// The most that the leader waits for nodes and devices when a run is to end.
const HURRY_SECONDS: u64 = 2;

impl<S: Scene> Cluster<S> {
    /// Nodes that reach the store give signs of life; of others the last one ends.
    pub(crate) fn give_signs_of_life(&mut self) {
        let nodes: Vec<NodeId> = self.configuration.model().nodes.keys().copied().collect();
        for node in nodes {
            let alive = self.configuration.model().alive.contains_key(&node);
            let runs = self.process_on(node).is_some_and(|life| !self.configuration.is_former(life));
            if runs && self.configuration.away(node, self.now).is_none() {
                self.operator.renewed.insert(node, self.now);
                if !alive {
                    self.configuration.claim(Claim::Alive(node));
                }
            } else if alive && self.operator.renewed.get(&node).is_none_or(|at| self.now >= *at + LIFE) {
                self.configuration.end(Claim::Alive(node));
            }
        }
    }

    /// Somebody leads the control plane: who did, until that is over, and then another process that reaches the store.
    /// True when the leader can do something now.
    pub(crate) fn elect(&mut self) -> bool {
        if let Some(Leadership { life, renewed, .. }) = self.operator.leadership {
            let awake = self.is_alive(life) && self.stalled(life).is_none();
            if awake && self.configuration.away(life.node, self.now).is_none() {
                self.operator.leadership.iter_mut().for_each(|leadership| leadership.renewed = self.now);
                return true;
            }
            if self.now < renewed + LIFE {
                return false;
            }
            self.configuration.end(Claim::Leader(life.node));
            self.operator.leadership = None;
        }
        let mut candidates = self.reaching();
        candidates.retain(|life| life.shard == Shard(0) && self.stalled(*life).is_none());
        if candidates.is_empty() {
            return false;
        }
        let life = *self.operator.random.pick(&candidates);
        self.configuration.claim(Claim::Leader(life.node));
        self.trace.step(self.now, u64::from(life.node.0), || format!("{life:?} leads the control plane"));
        self.operator.leadership = Some(Leadership { life, renewed: self.now, leader: Leader::default() });
        true
    }

    /// Nobody leads: the store has lost what it knew of the leader.
    pub(crate) fn depose(&mut self) {
        self.operator.leadership = None;
    }

    /// Nodes that reach the store note what they have found out about their devices.
    pub(crate) fn note_failures(&mut self) {
        let devices: Vec<(DeviceId, NodeId)> =
            self.configuration.model().devices.values().map(|device| (device.id, device.node)).collect();
        for (device, node) in devices {
            if self.process_on(node).is_none() || self.configuration.away(node, self.now).is_some() {
                continue;
            }
            let kind = match self.operator.lost.get(&device) {
                Some(true) => Some(FailureKind::Lost),
                Some(false) => continue,
                None => self.operator.stopped.contains(&device).then_some(FailureKind::Stopped),
            };
            self.note_failure(device, kind);
        }
    }

    /// A node notes what is wrong with a device, or that nothing is.
    pub(crate) fn note_failure(&mut self, device: DeviceId, kind: Option<FailureKind>) {
        let failure = kind.map(|kind| DeviceFailure { kind, reason: format!("{kind:?}"), since: String::new() });
        let before = self.configuration.view().revision;
        // The device may have been taken out of the cluster.
        let noted = self.configuration.run(|records| note_device_failure(records, device, failure.as_ref()));
        if noted.is_ok_and(|((), revision)| revision != before) {
            self.trace.step(self.now, u64::from(device.0), || format!("it is noted of {device:?}: {kind:?}"));
            self.inform_all();
        }
    }

    /// A device is to be emptied, because somebody wants it or because it has too many errors.
    pub(crate) fn is_drained(&self, device: DeviceId) -> bool {
        let failing =
            |record: &DeviceRecord| record.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Failing);
        let device = self.configuration.model().devices.get(&device);
        device.is_some_and(|device| device.state == DeviceState::Draining || failing(device))
    }

    /// Somebody wants a device to be emptied, to take it away.
    pub(crate) fn drain_device(&mut self, device: DeviceId) {
        self.set_states(&[device], DeviceState::Draining);
    }

    /// No device is to be emptied any more.
    pub(crate) fn drain_no_more(&mut self) {
        let devices = self.configuration.model().devices.values();
        let devices: Vec<DeviceId> = devices.filter(|device| !device.removed).map(|device| device.id).collect();
        let drained: Vec<DeviceId> = devices.into_iter().filter(|device| self.is_drained(*device)).collect();
        self.set_states(&drained, DeviceState::Up);
    }

    fn set_states(&mut self, devices: &[DeviceId], state: DeviceState) {
        let set = self.configuration.run(|records| set_device_state(records, devices, state));
        self.must(set);
        self.inform_all();
    }

    /// A device was drained and nothing needs it: somebody takes it away soon, and restarts its node for that.
    pub(crate) fn can_be_taken_away(&self, device: DeviceId) -> bool {
        self.is_drained(device) && self.configuration.model().check_device_removal(device, false).is_ok()
    }

    /// A drained device that nothing needs is taken out of the cluster, and taken away by whoever stops its node.
    pub(crate) fn take_away_drained(&mut self) {
        let drained = self.devices.iter().filter(|(id, device)| !device.retired && self.is_drained(**id));
        let drained: Vec<DeviceId> = drained.map(|(id, _)| *id).collect();
        for id in drained {
            let removed = match self.plan.lie {
                Some(Lie::HastyRemoval) => self.remove_hastily(id),
                _ => self.configuration.run(|records| remove_device(records, id, false)).map(drop),
            };
            match removed {
                Ok(()) => {}
                Err(MetaError::RemovalRefused { .. }) => continue,
                Err(error) => self.violate(Invariant::Protocol, format!("{id:?} can't be removed: {error}")),
            }
            let Some(device) = self.devices.get_mut(&id) else { continue };
            device.retired = true;
            let node = device.node;
            self.trace.step(self.now, u64::from(id.0), || format!("{id:?} is drained and is taken away"));
            self.count("device removed");
            self.inform_all();
            self.restart_as_planned(node);
        }
    }

    /// Takes a device out of the cluster as soon as no group is to have a copy there.
    fn remove_hastily(&mut self, id: DeviceId) -> Result<(), MetaError> {
        let model = self.configuration.model();
        let refused = || MetaError::RemovalRefused { what: String::new(), reason: String::new(), hint: String::new() };
        let is_member = model.groups.values().any(|group| group.members.contains(&id));
        let record = model.devices.get(&id).filter(|_| !is_member).ok_or_else(refused)?.record.clone();
        let record = DeviceRecord { state: DeviceState::Down, removed: true, ..record };
        self.configuration.change(&Txn::new().put(&Key::Device(id).to_string(), &record));
        Ok(())
    }

    /// Nobody waits for anything much longer: the run is to end. The settings say less than people may ask for.
    pub(crate) fn hurry(&mut self) {
        let settings = self.configuration.model().settings();
        let rehome_after_seconds = Some(settings.rehome_after_seconds.unwrap_or(u64::MAX).min(HURRY_SECONDS));
        let settings = SettingsRecord { rehome_after_seconds, ..settings };
        self.configuration.change(&Txn::new().put(&Key::Settings.to_string(), &settings));
        self.inform_all();
    }

    /// A device has given up its copy.
    pub(crate) fn copy_forgotten(&mut self, device: DeviceId, pg: PgId) {
        let Some(version) = self.configuration.forget_copy(pg, device) else { return };
        self.trace.step(self.now, version, || format!("{device:?} has no copy of {pg:?} any more"));
        let Some(config) = self.configuration.view().groups.get(&pg) else { return };
        if self.plan.goes_back && config.members.len() < config.copies as usize {
            // As the control plane does with a group that has too few.
            let mut members = config.members.clone();
            members.insert(device);
            self.configuration.change_members(pg, members);
        }
        self.inform_all();
    }
}
