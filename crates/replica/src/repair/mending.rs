//! Damaged blocks: a reader gets them from another copy at once (the gateway asks there); here they are written anew
//! from a good copy.
//!
//! The primary mends, because it alone can hold back writes to a block. For a secondary's block the primary reads its
//! own block and sends that as a repair; for its own block it asks a secondary. Both are done while no write to the
//! block is under way.

use super::mend::{Mend, is_whole};
use super::transfer::bodies;
use crate::action::Action;
use crate::context::GroupCx;
use crate::finding::Flaw;
use crate::primary::Primary;
use crate::primary::peer::Standing;
use azekura_base::{BlockIndex, BlockRange, DeviceId, Extent, IoStatus};
use azekura_wire::{Damaged, Fetch, Fetched, Message, Repair};

/// Blocks of one group being mended at once.
const MENDS_MAX: usize = 4;

/// Blocks that are mended together: writes to them wait meanwhile.
const MEND_BLOCKS_MAX: u16 = 32;

impl Primary {
    /// Blocks of the copy on `device` are damaged, it says.
    pub(crate) fn on_damaged(&mut self, cx: &mut GroupCx, device: DeviceId, damaged: Damaged) {
        if self.epoch() == damaged.epoch {
            self.met_damage(cx, device, damaged.range);
        }
    }

    pub(crate) fn met_damage(&mut self, cx: &mut GroupCx, device: DeviceId, blocks: BlockRange) {
        if let Some(scrub) = self.scrub_mut() {
            scrub.met_damage(device, &blocks);
        }
        self.mend(cx, device, blocks, Flaw::Damaged);
    }

    /// Bad blocks are being written anew. What differed is named by the scrub that found it, which may have ended.
    fn tell_mended(&mut self, cx: &mut GroupCx, mend: &Mend) {
        let Mend { device, blocks: range, flaw, .. } = *mend;
        if mend.told {
            return;
        }
        let noted = self.scrub_mut().map(|scrub| scrub.mended(device, &range)).is_some();
        cx.act(Action::Mended { device, range, scrubbing: noted || flaw == Flaw::Differs });
    }

    pub(super) fn mend(&mut self, cx: &mut GroupCx, device: DeviceId, blocks: BlockRange, flaw: Flaw) {
        let mut left = blocks;
        while left.count > 0 {
            // Cut at the same places whoever asks.
            let count = left.count.min(MEND_BLOCKS_MAX - left.first.0 % MEND_BLOCKS_MAX);
            let blocks = BlockRange { count, ..left };
            left = BlockRange { first: BlockIndex(left.first.0 + count), count: left.count - count, ..left };
            if !self.repair.mending.knows(device, &blocks) {
                self.repair.mending.wait(Mend::new(device, blocks, flaw));
            }
        }
        self.run_mends(cx);
    }

    /// Starts with what waits and is not in anybody's way.
    pub(crate) fn run_mends(&mut self, cx: &mut GroupCx) {
        let (me, commit) = (cx.me, cx.tail.committed());
        if !self.is_open() {
            return;
        }
        for _ in 0..self.repair.mending.queue.len() {
            if self.repair.mending.fetching.len() + self.repair.mending.reading.len() >= MENDS_MAX {
                break;
            }
            let Some(mend) = self.repair.mending.queue.pop_front() else { break };
            let range = mend.blocks;
            if cx.tail.touches(&mend.blocks) || self.is_held(&mend.blocks) {
                self.repair.mending.queue.push_back(mend);
                continue;
            }
            let id = self.repair.repairs.name();
            if mend.device != me {
                if self.is_with_us(mend.device) {
                    self.repair.mending.reading.insert(id, mend);
                    cx.act(Action::LoadBlocks { id, range });
                } else if self.peers.contains_key(&mend.device) {
                    self.repair.mending.wait(mend); // It is away for a moment, or is brought up to date.
                }
                continue;
            }
            let others = || self.peers.iter().filter(|(_, peer)| matches!(peer.standing, Standing::InSync));
            let source = others().find(|(device, peer)| peer.answers(cx.now) && !mend.tried.contains(device));
            if let Some((source, _)) = source {
                let (pg, device, epoch) = (cx.pg, *source, self.epoch());
                self.repair.mending.fetching.insert(id, (device, mend));
                let fetch = Fetch { pg, device, epoch, commit, id, range };
                cx.act(Action::Send(device, Message::Fetch(fetch)));
            } else if !others().all(|(device, _)| mend.tried.contains(device)) {
                self.repair.mending.queue.push_back(mend);
            } else if range.count > 1 {
                self.repair.mending.wait_alone(&mend);
            } else {
                self.repair.mending.note_unrepairable(&mend.blocks, cx.now);
                let scrubbing = self.repair.scrub.is_some();
                cx.act_all(self.repair.mending.no_good_copy(&mend.blocks, scrubbing));
            }
        }
    }

