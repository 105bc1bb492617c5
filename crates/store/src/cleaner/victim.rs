//! The segment that is being emptied: what was written into it, and what of that is live.

use crate::cleaner::headers::Headers;
use crate::cx::VictimId;
use crate::jobs::Jobs;
use crate::log::format::{Contents, Entries, Kind};
use crate::map::MergedOwners;
use crate::map::{Leaf, LeafKey};
use crate::segments::Segments;
use azekura_base::{BlockIndex, BlockRange, Checksum, Checksums, KeyGeneration, LayerId, Prepared, Sequence};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Blocks in one read of live blocks.
const READ_BLOCKS_MAX: u32 = 64;
/// Dead blocks between live ones that are read along rather than split a read.
const GAP_BLOCKS_MAX: u32 = 4;

/// Blocks of the victim that one record wrote.
#[derive(Debug)]
pub(super) struct Candidate {
    pub key: LeafKey,
    pub first: BlockIndex,
    pub count: u16,
    pub address: u32,
    /// Of a write: its sequence in its group, by which it is found if it is not committed yet.
    pub sequence: Sequence,
}

/// Blocks of the victim whose leaf is to be asked which of them are live.
#[derive(Debug)]
pub(crate) struct Probe {
    pub key: LeafKey,
    pub first: BlockIndex,
    pub count: u16,
    pub address: u32,
    /// Of the victim that asks.
    pub victim: VictimId,
}

/// Blocks of the victim that are live: at one address after the other, in one leaf.
#[derive(Debug)]
pub(super) struct LiveRun {
    pub key: LeafKey,
    pub first: BlockIndex,
    pub address: u32,
    pub checksums: Vec<Checksum>,
    /// The generation of the key that all of them are encrypted under.
    pub encrypted_under: KeyGeneration,
    /// The blocks are a write's that is not committed yet: which write, and which append of it.
    pub prepared: Option<(Prepared, u64)>,
}

impl LiveRun {
    fn end(&self) -> u32 {
        self.address + self.checksums.len() as u32
    }
}

/// A live run in a read, without its place in the map of runs.
pub(super) type LiveRunOf = (LeafKey, BlockIndex, u32, Checksums, Option<(Prepared, u64)>);

/// What a read of live blocks is for.
#[derive(Debug)]
pub(super) struct VictimRead {
    pub victim: VictimId,
    pub segment: u32,
    /// Of the first block that is read.
    pub address: u32,
    pub runs: Vec<LiveRunOf>,
}

#[derive(Debug)]
pub(super) enum Stage {
    Footer,
    Summary,
    /// There is no summary: the headers of moved blocks are being read.
    Headers(Headers),
    /// It is known what was written into it; who owns that now is being looked up.
    MergedOwners(Contents),
    /// The map is being asked.
    Probing,
    /// Live blocks are being read.
    Reading,
}

#[derive(Debug)]
pub(super) struct Victim {
    pub id: VictimId,
    pub segment: u32,
    pub generation: u64,
    pub stage: Stage,
    candidates: VecDeque<Candidate>,
    /// Questions to the map in flight.
    pub probes: usize,
    /// By address.
    live: BTreeMap<u32, LiveRun>,
    /// Reads in flight.
    pub reads: usize,
    /// Something in it could be moved.
    pub fruitful: bool,
    /// Some of it was read, and some of it the device refused to read.
    pub read: bool,
    pub refused: bool,
    /// Its headers were looked for one behind the other: perhaps not all of them were found.
    pub walked: bool,
    /// No blocks change their owner while it is looked at.
    pub is_quiet: bool,
    /// Merged owners of it were saved since they were asked for.
    pub owners_saved: bool,
}

impl Victim {
    pub fn new(id: VictimId, segment: u32, generation: u64, is_quiet: bool) -> Victim {
        Victim {
            id,
            segment,
            generation,
            stage: Stage::Footer,
            candidates: VecDeque::new(),
            probes: 0,
            live: BTreeMap::new(),
            reads: 0,
            fruitful: false,
            read: false,
            refused: false,
            walked: false,
            is_quiet,
            owners_saved: false,
        }
    }

    /// The map is asked about these.
    pub fn ask_about(&mut self, candidates: VecDeque<Candidate>) {
        self.candidates = candidates;
    }

