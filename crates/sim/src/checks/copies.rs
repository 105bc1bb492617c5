//! When all is quiet, the copies of each group are equal, and each store accounts for exactly what its map reaches.
//!
//! An observer connects to every node as a gateway would, and asks each copy by itself.

use crate::kernel::device::Device;
use crate::kernel::network::ConnId;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, BlockSum, CHUNK_BLOCKS, CHUNK_SIZE, ChunkIndex, DeviceId, Extent, Generation,
    IoStatus, LayerId, PgId, RequestId, Run, VolumeId,
};
use azekura_replica::AckRule;
use azekura_wire::{Message, ReadRequest, StatusRequest};
use std::collections::BTreeMap;
use std::time::Duration;

/// A copy that can't answer yet is asked again after this time.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// A leaf that can't be read is given up, and its chunk mended, within this time.
const GIVEN_UP_MAX: Duration = Duration::from_secs(120);
/// How often it is looked whether it has been.
const GIVEN_UP_STEP: Duration = Duration::from_secs(5);

impl World {
    /// Compares all copies.
    pub(crate) fn compare_copies(&mut self) {
        let placements = self.configuration.view().groups.clone();
        let chunks = self.readable_chunks();
        let mut copies: BTreeMap<(LayerId, PgId, ChunkIndex), BTreeMap<DeviceId, CopyOfChunk>> = BTreeMap::new();
        let mut reached: BTreeMap<DeviceId, u64> = self.devices.keys().map(|device| (*device, 0)).collect();
        for at in self.endpoints() {
            let Some(life) = self.life_of(at) else { return };
            let conn = self.observe(life);
            for (volume, layer, chunk, pg) in &chunks {
                let here = |device: &&DeviceId| {
                    self.devices.get(device).is_some_and(|d| d.node == at.node) && self.shard_of(**device) == at.shard
                };
                let Some(device) = placements.get(pg).and_then(|p| p.members.iter().find(here)).copied() else {
                    continue;
                };
                let Some(copy) = self.read_copy(conn, (*volume, *layer), *pg, *chunk) else { return };
                let blocks: u64 = copy.runs.iter().filter(|run| run.is_data()).map(|run| u64::from(run.count)).sum();
                *reached.entry(device).or_default() += blocks * BLOCK_SIZE as u64;
                copies.entry((*layer, *pg, *chunk)).or_default().insert(device, copy);
            }
            self.stop_observing(conn);
        }
        for ((layer, pg, chunk), copies) in &copies {
            let mut copies = copies.iter();
            let Some((first_device, first)) = copies.next() else { continue };
            for (device, copy) in copies {
                if let Some(what) = first.difference(copy) {
                    let what = format!("{layer:?} {pg:?} {chunk:?}: {first_device:?} and {device:?} differ: {what}");
                    return self.violate(Invariant::CopiesEqual, what);
                }
            }
        }
        let view = self.configuration.view();
        if !view.parents.is_empty() || !view.dropped.is_empty() {
            return; // Blocks that layers share count once.
        }
        let mut wrong = Vec::new();
        for (device, reached) in reached {
            // It may have lost word of a copy that it had given up, or of how much a leaf owned that it has lost.
            let is_unsure = |device: &Device| device.lied || device.uncounted;
            if self.devices.get(&device).is_some_and(is_unsure) {
                continue;
            }
            // Of two copies of a group on one node only one is asked here. A restore may leave two behind.
            if self.has_two_copies_of_a_group(device) {
                continue;
            }
            let Some(store) = self.store_of(device) else { continue };
            let space = store.space();
            if space.live != reached + store.ghost_bytes() {
                let saved = self.devices.get(&device).map(Device::saved_map);
                let leaves: Vec<_> = saved.iter().flat_map(|map| map.leaves().map(|(key, _)| key)).collect();
                let what = format!(
                    "{device:?} counts {} bytes as live, its map reaches {reached} and lost {}; saved: {leaves:?}",
                    space.live,
                    store.ghost_bytes()
                );
                wrong.push(what);
            }
        }
        if !wrong.is_empty() {
            self.violate(Invariant::SpaceExact, wrong.join("; "));
        }
    }

    /// The device's node has two copies of a group, and the device one of them.
    fn has_two_copies_of_a_group(&self, device: DeviceId) -> bool {
        let node_of = |device: &DeviceId| self.devices.get(device).map(|device| device.node);
        let here = |other: &DeviceId| node_of(other) == node_of(&device);
        let mut groups = self.configuration.view().groups.values();
        groups.any(|config| config.members.contains(&device) && config.members.iter().filter(|it| here(it)).count() > 1)
    }

    /// The volumes and snapshots: their ids and layers, their chunks and the groups that these belong to.
    fn readable_chunks(&self) -> Vec<(VolumeId, LayerId, ChunkIndex, PgId)> {
        let volumes = self.configuration.view().volumes.values();
        let chunks = volumes.flat_map(|volume| {
            let chunks = (0..volume.size.div_ceil(CHUNK_SIZE as u64) as u32).map(ChunkIndex);
            chunks.filter_map(|chunk| Some((volume.id, volume.layer, chunk, volume.group_of(chunk)?)))
        });
        chunks.collect()
    }

    /// Under some ack rules secondaries answer nobody. While nothing is written, all rules are one.
    pub(crate) fn let_copies_answer(&mut self, ack: AckRule) {
        if self.plan.ack == AckRule::All {
            return;
        }
        self.configuration.set_rule(ack);
        self.inform_all();
    }

