//! The way on after the configuration was restored from a backup: `azekura cluster restored`
//! (docs/decisions/0019-restored-configuration.md).
//!
//! What the backup lacks is taken from nodes' copies. Then every number that is given out jumps beyond those that may
//! have been given since, every group is closed until all devices have said what they hold of it, and the configuration
//! begins another life, which nodes that have seen the one before believe.

use std::collections::{BTreeMap, BTreeSet};

use azekura_base::{DeviceId, VolumeId};
use serde_json::{Map, Value, json};

use super::projects::recount;
use crate::history::{Changes, Copied, CopiedKey, is_lasting};
use crate::{
    AttachmentsRecord, ClusterRecord, Condition, DoubtRecord, HoldingsRecord, Key, LayerRecord, LayerState, MetaError,
    Model, Outcome, PREFIX, Records, RestoredRecord, Step, Txn, Unknown, Versioned,
};

/// Numbers of layers and volumes, epochs, versions of groups and generations of attachments jump to the time, in
/// seconds since 1970, times this. Each takes a transaction of its own, of which no server makes so many a second, so
/// all that were given before are lower: also those given after an earlier restore from the same backup.
const NUMBERS_PER_SECOND: u64 = 1 << 20;
/// What such numbers jump by when the clock is behind them.
const CLOCK_BEHIND_STEP: u64 = 1 << 40;
/// What numbers of devices and groups jump by, times a random number up to [`SMALL_STEPS_MAX`]: more than a cluster
/// has.
const SMALL_COUNTER_STEP: u64 = 1 << 16;
/// What numbers of nodes jump by, times such a number: sessions of gateways are told apart by 16 bits of them.
const NODE_COUNTER_STEP: u64 = 1 << 9;
/// Restores from the same backup, without any node's copy, are to differ.
const SMALL_STEPS_MAX: u64 = 16;
/// Records written by one transaction; etcd takes 128 operations.
const RECORDS_PER_TXN: usize = 100;

/// What somebody knows who says that the configuration was restored.
#[derive(Clone, Debug, Default)]
pub struct Restoration {
    /// Nodes' copies of the configuration.
    pub copies: Vec<Copied>,
    /// Devices that nobody is to wait for.
    pub without: BTreeSet<DeviceId>,
}

/// What has become of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoredSummary {
    /// The life that begins.
    pub life: String,
    /// The revision that was found.
    pub revision: i64,
    /// The revision of the copy that was taken in; `None`: none had more than the backup.
    pub copy_revision: Option<i64>,
    /// Groups that open when all devices have spoken.
    pub groups: usize,
    /// Keys that only the backup has and that may have been deleted since: they stay.
    pub kept: Vec<String>,
    /// Volumes that were made with numbers that others have: they are removed.
    pub removed: Vec<String>,
    /// What nodes have seen that have refused this configuration: names and revisions.
    pub seen: Vec<(String, i64)>,
}

/// What a restore takes from outside of the configuration.
#[derive(Clone, Debug, Default)]
pub struct RestoreMoment {
    /// Seconds since 1970.
    pub seconds: u64,
    /// The same, RFC 3339.
    pub now: String,
    /// The life that begins: 128 random bits.
    pub life: String,
    /// 64 random bits.
    pub random: u64,
}

/// A restore that has been thought out: changes, to be executed one after the other.
#[derive(Clone, Debug)]
pub struct Restore {
    first: Txn,
    changes: Vec<Txn>,
    last: Txn,
    /// What has become of the configuration then.
    pub summary: RestoredSummary,
}

/// The configuration as it is to be.
struct Plan {
    /// The value of each lasting key, without those of the cluster itself.
    values: BTreeMap<String, Value>,
    /// Groups that the older configuration may have opened.
    doubtful: BTreeSet<String>,
    /// An earlier run was interrupted: groups that it has closed are as they are to be.
    goes_on: bool,
    summary: RestoredSummary,
    lives: BTreeSet<String>,
}

