//! Which clients may open what, as the configuration has it (docs/decisions/0037-who-may.md, 0053-hosts.md).

use azekura_base::{ApiAccess, Bounds, GrantId, PeerKey, Role};
use azekura_control::OpenedSecrets;
use azekura_frontend::{Admission, HostProof, HostRight, Right};
use azekura_model::{GrantKind, HostRecord, Model};
use std::sync::Arc;

/// What clients may that prove keys, and hosts, at this time; and when that changes by itself, both in seconds since
/// 1970.
pub(crate) fn admission(model: &Model, secrets: &OpenedSecrets, now: u64) -> (Admission, Option<u64>) {
    let of_clients = model.grants.iter().filter(|(_, grant)| grant.kind != GrantKind::Token);
    let counting =
        of_clients.filter(|(_, grant)| grant.counts_at(now) && !matches!(grant.role, Role::Node | Role::Join));
    let open = model.settings().api_access == ApiAccess::Open;
    let (mut admission, mut next_end) =
        (Admission { is_known: true, open, host_paths: model.knows_host_paths(), ..Admission::default() }, None);
    for (id, grant) in counting {
        let bounds = Bounds::of(grant.role, &grant.project);
        let right = Right { name: grant.name.clone(), role: grant.role, bounds, volumes: grant.volumes.clone() };
        // One key, or host, has one grant; of two that somebody has written himself, the first counts, as for the API.
        match &grant.host {
            _ if grant.kind == GrantKind::Key => {
                admission.rights.entry(PeerKey(grant.hash.0)).or_insert(right);
            }
            Some(host) => {
                let right = HostRight { grant: *id, proof: proof(*id, host, secrets), right };
                admission.hosts.entry(host.name.clone()).or_insert(right);
            }
            None => continue,
        }
        next_end = [next_end, grant.until].into_iter().flatten().min();
    }
    (admission, next_end)
}

/// What a host has to prove. Without its secret nobody can be asked for that, and nobody is let in.
fn proof(id: GrantId, host: &HostRecord, secrets: &OpenedSecrets) -> HostProof {
    match (&host.chap, secrets.get(&id)) {
        (None, _) => HostProof::Name,
        (Some(_), Some(Ok(secrets))) => HostProof::Chap(Arc::clone(secrets)),
        (Some(_), _) => HostProof::Sealed,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use azekura_base::{ChapSecret, ChapSecrets};
    use azekura_model::{
        ChapRecord, DEFAULT_PROJECT, GrantRecord, Key, Memory, SecretHash, SettingsRecord, Txn, Unknown,
    };

    fn grant(name: &str, hash: u8, until: Option<u64>) -> GrantRecord {
        GrantRecord {
            name: name.to_owned(),
            kind: GrantKind::Key,
            hash: SecretHash([hash; 32]),
            role: Role::User,
            project: DEFAULT_PROJECT.to_owned(),
            volumes: None,
            host: None,
            until,
            created: String::new(),
            by: String::new(),
            unknown: Unknown::default(),
        }
    }

    #[test]
    fn keys_that_count_have_rights_until_they_end() {
        let mut memory = Memory::new();
        assert!(admission(memory.model(), &OpenedSecrets::new(), 1).0.open, "a cluster without the setting is open");
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
            let (found, next_end) = admission(memory.model(), &OpenedSecrets::new(), now);
            let found_names: Vec<&str> = found.rights.values().map(|right| right.name.as_str()).collect();
            assert_eq!((found.open, found_names, next_end), (false, names, next));
        }
    }

    #[test]
    fn hosts_have_rights_by_name_until_they_end() {
        let mut memory = Memory::new();
        let host = |name: &str, host: &str, until| GrantRecord {
            kind: GrantKind::Host,
            host: Some(HostRecord {
                name: host.parse().unwrap(),
                chap: None,
                mutual: None,
                unknown: Unknown::default(),
            }),
            volumes: Some(["v".to_owned()].into()),
            ..grant(name, 1, until)
        };
        let with_secret = |grant: GrantRecord| {
            let chap = Some(ChapRecord { user: "me".to_owned(), sealed: "1:00".to_owned() });
            GrantRecord { host: grant.host.map(|host| HostRecord { chap, ..host }), ..grant }
        };
        // The last one is none that this version makes.
        let odd = GrantRecord { host: None, ..host("c", "iqn.c", None) };
        let grants = [host("a", "iqn.a", Some(100)), host("b", "nqn.b", None), odd];
        let put = |txn: Txn, (id, grant): (u64, &GrantRecord)| txn.put(&Key::Grant(GrantId(id)).to_string(), grant);
        memory.run(&(1..).zip(&grants).fold(Txn::new(), put)).unwrap();
        let (found, next_end) = admission(memory.model(), &OpenedSecrets::new(), 99);
        assert!(found.is_known && found.rights.is_empty() && next_end == Some(100));
        let names: Vec<(&str, u64)> = found.hosts.iter().map(|(name, host)| (name.as_str(), host.grant.0)).collect();
        assert_eq!(names, [("iqn.a", 1), ("nqn.b", 2)]);
        assert!(found.hosts.values().all(|host| host.right.volumes.as_ref().is_some_and(|names| names.contains("v"))));
        assert_eq!(admission(memory.model(), &OpenedSecrets::new(), 100).0.hosts.len(), 1);
        assert!(found.hosts.values().all(|host| host.proof == HostProof::Name));

        let key = Key::Grant(GrantId(2)).to_string();
        memory.run(&Txn::new().put(&key, &with_secret(host("b", "iqn.b", None)))).unwrap();
        let proof = |secrets: &OpenedSecrets| {
            admission(memory.model(), secrets, 99).0.hosts[&"iqn.b".parse().unwrap()].proof.clone()
        };
        assert_eq!(proof(&OpenedSecrets::new()), HostProof::Sealed);
        assert_eq!(proof(&OpenedSecrets::from([(GrantId(2), Err("no key".to_owned()))])), HostProof::Sealed);
        let secret = ChapSecret { user: "me".to_owned(), secret: Arc::new(b"twelve bytes".to_vec().into()) };
        let secrets = Arc::new(ChapSecrets { initiator: secret, target: None });
        let opened = OpenedSecrets::from([(GrantId(2), Ok(Arc::clone(&secrets)))]);
        assert_eq!(proof(&opened), HostProof::Chap(secrets));
    }
}
