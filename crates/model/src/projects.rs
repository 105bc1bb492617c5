//! Projects: what belongs together, and how much of it there may be (docs/formats/projects.md).

use std::collections::BTreeSet;

use azekura_base::Size;
use serde::{Deserialize, Serialize};

use crate::{Unknown, VolumeRecord};

/// What a node's record says that it understands when it keeps projects apart. Versions before would serve volumes of
/// all projects to anybody, and count none.
pub const PROJECTS: &str = "projects";

/// As much as a project may have; `None`: as much as there is room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectQuota {
    /// Sum of its volumes' sizes, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<u64>,
    /// Snapshots of all its volumes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u64>,
    /// Sum of its volumes' limits, requests a second; each volume has a limit then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
}

/// What a project has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectUse {
    /// Sum of its volumes' sizes, bytes.
    pub bytes: u64,
    /// Volumes.
    pub volumes: u64,
    /// Snapshots of volumes that are there. Those of a deleted volume go with it.
    pub snapshots: u64,
    /// Sum of its volumes' limits, requests a second.
    pub iops: u64,
    /// Volumes without such a limit.
    pub unlimited: u64,
}

impl ProjectUse {
    /// What a volume is counted as, without its snapshots.
    #[must_use]
    pub fn of(volume: &VolumeRecord) -> ProjectUse {
        let iops = volume.limits.and_then(|limits| limits.iops);
        ProjectUse {
            bytes: volume.size_bytes,
            volumes: 1,
            snapshots: 0,
            iops: iops.unwrap_or(0),
            unlimited: u64::from(iops.is_none()),
        }
    }

    /// So many snapshots.
    #[must_use]
    pub fn of_snapshots(snapshots: u64) -> ProjectUse {
        ProjectUse { snapshots, ..ProjectUse::default() }
    }

    /// Each of two numbers put together; what is beyond all numbers stays at the largest.
    fn with(self, other: ProjectUse, put: fn(u64, u64) -> u64) -> ProjectUse {
        ProjectUse {
            bytes: put(self.bytes, other.bytes),
            volumes: put(self.volumes, other.volumes),
            snapshots: put(self.snapshots, other.snapshots),
            iops: put(self.iops, other.iops),
            unlimited: put(self.unlimited, other.unlimited),
        }
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, more: ProjectUse) -> ProjectUse {
        self.with(more, u64::saturating_add)
    }

    /// The difference, and 0 where that would be less.
    #[must_use]
    pub fn minus(self, less: ProjectUse) -> ProjectUse {
        self.with(less, u64::saturating_sub)
    }

    /// Whether nothing is there.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == ProjectUse::default()
    }
}

/// Of what there is a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Sizes of volumes.
    Bytes,
    /// Volumes.
    Volumes,
    /// Snapshots.
    Snapshots,
    /// Limits of volumes.
    Iops,
}

impl QuotaKind {
    pub(crate) const ALL: [QuotaKind; 4] =
        [QuotaKind::Bytes, QuotaKind::Volumes, QuotaKind::Snapshots, QuotaKind::Iops];

    /// The option of the command line that sets it.
    pub(crate) fn option(self) -> &'static str {
        match self {
            QuotaKind::Bytes => "bytes SIZE",
            QuotaKind::Volumes => "volumes N",
            QuotaKind::Snapshots => "snapshots N",
            QuotaKind::Iops => "iops N",
        }
    }

    /// So much of it, for people.
    pub(crate) fn amount(self, number: u64) -> String {
        match self {
            QuotaKind::Bytes => format!("{} of volumes", Size::new(number).exact()),
            QuotaKind::Volumes => format!("{number} volume{}", if number == 1 { "" } else { "s" }),
            QuotaKind::Snapshots => format!("{number} snapshot{}", if number == 1 { "" } else { "s" }),
            QuotaKind::Iops => format!("{number} requests/s of limits"),
        }
    }

    pub(crate) fn quota(self, quota: &ProjectQuota) -> Option<u64> {
        match self {
            QuotaKind::Bytes => quota.bytes,
            QuotaKind::Volumes => quota.volumes,
            QuotaKind::Snapshots => quota.snapshots,
            QuotaKind::Iops => quota.iops,
        }
    }

    pub(crate) fn used(self, used: &ProjectUse) -> u64 {
        match self {
            QuotaKind::Bytes => used.bytes,
            QuotaKind::Volumes => used.volumes,
            QuotaKind::Snapshots => used.snapshots,
            QuotaKind::Iops => used.iops,
        }
    }
}

/// A project. Whose a volume is, its name says: [`azekura_base::project_of`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectRecord {
    /// Its unique name.
    pub name: String,
    /// The storage classes of its new volumes; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<BTreeSet<String>>,
    /// As much as it may have.
    #[serde(default)]
    pub quota: ProjectQuota,
    /// What it has: changed in every transaction that makes, changes or deletes a volume or snapshot of it.
    #[serde(default)]
    pub used: ProjectUse,
    /// Time of creation, RFC 3339.
    pub created: String,
    #[serde(flatten)]
    #[doc(hidden)]
    pub unknown: Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_the_document_has_it() {
        let golden = include_str!("../tests/golden/project.json");
        let project: ProjectRecord = serde_json::from_str(golden).unwrap();
        assert_eq!((project.quota.volumes, project.used.volumes), (Some(100), 2));
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&project).unwrap()), golden);
        let document = include_str!("../../../docs/formats/projects.md");
        let shown: Vec<&str> = document.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        assert!(shown.join("\n").contains(golden.trim_end()), "docs/formats/projects.md shows another record");
    }
}