/// Puts together what the backup and the nodes' copies have.
fn merge(model: &Model, copies: &[Copied]) -> Result<Plan, MetaError> {
    let nothing = |reason: String| MetaError::NothingRestored { reason };
    let newest = copies.iter().max_by_key(|copy| copy.revision);
    let id = model.cluster.as_ref().map(|cluster| cluster.id.as_str()).or(newest.map(|copy| copy.cluster.as_str()));
    let id = id.ok_or_else(|| nothing("the configuration server is empty, and no copy is given".to_owned()))?;
    if let Some(other) = copies.iter().find(|copy| copy.cluster != id) {
        return Err(MetaError::WrongCluster { expected: other.cluster.clone(), found: id.to_owned() });
    }
    let found: BTreeMap<&str, (i64, Value)> = model
        .keys
        .iter()
        .filter(|(name, _)| is_lasting(name))
        .filter_map(|(name, kv)| Some((&**name, (kv.mod_revision, serde_json::from_slice(&kv.value).ok()?))))
        .collect();
    let changes = Changes::of(model);
    // A copy that the configuration continues has nothing that the configuration lacks.
    let beyond = newest.filter(|copy| model.cluster.is_none() || copy.changes().contradiction(&changes).is_some());
    let lives =
        copies.iter().map(|copy| copy.life.clone()).chain(model.doubts.values().map(|doubt| doubt.life.clone()));
    let mut plan = Plan {
        values: BTreeMap::new(),
        doubtful: BTreeSet::new(),
        goes_on: model.cluster.as_ref().and_then(|c| c.restored.as_ref()).is_some_and(|restored| restored.under_way),
        summary: RestoredSummary { revision: model.revision, ..RestoredSummary::default() },
        lives: lives.collect(),
    };
    plan.summary.seen = model.doubts.values().map(|doubt| (doubt.node.clone(), doubt.revision)).collect();
    match beyond {
        None => {
            let known = newest.map_or(0, |copy| copy.revision);
            for (name, (revision, value)) in found {
                if revision > known {
                    plan.doubtful.insert(name.to_owned());
                }
                plan.values.insert(name.to_owned(), value);
            }
        }
        Some(copy) => {
            plan.summary.copy_revision = Some(copy.revision);
            // Up to here both have one history.
            let same = |(name, key): (&String, &_)| {
                let key: &CopiedKey = key;
                found
                    .get(name.as_str())
                    .filter(|(revision, _)| *revision == key.revision)
                    .map(|(revision, _)| *revision)
            };
            let common = copy.keys.iter().filter_map(same).max().unwrap_or(0);
            for (name, key) in &copy.keys {
                let mut value = key.value.clone();
                match found.get(name.as_str()) {
                    Some((_, before)) if plan.goes_on && !before["closed"].is_null() => value = before.clone(),
                    Some((revision, before)) => {
                        if *revision > common {
                            plan.doubtful.insert(name.clone());
                        }
                        keep_highest(&mut value, before);
                    }
                    None => {}
                }
                plan.values.insert(name.clone(), value);
            }
            for (name, (revision, value)) in found {
                if revision > common && !plan.values.contains_key(name) {
                    plan.summary.kept.push(name.to_owned());
                    plan.doubtful.insert(name.to_owned());
                    plan.values.insert(name.to_owned(), value);
                }
            }
        }
    }
    end_grants_of_the_backup(&mut plan, newest, beyond);
    remove_strangers(&mut plan);
    remove_layers_of_no_cut(&mut plan);
    recount(&mut plan.values);
    Ok(plan)
}

/// Of two values of a counter, or of a field that only rises, the higher one counts.
fn keep_highest(value: &mut Value, other: &Value) {
    if let (Some(one), Some(other)) = (value.as_u64(), other.as_u64()) {
        *value = json!(one.max(other));
    }
    let Some(record) = value.as_object_mut() else { return };
    for field in ["incarnation", "epoch", "version", "generation"] {
        if let (Some(one), Some(other)) = (record.get(field).and_then(Value::as_u64), other[field].as_u64()) {
            record.insert(field.to_owned(), json!(one.max(other)));
        }
    }
}

