//! Which keys prove that a connection is a node's: a new one is added, and when all nodes know it and the node uses it,
//! the old one is removed (docs/decisions/0037-who-may.md).

use azekura_base::{NodeId, PeerKey};

use super::members::key_owner;
use super::volumes::missing;
use crate::{Key, Kind, MetaError, NodeRecord, Outcome, Records, ShutOut, Step, Txn};

/// The most keys that a node has: the one in use, the next one, and some that were forgotten.
pub const KEYS_MAX: usize = 8;

/// Changes the list of a node's keys; gives its record.
fn change(
    records: &Records<'_>,
    node: NodeId,
    to: impl FnOnce(&NodeRecord, &crate::Model) -> Result<Vec<PeerKey>, MetaError>,
) -> Outcome<NodeRecord> {
    let [found, counter] = records.find_all([&Key::Node(node), &Key::Counter("nodes")])?;
    // A key has one owner: whoever registers at the same time, or changes another node's keys, moves the counter, too.
    let model = records.model(counter.mod_revision().max(found.mod_revision()))?;
    let Some(record) = found.record::<NodeRecord>()?.filter(|record| !record.removed) else {
        return Err(missing(Kind::Node, &node.to_string()).into());
    };
    let keys = to(&record, model)?;
    if let Some(ShutOut { since, by, .. }) = &record.shut_out {
        let reason = format!(
            "{by} has shut it out ({since}); whoever may let it in names the key: azekura node let-in {} --key KEY",
            record.name
        );
        return Err(refused(&record, reason).into());
    }
    if record.keys.as_ref() == Some(&keys) {
        return Ok(Step::Done(record, found.mod_revision()));
    }
    let record = NodeRecord { keys: Some(keys), ..record };
    let txn = Txn::new().when_as(&found).when_as(&counter);
    Ok(Step::Run(txn.put(&found.key, &record).put(&counter.key, &counter.next_id()?), record))
}

pub(super) fn refused(record: &NodeRecord, reason: String) -> MetaError {
    MetaError::KeysRefused { node: record.name.clone(), reason }
}

/// Adds a key to a node's.
///
/// # Errors
/// When the node is missing or has [`KEYS_MAX`] keys, or another node has this one.
pub fn add_key(records: &Records<'_>, node: NodeId, key: PeerKey) -> Outcome<NodeRecord> {
    change(records, node, |record, model| {
        if let Some(node) = key_owner(&record.uuid, key, model) {
            return Err(MetaError::KeyTaken { node, key });
        }
        let mut keys = record.keys.clone().unwrap_or_default();
        if !keys.contains(&key) {
            if keys.len() >= KEYS_MAX {
                return Err(refused(
                    record,
                    format!("it has {KEYS_MAX}, which is as many as may be; remove one first"),
                ));
            }
            keys.push(key);
        }
        Ok(keys)
    })
}

/// Takes a key from a node's; from then on it proves nothing.
///
/// # Errors
/// When the node is missing, or has no other key.
pub fn remove_key(records: &Records<'_>, node: NodeId, key: PeerKey) -> Outcome<NodeRecord> {
    change(records, node, |record, _| {
        let keys = record.keys.clone().unwrap_or_default();
        let left: Vec<PeerKey> = keys.iter().copied().filter(|other| *other != key).collect();
        if left.is_empty() && !keys.is_empty() {
            return Err(refused(record, "it has no other, and could not reach anybody; add its next one first".into()));
        }
        Ok(left)
    })
}

/// A node has this key and no other any more: what it had is lost.
///
/// # Errors
/// When the node is missing, or another node has the key.
pub fn replace_keys(records: &Records<'_>, node: NodeId, key: PeerKey) -> Outcome<NodeRecord> {
    change(records, node, |record, model| match key_owner(&record.uuid, key, model) {
        Some(node) => Err(MetaError::KeyTaken { node, key }),
        None => Ok(vec![key]),
    })
}

