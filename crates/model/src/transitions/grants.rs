//! Grants are made and revoked (docs/decisions/0037-who-may.md).

use std::sync::Arc;

use azekura_base::{GrantId, Needs, PeerKey, Role};

use super::volumes::{check_name, missing};
use crate::{
    Bounds, DEFAULT_PROJECT, Found, GrantKind, GrantRecord, Halt, KEY_VOLUMES, Key, Kind, MetaError, Model, NodeRecord,
    Outcome, Records, Step, Txn, Versioned, project_of,
};

/// The most grants that a cluster has: every node keeps all of them in memory.
pub const GRANTS_MAX: usize = 10_000;

/// The most volumes that a key can be for, if it is not for all.
pub const KEY_VOLUMES_MAX: usize = 1_000;

/// A join token is good for so long, seconds, if nothing else is said.
pub const JOIN_SECONDS: u64 = 3_600;
/// And at most for so long: seven days.
pub const JOIN_SECONDS_MAX: u64 = 7 * 86_400;

/// Why a grant can't be, and what to do about it.
type Refusal = (String, Option<String>);

/// Why nobody can have this grant. `now`: seconds since 1970.
fn refusal(grant: &GrantRecord, now: u64) -> Option<String> {
    if grant.role == Role::Node {
        return Some("nobody is given the role 'node': no token has it, and nodes prove that themselves".to_owned());
    }
    if let Some(volumes) = &grant.volumes {
        if grant.kind == GrantKind::Token {
            return Some("tokens are for the API, and so for all volumes; a key or a host may be for some".to_owned());
        }
        if volumes.is_empty() || volumes.len() > KEY_VOLUMES_MAX {
            return Some(format!("a key or a host is for all volumes, or for 1 to {KEY_VOLUMES_MAX}"));
        }
        if !grant.role.may(Needs::SeeVolumes) {
            return Some(format!("the role '{}' has nothing to do with volumes", grant.role));
        }
    }
    if (grant.kind == GrantKind::Host) != grant.host.is_some() {
        return Some("the grant of a host says which one, and no other does".to_owned());
    }
    if grant.kind == GrantKind::Host && grant.role != Role::User {
        return Some(format!("a host uses volumes: its role is 'user', not '{}'", grant.role));
    }
    if grant.host.as_ref().is_some_and(|host| host.mutual.is_some() && host.chap.is_none()) {
        return Some("who is proved something by CHAP proves something himself".to_owned());
    }
    if grant.role == Role::Join {
        let soon = grant.until.is_some_and(|until| until <= now.saturating_add(JOIN_SECONDS_MAX));
        if grant.kind != GrantKind::Token || !soon {
            return Some("a join token ends, after at most 7 days".to_owned());
        }
    }
    if grant.project != DEFAULT_PROJECT && !grant.role.has_project() {
        return Some(format!("the role '{}' is for the whole cluster, and for no project", grant.role));
    }
    (!grant.counts_at(now)).then(|| "it would have ended already; give a time that is to come".to_owned())
}

/// Why a grant can't be for its volumes: they are another project's.
fn refusal_of_volumes(grant: &GrantRecord) -> Option<Refusal> {
    let bounds = Bounds::Project(grant.project.clone());
    let volume = grant.volumes.iter().flatten().find(|volume| grant.role.has_project() && !bounds.sees(volume))?;
    let reason = format!("'{volume}' is no volume of the project '{}'", grant.project);
    Some((reason, Some(format!("--project {} makes it one for volumes of that project", project_of(volume)))))
}

/// Why this key can't have a grant: somebody else is known by it, or a node would let it have more than the grant says.
fn refusal_of_key(grant: &GrantRecord, model: &Model) -> Option<Refusal> {
    if grant.kind != GrantKind::Key {
        return None;
    }
    let key = PeerKey(grant.hash.0);
    let has = |record: &&Arc<Versioned<GrantRecord>>| record.kind == GrantKind::Key && record.hash == grant.hash;
    if let Some(other) = model.grants.values().find(has) {
        if other.project != grant.project {
            return Some(("the key has a grant already".to_owned(), Some(OF_ANOTHER.to_owned())));
        }
        let end = format!("'azekura key revoke {}' ends that", other.name);
        return Some((format!("the key is {}'s already", other.name), Some(end)));
    }
    let its = |node: &&Arc<Versioned<NodeRecord>>| node.keys.as_ref().is_some_and(|keys| keys.contains(&key));
    if let Some(node) = model.nodes.values().find(its) {
        return Some((
            format!("the key is node {}'s", node.name),
            Some("'azekura key new' makes another key".to_owned()),
        ));
    }
    let older = model.nodes.values().filter(|node| !node.removed && !node.understands.contains(KEY_VOLUMES));
    let older: Vec<&str> = older.map(|node| node.name.as_str()).collect();
    let limited = grant.volumes.is_some() && !older.is_empty();
    limited.then(|| {
        let reason = format!("these nodes run a version that would let it have all volumes: {}", crate::named(older));
        (reason, Some("update these nodes first".to_owned()))
    })
}

