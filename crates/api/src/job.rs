//! Jobs: what takes long, and how far it is.

use serde::{Deserialize, Serialize};

/// What kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Copies are made or brought up to date.
    Resync,
    /// A device is emptied.
    Drain,
    /// A device leaves the cluster for good.
    Removal,
    /// Copies are compared that somebody wants compared, block by block.
    Scrub,
    /// The maps of copies are compared, likewise.
    LightScrub,
    /// What deleted volumes and snapshots held alone is given back.
    Deletion,
    /// What deleted snapshots held, and later states of their volumes need, is handed on to these.
    Merge,
    /// Blocks of encrypted volumes get another data key.
    Rekey,
    /// Work that the version of whoever reads this does not know: later nodes list theirs, too.
    #[serde(other)]
    Other,
}

impl JobKind {
    /// As the API has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            JobKind::Resync => "resync",
            JobKind::Drain => "drain",
            JobKind::Removal => "removal",
            JobKind::Scrub => "scrub",
            JobKind::LightScrub => "light_scrub",
            JobKind::Deletion => "deletion",
            JobKind::Merge => "merge",
            JobKind::Rekey => "rekey",
            JobKind::Other => "other",
        }
    }
}

/// What is counted of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobUnit {
    /// Placement groups.
    Groups,
    /// States of volumes: those that snapshots keep, and those that clients write.
    Layers,
    /// Volumes.
    Volumes,
    /// Something that the version of whoever reads this does not know.
    #[serde(other)]
    Things,
}

impl JobUnit {
    /// As the API has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            JobUnit::Groups => "groups",
            JobUnit::Layers => "layers",
            JobUnit::Volumes => "volumes",
            JobUnit::Things => "things",
        }
    }
}

/// Something that takes long and goes on by itself, whoever has begun it. A job that is over is not listed any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JobView {
    /// By what it is known while it lasts, such as `drain/4`.
    pub id: String,
    /// What kind of work.
    pub kind: JobKind,
    /// What it is about, for people.
    pub what: String,
    /// What is counted.
    pub unit: JobUnit,
    /// So many are still to go.
    pub left: u64,
    /// Of so many at its beginning; null: nobody has counted them.
    pub total: Option<u64>,
    /// How far those are that are at work now; null: not known, or nothing is at work. An event of a watch has none.
    #[serde(default)]
    pub at_work: Option<JobProgress>,
}

/// How far work is that is done now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JobProgress {
    /// So many groups are at work.
    pub groups: u64,
    /// Chunks that they have to compare.
    pub chunks: u64,
    /// Of those, the ones that are done.
    pub chunks_done: u64,
    /// Payload bytes sent for them.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands are older than nodes during an upgrade: one job that they do not know must not take the list away.
    #[test]
    fn jobs_of_later_versions_are_read() {
        let listed = r#"[{ "id": "drain/4", "kind": "drain", "what": "n2", "unit": "groups", "left": 1, "total": null },
            { "id": "fly/1", "kind": "fly", "what": "n3", "unit": "wings", "left": 2, "total": 2, "later": true }]"#;
        let jobs: Vec<JobView> = serde_json::from_str(listed).unwrap();
        let kinds: Vec<(JobKind, JobUnit)> = jobs.iter().map(|job| (job.kind, job.unit)).collect();
        assert_eq!(kinds, [(JobKind::Drain, JobUnit::Groups), (JobKind::Other, JobUnit::Things)]);
    }
}
