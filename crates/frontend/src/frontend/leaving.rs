//! Volumes that are given back, since nobody here uses them any more; and clients that stop using one.

use super::{Frontend, Owner};
use crate::attachment::VolumeUse;
use crate::client::Client;
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

    /// A client stops using what it has opened, and its connection stays: see
    /// [`Event::Leaves`](crate::Event::Leaves). True: more may be taken from it.
    ///
    /// # Panics
    /// When something that it has asked for is without its answer.
    pub(super) fn leave(&mut self, conn: K, client: &mut Client) -> bool {
        let is_its = |owner: &Owner<K>| matches!(owner, Owner::Client { waits: Some((of, ..)), .. } if *of == conn);
        assert!(client.ready.is_none() && !self.running.iter().any(|(_, owner)| is_its(owner)), "requests are left");
        (client.volume, client.reads_only) = (None, false);
        self.opened.remove(&conn);
        self.nexus_left(conn, 0);
        self.attaching.gone(conn).iter().for_each(|which| self.leave_if_unused(which));
        true
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
