//! Which clients may open what, as the configuration has it (docs/decisions/0037-who-may.md).

use azekura_base::{ApiAccess, PeerKey, Role};
use azekura_frontend::{Admission, Right};
use azekura_model::{GrantKind, Model};

/// What clients may that prove keys, at this time; and when that changes by itself, both in seconds since 1970.
pub(crate) fn admission(model: &Model, now: u64) -> (Admission, Option<u64>) {
    let keys = model.grants.values().filter(|grant| grant.kind == GrantKind::Key);
    let counting = keys.filter(|grant| grant.counts_at(now) && !matches!(grant.role, Role::Node | Role::Join));
    let (mut rights, mut next_end) = (std::collections::BTreeMap::new(), None);
    for grant in counting {
        let right = Right { name: grant.name.clone(), role: grant.role, volumes: grant.volumes.clone() };
        // One key has one grant; of two that somebody has written himself, the first counts, as for the API.
        rights.entry(PeerKey(grant.hash.0)).or_insert(right);
        next_end = [next_end, grant.until].into_iter().flatten().min();
    }
    (Admission { open: model.settings().api_access == ApiAccess::Open, rights }, next_end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use azekura_model::{DEFAULT_PROJECT, GrantId, GrantRecord, Key, Memory, SecretHash, SettingsRecord, Txn, Unknown};

    fn grant(name: &str, hash: u8, until: Option<u64>) -> GrantRecord {
        GrantRecord {
            name: name.to_owned(),
            kind: GrantKind::Key,
            hash: SecretHash([hash; 32]),
            role: Role::User,
            project: DEFAULT_PROJECT.to_owned(),
            volumes: None,
            until,
            created: String::new(),
            by: String::new(),
            unknown: Unknown::default(),
        }
    }

    #[test]
    fn keys_that_count_have_rights_until_they_end() {
        let mut memory = Memory::new();
        assert!(admission(memory.model(), 1).0.open, "a cluster without the setting is open");
        let settings = SettingsRecord { api_access: ApiAccess::Grants, ..SettingsRecord::default() };
        let grants = [
            grant("a", 1, None),
            grant("b", 2, Some(100)),
            GrantRecord { kind: GrantKind::Token, ..grant("c", 3, None) },
            GrantRecord { role: Role::Node, ..grant("d", 4, None) },
            grant("e", 5, Some(200)),
        ];
        let txn = Txn::new().put(&Key::Settings.to_string(), &settings);
        let put = |txn: Txn, (id, grant): (u64, &GrantRecord)| txn.put(&Key::Grant(GrantId(id)).to_string(), grant);
        memory.run(&(1..).zip(&grants).fold(txn, put)).unwrap();
        for (now, names, next) in
            [(99, vec!["a", "b", "e"], Some(100)), (100, vec!["a", "e"], Some(200)), (200, vec!["a"], None)]
        {
            let (found, next_end) = admission(memory.model(), now);
            let found_names: Vec<&str> = found.rights.values().map(|right| right.name.as_str()).collect();
            assert_eq!((found.open, found_names, next_end), (false, names, next));
        }
    }
}
