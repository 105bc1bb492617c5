//! How a reign ends: another copy is primary, or is to be.

use crate::context::GroupCx;
use crate::primary::{Deposed, Primary, Reign};
use azekura_base::DeviceId;

impl Primary {
    /// Proposes another copy as primary; this one serves nobody from now on.
    ///
    /// # Errors
    /// When another copy was proposed: this reign has ended.
    pub(crate) fn propose_primary(&mut self, cx: &mut GroupCx, to: DeviceId) -> Reign {
        if cx.is_proposing() {
            return Ok(());
        }
        let mut config = cx.config.next();
        config.epoch = self.epoch().next();
        config.primary = to;
        // Nobody's: the process on that device claims the epoch after this one.
        config.primary_incarnation = None;
        self.resign(cx);
        cx.propose(config);
        Err(Deposed)
    }

    /// Serves nobody any more: whoever waits is sent to ask the next primary.
    pub(crate) fn resign(&mut self, cx: &mut GroupCx) {
        self.drop_clients(cx);
        self.drop_fences(cx);
        cx.epochs.step_down(self.epoch());
    }
}
