//! Grants are made and revoked (docs/decisions/0037-who-may.md).

use azekura_base::{GrantId, Role};

use super::volumes::{check_name, missing};
use crate::{DEFAULT_PROJECT, GrantKind, GrantRecord, Key, Kind, MetaError, Outcome, Records, Step, Txn};

/// The most grants that a cluster has: every node keeps all of them in memory.
pub const GRANTS_MAX: usize = 10_000;

/// A join token is good for so long, seconds, if nothing else is said.
pub const JOIN_SECONDS: u64 = 3_600;
/// And at most for so long: seven days.
pub const JOIN_SECONDS_MAX: u64 = 7 * 86_400;

/// Why nobody can have this grant. `now`: seconds since 1970.
fn refusal(grant: &GrantRecord, now: u64) -> Option<String> {
    if grant.kind == GrantKind::Token && grant.role == Role::Node {
        return Some("no token has the role 'node': nodes prove that themselves".to_owned());
    }
    if grant.role == Role::Join {
        let soon = grant.until.is_some_and(|until| until <= now.saturating_add(JOIN_SECONDS_MAX));
        if grant.kind != GrantKind::Token || !soon {
            return Some("a join token ends, after at most 7 days".to_owned());
        }
    }
    if grant.project != DEFAULT_PROJECT {
        return Some(format!("there is no project '{}', only '{DEFAULT_PROJECT}'", grant.project));
    }
    (!grant.counts_at(now)).then(|| "it would have ended already; give a time that is to come".to_owned())
}

/// Makes a grant. `id`: 64 random bits, the same in every attempt. `now`: seconds since 1970.
///
/// # Errors
/// When nobody can have such a grant, its name is taken, or there are [`GRANTS_MAX`].
pub fn create_grant(records: &Records<'_>, id: GrantId, grant: &GrantRecord, now: u64) -> Outcome<()> {
    check_name(Kind::Grant, &grant.name)?;
    let refused = |reason| MetaError::InvalidGrant { name: grant.name.clone(), reason };
    if let Some(reason) = refusal(grant, now) {
        return Err(refused(reason).into());
    }
    let [found, counter] = records.find_all([&Key::Grant(id), &Key::Counter("grants")])?;
    // A name has one grant: whoever makes another one moves the counter, too.
    let model = records.model(counter.mod_revision().max(found.mod_revision()))?;
    match found.record::<GrantRecord>()? {
        // Ours, of an attempt whose answer was lost.
        Some(existing) if records.is_uncertain() && existing == *grant => {
            return Ok(Step::Done((), found.mod_revision()));
        }
        Some(_) => return Err(refused(format!("its number {id} is another one's already; try again")).into()),
        None => {}
    }
    if model.grants.values().any(|other| other.name == grant.name) {
        return Err(MetaError::Exists { kind: Kind::Grant, name: grant.name.clone() }.into());
    }
    if model.grants.len() >= GRANTS_MAX {
        return Err(refused(format!("there are {GRANTS_MAX}, which is as many as may be; revoke some first")).into());
    }
    let txn = Txn::new().when_as(&found).when_as(&counter);
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
    use crate::{Memory, SecretHash, Unknown};

    const NOW: u64 = 1_000;

    fn grant(name: &str) -> GrantRecord {
        GrantRecord {
            name: name.to_owned(),
            kind: GrantKind::Token,
            hash: SecretHash([7; 32]),
            role: Role::User,
            project: DEFAULT_PROJECT.to_owned(),
            until: None,
            created: String::new(),
            by: "admin".to_owned(),
            unknown: Unknown::default(),
        }
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
