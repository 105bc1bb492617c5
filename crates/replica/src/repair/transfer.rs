//! Blocks are read here and sent to copies that lack them.

use super::resync::Reading;
use crate::action::Action;
use crate::context::GroupCx;
use crate::finding::Flaw;
use crate::primary::Primary;
use azekura_base::{BlockIndex, BlockRange, BlockSum, Body, DeviceId, Extent, IoStatus, UNKNOWN_CHECKSUM};
use azekura_wire::{DIGEST_SPAN_BLOCKS, Message, Repair, RepairOk};
use std::num::NonZeroU64;

/// Most blocks of one repair: writes to them wait while they are read.
const REPAIR_BLOCKS_MAX: u16 = 32;

impl Primary {
    /// The outcome of [`Action::LoadBlocks`].
    pub(crate) fn on_blocks_loaded(&mut self, cx: &mut GroupCx, id: u64, contents: Result<Vec<Extent>, IoStatus>) {
        let Some(contents) = self.mend_loaded(cx, id, contents) else { return };
        let Some(contents) = self.scrub_loaded(cx, id, contents) else { return };
        if let Some(Reading { device, blocks }) = self.repair.repairs.reading.remove(&id) {
            self.send_repair(cx, device, id, blocks, contents);
            self.retry_waiting(cx);
        } else {
            self.send_compare(cx, id, contents);
        }
        self.run_resyncs(cx);
    }

    fn send_repair(
        &mut self,
        cx: &mut GroupCx,
        device: DeviceId,
        id: u64,
        blocks: BlockRange,
        contents: Result<Vec<Extent>, IoStatus>,
    ) {
        let now = cx.now;
        let unrepairable = self.repair.mending.is_unrepairable(&blocks, now);
        if contents.is_ok() {
            self.repair.repairs.refused.retain(|refused, _| !refused.overlaps(&blocks));
        }
        let Some((resync, heard)) = self.resync(device) else { return };
        let Ok(extents) = contents else {
            resync.repairing.remove(&id);
            let is_mark = resync.is_mark(&blocks);
            if is_mark || !unrepairable {
                resync.withhold(blocks);
                if !is_mark && self.repair.repairs.is_refused_for_long(&blocks, now) {
                    // Another copy may have it; if none has, it is lost.
                    self.mend(cx, cx.me, blocks, Flaw::Damaged);
                }
                return;
            }
            // The copy gets the checksum of what it should have (decision 0014). Until that is known no write to the
            // block is ordered.
            resync.repairing.insert(id, blocks);
            self.repair.repairs.reading.insert(id, Reading { device, blocks });
            self.repair.repairs.losing.insert(id);
            let BlockRange { layer, chunk, .. } = blocks;
            cx.act(Action::LoadChecksums { id, layer, chunk });
            return;
        };
        *heard = cx.now;
        resync.note_answer(cx.now);
        let bytes =
            extents.iter().map(|extent| if let Extent::Data { bytes, .. } = extent { bytes.len() as u64 } else { 0 });
        resync.sent(&blocks, bytes.sum());
        if let Some(peer) = self.peers.get_mut(&device) {
            peer.stream.backlog.repair_sent(id, &extents);
        }
        self.send_repairs(cx, device, NonZeroU64::new(id), blocks, extents);
    }

    /// The checksums are here of a chunk with a block that no copy in sync can give (decision 0014). False when this
    /// was not asked for that.
    pub(crate) fn send_lost(
        &mut self,
        cx: &mut GroupCx,
        id: u64,
        checksums: &Result<Vec<Option<BlockSum>>, IoStatus>,
    ) -> bool {
        let now = cx.now;
        if !self.repair.repairs.losing.remove(&id) {
            return false;
        }
        let Some(Reading { device, blocks }) = self.repair.repairs.reading.remove(&id) else { return true };
        if let Some((resync, heard)) = self.resync(device) {
            *heard = now;
            resync.note_answer(now);
            let sum = checksums.as_ref().ok().and_then(|sums| sums.get(usize::from(blocks.first.0)).copied());
            match sum {
                // Nobody knows what it should be. What a copy had before may be the last that there is of it; a new one
                // has nothing to give up, and the rest of the group must not wait for this.
                Some(Some(sum)) if sum.checksum == UNKNOWN_CHECKSUM && !resync.is_new() => {
                    resync.repairing.remove(&id);
                    resync.withhold(blocks);
                }
                Some(Some(sum)) => {
                    self.send_body(cx, device, NonZeroU64::new(id), blocks, Body::Lost { checksums: sum.into() })
                }
                Some(None) => self.send_body(cx, device, NonZeroU64::new(id), blocks, Body::Zero),
                None => {
                    resync.repairing.remove(&id);
                    resync.withhold(blocks);
                }
            }
        }
        self.retry_waiting(cx);
        true
    }

    /// A repair is durable.
    pub(crate) fn on_repair_ok(&mut self, cx: &mut GroupCx, device: DeviceId, ok: RepairOk) {
        let now = cx.now;
        if let Some(resync) = self.heard_learner(cx, device, ok.epoch, now)
            && let Some(id) = ok.id
        {
            resync.repairing.remove(&id.get());
            self.repair_arrived(cx, device, id.get());
        }
        self.run_resyncs(cx);
    }

    /// Sends contents of blocks to which no write is under way.
    pub(crate) fn send_repairs(
        &mut self,
        cx: &mut GroupCx,
        device: DeviceId,
        id: Option<NonZeroU64>,
        blocks: BlockRange,
        extents: Vec<Extent>,
    ) {
        let last = extents.len().saturating_sub(1);
        for (n, (range, body)) in bodies(blocks, extents).enumerate() {
            // Repairs are made durable in their order: the answer to the last one stands for all.
            let id = id.filter(|_| n == last);
            self.send_body(cx, device, id, range, body);
        }
    }

    pub(crate) fn send_body(
        &mut self,
        cx: &mut GroupCx,
        device: DeviceId,
        id: Option<NonZeroU64>,
        range: BlockRange,
        body: Body,
    ) {
        let commit = cx.tail.committed();
        let (pg, epoch) = (cx.pg, self.epoch());
        let repair = Repair { pg, device, epoch, commit, id, range, body };
        cx.act(Action::Send(device, Message::Repair(repair)));
    }
}

/// Extents that were read of `blocks`, as bodies of repairs.
pub(super) fn bodies(blocks: BlockRange, extents: Vec<Extent>) -> impl Iterator<Item = (BlockRange, Body)> {
    let mut at = blocks.first.0;
    extents.into_iter().map(move |extent| {
        let range = BlockRange { first: BlockIndex(at), count: extent.count(), ..blocks };
        at += range.count;
        (range, Body::from(extent))
    })
}

const _: () = assert!(DIGEST_SPAN_BLOCKS <= REPAIR_BLOCKS_MAX as usize);
