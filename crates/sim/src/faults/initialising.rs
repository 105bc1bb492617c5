//! The logs of new devices are initialised while they are in use: data that needs more of a log waits for it.

use crate::cue::Cue;
use crate::world::World;
use azekura_base::{DeviceId, Endpoint, NodeId};
use azekura_store::Initialisation;

/// How long it takes to initialise a segment, in milliseconds.
const SEGMENT_MS: (u64, u64) = (20, 800);

impl World {
    /// Each log that is not initialised yet has one more segment. There may be more such logs at any time.
    pub(crate) fn initialise_logs(&mut self) {
        let (least, most) = SEGMENT_MS;
        let next = self.scene.faults.initialising.spread_millis(least, most);
        self.cue_at(self.now + next, Cue::Initialise);
        let devices = self.devices.iter_mut();
        let further: Vec<(DeviceId, NodeId, u32)> =
            devices.filter_map(|(id, device)| Some((*id, device.node, device.initialise_segment()?))).collect();
        for (id, node, segments) in further {
            self.count("segment initialised in use");
            if let Some(life) = self.life_of(Endpoint { node, shard: self.shard_of(id) }) {
                self.tell(life, |node| node.segments_ready(id, segments, Initialisation::GoesOn));
            }
        }
    }
}
