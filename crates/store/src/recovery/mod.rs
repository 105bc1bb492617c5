//! Opening: the scan of the log from the last checkpoint to its end, and what each record found does at replay.

mod chain;
mod replay;
mod rereading;
mod scan;

pub(crate) use replay::Replay;
pub(crate) use scan::{Found, Recovery};
