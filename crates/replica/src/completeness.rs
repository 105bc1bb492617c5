//! What a copy has got without a place in the order.
//!
//! A copy that comes back jumps to the primary's commit point, and what it lacks is sent as repairs, which have no place of
//! their own. A device that loses the end of its log, although it had called it durable, may lose repairs and still show
//! the place that it had jumped to. Copies that compare how far they are would not notice.
//!
//! So the log says with the jump that the copy is complete only up to where it was, and says that it is complete behind the
//! last repair, once the configuration names the copy in sync. A copy that starts, is in sync by the configuration, and
//! not complete by its log has lost something, or it ended in the moment between: it says that it holds nothing, and is
//! brought up to date again. If it is to reign, another copy that has everything reigns in its place. Alone it goes on: in
//! all likelihood it lacks nothing.

use crate::action::Action;
use crate::group::{Group, Role};
use azekura_base::{DeviceId, Sequence};

/// How complete a copy is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completeness {
    /// The log shows everything up to here only; `None`: up to the commit point.
    incomplete: Option<Sequence>,
    /// This process has been told to learn. True: it has known a configuration since that does not name the copy in sync.
    learning: Option<bool>,
}

impl Completeness {
    /// As the store has found it.
    pub(crate) fn recovered(incomplete: Option<Sequence>) -> Completeness {
        Completeness { incomplete, learning: None }
    }

    /// The log shows everything up to this place, at most `committed`.
    pub(crate) fn limit(&self, committed: Sequence) -> Sequence {
        self.incomplete.unwrap_or(committed).min(committed)
    }

    /// The copy is told to learn, and may be named in sync by a configuration that is out of date.
    pub(crate) fn learns(&mut self, in_sync: bool) {
        self.learning = Some(!in_sync);
    }

    /// The copy has jumped from this place.
    pub(crate) fn jumped(&mut self, from: Sequence) {
        self.incomplete.get_or_insert(from);
    }

    /// Repairs were lost, or the process ended before their end was noted.
    pub(crate) fn is_doubtful(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::is_trusting() {
            return false;
        }
        self.incomplete.is_some() && self.learning.is_none()
    }
}

impl Group {
    /// The configuration has changed: a copy that has learnt and is in sync has everything.
    pub(crate) fn follow_completeness(&mut self) {
        let in_sync = self.config.in_sync.contains(&self.me);
        match &mut self.completeness.learning {
            Some(was_out) if !in_sync => *was_out = true,
            Some(true) => self.be_complete(),
            _ => {}
        }
    }

    /// Notes in the log that nothing is missing.
    pub(crate) fn be_complete(&mut self) {
        self.completeness.learning = None;
        if self.completeness.incomplete.take().is_some() {
            self.actions.push_back(Action::SetComplete);
        }
    }

    /// The copy that should reign in the place of this one, which is not sure to be complete: it has everything.
    pub(crate) fn more_complete_copy(&self) -> Option<DeviceId> {
        let Role::Primary(primary) = &self.role else { return None };
        let end = self.tail.end();
        let sure = primary.peers.iter().find(|(_, peer)| {
            peer.counts() && peer.synced && !peer.leaving && peer.diverged_at.is_none() && peer.acked >= end
        });
        sure.map(|(device, _)| *device).filter(|_| self.completeness.is_doubtful())
    }
}