/// Ends the grants that only the backup has: they may have been revoked since. Without any copy nobody knows which, so
/// all of them end.
fn end_grants_of_the_backup(plan: &mut Plan, newest: Option<&Copied>, beyond: Option<&Copied>) {
    let ended = |name: &str| {
        let is_grant = matches!(Key::parse(name.as_bytes()), Some(Key::Grant(_)));
        is_grant && (newest.is_none() || beyond.is_some_and(|copy| !copy.keys.contains_key(name)))
    };
    plan.values.retain(|name, _| !ended(name));
    plan.summary.kept.retain(|name| !ended(name));
}

/// Removes volumes whose head is another volume's layer: both were given the same number.
fn remove_strangers(plan: &mut Plan) {
    let Plan { values, summary, .. } = plan;
    let volumes = format!("{PREFIX}volumes/");
    let is_stranger = |name: &str| {
        let volume = &values[name];
        let head = &values.get(&format!("{PREFIX}layers/{}", volume["head"])).unwrap_or(&Value::Null)["volume"];
        name.starts_with(&volumes) && !head.is_null() && *head != volume["id"]
    };
    summary.removed = values.keys().filter(|name| is_stranger(name)).cloned().collect();
    summary.removed.iter().for_each(|name| drop(values.remove(name)));
}

/// Removes layers that were to be heads when a cut is done, where no volume names that cut: the volume is as another
/// copy has it. Nobody would remove such a layer later. If devices hold blocks of it, they say so, and it is a layer
/// again ([`adopt_layer`]).
fn remove_layers_of_no_cut(plan: &mut Plan) {
    let Plan { values, summary, .. } = plan;
    let volumes = format!("{PREFIX}volumes/");
    let volumes = values.iter().filter(|(name, _)| name.starts_with(&volumes));
    let named = volumes.flat_map(|(_, volume)| [&volume["head"], &volume["cut"]["next"]]).filter_map(Value::as_u64);
    let named: BTreeSet<u64> = named.collect();
    let next = json!(LayerState::Next);
    values.retain(|name, layer| match Key::parse(name.as_bytes()) {
        Some(Key::Layer(id)) => layer["state"] != next || named.contains(&id.0),
        _ => true,
    });
    summary.kept.retain(|name| values.contains_key(name));
}

/// A number beyond all that were given before this time, seconds since 1970.
fn beyond(number: u64, seconds: u64) -> u64 {
    let by_time = seconds.saturating_mul(NUMBERS_PER_SECOND);
    if by_time > number { by_time } else { number.saturating_add(CLOCK_BEHIND_STEP) }
}

/// Raises a number of a record.
fn raise(record: &mut Map<String, Value>, field: &str, seconds: u64) {
    let raised = beyond(record.get(field).and_then(Value::as_u64).unwrap_or(0), seconds);
    record.insert(field.to_owned(), json!(raised));
}

