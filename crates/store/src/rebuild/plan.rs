//! Which blocks are live, which segments are free by that, and where the log goes on; then the map is saved.

use super::chunk::{ChunkLeaves, Chunks};
use super::fact::{Facts, parts};
use super::segment::LogReader;
use super::settings::RebuildSettings;
use super::survey::Survey;
use crate::checkpoint::{CheckpointBatch, GroupRow, Position, Root, SavedMap, SegmentRow};
use crate::effect::{MapError, OpenError};
use crate::map::{Entry, LeafImage, LeafKey, MergedOwner};
use crate::options::SUPERBLOCK_AREA_BLOCKS;
use crate::tools::{Inspector, ReadDevice};
use azekura_base::{Epoch, LayerId, PgId, Sequence};
use bytes::Bytes;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many segments have to be free, where there are enough: what the store keeps for itself, and some for clients.
const FREE_SEGMENTS: u32 = 12;
/// Leaves that are saved at once.
const LEAVES_AT_ONCE: usize = 2048;
/// Openings of which nothing is in the log may have been noted in the map that is gone. No two may have one number.
const INCARNATIONS: u64 = 1 << 20;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RebuildStep {
    /// The first header of each segment is read.
    Headers,
    /// What all segments say of groups and layers is read.
    Survey,
    /// What they say of blocks is read.
    Blocks,
    /// The leaves are saved.
    Save,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RebuildReport {
    /// Segments of the device.
    pub segments: u32,
    /// Segments that hold log.
    pub segments_with_log: u32,
    /// Segments that hold live blocks, by the new map.
    pub segments_used: u32,
    /// Segments of the log without a summary that fits. Their blocks are used only for copies that count as they are.
    pub segments_partial: u32,
    /// Segments whose blocks were left out, so that there is room to write.
    pub segments_given_up: u32,
    /// Blocks that the device refused to read. What they said is missing.
    pub unreadable_blocks: u64,
    /// Leaves of the new map.
    pub leaves: u64,
    /// Blocks that the new map reaches.
    pub live_blocks: u64,
    /// Writes that were left out, because nothing says that they were committed, or because they were dropped.
    pub writes_left_out: u64,
    /// Blocks of which the log does not tell for certain which version is the latest.
    pub ambiguous_blocks: u64,
    /// Placement groups of the new map.
    pub groups: u64,
    /// Of those, the groups that the device has no copy of by the settings: the map has no blocks of them.
    pub groups_unknown: u64,
    /// Of those, the groups whose copies count as they are.
    pub accepted: Vec<PgId>,
}

/// What a pass over all chunks has counted.
#[derive(Debug, Default)]
struct Counted {
    live: Vec<u32>,
    layers: BTreeMap<LayerId, u64>,
    owners: BTreeMap<(u32, LayerId), LayerId>,
    leaves: u64,
    blocks: u64,
    ambiguous: u64,
    unproven: u64,
}

/// Told of each step: how much of how much is done.
type Progress<'a> = &'a mut dyn FnMut(RebuildStep, u64, u64);

/// A map that is ready to be saved.
#[derive(Debug)]
pub struct Rebuild<'a, D> {
    reader: LogReader<D>,
    settings: &'a RebuildSettings,
    survey: Survey,
    parts: u32,
    /// Kept between passes, if one part has all.
    facts: Option<Facts>,
    /// Segments whose blocks are not used.
    left: BTreeSet<u32>,
    given_up: u32,
    counted: Counted,
    /// The segment in which the log goes on.
    next: u32,
}

