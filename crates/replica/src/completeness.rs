//! What a copy has got without a place in the order.
//!
//! A copy that comes back jumps to the primary's commit point, and the blocks that the copy lacks are sent as repairs,
//! which have no place of their own. A device that loses the end of its log, although the device had called that end
//! durable, may lose repairs and still show the place of the jump. Copies that compare how far they are would not
//! notice.
//!
//! So the log says with the jump that the copy is complete only up to the place where it was; and behind the last
//! repair, once the configuration names the copy in sync, that the copy is complete (decision 0007). The configuration
//! alone does not say so: news of a moment in which the copy was in sync may come when the copy is out of sync again
//! and is brought up to date once more. A heartbeat of the primary does: it goes only to copies that lack nothing.
//!
//! A copy that starts, is in sync by the configuration, and is not complete by its log has lost something, or its
//! process ended in the moment between. Such a copy says that it holds nothing, and is brought up to date again. If it
//! is to be primary, another copy that has everything is primary in its place. If there is no other, the copy goes on:
//! in all likelihood it lacks nothing.
//!
//! A copy is *unproven* whose device has lost its map and got one that was made from the log alone (decision 0061). Of
//! such a copy that is not likely at all, and it may have too much as well. So it is as doubtful, and does not go on
//! alone either: it claims no group, and where a write does not wait for all copies it gives no vote.

use azekura_base::Sequence;

/// How complete a copy is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completeness {
    /// The log shows everything up to here only; `None`: up to the commit point.
    incomplete: Option<Sequence>,
    /// What it holds may be older than what it held.
    unproven: bool,
    /// This process has been told to learn. True: the primary has counted on the copy since, so nothing is missing.
    learning: Option<bool>,
}

impl Completeness {
    /// As the store has found it.
    pub(crate) fn recovered(incomplete: Option<Sequence>, unproven: bool) -> Completeness {
        let nothing = unproven.then_some(Sequence::ZERO);
        Completeness { incomplete: nothing.or(incomplete), unproven, learning: None }
    }

    /// The log shows everything up to this place, at most `committed`.
    pub(crate) fn limit(&self, committed: Sequence) -> Sequence {
        self.incomplete.unwrap_or(committed).min(committed)
    }

    /// The primary brings the copy up to date.
    pub(crate) fn learns(&mut self) {
        self.learning = Some(false);
    }

    /// The primary counts on the copy: each repair is durable here.
    pub(crate) fn counts(&mut self) {
        self.learning = self.learning.map(|_| true);
    }

    /// Repairs may still be missing, whatever the configuration that the copy knows says.
    pub(crate) fn is_learning(&self) -> bool {
        self.learning == Some(false)
    }

    /// The copy has jumped from this place.
    pub(crate) fn jumped(&mut self, from: Sequence) {
        self.incomplete.get_or_insert(from);
    }

    /// Repairs were lost, or the process ended before the log said that all of them are there.
    pub(crate) fn is_doubtful(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::is_trusting() {
            return false;
        }
        self.incomplete.is_some() && self.learning.is_none()
    }

    /// What the copy holds must not count before it has been compared with another one.
    pub(crate) fn is_unproven(&self) -> bool {
        self.unproven && self.is_doubtful()
    }

    /// The copy has learnt, and the primary counts on it: when the configuration names it in sync, too, it has
    /// everything.
    pub(crate) fn has_learnt(&self) -> bool {
        self.learning == Some(true)
    }

    /// Nothing is missing. True when the log says otherwise.
    pub(crate) fn complete(&mut self) -> bool {
        (self.learning, self.unproven) = (None, false);
        self.incomplete.take().is_some()
    }
}
