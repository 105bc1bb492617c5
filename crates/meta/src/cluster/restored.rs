//! The way on after the configuration was restored from a backup: `azekura cluster restored`
//! (docs/decisions/0019-restored-configuration.md).
//!
//! What the backup lacks is taken from nodes' copies. Then every number that is given out jumps beyond those that may
//! have been given since, every group is closed until all devices have said what they hold of it, and the configuration
//! begins another life, which nodes that have seen the one before believe.

use std::collections::{BTreeMap, BTreeSet};

use azekura_base::DeviceId;
use azekura_model::{
    ClusterRecord, DoubtRecord, EtcdError, HoldingsRecord, Key, LayerRecord, LayerState, MetaError, Model, PREFIX,
    RestoredRecord, Unknown,
};
use serde_json::{Map, Value, json};

use super::{MetaClient, Try, encode, random_uuid};
use crate::client::Txn;
use crate::history::{Changes, Copied, is_lasting};
use crate::time::{now_rfc3339, unix_seconds};

/// Numbers of layers and volumes, epochs, versions of groups and generations of attachments jump to the time, in
/// seconds since 1970, times this. Each takes a transaction of its own, of which no server makes so many a second, so
/// all that were given before are lower: also those given after an earlier restore from the same backup.
pub const NUMBERS_PER_SECOND: u64 = 1 << 20;
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
                let key: &crate::history::CopiedKey = key;
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
    remove_strangers(&mut plan);
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
fn begin_anew(plan: &mut Plan, seconds: u64) {
    let steps = 1 + getrandom::u64().unwrap_or(seconds) % SMALL_STEPS_MAX;
    let Plan { values, doubtful, goes_on, summary, .. } = plan;
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
            _ => {}
        }
    }
    let closed = |(name, value): &(&String, &Value)| {
        matches!(Key::parse(name.as_bytes()), Some(Key::Group(_))) && !value["closed"].is_null()
    };
    summary.groups = values.iter().filter(closed).count();
}

impl MetaClient {
    /// Says that the configuration was restored from a backup: it becomes one that nodes can go on with. To be called
    /// while no node runs. What is interrupted is to be called again, with the same copies.
    pub async fn declare_restored(&self, restoration: &Restoration) -> Result<RestoredSummary, MetaError> {
        let model = self.model();
        if !model.alive.is_empty() {
            let name = |id| model.nodes.get(id).map_or_else(|| id.to_string(), |node| node.name.clone());
            let nodes: Vec<String> = model.alive.keys().map(name).collect();
            return Err(MetaError::NodesRunning { nodes: nodes.join(", ") });
        }
        let mut plan = merge(&model, &restoration.copies)?;
        begin_anew(&mut plan, unix_seconds());
        let cluster_key = Key::Cluster.to_string();
        let record = plan.values.remove(&cluster_key);
        let record = record.ok_or_else(|| MetaError::NothingRestored { reason: "there is no cluster".to_owned() })?;
        let broken =
            |error: serde_json::Error| MetaError::Broken { key: cluster_key.clone(), reason: error.to_string() };
        let mut cluster: ClusterRecord = serde_json::from_value(record).map_err(broken)?;
        let before = model.cluster.as_ref();
        let under_way = before.filter(|before| before.restored.as_ref().is_some_and(|restored| restored.under_way));
        let lives = before.into_iter().flat_map(|before| before.former_lives.iter().chain([&before.life]));
        let lives = lives.chain([&cluster.life]).chain(&plan.lives).cloned();
        let lives: Vec<String> = lives.filter(|life| !life.is_empty()).collect();
        cluster.former_lives.extend(lives);
        cluster.life = under_way.map_or_else(random_uuid, |before| before.life.clone());
        let mut named = BTreeSet::from([cluster.life.clone()]);
        cluster.former_lives.retain(|life| named.insert(life.clone()));
        let mut restored = RestoredRecord { at: now_rfc3339(), under_way: true, without: restoration.without.clone() };
        cluster.restored = Some(restored.clone());
        let mut guard = before.map_or(0, |before| before.mod_revision);
        // The first transaction keeps nodes from starting, and raises the numbers unless an earlier one has.
        let is_counter = |name: &str| matches!(Key::parse(name.as_bytes()), Some(Key::Counter(_)));
        let (counters, records): (Vec<_>, Vec<_>) = plan.values.iter().partition(|(name, _)| is_counter(name));
        let mut first = Txn::new().when_unchanged(&cluster_key, guard).put(&cluster_key, encode(&cluster));
        for (name, value) in counters.into_iter().filter(|_| under_way.is_none()) {
            first = first.put(name, encode(value));
        }
        guard = self.write(first).await?;
        let gone = model.keys.keys().filter(|name| is_lasting(name) && ***name != *cluster_key);
        let gone: Vec<&str> = gone.map(|name| &**name).filter(|name| !plan.values.contains_key(*name)).collect();
        for names in gone.chunks(RECORDS_PER_TXN) {
            let txn = Txn::new().when_unchanged(&cluster_key, guard);
            self.write(names.iter().fold(txn, |txn, name| txn.delete(name))).await?;
        }
        for records in records.chunks(RECORDS_PER_TXN) {
            let txn = Txn::new().when_unchanged(&cluster_key, guard);
            self.write(records.iter().fold(txn, |txn, (name, value)| txn.put(name, encode(value)))).await?;
        }
        restored.under_way = false;
        cluster.restored = Some(restored);
        let last = Txn::new().when_unchanged(&cluster_key, guard).put(&cluster_key, encode(&cluster));
        let (doubts, holdings) = (format!("{PREFIX}doubts/"), format!("{PREFIX}holdings/"));
        self.write(last.delete_prefix(&doubts).delete_prefix(&holdings)).await?;
        Ok(RestoredSummary { life: cluster.life, ..plan.summary })
    }