impl<'a, D: ReadDevice> Rebuild<'a, D> {
    /// Reads the log of `device`, and finds out what its map would be. Nothing is written.
    ///
    /// # Errors
    /// When the device has no superblock, or when no segment would be free to go on in.
    pub fn new(device: D, settings: &'a RebuildSettings, progress: Progress<'_>) -> Result<Rebuild<'a, D>, OpenError> {
        let log = Inspector::open(device)?;
        if let Some(problem) = log.options().problem() {
            return Err(OpenError::Options(problem));
        }
        let reader = LogReader::new(log);
        let all = u64::from(reader.segments);
        let mut survey = Survey::heads(&reader, |segment| progress(RebuildStep::Headers, u64::from(segment), all));
        for index in 0..survey.heads.len() {
            progress(RebuildStep::Survey, index as u64, survey.heads.len() as u64);
            survey.add(settings, &reader.contents(&survey.heads[index], survey.newest));
        }
        let (parts, left) = (parts(&survey, settings), survey.partial.clone());
        let counted = Counted::default();
        let mut rebuild = Rebuild { reader, settings, survey, parts, facts: None, left, given_up: 0, counted, next: 0 };
        rebuild.count(progress);
        while !rebuild.has_room() {
            rebuild.give_up()?;
            rebuild.count(progress);
        }
        Ok(rebuild)
    }

    /// What the new map has, and what was left out.
    #[must_use]
    pub fn report(&self) -> RebuildReport {
        let Counted { live, leaves, blocks, ambiguous, unproven, .. } = &self.counted;
        let groups = self.groups();
        RebuildReport {
            segments: self.reader.segments,
            segments_with_log: self.survey.heads.len() as u32,
            segments_used: live.iter().filter(|live| **live > 0).count() as u32,
            segments_partial: self.survey.partial.len() as u32,
            segments_given_up: self.given_up,
            unreadable_blocks: self.reader.unreadable(),
            leaves: *leaves,
            live_blocks: *blocks,
            writes_left_out: *unproven,
            ambiguous_blocks: *ambiguous,
            groups: groups.len() as u64,
            groups_unknown: groups.iter().filter(|row| !self.settings.groups.contains(&row.pg)).count() as u64,
            accepted: groups.iter().filter(|row| !row.unproven).map(|row| row.pg).collect(),
        }
    }

    /// Saves it into `map`, which must be empty.
    ///
    /// # Errors
    /// When the map can't be written.
    pub fn save(&mut self, map: &mut impl SavedMap, progress: Progress<'_>) -> Result<(), MapError> {
        let (root, mut waiting, mut saved) = (self.root(), Vec::new(), Ok(()));
        self.for_each_chunk(RebuildStep::Save, progress, &mut |chunk| {
            waiting.extend(chunk.leaves.into_iter().map(|(key, leaf)| (key, Arc::new(leaf))));
            if waiting.len() >= LEAVES_AT_ONCE && saved.is_ok() {
                saved = map.checkpoint(batch(root.clone(), std::mem::take(&mut waiting)));
            }
        });
        saved?;
        let mut last = batch(root, waiting);
        last.segments = self.segment_rows();
        last.layers = self.counted.layers.iter().map(|(layer, blocks)| (*layer, *blocks)).collect();
        let owner = |((segment, layer), owner): (&(u32, LayerId), &LayerId)| MergedOwner {
            segment: *segment,
            layer: *layer,
            owner: *owner,
        };
        last.merged_owners = self.counted.owners.iter().map(owner).collect();
        map.checkpoint(last)
    }

    /// Goes through all chunks. Gives how many writes were left out.
    fn for_each_chunk(&mut self, step: RebuildStep, progress: Progress<'_>, visit: &mut dyn FnMut(ChunkLeaves)) -> u64 {
        let Rebuild { reader, settings, survey, parts, facts: kept, left, .. } = self;
        let (heads, mut unproven) = (survey.heads.len() as u64, 0);
        let all = heads * u64::from(*parts);
        for part in 0..*parts {
            let before = heads * u64::from(part);
            let tell = |done: usize| progress(step, before + done as u64, all);
            let facts = kept.take().unwrap_or_else(|| Facts::read(reader, survey, settings, (part, *parts), tell));
            let segment_of = |address| reader.segment_of(address);
            let is_whole = |entry: &Entry| reader.is_whole(entry);
            let chunks = Chunks { survey, settings, facts: &facts, left, segment_of: &segment_of, is_whole: &is_whole };
            facts.chunks().for_each(|chunk| visit(chunks.leaves(chunk)));
            unproven += facts.unproven;
            if *parts == 1 {
                *kept = Some(facts);
            }
        }
        progress(step, all, all);
        unproven
    }

    /// Counts what the map would have.
    fn count(&mut self, progress: Progress<'_>) {
        let (segments, blocks) = (self.reader.segments, self.reader.segment_blocks);
        let segment_of = move |address: u32| (address - SUPERBLOCK_AREA_BLOCKS) / blocks;
        let mut counted = Counted { live: vec![0; segments as usize], ..Counted::default() };
        let unproven = self.for_each_chunk(RebuildStep::Blocks, progress, &mut |chunk| {
            counted.ambiguous += chunk.ambiguous;
            let owner = |(at, named, owner): (u32, LayerId, LayerId)| ((segment_of(at), named), owner);
            counted.owners.extend(chunk.inherited.into_iter().map(owner));
            for (key, leaf) in chunk.leaves {
                counted.leaves += 1;
                for (_, entry) in leaf.entries.present().filter(|(_, entry)| entry.is_own()) {
                    counted.live[segment_of(entry.address) as usize] += 1;
                    counted.blocks += 1;
                    *counted.layers.entry(key.layer).or_default() += 1;
                }
            }
        });
        counted.unproven = unproven;
        self.counted = counted;
    }

    /// Enough segments are free, and the log can go on in one of them.
    fn has_room(&mut self) -> bool {
        let wanted = FREE_SEGMENTS.min(self.reader.segments / 4).max(1);
        let ready = self.settings.segments_ready.min(self.reader.segments) as usize;
        let mut free = self.counted.live[..ready].iter().enumerate().filter(|(_, live)| **live == 0);
        let Some((next, _)) = free.next() else { return false };
        self.next = next as u32;
        1 + free.count() as u32 >= wanted.min(ready as u32)
    }

    /// Leaves out the blocks of the segments that have fewest.
    fn give_up(&mut self) -> Result<(), OpenError> {
        let ready = self.settings.segments_ready.min(self.reader.segments);
        let live = |segment: &u32| self.counted.live[*segment as usize];
        let mut used: Vec<u32> =
            (0..ready).filter(|segment| live(segment) > 0 && !self.left.contains(segment)).collect();
        used.sort_by_key(live);
        used.truncate(FREE_SEGMENTS as usize);
        if used.is_empty() {
            return Err(OpenError::Options(
                "no segment of the device would be free, so nothing could be written: the copies that count as they are \
                 take all of it"
                    .into(),
            ));
        }
        self.given_up += used.len() as u32;
        self.left.extend(used);
        Ok(())
    }

    fn groups(&self) -> Vec<GroupRow> {
        let seen = self.survey.groups.iter().filter(|(_, seen)| !seen.is_forgotten()).map(|(pg, _)| *pg);
        let all: BTreeSet<PgId> = seen.chain(self.settings.groups.iter().copied()).collect();
        let row = |pg: PgId| {
            let seen = self.survey.groups.get(&pg).filter(|seen| !seen.is_forgotten());
            let is_accepted = self.settings.accepted.contains(&pg);
            let committed = seen.map_or(0, |seen| if is_accepted { seen.end() } else { seen.committed });
            GroupRow {
                pg,
                epoch: Epoch(seen.map_or(0, |seen| seen.epoch)),
                committed: Sequence(committed),
                // Another copy that has everything is believed before this one.
                complete: Some(Sequence::ZERO),
                unproven: !is_accepted,
                note_version: seen.map_or(0, |seen| seen.note_version),
                note: seen.map_or(Bytes::new(), |seen| seen.note.clone()),
                pending: Vec::new(),
                requests: seen.map(|seen| seen.requests()).unwrap_or_default(),
            }
        };
        all.into_iter().map(row).collect()
    }

    fn root(&self) -> Root {
        let (sequence, previous) = self.survey.last;
        let position = Position {
            generation: self.survey.newest.saturating_add(1),
            segment: self.next,
            sequence: sequence.saturating_add(1),
            previous,
        };
        Root {
            identity: self.reader.identity,
            incarnation: self.survey.incarnation.saturating_add(INCARNATIONS),
            durable: sequence,
            position,
            groups: self.groups(),
            jobs: Vec::new(),
        }
    }

    fn segment_rows(&self) -> Vec<(u32, SegmentRow)> {
        let live = |segment: u32| self.counted.live[segment as usize];
        let rows = self.survey.heads.iter().filter(|head| head.segment != self.next).map(|head| {
            let live = live(head.segment);
            (head.segment, SegmentRow { generation: head.header.generation, live, used: live > 0 })
        });
        let next = SegmentRow { generation: self.survey.newest.saturating_add(1), live: 0, used: true };
        rows.chain([(self.next, next)]).collect()
    }
}

fn batch(root: Root, leaves: Vec<(LeafKey, LeafImage)>) -> CheckpointBatch {
    CheckpointBatch {
        root,
        segments: Vec::new(),
        leaves,
        removed: Vec::new(),
        layers: Vec::new(),
        merged_owners_gone: Vec::new(),
        merged_owners: Vec::new(),
    }
}
