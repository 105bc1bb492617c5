//! Scrub: the primary and every in-sync copy look at every chunk of the group, and their digests are compared.
//!
//! A *deep* look reads the chunk. What fails its checksum on any copy is mended (`mending.rs`) by the way; what differs
//! although it can be read is written anew from the primary's copy, and reported. A *light* look reads no block: its
//! digests are the checksums in the map. It finds a copy that lost an update or kept one that others do not have, and
//! is cheap; a chunk whose maps keep differing is looked at deeply, and only that mends.
//!
//! Writes go on meanwhile, and copies apply them at different moments. So a block counts as different only when it
//! differs at several looks, while the primary's own contents of it stay the same.

use super::scrub::{Look, Scrub};
use crate::action::Action;
use crate::context::GroupCx;
use crate::digest;
use crate::finding::{Finding, Flaw, ScrubKind, ScrubReport};
use crate::primary::Primary;
use crate::primary::peer::Standing;
use azekura_base::{BlockIndex, BlockRange, CHUNK_SIZE, Checksum, ChunkIndex, DeviceId, Extent, IoStatus, LayerId};
use azekura_wire::{Compare, CompareOk, DIGEST_SPAN_BLOCKS, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Light looks of one group between two ticks: some 2,500 chunks a second.
const LOOKS_PER_TICK: u32 = 256;

/// A deep look stands for so many light ones: 2 chunks between two ticks, some 80 MiB/s for each copy.
const DEEP_LOOK: u32 = LOOKS_PER_TICK / 2;

/// What a light look counts for in the group's allowance: the look may load a leaf of the map, and costs a message each
/// way.
const LIGHT_LOOK_BYTES: usize = 16 << 10;

/// Looks at a chunk whose copies differ, before they are taken to differ for good.
const LOOKS: u8 = 4;

/// Pause between two looks: longer than commit points need to reach idle secondaries.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// A look that takes longer is given up; the copy is away, and will be resynced.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

impl Primary {
    /// Starts a pass over the whole group; [`Action::Scrubbed`] ends it. False when this copy is not an open primary,
    /// or does so already.
    pub(crate) fn begin_scrub(&mut self, cx: &mut GroupCx, kind: ScrubKind) -> bool {
        let me = cx.me;
        if !self.is_open() || self.repair.scrub.is_some() {
            return false;
        }
        let id = self.repair.repairs.name();
        let report = ScrubReport { kind, ..ScrubReport::default() };
        self.repair.scrub = Some(Scrub { listing: id, report, ..Scrub::default() });
        // The list is of everything, for this copy itself.
        cx.act(Action::ListChanges { id, device: me, after: azekura_base::Sequence::ZERO });
        true
    }

    /// How far a scrub has come.
    pub(crate) fn scrubbing(&self) -> Option<ScrubReport> {
        self.repair.scrub.as_ref().map(|scrub| scrub.report)
    }

    /// The scrub that is under way here.
    pub(crate) fn scrub_mut(&mut self) -> Option<&mut Scrub> {
        self.repair.scrub.as_mut()
    }

    /// A scrub waits for this copy's chunk under this name.
    fn looks_at(&self, id: u64) -> bool {
        let look = self.repair.scrub.as_ref().and_then(|scrub| scrub.look.as_ref());
        look.is_some_and(|look| look.id == id && look.own.is_none())
    }

    pub(crate) fn scrub_listed(&mut self, cx: &mut GroupCx, id: u64, chunks: Option<Vec<(LayerId, ChunkIndex)>>) {
        let Some(scrub) = self.repair.scrub.as_mut().filter(|scrub| scrub.listing == id) else { return };
        match chunks {
            Some(chunks) => {
                scrub.listed = true;
                scrub.report.chunks = chunks.len() as u64;
                scrub.todo = chunks.into();
            }
            None => self.repair.scrub = None,
        }
        self.run_scrub(cx);
    }

    /// Time passes.
    pub(crate) fn tick_scrub(&mut self, cx: &mut GroupCx) {
        let now = cx.now;
        let Some(scrub) = self.scrub_mut() else { return };
        scrub.budget = LOOKS_PER_TICK;
        if scrub.look.as_ref().is_some_and(|look| now >= look.started + LOOK_PATIENCE) {
            scrub.look = None;
            scrub.differing.clear();
            scrub.chunk_done();
        }
        self.run_scrub(cx);
    }

    pub(crate) fn run_scrub(&mut self, cx: &mut GroupCx) {
        let now = cx.now;
        let Some(scrub) = &mut self.repair.scrub else { return };
        if !scrub.listed || scrub.look.is_some() || now < scrub.next_look {
            return;
        }
        let Some((layer, chunk)) = scrub.todo.front().copied() else {
            let report = scrub.report;
            let findings = std::mem::take(&mut scrub.findings).take();
            self.repair.scrub = None;
            cx.act(Action::Scrubbed(report, findings));
            return;
        };
        let deep = scrub.is_deep();
        let Some(left) = scrub.budget.checked_sub(if deep { DEEP_LOOK } else { 1 }) else { return };
        if !cx.allowance.is_open() {
            return;
        }
        scrub.budget = left;
        cx.allowance.take(if deep { CHUNK_SIZE } else { LIGHT_LOOK_BYTES });
        let id = self.repair.repairs.name();
        scrub.look = Some(Look { id, started: now, own: None, asked: BTreeSet::new(), unreadable: false });
        cx.act(if deep {
            Action::LoadBlocks { id, range: BlockRange::chunk(layer, chunk) }
        } else {
            Action::LoadChecksums { id, layer, chunk }
        });
    }

    /// This copy's chunk is read. Gives the contents back when they were read for something else.
    pub(crate) fn scrub_loaded(
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
        checksums: Result<Vec<Option<Checksum>>, IoStatus>,
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

    /// This copy's digests are there: the others are asked for theirs.
    fn look_at(&mut self, cx: &mut GroupCx, digests: Result<Vec<u64>, IoStatus>) {
        let (now, pg, committed) = (cx.now, cx.pg, cx.tail.committed());
        let epoch = self.epoch();
        let Some(scrub) = &mut self.repair.scrub else { return };
        let light = !scrub.is_deep();
        let (Some(look), Some((layer, chunk))) = (&mut scrub.look, scrub.todo.front().copied()) else { return };
        let Ok(blocks) = digests else {
            // The damaged block is being mended: look again.
            scrub.look = None;
            scrub.try_again(now);
            return;
        };
        let spans = digest::spans(&blocks);
        look.own = Some(blocks);
        for (device, peer) in &self.peers {
            // A copy that lags would differ in blocks that it has yet to write, and one that has taken leave applies
            // nothing more.
            let follows = peer.synced && !peer.leaving && peer.stream.acked >= committed;
            if follows && matches!(peer.standing, Standing::InSync) {
                look.asked.insert(*device);
                let spans = spans.clone();
                let compare = Compare { pg, device: *device, epoch, id: look.id, layer, chunk, light, spans };
                cx.act(Action::Send(*device, Message::Compare(compare)));
            }
        }
        self.end_look(cx);
    }

    /// A copy says what differs in the chunk. False when it was asked for something else.
    pub(crate) fn scrub_compared(&mut self, cx: &mut GroupCx, device: DeviceId, ok: &CompareOk) -> bool {
        let Some(scrub) = self.scrub_mut() else { return false };
        let Some(look) = scrub.look.as_mut().filter(|look| look.id == ok.id) else { return false };
        let Some(own) = &look.own else { return false };
        if look.asked.remove(&device) {
            look.unreadable |= ok.unreadable;
            for span in &ok.differing {
                let at = usize::from(span.index) * DIGEST_SPAN_BLOCKS;
                for (n, digest) in span.blocks.iter().enumerate() {
                    if own.get(at + n).is_some_and(|own| own != digest) {
                        scrub.differing.insert((device, (at + n) as u16), own[at + n]);
                    }
                }
            }
            self.end_look(cx);
        }
        true
    }

    /// Goes on when every copy has answered.
    fn end_look(&mut self, cx: &mut GroupCx) {
        let now = cx.now;
        let Some(scrub) = self.scrub_mut() else { return };
        if scrub.look.as_ref().is_none_or(|look| !look.asked.is_empty()) {
            return;
        }
        let unreadable = scrub.look.take().is_some_and(|look| look.unreadable);
        let differing = std::mem::take(&mut scrub.differing);
        if unreadable {
            scrub.try_again(now);
            self.run_scrub(cx);
            return;
        }
        let lasts = |(at, own): &(&(DeviceId, u16), &u64)| scrub.looks == 0 || scrub.doubts.get(*at) == Some(*own);
        let lasting: BTreeMap<_, _> = differing.iter().filter(lasts).map(|(at, own)| (*at, *own)).collect();
        let mut mends = Vec::new();
        if lasting.is_empty() {
            scrub.chunk_done(); // The copies are equal, or differ elsewhere each time: writes passing by.
        } else if scrub.looks < LOOKS {
            scrub.doubts = lasting;
            scrub.looks += 1;
            scrub.next_look = now + LOOK_PAUSE;
        } else if !scrub.is_deep() {
            scrub.report.suspect += 1;
            scrub.begin_chunk();
            scrub.suspects = true;
        } else if let Some((layer, chunk)) = scrub.todo.front().copied() {
            scrub.report.differing += lasting.len() as u64;
            for (device, block) in lasting.into_keys() {
                let block = BlockIndex(block);
                // The block is written anew in a moment, since this copy could read its own just now.
                scrub.findings.note(Finding { device, layer, chunk, block, flaw: Flaw::Differs, mended: true });
                mends.push((device, BlockRange::block(layer, chunk, block)));
            }
            scrub.chunk_done();
        }
        for (device, blocks) in mends {
            self.mend(cx, device, blocks);
        }
        self.run_scrub(cx);
    }
}