    /// Writes; gives the revision.
    async fn write(&self, txn: Txn) -> Result<i64, MetaError> {
        let answer = self.inner.etcd.txn(txn).await?;
        if !answer.succeeded {
            let reason = "somebody else changes the configuration at the same time".to_owned();
            return Err(EtcdError::Uncertain { endpoint: self.endpoints(), reason }.into());
        }
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    /// Says that nobody is to wait for these devices before groups open.
    pub async fn open_without(&self, devices: &BTreeSet<DeviceId>) -> Result<(), MetaError> {
        self.change_cluster(|cluster| {
            if let Some(restored) = &mut cluster.restored {
                restored.without.extend(devices);
            }
        })
        .await
    }

    /// Notes that all groups are open again.
    pub async fn end_restoration(&self) -> Result<(), MetaError> {
        self.change_cluster(|cluster| cluster.restored = None).await
    }

    async fn change_cluster(&self, change: impl Fn(&mut ClusterRecord) + Send + Sync) -> Result<(), MetaError> {
        let change = &change;
        self.settle("changing the cluster's record", |Try { deadline, .. }| async move {
            let [found] = self.get_all([&Key::Cluster], deadline).await?;
            let missing = || MetaError::Broken { key: found.key.clone(), reason: "it is not there".to_owned() };
            let mut cluster: ClusterRecord = found.record()?.ok_or_else(missing)?;
            change(&mut cluster);
            let txn = Txn::new().when_unchanged(&found.key, found.mod_revision()).put(&found.key, encode(&cluster));
            self.commit(txn, ()).await
        })
        .await
    }

    /// Tells all nodes that the configuration went back; `node` is the identity of the data folder that shows it.
    pub async fn doubt(&self, node: &str, doubt: &DoubtRecord) -> Result<(), MetaError> {
        self.inner.etcd.txn(Txn::new().put(&Key::Doubt(node).to_string(), encode(doubt))).await?;
        Ok(())
    }

    /// Says what a device holds.
    pub async fn tell_holdings(&self, holdings: &HoldingsRecord) -> Result<(), MetaError> {
        let key = Key::Holdings(holdings.device).to_string();
        self.inner.etcd.txn(Txn::new().put(&key, encode(holdings))).await?;
        Ok(())
    }

    /// Enters a layer that devices hold and the configuration does not know, with what it lies on. It stays until
    /// somebody removes its record.
    pub async fn adopt_layer(&self, layer: LayerRecord) -> Result<(), MetaError> {
        let key = Key::Layer(layer.id).to_string();
        let record = LayerRecord { state: LayerState::Frozen, unknown: Unknown::default(), ..layer };
        // If somebody was faster, it is there.
        self.inner.etcd.txn(Txn::new().when_absent(&key).put(&key, encode(&record))).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::KeyValue;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn numbers_jump_beyond_those_given_after_an_earlier_restore_of_the_same_backup() {
        let first = beyond(7, NOW);
        // A minute of a million a second.
        assert!(beyond(7, NOW + 60) > first + 60_000_000);
        assert!(beyond(first + 60_000_000, NOW + 60) > first + 60_000_000);
        assert_eq!(beyond(first, 0), first + CLOCK_BEHIND_STEP, "the clock is wrong");
    }

    fn kv(key: &str, value: &Value, mod_revision: i64) -> KeyValue {
        let key = format!("{PREFIX}{key}").into_bytes();
        KeyValue { key, value: value.to_string().into_bytes(), mod_revision, ..KeyValue::default() }
    }

    fn cluster(life: &str) -> Value {
        json!({ "id": "0".repeat(32), "name": "x", "created": "t", "life": life })
    }

    fn volume(id: u64, name: &str, head: u64) -> Value {
        json!({ "id": id, "uuid": "u", "name": name, "size_bytes": 4096, "class": "c", "head": head, "group_offset": 0,
                "created": "t" })
    }

    fn layer(id: u64, volume: u64) -> Value {
        json!({ "id": id, "volume": volume, "state": "head" })
    }

    fn group(version: u64, epoch: u64) -> Value {
        json!({ "id": 1, "class": "c", "version": version, "epoch": epoch, "primary": 1, "reign": 4, "in_sync": [1],
                "members": [1, 2] })
    }

    /// As it was in revision 10.
    fn backup(more: &[KeyValue]) -> Model {
        let mut kvs = vec![
            kv("cluster", &cluster("a"), 2),
            kv("counters/layers", &json!(2), 8),
            kv("volumes/v", &volume(1, "v", 1), 8),
            kv("layers/1", &layer(1, 1), 8),
            kv("groups/1", &group(5, 3), 9),
        ];
        kvs.extend(more.iter().cloned());
        Model::from_keys(&kvs, 10)
    }

    /// As a node has seen it in revision 20: the group has changed, and there is another volume.
    fn copied() -> Copied {
        let kvs = [
            kv("cluster", &cluster("a"), 2),
            kv("counters/layers", &json!(3), 15),
            kv("volumes/v", &volume(1, "v", 1), 8),
            kv("layers/1", &layer(1, 1), 8),
            kv("volumes/w", &volume(2, "w", 2), 15),
            kv("layers/2", &layer(2, 2), 15),
            kv("groups/1", &group(7, 4), 20),
        ];
        Copied::of(&Model::from_keys(&kvs, 20)).unwrap()
    }

    fn value<'a>(plan: &'a Plan, key: &str) -> &'a Value {
        &plan.values[&format!("{PREFIX}{key}")]
    }

