//! Snapshots, clones and volumes that come and go by one transaction, and layers that end, as the leader of the control
//! plane has it.

use crate::cluster::events::Event;
use crate::cluster::records::CLASS;
use crate::cluster::records::VOLUME;
use crate::cluster::{Cluster, Scene};
use crate::plan::Lie;
use crate::report::Invariant;
use azekura_base::{DeviceId, IoLimits, LayerId};
use azekura_model::transitions::data_keys::CloneKey;
use azekura_model::transitions::layers::confirm_layer_gone;
use azekura_model::transitions::snapshots::{CloneSpec, clone_snapshot, delete_snapshot};
use azekura_model::transitions::volumes::{
    VolumeDeletion, VolumeSpec, create_volume, delete_volume, limit_volume, resize_volume,
};
use azekura_model::{Ending, Key, LayerEnd, LayerRecord, MetaError, Model, Txn, VolumeAccess};
use azekura_plans::layers::{self, LayerPlan};
use azekura_plans::{Plan, snapshots};
use std::collections::BTreeSet;

/// A merge that drops what others inherit.
fn dropping(plan: LayerPlan) -> LayerPlan {
    match plan {
        LayerPlan::Begin(layer, _) => LayerPlan::Begin(layer, LayerEnd::Drop),
        other => other,
    }
}

impl<S: Scene> Cluster<S> {
    /// Makes a volume whose blocks are a snapshot's until it is written, with a data key of its own where there is one;
    /// gives the revision. `None` when it is not there, or there is no room.
    pub(crate) fn clone_snapshot(
        &mut self,
        snapshot: &str,
        name: &str,
        size: u64,
        key: Option<CloneKey>,
    ) -> Option<u64> {
        let below = self.configuration.view().volumes.get(snapshot)?.layer;
        let (source, of_source) = snapshot.split_once('@')?;
        let spec = CloneSpec {
            volume: source.into(),
            snapshot: of_source.into(),
            name: name.into(),
            size_bytes: Some(size),
            access: None,
            key,
        };
        self.trace.step(self.now, below.0, || format!("{name} is cloned from {snapshot}, on {below:?}"));
        self.count("clone");
        let made = self.configuration.run(|records| clone_snapshot(records, &spec, name, ""));
        let (clone, mut revision) = self.must_if_room(made)?;
        if self.plan.lie == Some(Lie::CloneOfHead) {
            let model = self.configuration.model();
            let parent = model.volumes.get(source).map(|source| source.head);
            let head = LayerRecord { parent, ..model.layers.get(&clone.head)?.record.clone() };
            revision = self.configuration.change(&Txn::new().put(&Key::Layer(clone.head).to_string(), &head));
        }
        self.inform_all();
        Some(revision)
    }

    /// Makes an empty volume; gives the revision. `None` when there is no room.
    pub(crate) fn create_volume(&mut self, name: &str, size_bytes: u64) -> Option<u64> {
        self.create_volume_in(CLASS, name, size_bytes)
    }

    /// The same, in a class.
    pub(crate) fn create_volume_in(&mut self, class: &str, name: &str, size_bytes: u64) -> Option<u64> {
        let access = VolumeAccess::Exclusive;
        let spec = VolumeSpec {
            name: name.into(),
            size_bytes,
            class: class.into(),
            access,
            key: None,
            limits: None,
            logical_block: azekura_base::LogicalBlock::Bytes512,
        };
        self.trace.step(self.now, size_bytes, || format!("{name} is made, of {size_bytes} bytes"));
        let made = self.configuration.run(|records| create_volume(records, &spec, name, ""));
        let (_, revision) = self.must_if_room(made)?;
        self.inform_all();
        Some(revision)
    }

    /// Deletes a snapshot.
    pub(crate) fn delete_snapshot(&mut self, name: &str) {
        let model = self.configuration.model();
        let volume = |name: &str| model.volumes.get(name).map(|volume| volume.id);
        let Some((volume, snapshot)) = name.split_once('@').and_then(|(of, name)| Some((volume(of)?, name))) else {
            return;
        };
        self.trace.step(self.now, 0xde, || format!("{name} is deleted"));
        self.count("snapshot deleted");
        let deleted = self.configuration.run(|records| delete_snapshot(records, volume, snapshot));
        self.must(deleted);
        self.inform_all();
    }

    /// Deletes a volume with its snapshots, while it is not being cut.
    pub(crate) fn delete_volume(&mut self, name: &str) {
        let Some(id) = self.configuration.model().volumes.get(name).map(|volume| volume.id) else { return };
        self.trace.step(self.now, 0xdf, || format!("{name} is deleted with its snapshots"));
        self.count("volume deleted");
        let by_force = VolumeDeletion { attached: Ending::All, snapshots: true };
        let deleted = self.configuration.run(|records| delete_volume(records, name, id, &by_force));
        self.must(deleted);
        self.inform_all();
    }

    /// A volume has another size; gives the revision. `None` when there is no room for more.
    pub(crate) fn resize_volume(&mut self, name: &str, size: u64) -> Option<u64> {
        self.trace.step(self.now, size, || format!("{name} has {size} bytes from now on"));
        self.count("resize");
        let resized = self.configuration.run(|records| resize_volume(records, name, size, true));
        let (_, revision) = self.must_if_room(resized)?;
        self.inform_all();
        Some(revision)
    }

