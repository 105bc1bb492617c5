//! One pass over a group: which chunk is looked at, how often, and what was found.

use super::resync::Repairs;
use crate::action::Action;
use crate::context::GroupCx;
use crate::digest;
use crate::finding::{Finding, Findings, Flaw, ScrubKind, ScrubReport};
use crate::primary::peer::{Peer, Standing};
use azekura_base::{BlockIndex, BlockRange, CHUNK_SIZE, ChunkIndex, DeviceId, Epoch, IoStatus, LayerId, Sequence};
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

/// Pause between two looks: longer than commit points need to reach idle secondaries.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// A look at which a copy has not answered for so long is begun anew ...
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// ... so often, before the copy is taken for one that can't read the chunk.
const UNANSWERED: u8 = 12;

/// Damaged blocks of one chunk that are mended one after the other, before the chunk is given up.
const FAILURES: u16 = 64;

/// Pause after a look that has met a damaged block.
const MEND_PAUSE: Duration = Duration::from_millis(100);

/// A chunk that is being compared. It ends when every copy in sync has answered, or is in sync no more: a chunk that
/// was compared with nobody would count as good.
struct Inspection {
    id: u64,
    /// Digests of this copy's blocks, once read.
    own: Option<Vec<u64>>,
    /// What was committed when they were read: a copy that has less would differ in blocks that it has yet to write.
    committed: Sequence,
    /// Copies in sync that can't be asked yet.
    waits: BTreeSet<DeviceId>,
    /// Copies that have not answered, and when they were asked.
    asked: BTreeMap<DeviceId, Duration>,
    /// One of them could not read the chunk.
    unreadable: bool,
}

impl Inspection {
    /// Every copy has answered.
    fn has_ended(&self) -> bool {
        self.own.is_some() && self.waits.is_empty() && self.asked.is_empty()
    }
}

/// One pass over a group.
#[derive(Default)]
pub(crate) struct Scrub {
    /// Names the list of chunks.
    listing: u64,
    listed: bool,
    todo: VecDeque<(LayerId, ChunkIndex)>,
    look: Option<Inspection>,
    /// A light scrub looks at this chunk deeply.
    suspects: bool,
    /// Compared looks at the chunk, failed ones, and those that were not answered.
    looks: u8,
    failures: u16,
    unanswered: u8,
    /// What differed at the last look: copy and block, and this copy's digest.
    doubts: BTreeMap<(DeviceId, u16), u64>,
    /// The same, at the look under way.
    differing: BTreeMap<(DeviceId, u16), u64>,
    next_look: Duration,
    budget: u32,
    report: ScrubReport,
    findings: Findings,
}

impl Scrub {
    /// A pass of this kind, which waits for the list of chunks that is named `listing`.
    pub(super) fn new(kind: ScrubKind, listing: u64) -> Scrub {
        Scrub { listing, report: ScrubReport { kind, ..ScrubReport::default() }, ..Scrub::default() }
    }

    /// How far the scrub has come.
    pub(super) fn report(&self) -> ScrubReport {
        self.report
    }

    /// The scrub has asked for the list of this name.
    pub(super) fn has_asked_for(&self, listing: u64) -> bool {
        self.listing == listing
    }

    /// The chunks of the group.
    pub(super) fn on_listed(&mut self, chunks: Vec<(LayerId, ChunkIndex)>) {
        self.listed = true;
        self.report.chunks = chunks.len() as u64;
        self.todo = chunks.into();
    }

    /// The scrub waits for this copy's chunk under this name.
    pub(super) fn looks_at(&self, id: u64) -> bool {
        self.look.as_ref().is_some_and(|look| look.id == id && look.own.is_none())
    }

    /// Time passes.
    pub(super) fn tick(&mut self, cx: &mut GroupCx, epoch: Epoch, peers: &BTreeMap<DeviceId, Peer>) {
        self.budget = LOOKS_PER_TICK;
        self.ask(cx, epoch, peers);
        let now = cx.now;
        let late = |look: &mut Inspection| look.asked.values().any(|asked| now >= *asked + ANSWER_PATIENCE);
        if self.look.take_if(late).is_some() {
            self.differing.clear();
            self.unanswered += 1;
            if self.unanswered >= UNANSWERED {
                self.report.unreadable += 1;
                self.chunk_done();
            }
        }
    }

    /// Looks at the next chunk, if it is time. True when there is none left: the pass has ended.
    pub(super) fn run(&mut self, cx: &mut GroupCx, names: &mut Repairs) -> bool {
        if !self.listed || self.look.is_some() || cx.now < self.next_look {
            return false;
        }
        let Some((layer, chunk)) = self.todo.front().copied() else {
            cx.act(Action::Scrubbed(self.report, std::mem::take(&mut self.findings).take()));
            return true;
        };
        let deep = self.is_deep();
        let Some(left) = self.budget.checked_sub(if deep { DEEP_LOOK } else { 1 }) else { return false };
        if !cx.allowance.is_open() {
            return false;
        }
        self.budget = left;
        cx.allowance.take(if deep { CHUNK_SIZE } else { LIGHT_LOOK_BYTES });
        let id = names.name();
        let (waits, asked) = (BTreeSet::new(), BTreeMap::new());
        self.look = Some(Inspection { id, own: None, committed: Sequence::ZERO, waits, asked, unreadable: false });
        cx.act(if deep {
            Action::LoadBlocks { id, range: BlockRange::chunk(layer, chunk) }
        } else {
            Action::LoadChecksums { id, layer, chunk }
        });
        false
    }

