//! Scrub: the primary and every in-sync copy look at every chunk of the group, and their digests are compared.
//!
//! A *deep* look reads the chunk. What fails its checksum on any copy is mended (`mend.rs`) by the way; what differs
//! although it can be read is written anew from the primary's copy, and reported. A *light* look reads no block: its
//! digests are the checksums in the map. It finds a copy that lost an update or kept one that others do not have, and
//! is cheap; a chunk whose maps keep differing is looked at deeply, and only that mends.
//!
//! Writes go on meanwhile, and copies apply them at different moments. So a block counts as different only when it
//! differs at several looks, while the primary's own contents of it stay the same.

use crate::action::Action;
use crate::digest;
use crate::finding::{Finding, Findings, Flaw, ScrubKind, ScrubReport};
use crate::group::{Group, Role};
use crate::peer::Standing;
use azekura_base::{BlockIndex, BlockRange, CHUNK_SIZE, Checksum, ChunkIndex, DeviceId, Extent, IoStatus, LayerId};
use azekura_wire::{Compare, CompareOk, DIGEST_SPAN_BLOCKS, Message};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
/// Damaged blocks of one chunk that are mended one after the other, before the chunk is given up.
const FAILURES: u16 = 64;
/// Pause after a look that has met a damaged block.
const MEND_PAUSE: Duration = Duration::from_millis(100);
/// Pause between two looks: longer than commit points need to reach idle secondaries.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// A look that takes longer is given up; the copy is away, and will be resynced.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

struct Look {
    id: u64,
    started: Duration,
    /// Digests of this copy's blocks, once read.
    own: Option<Vec<u64>>,
    /// Copies that have not answered.
    asked: BTreeSet<DeviceId>,
    /// One of them could not read the chunk.
    unreadable: bool,
}

/// One pass over a group.
#[derive(Default)]
pub(crate) struct Scrub {
    /// Names the list of chunks.
    listing: u64,
    listed: bool,
    todo: VecDeque<(LayerId, ChunkIndex)>,
    look: Option<Look>,
    /// A light scrub looks at this chunk deeply.
    suspects: bool,
    /// Compared looks at the chunk, and failed ones.
    looks: u8,
    failures: u16,
    /// What differed at the last look: copy and block, and this copy's digest.
    doubts: BTreeMap<(DeviceId, u16), u64>,
    /// The same, at the look under way.
    differing: BTreeMap<(DeviceId, u16), u64>,
    next_look: Duration,
    budget: u32,
    report: ScrubReport,
    findings: Findings,
}

impl Group {
    /// Starts a pass over the whole group; [`Action::Scrubbed`] ends it. False when this copy is not an open primary,
    /// or does so already.
    pub fn scrub(&mut self, kind: ScrubKind) -> bool {
        let me = self.me;
        let Role::Primary(primary) = &mut self.role else { return false };
        if !primary.is_open() || primary.scrub.is_some() {
            return false;
        }
        let id = primary.repairs.name();
        let report = ScrubReport { kind, ..ScrubReport::default() };
        primary.scrub = Some(Scrub { listing: id, report, ..Scrub::default() });
        // The list is of everything, for this copy itself.
        self.actions.push_back(Action::ListChanges { id, device: me, after: azekura_base::Sequence::ZERO });
        true
    }

    /// How far a scrub has come.
    #[must_use]
    pub fn scrubbing(&self) -> Option<ScrubReport> {
        self.primary()?.scrub.as_ref().map(|scrub| scrub.report)
    }

    /// The scrub that is under way here.
    pub(crate) fn scrub_mut(&mut self) -> Option<&mut Scrub> {
        self.primary_mut()?.scrub.as_mut()
    }

    /// A scrub waits for this copy's chunk under this name.
    fn looks_at(&self, id: u64) -> bool {
        let look = self.primary().and_then(|primary| primary.scrub.as_ref()?.look.as_ref());
        look.is_some_and(|look| look.id == id && look.own.is_none())
    }

    pub(crate) fn scrub_listed(&mut self, id: u64, chunks: Option<Vec<(LayerId, ChunkIndex)>>) {
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(scrub) = primary.scrub.as_mut().filter(|scrub| scrub.listing == id) else { return };
        match chunks {
            Some(chunks) => {
                scrub.listed = true;
                scrub.report.chunks = chunks.len() as u64;
                scrub.todo = chunks.into();
            }
            None => primary.scrub = None,
        }
        self.run_scrub();
    }

    /// Time passes.
    pub(crate) fn tick_scrub(&mut self) {
        let now = self.now;
        let Some(scrub) = self.scrub_mut() else { return };
        scrub.budget = LOOKS_PER_TICK;
        if scrub.look.as_ref().is_some_and(|look| now >= look.started + LOOK_PATIENCE) {
            scrub.look = None;
            scrub.differing.clear();
            scrub.chunk_done();
        }
        self.run_scrub();
    }

