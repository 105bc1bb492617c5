//! Copies get what they lack: blocks that changed while they were away, and blocks that are damaged.
//!
//! [`Repair`] is what a primary has under way for that, and this folder alone sees inside. Its steps are the primary's,
//! because they look at the copies and hold back writes:
//!
//! | state | steps | what |
//! |---|---|---|
//! | `resync.rs` | `resyncing.rs`, `comparing.rs` | copies that were away |
//! | `resync.rs` | `transfer.rs` | blocks on their way to a copy |
//! | `mend.rs` | `mending.rs` | blocks that can't be read |
//! | `scrub.rs`, with its own steps | `scrubbing.rs` | blocks that nobody has read for long |

mod comparing;
mod mend;
mod mending;
pub(crate) mod resync;
mod resyncing;
mod scrub;
mod scrubbing;
mod transfer;

pub(crate) use mend::is_whole;
pub use resync::ResyncProgress;

use crate::config::GroupConfig;
use azekura_base::{BlockRange, DeviceId, Epoch};
use mend::Mending;
use resync::Repairs;
use scrub::Scrub;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a primary has under way so that copies get what they lack.
pub(crate) struct Repair {
    /// Copies may be brought up to date now.
    may_resync: bool,
    /// Copies that had committed more than this one when they were to be brought up to date, and until when they are
    /// left alone (0007).
    ahead: BTreeMap<DeviceId, Duration>,
    repairs: Repairs,
    mending: Mending,
    scrub: Option<Scrub>,
}

impl Repair {
    /// Nothing is under way at the beginning of a reign.
    pub(crate) fn new(epoch: Epoch) -> Repair {
        let (repairs, mending) = (Repairs::new(epoch), Mending::default());
        Repair { may_resync: false, ahead: BTreeMap::new(), repairs, mending, scrub: None }
    }

    /// A name for a question that this primary asks, of its own device or of another copy.
    pub(crate) fn name(&mut self) -> u64 {
        self.repairs.name()
    }

    /// No write to these blocks may be ordered now.
    pub(crate) fn hold(&self, blocks: &BlockRange) -> bool {
        self.repairs.hold(blocks) || self.mending.hold(blocks)
    }

    /// Nothing is read for the copy on `device` any more.
    pub(crate) fn forget(&mut self, device: DeviceId) {
        self.repairs.forget(device);
    }

    /// The connection to the copy on `device` is gone, or new.
    pub(crate) fn mend_again(&mut self, device: DeviceId, now: Duration) {
        self.mending.send_again(device, now);
    }

    /// A scrub is under way.
    pub(crate) fn is_scrubbing(&self) -> bool {
        self.scrub.is_some()
    }

    /// A copy that has committed more than this one.
    pub(crate) fn ahead(&self) -> Option<DeviceId> {
        self.ahead.keys().next().copied()
    }

    /// The copy on `device` has committed more than this one, and is not asked again yet.
    pub(crate) fn leaves_alone(&self, device: DeviceId, now: Duration) -> bool {
        self.ahead.get(&device).is_some_and(|until| now < *until)
    }

    /// The configuration has changed.
    pub(crate) fn follow_members(&mut self, config: &GroupConfig) {
        self.ahead.retain(|device, _| config.members.contains(device) && !config.in_sync.contains(device));
    }
}