    /// This copy's digests are there: the others are asked for theirs, by the primary of `epoch`.
    pub(super) fn on_digests(
        &mut self,
        cx: &mut GroupCx,
        epoch: Epoch,
        peers: &BTreeMap<DeviceId, Peer>,
        digests: Result<Vec<u64>, IoStatus>,
    ) {
        let Some(look) = &mut self.look else { return };
        let Ok(blocks) = digests else {
            // The damaged block is being mended: look again.
            self.look = None;
            self.try_again(cx.now);
            return;
        };
        look.own = Some(blocks);
        look.committed = cx.tail.committed();
        look.waits = peers.keys().copied().collect();
        self.ask(cx, epoch, peers);
    }

    /// Asks the copies in sync for their digests that can be asked by now, and waits for no others. A copy whose
    /// connection has ended is asked again.
    fn ask(&mut self, cx: &mut GroupCx, epoch: Epoch, peers: &BTreeMap<DeviceId, Peer>) {
        let light = !self.is_deep();
        let (Some(look), Some((layer, chunk))) = (&mut self.look, self.todo.front().copied()) else { return };
        let Some(own) = &look.own else { return };
        let in_sync = |device: &DeviceId| peers.get(device).filter(|peer| matches!(peer.standing, Standing::InSync));
        let lost = |device: &DeviceId| in_sync(device).is_none_or(|peer| !peer.follows);
        look.waits.extend(look.asked.keys().filter(|device| lost(device)));
        look.asked.retain(|device, _| !lost(device));
        look.waits.retain(|device| in_sync(device).is_some());
        // A copy that has taken leave applies nothing more.
        let can_answer = |peer: &Peer| peer.follows && !peer.leaving && peer.stream.acked >= look.committed;
        let is_ready = |device: &DeviceId| in_sync(device).is_some_and(can_answer);
        let ready: BTreeSet<DeviceId> = look.waits.iter().copied().filter(is_ready).collect();
        if ready.is_empty() {
            return;
        }
        look.waits.retain(|device| !ready.contains(device));
        let spans = digest::spans(own);
        for device in ready {
            look.asked.insert(device, cx.now);
            let spans = spans.clone();
            let compare = Compare { pg: cx.pg, device, epoch, id: look.id, layer, chunk, light, spans };
            cx.act(Action::Send(device, Message::Compare(compare)));
        }
    }

    /// A copy says what differs in the chunk. False when it was asked for something else.
    pub(super) fn on_compared(&mut self, device: DeviceId, ok: &CompareOk) -> bool {
        let Some(look) = self.look.as_mut().filter(|look| look.id == ok.id) else { return false };
        let Some(own) = &look.own else { return false };
        if look.asked.remove(&device).is_some() {
            look.unreadable |= ok.unreadable;
            for span in &ok.differing {
                let at = usize::from(span.index) * DIGEST_SPAN_BLOCKS;
                for (n, digest) in span.blocks.iter().enumerate() {
                    if own.get(at + n).is_some_and(|own| own != digest) {
                        self.differing.insert((device, (at + n) as u16), own[at + n]);
                    }
                }
            }
        }
        true
    }

    /// Ends the look when every copy has answered: what is to be written anew, and on which copies. `None` while a look
    /// goes on, or where there is none.
    pub(super) fn end_look(&mut self, now: Duration) -> Option<Vec<(DeviceId, BlockRange)>> {
        let look = self.look.take_if(|look| look.has_ended())?;
        let differing = std::mem::take(&mut self.differing);
        let mut mends = Vec::new();
        if look.unreadable {
            self.try_again(now);
            return Some(mends);
        }
        let lasts = |(at, own): &(&(DeviceId, u16), &u64)| self.looks == 0 || self.doubts.get(*at) == Some(*own);
        let lasting: BTreeMap<_, _> = differing.iter().filter(lasts).map(|(at, own)| (*at, *own)).collect();
        if lasting.is_empty() {
            self.chunk_done(); // The copies are equal, or differ elsewhere each time: writes passing by.
        } else if self.looks < LOOKS {
            self.doubts = lasting;
            self.looks += 1;
            self.next_look = now + LOOK_PAUSE;
        } else if !self.is_deep() {
            self.report.suspect += 1;
            self.begin_chunk();
            self.suspects = true;
        } else if let Some((layer, chunk)) = self.todo.front().copied() {
            self.report.differing += lasting.len() as u64;
            for (device, block) in lasting.into_keys() {
                let block = BlockIndex(block);
                // The block is written anew in a moment, since this copy could read its own just now.
                self.findings.note(Finding { device, layer, chunk, block, flaw: Flaw::Differs, mended: true });
                mends.push((device, BlockRange::block(layer, chunk, block)));
            }
            self.chunk_done();
        }
        Some(mends)
    }

    /// A copy can't read these blocks.
    pub(super) fn met_damage(&mut self, device: DeviceId, blocks: &BlockRange) {
        let BlockRange { layer, chunk, .. } = *blocks;
        for block in blocks.each() {
            let finding = Finding { device, layer, chunk, block, flaw: Flaw::Damaged, mended: false };
            self.report.damaged += u64::from(self.findings.note(finding));
        }
    }

    /// These blocks of a copy are written anew.
    pub(super) fn mended(&mut self, device: DeviceId, blocks: &BlockRange) {
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
        (self.looks, self.failures, self.unanswered, self.suspects) = (0, 0, 0, false);
        self.doubts.clear();
    }
}
