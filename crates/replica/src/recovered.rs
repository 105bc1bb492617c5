//! What a copy begins with.

use azekura_base::{Epoch, Prepared, RequestId, Sequence, SessionId};
use bytes::Bytes;

/// What the store knows of a group after a start.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The epoch that this copy last entered.
    pub epoch: Epoch,
    /// Everything up to here is applied.
    pub committed: Sequence,
    /// The commit point was passed without the writes before it, and the log shows everything up to here only.
    pub incomplete: Option<Sequence>,
    /// The device's map was made from its log alone, and this copy has not been compared with another one since: it may
    /// hold what was overwritten or trimmed.
    pub unproven: bool,
    /// Prepared writes, from `committed + 1` on, without gaps.
    pub tail: Vec<Prepared>,
    /// What [`crate::Group::note`] gave at the checkpoint.
    pub note: Bytes,
    /// Writes committed since that checkpoint.
    pub committed_since: Vec<(SessionId, RequestId)>,
}