/// What other projects have is nobody's business.
const OF_ANOTHER: &str = "an administrator sees whose it is";

/// Why this host can't have a grant: it has one.
fn refusal_of_host(grant: &GrantRecord, model: &Model) -> Option<Refusal> {
    let name = &grant.host.as_ref()?.name;
    let mut hosts = model.grants.values().filter_map(|other| Some((other, &other.host.as_ref()?.name)));
    let (other, _) = hosts.find(|(_, other)| *other == name)?;
    if other.project != grant.project {
        return Some((format!("the host {name} has a grant already"), Some(OF_ANOTHER.to_owned())));
    }
    let other = &other.name;
    Some((format!("the host {name} is {other}'s already"), Some(format!("'azekura host remove {other}' ends that"))))
}

/// The record of a grant's project, which must be there; `None`: the default one has none.
fn find_project(records: &Records<'_>, project: &str) -> Result<Option<Found>, Halt> {
    if project == DEFAULT_PROJECT {
        return Ok(None);
    }
    let found = records.find(&Key::Project(project))?;
    if found.kv.is_none() {
        return Err(missing(Kind::Project, project).into());
    }
    Ok(Some(found))
}

/// Makes a grant. `id`: 64 random bits, the same in every attempt. `now`: seconds since 1970.
///
/// # Errors
/// When nobody can have such a grant, its name is taken, or there are [`GRANTS_MAX`].
pub fn create_grant(records: &Records<'_>, id: GrantId, grant: &GrantRecord, now: u64) -> Outcome<()> {
    check_name(Kind::Grant, &grant.name)?;
    let refused = |(reason, hint)| MetaError::InvalidGrant { name: grant.name.clone(), reason, hint };
    if let Some(refusal) = refusal(grant, now).map(|reason| (reason, None)).or_else(|| refusal_of_volumes(grant)) {
        return Err(refused(refusal).into());
    }
    let [found, counter] = records.find_all([&Key::Grant(id), &Key::Counter("grants")])?;
    // A name has one grant: whoever makes another one moves the counter, too.
    let model = records.model(counter.mod_revision().max(found.mod_revision()))?;
    match found.record::<GrantRecord>()? {
        // Ours, of an attempt whose answer was lost.
        Some(existing) if records.is_uncertain() && existing == *grant => {
            return Ok(Step::Done((), found.mod_revision()));
        }
        Some(_) => {
            let reason = format!("its number {id} is another one's already");
            return Err(refused((reason, Some("try again".to_owned()))).into());
        }
        None => {}
    }
    let project = find_project(records, &grant.project)?;
    // What grants other projects have is nobody's business.
    if model.grants.values().any(|other| other.name == grant.name && other.project == grant.project) {
        return Err(MetaError::Exists { kind: Kind::Grant, name: grant.name.clone() }.into());
    }
    if let Some(refusal) = refusal_of_key(grant, model).or_else(|| refusal_of_host(grant, model)) {
        return Err(refused(refusal).into());
    }
    if model.grants.len() >= GRANTS_MAX {
        let reason = format!("there are {GRANTS_MAX}, which is as many as may be");
        return Err(refused((reason, Some("revoke some first".to_owned()))).into());
    }
    let txn = Txn::new().when_as(&found).when_as(&counter);
    // Who deletes the project wants to know of all its grants.
    let txn = project.iter().fold(txn, Txn::when_as);
    Ok(Step::Run(txn.put(&found.key, grant).put(&counter.key, &(counter.next_id()? + 1)), ()))
}

