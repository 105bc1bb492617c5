//! Devices that are much slower than others: people are told when a primary does not wait for a copy any more.

use crate::effect::Effect;
use crate::node::Node;
use azekura_base::DeviceId;
use std::collections::BTreeMap;
use std::time::Duration;

/// A slow device is reported once in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Devices that were reported to people as slow, and when.
#[derive(Debug, Default)]
pub(crate) struct ReportedSlow(BTreeMap<DeviceId, Duration>);

impl ReportedSlow {
    /// A copy on the device is too slow. True when it is time to tell people: all copies on a device are about as slow.
    fn is_due(&mut self, device: DeviceId, now: Duration) -> bool {
        self.0.retain(|_, reported| now < *reported + REPORT_INTERVAL);
        let news = !self.0.contains_key(&device);
        self.0.entry(device).or_insert(now);
        news
    }
}

impl Node {
    /// A primary on this node does not wait for a copy any more: it has been slow for long.
    pub(crate) fn report_slow(&mut self, device: DeviceId, time: Duration) {
        if self.reported_slow.is_due(device, self.now) {
            self.effects.push_back(Effect::DeviceSlow(device, time));
        }
    }
}
