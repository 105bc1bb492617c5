//! A group's condition, for people.

use azekura_base::DeviceId;

/// A group's condition on this copy, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Primary, with every in-sync copy following.
    Active,
    /// Primary, waiting for an in-sync copy to answer.
    WaitingForCopy(DeviceId),
    /// Primary that nobody has asked for anything since this in-sync copy fell silent: the next request leaves that
    /// copy behind and is served, if the configuration can be changed.
    Idle(DeviceId),
    /// Primary, but a copy has lost writes and must be rebuilt.
    CopyLost(DeviceId),
    /// Primary, but a copy that is out of sync has committed writes that the group does not know of. That copy is left
    /// alone, since it may hold all that is left of those writes.
    CopyAhead(DeviceId),
    /// Primary, with fewer copies in sync than the class demands for writing; or there will be fewer when the next
    /// request leaves silent ones behind.
    ReadOnly,
    /// Primary by configuration, opening its epoch.
    Opening,
    /// Secondary with a lease.
    Following,
    /// Secondary that does not hear its primary.
    WithoutPrimary,
    /// In sync by the configuration, but its device's map was made from the log alone: the copy waits for a primary
    /// that compares it with its own.
    Unproven,
    /// Not in the group's in-sync set.
    OutOfSync,
}
