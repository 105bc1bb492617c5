//! Bad blocks that are to be mended.

use crate::action::Action;
use crate::finding::Flaw;
use azekura_base::{BlockIndex, BlockRange, ChunkIndex, DeviceId, Extent, LayerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Damaged blocks of one group that wait to be mended; further ones are found again by their next reader, or the next
/// scrub.
const DAMAGED_MAX: usize = 1024;

/// What was sent so long ago has arrived, if the connection has stood since.
const ARRIVES: Duration = Duration::from_secs(10);

/// A block that no copy could give may have been written since, after this time.
const UNREPAIRABLE_FOR: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Mend {
    /// The copy that has them.
    pub(super) device: DeviceId,
    pub(super) blocks: BlockRange,
    /// What is wrong with them.
    pub(super) flaw: Flaw,
    /// Copies that could not give the blocks either.
    pub(super) tried: Vec<DeviceId>,
    /// People know that they are being written anew.
    pub(super) told: bool,
}

impl Mend {
    /// These blocks of the copy on `device` are to be written anew.
    pub(super) fn new(device: DeviceId, blocks: BlockRange, flaw: Flaw) -> Mend {
        Mend { device, blocks, flaw, tried: Vec::new(), told: false }
    }
}

/// What a primary knows of damaged blocks.
#[derive(Default)]
pub(crate) struct Mending {
    pub(super) queue: VecDeque<Mend>,
    /// Blocks of this copy that were asked for elsewhere, by the question's name, and where.
    pub(super) fetching: BTreeMap<u64, (DeviceId, Mend)>,
    /// Blocks of other copies, for which this copy's own blocks are being read.
    pub(super) reading: BTreeMap<u64, Mend>,
    /// Blocks that were sent to other copies lately, and when: with the connection they may be lost.
    pub(super) sent: VecDeque<(Duration, Mend)>,
    /// Blocks without a good copy that people were told of: every reader finds them again.
    pub(super) reported: BTreeSet<(LayerId, ChunkIndex, BlockIndex)>,
    /// When each block was last found to be damaged in every copy that could be asked (decision 0014).
    pub(super) unrepairable: BTreeMap<(LayerId, ChunkIndex, BlockIndex), Duration>,
}

impl Mending {
    pub(crate) fn hold(&self, blocks: &BlockRange) -> bool {
        let under = self.fetching.values().map(|(_, mend)| mend).chain(self.reading.values());
        under.into_iter().any(|mend| mend.blocks.overlaps(blocks))
    }

    pub(super) fn knows(&self, device: DeviceId, blocks: &BlockRange) -> bool {
        let under = self.fetching.values().map(|(_, mend)| mend).chain(self.reading.values());
        under.chain(&self.queue).any(|mend| mend.device == device && mend.blocks.overlaps(blocks))
    }

    /// These blocks can't be had together: each is tried alone.
    pub(super) fn wait_alone(&mut self, mend: &Mend) {
        for n in 0..mend.blocks.count {
            let blocks = BlockRange { first: BlockIndex(mend.blocks.first.0 + n), count: 1, ..mend.blocks };
            self.wait(Mend { told: mend.told, ..Mend::new(mend.device, blocks, mend.flaw) });
        }
    }

    pub(super) fn wait(&mut self, mend: Mend) {
        if self.queue.len() < DAMAGED_MAX {
            self.queue.push_back(mend);
        }
    }

    /// Blocks are on their way to another copy.
    pub(super) fn note_sent(&mut self, mend: Mend, now: Duration) {
        let arrived = |(at, _): &(Duration, Mend)| now.saturating_sub(*at) >= ARRIVES;
        while self.sent.len() >= DAMAGED_MAX || self.sent.front().is_some_and(arrived) {
            self.sent.pop_front();
        }
        self.sent.push_back((now, Mend { told: true, ..mend }));
    }

    /// The connection to the copy on `device` is gone, or new: what was on its way there lately is sent again.
    pub(super) fn send_again(&mut self, device: DeviceId, now: Duration) {
        let (lost, sent) = std::mem::take(&mut self.sent).into_iter().partition(|(_, mend)| mend.device == device);
        self.sent = sent;
        let lost: VecDeque<(Duration, Mend)> = lost;
        for (_, mend) in lost.into_iter().filter(|(at, _)| now.saturating_sub(*at) < ARRIVES) {
            self.wait(mend);
        }
    }

    /// What to tell people of blocks without a good copy, once a reign.
    pub(super) fn no_good_copy(&mut self, blocks: &BlockRange, scrubbing: bool) -> Option<Action> {
        let news =
            self.reported.len() < DAMAGED_MAX && self.reported.insert((blocks.layer, blocks.chunk, blocks.first));
        news.then_some(Action::NoGoodCopy { range: *blocks, scrubbing })
    }

    /// This copy can't give these blocks, and every other one in sync has been asked.
    pub(super) fn note_unrepairable(&mut self, blocks: &BlockRange, now: Duration) {
        self.unrepairable.retain(|_, at| now.saturating_sub(*at) < UNREPAIRABLE_FOR);
        self.unrepairable.insert((blocks.layer, blocks.chunk, blocks.first), now);
    }

    /// Of late, no copy in sync could give this block.
    pub(crate) fn is_unrepairable(&self, blocks: &BlockRange, now: Duration) -> bool {
        let at = self.unrepairable.get(&(blocks.layer, blocks.chunk, blocks.first));
        blocks.count == 1 && at.is_some_and(|at| now.saturating_sub(*at) < UNREPAIRABLE_FOR)
    }

    /// What was asked for at copies that do not answer any more is asked for again.
    pub(super) fn give_up(&mut self, answers: impl Fn(&DeviceId) -> bool) {
        let in_vain = self.fetching.iter().filter(|(_, (from, _))| !answers(from));
        for id in in_vain.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some((_, mend)) = self.fetching.remove(&id) {
                self.wait(mend);
            }
        }
    }
}

/// True when the extents are `count` blocks, with checksums that are right.
pub(crate) fn is_whole(extents: &[Extent], count: u16) -> bool {
    let blocks = |extent: &Extent| match extent {
        Extent::Zero { count } => Some(usize::from(*count)),
        Extent::Data { bytes, checksums } => {
            azekura_base::block_checksums(bytes).eq(checksums.iter().copied()).then_some(checksums.len())
        }
    };
    extents.iter().map(blocks).sum::<Option<usize>>() == Some(usize::from(count))
}