    /// This copy's blocks were read, to mend another's. Gives the contents back when they were read for something else.
    pub(crate) fn mend_loaded(
        &mut self,
        cx: &mut GroupCx,
        id: u64,
        contents: Result<Vec<Extent>, IoStatus>,
    ) -> Option<Result<Vec<Extent>, IoStatus>> {
        let Some(mut mend) = self.repair.mending.reading.remove(&id) else { return Some(contents) };
        match contents {
            Ok(_) if !self.is_with_us(mend.device) => self.repair.mending.wait(mend),
            Ok(extents) => {
                self.tell_mended(cx, &mend);
                self.send_repairs(cx, mend.device, None, mend.blocks, extents);
                self.repair.mending.note_sent(mend, cx.now);
            }
            Err(_) if mend.blocks.count > 1 => self.repair.mending.wait_alone(&mend),
            Err(_) => {
                // Both are damaged. A third copy may help this one first: the read that failed has reported this copy's
                // block.
                mend.tried.push(cx.me);
                let others = self.peers.keys().any(|device| *device != mend.device);
                if others && mend.tried.len() < 3 {
                    self.repair.mending.wait(mend);
                } else {
                    let scrubbing = self.repair.scrub.is_some();
                    cx.act_all(self.repair.mending.no_good_copy(&mend.blocks, scrubbing));
                }
            }
        }
        self.retry_waiting(cx);
        None
    }

    /// A copy gives blocks that were asked for.
    pub(crate) fn on_fetched(&mut self, cx: &mut GroupCx, device: DeviceId, fetched: Fetched) {
        let (me, pg, commit) = (cx.me, cx.pg, cx.tail.committed());
        let epoch = self.epoch();
        if fetched.epoch != epoch {
            return;
        }
        let Some((_, mut mend)) = self.repair.mending.fetching.remove(&fetched.id) else {
            return self.fetched_elsewhere(cx, fetched.id, fetched.extents);
        };
        let blocks = mend.blocks;
        match fetched.extents.filter(|extents| is_whole(extents, blocks.count)) {
            Some(extents) => {
                self.tell_mended(cx, &mend);
                for (range, body) in bodies(blocks, extents) {
                    let repair = Repair { pg, device: me, epoch, commit, id: None, range, body };
                    cx.act(Action::AppendRepair(repair));
                }
            }
            None => {
                mend.tried.push(device);
                self.repair.mending.wait(mend);
            }
        }
        self.retry_waiting(cx);
        self.run_mends(cx);
    }

    /// Questions to copies that have fallen silent, or are members no more, hold up no writes.
    pub(crate) fn give_up_questions(&mut self, cx: &mut GroupCx) {
        let now = cx.now;
        let Primary { peers, repair, .. } = self;
        repair.mending.give_up(|device| peers.get(device).is_some_and(|peer| peer.answers(now)));
        self.give_up_elsewhere(cx);
        self.retry_waiting(cx);
    }
}