/// A node has no key any more: nobody talks with it, and it does not register again, until it is given one. See
/// [`super::shut_out`] for what people ask for.
///
/// # Errors
/// When the node is missing.
pub fn take_keys(records: &Records<'_>, node: NodeId) -> Outcome<NodeRecord> {
    change(records, node, |_, _| Ok(Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::super::members::NodeSpec;
    use super::super::members::tests::{node, start};
    use super::super::removal::remove_node;
    use super::super::tests::{run, txn_of};
    use super::*;
    use crate::Memory;

    const N1: NodeId = NodeId(1);
    const N2: NodeId = NodeId(2);

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    /// Nodes n1 with key 1, and n2 with key 2.
    fn two() -> Memory {
        let mut memory = Memory::new();
        for number in 1..=2 {
            let name = format!("n{number}");
            start(&mut memory, &NodeSpec { key: key(number), ..node(&name, &name) }).unwrap();
        }
        memory
    }

    fn keys(memory: &Memory, node: NodeId) -> Option<Vec<PeerKey>> {
        memory.model().nodes[&node].keys.clone()
    }

    #[test]
    fn a_key_is_changed_by_adding_the_next_and_removing_the_last() {
        let mut memory = two();
        let with = |number, name: &str| NodeSpec { key: key(number), ..node(name, name) };
        let unknown = start(&mut memory, &with(3, "n1"));
        assert!(matches!(&unknown, Err(MetaError::KeyNotListed { node, .. }) if node == "n1"), "{unknown:?}");
        for _ in 0..2 {
            run(&mut memory, |records| add_key(records, N1, key(3))).unwrap();
        }
        assert_eq!(keys(&memory, N1), Some(vec![key(1), key(3)]));
        start(&mut memory, &with(1, "n1")).unwrap();
        start(&mut memory, &with(3, "n1")).unwrap();
        assert_eq!(keys(&memory, N1), Some(vec![key(1), key(3)]), "a start changes nothing");
        run(&mut memory, |records| remove_key(records, N1, key(1))).unwrap();
        assert_eq!(keys(&memory, N1), Some(vec![key(3)]));
        assert!(start(&mut memory, &with(1, "n1")).is_err());
        let last = run(&mut memory, |records| remove_key(records, N1, key(3)));
        assert!(matches!(last, Err(MetaError::KeysRefused { .. })), "{last:?}");
        assert_eq!(keys(&memory, N2), Some(vec![key(2)]));
    }

    #[test]
    fn a_node_that_is_shut_out_does_not_come_back_by_starting() {
        let mut memory = two();
        run(&mut memory, |records| take_keys(records, N1)).unwrap();
        assert_eq!(keys(&memory, N1), Some(Vec::new()));
        let refused = start(&mut memory, &NodeSpec { key: key(1), ..node("n1", "n1") });
        assert!(matches!(refused, Err(MetaError::KeyNotListed { .. })), "{refused:?}");
    }

    #[test]
    fn a_record_from_before_keys_gets_the_first_that_comes() {
        let mut memory = two();
        let record = NodeRecord { keys: None, ..memory.model().nodes[&N1].record.clone() };
        memory.run(&Txn::new().put(&Key::Node(N1).to_string(), &record)).unwrap();
        start(&mut memory, &NodeSpec { key: key(7), ..node("n1", "n1") }).unwrap();
        assert_eq!(keys(&memory, N1), Some(vec![key(7)]));
    }

    #[test]
    fn a_key_has_one_owner() {
        let mut memory = two();
        let taken =
            |result: Result<_, MetaError>| matches!(result, Err(MetaError::KeyTaken { node, .. }) if node == "n2");
        assert!(taken(run(&mut memory, |records| add_key(records, N1, key(2)))));
        assert!(taken(run(&mut memory, |records| replace_keys(records, N1, key(2)))));
        let copy = NodeSpec { key: key(2), ..node("n3", "n3") };
        assert!(matches!(start(&mut memory, &copy), Err(MetaError::KeyTaken { .. })));
        // Two who would have the same one do not both get it.
        let add = |memory: &Memory, node| txn_of(add_key(&Records::known(memory.model()), node, key(9)));
        let (first, second) = (add(&memory, N1), add(&memory, N2));
        assert_eq!((memory.run(&first).is_some(), memory.run(&second)), (true, None));
        // Who has left has none.
        run(&mut memory, |records| remove_node(records, N2, false)).unwrap();
        run(&mut memory, |records| replace_keys(records, N1, key(2))).unwrap();
        assert_eq!(keys(&memory, N1), Some(vec![key(2)]));
        let gone = run(&mut memory, |records| add_key(records, N2, key(5)));
        assert!(matches!(gone, Err(MetaError::NotFound { .. })), "{gone:?}");
    }

    #[test]
    fn a_node_has_so_many_keys_and_no_more() {
        let mut memory = two();
        for number in 10..10 + KEYS_MAX as u8 - 1 {
            run(&mut memory, |records| add_key(records, N1, key(number))).unwrap();
        }
        let more = run(&mut memory, |records| add_key(records, N1, key(99)));
        assert!(matches!(more, Err(MetaError::KeysRefused { .. })), "{more:?}");
        run(&mut memory, |records| replace_keys(records, N1, key(99))).unwrap();
        assert_eq!(keys(&memory, N1), Some(vec![key(99)]));
    }
}
