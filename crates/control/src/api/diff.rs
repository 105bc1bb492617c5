//! `GET /v1/volumes/{name}/snapshots/{snapshot}/diff`: what has changed since a snapshot, for incremental copies; and
//! `…/allocated`: where a snapshot has data, for the first one, which is what it shows differently from nothing.
//!
//! Every group's primary compares the maps of two layers, a part of the volume at a time: all groups are asked from the
//! same chunk on, and what they say counts as far as all of them have come. So neither they nor this node keep anything
//! between two pages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use azekura_api::endpoint::{SnapshotAllocated, SnapshotDiff};
use azekura_api::layers::{Differences, DifferingBlocks, GroupDifferences, NotTold};
use azekura_api::{AllocatedRange, AllocatedView, DiffKind, DiffQuery, DiffRange, DiffView, ErrorCode};
use azekura_base::{BLOCK_SIZE, CHUNK_BLOCKS, CHUNK_SIZE, ChunkIndex, LayerId, NodeId, PgId};
use azekura_model::{Kind, MetaError, Model};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Api;
use super::call::{Answer, Call};
use super::error::ApiError;
use super::layer_questions::ask_to_compare;
use crate::layers::CompareLayers;
use crate::snapshots::find_snapshot;
use crate::snapshots::tree::{are_related, known_since, lies_on};

/// Chunks that all groups together compare in one round.
const ROUND_CHUNKS: usize = 1024;
/// Chunks that one group compares in one round, at most.
const GROUP_CHUNKS_MAX: usize = 128;
/// A page ends with the chunk in which it gets so many ranges.
const PAGE_RANGES: usize = 16_384;
/// And with the round that ends after this time.
const PAGE_TIME: Duration = Duration::from_millis(500);
/// How long groups without a primary that serves are waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before they are asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A snapshot, or a volume's present.
#[derive(Clone)]
struct Side {
    name: String,
    layer: LayerId,
    size_bytes: u64,
}

impl Side {
    fn snapshot(model: &Model, volume: &str, wanted: &str) -> Result<Side, MetaError> {
        let found = find_snapshot(model, volume, wanted)?;
        Ok(Side { name: format!("{volume}@{}", found.name), layer: found.layer, size_bytes: found.size_bytes })
    }
}

/// What is compared; without `from`, with nothing.
struct Sides {
    from: Option<Side>,
    to: Side,
    groups: Vec<PgId>,
    revision: u64,
}

impl Sides {
    fn new(model: &Model, volume: &str, from: Option<Side>, to: Side) -> Result<Sides, ApiError> {
        let not_found = || MetaError::NotFound { kind: Kind::Volume, name: volume.to_owned() };
        let record = model.volumes.get(volume).ok_or_else(not_found)?;
        let groups = model.classes.get(&record.class).map(|class| class.groups.clone()).unwrap_or_default();
        let layers: Vec<LayerId> = from.iter().chain([&to]).map(|side| side.layer).collect();
        Ok(Sides { from, to, groups, revision: known_since(model, &layers) })
    }

    fn find(model: &Model, volume: &str, snapshot: &str, query: &DiffQuery) -> Result<(Side, Sides), ApiError> {
        let from = Side::snapshot(model, volume, snapshot)?;
        let to_volume = query.to_volume.as_deref().unwrap_or(volume);
        let not_found = || MetaError::NotFound { kind: Kind::Volume, name: to_volume.to_owned() };
        let record = model.volumes.get(to_volume).ok_or_else(not_found)?;
        let to = match &query.to {
            Some(wanted) => Side::snapshot(model, to_volume, wanted)?,
            None => Side { name: to_volume.to_owned(), layer: record.head, size_bytes: record.size_bytes },
        };
        if !are_related(model, from.layer, to.layer) {
            let hint = "compare snapshots of one volume, or those of a volume and of its clones";
            let what = format!("{} and {} have nothing in common: neither was made from the other", from.name, to.name);
            return Err(ApiError::new(ErrorCode::Refused, what, Some(hint.to_owned())));
        }
        let from_same = query.from_layer.is_none_or(|layer| layer == from.layer);
        // Snapshots of the present may be made meanwhile: then it lies on the layer that was the head.
        let to_same = query.to_layer.is_none_or(|layer| match query.to {
            Some(_) => layer == to.layer,
            None => lies_on(model, to.layer, layer),
        });
        if !(from_same && to_same) {
            return Err(changed(Some(&from), &to));
        }
        let sides = Sides::new(model, to_volume, Some(from.clone()), to)?;
        Ok((from, sides))
    }
}

