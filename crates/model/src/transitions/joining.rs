//! A machine becomes a node with a join token, which is used up by that (docs/decisions/0037-who-may.md).

use azekura_base::GrantId;

use super::members::{NodeSpec, register_node_as};
use super::volumes::missing;
use crate::{GrantKind, GrantRecord, Key, Kind, MetaError, NodeRecord, Outcome, Records, Role, Step};

/// Registers a new node, and deletes the grant of its join token in the same transaction. `now`: seconds since 1970.
///
/// # Errors
/// When there is no such grant any more, the machine is a node already, or the node can't be registered.
pub fn join(records: &Records<'_>, grant: GrantId, spec: &NodeSpec, now: u64) -> Outcome<NodeRecord> {
    let [found, counter] = records.find_all([&Key::Grant(grant), &Key::Counter("nodes")])?;
    let model = records.model(counter.mod_revision().max(found.mod_revision()))?;
    let own = model.nodes.values().find(|node| node.uuid == spec.uuid);
    let joins =
        |grant: &GrantRecord| grant.kind == GrantKind::Token && grant.role == Role::Join && grant.counts_at(now);
    if !found.record::<GrantRecord>()?.as_ref().is_some_and(joins) {
        return match own {
            // By an attempt whose answer was lost.
            Some(own) if records.is_uncertain() && own.keys.as_ref().is_some_and(|keys| keys.contains(&spec.key)) => {
                Ok(Step::Done(own.record.clone(), own.mod_revision))
            }
            _ => Err(missing(Kind::Grant, &grant.to_string()).into()),
        };
    }
    if let Some(own) = own {
        return Err(MetaError::Exists { kind: Kind::Node, name: own.name.clone() }.into());
    }
    Ok(match register_node_as(records, spec, true)? {
        Step::Run(txn, record) => Step::Run(txn.when_as(&found).delete(&found.key), record),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::super::grants::create_grant;
    use super::super::members::register_trusted_node;
    use super::super::members::tests::{node, start};
    use super::super::tests::{attempt, run, txn_of};
    use super::*;
    use crate::{DEFAULT_PROJECT, Memory, SecretHash, SettingsRecord, Txn, Unknown};
    use azekura_base::{ApiAccess, Transport};

    const NOW: u64 = 1_000;
    const GRANT: GrantId = GrantId(7);

    fn token(memory: &mut Memory, id: GrantId, role: Role) {
        let grant = GrantRecord {
            name: format!("g{}", id.0),
            kind: GrantKind::Token,
            hash: SecretHash([7; 32]),
            role,
            project: DEFAULT_PROJECT.to_owned(),
            volumes: None,
            host: None,
            until: Some(NOW + 60),
            created: String::new(),
            by: "admin".to_owned(),
            unknown: Unknown::default(),
        };
        run(memory, |records| create_grant(records, id, &grant, NOW)).unwrap();
    }

    fn set(memory: &mut Memory, transport: Transport, api_access: ApiAccess) {
        let settings = SettingsRecord { transport, api_access, ..SettingsRecord::default() };
        memory.run(&Txn::new().put(&Key::Settings.to_string(), &settings)).unwrap();
    }

    fn joins(memory: &mut Memory, id: GrantId, name: &str, now: u64) -> Result<NodeRecord, MetaError> {
        run(memory, |records| join(records, id, &node(name, name), now))
    }

    /// A cluster that asks for everything, with its first node and a join token.
    fn guarded() -> Memory {
        let mut memory = Memory::new();
        set(&mut memory, Transport::Tls, ApiAccess::Grants);
        start(&mut memory, &node("n1", "n1")).unwrap();
        token(&mut memory, GRANT, Role::Join);
        memory
    }

    #[test]
    fn a_guarded_cluster_takes_new_nodes_with_a_token_alone() {
        let mut memory = guarded();
        let refused = start(&mut memory, &node("n2", "n2"));
        assert!(matches!(refused, Err(MetaError::NotInvited { .. })), "{refused:?}");
        start(&mut memory, &node("n1", "n1")).unwrap();
        let record = joins(&mut memory, GRANT, "n2", NOW).unwrap();
        assert!(memory.model().grants.is_empty(), "the token is used up");
        assert_eq!(memory.model().nodes[&record.id].record, record);
        start(&mut memory, &node("n2", "n2")).unwrap();
        // Where nobody but trusted machines reaches the configuration.
        run(&mut memory, |records| register_trusted_node(records, &node("n3", "n3"))).unwrap();
        for (transport, access) in [(Transport::Tls, ApiAccess::Open), (Transport::Both, ApiAccess::Grants)] {
            let mut memory = guarded();
            set(&mut memory, transport, access);
            start(&mut memory, &node("n2", "n2")).unwrap();
        }
    }

    #[test]
    fn a_token_is_good_once_in_time_and_for_this() {
        let mut memory = guarded();
        let gone = |outcome: Result<NodeRecord, MetaError>| {
            matches!(outcome, Err(MetaError::NotFound { kind: Kind::Grant, .. }))
        };
        assert!(gone(joins(&mut memory, GrantId(8), "n2", NOW)));
        assert!(gone(joins(&mut memory, GRANT, "n2", NOW + 60)), "it has ended");
        token(&mut memory, GrantId(9), Role::Admin);
        assert!(gone(joins(&mut memory, GrantId(9), "n2", NOW)), "it is for something else");
        let own = joins(&mut memory, GRANT, "n1", NOW);
        assert!(matches!(own, Err(MetaError::Exists { kind: Kind::Node, .. })), "{own:?}");
        let taken = run(&mut memory, |records| join(records, GRANT, &node("x", "n1"), NOW));
        assert!(matches!(taken, Err(MetaError::NameTaken { .. })), "{taken:?}");
        assert!(memory.model().grants.contains_key(&GRANT), "what is refused uses nothing up");
        joins(&mut memory, GRANT, "n2", NOW).unwrap();
        assert!(gone(joins(&mut memory, GRANT, "n3", NOW)));
        let uncertain = attempt(&memory, true, |records| join(records, GRANT, &node("n2", "n2"), NOW));
        assert!(matches!(uncertain, Ok(Step::Done(..))), "{uncertain:?}");
    }

    #[test]
    fn of_two_with_one_token_one_becomes_a_node() {
        let mut memory = guarded();
        let of = |memory: &Memory, name| txn_of(join(&Records::known(memory.model()), GRANT, &node(name, name), NOW));
        let (one, two) = (of(&memory, "n2"), of(&memory, "n3"));
        assert!(memory.run(&one).is_some());
        assert_eq!(memory.run(&two), None);
        assert_eq!(memory.model().nodes.len(), 2);
    }
}
