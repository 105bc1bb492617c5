//! How much may be under way: what each volume may hold of the memory that all share.
//!
//! What is under way may stay so for long, where a group does not answer, and nothing tells beforehand where. So no
//! volume can take what the others need: each has a little of its own, and of the rest at most as much as is still free
//! (the dynamic threshold of shared-memory switches: Choudhury and Hahne, 1998). One volume alone gets half, of two
//! each a third, and however many hold what they have, the next gets half of what is left. A volume that waits for a
//! group takes [`VOLUME_BYTES_STUCK_MAX`] at most: what it can use of the rest is little, and may get stuck as well
//! (0018).

use crate::parts::InFlight;
use crate::{
    IN_FLIGHT_BYTES_MAX, IN_FLIGHT_READS_MAX, VOLUME_BACKLOG_MAX, VOLUME_BYTES_MIN, VOLUME_BYTES_STUCK_MAX,
    VOLUME_READS_MIN,
};
use azekura_base::VolumeId;
use std::collections::{BTreeMap, BTreeSet};

/// What is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    bytes: usize,
    /// Parts of reads.
    reads: usize,
    /// Parts of writes that wait for room in their group's window.
    backlog: usize,
}

/// What is under way, of all and of each volume.
#[derive(Default)]
pub(crate) struct Room {
    all: Usage,
    volumes: BTreeMap<VolumeId, Usage>,
    /// Volumes that have been waiting for a group.
    stuck: BTreeSet<VolumeId>,
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
    pub(crate) fn take(&mut self, in_flight: &InFlight) {
        let (bytes, is_write) = (in_flight.bytes_held(), in_flight.is_write());
        self.change(in_flight.wanted().volume, |usage| {
            usage.bytes += bytes;
            *(if is_write { &mut usage.backlog } else { &mut usage.reads }) += 1;
        });
    }

    /// A part of a write left the backlog.
    pub(crate) fn numbered(&mut self, volume: VolumeId) {
        self.change(volume, |usage| usage.backlog -= 1);
    }

    /// A part with a number is answered, or given up.
    pub(crate) fn give(&mut self, in_flight: &InFlight) {
        let (bytes, is_write) = (in_flight.bytes_held(), in_flight.is_write());
        self.change(in_flight.wanted().volume, |usage| {
            usage.bytes -= bytes;
            usage.reads -= usize::from(!is_write);
        });
    }

    /// These volumes have been waiting for a group.
    pub(crate) fn set_stuck(&mut self, volumes: BTreeSet<VolumeId>) {
        self.stuck = volumes;
    }

    /// Bytes under way.
    pub(crate) fn bytes(&self) -> usize {
        self.all.bytes
    }

    /// True while one more request on this volume may begin.
    pub(crate) fn has_room(&self, volume: VolumeId) -> bool {
        let used = self.volumes.get(&volume).copied().unwrap_or_default();
        let own = used.bytes < VOLUME_BYTES_MIN && used.reads < VOLUME_READS_MIN;
        let shared = used.bytes < IN_FLIGHT_BYTES_MAX.saturating_sub(self.all.bytes)
            && used.reads < IN_FLIGHT_READS_MAX.saturating_sub(self.all.reads);
        let waits = self.stuck.contains(&volume) && used.bytes >= VOLUME_BYTES_STUCK_MAX;
        used.backlog < VOLUME_BACKLOG_MAX && (own || (shared && !waits))
    }
}
