//! Scrub: the primary and every in-sync copy look at every chunk of the group, and their digests are compared.
//!
//! A *deep* look reads the chunk. What fails its checksum on any copy is mended (`mending.rs`) by the way; what differs
//! although it can be read is written anew from the primary's copy, and reported. A *light* look reads no block: its
//! digests are the checksums in the map. A light look finds a copy that lost an update or kept one that others do not
//! have, and is cheap; a chunk whose maps keep differing is looked at deeply, and only a deep look mends.
//!
//! Writes go on meanwhile, and copies apply them at different moments. So a block counts as different only when it
//! differs at several looks, while the primary's own contents of it stay the same.

use super::Repair;
use super::scrub::Scrub;
use crate::action::Action;
use crate::context::GroupCx;
use crate::digest;
use crate::finding::{Flaw, ScrubKind, ScrubReport};
use crate::primary::Primary;
use azekura_base::{BlockSum, ChunkIndex, DeviceId, Extent, IoStatus, LayerId, Sequence};
use azekura_wire::CompareOk;

impl Primary {
    /// Starts a pass over the whole group; [`Action::Scrubbed`] ends it. False when this copy is not an open primary,
    /// or does so already.
    pub(crate) fn begin_scrub(&mut self, cx: &mut GroupCx, kind: ScrubKind) -> bool {
        if !self.is_open() || self.repair.scrub.is_some() {
            return false;
        }
        let id = self.repair.name();
        self.repair.scrub = Some(Scrub::new(kind, id));
        // The list is of everything, for this copy itself.
        cx.act(Action::ListChanges { id, device: cx.me, after: Sequence::ZERO });
        true
    }

    /// How far a scrub has come.
    pub(crate) fn scrubbing(&self) -> Option<ScrubReport> {
        self.repair.scrub.as_ref().map(Scrub::report)
    }

    /// The scrub that is under way here.
    pub(super) fn scrub_mut(&mut self) -> Option<&mut Scrub> {
        self.repair.scrub.as_mut()
    }

    /// A scrub waits for this copy's chunk under this name.
    fn looks_at(&self, id: u64) -> bool {
        self.repair.scrub.as_ref().is_some_and(|scrub| scrub.looks_at(id))
    }

    /// The chunks of the group are listed; `None` when the device could not tell.
    pub(super) fn scrub_listed(&mut self, cx: &mut GroupCx, id: u64, chunks: Option<Vec<(LayerId, ChunkIndex)>>) {
        let Some(scrub) = self.scrub_mut().filter(|scrub| scrub.has_asked_for(id)) else { return };
        match chunks {
            Some(chunks) => scrub.on_listed(chunks),
            None => self.repair.scrub = None,
        }
        self.run_scrub(cx);
    }

    /// Time passes.
    pub(crate) fn tick_scrub(&mut self, cx: &mut GroupCx) {
        let epoch = self.epoch();
        if let Some(scrub) = &mut self.repair.scrub {
            scrub.tick(cx, epoch, &self.peers);
            // A copy that it has waited for may be in sync no more.
            self.end_look(cx);
            self.run_scrub(cx);
        }
    }

    /// Looks at the next chunk, if it is time.
    pub(crate) fn run_scrub(&mut self, cx: &mut GroupCx) {
        let Repair { scrub, repairs, .. } = &mut self.repair;
        scrub.take_if(|scrub| scrub.run(cx, repairs));
    }

    /// This copy's chunk is read. Gives the contents back when they were read for something else.
    pub(super) fn scrub_loaded(
        &mut self,
        cx: &mut GroupCx,
        id: u64,
        contents: Result<Vec<Extent>, IoStatus>,
    ) -> Option<Result<Vec<Extent>, IoStatus>> {
        if !self.looks_at(id) {
            return Some(contents);
        }
        if let Ok(extents) = &contents {
            cx.allowance.settle_chunk(extents);
        }
        self.look_at(cx, contents.map(|extents| digest::blocks(&extents)));
        None
    }

    /// The outcome of [`Action::LoadChecksums`]: one for each block of the chunk that takes space.
    pub(crate) fn on_checksums_loaded(
        &mut self,
        cx: &mut GroupCx,
        id: u64,
        checksums: Result<Vec<Option<BlockSum>>, IoStatus>,
    ) {
        if self.send_lost(cx, id, &checksums) {
            return self.run_resyncs(cx);
        }
        let digests = checksums.map(|checksums| digest::of_checksums(&checksums));
        if self.looks_at(id) {
            self.look_at(cx, digests);
        } else {
            self.send_light_compare(cx, id, digests);
            self.run_resyncs(cx);
        }
    }

    /// This copy's digests are there.
    fn look_at(&mut self, cx: &mut GroupCx, digests: Result<Vec<u64>, IoStatus>) {
        let epoch = self.epoch();
        if let Some(scrub) = &mut self.repair.scrub {
            scrub.on_digests(cx, epoch, &self.peers, digests);
            self.end_look(cx);
        }
    }

    /// A copy says what differs in the chunk. False when it was asked for something else.
    pub(super) fn scrub_compared(&mut self, cx: &mut GroupCx, device: DeviceId, ok: &CompareOk) -> bool {
        let compared = self.scrub_mut().is_some_and(|scrub| scrub.on_compared(device, ok));
        if compared {
            self.end_look(cx);
        }
        compared
    }

    /// Goes on when every copy has answered.
    fn end_look(&mut self, cx: &mut GroupCx) {
        let now = cx.now;
        let Some(mends) = self.scrub_mut().and_then(|scrub| scrub.end_look(now)) else { return };
        for (device, blocks) in mends {
            self.mend(cx, device, blocks, Flaw::Differs);
        }
        self.run_scrub(cx);
    }
}
