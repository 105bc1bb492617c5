//! Which clients may open what: by the keys that they prove, and hosts by the names that they say
//! (docs/decisions/0037-who-may.md, docs/decisions/0053-hosts.md).

use crate::hosts::{HostRight, Named, Refused};
use azekura_base::{Bounds, DEFAULT_PROJECT, HostName, Needs, PeerKey, Role, project_of};
use std::collections::{BTreeMap, BTreeSet};

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// Somebody of whom nothing is asked: whoever can come to this door may use it.
    #[default]
    Unasked,
    /// Somebody of whom nothing is asked at a door on a network: as far as nobody is asked, he has to do with the
    /// default project.
    Anybody,
    /// Somebody who was asked for a key, and the one that he has proved.
    Asked(Option<PeerKey>),
    /// A host, that says what it is called; `None`: it has not been let in yet.
    Host(Option<Named>),
}

/// What the owner of a grant may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// His name, for people.
    pub name: String,
    /// His role.
    pub role: Role,
    /// Whose volumes this is about.
    pub bounds: Bounds,
    /// Of these, the volumes that this is about, with their snapshots; `None`: all.
    pub volumes: Option<BTreeSet<String>>,
}

/// What those may of whom a key is asked, and hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// What is below is what the configuration has: nothing is known yet else.
    pub is_known: bool,
    /// Nobody needs a right; who has one has no more than that.
    pub open: bool,
    /// All nodes know that a host may come through several of them (0048).
    pub host_paths: bool,
    /// Rights, by key.
    pub rights: BTreeMap<PeerKey, Right>,
    /// Those of hosts, by name.
    pub hosts: BTreeMap<HostName, HostRight>,
}

/// What one connection may.
#[derive(Clone, Copy, Debug)]
pub(crate) enum May<'a> {
    /// See and open all.
    All,
    /// See and open what is of no other project than the default one.
    Default,
    /// What this right says.
    As(&'a Right),
    /// Not even ask.
    Nothing,
}

impl Admission {
    /// Whether hosts have paths: they have, before the configuration says otherwise.
    pub(crate) fn has_host_paths(&self) -> bool {
        self.host_paths || !self.is_known
    }

    pub(crate) fn of(&self, who: &Who) -> May<'_> {
        let key = match who {
            Who::Unasked => return May::All,
            Who::Anybody if self.open => return May::All,
            Who::Anybody => return May::Default,
            Who::Host(None) => return May::Nothing,
            Who::Host(Some(named)) => {
                return match self.right_of(named) {
                    Ok(Some(right)) => May::As(right),
                    Ok(None) => May::All,
                    Err(Refused) => May::Nothing,
                };
            }
            Who::Asked(key) => *key,
        };
        match key.and_then(|key| self.rights.get(&key)) {
            Some(right) if right.role.may(Needs::SeeVolumes) => May::As(right),
            Some(_) => May::Nothing,
            None if self.open => May::All,
            None => May::Nothing,
        }
    }

    /// Whether what has this name may be there for him, once this node knows it. Before it is known whether anybody is
    /// an administrator, what is of any project may.
    pub(crate) fn may_come(&self, who: &Who, name: &str) -> bool {
        (*who == Who::Anybody && !self.is_known) || self.of(who).sees(name)
    }

    /// What to tell somebody who may not even ask. What is there is not to be guessed from it.
    pub(crate) fn refusal(&self, who: &Who) -> Option<String> {
        let May::Nothing = self.of(who) else { return None };
        Some(match who {
            Who::Host(_) => "this host is not let in here: an administrator does that (azekura host add)".to_owned(),
            Who::Asked(Some(key)) => format!(
                "the key {key} of the client's certificate opens nothing here: an administrator lets it in (azekura key \
                 add)"
            ),
            _ => "show a client certificate: an administrator makes one (azekura key new)".to_owned(),
        })
    }
}

