//! Which changes of reservations a front end heeds: it knows them, and of the writes that were asked for before nothing
//! is under way. Whoever may do less than before is kept out by that (docs/decisions/0046-reservations.md).

use crate::reservations::Reservations;
use azekura_base::VolumeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Counts how often the front end was told of reservations: each write is of the time when it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Era(u64);

/// A change that others wait for.
#[derive(Debug)]
struct Wanted {
    number: u64,
    /// Writes of earlier eras may be by rights from before the change.
    since: Era,
    is_told: bool,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Heeding {
    now: Era,
    wanted: BTreeMap<VolumeId, Wanted>,
}

impl Heeding {
    /// The era that a write which is asked for now is of.
    pub fn now(&self) -> Era {
        self.now
    }

    /// These are the reservations from now on.
    pub fn known(&mut self, reservations: &BTreeMap<VolumeId, Arc<Reservations>>) {
        self.now.0 += 1;
        let due = |id: &VolumeId| {
            let record = reservations.get(id)?.record.as_ref()?;
            Some((record.number, record.fence_due?))
        };
        self.wanted.retain(|id, _| due(id).is_some());
        for id in reservations.keys() {
            let Some((number, due)) = due(id) else { continue };
            if self.wanted.get(id).is_none_or(|wanted| wanted.number < due) {
                self.wanted.insert(*id, Wanted { number, since: self.now, is_told: false });
            }
        }
    }

    /// Volumes that are waited for, and the era that nothing under way may be before.
    pub fn waiting(&self) -> impl Iterator<Item = (VolumeId, Era)> {
        let waiting = self.wanted.iter().filter(|(_, wanted)| !wanted.is_told);
        waiting.map(|(id, wanted)| (*id, wanted.since))
    }

    /// True while others wait for the writes of this era.
    pub fn waits_for(&self, volume: VolumeId, era: Era) -> bool {
        self.wanted.get(&volume).is_some_and(|wanted| !wanted.is_told && era < wanted.since)
    }

    /// Nothing of a volume is under way that is of an earlier era: gives the change that is heeded by that.
    pub fn is_heeded(&mut self, volume: VolumeId) -> Option<u64> {
        let wanted = self.wanted.get_mut(&volume).filter(|wanted| !wanted.is_told)?;
        wanted.is_told = true;
        Some(wanted.number)
    }
}
