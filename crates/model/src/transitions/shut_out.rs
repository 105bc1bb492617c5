//! A node is shut out: nothing that it has proves any more that it is one of the cluster. It comes back by a key that
//! somebody names (docs/decisions/0037-who-may.md).

use azekura_base::{NodeId, PeerKey};

use super::keys::refused;
use super::members::key_owner;
use super::volumes::missing;
use crate::{Key, Kind, LeaderRecord, MetaError, NodeRecord, Outcome, Records, ShutOut, Step, Txn};

/// Takes all keys of a node, its sign of life and its leadership. No start brings it back. Gives its record; also when
/// it is shut out already. `now`: RFC 3339.
///
/// # Errors
/// When the node is missing.
pub fn shut_out(records: &Records<'_>, node: NodeId, now: &str, by: &str) -> Outcome<NodeRecord> {
    let [found, counter, leader] = records.find_all([&Key::Node(node), &Key::Counter("nodes"), &Key::Leader])?;
    let Some(record) = found.record::<NodeRecord>()?.filter(|record| !record.removed) else {
        return Err(missing(Kind::Node, &node.to_string()).into());
    };
    if record.shut_out.is_some() {
        return Ok(Step::Done(record, found.mod_revision()));
    }
    let keys = record.keys.clone().unwrap_or_default();
    let shut_out = Some(ShutOut { since: now.to_owned(), by: by.to_owned(), keys });
    let record = NodeRecord { keys: Some(Vec::new()), shut_out, ..record };
    let mut txn = Txn::new().when_as(&found).when_as(&counter).put(&found.key, &record);
    // Whoever registers at the same time looks at the keys of all.
    txn = txn.put(&counter.key, &counter.next_id()?).delete(&Key::Alive(node).to_string());
    if leader.record::<LeaderRecord>()?.is_some_and(|leader| leader.node == node) {
        txn = txn.when_as(&leader).delete(&leader.key);
    }
    Ok(Step::Run(txn, record))
}

/// Lets a node in again that was shut out: with this key, or (`None`) with those that it had. Gives its record.
///
/// # Errors
/// When the node is missing or not shut out, or the key is one of those that it had, or another node's.
pub fn let_in(records: &Records<'_>, node: NodeId, key: Option<PeerKey>) -> Outcome<NodeRecord> {
    let [found, counter] = records.find_all([&Key::Node(node), &Key::Counter("nodes")])?;
    let model = records.model(counter.mod_revision().max(found.mod_revision()))?;
    let Some(record) = found.record::<NodeRecord>()?.filter(|record| !record.removed) else {
        return Err(missing(Kind::Node, &node.to_string()).into());
    };
    let Some(ShutOut { keys: former, .. }) = record.shut_out.clone() else {
        // By an attempt whose answer was lost.
        if records.is_uncertain() && key.is_none_or(|key| record.keys.as_ref().is_some_and(|has| has.contains(&key))) {
            return Ok(Step::Done(record, found.mod_revision()));
        }
        return Err(refused(&record, "it is not shut out".to_owned()).into());
    };
    if key.is_some_and(|key| former.contains(&key)) {
        let reason = "this is the key that was taken from it, which others may have: on its machine, move identity/node.key \
                      away and start the node, which makes another one and names it. If the node was shut out by mistake, say \
                      --same-keys instead of the key";
        return Err(refused(&record, reason.to_owned()).into());
    }
    let keys = key.map_or(former, |key| vec![key]);
    for key in &keys {
        if let Some(node) = key_owner(&record.uuid, *key, model) {
            return Err(MetaError::KeyTaken { node, key: *key }.into());
        }
    }
    let record = NodeRecord { keys: Some(keys), shut_out: None, ..record };
    let txn = Txn::new().when_as(&found).when_as(&counter).put(&found.key, &record);
    Ok(Step::Run(txn.put(&counter.key, &counter.next_id()?), record))
}

#[cfg(test)]
mod tests {
    use super::super::alive::Claim;
    use super::super::keys::{add_key, replace_keys};
    use super::super::members::NodeSpec;
    use super::super::members::tests::{node, start};
    use super::super::tests::{attempt, run, txn_of};
    use super::*;
    use crate::Memory;

    const N1: NodeId = NodeId(1);
    const N2: NodeId = NodeId(2);

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    fn with(number: u8, name: &str) -> NodeSpec {
        NodeSpec { key: key(number), ..node(name, name) }
    }

