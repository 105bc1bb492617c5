//! From the confirmed set to the open epoch: what was prepared before is committed, and the epoch is recorded
//! everywhere.

use crate::context::GroupCx;
use crate::primary::{Primary, Reign};

impl Primary {
    /// Every in-sync copy has said how far it is, and where the epoch begins is not decided yet.
    fn may_record(&self) -> bool {
        // 0007: no epoch opens before every in-sync copy holds what this one holds.
        self.takeover.opens_at().is_none() && self.counting().all(|peer| peer.follows)
    }

    /// Opens the epoch, which this copy has recorded, if every other copy in sync has, too. True when it was not open
    /// before.
    fn open(&mut self) -> bool {
        // 0004: an epoch begins durably on every copy.
        self.counting().all(|peer| peer.opened) && self.takeover.open()
    }

    /// Records the epoch on every copy once the tail is committed everywhere.
    pub(crate) fn try_record(&mut self, cx: &mut GroupCx) -> Reign {
        let (keep, end) = (cx.tail.committed(), cx.tail.end());
        if keep != end || !self.may_record() {
            return Ok(());
        }
        if let Some(device) = self.more_complete_copy(cx) {
            return self.propose_primary(cx, device);
        }
        if cx.completeness.is_unproven() {
            return Ok(()); // 0061
        }
        self.takeover.record(keep);
        let epoch = self.epoch();
        cx.start_epoch(epoch, keep);
        self.send_new_epoch_to_all(cx);
        Ok(())
    }

    /// The epoch is open when its record is durable on every copy.
    pub(crate) fn try_open(&mut self, cx: &mut GroupCx) {
        let recorded = (!cx.epochs.is_recording()).then(|| cx.epochs.recorded());
        if recorded == Some(self.epoch()) && self.open() {
            // Whatever is missing here is missing everywhere.
            cx.be_complete();
        }
    }
}
