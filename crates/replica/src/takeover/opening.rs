//! From the confirmed set to the open epoch: what was prepared before is committed, and the epoch is recorded everywhere.

use crate::group::{Group, Role};

impl Group {
    /// Records the epoch on every copy once the tail is committed everywhere.
    pub(crate) fn try_record(&mut self) {
        let keep = self.tail.committed();
        let Role::Primary(primary) = &mut self.role else { return };
        // 0007: no epoch opens before every in-sync copy has said how far it is, and holds what this one holds.
        let all_there = primary.counting().all(|peer| peer.synced);
        if primary.takeover.opens_at().is_some() || keep != self.tail.end() || !all_there {
            return;
        }
        if let Some(device) = self.more_complete_copy() {
            return self.propose_primary(device);
        }
        let Role::Primary(primary) = &mut self.role else { return };
        primary.takeover.record(keep);
        let epoch = primary.epoch();
        self.start_epoch(epoch, keep);
        self.greet_all();
    }

    /// The epoch is open when its record is durable on every copy.
    pub(crate) fn try_open(&mut self) {
        let Role::Primary(primary) = &mut self.role else { return };
        // 0004: an epoch begins durably on every copy.
        let recorded = self.epochs.recorded() == primary.epoch() && !self.epochs.is_recording();
        if recorded && primary.counting().all(|peer| peer.opened) && primary.takeover.open() {
            // Whatever is missing here is missing everywhere.
            self.be_complete();
        }
    }
}