impl May<'_> {
    /// Whether what has this name is there at all: for whoever does not see it, it is not.
    pub fn sees(self, name: &str) -> bool {
        match self {
            May::All => true,
            May::Default => project_of(name) == DEFAULT_PROJECT,
            May::Nothing => false,
            May::As(right) => {
                let volume = name.split_once('@').map_or(name, |(volume, _)| volume);
                right.bounds.sees(name) && right.volumes.as_ref().is_none_or(|volumes| volumes.contains(volume))
            }
        }
    }

    /// Within which bounds it sees all that there is; `None`: it sees less, or nothing.
    pub fn sees_all_within(self) -> Option<Bounds> {
        match self {
            May::All => Some(Bounds::All),
            May::Default => Some(Bounds::Project(DEFAULT_PROJECT.to_owned())),
            May::As(Right { volumes: None, bounds, .. }) => Some(bounds.clone()),
            May::As(_) | May::Nothing => None,
        }
    }

    /// Why it opens nothing of what it sees.
    pub fn why_not_open(self) -> Option<String> {
        match self {
            May::As(right) if !right.role.may(Needs::UseVolumes) => {
                Some(format!("{} has the role '{}', which sees volumes and opens none", right.name, right.role))
            }
            May::Nothing => Some("it is not for this client any more".to_owned()),
            _ => None,
        }
    }

    /// Whether a connection that has opened this may go on.
    pub fn opens(self, name: &str) -> bool {
        self.sees(name) && self.why_not_open().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PeerKey = PeerKey([1; 32]);
    const OTHER: PeerKey = PeerKey([2; 32]);

    fn admission(open: bool, role: Role, volumes: Option<&[&str]>) -> Admission {
        let volumes = volumes.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let right = Right { name: "ann".to_owned(), role, bounds: Bounds::All, volumes };
        Admission { is_known: true, open, rights: BTreeMap::from([(KEY, right)]), ..Admission::default() }
    }

    #[test]
    fn roles_open_what_the_table_says() {
        for role in Role::ALL {
            let admission = admission(false, role, None);
            let may = admission.of(&Who::Asked(Some(KEY)));
            assert_eq!(may.sees("v"), role.may(Needs::SeeVolumes), "{role}");
            assert_eq!(may.opens("v"), role.may(Needs::UseVolumes), "{role}");
            assert_eq!(admission.refusal(&Who::Asked(Some(KEY))).is_some(), !may.sees("v"), "{role}");
        }
    }

    #[test]
    fn who_has_no_right_may_what_the_cluster_lets_anybody() {
        for open in [false, true] {
            let admission = admission(open, Role::User, Some(&["v"]));
            for who in [Who::Asked(None), Who::Asked(Some(OTHER))] {
                assert_eq!(admission.of(&who).opens("w"), open);
                assert_eq!(admission.refusal(&who).is_none(), open);
            }
            assert!(admission.of(&Who::Unasked).opens("w"));
            assert!(!admission.of(&Who::Asked(Some(KEY))).opens("w"), "who has a right has no more");
        }
    }

    #[test]
    fn a_volumes_snapshots_go_with_it_and_no_other_name_does() {
        let admission = admission(false, Role::User, Some(&["v"]));
        let may = admission.of(&Who::Asked(Some(KEY)));
        assert!(may.opens("v") && may.opens("v@monday") && may.sees_all_within().is_none());
        for other in ["w", "v2", "w@v", "", "@v", "V"] {
            assert!(!may.sees(other), "{other}");
        }
    }

    #[test]
    fn another_projects_volumes_are_not_there() {
        let of = |role, project: &str, volumes: Option<&[&str]>| {
            let mut admission = admission(false, role, volumes);
            admission.rights.values_mut().for_each(|right| right.bounds = Bounds::of(role, project));
            admission
        };
        let who = Who::Asked(Some(KEY));
        for (project, own, others) in [
            ("p", ["p/v", "p/v@s"], ["v", "q/v", "pp/v", "p"]),
            ("default", ["v", "v@s"], ["p/v", "p/v@s", "q/", "/v"]),
        ] {
            let admission = of(Role::User, project, None);
            let may = admission.of(&who);
            assert!(own.iter().all(|name| may.opens(name)), "{project}");
            assert!(others.iter().all(|name| !may.sees(name)), "{project}");
            assert_eq!(may.sees_all_within(), Some(Bounds::Project(project.to_owned())));
        }
        let outside = of(Role::User, "p", Some(&["v", "q/v"]));
        assert!(["v", "q/v", "p/v"].iter().all(|name| !outside.of(&who).sees(name)), "a list makes nothing one's own");
        let admin = of(Role::Admin, "p", None);
        assert!(admin.of(&who).opens("q/v") && admin.of(&who).sees_all_within() == Some(Bounds::All));
    }

    #[test]
    fn where_nobody_is_asked_on_a_network_there_is_the_default_project() {
        for open in [false, true] {
            let admission = admission(open, Role::User, None);
            let may = admission.of(&Who::Anybody);
            assert!(may.opens("v") && may.opens("v@s") && admission.refusal(&Who::Anybody).is_none());
            assert_eq!(may.sees("p/v"), open, "where anybody is an administrator, he sees all");
            assert_eq!(may.sees_all_within() == Some(Bounds::All), open);
        }
        let nothing_yet = Admission::default();
        assert!(!nothing_yet.of(&Who::Anybody).sees("p/v") && nothing_yet.may_come(&Who::Anybody, "p/v"));
        assert!(!nothing_yet.may_come(&Who::Asked(Some(KEY)), "v") && nothing_yet.may_come(&Who::Unasked, "p/v"));
        assert!(!admission(false, Role::User, None).may_come(&Who::Anybody, "p/v"));
    }
}
