//! People are told of a slow device.

use crate::effect::Effect;
use crate::node::Node;
use azekura_base::DeviceId;
use std::time::Duration;

impl Node {
    /// A primary on this node does not wait for a copy any more: it has been slow for long.
    pub(crate) fn report_slow(&mut self, device: DeviceId, time: Duration) {
        if self.reported_slow.is_due(device, self.now) {
            self.effects.push_back(Effect::DeviceSlow(device, time));
        }
    }
}