    pub fn next_candidate(&mut self) -> Option<Candidate> {
        self.candidates.pop_front()
    }

    pub fn is_live(&mut self, run: LiveRun) {
        self.live.insert(run.address, run);
    }

    /// Takes the live blocks of `layer` out of what is still to be read.
    pub fn forget_layer(&mut self, layer: LayerId) {
        self.live.retain(|_, run| run.key.layer != layer || run.prepared.is_some());
    }

    /// The leaf of some blocks has been looked up: those that it owns are live.
    pub fn probed(&mut self, probe: &Probe, leaf: &Leaf) {
        let Probe { key, first, count, address, .. } = *probe;
        let mut run: Option<LiveRun> = None;
        for index in 0..count {
            let entry = &leaf.entries[usize::from(first.0 + index)];
            if !entry.is_own() || entry.address != address + u32::from(index) {
                self.live.extend(run.take().map(|run| (run.address, run)));
                continue;
            }
            if run.as_ref().is_some_and(|run| run.encrypted_under != entry.key()) {
                self.live.extend(run.take().map(|run| (run.address, run)));
            }
            let run = run.get_or_insert_with(|| LiveRun {
                key,
                first: BlockIndex(first.0 + index),
                address: entry.address,
                checksums: Vec::new(),
                encrypted_under: entry.key(),
                prepared: None,
            });
            run.checksums.push(entry.stored_checksum());
        }
        self.live.extend(run.map(|run| (run.address, run)));
    }

    /// The next live blocks to read at once, with what of them is live, and how many blocks that is in all.
    pub fn next_read(&mut self) -> Option<(VictimRead, u32)> {
        let (start, run) = self.live.pop_first()?;
        let mut end = run.end();
        let mut runs = vec![run];
        while let Some(next) = self.live.first_entry() {
            let next = next.get();
            if next.address > end + GAP_BLOCKS_MAX || next.end() - start > READ_BLOCKS_MAX {
                break;
            }
            end = next.end();
            runs.extend(self.live.pop_first().map(|(_, run)| run));
        }
        let checksums = |run: &LiveRun| Checksums::from(&run.checksums[..]).under(run.encrypted_under);
        let runs: Vec<LiveRunOf> =
            runs.into_iter().map(|r| (r.key, r.first, r.address, checksums(&r), r.prepared)).collect();
        Some((VictimRead { victim: self.id, segment: self.segment, address: start, runs }, end - start))
    }
}

/// What was written into `segment`, by its summary or its headers, and whose it may be now.
pub(super) fn candidates(
    segments: &Segments,
    segment: u32,
    contents: &Contents,
    owners_of: impl Fn(LayerId) -> Vec<LayerId>,
) -> VecDeque<Candidate> {
    let mut owners: BTreeMap<LayerId, Vec<LayerId>> = BTreeMap::new();
    let mut candidates = VecDeque::new();
    for (block, entries) in contents {
        let mut address = segments.address(segment, *block);
        for entry in Entries::new(entries) {
            let blocks = entry.payload_blocks();
            if blocks > 0 {
                let BlockRange { first, count, chunk, layer } = entry.range();
                let is_write = matches!(entry.kind, Kind::Write | Kind::WriteAgain);
                let sequence = Sequence(if is_write { entry.head.sequence } else { 0 });
                let owners = owners.entry(layer).or_insert_with(|| owners_of(layer));
                for layer in owners.iter().copied() {
                    let key = LeafKey { layer, chunk, pg: entry.pg() };
                    candidates.push_back(Candidate { key, first, count, address, sequence });
                }
            }
            address += blocks;
        }
    }
    candidates
}

/// The layers that may own what `layer` wrote into `segment`. `saved` are the merged owners that the map has saved.
pub(super) fn owners(
    segment: u32,
    layer: LayerId,
    merged_owners: &MergedOwners,
    saved: &BTreeMap<LayerId, LayerId>,
    jobs: &Jobs,
) -> Vec<LayerId> {
    let mut owners = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = Some(layer);
    // Damaged rows must not lead in circles.
    while let Some(layer) = next.filter(|layer| seen.insert(*layer)) {
        next = merged_owners.get(segment, layer).or_else(|| saved.get(&layer).copied());
        if next.is_none() || jobs.is_merging(layer) {
            owners.push(layer);
        }
    }
    owners
}