    /// Nodes n1 with key 1, and n2 with key 2, which is alive and leads.
    fn two() -> Memory {
        let mut memory = Memory::new();
        start(&mut memory, &with(1, "n1")).unwrap();
        start(&mut memory, &with(2, "n2")).unwrap();
        memory.claim(Claim::Alive(N2), "t").unwrap();
        memory.claim(Claim::Leader(N2), "t").unwrap();
        memory
    }

    fn out(memory: &mut Memory) -> NodeRecord {
        run(memory, |records| shut_out(records, N2, "now", "ann")).unwrap()
    }

    #[test]
    fn a_node_loses_its_keys_its_sign_of_life_and_its_leadership_at_once() {
        let mut memory = two();
        let before = memory.model().revision;
        let late = txn_of(add_key(&Records::known(memory.model()), N2, key(3)));
        let record = out(&mut memory);
        let model = memory.model();
        assert_eq!((record.keys, model.revision), (Some(Vec::new()), before + 1));
        assert_eq!(record.shut_out, Some(ShutOut { since: "now".into(), by: "ann".into(), keys: vec![key(2)] }));
        assert!(model.alive.is_empty() && model.leader.is_none());
        let (alive, leader) = (Claim::Alive(N2), Claim::Leader(N2));
        assert!(alive.is_taken(model) && leader.is_taken(model) && alive.is_lost(model, before));
        assert!(!Claim::Leader(N1).is_taken(model));
        assert_eq!(memory.run(&late), None);
        out(&mut memory);
        assert_eq!(memory.model().revision, before + 1, "it is shut out already");
        let gone = run(&mut memory, |records| shut_out(records, NodeId(9), "now", "ann"));
        assert!(matches!(gone, Err(MetaError::NotFound { .. })), "{gone:?}");
    }

    #[test]
    fn another_ones_leadership_stays() {
        let mut memory = two();
        run(&mut memory, |records| shut_out(records, N1, "now", "ann")).unwrap();
        assert!(memory.model().leader.is_some() && memory.model().alive.contains_key(&N2));
    }

    #[test]
    fn no_start_brings_it_back_and_no_replacement_of_its_key() {
        let mut memory = two();
        out(&mut memory);
        for number in [2, 5] {
            let refused = start(&mut memory, &with(number, "n2"));
            assert!(matches!(refused, Err(MetaError::KeyNotListed { .. })), "{refused:?}");
            let refused = run(&mut memory, |records| replace_keys(records, N2, key(number))).unwrap_err();
            assert!(refused.to_string().contains("ann has shut it out"), "{refused}");
            run(&mut memory, |records| add_key(records, N2, key(number))).unwrap_err();
        }
        assert_eq!(memory.model().nodes[&N2].keys, Some(Vec::new()));
    }

    #[test]
    fn it_is_let_in_with_another_key_or_by_word_with_the_same() {
        let mut memory = two();
        let refused = run(&mut memory, |records| let_in(records, N2, Some(key(5)))).unwrap_err();
        assert!(refused.to_string().contains("not shut out"), "{refused}");
        out(&mut memory);
        let refused = run(&mut memory, |records| let_in(records, N2, Some(key(2)))).unwrap_err();
        assert!(refused.to_string().contains("--same-keys"), "{refused}");
        let refused = run(&mut memory, |records| let_in(records, N2, Some(key(1))));
        assert!(matches!(refused, Err(MetaError::KeyTaken { .. })), "{refused:?}");
        let record = run(&mut memory, |records| let_in(records, N2, Some(key(5)))).unwrap();
        assert_eq!((record.keys, record.shut_out), (Some(vec![key(5)]), None));
        start(&mut memory, &with(5, "n2")).unwrap();
        assert!(start(&mut memory, &with(2, "n2")).is_err());
        assert!(!Claim::Alive(N2).is_taken(memory.model()));
        assert!(matches!(attempt(&memory, true, |records| let_in(records, N2, Some(key(5)))), Ok(Step::Done(..))));
        out(&mut memory);
        assert_eq!(run(&mut memory, |records| let_in(records, N2, None)).unwrap().keys, Some(vec![key(5)]));
    }

    #[test]
    fn what_was_taken_by_hand_has_no_note_and_is_given_back_as_before() {
        let mut memory = two();
        run(&mut memory, |records| super::super::keys::take_keys(records, N2)).unwrap();
        run(&mut memory, |records| replace_keys(records, N2, key(2))).unwrap();
    }
}