fn changed(from: Option<&Side>, to: &Side) -> ApiError {
    let what = match from {
        Some(from) => {
            format!("{} or {} was deleted, replaced or reverted while they were compared", from.name, to.name)
        }
        None => format!("{} was deleted or replaced while its data was listed", to.name),
    };
    ApiError::new(ErrorCode::TryAgain, what, Some("begin again from the start".to_owned()))
}

pub(super) async fn show(
    Call { api, names: [volume, snapshot], query, .. }: Call<SnapshotDiff>,
) -> Answer<SnapshotDiff> {
    let model = api.meta.model_of_snapshots().await?;
    let (from, sides) = Sides::find(&model, &volume, &snapshot, &query)?;
    let (ranges, next_offset_bytes) = page(&api, &sides, query.offset_bytes).await?;
    Ok(DiffView {
        from: from.name,
        from_layer: from.layer.0,
        to: sides.to.name,
        to_layer: sides.to.layer.0,
        from_size_bytes: from.size_bytes,
        size_bytes: sides.to.size_bytes,
        ranges,
        next_offset_bytes,
    }
    .into())
}

pub(super) async fn show_allocated(
    Call { api, names: [volume, snapshot], query, .. }: Call<SnapshotAllocated>,
) -> Answer<SnapshotAllocated> {
    let model = api.meta.model_of_snapshots().await?;
    let side = Side::snapshot(&model, &volume, &snapshot)?;
    if query.layer.is_some_and(|layer| layer != side.layer) {
        return Err(changed(None, &side));
    }
    let sides = Sides::new(&model, &volume, None, side)?;
    let (ranges, next_offset_bytes) = page(&api, &sides, query.offset_bytes).await?;
    // Beside nothing, zeros are no difference.
    let data = ranges.into_iter().filter(|range| range.kind == DiffKind::Data);
    let range = |DiffRange { offset_bytes, length_bytes, .. }| AllocatedRange { offset_bytes, length_bytes };
    Ok(AllocatedView {
        snapshot: sides.to.name,
        layer: sides.to.layer.0,
        size_bytes: sides.to.size_bytes,
        ranges: data.map(range).collect(),
        next_offset_bytes,
    }
    .into())
}

/// What differs from `offset_bytes` on, as far as a page goes, and where the next one begins.
async fn page(api: &Api, sides: &Sides, offset_bytes: u64) -> Result<(Vec<DiffRange>, Option<u64>), ApiError> {
    let started = Instant::now();
    let end = chunk_of(sides.to.size_bytes.next_multiple_of(CHUNK_SIZE as u64));
    if !offset_bytes.is_multiple_of(CHUNK_SIZE as u64) {
        let what = format!("offset {offset_bytes} is not a multiple of {CHUNK_SIZE}");
        let hint = "a question goes on at the next_offset_bytes of the answer before".to_owned();
        return Err(ApiError::new(ErrorCode::Refused, what, Some(hint)));
    }
    let mut at = chunk_of(offset_bytes);
    let mut ranges = Ranges { size_bytes: sides.to.size_bytes, ranges: Vec::new() };
    while at < end && ranges.ranges.len() < PAGE_RANGES && started.elapsed() < PAGE_TIME {
        let answers = compare(api, sides, at, end).await?;
        let round = merge(at, end, answers).map_err(|what| ApiError::new(ErrorCode::BadPeer, what, None))?;
        at = round.end;
        for (chunk, runs) in round.chunks {
            if ranges.ranges.len() >= PAGE_RANGES {
                at = chunk;
                break;
            }
            ranges.add(chunk, &runs);
        }
    }
    Ok((ranges.ranges, (at < end).then(|| u64::from(at.0) * CHUNK_SIZE as u64)))
}

fn chunk_of(offset_bytes: u64) -> ChunkIndex {
    ChunkIndex(u32::try_from(offset_bytes / CHUNK_SIZE as u64).unwrap_or(u32::MAX))
}

