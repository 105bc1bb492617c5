//! Snapshots, clones and volumes that come and go by one transaction, and layers that end, as the leader of the control
//! plane has it.

use crate::events::Event;
use crate::plan::Lie;
use crate::snapshots::tree::{State, holders};
use crate::world::{VOLUME, World};
use azekura_base::{DeviceId, LayerId};
use azekura_gateway::VolumeView;
use std::collections::BTreeSet;
use std::sync::Arc;

impl World {
    /// Makes a volume whose blocks are a snapshot's until it is written; gives the revision. `None` when it is not
    /// there.
    pub(crate) fn clone_snapshot(&mut self, snapshot: &str, name: &str, size: u64) -> Option<u64> {
        let view = self.configuration.view();
        let from = view.volumes.get(snapshot)?.clone();
        let mut below = from.layer;
        if self.plan.lie == Some(Lie::CloneOfHead) {
            let source = snapshot.split('@').next().unwrap_or_default();
            below = view.volumes.get(source).map_or(below, |source| source.layer);
        }
        self.trace.step(self.now, below.0, || format!("{name} is cloned from {snapshot}, on {below:?}"));
        *self.faults.counts.entry("clone").or_default() += 1;
        let revision = self.configuration.edit(|view, tree| {
            let (id, layer) = (tree.volume_id(), tree.make(Some(below), State::Head));
            let clone = VolumeView { id, name: name.into(), size, layer, read_only: false, ..VolumeView::clone(&from) };
            view.volumes.insert(name.into(), Arc::new(clone));
        });
        self.inform_all();
        Some(revision)
    }

    /// Makes an empty volume; gives the revision.
    pub(crate) fn create_volume(&mut self, name: &str, size: u64, group_offset: u32) -> u64 {
        let groups = self.configuration.group_ids().into();
        self.trace.step(self.now, size, || format!("{name} is made, of {size} bytes"));
        let revision = self.configuration.edit(|view, tree| {
            let (id, layer) = (tree.volume_id(), tree.make(None, State::Head));
            let name: String = name.into();
            let (name_of, cut, read_only, io_timeout) = (name.clone(), None, false, None);
            let volume =
                VolumeView { id, name: name_of, size, layer, cut, read_only, io_timeout, groups, group_offset };
            view.volumes.insert(name, Arc::new(volume));
        });
        self.inform_all();
        revision
    }

    /// Deletes a snapshot.
    pub(crate) fn delete_snapshot(&mut self, name: &str) {
        self.trace.step(self.now, 0xde, || format!("{name} is deleted"));
        *self.faults.counts.entry("snapshot deleted").or_default() += 1;
        self.configuration.edit(|view, tree| {
            if let Some(snapshot) = view.volumes.remove(name) {
                tree.becomes(snapshot.layer, State::Hidden);
            }
        });
        self.inform_all();
    }

    /// Deletes a volume with its snapshots, while it is not being cut.
    pub(crate) fn delete_volume(&mut self, name: &str) {
        self.trace.step(self.now, 0xdf, || format!("{name} is deleted with its snapshots"));
        *self.faults.counts.entry("volume deleted").or_default() += 1;
        let of_it = format!("{name}@");
        self.configuration.edit(|view, tree| {
            if let Some(volume) = view.volumes.remove(name) {
                tree.becomes(volume.layer, State::Deleted);
                view.attachments.remove(&volume.id);
            }
            let snapshots: Vec<String> =
                view.volumes.keys().filter(|snapshot| snapshot.starts_with(&of_it)).cloned().collect();
            for snapshot in snapshots.iter().filter_map(|snapshot| view.volumes.remove(snapshot)) {
                tree.becomes(snapshot.layer, State::Hidden);
            }
        });
        self.inform_all();
    }

    /// A volume has another size; gives the revision.
    pub(crate) fn resize_volume(&mut self, name: &str, size: u64) -> u64 {
        self.trace.step(self.now, size, || format!("{name} has {size} bytes from now on"));
        *self.faults.counts.entry("resize").or_default() += 1;
        let revision = self.configuration.edit(|view, _| {
            if let Some(volume) = view.volumes.get_mut(name) {
                Arc::make_mut(volume).size = size;
            }
        });
        self.inform_all();
        revision
    }

    /// The leader looks at what layers are due.
    pub(crate) fn leader_turn(&mut self) {
        let again = self.now + self.snapshots.random.spread_millis(10, 400);
        self.queue.push(again, Event::Leader);
        let settled = !self.configuration.is_closed()
            && self.configuration.view().groups.values().all(|group| group.in_sync == group.members);
        let holders = holders(self.configuration.view());
        let due = self.configuration.tree().to_end(settled);
        let over = self.configuration.tree().ended(&holders);
        if due.is_empty() && over.is_empty() {
            return;
        }
        let lies = self.plan.lie == Some(Lie::DroppingMerge);
        self.configuration.edit(|_, tree| {
            over.iter().for_each(|layer| tree.remove(*layer));
            for (layer, into) in &due {
                let state = into.filter(|_| !lies).map_or(State::Deleted, State::Merging);
                tree.becomes(*layer, state);
            }
        });
        self.trace.step(self.now, due.len() as u64, || format!("layers {over:?} are gone, {due:?} are to end"));
        self.inform_all();
    }

    /// A device has nothing of a layer any more.
    pub(crate) fn layer_ended(&mut self, device: DeviceId, layer: LayerId) {
        self.trace.step(self.now, layer.0, || format!("{device:?} has ended {layer:?}"));
        self.configuration.edit(|_, tree| tree.confirm(layer, device));
        self.inform_all();
    }

    /// Nothing is left but the heads of volumes, in the configuration and on all devices that are in use. One that has
    /// lied may have forgotten that it has dropped a layer.
    pub(crate) fn layers_are_gone(&self) -> bool {
        let view = self.configuration.view();
        let heads: BTreeSet<LayerId> = view.volumes.values().map(|volume| volume.layer).collect();
        let in_use = self.devices.iter().filter(|(id, device)| !device.lied && !self.is_out_for_good(**id));
        let stores = in_use.map(|(id, device)| {
            let node = self.machines.get(&device.node).and_then(|machine| machine.node.as_ref());
            node.and_then(|node| node.store(*id))
        });
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
        let held = self.devices.iter().filter_map(|(id, device)| {
            let store = self.machines.get(&device.node)?.node.as_ref()?.store(*id)?;
            Some(format!("{id:?}: {:?}", store.layers().collect::<Vec<_>>()))
        });
        let held: Vec<String> = held.collect();
        let volumes: Vec<_> = view.volumes.values().map(|v| (v.name.clone(), v.layer, v.cut)).collect();
        format!("volumes {volumes:?}, {:?}; {}", self.configuration.tree(), held.join("; "))
    }

    /// The name of every volume but the one that stays.
    pub(crate) fn other_volumes(&self) -> Vec<String> {
        let volumes = self.configuration.view().volumes.values().filter(|volume| !volume.read_only);
        volumes.map(|volume| volume.name.clone()).filter(|name| name != VOLUME).collect()
    }
}
