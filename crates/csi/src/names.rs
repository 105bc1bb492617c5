//! What the orchestrator's names are in Azekura.
//!
//! A volume's id is its name in Azekura, a snapshot's is `VOLUME@SNAPSHOT`: people see the same in `kubectl` and in
//! `azekura volume list`, and volumes that were made by hand can be used.

use tonic::Status;

use crate::Outcome;

/// The longest name in Azekura.
const LENGTH_MAX: usize = 127;
/// What begins the names of snapshots that were made together.
const GROUP: &str = "group-";
/// Digits of a hash that make a name unlike all others.
const HASH_DIGITS: usize = 32;

/// The name in Azekura for one of the orchestrator. One that Azekura can't have is replaced by what it can have of it
/// and a hash of all.
fn name(given: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let fits = given.len() <= LENGTH_MAX
        && given.chars().all(good)
        && given.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !given.starts_with(GROUP);
    if fits {
        return given.to_owned();
    }
    let hash = blake3::hash(given.as_bytes()).to_hex();
    let kept: String = given.chars().filter(|c| good(*c)).take(LENGTH_MAX - 2 - HASH_DIGITS).collect();
    format!("x{kept}-{}", &hash[..HASH_DIGITS])
}

fn given<'a>(what: &str, given: &'a str) -> Outcome<&'a str> {
    if given.is_empty() {
        return Err(Status::invalid_argument(format!("the request names no {what}")));
    }
    Ok(given)
}

/// A volume's name.
pub(crate) fn volume(text: &str) -> Outcome<String> {
    Ok(name(given("volume (name)", text)?))
}

/// A snapshot's name.
pub(crate) fn snapshot(text: &str) -> Outcome<String> {
    Ok(name(given("snapshot (name)", text)?))
}

/// The name of snapshots that are made together, which is also the group's id.
pub(crate) fn group(text: &str) -> Outcome<String> {
    let inner = name(given("group (name)", text)?);
    let kept: String = inner.chars().take(LENGTH_MAX - GROUP.len()).collect();
    if kept.len() == inner.len() {
        return Ok(format!("{GROUP}{inner}"));
    }
    let hash = blake3::hash(text.as_bytes()).to_hex();
    Ok(format!("{GROUP}{}", &hash[..HASH_DIGITS]))
}

/// The group of a snapshot of this name.
pub(crate) fn group_of(snapshot: &str) -> Option<&str> {
    snapshot.starts_with(GROUP).then_some(snapshot)
}

/// A volume's id that has to be there.
pub(crate) fn volume_id(text: &str) -> Outcome<&str> {
    given("volume (volume_id)", text)
}

/// A snapshot's id that has to be there.
pub(crate) fn snapshot_id(text: &str) -> Outcome<&str> {
    given("snapshot (snapshot_id)", text)
}

/// A group's id that has to be there.
pub(crate) fn group_id(text: &str) -> Outcome<&str> {
    given("group of snapshots (group_snapshot_id)", text)
}

/// A snapshot's id.
pub(crate) fn id_of(volume: &str, snapshot: &str) -> String {
    format!("{volume}@{snapshot}")
}

/// Volume and name of a snapshot; nothing where the id can be no snapshot's.
pub(crate) fn parts(id: &str) -> Option<(&str, &str)> {
    id.split_once('@').filter(|(volume, name)| !volume.is_empty() && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_stay_as_they_are() {
        assert_eq!(volume("pvc-6d3f.x_1").unwrap(), "pvc-6d3f.x_1");
        assert_eq!(snapshot("snapshot-1").unwrap(), "snapshot-1");
        assert_eq!(group("groupsnapshot-1").unwrap(), "group-groupsnapshot-1");
        assert_eq!(group_of("group-groupsnapshot-1"), Some("group-groupsnapshot-1"));
        assert_eq!(group_of("groupsnapshot-1"), None);
    }

    #[test]
    fn others_become_names_of_their_own() {
        let long = "a".repeat(200);
        let names = [&long, &"a".repeat(128), "a b", "a/b", "ab", "-ab", "é", "a@b", "group-x"];
        let made: std::collections::BTreeSet<String> = names.map(|name| volume(name).unwrap()).into();
        assert_eq!(made.len(), names.len());
        for name in made {
            assert!(name.len() <= LENGTH_MAX && name.starts_with(|c: char| c.is_ascii_alphanumeric()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), "{name}");
            assert_eq!(group_of(&name), None);
        }
        let groups = [group(&long).unwrap(), group(&"a".repeat(125)).unwrap(), group(&"a".repeat(126)).unwrap()];
        assert!(groups.iter().all(|name| name.len() <= LENGTH_MAX && group_of(name).is_some()), "{groups:?}");
        assert_ne!(groups[1], groups[2]);
        assert_eq!(volume("").unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn ids_of_snapshots() {
        assert_eq!(parts(&id_of("v", "s")), Some(("v", "s")));
        for odd in ["", "v", "@s", "v@"] {
            assert_eq!(parts(odd), None, "{odd}");
        }
    }
}
