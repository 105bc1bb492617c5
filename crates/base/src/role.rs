//! Roles, and what each of them may (docs/decisions/0037-who-may.md).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a request to the API needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// Nothing: anybody may ask.
    Nothing,
    /// Any grant, whatever its role.
    Grant,
    /// To read one node's counters and health.
    Metrics,
    /// To see volumes, snapshots and storage classes.
    SeeVolumes,
    /// To make, change, open and delete volumes and snapshots.
    UseVolumes,
    /// To see nodes, devices, groups, counters and settings.
    SeeCluster,
    /// To drain, scrub and remove, and to change storage classes.
    Operate,
    /// To make, see and revoke grants of a project.
    Grants,
    /// To change settings and to read the audit.
    Administer,
    /// To become a node.
    Join,
    /// To be a node.
    Node,
    /// To be a node, and nobody else: not even who may do all the rest.
    Secrets,
}

impl Needs {
    /// All of them.
    pub const ALL: [Needs; 12] = [
        Needs::Nothing,
        Needs::Grant,
        Needs::Metrics,
        Needs::SeeVolumes,
        Needs::UseVolumes,
        Needs::SeeCluster,
        Needs::Operate,
        Needs::Grants,
        Needs::Administer,
        Needs::Join,
        Needs::Node,
        Needs::Secrets,
    ];

    /// As the API's description has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Needs::Nothing => "nothing",
            Needs::Grant => "grant",
            Needs::Metrics => "metrics",
            Needs::SeeVolumes => "see_volumes",
            Needs::UseVolumes => "use_volumes",
            Needs::SeeCluster => "see_cluster",
            Needs::Operate => "operate",
            Needs::Grants => "grants",
            Needs::Administer => "administer",
            Needs::Join => "join",
            Needs::Node => "node",
            Needs::Secrets => "secrets",
        }
    }

    /// What it is to have it, for people: "… may not {this}".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Needs::Nothing | Needs::Grant => "ask",
            Needs::Metrics => "read a node's counters",
            Needs::SeeVolumes => "see volumes",
            Needs::UseVolumes => "make, change, open or delete volumes and snapshots",
            Needs::SeeCluster => "see nodes, devices, groups and settings",
            Needs::Operate => "drain, scrub, remove, or change storage classes",
            Needs::Grants => "make, see or revoke grants",
            Needs::Administer => "change settings or read the audit",
            Needs::Join => "make a machine a node, for which there are join tokens",
            Needs::Node => "ask what nodes ask each other",
            Needs::Secrets => "have the secrets that nodes share",
        }
    }
}

/// What somebody is to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May everything, but for having the secrets that nodes share.
    Admin,
    /// Cares for nodes and devices: drains, scrubs, removes, changes storage classes. Sees all volumes, opens and
    /// deletes none.
    Operator,
    /// Has the volumes and snapshots of a project, and its grants.
    Owner,
    /// Has the volumes and snapshots of a project.
    User,
    /// An orchestrator's volume driver: as a user.
    Csi,
    /// Reads nodes' counters and health.
    Metrics,
    /// A node, proved by its key; no token has this role.
    Node,
    /// Becomes a node, once; join tokens alone have this role.
    Join,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 8] =
        [Role::Admin, Role::Operator, Role::Owner, Role::User, Role::Csi, Role::Metrics, Role::Node, Role::Join];

    /// What this role has; the one table.
    const fn has(self) -> &'static [Needs] {
        use Needs as N;
        match self {
            Role::Admin => &[
                N::Metrics,
                N::SeeVolumes,
                N::UseVolumes,
                N::SeeCluster,
                N::Operate,
                N::Grants,
                N::Administer,
                N::Node,
            ],
            Role::Operator => &[N::Metrics, N::SeeVolumes, N::SeeCluster, N::Operate],
            Role::Owner => &[N::SeeVolumes, N::UseVolumes, N::Grants],
            Role::User | Role::Csi => &[N::SeeVolumes, N::UseVolumes],
            Role::Metrics => &[N::Metrics],
            Role::Node => &[N::Node, N::Secrets],
            Role::Join => &[N::Join],
        }
    }

    /// Whether somebody with this role may do what `needs` this.
    #[must_use]
    pub fn may(self, needs: Needs) -> bool {
        matches!(needs, Needs::Nothing | Needs::Grant) || self.has().contains(&needs)
    }

    /// Whether this is a role in one project, and nothing outside of it.
    #[must_use]
    pub const fn has_project(self) -> bool {
        match self {
            Role::Owner | Role::User | Role::Csi => true,
            Role::Admin | Role::Operator | Role::Metrics | Role::Node | Role::Join => false,
        }
    }

    /// Whether somebody with this role may make, see and revoke grants of the `other` role.
    #[must_use]
    pub fn may_grant(self, other: Role) -> bool {
        match self {
            Role::Admin => other != Role::Node,
            Role::Owner => matches!(other, Role::Owner | Role::User | Role::Csi),
            _ => false,
        }
    }

    /// The role's name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::Owner => "owner",
            Role::User => "user",
            Role::Csi => "csi",
            Role::Metrics => "metrics",
            Role::Node => "node",
            Role::Join => "join",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Nobody has such a role: the text says which there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleError(String);

impl fmt::Display for RoleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no role: admin, operator, owner, user, csi or metrics", self.0)
    }
}

impl std::error::Error for RoleError {}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Role, RoleError> {
        let found = Role::ALL.into_iter().find(|role| !matches!(role, Role::Node | Role::Join) && role.word() == text);
        found.ok_or_else(|| RoleError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the decision, said a second time.
    #[test]
    fn roles_may_what_the_decision_says() {
        let table = [
            ("admin", "metrics see_volumes use_volumes see_cluster operate grants administer node"),
            ("operator", "metrics see_volumes see_cluster operate"),
            ("owner", "see_volumes use_volumes grants"),
            ("user", "see_volumes use_volumes"),
            ("csi", "see_volumes use_volumes"),
            ("metrics", "metrics"),
            ("node", "node secrets"),
            ("join", "join"),
        ];
        for (role, (word, needs)) in Role::ALL.into_iter().zip(table) {
            assert_eq!(role.word(), word);
            for need in Needs::ALL {
                let said = ["nothing", "grant"].contains(&need.word()) || needs.split(' ').any(|n| n == need.word());
                assert_eq!(role.may(need), said, "{role} {need:?}");
            }
        }
    }

    #[test]
    fn nobody_grants_more_than_he_has() {
        for giver in Role::ALL {
            for role in Role::ALL.into_iter().filter(|role| giver.may_grant(*role)) {
                assert!(giver.may(Needs::Grants) && role != Role::Node);
                // Who may join gives away what nobody has but a machine that has joined: an admin's to give.
                let has =
                    |needs| giver.may(needs) || !role.may(needs) || (needs == Needs::Join && giver == Role::Admin);
                assert!(Needs::ALL.into_iter().all(has), "{giver}: {role}");
            }
        }
    }

    #[test]
    fn roles_are_their_words() {
        for role in Role::ALL {
            let read = role.word().parse();
            assert_eq!(
                read.ok(),
                Some(role).filter(|role| ![Role::Node, Role::Join].contains(role)),
                "no token is a node's"
            );
        }
        assert!("root".parse::<Role>().unwrap_err().to_string().contains("operator"));
    }
}
