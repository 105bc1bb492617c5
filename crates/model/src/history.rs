//! Whether the configuration is a continuation of what a node has seen, or went back.
//!
//! A configuration server that was restored from a backup looks like any other. Its revisions go on from the backup's,
//! so that after a while it has the same revisions as before, of other changes. What shows it is what a node remembers:
//! the highest revision, and for each key the revision of its last change. Whatever was not changed since must still be
//! of that revision (docs/decisions/0019-restored-configuration.md).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Key, MetaError, Model};

/// Version of [`Seen`] and [`Copied`] as files.
pub const FORMAT: u32 = 1;

/// What a node must not forget of the configuration: written durably before the node acts on a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// [`FORMAT`].
    pub version: u32,
    /// The cluster.
    pub cluster: String,
    /// The life of the configuration.
    pub life: String,
    /// The highest revision.
    pub revision: i64,
    /// The incarnation under which the node is registered.
    pub incarnation: u64,
}

/// A key and its value, as of the copy's revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiedKey {
    /// Revision of its last change.
    pub revision: i64,
    /// Its record.
    pub value: Value,
}

/// A node's own copy of the configuration. It may be some seconds older than what the node has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Copied {
    /// [`FORMAT`].
    pub version: u32,
    /// The cluster.
    pub cluster: String,
    /// The life of the configuration.
    pub life: String,
    /// Every change up to here is in it.
    pub revision: i64,
    /// All keys but those that end with a lease.
    pub keys: BTreeMap<String, CopiedKey>,
}

impl Copied {
    /// The copy of `model`; `None` before there is a cluster.
    #[must_use]
    pub fn of(model: &Model) -> Option<Copied> {
        let cluster = model.cluster.as_ref()?;
        let keys = model.keys.iter().filter(|(name, _)| is_lasting(name)).filter_map(|(name, kv)| {
            // What is no JSON is of no use to anybody; the model tells people of it.
            let value = serde_json::from_slice(&kv.value).ok()?;
            Some((name.to_string(), CopiedKey { revision: kv.mod_revision, value }))
        });
        Some(Copied {
            version: FORMAT,
            cluster: cluster.id.clone(),
            life: cluster.life.clone(),
            revision: model.revision,
            keys: keys.collect(),
        })
    }

    /// When each key was last changed.
    #[must_use]
    pub fn changes(&self) -> Changes<'_> {
        let keys = self.keys.iter().map(|(name, key)| (name.as_str(), key.revision));
        Changes { revision: self.revision, keys: keys.collect() }
    }
}

/// Whether a key belongs to the configuration itself, and not to the way back to it.
#[must_use]
pub fn is_lasting(name: &str) -> bool {
    !matches!(Key::parse(name.as_bytes()), None | Some(Key::Doubt(_) | Key::Holdings(_)))
}

/// When each key was last changed, up to a revision.
#[derive(Clone, Debug, Default)]
pub struct Changes<'a> {
    /// Every change up to here is in it.
    pub revision: i64,
    /// The last change of each.
    pub keys: BTreeMap<&'a str, i64>,
}

