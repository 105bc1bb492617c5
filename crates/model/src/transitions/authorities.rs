//! Certificate authorities are made, one after the other (docs/decisions/0037-who-may.md).

use crate::{AuthorityRecord, Key, Model, Outcome, Records, Step, Txn};

/// Makes an authority, whose number is the one after the newest. Of two at once one is made; both get that one.
///
/// # Errors
/// When a record can't be read.
pub fn create_authority(records: &Records<'_>, authority: &AuthorityRecord) -> Outcome<AuthorityRecord> {
    let found = records.find(&Key::Authority(authority.number))?;
    match found.record::<AuthorityRecord>()? {
        Some(existing) => Ok(Step::Done(existing, found.mod_revision())),
        None => Ok(Step::Run(Txn::new().when_as(&found).put(&found.key, authority), authority.clone())),
    }
}

/// The newest authority, which signs.
#[must_use]
pub fn newest_authority(model: &Model) -> Option<&AuthorityRecord> {
    model.authorities.values().next_back().map(|authority| &authority.record)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{run, txn_of};
    use super::*;
    use crate::{Memory, Unknown};

    fn authority(number: u32, certificate: &str) -> AuthorityRecord {
        AuthorityRecord {
            number,
            certificate: certificate.to_owned(),
            signed_by_previous: None,
            created: String::new(),
            by: "n1".to_owned(),
            unknown: Unknown::default(),
        }
    }

    #[test]
    fn of_two_with_one_number_both_get_the_same() {
        let mut memory = Memory::new();
        assert_eq!(newest_authority(memory.model()), None);
        let late = txn_of(create_authority(&Records::known(memory.model()), &authority(1, "late")));
        for certificate in ["first", "second"] {
            let made = run(&mut memory, |records| create_authority(records, &authority(1, certificate))).unwrap();
            assert_eq!(made, authority(1, "first"));
        }
        assert_eq!(memory.run(&late), None);
        run(&mut memory, |records| create_authority(records, &authority(2, "next"))).unwrap();
        assert_eq!(newest_authority(memory.model()), Some(&authority(2, "next")));
        assert_eq!(memory.model().authorities.len(), 2);
    }
}
