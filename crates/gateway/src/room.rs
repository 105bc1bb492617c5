//! How much may be under way: what each volume may hold of the memory that all share.
//!
//! What is under way may stay so for long, where a group does not answer, and nothing tells beforehand where. So no
//! volume can take what the others need: each has a little of its own, and of the rest at most as much as is still free
//! (the dynamic threshold of shared-memory switches: Choudhury and Hahne, 1998). One volume alone gets half, of two
//! each a third, and however many hold what they have, the next gets half of what is left. A volume that waits for a
//! group takes [`VOLUME_BYTES_STUCK_MAX`] at most: what it can use of the rest is little, and may get stuck as well.

use crate::gateway::{Gateway, Under};
use crate::{
    IN_FLIGHT_BYTES_MAX, IN_FLIGHT_READS_MAX, VOLUME_BACKLOG_MAX, VOLUME_BYTES_MIN, VOLUME_BYTES_STUCK_MAX,
    VOLUME_READS_MIN,
};
use azekura_base::VolumeId;
use std::collections::{BTreeMap, BTreeSet};

/// What is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) bytes: usize,
    /// Parts of reads.
    pub(crate) reads: usize,
    /// Parts of writes that wait for room in their group's window.
    pub(crate) backlog: usize,
}

/// What is under way, of all and of each volume.
#[derive(Default)]
pub(crate) struct Room {
    pub(crate) all: Usage,
    volumes: BTreeMap<VolumeId, Usage>,
    /// Volumes that have been waiting for a group.
    pub(crate) stuck: BTreeSet<VolumeId>,
}

impl Room {
    fn change(&mut self, volume: VolumeId, change: impl Fn(&mut Usage)) {
        change(&mut self.all);
        let usage = self.volumes.entry(volume).or_default();
        change(usage);
        if *usage == Usage::default() {
            self.volumes.remove(&volume);
        }
    }

    /// A part begins. A part of a write waits in the backlog first.
    pub(crate) fn take(&mut self, under: &Under) {
        let (bytes, is_write) = (under.bytes_held(), under.is_write());
        self.change(under.volume, |usage| {
            usage.bytes += bytes;
            *(if is_write { &mut usage.backlog } else { &mut usage.reads }) += 1;
        });
    }

    /// A part of a write left the backlog.
    pub(crate) fn numbered(&mut self, volume: VolumeId) {
        self.change(volume, |usage| usage.backlog -= 1);
    }

    /// A part with a number is answered, or given up.
    pub(crate) fn give(&mut self, under: &Under) {
        let (bytes, is_write) = (under.bytes_held(), under.is_write());
        self.change(under.volume, |usage| {
            usage.bytes -= bytes;
            usage.reads -= usize::from(!is_write);
        });
    }

    fn has_room(&self, volume: VolumeId) -> bool {
        let used = self.volumes.get(&volume).copied().unwrap_or_default();
        let own = used.bytes < VOLUME_BYTES_MIN && used.reads < VOLUME_READS_MIN;
        let shared = used.bytes < IN_FLIGHT_BYTES_MAX.saturating_sub(self.all.bytes)
            && used.reads < IN_FLIGHT_READS_MAX.saturating_sub(self.all.reads);
        let waits = self.stuck.contains(&volume) && used.bytes >= VOLUME_BYTES_STUCK_MAX;
        used.backlog < VOLUME_BACKLOG_MAX && (own || (shared && !waits))
    }
}

impl Gateway {
    /// True while one more request on this volume may be submitted; else its clients must wait. A volume that is not
    /// there has room: the request is refused.
    #[must_use]
    pub fn has_room(&self, volume: &str) -> bool {
        self.volumes.get(volume).is_none_or(|volume| self.room.has_room(volume.id))
    }

    /// Bytes under way.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.room.all.bytes
    }
}
