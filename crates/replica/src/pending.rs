//! Prepared, uncommitted writes: the tail of the group's log.

use crate::action::Client;
use azekura_base::{BlockRange, Body, RequestId, Sequence, SessionId, WriteHeader};
use std::collections::VecDeque;
use std::time::Duration;

/// One prepared write.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// As this copy's log has it.
    pub(crate) header: WriteHeader,
    pub(crate) oldest: RequestId,
    /// What to send to secondaries; `None` when only the log has it.
    pub(crate) body: Option<Body>,
    /// Who waits for the commit, on the primary.
    pub(crate) client: Option<Client>,
    /// The blocks are those that the gateway sent, not merged ones.
    pub(crate) as_sent: bool,
    /// When the write was given its place.
    pub(crate) ordered_at: Duration,
}

/// The tail: places `committed + 1 ..= end`, without gaps.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    writes: VecDeque<Pending>,
    committed: Sequence,
}

impl Tail {
    pub(crate) fn new(committed: Sequence) -> Tail {
        Tail { writes: VecDeque::new(), committed }
    }

    pub(crate) fn committed(&self) -> Sequence {
        self.committed
    }

    /// The last prepared place.
    pub(crate) fn end(&self) -> Sequence {
        Sequence(self.committed.0 + self.writes.len() as u64)
    }

    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(crate) fn push(&mut self, write: Pending) {
        assert_eq!(write.header.sequence, self.end().next(), "the tail has no gaps");
        self.writes.push_back(write);
    }

    /// Takes the oldest write out: it is committed.
    pub(crate) fn commit_next(&mut self) -> Option<Pending> {
        let write = self.writes.pop_front()?;
        self.committed = write.header.sequence;
        Some(write)
    }

    /// Takes out everything after `keep`.
    pub(crate) fn truncate(&mut self, keep: Sequence) -> VecDeque<Pending> {
        assert!(keep >= self.committed, "committed writes are never dropped");
        let kept = (keep.0 - self.committed.0).min(self.writes.len() as u64) as usize;
        self.writes.split_off(kept)
    }

    pub(crate) fn get_mut(&mut self, sequence: Sequence) -> Option<&mut Pending> {
        let at = sequence.0.checked_sub(self.committed.0 + 1)?;
        self.writes.get_mut(at as usize)
    }

    /// True when an uncommitted write touches any of `blocks`.
    pub(crate) fn touches(&self, blocks: &BlockRange) -> bool {
        self.writes.iter().any(|write| write.header.range.overlaps(blocks))
    }

    /// True when an uncommitted write may change what `blocks` read as: one to the same place of the same layer, or of
    /// one that it may lie on, whose number is lower.
    pub(crate) fn may_show_in(&self, blocks: &BlockRange) -> bool {
        let layer = blocks.layer;
        self.writes
            .iter()
            .map(|write| write.header.range)
            .any(|range| range.layer <= layer && BlockRange { layer, ..range }.overlaps(blocks))
    }

    pub(crate) fn find(&mut self, session: SessionId, request: RequestId) -> Option<&mut Pending> {
        self.writes.iter_mut().find(|write| write.header.session == session && write.header.request == request)
    }
}
