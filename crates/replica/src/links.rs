//! The nodes of the other copies, as far as this copy is connected to them.

use crate::window::{Backlog, Window};
use azekura_base::DeviceId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// See the module's description.
#[derive(Default)]
pub(crate) struct Links {
    connected: BTreeSet<DeviceId>,
    /// What is on its way to the nodes of the other copies and need not be waited for.
    windows: BTreeMap<DeviceId, Window>,
    /// Copies whose process is about to end, and until when it should have ended: before, they are not brought up to
    /// date (0013).
    departed: BTreeMap<DeviceId, Duration>,
}

impl Links {
    /// The connection to the node that has `device` is up: the node has not departed, or is back.
    pub(crate) fn up(&mut self, device: DeviceId) {
        self.connected.insert(device);
        self.departed.remove(&device);
    }

    /// The connection to the node that has `device` is gone.
    pub(crate) fn down(&mut self, device: DeviceId) {
        self.connected.remove(&device);
        self.departed.remove(&device);
    }

    pub(crate) fn is_up(&self, device: DeviceId) -> bool {
        self.connected.contains(&device)
    }

    /// All that are up, in the order of devices.
    pub(crate) fn all_up(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.connected.iter().copied()
    }

    /// What is on its way to the copy on `device` counts in this window.
    pub(crate) fn share_window(&mut self, device: DeviceId, window: Window) {
        self.windows.insert(device, window);
    }

    /// Nothing more is to be begun for the copy on `device`: its node has enough on its way.
    pub(crate) fn is_full(&self, device: DeviceId) -> bool {
        self.windows.get(&device).is_some_and(Window::is_full)
    }

    /// An empty backlog for the copy on `device`.
    pub(crate) fn backlog(&self, device: DeviceId) -> Backlog {
        Backlog::new(self.windows.get(&device).cloned().unwrap_or_default())
    }

    /// The copy on `device` takes leave, and should be away until then.
    pub(crate) fn depart(&mut self, device: DeviceId, until: Duration) {
        self.departed.insert(device, until);
    }

    /// The copy on `device` has taken leave, and should not be back yet.
    pub(crate) fn is_away(&self, device: DeviceId, now: Duration) -> bool {
        self.departed.get(&device).is_some_and(|until| now < *until)
    }

    /// The copy on `device` has taken leave and is still there. True once.
    pub(crate) fn take_stayed(&mut self, device: DeviceId, now: Duration) -> bool {
        let stayed = self.is_up(device) && self.departed.get(&device).is_some_and(|until| now >= *until);
        if stayed {
            self.departed.remove(&device);
        }
        stayed
    }
}