    /// A volume has other limits, or none.
    pub(crate) fn limit_volume(&mut self, name: &str, limits: Option<&IoLimits>) {
        self.trace.step(self.now, 0x6c, || format!("{name} is limited to {limits:?}"));
        self.count("limits changed");
        let limited = self.configuration.run(|records| limit_volume(records, name, limits));
        self.must(limited);
        self.inform_all();
    }

    /// What the control plane must not refuse.
    pub(crate) fn must<T>(&mut self, outcome: Result<T, MetaError>) -> Option<T> {
        outcome.map_err(|error| self.violate(Invariant::Protocol, format!("the control plane refuses: {error}"))).ok()
    }

    /// The same of what promises room: there is none while something is wrong with every single device.
    fn must_if_room<T>(&mut self, outcome: Result<T, MetaError>) -> Option<T> {
        match outcome {
            Err(MetaError::Overcommit { capacity_bytes: 0, .. }) => None,
            outcome => self.must(outcome),
        }
    }

    /// Does what was planned from a model. False when somebody was faster.
    pub(crate) fn carry_out(&mut self, model: &Model, plan: &Plan) -> bool {
        let done = self.configuration.run(|records| plan.transition(model, records));
        self.must(done).is_some_and(|(done, _)| done)
    }

    /// The leader looks at what layers are due, and at the snapshots of deleted volumes.
    pub(crate) fn leader_turn(&mut self) {
        let again = self.now + self.cuts.random.spread_millis(10, 400);
        self.queue.push(again, Event::Leader);
        let model = self.configuration.model().clone();
        let layers = layers::step(&model).into_iter();
        let layers: Vec<LayerPlan> = match self.plan.lie {
            Some(Lie::DroppingMerge) => layers.map(dropping).collect(),
            _ => layers.collect(),
        };
        let over = snapshots::step(&model, self.now.as_secs());
        let over: Vec<_> = over.map(|(volume, name)| (volume, name.to_owned())).collect();
        if layers.is_empty() && over.is_empty() {
            return;
        }
        let begun = layers.iter().filter(|plan| matches!(plan, LayerPlan::Begin(..))).count() as u64;
        let deletions = over.iter().map(|(volume, name)| Plan::DeleteSnapshot(*volume, name.clone()));
        // What has changed since it was planned is left to the next turn.
        for plan in deletions.chain(layers.iter().copied().map(Plan::Layer)) {
            self.carry_out(&model, &plan);
        }
        self.trace.step(self.now, begun, || format!("the leader deletes {over:?}, and of layers: {layers:?}"));
        self.inform_all();
    }

    /// A device has nothing of a layer any more.
    pub(crate) fn layer_ended(&mut self, device: DeviceId, layer: LayerId) {
        self.trace.step(self.now, layer.0, || format!("{device:?} has ended {layer:?}"));
        let noted = self.configuration.run(|records| confirm_layer_gone(records, layer, device));
        self.must(noted);
        self.inform_all();
    }

    /// Nothing is left but the heads of volumes, in the configuration and on all devices that are in use. One that has
    /// lied may have forgotten that it has dropped a layer.
    pub(crate) fn layers_are_gone(&self) -> bool {
        let view = self.configuration.view();
        let heads: BTreeSet<LayerId> = view.volumes.values().map(|volume| volume.layer).collect();
        let in_use = self.devices.iter().filter(|(id, device)| !device.lied && !self.is_out_for_good(**id));
        let stores = in_use.map(|(id, _)| self.store_of(*id));
        let only_heads = |store: Option<&azekura_store::Store>| {
            store.is_some_and(|store| store.layers().all(|(layer, blocks)| heads.contains(&layer) || blocks == 0))
        };
        view.volumes.values().all(|volume| !volume.read_only)
            && view.parents.is_empty()
            && view.merging.is_empty()
            && view.dropped.is_empty()
            && { stores }.all(only_heads)
    }

    /// The layers, for people.
    pub(crate) fn describe_layers(&self) -> String {
        let view = self.configuration.view();
        let held = self.devices.keys().filter_map(|id| {
            let store = self.store_of(*id)?;
            Some(format!("{id:?}: {:?}", store.layers().collect::<Vec<_>>()))
        });
        let held: Vec<String> = held.collect();
        let volumes: Vec<_> = view.volumes.values().map(|v| (v.name.clone(), v.layer, v.cut)).collect();
        let model = self.configuration.model();
        let layers: Vec<_> =
            model.layers.values().map(|layer| (layer.id, layer.parent, layer.state, layer.into)).collect();
        format!("volumes {volumes:?}, layers {layers:?}, confirmed {:?}; {}", model.dropped, held.join("; "))
    }

    /// The name of every volume but the one that stays.
    pub(crate) fn other_volumes(&self) -> Vec<String> {
        let volumes = self.configuration.view().volumes.values().filter(|volume| !volume.read_only);
        volumes.map(|volume| volume.name.clone()).filter(|name| name != VOLUME).collect()
    }
}
