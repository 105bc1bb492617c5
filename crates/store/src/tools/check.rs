//! Checks a closed device against its map, as fsck does for a file system. Nothing is changed.
//!
//! The device is opened by the same code as ever, except that what recovery saves goes into memory; then every leaf is
//! looked at, and on request every live block.

use crate::checkpoint::{CheckpointBatch, CheckpointRoot, InMemoryMap, SavedMap};
use crate::effect::{Completion, Done, Effect, MapError, OpenError};
use crate::map::{Content, Leaf, LeafImage, LeafKey, MergedOwner, SavedLeaf};
use crate::read::first_bad;
use crate::segments::{Segments, State};
use crate::store::Store;
use crate::tools::accounts::Accounts;
use crate::tools::dump::{Inspector, ReadDevice};
use crate::tools::inside::Inside;
use crate::tools::lineage::Lineage;
use crate::tools::untold::Untold;
use azekura_base::{BLOCK_SIZE, ChunkIndex, LayerId, PgId, Sequence};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Findings that are listed; the rest is only counted.
const FINDINGS_MAX: usize = 1000;
/// Blocks that a deep check reads at once.
const READ_BLOCKS_MAX: usize = 256;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Something is not as it should be, but nothing is lost.
    Warning,
    /// Data is damaged, or the store can't be opened.
    Error,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub what: String,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Segments of the device.
    pub segments: u32,
    /// Segments that hold log.
    pub segments_used: u32,
    /// Leaves of the map.
    pub leaves: u64,
    /// Blocks that the map reaches and owns.
    pub live_blocks: u64,
    /// Blocks whose contents were compared with their checksums.
    pub blocks_verified: u64,
    /// Placement groups.
    pub groups: u64,
    /// Prepared, uncommitted writes.
    pub prepared: u64,
    /// Bytes of log that a restart replays.
    pub replay_bytes: u64,
    /// What was found, at most a thousand.
    pub findings: Vec<Finding>,
    /// All errors, listed or not.
    pub errors: u64,
    /// All warnings, listed or not.
    pub warnings: u64,
}

impl CheckReport {
    fn add(&mut self, severity: Severity, what: String) {
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
            Severity::Note => {}
        }
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { severity, what });
        }
    }

    /// Adds an error that shows outside of the log and the map.
    pub fn add_error(&mut self, what: String) {
        self.add(Severity::Error, what);
    }

    /// Nothing is damaged.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }
}

/// The saved map, with what recovery would save kept beside it.
struct Overlay<'a, M> {
    base: &'a M,
    changes: InMemoryMap,
    hidden: BTreeSet<(LayerId, ChunkIndex)>,
}

impl<M: SavedMap> SavedMap for Overlay<'_, M> {
    fn root(&self) -> Result<Option<CheckpointRoot>, MapError> {
        self.base.root()
    }

    fn checkpoint(&mut self, batch: CheckpointBatch) -> Result<(), MapError> {
        self.hidden.extend(batch.removed.iter().map(|key| (key.layer, key.chunk)));
        self.hidden.extend(batch.leaves.iter().map(|(key, _)| (key.layer, key.chunk)));
        self.changes.checkpoint(batch)
    }

    fn load_leaves(&self, keys: &[LeafKey]) -> Result<Vec<SavedLeaf>, MapError> {
        let load = |key: &LeafKey| {
            let keys = std::slice::from_ref(key);
            let hidden = self.hidden.contains(&(key.layer, key.chunk));
            let mut found = if hidden { self.changes.load_leaves(keys)? } else { self.base.load_leaves(keys)? };
            Ok(found.pop().unwrap_or(SavedLeaf::Absent))
        };
        keys.iter().map(load).collect()
    }

    fn scan_layer(&self, layer: LayerId, from: ChunkIndex, limit: usize) -> Result<Vec<LeafKey>, MapError> {
        self.base.scan_layer(layer, from, limit)
    }

    fn scan_modified(
        &self,
        pg: PgId,
        after: Sequence,
        from: (LayerId, ChunkIndex),
        limit: usize,
    ) -> Result<Vec<(LeafKey, Sequence)>, MapError> {
        self.base.scan_modified(pg, after, from, limit)
    }

    fn load_merged_owners(&self, segment: u32) -> Result<Vec<MergedOwner>, MapError> {
        self.base.load_merged_owners(segment)
    }

    fn compare_totals(&self, pg: PgId) -> Result<Option<String>, MapError> {
        self.base.compare_totals(pg)
    }

    fn for_each_leaf(&self, visit: &mut dyn FnMut(Result<(LeafKey, LeafImage), MapError>)) -> Result<(), MapError> {
        self.changes.for_each_leaf(visit)?;
        self.base.for_each_leaf(&mut |leaf| match leaf {
            Ok((key, _)) if self.hidden.contains(&(key.layer, key.chunk)) => {}
            leaf => visit(leaf),
        })
    }
}

