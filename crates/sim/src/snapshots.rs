//! Snapshots of the volume: an operator makes and deletes them while clients write and faults happen.
//!
//! A snapshot is a read of everything at one instant between its request and its answer. Which instant that can have been
//! is narrowed by what it holds: not before any write in it was asked for. So when the history is checked, every sector
//! that was read of a snapshot counts as a read of the volume in the time that is left. A write that had been acknowledged
//! by then and is missing is noticed, whatever group it is in.

use crate::Mode;
use crate::contents::{Value, ZERO};
use crate::events::{Event, Life};
use crate::history::{Seen, Stamp};
use crate::random::Random;
use crate::report::Invariant;
use crate::world::{LAYER, VOLUME, VOLUME_ID, World};
use azekura_base::{DeviceId, LayerId, NodeId, PgId, VolumeId};
use azekura_gateway::VolumeView;
use azekura_node::ClusterView;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long groups may take to freeze.
const PATIENCE: Duration = Duration::from_secs(2);
/// Tokens of freezes begin here, those of fences below.
const TOKENS: u64 = 1 << 32;
/// Snapshots that are kept at once.
const KEPT_MAX: usize = 6;
/// How long the layers of deleted snapshots may take to go when nothing else happens: a store rests for half a minute
/// before it ends a segment early.
pub(crate) const CLEARING_MAX: Duration = Duration::from_secs(400);

/// A snapshot that is being made.
struct Cut {
    from: Life,
    head: LayerId,
    child: LayerId,
    asked: Stamp,
}

/// A snapshot, also one that is deleted.
struct Snapshot {
    layer: LayerId,
    asked: Stamp,
    answered: Stamp,
    /// What was read of it.
    seen: BTreeMap<u64, Value>,
}

/// All snapshots.
pub(crate) struct Snapshots {
    /// Made in this run.
    pub(crate) on: bool,
    cuts: BTreeMap<u64, Cut>,
    made: BTreeMap<String, Snapshot>,
    /// Those that are not deleted.
    kept: BTreeSet<String>,
    layers: u64,
    asked: u64,
    /// All of them are to be deleted.
    pub(crate) clearing: bool,
    random: Random,
}

impl Snapshots {
    pub(crate) fn new(mode: Mode, random: Random) -> Snapshots {
        Snapshots {
            on: mode == Mode::Snapshots,
            cuts: BTreeMap::new(),
            made: BTreeMap::new(),
            kept: BTreeSet::new(),
            layers: LAYER.0,
            asked: TOKENS,
            clearing: false,
            random,
        }
    }

    /// None is being made.
    pub(crate) fn idle(&self) -> bool {
        self.cuts.is_empty()
    }

    /// Those that can be read.
    pub(crate) fn kept(&self) -> Vec<String> {
        self.kept.iter().cloned().collect()
    }

    /// A sector of a snapshot was read.
    ///
    /// # Errors
    /// When it held something else before.
    pub(crate) fn saw(&mut self, name: &str, sector: u64, value: Value) -> Result<(), String> {
        let Some(snapshot) = self.made.get_mut(name) else { return Ok(()) };
        let before = *snapshot.seen.entry(sector).or_insert(value);
        if before == value { Ok(()) } else { Err(format!("sector {sector} of {name} was {before} and is {value}")) }
    }

    /// What was read of snapshots, by sector, as reads of the volume; `started` says when a write was asked for.
    ///
    /// # Errors
    /// When a snapshot holds what was asked for after it was there.
    pub(crate) fn reads(
        &self,
        started: impl Fn(u64, Value) -> Option<Stamp>,
    ) -> Result<BTreeMap<u64, Vec<Seen>>, String> {
        let mut reads: BTreeMap<u64, Vec<Seen>> = BTreeMap::new();
        for (name, Snapshot { asked, answered, seen, .. }) in &self.made {
            let mut start = *asked;
            for (sector, value) in seen.iter().filter(|(_, value)| **value != ZERO) {
                let begun = started(*sector, *value).unwrap_or(0);
                if begun > *answered {
                    return Err(format!(
                        "{name}, there at {answered}, holds operation {value}, which began at {begun}"
                    ));
                }
                start = start.max(begun);
            }
            for (sector, value) in seen {
                reads.entry(*sector).or_default().push(Seen { value: *value, start, end: *answered });
            }
        }
        Ok(reads)
    }
}

/// The volume's head.
pub(crate) fn head_of(view: &ClusterView) -> LayerId {
    view.volumes.get(VOLUME).map_or(LAYER, |volume| volume.layer)
}

fn set_volume(view: &mut ClusterView, layer: LayerId, cut: Option<LayerId>) {
    if let Some(volume) = view.volumes.get_mut(VOLUME) {
        *volume = Arc::new(VolumeView { layer, cut, ..VolumeView::clone(volume) });
    }
}

