//! What this copy's own device and node say: actions that are done, blocks that are read, and what was found.

use super::{Group, Role};
use crate::action::{Action, Client};
use crate::finding::ScrubKind;
use azekura_base::{
    BlockIndex, BlockRange, BlockSum, Body, ChunkIndex, DeviceId, Epoch, Extent, IoStatus, LayerId, RequestId, Sequence,
};
use std::num::NonZeroU64;

impl Group {
    /// Everything appended up to `sequence` is durable on this copy's device; `life` is what came with
    /// [`crate::Action::Append`].
    pub fn appended(&mut self, sequence: Sequence, life: u32) {
        if !self.cx.appended(sequence, life) {
            return;
        }
        match &mut self.role {
            Role::Primary(_) => self.reign(|primary, cx| primary.on_appended(cx, sequence)),
            Role::Secondary(secondary) => secondary.on_appended(&mut self.cx),
        }
    }

    /// [`crate::Action::StartEpoch`] is durable.
    pub fn epoch_started(&mut self, epoch: Epoch) {
        self.cx.epochs.is_durable(epoch);
        match &mut self.role {
            Role::Primary(primary) => primary.try_open(&mut self.cx),
            Role::Secondary(secondary) => secondary.answer_primary(&mut self.cx),
        }
    }

    /// [`crate::Action::AppendRepair`] is durable.
    pub fn repair_appended(&mut self, epoch: Epoch, id: Option<NonZeroU64>) {
        self.as_secondary(|secondary, cx| secondary.on_repair_appended(cx, epoch, id));
    }

    /// [`crate::Action::SaveNote`] is done.
    pub fn note_saved(&mut self, name: u64) {
        self.as_secondary(|secondary, cx| secondary.on_note_saved(cx, name));
    }

    /// A prepared write's blocks are back from the log; `None` when the device could not read them.
    pub fn prepared_loaded(&mut self, sequence: Sequence, epoch: Epoch, body: Option<Body>) {
        self.as_primary(|primary, cx| primary.on_prepared_loaded(cx, sequence, epoch, body));
    }

    /// A block at the edge of a merge is read: one whole block, or why not.
    pub fn edge_loaded(&mut self, merge: u64, block: BlockIndex, contents: Result<Extent, IoStatus>) {
        self.as_primary(|primary, cx| primary.on_edge_loaded(cx, merge, block, contents));
    }

    /// This copy's device can't give the blocks of [`crate::Action::ServeRead`]. A primary asks another copy for them;
    /// whoever reads at a secondary asks elsewhere.
    pub fn read_failed(&mut self, client: Client, request: RequestId, blocks: BlockRange) {
        match &mut self.role {
            Role::Primary(primary) => primary.on_read_failed(&mut self.cx, client, request, blocks),
            Role::Secondary(_) => self.cx.act(Action::Refuse(client, request, IoStatus::Io)),
        }
    }

    /// The outcome of [`crate::Action::ListChanges`]; `None` when the device could not tell.
    pub fn changes_listed(&mut self, id: u64, device: DeviceId, changes: Option<Vec<(LayerId, ChunkIndex)>>) {
        self.as_primary(|primary, cx| primary.on_changes_listed(cx, id, device, changes));
    }

    /// The outcome of [`crate::Action::LoadBlocks`].
    pub fn blocks_loaded(&mut self, id: u64, contents: Result<Vec<Extent>, IoStatus>) {
        match &mut self.role {
            Role::Primary(primary) => primary.on_blocks_loaded(&mut self.cx, id, contents),
            Role::Secondary(secondary) => secondary.on_question_loaded(&mut self.cx, id, contents),
        }
    }

    /// The outcome of [`crate::Action::LoadChecksums`]: one for each block of the chunk that takes space.
    pub fn checksums_loaded(&mut self, id: u64, checksums: Result<Vec<Option<BlockSum>>, IoStatus>) {
        match &mut self.role {
            Role::Primary(primary) => primary.on_checksums_loaded(&mut self.cx, id, checksums),
            Role::Secondary(secondary) => secondary.on_checksums_loaded(&mut self.cx, id, checksums),
        }
    }

    /// A block of this copy fails its checksum.
    pub fn found_damaged(&mut self, layer: LayerId, chunk: ChunkIndex, block: BlockIndex) {
        self.found_unknown(BlockRange::block(layer, chunk, block));
    }

    /// Of some blocks of this copy nothing is known any more.
    pub fn found_unknown(&mut self, range: BlockRange) {
        let me = self.cx.me;
        match &mut self.role {
            Role::Primary(primary) => primary.met_damage(&mut self.cx, me, range),
            Role::Secondary(secondary) => secondary.send_damaged(&mut self.cx, range),
        }
    }

    /// What is being sent to a copy of a chunk is inherited by these layers, to which writes may have been ordered
    /// since the changes were listed. A write that made zeros looks there like what was never written, and inherits
    /// what it must not: they are compared, too.
    pub fn compare_descendants(
        &mut self,
        device: DeviceId,
        chunk: ChunkIndex,
        layers: impl IntoIterator<Item = LayerId>,
    ) {
        self.as_primary(|primary, _| primary.compare_descendants(device, chunk, layers));
    }

    /// A repair can't be sent to the copy on `device`: this copy's blocks of the layer are another layer's, or about to
    /// be. What is to be compared is listed anew.
    pub fn source_gone(&mut self, device: DeviceId) {
        self.as_primary(|primary, _| primary.source_gone(device));
    }

    /// Allows, or forbids, to start bringing copies up to date. What has been started goes on.
    pub fn allow_resync(&mut self, allowed: bool) {
        self.as_primary(|primary, _| primary.allow_resync(allowed));
    }

    /// Lets the background move so many bytes more; `None`: without a limit, until the next call.
    pub fn allow_background(&mut self, bytes: Option<u64>) {
        self.cx.allowance.grant(bytes);
        if self.cx.allowance.is_open() {
            self.as_primary(|primary, cx| primary.run_background(cx));
        }
    }

    /// Starts a pass over the whole group; [`crate::Action::Scrubbed`] ends it. False when this copy is not an open
    /// primary, or does so already.
    pub fn scrub(&mut self, kind: ScrubKind) -> bool {
        self.as_primary(|primary, cx| primary.begin_scrub(cx, kind)).unwrap_or(false)
    }
}
