//! What a controller tells its host of reservations: events, their log, and the features of both (Base sections 5.2,
//! 5.16.1 and 5.27.1).

use super::Admin;
use crate::completion::Status;
use crate::reservations::notices::{EVENT, MASK, PERSISTENCE};
use azekura_base::{Outbox, VolumeId};
use azekura_frontend::Exports;

/// NSID: all namespaces, of which there is one.
const ALL: u32 = u32::MAX;
/// PTPL: reservations outlast a loss of power.
const PERSISTS: u32 = 1;

impl Admin {
    /// Looks whether reservations have changed: a comparison, where they have not.
    pub(super) fn look_at_reservations(&mut self, exports: &dyn Exports) {
        let Some(disk) = self.disk.as_mut().filter(|disk| !disk.is_read_only) else { return };
        let Some(now) = exports.reservations(VolumeId(disk.identity.volume)) else { return };
        if self.standing.knows(&now) {
            return;
        }
        let is_new = !std::mem::replace(&mut disk.reserves, true);
        if is_new {
            self.namespace_has_changed();
        }
        self.standing.renew(now).notices.into_iter().for_each(|notice| self.notifications.push(notice));
    }

    /// Says that there are notifications, if there are and the host has asked for events.
    pub(super) fn send_reservation_event(&mut self, outbox: &mut Outbox) {
        if self.notifications.is_event_due()
            && self.properties.is_ready()
            && let Some(id) = self.requests.pop_front()
        {
            self.notifications.take_event();
            self.link.complete(outbox, id, Status::SUCCESS, EVENT);
        }
    }

    /// Whether a feature is one of reservations.
    pub(super) fn has_reservation_feature(&self, feature: u8) -> bool {
        matches!(feature, MASK | PERSISTENCE) && self.disk.as_ref().is_some_and(|disk| disk.reserves)
    }

    /// Sets such a feature.
    pub(super) fn set_reservation_feature(&mut self, feature: u8, namespace: u32, value: u32) -> Result<(), Status> {
        if !matches!(namespace, 1 | ALL) {
            return Err(Status::INVALID_NAMESPACE);
        }
        if feature == MASK {
            self.notifications.set_mask(value);
        } else if value & PERSISTS == 0 {
            // No reservation of a cluster depends on one node's power.
            return Err(Status::NOT_CHANGEABLE);
        }
        Ok(())
    }

    /// What such a feature is.
    pub(super) fn reservation_feature(&self, feature: u8, select: u8, namespace: u32) -> Result<u32, Status> {
        const CURRENT: u8 = 0;
        const CAPABILITIES: u8 = 3;
        const OF_NAMESPACE: u32 = 2;
        const CHANGEABLE: u32 = 4;
        if namespace != 1 {
            return Err(Status::INVALID_NAMESPACE);
        }
        match (feature, select) {
            (MASK, CURRENT) => Ok(self.notifications.mask()),
            (MASK, CAPABILITIES) => Ok(OF_NAMESPACE | CHANGEABLE),
            (_, CAPABILITIES) => Ok(OF_NAMESPACE),
            (_, select) if select > CAPABILITIES => Err(Status::INVALID_FIELD),
            (MASK, _) => Ok(0),
            _ => Ok(PERSISTS),
        }
    }
}
