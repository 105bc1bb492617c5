//! Sessions with targets of several logical units: they look by themselves what their clients see of these.

use super::{Context, Frontend};
use crate::targets::Targets;
use std::sync::Arc;

impl<K: Copy + Ord> Frontend<K> {
    /// From now on there are these targets.
    pub fn set_targets(&mut self, targets: Arc<Targets>, cx: &mut Context<'_, K>) {
        self.targets = targets;
        self.listings.clear();
        self.look_at_units(cx);
    }

    /// What clients see of targets may be something else than before.
    pub(super) fn look_at_units(&mut self, cx: &mut Context<'_, K>) {
        self.units_era += 1;
        let staying: Vec<K> = self.staying.iter().copied().collect();
        staying.into_iter().for_each(|conn| self.pump(conn, cx));
    }
}
