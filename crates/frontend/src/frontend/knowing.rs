//! What the front end is told of volumes and of the configuration.

use super::{Context, Frontend};
use crate::attachment::{Attachment, VolumeUse};
use crate::effect::Effect;
use crate::portals::Portals;
use std::sync::Arc;

impl<K: Copy + Ord> Frontend<K> {
    /// A connection wants to open a volume.
    pub(super) fn want(&mut self, conn: K, which: VolumeUse, cx: &mut Context<'_, K>) {
        if let Some(volume) = cx.backend.volumes().get(&which.volume)
            && self.attaching.want(conn, &which, volume.id)
        {
            self.effects.push_back(Effect::Attach(which));
        }
    }

    /// A volume is attached to this node, or is not, and why.
    pub fn volume_attached(&mut self, which: &VolumeUse, outcome: Result<Attachment, String>, cx: &mut Context<'_, K>) {
        // It may have ended on its way here.
        self.look_for_ended |= outcome.is_ok();
        let attached = self.attaching.attached(which, outcome);
        if attached.again {
            self.effects.push_back(Effect::Attach(which.clone()));
        }
        if let Some(attachment) = attached.unwanted {
            self.effects.push_back(Effect::GiveBack(which.clone(), attachment));
        }
        attached.waiting.into_iter().for_each(|conn| self.pump(conn, cx));
        self.leave_if_unused(which);
    }

    /// A volume is given back.
    pub fn volume_given_back(&mut self, which: &VolumeUse) {
        if self.attaching.given_back(which) {
            self.effects.push_back(Effect::Attach(which.clone()));
        }
    }

    pub(super) fn look_if_asked(&mut self) {
        if self.missing.begin() {
            self.effects.push_back(Effect::ReadConfiguration);
        }
    }

    /// The configuration was read, and this node will know it up to `revision`; `None`: it could not be read.
    pub fn configuration_read(&mut self, revision: Option<u64>, cx: &mut Context<'_, K>) {
        self.missing.configuration_read(revision);
        self.known(cx);
    }

    /// The node may know more of the configuration.
    pub fn known(&mut self, cx: &mut Context<'_, K>) {
        let certain = self.missing.known(cx.backend.revision());
        certain.into_iter().for_each(|conn| self.pump(conn, cx));
        self.look_if_asked();
    }

    /// From now on hosts are told of these portals.
    pub fn set_portals(&mut self, portals: Arc<Portals>) {
        self.portals = portals;
        self.listings.clear();
    }

    /// The node's volumes may have changed.
    pub fn volumes_changed(&mut self, cx: &mut Context<'_, K>) {
        self.listings.clear();
        self.throttle.retain(cx.backend.volumes());
        self.close_deleted(cx);
        self.look_at_changes(cx);
        self.look_at_units(cx);
        self.known(cx);
    }

    /// Some attachments may have ended.
    pub fn attachments_ended(&mut self) {
        self.look_for_ended = true;
    }
}
