//! Limits of one group, and the pace of its clock.

/// Time between two calls of [`crate::Group::tick`].
pub const TICK: std::time::Duration = std::time::Duration::from_millis(100);
/// Most writes of one group that may be prepared and not committed; further ones are asked to come again.
pub const PENDING_WRITES_MAX: usize = 4096;
/// Most writes of one group that wait for a merge to finish.
pub const WAITING_WRITES_MAX: usize = 1024;
/// What a primary asks its surroundings is numbered from its epoch, shifted by this.
pub(crate) const REIGN_SHIFT: u32 = 32;
