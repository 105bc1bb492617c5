//! The whole cluster as one value: every record by its id, as of one revision.
//!
//! A model never changes; the next one shares what did not change with it. A record that can't be read is left out and
//! reported in [`Model::problems`]: one broken record must not take the others away.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use azekura_base::{ChunkIndex, DeviceId, GrantId, KeyId, LayerId, NodeId, PgId, VolumeId};
use serde::de::DeserializeOwned;

use crate::{
    AliveRecord, AttachmentsRecord, AuthorityRecord, Bounds, COMPARE_AND_WRITE, Change, ClassRecord, ClusterRecord,
    DEFAULT_PROJECT, DataKeyRecord, DeviceRecord, DoubtRecord, GrantRecord, GroupRecord, HOST_PATHS, HoldingsRecord,
    Key, KeyValue, LayerRecord, LeaderRecord, NodeRecord, PROJECTS, ProjectRecord, ProjectUse, RESERVATIONS,
    ReservationsRecord, ReservationsView, SettingsRecord, SnapshotRecord, TargetRecord, VolumeRecord, encode,
    project_of,
};

/// A record with the revision of its last change, which a compare-and-swap names.
#[derive(Debug, PartialEq)]
pub struct Versioned<T> {
    /// The record.
    pub record: T,
    /// Revision of its last change.
    pub mod_revision: i64,
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.record
    }
}

/// Records by id or name. Cloning is cheap; a change copies the map's pointers, not its records.
pub type RecordMap<K, T> = Arc<BTreeMap<K, Arc<Versioned<T>>>>;

/// The cluster as of one revision.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Every change up to this revision is in it.
    pub revision: i64,
    /// The cluster's identity; `None` before the first node made it.
    pub cluster: Option<Arc<Versioned<ClusterRecord>>>,
    /// The cluster's settings; `None` while all have their default.
    pub settings: Option<Arc<Versioned<SettingsRecord>>>,
    /// The leader of the control plane, if there is one.
    pub leader: Option<Arc<Versioned<LeaderRecord>>>,
    /// The next id of each kind.
    pub counters: Arc<BTreeMap<String, u64>>,
    /// Nodes.
    pub nodes: RecordMap<NodeId, NodeRecord>,
    /// Nodes that are alive.
    pub alive: RecordMap<NodeId, AliveRecord>,
    /// Devices.
    pub devices: RecordMap<DeviceId, DeviceRecord>,
    /// Storage classes.
    pub classes: RecordMap<String, ClassRecord>,
    /// Placement groups.
    pub groups: RecordMap<PgId, GroupRecord>,
    /// Volumes.
    pub volumes: RecordMap<String, VolumeRecord>,
    /// Attachments of volumes; volumes that never had one are not in it.
    pub attachments: RecordMap<VolumeId, AttachmentsRecord>,
    /// Reservations of volumes; volumes that nobody has ever registered with are not in it.
    pub reservations: RecordMap<VolumeId, ReservationsRecord>,
    /// Layers.
    pub layers: RecordMap<LayerId, LayerRecord>,
    /// Snapshots, by volume and name. Those of a deleted volume stay until the leader has deleted them.
    pub snapshots: RecordMap<(VolumeId, String), SnapshotRecord>,
    /// Devices that have nothing of a deleted or merging layer any more.
    pub dropped: Arc<BTreeSet<(LayerId, DeviceId)>>,
    /// What nodes have against this configuration, by the identity of their data folders.
    pub doubts: RecordMap<String, DoubtRecord>,
    /// What devices hold, said after the configuration was restored.
    pub holdings: RecordMap<DeviceId, HoldingsRecord>,
    /// Grants: who may what.
    pub grants: RecordMap<GrantId, GrantRecord>,
    /// Certificate authorities, by number.
    pub authorities: RecordMap<u32, AuthorityRecord>,
    /// Data keys of encrypted volumes, wrapped.
    pub data_keys: RecordMap<KeyId, DataKeyRecord>,
    /// Projects; the default one has no record.
    pub projects: RecordMap<String, ProjectRecord>,
    /// Targets of several logical units.
    pub targets: RecordMap<String, TargetRecord>,
    /// Every key-value as it is kept, those that end with a lease left out.
    pub keys: Arc<BTreeMap<Arc<str>, Arc<KeyValue>>>,
    /// How often everything has been read, instead of followed: what was known before is to be compared with it.
    pub readings: u64,
    /// Records that could not be read: key and reason.
    pub problems: Arc<BTreeMap<String, String>>,
}

/// Places `record` under `key`, or takes it away.
fn place<K: Ord + Clone, T>(records: &mut RecordMap<K, T>, key: K, record: Option<Arc<Versioned<T>>>) {
    match record {
        Some(record) => {
            Arc::make_mut(records).insert(key, record);
        }
        None if records.contains_key(&key) => {
            Arc::make_mut(records).remove(&key);
        }
        None => {}
    }
}

