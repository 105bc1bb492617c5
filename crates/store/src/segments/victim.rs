//! Which segment is emptied next.

use crate::segments::{Segments, VICTIMS_TRIED_MAX};

impl Segments {
    /// The segment that is best cleaned: the most space gained and the longest left alone for the least work
    /// (Rosenblum and Ousterhout, "The design and implementation of a log-structured file system", 1992, section 3.5).
    /// `head` is the generation being written; segments of the chain of generations before `written` are whole on the
    /// device. When space is `short` it is simply the emptiest. Those of generations from `limit` on are left out, and
    /// those that are `put_off`.
    pub fn victim(
        &self,
        head: u64,
        (written, limit): (u64, u64),
        short: bool,
        put_off: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let blocks = f64::from(self.segment_blocks);
        let mut best: Option<(f64, u32)> = None;
        for class in &self.classes[1..] {
            let usable = |(_, segment): &&(u64, u32)| {
                let entry = self.get(*segment);
                // Blocks that are still being moved there have no header yet, perhaps.
                let whole = if entry.apart { entry.pins == 0 } else { entry.generation < written };
                let leaves = entry.leaving > 0 && entry.leaving >= entry.live;
                whole
                    && !leaves
                    && entry.generation < limit
                    && entry.when_moved() < self.full_enough
                    && !put_off(*segment)
            };
            let Some((generation, segment)) = class.iter().take(VICTIMS_TRIED_MAX).find(usable) else { continue };
            let full = f64::from(self.get(*segment).needed()) / blocks;
            let age = head.saturating_sub(*generation) as f64 + 1.0;
            let score = (1.0 - full) * age / (1.0 + full);
            if best.is_none_or(|(other, _)| score > other) {
                best = Some((score, *segment));
                if short {
                    break;
                }
            }
        }
        best.map(|(_, segment)| segment)
    }
}
