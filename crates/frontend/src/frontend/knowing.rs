//! What the front end is told of volumes and of the configuration.

use super::{Context, Frontend};
use crate::effect::Effect;
use azekura_base::{Generation, VolumeId};

impl<K: Copy + Ord> Frontend<K> {
    /// A volume is attached to this node, or is not, and why.
    pub fn volume_attached(
        &mut self,
        name: &str,
        outcome: Result<(VolumeId, Generation), String>,
        cx: &mut Context<'_, K>,
    ) {
        // It may have ended on its way here.
        self.look_for_ended |= outcome.is_ok();
        let attached = self.attaching.attached(name, outcome);
        if attached.again {
            self.effects.push_back(Effect::Attach(name.to_owned()));
        }
        if let Some(attachment) = attached.unwanted {
            self.effects.push_back(Effect::GiveBack(name.to_owned(), attachment));
        }
        attached.waiting.into_iter().for_each(|conn| self.pump(conn, cx));
        self.leave_if_unused(name);
    }

    /// A volume is given back.
    pub fn volume_given_back(&mut self, name: &str) {
        if self.attaching.given_back(name) {
            self.effects.push_back(Effect::Attach(name.to_owned()));
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

    /// The node's volumes may have changed.
    pub fn volumes_changed(&mut self, cx: &mut Context<'_, K>) {
        self.listings.clear();
        self.throttle.retain(cx.backend.volumes());
        self.close_deleted(cx);
        self.look_at_changes(cx);
        self.known(cx);
    }

    /// Some attachments may have ended.
    pub fn attachments_ended(&mut self) {
        self.look_for_ended = true;
    }
}
