//! What may keep others from counting on this copy: its device, and the end of its process.

use crate::pace::Yields;
use std::time::Duration;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    /// This copy's device takes no more data.
    full: bool,
    /// The process is about to end: no promise is given any more.
    leaving: bool,
    /// This copy's device does not answer: no promise is given, and nobody is to wait for this copy.
    hung: bool,
    /// It has not answered for so long that it is out of service: nobody waits for it, however few copies are left.
    out: bool,
    /// This copy's device is slow: until when nobody is to wait for this copy.
    yields: Yields,
}

impl Condition {
    pub(crate) fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    pub(crate) fn set_hung(&mut self, hung: bool) {
        self.hung = hung;
    }

    pub(crate) fn set_out(&mut self, out: bool) {
        self.out = out;
    }

    pub(crate) fn is_out(&self) -> bool {
        self.out
    }

    pub(crate) fn is_hung(&self) -> bool {
        self.hung
    }

    /// The process is about to end.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// The device is slow, or is not any more.
    pub(crate) fn set_yields(&mut self, yields: Yields) {
        self.yields = yields;
    }

    /// This copy may claim the group: it goes on, and its device answers.
    pub(crate) fn may_claim(&self) -> bool {
        !self.leaving && !self.hung
    }

    /// The device hangs, or was slow a moment ago: this copy is not to be brought up to date yet.
    pub(crate) fn keeps_away(&self, now: Duration) -> bool {
        self.hung || self.yields.keep_away(now)
    }

    /// The device was slow a moment ago.
    pub(crate) fn was_slow(&self, now: Duration) -> bool {
        self.yields.keep_away(now)
    }

    /// Nobody is to wait for this copy, one of `in_sync`.
    pub(crate) fn gives_way(&self, in_sync: usize, now: Duration) -> bool {
        self.hung || self.yields.hold(in_sync, now)
    }
}
