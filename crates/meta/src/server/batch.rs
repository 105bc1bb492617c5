//! What goes to the disk in one commit.

use std::sync::Arc;

use super::state::Change;

/// What a batch of requests changed; the database writes it in one commit.
#[derive(Debug, Default)]
pub struct Batch {
    /// Changes of keys, in order.
    pub changes: Vec<Arc<Change>>,
    /// Leases with their new time to live; `None`: ended.
    pub leases: Vec<(i64, Option<i64>)>,
    /// New compaction revision.
    pub compacted: Option<i64>,
}

impl Batch {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.leases.is_empty() && self.compacted.is_none()
    }
}
