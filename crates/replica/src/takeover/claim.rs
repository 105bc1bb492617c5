//! What a copy that claims the group has to know when the configuration names it.

use azekura_base::{DeviceId, Epoch};
use std::time::Duration;

/// What a copy that has claimed an epoch has to know when the configuration names it primary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(super) epoch: Epoch,
    /// The primary has invited this copy.
    pub(super) invited: bool,
    /// Whom the configuration named before, and for which epoch.
    pub(super) former: (DeviceId, Epoch),
    /// A reign that had ended when this was claimed; [`Epoch::BEFORE_ALL`] if none is known to.
    pub(super) ended: Epoch,
    /// The copy that was to reign before may answer readers.
    pub(super) after_readers: bool,
    /// This copy had promised nothing that counts; and until when its promises went, to see whether it has since.
    pub(super) unbound: Option<Duration>,
}

impl Claim {
    /// Nothing that this copy has promised counts, nor has it promised anything since: its promises go until
    /// `promised_until`.
    pub(super) fn is_unbound(&self, promised_until: Duration) -> bool {
        self.unbound == Some(promised_until)
    }
}
