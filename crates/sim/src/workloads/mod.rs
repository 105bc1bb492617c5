//! The workloads: who uses the cluster, and for what.

pub(crate) mod clients;
pub(crate) mod contents;
pub(crate) mod fsx;
pub(crate) mod lost;
pub(crate) mod preempter;
pub(crate) mod rekeys;
pub(crate) mod snapshots;
pub(crate) mod usurper;
