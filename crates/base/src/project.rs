//! Projects: whose a volume is, by its name (docs/decisions/0037-who-may.md).
//!
//! The volume `v` of the project `p` is called `p/v` everywhere: by clients of every protocol, by the API, and in the
//! configuration. Volumes of the project [`DEFAULT_PROJECT`] have no `/` in their names. So nothing else can say
//! otherwise than the name.

use crate::Role;

/// The project of volumes that belong to no other. It is always there, and has no quota.
pub const DEFAULT_PROJECT: &str = "default";

/// The project of a volume, by its name or by that of a snapshot of it (`VOLUME@SNAPSHOT`).
#[must_use]
pub fn project_of(export: &str) -> &str {
    export.split_once('/').map_or(DEFAULT_PROJECT, |(project, _)| project)
}

/// Whose volumes somebody has to do with: what is outside is not there for him.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bounds {
    /// None: those of all projects.
    All,
    /// Those of one project.
    Project(String),
}

impl Bounds {
    /// Those of somebody with this role, whose grant is about this project.
    #[must_use]
    pub fn of(role: Role, project: &str) -> Bounds {
        if role.has_project() { Bounds::Project(project.to_owned()) } else { Bounds::All }
    }

    /// Whether a volume, or a snapshot, of this name is inside.
    #[must_use]
    pub fn sees(&self, export: &str) -> bool {
        self.has(project_of(export))
    }

    /// Whether a project is inside.
    #[must_use]
    pub fn has(&self, project: &str) -> bool {
        match self {
            Bounds::All => true,
            Bounds::Project(own) => own == project,
        }
    }

    /// The project, if there is but one.
    #[must_use]
    pub fn project(&self) -> Option<&str> {
        match self {
            Bounds::All => None,
            Bounds::Project(own) => Some(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_a_volume_is() {
        for (name, project) in [
            ("v", "default"),
            ("v@s", "default"),
            ("p/v", "p"),
            ("p/v@s", "p"),
            ("p/", "p"),
            ("/v", ""),
            ("", "default"),
        ] {
            assert_eq!(project_of(name), project, "{name}");
        }
    }

    #[test]
    fn bounds_keep_projects_apart() {
        let own = Bounds::of(Role::User, "p");
        assert!(own.sees("p/v") && own.sees("p/v@s") && own.project() == Some("p"));
        for other in ["v", "pp/v", "P/v", "p", "q/p", "p@s/v", "/p/v", "default/p"] {
            assert!(!own.sees(other), "{other}");
        }
        let default = Bounds::of(Role::Csi, DEFAULT_PROJECT);
        assert!(default.sees("v") && !default.sees("p/v"));
        for role in Role::ALL {
            assert_eq!(Bounds::of(role, "p").project().is_some(), role.has_project(), "{role}");
        }
        assert!(Bounds::of(Role::Admin, "p").sees("q/v"));
    }
}