    #[test]
    fn what_the_backup_lacks_comes_from_a_copy() {
        let mut plan = merge(&backup(&[]), &[copied()]).unwrap();
        begin_anew(&mut plan, NOW);
        assert_eq!(plan.summary.copy_revision, Some(20));
        assert_eq!(value(&plan, "volumes/w")["head"], json!(2));
        assert_eq!(*value(&plan, "counters/layers"), json!(NOW << 20));
        let group = value(&plan, "groups/1");
        assert_eq!((&group["epoch"], &group["version"]), (&json!(NOW << 20), &json!(NOW << 20)));
        assert_eq!((&group["reign"], plan.summary.groups), (&json!(0), 1));
    }

    #[test]
    fn an_older_copy_adds_nothing() {
        let older = Copied { revision: 9, ..Copied::of(&backup(&[])).unwrap() };
        let plan = merge(&backup(&[kv("volumes/new", &volume(2, "new", 3), 10)]), &[older]).unwrap();
        assert_eq!(plan.summary.copy_revision, None);
        assert!(plan.values.contains_key("/azekura/v1/volumes/new"));
    }

    #[test]
    fn what_may_have_been_made_after_the_restore_stays_unless_its_numbers_are_taken() {
        let made = [
            kv("volumes/x", &volume(9, "x", 9), 12),
            kv("layers/9", &layer(9, 9), 12),
            kv("volumes/y", &volume(2, "y", 2), 13),
        ];
        let mut model = backup(&made);
        model.revision = 30;
        let strange = volume(8, "strange", 2);
        let model = Model::from_keys(
            &model
                .keys
                .values()
                .map(|kv| KeyValue::clone(kv))
                .chain([kv("volumes/s", &strange, 14)])
                .collect::<Vec<_>>(),
            30,
        );
        let plan = merge(&model, &[copied()]).unwrap();
        assert!(plan.summary.kept.contains(&"/azekura/v1/volumes/x".to_owned()));
        assert_eq!(plan.summary.removed, ["/azekura/v1/volumes/s"]);
    }

    #[test]
    fn groups_that_the_backup_may_have_opened_are_doubtful() {
        let mut plan = merge(&backup(&[kv("groups/1", &group(8, 4), 19)]), &[copied()]).unwrap();
        begin_anew(&mut plan, NOW);
        assert_eq!(value(&plan, "groups/1")["closed"]["one_history"], json!(false));
        let mut alone = merge(&backup(&[]), &[]).unwrap();
        begin_anew(&mut alone, NOW);
        assert_eq!(value(&alone, "groups/1")["closed"]["one_history"], json!(false), "nothing is known without a copy");
    }

    #[test]
    fn an_empty_server_is_filled_from_a_copy() {
        let plan = merge(&Model::from_keys(&[], 1), &[copied()]).unwrap();
        assert_eq!(plan.values.len(), 7);
        assert!(matches!(merge(&Model::from_keys(&[], 1), &[]), Err(MetaError::NothingRestored { .. })));
    }
}
