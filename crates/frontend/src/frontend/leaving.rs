//! Volumes that are given back, since nobody here uses them any more.

use super::Frontend;
use crate::attachment::VolumeUse;
use crate::effect::Effect;
use crate::limits::{Budgets, Throttle};
use azekura_gateway::Unsettled;
use std::sync::Arc;

impl<K: Copy + Ord> Frontend<K> {
    /// What the gateways of the process have given up, and what its front ends have used of volumes' limits: before the
    /// first client.
    pub fn share(&mut self, unsettled: Arc<Unsettled>, budgets: Arc<Budgets>) {
        self.unsettled = unsettled;
        self.throttle = Throttle::new(budgets);
    }

    /// Gives a volume back that nobody uses. Not while something that was given up may still be applied: who has the
    /// volume next does not wait for that (0018).
    pub(super) fn leave_if_unused(&mut self, which: &VolumeUse) {
        if self.attaching.unused(which).is_some_and(|id| self.unsettled.has(id)) {
            self.unsettled_unused.insert(which.clone());
            return;
        }
        if let Some(attachment) = self.attaching.leave(which) {
            self.effects.push_back(Effect::GiveBack(which.clone(), attachment));
        }
    }

    /// Looks again at volumes of which something was unsettled.
    pub(super) fn leave_unsettled(&mut self) {
        if !self.unsettled_unused.is_empty() {
            std::mem::take(&mut self.unsettled_unused).iter().for_each(|which| self.leave_if_unused(which));
        }
    }
}