/// Reads a record and checks that it is the one that its key names.
fn read<T: DeserializeOwned>(
    kv: Option<&KeyValue>,
    problem: &mut Option<String>,
    names: impl Fn(&T) -> bool,
) -> Option<Arc<Versioned<T>>> {
    let kv = kv?;
    match serde_json::from_slice::<T>(&kv.value) {
        Ok(record) if names(&record) => Some(Arc::new(Versioned { record, mod_revision: kv.mod_revision })),
        Ok(_) => {
            *problem = Some("the record names another id than its key".to_owned());
            None
        }
        Err(error) => {
            *problem = Some(error.to_string());
            None
        }
    }
}

/// Whether these are a volume's reservations, and contradict themselves in nothing.
fn is_of(record: &ReservationsRecord, volume: VolumeId) -> bool {
    record.volume == volume && record.is_sound()
}

/// Whether this is the record of a group, and its primary has all that is acknowledged.
fn is_group(record: &GroupRecord, id: PgId) -> bool {
    record.id == id && record.in_sync.contains(&record.primary)
}

/// Whether this is the record of a data key, and has one.
fn is_key(record: &DataKeyRecord, id: KeyId) -> bool {
    record.id == id && record.current().is_some()
}

impl Model {
    /// The model of these key-values as of `revision`.
    #[must_use]
    pub fn from_keys<'a>(kvs: impl IntoIterator<Item = &'a KeyValue>, revision: i64) -> Model {
        let mut model = Model { revision, ..Model::default() };
        for kv in kvs {
            model.set(&kv.key, Some(kv));
        }
        model
    }

    /// Applies changes that reach up to `revision`.
    pub fn apply<'a>(&mut self, changes: impl IntoIterator<Item = &'a Change>, revision: i64) {
        for change in changes {
            match change {
                Change::Put(kv) => self.set(&kv.key, Some(kv)),
                Change::Delete(key) => self.set(key, None),
            }
        }
        self.revision = revision;
    }

    fn set(&mut self, key: &[u8], kv: Option<&KeyValue>) {
        let Some(parsed) = Key::parse(key) else {
            // Another version's key, or a person's note.
            return;
        };
        let mut problem = None;
        let p = &mut problem;
        match parsed {
            Key::Cluster => self.cluster = read(kv, p, |cluster: &ClusterRecord| cluster.number().is_some()),
            Key::Settings => self.settings = read(kv, p, |_| true),
            Key::Leader => self.leader = read(kv, p, |_| true),
            Key::Counter(name) => {
                let next = read::<u64>(kv, p, |_| true);
                match next {
                    Some(next) => Arc::make_mut(&mut self.counters).insert(name.to_owned(), next.record),
                    None => Arc::make_mut(&mut self.counters).remove(name),
                };
            }
            Key::Node(id) => place(&mut self.nodes, id, read(kv, p, |node: &NodeRecord| node.id == id)),
            Key::Alive(id) => {
                place(&mut self.alive, id, read(kv, p, |alive: &AliveRecord| alive.node == id));
            }
            Key::Device(id) => {
                place(&mut self.devices, id, read(kv, p, |device: &DeviceRecord| device.id == id));
            }
            Key::Class(name) => {
                let record = read(kv, p, |class: &ClassRecord| class.name == name);
                place(&mut self.classes, name.to_owned(), record);
            }
            Key::Group(id) => place(&mut self.groups, id, read(kv, p, |r| is_group(r, id))),
            Key::Volume(name) => {
                let record = read(kv, p, |volume: &VolumeRecord| volume.name == name);
                place(&mut self.volumes, name.to_owned(), record);
            }
            Key::Attachments(id) => {
                let record = read(kv, p, |record: &AttachmentsRecord| record.volume == id);
                place(&mut self.attachments, id, record);
            }
            Key::Reservations(id) => place(&mut self.reservations, id, read(kv, p, |r| is_of(r, id))),
            Key::Layer(id) => {
                place(&mut self.layers, id, read(kv, p, |layer: &LayerRecord| layer.id == id));
            }
            Key::Snapshot(volume, name) => {
                let sound = |record: &SnapshotRecord| record.volume == volume && record.name == name;
                let record = read(kv, p, sound);
                place(&mut self.snapshots, (volume, name.to_owned()), record);
            }
            Key::Doubt(node) => {
                place(&mut self.doubts, node.to_owned(), read(kv, p, |_: &DoubtRecord| true));
            }
            Key::Holdings(id) => {
                let record = read(kv, p, |holdings: &HoldingsRecord| holdings.device == id);
                place(&mut self.holdings, id, record);
            }
            Key::Grant(id) => place(&mut self.grants, id, read(kv, p, |_| true)),
            Key::Authority(number) => {
                let record = read(kv, p, |record: &AuthorityRecord| record.number == number);
                place(&mut self.authorities, number, record);
            }
            Key::DataKey(id) => place(&mut self.data_keys, id, read(kv, p, |key| is_key(key, id))),
            Key::Project(name) => {
                place(&mut self.projects, name.to_owned(), read(kv, p, |r: &ProjectRecord| r.name == name));
            }
            Key::Target(name) => {
                place(&mut self.targets, name.to_owned(), read(kv, p, |r: &TargetRecord| r.name == name));
            }
            Key::LayerDropped(layer, device) => {
                let (dropped, pair) = (Arc::make_mut(&mut self.dropped), (layer, device));
                let _known = if kv.is_some() { dropped.insert(pair) } else { dropped.remove(&pair) };
            }
        }
        let name = parsed.to_string();
        self.keep(&name, kv.filter(|kv| kv.lease == 0));
        if let Some(reason) = problem {
            Arc::make_mut(&mut self.problems).insert(name, reason);
        } else if self.problems.contains_key(&name) {
            Arc::make_mut(&mut self.problems).remove(&name);
        }
    }

    /// Keeps a key-value as it is, or not any more.
    fn keep(&mut self, name: &str, kv: Option<&KeyValue>) {
        match kv {
            Some(kv) => drop(Arc::make_mut(&mut self.keys).insert(name.into(), Arc::new(kv.clone()))),
            None if self.keys.contains_key(name) => drop(Arc::make_mut(&mut self.keys).remove(name)),
            None => {}
        }
    }

    /// A key with its value; `None`: it is not there. Of a key that ends with a lease nobody knows which lease.
    #[must_use]
    pub fn key_value(&self, name: &str) -> Option<KeyValue> {
        fn leased<T: serde::Serialize>(name: &str, found: &Versioned<T>) -> KeyValue {
            let (key, value) = (name.into(), encode(&found.record));
            KeyValue { key, value, mod_revision: found.mod_revision, lease: 0 }
        }
        if let Some(kv) = self.keys.get(name) {
            return Some(KeyValue::clone(kv));
        }
        match Key::parse(name.as_bytes())? {
            Key::Alive(node) => self.alive.get(&node).map(|found| leased(name, found)),
            Key::Leader => self.leader.as_ref().map(|found| leased(name, found)),
            _ => None,
        }
    }

    /// The cluster as somebody sees it who has to do with these volumes alone: without other volumes, projects and
    /// grants. What hangs on a volume by its number is found through the volume only, and stays.
    #[must_use]
    pub fn within(self: &Arc<Model>, bounds: &Bounds) -> Arc<Model> {
        let Some(project) = bounds.project() else { return Arc::clone(self) };
        let mut model = Model::clone(self);
        let inside = |(name, _): &(&String, &Arc<_>)| bounds.sees(name);
        let own = |(name, record): (&String, &Arc<_>)| (name.clone(), Arc::clone(record));
        if project != DEFAULT_PROJECT {
            // In the order of names they stand one after the other.
            let from = self.volumes.range(format!("{project}/")..);
            model.volumes = Arc::new(from.take_while(inside).map(own).collect());
        } else if !self.volumes.keys().all(|name| bounds.sees(name)) {
            model.volumes = Arc::new(self.volumes.iter().filter(inside).map(own).collect());
        }
        let targets = self.targets.iter().filter(|(name, _)| bounds.sees(name));
        model.targets = Arc::new(targets.map(|(name, record)| (name.clone(), Arc::clone(record))).collect());
        let projects = self.projects.iter().filter(|(name, _)| bounds.has(name));
        model.projects = Arc::new(projects.map(|(name, record)| (name.clone(), Arc::clone(record))).collect());
        if !self.grants.values().all(|grant| bounds.has(&grant.project)) {
            let grants = self.grants.iter().filter(|(_, grant)| bounds.has(&grant.project));
            model.grants = Arc::new(grants.map(|(id, grant)| (*id, Arc::clone(grant))).collect());
        }
        Arc::new(model)
    }

    /// The target that a volume is a unit of, and its number there.
    #[must_use]
    pub fn unit_of(&self, volume: &str) -> Option<(&str, u16)> {
        self.targets.iter().find_map(|(name, target)| {
            let unit = target.units.iter().find(|(_, unit)| *unit == volume)?;
            Some((name.as_str(), *unit.0))
        })
    }

    /// What is there of a project, counted.
    #[must_use]
    pub fn project_use(&self, project: &str) -> ProjectUse {
        let volumes = self.volumes.values().filter(|volume| project_of(&volume.name) == project);
        volumes.fold(ProjectUse::default(), |sum, volume| {
            let snapshots = self.snapshots_of(volume.id).count() as u64;
            sum.plus(ProjectUse::of(volume)).plus(ProjectUse::of_snapshots(snapshots))
        })
    }

    /// Nodes whose version keeps no projects apart: nobody may have one while there are such.
    #[must_use]
    pub fn ignoring_projects(&self) -> Vec<&str> {
        let nodes = self.nodes.values().filter(|node| !node.removed && !node.understands.contains(PROJECTS));
        nodes.map(|node| node.name.as_str()).collect()
    }

    /// The volume with this id.
    #[must_use]
    pub fn volume_by_id(&self, id: VolumeId) -> Option<&Arc<Versioned<VolumeRecord>>> {
        self.volumes.values().find(|volume| volume.id == id)
    }

    /// What registrants and others may do with a volume: all, while it has no reservation; nothing, when its record
    /// can't be read.
    #[must_use]
    pub fn reservations_view(&self, volume: VolumeId) -> ReservationsView {
        match self.reservations.get(&volume) {
            Some(record) => ReservationsView::of(record),
            None if self.problems.contains_key(&Key::Reservations(volume).to_string()) => ReservationsView::closed(),
            None => ReservationsView::open(),
        }
    }

    /// Nodes whose version passes reservations over: nobody may reserve anything while there are such.
    #[must_use]
    pub fn ignoring_reservations(&self) -> Vec<&str> {
        let nodes = self.nodes.values().filter(|node| !node.removed && !node.understands.contains(RESERVATIONS));
        nodes.map(|node| node.name.as_str()).collect()
    }

    /// Whether every node knows that a host may come through several nodes.
    #[must_use]
    pub fn knows_host_paths(&self) -> bool {
        self.nodes.values().all(|node| node.removed || node.understands.contains(HOST_PATHS))
    }

    /// Whether every node carries out writes that expect something of what they replace.
    #[must_use]
    pub fn knows_compare_and_write(&self) -> bool {
        self.nodes.values().all(|node| node.removed || node.understands.contains(COMPARE_AND_WRITE))
    }

    /// The volumes whose reservations can't be read.
    pub fn unread_reservations(&self) -> impl Iterator<Item = VolumeId> {
        self.problems.keys().filter_map(|key| match Key::parse(key.as_bytes())? {
            Key::Reservations(id) => Some(id),
            _ => None,
        })
    }

    /// A volume's snapshots, by name.
    pub fn snapshots_of(&self, volume: VolumeId) -> impl Iterator<Item = &Arc<Versioned<SnapshotRecord>>> {
        let from = (volume, String::new())..;
        self.snapshots.range(from).take_while(move |((of, _), _)| *of == volume).map(|(_, record)| record)
    }

    /// The placement group that holds a chunk of a volume: round robin over the class's groups from the volume's
    /// offset. `None` when the class is missing or has no groups.
    #[must_use]
    pub fn group_of(&self, volume: &VolumeRecord, chunk: ChunkIndex) -> Option<PgId> {
        let class = self.classes.get(&volume.class)?;
        group_of(&class.groups, volume.group_offset, chunk)
    }

    /// The nodes that have a record, also one that can't be read.
    pub fn recorded_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let unread = self.problems.keys().filter_map(|key| match Key::parse(key.as_bytes())? {
            Key::Node(id) => Some(id),
            _ => None,
        });
        self.nodes.keys().copied().chain(unread)
    }

    /// The cluster's settings, with defaults for what nobody has set.
    #[must_use]
    pub fn settings(&self) -> SettingsRecord {
        self.settings.as_ref().map(|settings| settings.record.clone()).unwrap_or_default()
    }

    /// The groups that need a device: it is to hold a copy of them, or holds one that writes wait for.
    pub fn groups_on(&self, device: DeviceId) -> impl Iterator<Item = &Arc<Versioned<GroupRecord>>> {
        self.groups.values().filter(move |group| group.needs(device))
    }

    /// Whether a device is served: the node that it is attached to is alive, and has not said that the device has
    /// failed.
    #[must_use]
    pub fn is_device_alive(&self, device: DeviceId) -> bool {
        self.devices.get(&device).is_some_and(|device| self.alive.contains_key(&device.node) && device.is_served())
    }
}

/// `groups[(offset + chunk) % n]`; `None` without groups.
#[must_use]
pub fn group_of(groups: &[PgId], offset: u32, chunk: ChunkIndex) -> Option<PgId> {
    let count = groups.len() as u64;
    let index = (u64::from(offset) + u64::from(chunk.0)).checked_rem(count)?;
    groups.get(index as usize).copied()
}

#[cfg(test)]
mod tests;