    pub(crate) fn run_scrub(&mut self) {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(scrub) = &mut primary.scrub else { return };
        if !scrub.listed || scrub.look.is_some() || now < scrub.next_look {
            return;
        }
        let Some((layer, chunk)) = scrub.todo.front().copied() else {
            let report = scrub.report;
            let findings = std::mem::take(&mut scrub.findings).take();
            primary.scrub = None;
            self.actions.push_back(Action::Scrubbed(report, findings));
            return;
        };
        let deep = scrub.is_deep();
        let Some(left) = scrub.budget.checked_sub(if deep { DEEP_LOOK } else { 1 }) else { return };
        if !self.allowance.is_open() {
            return;
        }
        scrub.budget = left;
        self.allowance.take(if deep { CHUNK_SIZE } else { LIGHT_LOOK_BYTES });
        let id = primary.repairs.name();
        scrub.look = Some(Look { id, started: now, own: None, asked: BTreeSet::new(), unreadable: false });
        self.actions.push_back(if deep {
            Action::LoadBlocks { id, range: BlockRange::chunk(layer, chunk) }
        } else {
            Action::LoadChecksums { id, layer, chunk }
        });
    }

    /// This copy's chunk is read. Gives the contents back when they were read for something else.
    pub(crate) fn scrub_loaded(
        &mut self,
        id: u64,
        contents: Result<Vec<Extent>, IoStatus>,
    ) -> Option<Result<Vec<Extent>, IoStatus>> {
        if !self.looks_at(id) {
            return Some(contents);
        }
        if let Ok(extents) = &contents {
            self.allowance.settle_chunk(extents);
        }
        self.look_at(contents.map(|extents| digest::blocks(&extents)));
        None
    }

    /// The outcome of [`Action::LoadChecksums`]: one for each block of the chunk that takes space.
    pub fn checksums_loaded(&mut self, id: u64, checksums: Result<Vec<Option<Checksum>>, IoStatus>) {
        if self.send_lost(id, &checksums) {
            return self.run_resyncs();
        }
        let digests = checksums.map(|checksums| digest::of_checksums(&checksums));
        match &self.role {
            Role::Secondary(_) => self.answer_compare(id, digests),
            Role::Primary(_) if self.looks_at(id) => self.look_at(digests),
            Role::Primary(_) => {
                self.send_light_compare(id, digests);
                self.run_resyncs();
            }
        }
    }

    /// This copy's digests are there: the others are asked for theirs.
    fn look_at(&mut self, digests: Result<Vec<u64>, IoStatus>) {
        let (now, pg, committed) = (self.now, self.pg, self.tail.committed());
        let Role::Primary(primary) = &mut self.role else { return };
        let epoch = primary.epoch();
        let Some(scrub) = &mut primary.scrub else { return };
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
        for (device, peer) in &primary.peers {
            // A copy that lags would differ in blocks that it has yet to write, and one that has taken leave applies
            // nothing more.
            let follows = peer.synced && !peer.leaving && peer.acked >= committed;
            if follows && matches!(peer.standing, Standing::InSync) {
                look.asked.insert(*device);
                let spans = spans.clone();
                let compare = Compare { pg, device: *device, epoch, id: look.id, layer, chunk, light, spans };
                self.actions.push_back(Action::Send(*device, Message::Compare(compare)));
            }
        }
        self.end_look();
    }

    /// A copy says what differs in the chunk. False when it was asked for something else.
    pub(crate) fn scrub_compared(&mut self, device: DeviceId, ok: &CompareOk) -> bool {
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
            self.end_look();
        }
        true
    }

    /// Goes on when every copy has answered.
    fn end_look(&mut self) {
        let now = self.now;
        let Some(scrub) = self.scrub_mut() else { return };
        if scrub.look.as_ref().is_none_or(|look| !look.asked.is_empty()) {
            return;
        }
        let unreadable = scrub.look.take().is_some_and(|look| look.unreadable);
        let differing = std::mem::take(&mut scrub.differing);
        if unreadable {
            scrub.try_again(now);
            self.run_scrub();
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
            self.mend(device, blocks);
        }
        self.run_scrub();
    }
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
    fn is_deep(&self) -> bool {
        self.report.kind == ScrubKind::Deep || self.suspects
    }

    /// A copy of the chunk can't be read. What is damaged is being mended, a block at each look.
    fn try_again(&mut self, now: Duration) {
        self.failures += 1;
        self.next_look = now + MEND_PAUSE;
        if self.failures > FAILURES {
            self.report.unreadable += 1;
            self.chunk_done();
        }
    }

    fn chunk_done(&mut self) {
        self.todo.pop_front();
        self.report.chunks_done += 1;
        self.begin_chunk();
    }

    /// What is known of a chunk is forgotten.
    fn begin_chunk(&mut self) {
        (self.looks, self.failures, self.suspects) = (0, 0, false);
        self.doubts.clear();
    }
}
