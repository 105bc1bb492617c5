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
}

impl JobUnit {
    /// As the API has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            JobUnit::Groups => "groups",
            JobUnit::Layers => "layers",
            JobUnit::Volumes => "volumes",
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
