//! What a primary asks a copy for: blocks, and digests of blocks.

use crate::action::{Action, Client};
use crate::context::GroupCx;
use crate::digest;
use crate::secondary::Secondary;
use azekura_base::{BlockRange, BlockSum, CHUNK_BLOCKS, Extent, IoStatus};
use azekura_wire::{Compare, CompareOk, DIGEST_SPAN_BLOCKS, Damaged, Fetch, Fetched, Message, Span};

impl Secondary {
    /// The primary asks whether a chunk is the same here.
    pub(crate) fn on_compare(&mut self, cx: &mut GroupCx, from: Client, compare: Compare) {
        if !self.is_from_primary(cx, from, compare.epoch) {
            return;
        }
        let Compare { layer, chunk, light, .. } = compare;
        let id = cx.next_question();
        self.learner.compares.insert(id, compare);
        cx.act(if light {
            Action::LoadChecksums { id, layer, chunk }
        } else {
            Action::LoadBlocks { id, range: BlockRange::chunk(layer, chunk) }
        });
    }

    /// The primary asks for a chunk of a layer that this device does not have any more.
    pub(crate) fn on_compare_gone(&mut self, cx: &mut GroupCx, from: Client, compare: &Compare) {
        if self.is_from_primary(cx, from, compare.epoch) {
            let (pg, device, epoch, id) = (cx.pg, cx.me, compare.epoch, compare.id);
            let ok = CompareOk { pg, device, epoch, id, differing: Vec::new(), unreadable: false, gone: true };
            self.send_to_primary(cx, Message::CompareOk(ok));
        }
    }

    /// What the primary has asked for is read.
    pub(crate) fn on_question_loaded(&mut self, cx: &mut GroupCx, id: u64, contents: Result<Vec<Extent>, IoStatus>) {
        if let Some(fetch) = self.learner.fetches.remove(&id) {
            self.send_fetched(cx, fetch, contents.ok());
            return;
        }
        self.send_compare_ok(cx, id, contents.map(|extents| digest::blocks(&extents)));
    }

    /// The digests of a chunk's blocks are there, which the primary has asked to compare.
    pub(crate) fn send_compare_ok(&mut self, cx: &mut GroupCx, id: u64, digests: Result<Vec<u64>, IoStatus>) {
        let Some(compare) = self.learner.compares.remove(&id) else { return };
        // A chunk that can't be read is as different as can be.
        let unreadable = digests.is_err();
        let blocks = digests.unwrap_or_else(|_| vec![0; CHUNK_BLOCKS]);
        let spans = digest::spans(&blocks);
        let differs = |index: &usize| unreadable || spans.get(*index) != compare.spans.get(*index);
        let span = |index: usize| {
            let own = &blocks[index * DIGEST_SPAN_BLOCKS..(index + 1) * DIGEST_SPAN_BLOCKS];
            // Nothing that is sent for an unreadable block may pass for its digest.
            let blocks = own.iter().map(|digest| if unreadable { !compare.spans[index] } else { *digest });
            Span { index: index as u8, blocks: blocks.collect() }
        };
        let differing = (0..compare.spans.len().min(spans.len())).filter(differs).map(span).collect();
        let (pg, device, Compare { epoch, id, .. }) = (cx.pg, cx.me, compare);
        let ok = CompareOk { pg, device, epoch, id, differing, unreadable, gone: false };
        self.send_to_primary(cx, Message::CompareOk(ok));
    }

    /// The primary asks for blocks.
    pub(crate) fn on_fetch(&mut self, cx: &mut GroupCx, from: Client, fetch: Fetch) {
        if !self.is_from_primary(cx, from, fetch.epoch) {
            return;
        }
        self.follow_commit(cx, fetch.commit);
        if cx.tail.committed() < fetch.commit {
            self.send_fetched(cx, fetch, None);
            return;
        }
        let (id, range) = (cx.next_question(), fetch.range);
        self.learner.fetches.insert(id, fetch);
        cx.act(Action::LoadBlocks { id, range });
    }

    /// The primary asks for blocks of a layer of which this copy has nothing, or not for long.
    pub(crate) fn on_fetch_gone(&mut self, cx: &mut GroupCx, from: Client, fetch: Fetch) {
        if self.is_from_primary(cx, from, fetch.epoch) {
            self.send_fetched(cx, fetch, None);
        }
    }

    pub(crate) fn send_fetched(&mut self, cx: &mut GroupCx, fetch: Fetch, extents: Option<Vec<Extent>>) {
        let Fetch { pg, device, epoch, id, .. } = fetch;
        self.send_to_primary(cx, Message::Fetched(Fetched { pg, device, epoch, id, extents }));
    }

    /// The checksums of a chunk's blocks are there.
    pub(crate) fn on_checksums_loaded(
        &mut self,
        cx: &mut GroupCx,
        id: u64,
        checksums: Result<Vec<Option<BlockSum>>, IoStatus>,
    ) {
        self.send_compare_ok(cx, id, checksums.map(|checksums| digest::of_checksums(&checksums)));
    }

    /// Of some blocks of this copy nothing is known any more.
    pub(crate) fn send_damaged(&mut self, cx: &mut GroupCx, range: BlockRange) {
        let (pg, device, epoch) = (cx.pg, cx.me, cx.epochs.followed());
        self.send_to_primary(cx, Message::Damaged(Damaged { pg, device, epoch, range }));
    }
}
