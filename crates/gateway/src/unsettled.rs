//! Writes that were given up, and may still be applied: what the gateways of one process know of each other's.
//!
//! A write that its gateway has sent and given up may be on its way for long: with a copy that stands still, or in a
//! socket. Its client has an error, and goes on, perhaps over a connection that another shard of the process serves.
//! What it writes then to the same blocks must not be followed by the former write. So the volume's writes to that
//! group are *unsettled*: no gateway of the process numbers another one, until the group has committed a write of the
//! same session with a later number. From then on no primary takes the former any more (docs/decisions/0018).

use azekura_base::{PgId, SessionId, VolumeId};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Entry = (VolumeId, PgId, SessionId);

/// The register of a process. See the module's description.
///
/// A gateway enters what it gives up before the client is told, so whatever the client does after that comes later.
/// While nothing is unsettled, which is nearly always, a look costs one load of a number that nobody changes.
#[derive(Debug, Default)]
pub struct Unsettled {
    count: AtomicUsize,
    entries: Mutex<BTreeSet<Entry>>,
}

impl Unsettled {
    fn entries(&self) -> MutexGuard<'_, BTreeSet<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<Entry>)) {
        let mut entries = self.entries();
        change(&mut entries);
        self.count.store(entries.len(), Ordering::Release);
    }

    /// A session gives up a write of a volume to a group.
    pub fn given_up(&self, volume: VolumeId, pg: PgId, session: SessionId) {
        self.change(|entries| {
            entries.insert((volume, pg, session));
        });
    }

    /// Nothing of what the session has given up there can be applied any more.
    pub fn settled(&self, volume: VolumeId, pg: PgId, session: SessionId) {
        self.change(|entries| {
            entries.remove(&(volume, pg, session));
        });
    }

    /// Another session has given up a write of the volume to the group, and that is not settled.
    pub(crate) fn is_by_another(&self, volume: VolumeId, pg: PgId, session: SessionId) -> bool {
        let of_group = (volume, pg, SessionId(0))..=(volume, pg, SessionId(u64::MAX));
        self.is_any(of_group, |(_, _, by)| *by != session)
    }

    /// Writes of the volume are unsettled.
    #[must_use]
    pub fn has(&self, volume: VolumeId) -> bool {
        let of_volume = (volume, PgId(0), SessionId(0))..=(volume, PgId(u32::MAX), SessionId(u64::MAX));
        self.is_any(of_volume, |_| true)
    }

    fn is_any(&self, range: RangeInclusive<Entry>, which: impl Fn(&Entry) -> bool) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.entries().range(range).any(which)
    }
}
