//! What a checkpoint saves of segments, which it makes free, and how much is written while it is being saved.

use crate::checkpoint::SegmentRow;
use crate::segments::{Segments, State};

/// How many segments the log takes while a checkpoint is being saved.
#[derive(Debug, Default)]
pub(super) struct WhileSaving {
    /// Generation of the log's last segment when the one in progress began.
    since: u64,
    /// What the last ones have met; one that had less takes it down slowly.
    segments: u32,
}

impl Segments {
    /// Marks what a checkpoint at `position` makes free, and gives the rows that it has to save.
    pub fn begin_checkpoint(&mut self, position: u64) -> Vec<(u32, SegmentRow)> {
        self.while_saving.since = self.last_generation();
        let old: Vec<(u64, u32)> = self.classes[0].range(..(position, 0)).copied().collect();
        for (generation, segment) in old {
            let entry = &mut self.table[segment as usize];
            if entry.saved_live == 0 {
                entry.state = State::Freeing;
                self.changed.insert(segment);
                self.freeing.push(segment);
                self.classes[0].remove(&(generation, segment));
            }
        }
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|segment| {
                let entry = self.get(segment);
                let used = matches!(entry.state, State::Open | State::Sealed);
                (segment, SegmentRow { generation: entry.generation, live: entry.saved_live, used })
            })
            .collect()
    }

    /// Segments that the checkpoint in progress makes free.
    pub fn freeing(&self) -> &[u32] {
        &self.freeing
    }

    /// The checkpoint at `position` is saved. Gives the segments that became free.
    pub fn end_checkpoint(&mut self, position: u64) -> Vec<u32> {
        let written = self.last_generation().saturating_sub(self.while_saving.since);
        let before = self.while_saving.segments;
        self.while_saving.segments = u32::try_from(written).unwrap_or(u32::MAX).max(before - before.div_ceil(4));
        while self.chain.front().is_some_and(|link| link.generation < position) {
            self.chain.pop_front();
        }
        let freed = std::mem::take(&mut self.freeing);
        for segment in &freed {
            let entry = self.get_mut(*segment);
            (entry.state, entry.apart, entry.leaving) = (State::Free, false, 0);
            self.free += u32::from(*segment < self.ready);
        }
        freed
    }

    /// Segments that the log takes while a checkpoint is being saved.
    pub fn written_while_saving(&self) -> u32 {
        self.while_saving.segments
    }

    fn last_generation(&self) -> u64 {
        self.chain.back().map_or(0, |link| link.generation)
    }
}