    /// Asks until the copy answers itself.
    fn ask_copy<T>(
        &mut self,
        conn: ConnId,
        message: impl Fn(RequestId) -> Message,
        take: impl Fn(&Message) -> Option<Result<T, IoStatus>>,
    ) -> Option<Result<T, IoStatus>> {
        let limit = self.now + crate::plan::QUIET_MAX;
        while self.now < limit && !self.is_over() {
            self.scene.questions += 1;
            let message = message(RequestId(self.scene.questions));
            match self.ask(conn, &message, &take) {
                Some(Err(IoStatus::Redirect | IoStatus::Stale)) => {
                    let again = self.now + ASK_AGAIN;
                    self.run_until(again, |_| false);
                }
                None => break,
                answer => return answer,
            }
        }
        self.violate(Invariant::Liveness, "a copy does not answer reads".into());
        None
    }

    /// A leaf of some device's map can't be read, and has not been saved anew since.
    fn has_unreadable_leaf(&self) -> bool {
        self.devices.values().any(Device::has_unreadable_leaf)
    }

    /// For how long something may wait for such a leaf.
    pub(crate) fn giving_up_max(&self) -> Duration {
        if self.has_unreadable_leaf() { GIVEN_UP_MAX } else { Duration::ZERO }
    }

    /// What a copy holds of a chunk. Where a leaf was lost, its blocks count as held until the group has mended them,
    /// and may turn out to be zeros.
    fn read_copy(&mut self, conn: ConnId, of: (VolumeId, LayerId), pg: PgId, chunk: ChunkIndex) -> Option<CopyOfChunk> {
        let limit = self.now + GIVEN_UP_MAX;
        loop {
            let what = match self.try_read_copy(conn, of, pg, chunk)? {
                Ok(copy) => return Some(copy),
                Err(what) => what,
            };
            if self.now > limit || !self.report.faults.keys().any(|fault| fault.contains("leaf")) {
                self.violate(Invariant::StoreKeeps, what);
                return None;
            }
            let again = self.now + GIVEN_UP_STEP;
            self.run_until(again, |_| false);
        }
    }

    /// The same; or what does not fit.
    fn try_read_copy(
        &mut self,
        conn: ConnId,
        (volume, layer): (VolumeId, LayerId),
        pg: PgId,
        chunk: ChunkIndex,
    ) -> Option<Result<CopyOfChunk, String>> {
        // Newer than all: nobody refuses it.
        let attachment = Generation(u64::MAX);
        let status = |request| Message::Status(StatusRequest { request, pg, volume, attachment, layer, chunk });
        let limit = self.now + GIVEN_UP_MAX;
        let runs = loop {
            let runs = self.ask_copy(conn, status, |message| match message {
                Message::StatusDone(done) => Some(done.result.clone()),
                Message::ReadDone(done) => done.result.as_ref().err().map(|status| Err(*status)),
                _ => None,
            })?;
            if runs.is_ok() || self.now > limit || !self.has_unreadable_leaf() {
                break runs;
            }
            // The leaf is given up, and the group mends its chunk.
            let again = self.now + GIVEN_UP_STEP;
            self.run_until(again, |_| false);
        };
        let Ok(runs) = runs else {
            self.violate(Invariant::StoreKeeps, format!("{pg:?} {chunk:?}: the block status can't be read"));
            return None;
        };
        let mut copy = CopyOfChunk { runs: merge(&runs), blocks: BTreeMap::new() };
        let mut at = 0u16;
        for run in runs {
            for first in (at..at + run.count).filter(|_| run.is_data()) {
                let first = BlockIndex(first);
                let range = BlockRange::block(layer, chunk, first);
                let read = |request| Message::Read(ReadRequest { request, pg, volume, attachment, range });
                let block = self.ask_copy(conn, read, |message| match message {
                    Message::ReadDone(done) => Some(done.result.clone()),
                    _ => None,
                })?;
                match block.as_deref() {
                    Ok([Extent::Data { checksums, .. }]) => {
                        copy.blocks.extend(checksums.each().map(|sum| (first, sum)))
                    }
                    Err(IoStatus::Io) if self.may_be_damaged() => {}
                    other => {
                        let what = format!("{pg:?} {chunk:?} {first:?} is said to hold data, and reads as {other:?}");
                        return Some(Err(what));
                    }
                }
            }
            at += run.count;
        }
        Some(Ok(copy))
    }
}

/// What one copy holds of one chunk.
struct CopyOfChunk {
    runs: Vec<Run>,
    blocks: BTreeMap<BlockIndex, BlockSum>,
}

impl CopyOfChunk {
    fn difference(&self, other: &CopyOfChunk) -> Option<String> {
        if self.runs != other.runs {
            return Some(format!("allocated are {:?} and {:?}", self.runs, other.runs));
        }
        let differs = |block: &u16| {
            let block = BlockIndex(*block);
            matches!((self.blocks.get(&block), other.blocks.get(&block)), (Some(a), Some(b)) if a != b)
        };
        (0..CHUNK_BLOCKS as u16).find(differs).map(|block| format!("block {block}"))
    }
}

/// Neighbouring runs of one kind become one.
fn merge(runs: &[Run]) -> Vec<Run> {
    let mut merged: Vec<Run> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if last.data == run.data => last.count += run.count,
            _ => merged.push(*run),
        }
    }
    merged
}