impl World {
    /// The volume and its snapshots: their ids and layers.
    pub(crate) fn readable_layers(&self) -> Vec<(VolumeId, LayerId)> {
        self.configuration.view().volumes.values().map(|volume| (volume.id, volume.layer)).collect()
    }

    /// The operator does something.
    pub(crate) fn snapshot_turn(&mut self) {
        if !self.working && !self.snapshots.clearing {
            return;
        }
        let again = self.now + self.snapshots.random.spread_millis(20, 1500);
        self.queue.push(again, Event::Snapshot);
        if self.snapshots.clearing {
            self.snapshots.kept().into_iter().for_each(|name| self.delete_snapshot(&name));
        } else {
            match self.snapshots.random.below(100) {
                0..45 => self.begin_cut(),
                45..70 => self.read_some_snapshot(),
                _ => {
                    let kept = self.snapshots.kept();
                    if !kept.is_empty() {
                        let name = self.snapshots.random.pick(&kept).clone();
                        self.delete_snapshot(&name);
                    }
                }
            }
        }
        self.end_layers();
    }

    /// Asks for a snapshot at one of the nodes.
    fn begin_cut(&mut self) {
        if !self.snapshots.cuts.is_empty() || self.snapshots.kept.len() >= KEPT_MAX {
            return;
        }
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let lives = nodes.into_iter().filter_map(|node| self.life_of(node));
        let reaching: Vec<Life> = lives.filter(|life| self.configuration.away(life.node, self.now).is_none()).collect();
        if reaching.is_empty() {
            return;
        }
        let from = *self.snapshots.random.pick(&reaching);
        self.snapshots.layers += 1;
        self.snapshots.asked += 1;
        let (token, child) = (self.snapshots.asked, LayerId(self.snapshots.layers));
        let head = head_of(self.configuration.view());
        let asked = self.history.stamp();
        let revision = self.configuration.edit(|view| {
            view.parents.insert(child, head);
            set_volume(view, head, Some(child));
        });
        self.trace.step(self.now, token, || format!("{from:?} begins to put {child:?} on {head:?} at {asked}"));
        self.snapshots.cuts.insert(token, Cut { from, head, child, asked });
        self.inform_all();
        let groups: Vec<PgId> = self.configuration.view().groups.keys().copied().collect();
        self.tell(from, |node| node.freeze(token, VOLUME_ID, head, revision, groups, PATIENCE));
        // Whoever leads ends what the caller does not.
        let latest = self.now + PATIENCE + self.snapshots.random.spread_millis(500, 2000);
        self.queue.push(latest, Event::CallOff(token));
    }

    /// All groups have stopped, or not all in time. False when that is not about a snapshot.
    pub(crate) fn freeze_ended(&mut self, token: u64, result: &Result<(), Vec<PgId>>) -> bool {
        if token <= TOKENS {
            return false;
        }
        self.trace.step(self.now, token, || format!("the freeze {token}: {result:?}"));
        let at = self.now + self.configuration.delay();
        self.queue.push(at, if result.is_ok() { Event::CutDone(token) } else { Event::CallOff(token) });
        true
    }

    /// The child is the head from now on, and what was the head is a snapshot.
    pub(crate) fn cut_done(&mut self, token: u64) {
        let Some(Cut { from, head, child, asked }) = self.snapshots.cuts.remove(&token) else { return };
        let answered = self.history.stamp();
        let name = format!("{VOLUME}@{}", child.0);
        self.configuration.edit(|view| {
            set_volume(view, child, None);
            if let Some(volume) = view.volumes.get(VOLUME) {
                let snapshot = VolumeView {
                    id: VolumeView::snapshot_id(head),
                    name: name.clone(),
                    layer: head,
                    read_only: true,
                    ..VolumeView::clone(volume)
                };
                view.volumes.insert(name.clone(), Arc::new(snapshot));
            }
        });
        self.trace.step(self.now, token, || format!("{from:?} has made {name} of {head:?} at {answered}"));
        *self.faults.counts.entry("snapshot").or_default() += 1;
        self.snapshots.kept.insert(name.clone());
        self.snapshots.made.insert(name, Snapshot { layer: head, asked, answered, seen: BTreeMap::new() });
        self.inform_all();
    }

    /// A snapshot that is not there by now is not to be.
    pub(crate) fn call_off(&mut self, token: u64) {
        let Some(Cut { head, child, .. }) = self.snapshots.cuts.remove(&token) else { return };
        self.configuration.edit(|view| {
            view.parents.remove(&child);
            set_volume(view, head, None);
        });
        self.trace.step(self.now, token, || format!("{child:?} is not put on {head:?}"));
        *self.faults.counts.entry("snapshot called off").or_default() += 1;
        self.inform_all();
    }

