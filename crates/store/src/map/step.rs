//! How an attempt at an operation on the map ends.

/// How an attempt at an operation ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    /// Leaves have been asked for.
    Loading,
    /// Its record is not durable yet.
    Blocked,
}
