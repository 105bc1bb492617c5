//! A store looked at from outside: its device and its map are compared, its log is listed.

mod accounts;
mod check;
mod dump;
mod inside;
mod lineage;
mod untold;

pub(crate) use accounts::accounts_problems;
pub use check::{CheckReport, Finding, Severity, check};
pub use dump::{BatchInfo, Inspector, ReadDevice, RecordInfo, SegmentInfo, SuperblockInfo};
pub(crate) use inside::Inside;