    fn delete_snapshot(&mut self, name: &str) {
        if !self.snapshots.kept.remove(name) {
            return;
        }
        self.trace.step(self.now, 0xde, || format!("{name} is deleted"));
        *self.faults.counts.entry("snapshot deleted").or_default() += 1;
        self.configuration.edit(|view| drop(view.volumes.remove(name)));
        self.inform_all();
    }

    fn read_some_snapshot(&mut self) {
        let kept = self.snapshots.kept();
        if kept.is_empty() {
            return;
        }
        let name = self.snapshots.random.pick(&kept).clone();
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let node = *self.snapshots.random.pick(&nodes);
        self.read_part_of_snapshot(node, &name);
    }

    /// Layers that nobody reads are merged into what lies on them, or dropped, as the control plane does it.
    fn end_layers(&mut self) {
        let devices: BTreeSet<DeviceId> = self.devices.keys().copied().collect();
        let view = self.configuration.view();
        let read: BTreeSet<LayerId> =
            view.volumes.values().flat_map(|volume| [Some(volume.layer), volume.cut]).flatten().collect();
        let layers: BTreeSet<LayerId> = view.parents.iter().flat_map(|(layer, parent)| [*layer, *parent]).collect();
        let ending = |layer: &LayerId| view.merging.contains_key(layer) || view.dropped.contains_key(layer);
        let heir = |layer: &LayerId| view.merging.values().any(|(into, _)| into == layer);
        let due = layers.iter().find_map(|layer| {
            let parent_ends = view.parents.get(layer).is_some_and(|parent| view.merging.contains_key(parent));
            if read.contains(layer) || ending(layer) || heir(layer) || parent_ends {
                return None;
            }
            let mut children = view.parents.iter().filter(|(_, parent)| *parent == layer).map(|(child, _)| *child);
            match (children.next(), children.next()) {
                (Some(child), None) if !ending(&child) && !heir(&child) => Some((*layer, Some(child))),
                (None, _) => Some((*layer, None)),
                _ => None,
            }
        });
        let Some((layer, into)) = due else { return };
        self.trace.step(self.now, layer.0, || format!("{layer:?} is to end in {into:?}"));
        self.configuration.edit(|view| match into {
            Some(into) => drop(view.merging.insert(layer, (into, devices))),
            None => drop(view.dropped.insert(layer, devices)),
        });
        self.inform_all();
    }

    /// A device has nothing of a layer any more.
    pub(crate) fn layer_ended(&mut self, device: DeviceId, layer: LayerId) {
        self.trace.step(self.now, layer.0, || format!("{device:?} has ended {layer:?}"));
        self.configuration.edit(|view| {
            if let Some((into, devices)) = view.merging.get_mut(&layer) {
                devices.remove(&device);
                if devices.is_empty() {
                    let into = *into;
                    view.merging.remove(&layer);
                    match view.parents.remove(&layer) {
                        Some(parent) => view.parents.insert(into, parent),
                        None => view.parents.remove(&into),
                    };
                }
            }
            if let Some(devices) = view.dropped.get_mut(&layer) {
                devices.remove(&device);
                if devices.is_empty() {
                    view.dropped.remove(&layer);
                    view.parents.remove(&layer);
                }
            }
        });
        self.inform_all();
    }

    /// Nothing is left but the head, in the configuration and on all devices.
    pub(crate) fn layers_are_gone(&self) -> bool {
        let view = self.configuration.view();
        let head = head_of(view);
        let stores = self.devices.iter().map(|(id, device)| {
            let node = self.machines.get(&device.node).and_then(|machine| machine.node.as_ref());
            node.and_then(|node| node.store(*id))
        });
        let only_head = |store: Option<&azekura_store::Store>| {
            store.is_some_and(|store| store.layers().all(|(layer, blocks)| layer == head || blocks == 0))
        };
        view.parents.is_empty() && view.merging.is_empty() && view.dropped.is_empty() && { stores }.all(only_head)
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
        format!(
            "volumes {volumes:?}, parents {:?}, merging {:?}, dropped {:?}; {}",
            view.parents,
            view.merging,
            view.dropped,
            held.join("; ")
        )
    }

    /// What was read of a snapshot.
    pub(crate) fn saw_snapshot(&mut self, name: &str, sector: u64, value: Value) {
        if let Err(what) = self.snapshots.saw(name, sector, value) {
            let layer = self.snapshots.made.get(name).map(|snapshot| snapshot.layer);
            self.violate(Invariant::Snapshot, format!("{what} ({layer:?})"));
        }
    }
}