impl<'a> Changes<'a> {
    /// Those of a model.
    #[must_use]
    pub fn of(model: &'a Model) -> Changes<'a> {
        let lasting = model.keys.iter().filter(|(name, _)| is_lasting(name));
        Changes { revision: model.revision, keys: lasting.map(|(name, kv)| (&**name, kv.mod_revision)).collect() }
    }

    /// What shows that `later` does not continue these; `None`: nothing does.
    #[must_use]
    pub fn contradiction(&self, later: &Changes<'_>) -> Option<String> {
        if later.revision < self.revision {
            return Some(format!("it is of revision {}, and revision {} was seen", later.revision, self.revision));
        }
        later.keys.iter().find_map(|(name, revision)| match self.keys.get(name) {
            Some(before) if before == revision => None,
            _ if *revision > self.revision => None,
            Some(before) => {
                Some(format!("{name} was last changed in revision {revision}, and a change in {before} was seen"))
            }
            None => Some(format!("{name} is of revision {revision}, and was not there in revision {}", self.revision)),
        })
    }
}

/// Whether a node that has `seen` so much may believe `model`. `changes` is what it knows of single keys, which may be
/// of an earlier revision; `node` is the identity of its data folder.
///
/// # Errors
/// Says what is wrong with the configuration, and by [`MetaError::hint`] what to do.
pub fn check(seen: &Seen, changes: Option<&Changes<'_>>, model: &Model, node: &str) -> Result<(), MetaError> {
    let Some(cluster) = &model.cluster else {
        return Err(MetaError::ClusterMissing { expected: seen.cluster.clone() });
    };
    if cluster.id != seen.cluster {
        return Err(MetaError::WrongCluster { expected: seen.cluster.clone(), found: cluster.id.clone() });
    }
    if cluster.restored.as_ref().is_some_and(|restored| restored.under_way) {
        return Err(MetaError::RestoreUnderWay);
    }
    // What was noted before configurations had lives names none.
    let same_life = cluster.life == seen.life || seen.life.is_empty() && cluster.former_lives.is_empty();
    if same_life && let Some(reason) = contradiction(seen, changes, model, node) {
        return Err(MetaError::WentBack { reason });
    }
    if !same_life && !seen.life.is_empty() && !cluster.former_lives.contains(&seen.life) {
        let reason = format!("its life is {}, which does not follow {}, which was seen", cluster.life, seen.life);
        return Err(MetaError::WentBack { reason });
    }
    match model.doubts.iter().find(|(doubter, _)| *doubter != node) {
        Some((_, doubt)) => Err(MetaError::Doubted { node: doubt.node.clone(), reason: doubt.reason.clone() }),
        None if model.doubts.is_empty() => Ok(()),
        None => Err(MetaError::WentBack { reason: "this node has found so before".to_owned() }),
    }
}

fn contradiction(seen: &Seen, changes: Option<&Changes<'_>>, model: &Model, node: &str) -> Option<String> {
    if model.revision < seen.revision {
        return Some(format!("it is of revision {}, and revision {} was seen", model.revision, seen.revision));
    }
    let registered = model.nodes.values().find(|record| record.uuid == node).map_or(0, |record| record.incarnation);
    if registered < seen.incarnation {
        return Some(format!(
            "it counts {registered} starts of this node, and start {} was noted in it",
            seen.incarnation
        ));
    }
    changes?.contradiction(&Changes::of(model))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyValue;

    const LIFE: &str = "a1";

    fn kv(key: &str, value: &str, mod_revision: i64) -> KeyValue {
        let key = format!("/azekura/v1/{key}").into_bytes();
        KeyValue { key, value: value.as_bytes().to_vec(), mod_revision, ..KeyValue::default() }
    }

    fn model(life: &str, former: &str, revision: i64, others: &[KeyValue]) -> Model {
        let id = "0".repeat(32);
        let cluster = format!(r#"{{"id":"{id}","name":"x","created":"t","life":"{life}","former_lives":[{former}]}}"#);
        let mut kvs = vec![kv("cluster", &cluster, 2)];
        kvs.extend(others.iter().cloned());
        Model::from_keys(&kvs, revision)
    }

    fn seen(revision: i64) -> Seen {
        Seen { version: FORMAT, cluster: "0".repeat(32), life: LIFE.into(), revision, incarnation: 0 }
    }

    fn went_back(outcome: Result<(), MetaError>) -> bool {
        matches!(outcome, Err(MetaError::WentBack { .. }))
    }

    #[test]
    fn a_configuration_that_went_on_is_believed() {
        let before = model(LIFE, "", 10, &[kv("counters/volumes", "3", 9), kv("counters/layers", "3", 5)]);
        let copy = Copied::of(&before).unwrap();
        let after = model(LIFE, "", 20, &[kv("counters/volumes", "4", 15), kv("counters/layers", "3", 5)]);
        assert!(check(&seen(10), Some(&copy.changes()), &before, "n").is_ok());
        assert!(check(&seen(10), Some(&copy.changes()), &after, "n").is_ok());
        // Something was deleted, and something is new.
        let other = model(LIFE, "", 20, &[kv("counters/volumes", "3", 9), kv("counters/nodes", "3", 11)]);
        assert!(check(&seen(10), Some(&copy.changes()), &other, "n").is_ok());
    }

    #[test]
    fn a_lower_revision_is_refused() {
        let after = model(LIFE, "", 9, &[]);
        assert!(went_back(check(&seen(10), None, &after, "n")));
        assert!(check(&seen(9), None, &after, "n").is_ok());
    }

    #[test]
    fn an_older_configuration_that_has_grown_beyond_what_was_seen_is_refused() {
        let before = model(LIFE, "", 10, &[kv("counters/volumes", "3", 9)]);
        let copy = Copied::of(&before).unwrap();
        // Restored as of revision 8, and changed by somebody since.
        let grown = model(LIFE, "", 30, &[kv("counters/volumes", "2", 7), kv("counters/nodes", "9", 29)]);
        assert!(went_back(check(&seen(10), Some(&copy.changes()), &grown, "n")));
        let back_again = model(LIFE, "", 30, &[kv("counters/volumes", "3", 9), kv("counters/nodes", "9", 10)]);
        assert!(went_back(check(&seen(10), Some(&copy.changes()), &back_again, "n")), "it had been deleted");
    }

    #[test]
    fn a_node_that_is_not_registered_as_often_as_it_was_refuses() {
        let node = |incarnation| {
            let addresses = r#""data_address":"127.0.0.1:1","api_address":"127.0.0.1:2""#;
            let text = format!(r#"{{"id":1,"uuid":"n","name":"n1",{addresses},"incarnation":{incarnation}}}"#);
            model(LIFE, "", 30, &[kv("nodes/1", &text, 29)])
        };
        let seen = Seen { incarnation: 4, ..seen(10) };
        assert!(check(&seen, None, &node(4), "n").is_ok());
        assert!(went_back(check(&seen, None, &node(3), "n")));
        assert!(went_back(check(&seen, None, &model(LIFE, "", 30, &[]), "n")));
    }

    #[test]
    fn another_life_is_believed_when_it_follows_the_one_that_was_seen() {
        assert!(check(&seen(10), None, &model("b2", r#""a1""#, 5, &[]), "n").is_ok(), "it was restored and confirmed");
        assert!(went_back(check(&seen(10), None, &model("b2", "", 50, &[]), "n")));
        let empty = Model::from_keys(&[], 1);
        assert!(matches!(check(&seen(10), None, &empty, "n"), Err(MetaError::ClusterMissing { .. })));
    }

    #[test]
    fn what_one_node_has_found_stops_all() {
        let doubt = r#"{"node":"n1","reason":"r","life":"a1","revision":12,"since":"t"}"#;
        let doubted = model(LIFE, "", 30, &[kv("doubts/one", doubt, 29)]);
        assert!(matches!(check(&seen(10), None, &doubted, "n"), Err(MetaError::Doubted { node, .. }) if node == "n1"));
        assert!(went_back(check(&seen(10), None, &doubted, "one")), "the node itself, too");
    }
}