/// Checks the closed store on `device` whose saved map is `map`. `parents` are the layers that lie on top of others, as
/// pairs of layer and parent. With `deep`, every live block is read and compared with its checksum.
pub fn check(device: impl ReadDevice, map: &impl SavedMap, parents: &[(LayerId, LayerId)], deep: bool) -> CheckReport {
    let mut report = CheckReport::default();
    if let Err(error) = check_into(&mut report, device, map, parents, deep) {
        report.add(Severity::Error, error.to_string());
    }
    report
}

fn check_into(
    report: &mut CheckReport,
    device: impl ReadDevice,
    map: &impl SavedMap,
    parents: &[(LayerId, LayerId)],
    deep: bool,
) -> Result<(), OpenError> {
    let inspector = Inspector::open(device)?;
    report.segments = inspector.superblock().segments;
    let no_checkpoint =
        || OpenError::Map(MapError::Failed("there is no checkpoint: the map does not belong here".into()));
    let root = map.root().map_err(OpenError::Map)?.ok_or_else(no_checkpoint)?;
    let mut overlay = Overlay { base: map, changes: InMemoryMap::new(), hidden: BTreeSet::new() };
    let mut store = Store::open(inspector.options(), inspector.identity(), root);
    parents.iter().for_each(|(layer, parent)| store.set_parent(*layer, *parent));
    recover(&mut store, inspector.device(), &mut overlay)?;
    settle(&mut store, &mut overlay);

    report.replay_bytes = store.statistics().replay_bytes;
    report.groups = store.groups().count() as u64;
    let unproven = store.groups().filter(|(_, state)| state.unproven).count();
    if unproven > 0 {
        let what = format!(
            "the copies of {unproven} groups are of a map that was made from the log: each is compared with another one \
             before it counts"
        );
        report.add(Severity::Note, what);
    }
    report.prepared = store.groups().map(|(pg, _)| store.prepared(pg).count() as u64).sum();
    let untold = check_segments(report, &store.inside(), &inspector);
    check_leaves(report, &store, untold, inspector.device(), &overlay, deep)
}

/// Brings all committed writes into the map that wait for their leaves. For a leaf that can't be read they go on to
/// wait; that is found out elsewhere.
fn settle(store: &mut Store, map: &mut impl SavedMap) {
    while store.settle_map() {
        if store.checkpoint_due() {
            store.begin_checkpoint(|_| None);
        }
        let mut is_asked = false;
        while let Some(effect) = store.next_effect() {
            is_asked = true;
            let (io, done) = map.perform(effect).expect("to settle the map is not to ask the device");
            store.done(io, done);
        }
        if !is_asked {
            return;
        }
    }
}

/// Drives `store` until it is open.
fn recover(store: &mut Store, device: &impl ReadDevice, map: &mut impl SavedMap) -> Result<(), OpenError> {
    loop {
        while let Some(effect) = store.next_effect() {
            let (io, done) = match effect {
                Effect::Read { io, offset, len } => (io, Done::Read(device.read(offset, len))),
                Effect::Flush { io } => (io, Done::Flushed(Ok(()))),
                effect => map.perform(effect).expect("recovery writes nothing to the device"),
            };
            store.done(io, done);
        }
        match store.next_completion() {
            Some(Completion::Recovered(result)) => return result,
            Some(_) => {}
            None => return Err(OpenError::Damaged("recovery does not come to an end".into())),
        }
    }
}

fn check_segments<D: ReadDevice>(report: &mut CheckReport, inside: &Inside<'_>, inspector: &Inspector<D>) -> Untold {
    let mut untold = Untold::default();
    for (segment, entry) in inside.segments.iter() {
        if entry.state == State::Free {
            continue;
        }
        report.segments_used += 1;
        match inspector.segment(segment) {
            Err(error) => report.add(Severity::Error, format!("segment {segment}: {error}")),
            // Such a segment has no summary, and its generation rises after it was written.
            Ok(info) if info.apart => untold.add_segment(&info),
            Ok(info) => {
                if info.generation != Some(entry.generation) && entry.state == State::Sealed {
                    let what = format!("segment {segment} does not hold generation {} of the log", entry.generation);
                    report.add(Severity::Warning, what);
                } else if entry.state == State::Sealed && !info.summary {
                    let what = format!(
                        "segment {segment} is full, but its summary is not whole: the segment can't be cleaned"
                    );
                    report.add(Severity::Warning, what);
                }
            }
        }
    }
    untold
}