/// Raises what must not be the same as before, and closes groups.
fn begin_anew(plan: &mut Plan, seconds: u64, random: u64) {
    let steps = 1 + random % SMALL_STEPS_MAX;
    let Plan { values, doubtful, goes_on, summary, .. } = plan;
    // A volume that was attached for the first time after the backup has given generations out, too.
    let is_volume = |name: &str| matches!(Key::parse(name.as_bytes()), Some(Key::Volume(_)));
    let volumes = values.iter().filter(|(name, _)| is_volume(name)).filter_map(|(_, volume)| volume["id"].as_u64());
    let volumes: Vec<AttachmentsRecord> = volumes.map(|id| AttachmentsRecord::none(VolumeId(id))).collect();
    for none in volumes {
        values.entry(Key::Attachments(none.volume).to_string()).or_insert_with(|| json!(none));
    }
    for (name, value) in values.iter_mut() {
        match (Key::parse(name.as_bytes()), &mut *value) {
            (Some(Key::Counter(counter)), Value::Number(next)) => {
                let next = next.as_u64().unwrap_or(1);
                *value = json!(match counter {
                    "nodes" => next.saturating_add(steps * NODE_COUNTER_STEP),
                    "devices" | "groups" => next.saturating_add(steps * SMALL_COUNTER_STEP),
                    _ => beyond(next, seconds),
                });
            }
            (Some(Key::Group(_)), Value::Object(group)) if !(*goes_on && group.contains_key("closed")) => {
                raise(group, "version", seconds);
                raise(group, "epoch", seconds);
                group.insert("reign".to_owned(), json!(0));
                group.insert("closed".to_owned(), json!({ "one_history": !doubtful.contains(name) }));
            }
            (Some(Key::Attachments(_)), Value::Object(record)) => {
                raise(record, "generation", seconds);
                record.insert("attachments".to_owned(), json!([]));
                record.insert("fence_due".to_owned(), json!(false));
            }
            // All attachments have ended, and with them what was to be fenced. Gateways know changes by number.
            (Some(Key::Reservations(_)), Value::Object(record)) => {
                raise(record, "number", seconds);
                record.insert("changes".to_owned(), json!([]));
                record.insert("fence_due".to_owned(), json!(0));
                record.remove("heeding");
            }
            _ => {}
        }
    }
    let closed = |(name, value): &(&String, &Value)| {
        matches!(Key::parse(name.as_bytes()), Some(Key::Group(_))) && !value["closed"].is_null()
    };
    summary.groups = values.iter().filter(closed).count();
}

/// The cluster's record in the life that begins, and which lives it follows.
fn next_life(
    before: Option<&Versioned<ClusterRecord>>,
    mut cluster: ClusterRecord,
    seen: &BTreeSet<String>,
    life: &str,
) -> ClusterRecord {
    let lives = before.into_iter().flat_map(|before| before.former_lives.iter().chain([&before.life]));
    let lives = lives.chain([&cluster.life]).chain(seen).cloned();
    let lives: Vec<String> = lives.filter(|life| !life.is_empty()).collect();
    cluster.former_lives.extend(lives);
    cluster.life = life.to_owned();
    let mut named = BTreeSet::from([cluster.life.clone()]);
    cluster.former_lives.retain(|life| named.insert(life.clone()));
    // What devices have by now, an older configuration may not have required yet.
    cluster.requires.extend(before.into_iter().flat_map(|before| before.requires.iter().cloned()));
    cluster
}

/// Thinks out how the configuration that was restored from a backup becomes one that nodes can go on with. While no
/// node runs. What is interrupted is to be begun again, with the same copies.
///
/// # Errors
/// When nodes run, there is nothing to go on with, or a copy is of another cluster.
pub fn plan_restore(model: &Model, restoration: &Restoration, moment: &RestoreMoment) -> Result<Restore, MetaError> {
    if !model.alive.is_empty() {
        let name = |id| model.nodes.get(id).map_or_else(|| id.to_string(), |node| node.name.clone());
        let nodes: Vec<String> = model.alive.keys().map(name).collect();
        return Err(MetaError::NodesRunning { nodes: nodes.join(", ") });
    }
    let mut plan = merge(model, &restoration.copies)?;
    begin_anew(&mut plan, moment.seconds, moment.random);
    let cluster_key = Key::Cluster.to_string();
    let record = plan.values.remove(&cluster_key);
    let record = record.ok_or_else(|| MetaError::NothingRestored { reason: "there is no cluster".to_owned() })?;
    let broken = |error: serde_json::Error| MetaError::Broken { key: cluster_key.clone(), reason: error.to_string() };
    let cluster: ClusterRecord = serde_json::from_value(record).map_err(broken)?;
    let before = model.cluster.as_deref();
    let under_way = before.filter(|before| before.restored.as_ref().is_some_and(|restored| restored.under_way));
    let life = under_way.map_or(&moment.life, |before| &before.life);
    let cluster = next_life(before, cluster, &plan.lives, life);
    let restored = RestoredRecord { at: moment.now.clone(), under_way: true, without: restoration.without.clone() };
    // The first change keeps nodes from starting, and raises the numbers unless an earlier one has.
    let is_counter = |name: &str| matches!(Key::parse(name.as_bytes()), Some(Key::Counter(_)));
    let (counters, records): (Vec<_>, Vec<_>) = plan.values.iter().partition(|(name, _)| is_counter(name));
    let begun = ClusterRecord { restored: Some(restored.clone()), ..cluster.clone() };
    let as_before = before.map_or(Condition::Absent, |before| Condition::Unchanged(before.mod_revision));
    let mut first = Txn::new().when(&cluster_key, as_before).put(&cluster_key, &begun);
    for (name, value) in counters.into_iter().filter(|_| under_way.is_none()) {
        first = first.put(name, value);
    }
    let gone = model.keys.keys().filter(|name| is_lasting(name) && ***name != *cluster_key);
    let gone: Vec<&str> = gone.map(|name| &**name).filter(|name| !plan.values.contains_key(*name)).collect();
    let gone = gone.chunks(RECORDS_PER_TXN).map(|names| names.iter().fold(Txn::new(), |txn, name| txn.delete(name)));
    let records = records.chunks(RECORDS_PER_TXN);
    let records = records.map(|part| part.iter().fold(Txn::new(), |txn, (name, value)| txn.put(name, value)));
    let ended = ClusterRecord { restored: Some(RestoredRecord { under_way: false, ..restored }), ..cluster };
    let (doubts, holdings) = (format!("{PREFIX}doubts/"), format!("{PREFIX}holdings/"));
    let last = Txn::new().put(&cluster_key, &ended).delete_prefix(&doubts).delete_prefix(&holdings);
    let summary = RestoredSummary { life: ended.life, ..plan.summary };
    Ok(Restore { first, changes: gone.chain(records).collect(), last, summary })
}

