//! From the confirmed set to the open epoch: what was prepared before is committed, and the epoch is recorded
//! everywhere.

use crate::group::Group;
use crate::primary::Primary;

impl Primary {
    /// Every in-sync copy has said how far it is, and where the epoch begins is not decided yet.
    fn may_record(&self) -> bool {
        // 0007: no epoch opens before every in-sync copy holds what this one holds.
        self.takeover.opens_at().is_none() && self.counting().all(|peer| peer.synced)
    }

    /// Opens the epoch, which this copy has recorded, if every other copy in sync has, too. True when it was not open
    /// before.
    fn open(&mut self) -> bool {
        // 0004: an epoch begins durably on every copy.
        self.counting().all(|peer| peer.opened) && self.takeover.open()
    }
}

impl Group {
    /// Records the epoch on every copy once the tail is committed everywhere.
    pub(crate) fn try_record(&mut self) {
        let (keep, end) = (self.tail.committed(), self.tail.end());
        if keep != end || !self.primary().is_some_and(Primary::may_record) {
            return;
        }
        if let Some(device) = self.more_complete_copy() {
            return self.propose_primary(device);
        }
        let Some(primary) = self.primary_mut() else { return };
        primary.takeover.record(keep);
        let epoch = primary.epoch();
        self.start_epoch(epoch, keep);
        self.greet_all();
    }

    /// The epoch is open when its record is durable on every copy.
    pub(crate) fn try_open(&mut self) {
        let recorded = (!self.epochs.is_recording()).then(|| self.epochs.recorded());
        if self.primary_mut().is_some_and(|primary| recorded == Some(primary.epoch()) && primary.open()) {
            // Whatever is missing here is missing everywhere.
            self.be_complete();
        }
    }
}