fn check_leaves(
    report: &mut CheckReport,
    store: &Store,
    mut untold: Untold,
    device: &impl ReadDevice,
    map: &impl SavedMap,
    deep: bool,
) -> Result<(), OpenError> {
    let inside = store.inside();
    let mut accounts = Accounts::new(&inside);
    let mut lineage = Lineage::new(&inside);
    let mut look = |report: &mut CheckReport, key: &LeafKey, leaf: &Leaf| {
        check_leaf(report, &inside, device, key, leaf, deep);
        untold.add_leaf(inside.segments, leaf);
        if let Some(block) = lineage.own(key, leaf) {
            report.add(Severity::Error, format!("{} block {block} belongs to another leaf, too", name(key)));
        }
    };
    let unsaved: BTreeMap<_, _> = inside.map.unsaved().map(|s| ((s.key.layer, s.key.chunk), &s.content)).collect();
    let is_saved = |key: &LeafKey| !unsaved.contains_key(&(key.layer, key.chunk));
    let counted = map.for_each_leaf(&mut |leaf| match leaf {
        Ok((key, leaf)) => {
            accounts.add_saved(&key, &leaf);
            if is_saved(&key) {
                look(report, &key, &leaf);
            }
        }
        Err(error) => report.add(Severity::Error, error.to_string()),
    });
    counted.map_err(OpenError::Map)?;
    for (pg, _) in store.groups() {
        let differs = map.compare_totals(pg).map_err(OpenError::Map)?;
        differs.into_iter().for_each(|what| report.add(Severity::Error, what));
    }
    for slot in inside.map.unsaved() {
        if let Content::Present(leaf) = &slot.content {
            look(report, &slot.key, leaf);
        }
    }
    untold.findings().for_each(|what| report.add(Severity::Warning, what));
    for problem in accounts.problems() {
        report.add(Severity::Error, problem);
    }
    let mut inherit = |key: &LeafKey, leaf: &Leaf| {
        let ancestor = |layer| match unsaved.get(&(layer, key.chunk)) {
            Some(Content::Present(leaf)) => Some(leaf.clone()),
            Some(_) => None,
            None => match map.load_leaves(&[LeafKey { layer, ..*key }]).ok()?.pop()? {
                SavedLeaf::Whole(leaf) => Some(leaf),
                SavedLeaf::Absent | SavedLeaf::Damaged(_) | SavedLeaf::Refused(_) => None,
            },
        };
        if let Some(block) = lineage.orphan(key, leaf, ancestor) {
            report.add(Severity::Error, format!("{} block {block} is inherited from nobody", name(key)));
        }
    };
    let listed = map.for_each_leaf(&mut |leaf| {
        if let Ok((key, leaf)) = leaf
            && is_saved(&key)
        {
            inherit(&key, &leaf);
        }
    });
    listed.map_err(OpenError::Map)?;
    for slot in inside.map.unsaved() {
        if let Content::Present(leaf) = &slot.content {
            inherit(&slot.key, leaf);
        }
    }
    Ok(())
}

fn name(key: &LeafKey) -> String {
    format!("layer {} chunk {}", key.layer, key.chunk)
}

fn check_leaf(
    report: &mut CheckReport,
    inside: &Inside<'_>,
    device: &impl ReadDevice,
    key: &LeafKey,
    leaf: &Leaf,
    deep: bool,
) {
    report.leaves += 1;
    let name = name(key);
    let mut own: Vec<(u32, usize)> = Vec::new();
    for (block, entry) in leaf.entries.present().filter(|(_, e)| e.is_allocated()) {
        match inside.segments.locate(entry.address) {
            None => {
                let what = format!("{name} block {block} is at address {}, outside of the device", entry.address);
                report.add(Severity::Error, what);
            }
            Some((segment, _)) if inside.segments.get(segment).state == State::Free => {
                report.add(Severity::Error, format!("{name} block {block} is in segment {segment}, which is free"));
            }
            Some(_) if entry.is_own() => own.push((entry.address, block)),
            Some(_) => {}
        }
    }
    for (_, block) in own.iter().filter(|(_, block)| leaf.entries[*block].is_lost()) {
        report.add(Severity::Warning, format!("{name} block {block} is lost: no copy could give it"));
    }
    let unknown = leaf.entries.present().filter(|(_, entry)| entry.is_unknown()).count();
    if unknown > 0 {
        let what =
            format!("{name}: of {unknown} blocks nothing is known since the map was damaged: another copy has them");
        report.add(Severity::Warning, what);
    }
    report.live_blocks += own.len() as u64;
    if !deep {
        return;
    }
    own.sort_unstable();
    let mut rest = &own[..];
    while let Some((start, _)) = rest.first() {
        let follows = |(index, (address, _)): (u32, &(u32, usize))| *address == start + index;
        let run = (0..).zip(rest).take(READ_BLOCKS_MAX).take_while(|pair| follows(*pair)).count();
        let (now, later) = rest.split_at(run);
        rest = later;
        let bytes = match device.read(Segments::offset(*start), run * BLOCK_SIZE) {
            Ok(bytes) => bytes,
            Err(error) => {
                report.add(Severity::Error, format!("{name}: {error}"));
                continue;
            }
        };
        for ((address, block), contents) in now.iter().zip(bytes.chunks_exact(BLOCK_SIZE)) {
            report.blocks_verified += 1;
            let expected = leaf.entries[*block].stored_checksum();
            if first_bad(contents, &[expected]).is_some() {
                let what = format!("{name} block {block} at address {address} fails its checksum");
                report.add(Severity::Error, what);
            }
        }
    }
}
