//! One pass over a group.

use crate::finding::{Finding, Findings, Flaw, ScrubKind, ScrubReport};
use azekura_base::{BlockRange, ChunkIndex, DeviceId, LayerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Damaged blocks of one chunk that are mended one after the other, before the chunk is given up.
const FAILURES: u16 = 64;

/// Pause after a look that has met a damaged block.
const MEND_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Look {
    pub(super) id: u64,
    pub(super) started: Duration,
    /// Digests of this copy's blocks, once read.
    pub(super) own: Option<Vec<u64>>,
    /// Copies that have not answered.
    pub(super) asked: BTreeSet<DeviceId>,
    /// One of them could not read the chunk.
    pub(super) unreadable: bool,
}

/// One pass over a group.
#[derive(Default)]
pub(crate) struct Scrub {
    /// Names the list of chunks.
    pub(super) listing: u64,
    pub(super) listed: bool,
    pub(super) todo: VecDeque<(LayerId, ChunkIndex)>,
    pub(super) look: Option<Look>,
    /// A light scrub looks at this chunk deeply.
    pub(super) suspects: bool,
    /// Compared looks at the chunk, and failed ones.
    pub(super) looks: u8,
    pub(super) failures: u16,
    /// What differed at the last look: copy and block, and this copy's digest.
    pub(super) doubts: BTreeMap<(DeviceId, u16), u64>,
    /// The same, at the look under way.
    pub(super) differing: BTreeMap<(DeviceId, u16), u64>,
    pub(super) next_look: Duration,
    pub(super) budget: u32,
    pub(super) report: ScrubReport,
    pub(super) findings: Findings,
}

impl Scrub {
    /// A copy can't read these blocks.
    pub(crate) fn met_damage(&mut self, device: DeviceId, blocks: &BlockRange) {
        let BlockRange { layer, chunk, .. } = *blocks;
        for block in blocks.each() {
            let finding = Finding { device, layer, chunk, block, flaw: Flaw::Damaged, mended: false };
            self.report.damaged += u64::from(self.findings.note(finding));
        }
    }

    /// These blocks of a copy are written anew.
    pub(crate) fn mended(&mut self, device: DeviceId, blocks: &BlockRange) {
        for block in blocks.each() {
            self.findings.mended(device, blocks.layer, blocks.chunk, block);
        }
    }

    /// The present chunk is read, rather than looked up.
    pub(super) fn is_deep(&self) -> bool {
        self.report.kind == ScrubKind::Deep || self.suspects
    }

    /// A copy of the chunk can't be read. What is damaged is being mended, a block at each look.
    pub(super) fn try_again(&mut self, now: Duration) {
        self.failures += 1;
        self.next_look = now + MEND_PAUSE;
        if self.failures > FAILURES {
            self.report.unreadable += 1;
            self.chunk_done();
        }
    }

    pub(super) fn chunk_done(&mut self) {
        self.todo.pop_front();
        self.report.chunks_done += 1;
        self.begin_chunk();
    }

    /// What is known of a chunk is forgotten.
    pub(super) fn begin_chunk(&mut self) {
        (self.looks, self.failures, self.suspects) = (0, 0, false);
        self.doubts.clear();
    }
}
