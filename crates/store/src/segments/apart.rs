//! Segments of moved blocks, which are not in the chain, and blocks on their way out of a segment.

use crate::segments::{Segments, State};
use std::time::Duration;

impl Segments {
    /// Opens a segment for moved blocks, outside of the chain. `generation` is what is being written there.
    pub fn open_apart(&mut self, segment: u32, generation: u64) {
        let entry = self.get_mut(segment);
        assert_eq!((entry.state, entry.live), (State::Free, 0), "segment {segment} was opened while in use");
        (entry.state, entry.generation) = (State::Open, generation);
        (entry.apart, entry.leaving, entry.alone_until) = (true, 0, Duration::ZERO);
        self.free -= 1;
        self.changed.insert(segment);
    }

    /// A record of log `generation` that is replayed says that blocks were moved to `segment`. False: the segment is
    /// part of the chain.
    pub fn adopt(&mut self, segment: u32, generation: u64) -> bool {
        let entry = *self.get(segment);
        if self.chain.iter().any(|link| link.segment == segment) {
            return false;
        }
        let was_free = entry.state == State::Free;
        if was_free && segment < self.ready {
            self.free -= 1;
        }
        self.unclassify(segment);
        let entry = self.get_mut(segment);
        // What a free segment had before may be a generation that a crash took back, behind the end of the log.
        if was_free || entry.generation < generation {
            entry.generation = generation;
        }
        (entry.state, entry.apart) = (State::Sealed, true);
        self.changed.insert(segment);
        self.classify(segment, None);
        true
    }

    /// A record of log `generation` is applied that says that so many blocks were moved to `segment`, which they have
    /// pinned. The segment is not freed before replay begins behind all such records.
    pub fn landed(&mut self, segment: u32, blocks: u32, generation: u64) {
        let entry = *self.get(segment);
        if entry.generation < generation {
            if entry.state == State::Sealed {
                self.unclassify(segment);
            }
            self.get_mut(segment).generation = generation;
            self.changed.insert(segment);
            self.classify(segment, None);
        }
        self.unpin(segment, blocks);
    }

    /// The cleaner is moving blocks out of the segment.
    pub fn leave(&mut self, segment: u32, blocks: u32) {
        self.get_mut(segment).leaving += blocks;
    }

    /// They were moved, or are not any more.
    pub fn left(&mut self, segment: u32, blocks: u32) {
        let entry = self.get_mut(segment);
        entry.leaving = entry.leaving.saturating_sub(blocks);
    }
}