/// Asks every group's primary, also again and elsewhere until it has answered.
async fn compare(
    api: &Api,
    sides: &Sides,
    first: ChunkIndex,
    end: ChunkIndex,
) -> Result<BTreeMap<PgId, Differences>, ApiError> {
    let until = Instant::now() + PATIENCE;
    let limit = (ROUND_CHUNKS / sides.groups.len().max(1)).clamp(1, GROUP_CHUNKS_MAX) as u32;
    let (from, to) = (sides.from.as_ref().map(|side| side.layer), sides.to.layer);
    let revision = sides.revision;
    let mut left: BTreeSet<PgId> = sides.groups.iter().copied().collect();
    let mut answers = BTreeMap::new();
    loop {
        let mut why = "it has no primary".to_owned();
        let mut asked = JoinSet::new();
        for (node, groups) in by_primary(&api.meta.model(), &left) {
            let api = api.clone();
            let question = CompareLayers { revision, pg: PgId(0), from, to, first, end, limit };
            asked.spawn(async move { ask_to_compare(&api, node, &groups, question).await });
        }
        while let Some(answer) = asked.join_next().await {
            match answer.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(groups) => {
                    for GroupDifferences { pg, told } in groups {
                        match told {
                            Ok(differences) if left.remove(&pg) => drop(answers.insert(pg, differences)),
                            Ok(_) => {}
                            Err(NotTold::Later) => why = "its primary does not serve".to_owned(),
                            Err(NotTold::Gone) => return Err(changed(sides.from.as_ref(), &sides.to)),
                            Err(NotTold::Failed(reason)) => why = reason,
                        }
                    }
                }
                Err(problem) => why = problem,
            }
        }
        let Some(late) = left.first() else { return Ok(answers) };
        if Instant::now() >= until {
            let what = format!("group {late} can't tell what has changed: {why}");
            let hint = "'azekura status' tells what is wrong with the groups; try again when it is well".to_owned();
            return Err(ApiError::new(ErrorCode::Timeout, what, Some(hint)));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Groups by the node of their primary.
fn by_primary(model: &Model, groups: &BTreeSet<PgId>) -> BTreeMap<NodeId, Vec<PgId>> {
    let mut nodes: BTreeMap<NodeId, Vec<PgId>> = BTreeMap::new();
    for pg in groups {
        let primary = model.groups.get(pg).and_then(|group| model.devices.get(&group.primary));
        if let Some(device) = primary {
            nodes.entry(device.node).or_default().push(*pg);
        }
    }
    nodes
}

/// What all groups have compared.
#[derive(Debug, PartialEq, Eq)]
struct Round {
    /// Chunks that differ, in order.
    chunks: BTreeMap<ChunkIndex, Vec<DifferingBlocks>>,
    /// The one behind the last that all have compared.
    end: ChunkIndex,
}

/// Puts together what groups have said of the chunks from `first` to before `end`.
///
/// # Errors
/// When an answer makes no sense: what, for people.
fn merge(first: ChunkIndex, end: ChunkIndex, answers: BTreeMap<PgId, Differences>) -> Result<Round, String> {
    let mut round = Round { chunks: BTreeMap::new(), end };
    for (pg, answer) in &answers {
        let makes_sense = |chunk: u32| (first.0..=end.0).contains(&chunk);
        if let Some(next) = answer.next {
            if next <= first.0 || !makes_sense(next) {
                return Err(format!("group {pg} goes on at chunk {next} when it was asked about {first} to {end}"));
            }
            round.end = round.end.min(ChunkIndex(next));
        }
    }
    for (pg, answer) in answers {
        for (chunk, runs) in answer.chunks {
            let mut upto = 0;
            for DifferingBlocks(block, count, _) in &runs {
                let behind = u32::from(*block) + u32::from(*count);
                if u32::from(*block) < upto || *count == 0 || behind > CHUNK_BLOCKS as u32 {
                    return Err(format!("group {pg} names blocks {block} to {behind} of chunk {chunk}"));
                }
                upto = behind;
            }
            if chunk < first.0 || chunk >= end.0 {
                return Err(format!("group {pg} names chunk {chunk} when it was asked about {first} to {end}"));
            }
            if chunk < round.end.0 && round.chunks.insert(ChunkIndex(chunk), runs).is_some() {
                return Err(format!("group {pg} names chunk {chunk}, which is another's"));
            }
        }
    }
    Ok(round)
}

/// Ranges of a volume of so many bytes, in order; neighbours of one kind become one.
struct Ranges {
    size_bytes: u64,
    ranges: Vec<DiffRange>,
}

impl Ranges {
    /// Adds runs of a chunk that lies behind all those before.
    fn add(&mut self, chunk: ChunkIndex, runs: &[DifferingBlocks]) {
        let start = u64::from(chunk.0) * CHUNK_SIZE as u64;
        for DifferingBlocks(first, count, data) in runs {
            let offset_bytes = start + u64::from(*first) * BLOCK_SIZE as u64;
            let end = (offset_bytes + u64::from(*count) * BLOCK_SIZE as u64).min(self.size_bytes);
            let length_bytes = end.saturating_sub(offset_bytes);
            let kind = if *data { DiffKind::Data } else { DiffKind::Zero };
            match self.ranges.last_mut() {
                _ if length_bytes == 0 => {}
                Some(last) if last.kind == kind && last.offset_bytes + last.length_bytes == offset_bytes => {
                    last.length_bytes += length_bytes;
                }
                _ => self.ranges.push(DiffRange { offset_bytes, length_bytes, kind }),
            }
        }
    }
}

#[cfg(test)]
mod tests;