impl Restore {
    /// The first change.
    pub fn first(&self) -> &Txn {
        &self.first
    }

    /// The others, each only while the first one, of this revision, is the last change of the cluster's record.
    pub fn rest(&self, guard: i64) -> impl Iterator<Item = Txn> {
        let cluster = Key::Cluster.to_string();
        let all = self.changes.iter().chain([&self.last]).cloned();
        all.map(move |txn| txn.when_unchanged(&cluster, guard))
    }
}

/// Says that nobody is to wait for these devices before groups open.
///
/// # Errors
/// When the cluster's record can't be read.
pub fn open_without(records: &Records<'_>, devices: &BTreeSet<DeviceId>) -> Outcome<()> {
    change_cluster(records, |cluster| {
        if let Some(restored) = &mut cluster.restored {
            restored.without.extend(devices);
        }
    })
}

/// Notes that all groups are open again.
///
/// # Errors
/// When the cluster's record can't be read.
pub fn end_restoration(records: &Records<'_>) -> Outcome<()> {
    change_cluster(records, |cluster| cluster.restored = None)
}

fn change_cluster(records: &Records<'_>, change: impl FnOnce(&mut ClusterRecord)) -> Outcome<()> {
    let found = records.find(&Key::Cluster)?;
    let missing = || MetaError::Broken { key: found.key.clone(), reason: "it is not there".to_owned() };
    let mut cluster: ClusterRecord = found.record()?.ok_or_else(missing)?;
    change(&mut cluster);
    Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, &cluster), ()))
}

/// Tells all nodes that the configuration went back; `node` is the identity of the data folder that shows it.
pub fn doubt(node: &str, doubt: &DoubtRecord) -> Txn {
    Txn::new().put(&Key::Doubt(node).to_string(), doubt)
}

/// Says what a device holds.
pub fn tell_holdings(holdings: &HoldingsRecord) -> Txn {
    Txn::new().put(&Key::Holdings(holdings.device).to_string(), holdings)
}

/// Enters a layer that devices hold and the configuration does not know, with what it lies on. It stays until somebody
/// removes its record. If somebody was faster, it is there.
pub fn adopt_layer(layer: LayerRecord) -> Txn {
    let key = Key::Layer(layer.id).to_string();
    let record = LayerRecord { state: LayerState::Frozen, unknown: Unknown::default(), ..layer };
    Txn::new().when_absent(&key).put(&key, &record)
}

#[cfg(test)]
#[path = "restored_tests.rs"]
mod tests;