/// Revokes a grant: its record goes, and with it all that it opened. Also one that can't be read.
///
/// # Errors
/// When it is not there.
pub fn revoke_grant(records: &Records<'_>, id: GrantId) -> Outcome<()> {
    let found = records.find(&Key::Grant(id))?;
    match found.kv {
        Some(_) => Ok(Step::Run(Txn::new().when_as(&found).delete(&found.key), ())),
        // By an attempt whose answer was lost.
        None if records.is_uncertain() => Ok(Step::Done((), found.mod_revision())),
        None => Err(missing(Kind::Grant, &id.to_string()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attempt, run, txn_of};
    use super::*;
    use crate::{ChapRecord, HostRecord, Memory, SecretHash, Unknown};

    const NOW: u64 = 1_000;

    fn grant(name: &str) -> GrantRecord {
        GrantRecord {
            name: name.to_owned(),
            kind: GrantKind::Token,
            hash: SecretHash([7; 32]),
            role: Role::User,
            project: DEFAULT_PROJECT.to_owned(),
            volumes: None,
            host: None,
            until: None,
            created: String::new(),
            by: "admin".to_owned(),
            unknown: Unknown::default(),
        }
    }

    fn key(name: &str, hash: u8) -> GrantRecord {
        GrantRecord { kind: GrantKind::Key, hash: SecretHash([hash; 32]), ..grant(name) }
    }

    fn create(memory: &mut Memory, id: u64, grant: &GrantRecord) -> Result<(), MetaError> {
        run(memory, |records| create_grant(records, GrantId(id), grant, NOW))
    }

    #[test]
    fn a_grant_is_made_and_revoked() {
        let mut memory = Memory::new();
        create(&mut memory, 1, &grant("a")).unwrap();
        create(&mut memory, 2, &grant("b")).unwrap();
        let names: Vec<&str> = memory.model().grants.values().map(|grant| grant.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        run(&mut memory, |records| revoke_grant(records, GrantId(1))).unwrap();
        assert_eq!(memory.model().grants.len(), 1);
        let again = run(&mut memory, |records| revoke_grant(records, GrantId(1)));
        assert!(matches!(again, Err(MetaError::NotFound { kind: Kind::Grant, .. })), "{again:?}");
        let hint = again.unwrap_err().hint().unwrap();
        assert!(["token list", "key list", "host list"].iter().all(|command| hint.contains(command)), "{hint}");
        create(&mut memory, 3, &grant("a")).unwrap();
    }

    #[test]
    fn grants_that_make_no_sense_are_refused() {
        let mut memory = Memory::new();
        create(&mut memory, 1, &grant("a")).unwrap();
        for (id, bad, told) in [
            (2, grant("a"), "exists"),
            (1, grant("b"), "another one"),
            (2, grant("b c"), "contains"),
            (2, GrantRecord { role: Role::Node, ..grant("b") }, "no token"),
            (2, GrantRecord { role: Role::Node, ..key("b", 1) }, "no token"),
            (2, GrantRecord { role: Role::Join, ..key("b", 1) }, "a join token"),
            (
                2,
                GrantRecord { volumes: Some(["v".to_owned()].into()), ..grant("b") },
                "a key or a host may be for some",
            ),
            (2, GrantRecord { volumes: Some([].into()), ..key("b", 1) }, "1 to 1000"),
            (
                2,
                GrantRecord { volumes: Some(["v".to_owned()].into()), role: Role::Metrics, ..key("b", 1) },
                "nothing to do with volumes",
            ),
            (2, GrantRecord { role: Role::Join, ..grant("b") }, "at most 7 days"),
            (
                2,
                GrantRecord { role: Role::Join, until: Some(NOW + JOIN_SECONDS_MAX + 1), ..grant("b") },
                "at most 7 days",
            ),
            (2, GrantRecord { project: "x".into(), ..grant("b") }, "no project 'x'"),
            (2, GrantRecord { until: Some(NOW), ..grant("b") }, "ended"),
        ] {
            let error = create(&mut memory, id, &bad).unwrap_err().to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
        create(&mut memory, 2, &GrantRecord { until: Some(NOW + 1), ..grant("b") }).unwrap();
        assert_eq!(memory.model().grants.len(), 2);
    }

    #[test]
    fn a_key_is_one_persons_and_no_nodes() {
        let mut memory = Memory::new();
        create(&mut memory, 1, &key("a", 1)).unwrap();
        let again = create(&mut memory, 2, &key("b", 1)).unwrap_err().to_string();
        assert!(again.contains("a's already"), "{again}");
        // A token's hash is of something else.
        create(&mut memory, 2, &GrantRecord { hash: SecretHash([1; 32]), ..grant("b") }).unwrap();
        let mut node = super::super::members::tests::node("uuid", "n1");
        node.key = PeerKey([9; 32]);
        run(&mut memory, |records| super::super::members::register_node(records, &node)).unwrap();
        let nodes = create(&mut memory, 3, &key("c", 9)).unwrap_err().to_string();
        assert!(nodes.contains("node n1's"), "{nodes}");
        let some = GrantRecord { volumes: Some(["v".to_owned()].into()), ..key("c", 3) };
        create(&mut memory, 3, &some).unwrap();
        let path = Key::Node(azekura_base::NodeId(1)).to_string();
        let mut record = NodeRecord::clone(memory.model().nodes.values().next().unwrap());
        record.understands.clear();
        memory.run(&Txn::new().put(&path, &record)).unwrap();
        let older = GrantRecord { name: "d".to_owned(), hash: SecretHash([4; 32]), ..some };
        let refused = create(&mut memory, 4, &older).unwrap_err().to_string();
        assert!(refused.contains("all volumes: n1"), "{refused}");
        create(&mut memory, 4, &GrantRecord { volumes: None, ..older }).unwrap();
    }

    fn host(name: &str, host: &str) -> GrantRecord {
        let host = HostRecord { name: host.parse().unwrap(), chap: None, mutual: None, unknown: Unknown::default() };
        GrantRecord { kind: GrantKind::Host, host: Some(host), ..grant(name) }
    }

    fn with_chap(grant: GrantRecord, chap: bool, mutual: bool) -> GrantRecord {
        let record = || ChapRecord { user: "me".to_owned(), sealed: "1:00".to_owned() };
        let host = grant.host.map(|host| HostRecord { chap: chap.then(record), mutual: mutual.then(record), ..host });
        GrantRecord { host, ..grant }
    }

    #[test]
    fn a_host_has_one_grant_and_no_other_role() {
        let mut memory = Memory::new();
        create(&mut memory, 1, &host("esx1", "iqn.1998-01.com.vmware:esx1")).unwrap();
        for (bad, told) in [
            (host("b", "iqn.1998-01.com.vmware:ESX1"), "is esx1's already"),
            (with_chap(host("b", "iqn.b"), false, true), "proves something himself"),
            (GrantRecord { role: Role::Admin, ..host("b", "iqn.b") }, "its role is 'user'"),
            (GrantRecord { host: None, ..host("b", "iqn.b") }, "says which one"),
            (GrantRecord { kind: GrantKind::Key, ..host("b", "iqn.b") }, "no other does"),
            (GrantRecord { volumes: Some([].into()), ..host("b", "iqn.b") }, "1 to 1000"),
        ] {
            let error = create(&mut memory, 2, &bad).unwrap_err().to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
        let some = GrantRecord { volumes: Some(["v".to_owned()].into()), ..host("b", "nqn.2014-08.org.nvmexpress:b") };
        create(&mut memory, 2, &some).unwrap();
        run(&mut memory, |records| revoke_grant(records, GrantId(1))).unwrap();
        create(&mut memory, 3, &host("esx1", "iqn.1998-01.com.vmware:esx1")).unwrap();
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let mut memory = Memory::new();
        create(&mut memory, 1, &host("esx1", "iqn.a")).unwrap();
        create(&mut memory, 2, &key("k", 1)).unwrap();
        let foreign = GrantRecord { volumes: Some(["p/v".to_owned()].into()), ..host("b", "iqn.b") };
        for (bad, wanted) in [
            (host("b", "iqn.a"), "'azekura host remove esx1'"),
            (key("b", 1), "'azekura key revoke k'"),
            (host("esx1", "iqn.b"), "'azekura host remove esx1'"),
            (foreign, "--project p"),
        ] {
            let told = create(&mut memory, 3, &bad).unwrap_err().hint().unwrap();
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
    }

    #[test]
    fn a_lost_answer_is_found_out() {
        let mut memory = Memory::new();
        create(&mut memory, 1, &grant("a")).unwrap();
        let create = |uncertain| attempt(&memory, uncertain, |r| create_grant(r, GrantId(1), &grant("a"), NOW));
        assert!(matches!(create(true), Ok(Step::Done((), _))));
        assert!(create(false).is_err());
        let revoke = |uncertain| attempt(&memory, uncertain, |records| revoke_grant(records, GrantId(9)));
        assert!(matches!(revoke(true), Ok(Step::Done((), _))));
        assert!(revoke(false).is_err());
    }

    #[test]
    fn of_two_with_one_name_one_is_made() {
        let mut memory = Memory::new();
        let late = txn_of(create_grant(&Records::known(memory.model()), GrantId(1), &grant("a"), NOW));
        create(&mut memory, 2, &grant("a")).unwrap();
        assert_eq!(memory.run(&late), None);
        let late = txn_of(revoke_grant(&Records::known(memory.model()), GrantId(2)));
        run(&mut memory, |records| revoke_grant(records, GrantId(2))).unwrap();
        assert_eq!(memory.run(&late), None);
    }
}
