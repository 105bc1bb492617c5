//! Which volumes are used, and so whom their gateway needs a connection to.

use azekura_base::VolumeId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// When each volume was last used.
#[derive(Default)]
pub(crate) struct Uses {
    used: BTreeMap<VolumeId, Duration>,
    /// How often a volume came to be used, or to be used no more.
    changes: u64,
}

impl Uses {
    /// A request on the volume begins.
    pub(crate) fn note(&mut self, volume: VolumeId, now: Duration) {
        self.changes += u64::from(self.used.insert(volume, now).is_none());
    }

    /// Forgets volumes that have not been used for `idle`, and those that are gone; `busy` are used now.
    pub(crate) fn forget(
        &mut self,
        now: Duration,
        idle: Duration,
        busy: &BTreeSet<VolumeId>,
        is_there: impl Fn(VolumeId) -> bool,
    ) {
        let before = self.used.len();
        self.used.retain(|volume, at| {
            if busy.contains(volume) {
                *at = now;
            }
            is_there(*volume) && now < *at + idle
        });
        self.changes += u64::from(self.used.len() < before);
    }

    /// The volumes that are used.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeId> + '_ {
        self.used.keys().copied()
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}
