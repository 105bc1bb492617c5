//! Which cluster this is.

use crate::{ClusterRecord, Key, MetaError, Outcome, Records, SettingsRecord, Step, Txn};

/// The cluster; `fresh`, with these settings, if there is none. `expected`: the id that the caller knows. Another
/// cluster, or none, is then an error, so that a node never writes into a stranger's cluster.
///
/// # Errors
/// When the cluster is not the expected one, its record is broken, or it requires what this version does not
/// understand.
pub fn ensure_cluster(
    records: &Records<'_>,
    fresh: &ClusterRecord,
    settings: &SettingsRecord,
    expected: Option<&str>,
) -> Outcome<ClusterRecord> {
    let [found, set] = records.find_all([&Key::Cluster, &Key::Settings])?;
    let txn = |cluster: &ClusterRecord| Txn::new().when_as(&found).put(&found.key, cluster);
    let put = |cluster: ClusterRecord| Ok(Step::Run(txn(&cluster), cluster));
    match (found.record::<ClusterRecord>()?, expected) {
        (Some(cluster), Some(expected)) if cluster.id != expected => {
            Err(MetaError::WrongCluster { expected: expected.to_owned(), found: cluster.id }.into())
        }
        (Some(cluster), _) if cluster.number().is_none() => {
            let reason = "the id is not 32 hexadecimal digits".to_owned();
            Err(MetaError::Broken { key: found.key, reason }.into())
        }
        (Some(cluster), _) if !cluster.not_understood().is_empty() => {
            Err(MetaError::NotUnderstood { what: crate::named(cluster.not_understood()) }.into())
        }
        // It was made before configurations had lives.
        (Some(cluster), _) if cluster.life.is_empty() => put(ClusterRecord { life: fresh.life.clone(), ..cluster }),
        (Some(cluster), _) => Ok(Step::Done(cluster, found.mod_revision())),
        (None, Some(expected)) => Err(MetaError::ClusterMissing { expected: expected.to_owned() }.into()),
        // Settings that are there without a cluster are somebody's.
        (None, None) if set.mod_revision() > 0 || *settings == SettingsRecord::default() => put(fresh.clone()),
        (None, None) => Ok(Step::Run(txn(fresh).when_as(&set).put(&set.key, settings), fresh.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{run, txn_of};
    use super::*;
    use crate::{KEY_GENERATIONS, Memory, Unknown};
    use azekura_base::Transport;
    use std::collections::BTreeSet;

    fn fresh(digit: &str) -> ClusterRecord {
        ClusterRecord {
            id: digit.repeat(32),
            name: "prod".into(),
            created: String::new(),
            life: digit.into(),
            former_lives: Vec::new(),
            restored: None,
            requires: BTreeSet::new(),
            unknown: Unknown::default(),
        }
    }

    fn settings() -> SettingsRecord {
        SettingsRecord { transport: Transport::Tls, ..SettingsRecord::default() }
    }

    fn ensure(memory: &mut Memory, fresh: &ClusterRecord, expected: Option<&str>) -> Result<ClusterRecord, MetaError> {
        run(memory, |records| ensure_cluster(records, fresh, &settings(), expected))
    }

    #[test]
    fn a_cluster_is_made_once_and_never_by_who_knows_one() {
        let mut memory = Memory::new();
        let (a, b) = (fresh("a"), fresh("b"));
        assert!(matches!(ensure(&mut memory, &a, Some(&a.id)), Err(MetaError::ClusterMissing { .. })));
        let late = txn_of(ensure_cluster(&Records::known(memory.model()), &b, &settings(), None));
        assert_eq!(ensure(&mut memory, &a, None).unwrap(), a);
        assert_eq!(memory.run(&late), None);
        assert_eq!(ensure(&mut memory, &b, None).unwrap(), a);
        assert_eq!(ensure(&mut memory, &b, Some(&a.id)).unwrap(), a);
        assert!(matches!(ensure(&mut memory, &b, Some(&b.id)), Err(MetaError::WrongCluster { .. })));
        assert_eq!(memory.model().settings().transport, Transport::Tls);
    }

    #[test]
    fn a_cluster_without_a_life_gets_one_and_a_broken_one_stays() {
        let put = |record: &ClusterRecord| {
            let mut memory = Memory::new();
            memory.run(&Txn::new().put(&Key::Cluster.to_string(), record)).unwrap();
            memory
        };
        let old = ClusterRecord { life: String::new(), ..fresh("a") };
        assert_eq!(
            ensure(&mut put(&old), &fresh("b"), None).unwrap(),
            ClusterRecord { life: "b".into(), ..fresh("a") }
        );
        let mut old = put(&old);
        ensure(&mut old, &fresh("b"), None).unwrap();
        assert_eq!(old.model().settings().transport, Transport::Plain, "it was made before there was TLS");
        let broken = ClusterRecord { id: "a".into(), ..fresh("a") };
        assert!(matches!(ensure(&mut put(&broken), &fresh("b"), None), Err(MetaError::Broken { .. })));
    }

    #[test]
    fn who_does_not_understand_what_the_cluster_requires_is_told_so() {
        let requiring = |words: &[&str]| {
            let requires = words.iter().map(|word| (*word).to_owned()).collect();
            let mut memory = Memory::new();
            let record = ClusterRecord { requires, ..fresh("a") };
            memory.run(&Txn::new().put(&Key::Cluster.to_string(), &record)).unwrap();
            ensure(&mut memory, &fresh("b"), Some(&fresh("a").id))
        };
        assert!(requiring(&[KEY_GENERATIONS]).is_ok());
        let refused = requiring(&[KEY_GENERATIONS, "wings"]).unwrap_err();
        assert!(refused.to_string().contains("wings") && refused.hint().is_some(), "{refused}");
    }
}
