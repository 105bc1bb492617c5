//! Bringing a copy that was away up to date, as the primary does it.
//!
//! From the start the copy is sent every new write as any secondary is; nothing waits for its answers, but for new
//! writes when too much is on its way to it (`primary/shares.rs`). Meanwhile the primary goes through the chunks that
//! were changed while the copy was away. It compares each with the copy by digests and sends the blocks that differ. A
//! block is read while no write to it is under way and new ones are held back, and sent before them on the same
//! connection, so the copy applies the repair in the right place of the order without a place of its own. Both take
//! from what the group may do in the background (`background.rs`). A layer comes before those that lie on it, which
//! inherit what is sent for it: a chunk of a layer is compared when nothing of the same chunk is under way for another.
//! When all chunks are done, writes wait for the copy too, and the configuration is asked to name it in sync.
//!
//! A chunk of which the primary can't read a block is compared by the checksums in both maps, which takes no reading:
//! only blocks that differ have to be given. A block that differs and that no copy in sync can give is lost: the copy
//! is told so and fails reads of the block, too, until somebody writes the block, or a scrub finds a copy that can give
//! it after all. A block that this copy's device refuses may be there again in a moment: the block counts as damaged
//! only after a while.

use super::resync::{Comparison, Reading, Resync, ResyncProgress};
use crate::action::Action;
use crate::context::GroupCx;
use crate::primary::Primary;
use crate::primary::peer::{Peer, Standing};
use azekura_base::{
    AckRule, BLOCK_SIZE, BlockRange, CHUNK_SIZE, ChunkIndex, DeviceId, Epoch, LayerId, Sequence, checksum,
};
use azekura_wire::{Learn, LearnOk, Message};
use std::collections::VecDeque;
use std::time::Duration;

/// Repairs of one group under way at once.
const REPAIRS_MAX: usize = 4;

/// Chunks of one group being compared at once.
const COMPARES_MAX: usize = 2;

/// Repairs that are found and wait; no further chunk is compared above it.
const FOUND_MAX: usize = 256;

/// A copy that answers nothing for so long starts anew.
const PATIENCE: Duration = Duration::from_secs(5);

/// A copy that does not begin is asked again after this time.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// A copy that has committed more than its primary is asked again after this time.
const AHEAD_AGAIN: Duration = Duration::from_secs(10);

/// A copy is in reach of the others when it lacks at most so many writes.
const BEHIND_MAX: u64 = 256;

impl Primary {
    /// Copies that could be brought up to date now, or are.
    pub(crate) fn learners<'a>(&'a self, cx: &'a GroupCx) -> impl Iterator<Item = DeviceId> + 'a {
        let open = self.is_open();
        let out = move |device: &&DeviceId| open && **device != cx.me && !cx.config.in_sync.contains(device);
        let there = move |device: &&DeviceId| {
            cx.links.is_up(**device) && !cx.links.is_away(**device, cx.now) && !self.is_put_off(cx, **device)
        };
        cx.config.members.iter().filter(out).filter(there).copied()
    }

    /// How far the copies are that are being brought up to date.
    pub(crate) fn resyncs(&self) -> impl Iterator<Item = (DeviceId, ResyncProgress)> + '_ {
        self.peers.iter().filter_map(|(device, peer)| match &peer.standing {
            Standing::Learning(resync) => Some((*device, resync.progress())),
            _ => None,
        })
    }

    /// Allows, or forbids, to start bringing copies up to date. What has been started goes on.
    pub(crate) fn allow_resync(&mut self, allowed: bool) {
        self.repair.may_resync = allowed;
    }

    /// Starts with copies that can be reached, and gives up those that have fallen silent.
    pub(crate) fn watch_learners(&mut self, cx: &mut GroupCx) {
        let (now, committed) = (cx.now, cx.tail.committed());
        let learners: Vec<DeviceId> = self.learners(cx).collect();
        let failed = |peer: &Peer| {
            let Standing::Learning(resync) = &peer.standing else { return false };
            let patience = if resync.is_asked() { FIRST_WORD } else { PATIENCE };
            let is_silent = peer.stream.acked < peer.stream.sent && now >= peer.signs.heard + patience;
            is_silent || resync.is_unanswered(patience, now) || peer.stream.sent < committed
        };
        let failed: Vec<DeviceId> = self.peers.iter().filter(|(_, p)| failed(p)).map(|(d, _)| *d).collect();
        failed.into_iter().for_each(|device| self.forget_learner(device));
        self.watch_shares(now);
        for peer in self.peers.values_mut() {
            if let Standing::Learning(resync) = &mut peer.standing {
                resync.try_again(now);
            }
        }
        if self.repair.may_resync {
            learners.into_iter().for_each(|device| self.start_resync(cx, device));
        }
        self.run_resyncs(cx);
    }

    fn start_resync(&mut self, cx: &mut GroupCx, device: DeviceId) {
        let (now, base, end) = (cx.now, cx.tail.committed(), cx.tail.end());
        let since = cx.config.away.get(&device).copied().unwrap_or(Sequence::ZERO).min(base);
        let backlog = cx.links.backlog(device);
        if self.peers.contains_key(&device) {
            return;
        }
        self.has_learners = true;
        let mut resync = Resync::new(base);
        resync.note_answer(now);
        self.peers.insert(device, Peer::learning(resync, base, end, backlog, now));
        let note = cx.sessions.to_note();
        let note_checksum = checksum(&note);
        let learn = Learn { pg: cx.pg, device, epoch: self.epoch(), since, base, note_checksum, note };
        cx.act(Action::Send(device, Message::Learn(learn)));
        self.send_prepares(cx, device);
    }

    /// A copy has begun; when it says so again, it has also kept which writes it need not apply again.
    pub(crate) fn on_learn_ok(&mut self, cx: &mut GroupCx, device: DeviceId, ok: LearnOk) {
        let now = cx.now;
        let id = self.repair.repairs.name();
        let Some(resync) = self.heard_learner(cx, device, ok.epoch, now) else { return };
        let asked = resync.is_asked();
        if asked && ok.base > resync.base() {
            return self.leave_alone(cx, device);
        }
        if asked && resync.base() == ok.base {
            resync.begin(ok.complete, id);
            self.repair.ahead.remove(&device);
            cx.act(Action::ListChanges { id, device, after: ok.complete });
        } else if resync.base() == ok.base {
            resync.note_kept();
            self.run_resyncs(cx);
        }
    }

    /// The copy on `device` has committed more than this one. What it holds beyond may be all that is left of that.
    fn leave_alone(&mut self, cx: &mut GroupCx, device: DeviceId) {
        let again = cx.now + AHEAD_AGAIN;
        self.forget_learner(device);
        self.repair.ahead.insert(device, again);
    }

    /// The outcome of [`Action::ListChanges`]; `None` when the device could not tell.
    pub(crate) fn on_changes_listed(
        &mut self,
        cx: &mut GroupCx,
        id: u64,
        device: DeviceId,
        changes: Option<Vec<(LayerId, ChunkIndex)>>,
    ) {
        if device == cx.me {
            self.scrub_listed(cx, id, changes);
            return;
        }
        let Some((resync, _)) = self.resync(device).filter(|(resync, _)| resync.listing() == id) else { return };
        let Some(changes) = changes else {
            self.forget_learner(device);
            return;
        };
        resync.listed(changes);
        self.run_resyncs(cx);
    }

    /// Does the next steps for every copy that learns.
    pub(crate) fn run_resyncs(&mut self, cx: &mut GroupCx) {
        let learning = self.peers.iter().filter(|(_, peer)| !peer.counts());
        let learners: Vec<DeviceId> = learning.map(|(device, _)| *device).collect();
        learners.into_iter().for_each(|device| self.run_resync(cx, device));
    }

    fn run_resync(&mut self, cx: &mut GroupCx, device: DeviceId) {
        let (committed, end, now) = (cx.tail.committed(), cx.tail.end(), cx.now);
        let keeps_up = cx.config.ack != AckRule::All || self.keeps_up(device, now);
        let Primary { peers, repair, merges, .. } = self;
        let Some(peer) = peers.get_mut(&device) else { return };
        let Standing::Learning(resync) = &mut peer.standing else { return };
        // A repair comes behind everything that is in its contents.
        let mut blocked = VecDeque::new();
        while resync.repairing.len() < REPAIRS_MAX
            && peer.stream.sent >= committed
            && cx.allowance.is_open()
            && peer.stream.share.has_room_for_repair(&peer.stream.backlog, resync.repairing.len())
        {
            let Some(blocks) = resync.found.pop_front() else { break };
            if cx.tail.touches(&blocks) || merges.touches(&blocks) || repair.hold(&blocks) {
                blocked.push_back(blocks);
                continue;
            }
            let id = repair.repairs.name();
            repair.repairs.reading.insert(id, Reading { device, blocks });
            resync.repairing.insert(id, blocks);
            cx.allowance.take(usize::from(blocks.count) * BLOCK_SIZE);
            cx.act(Action::LoadBlocks { id, range: blocks });
        }
        resync.put_back(blocked, now);
        while resync.comparing.len() < COMPARES_MAX && resync.found.len() < FOUND_MAX && cx.allowance.is_open() {
            let Some((layer, chunk, of_descendant)) = resync.next_chunk() else { break };
            cx.allowance.take(CHUNK_SIZE);
            let id = repair.repairs.name();
            resync.comparing.insert(id, Comparison { layer, chunk, of_descendant, digests: None });
            cx.act(Action::LoadBlocks { id, range: BlockRange::chunk(layer, chunk) });
        }
        let in_reach = end.0 - peer.stream.acked.0 <= BEHIND_MAX || peer.stream.share.has_room(&peer.stream.backlog);
        if resync.is_done() && in_reach && keeps_up {
            peer.standing = Standing::Joining;
            (peer.signs.heard, peer.signs.moved) = (now, now);
        }
    }

    /// A repair can't be sent to the copy on `device`: this copy's blocks of the layer are another layer's, or about to
    /// be. What is to be compared is listed anew.
    pub(crate) fn source_gone(&mut self, device: DeviceId) {
        if self.resync(device).is_some() {
            self.forget_learner(device);
        }
    }

    /// What is being sent to a copy of a chunk is inherited by these layers, to which writes may have been ordered
    /// since the changes were listed. A write that made zeros looks there like what was never written, and inherits
    /// what it must not: they are compared, too.
    pub(crate) fn compare_descendants(
        &mut self,
        device: DeviceId,
        chunk: ChunkIndex,
        layers: impl IntoIterator<Item = LayerId>,
    ) {
        if let Some((resync, _)) = self.resync(device) {
            resync.compare_too(chunk, layers);
        }
    }

    pub(super) fn heard_learner(
        &mut self,
        _cx: &mut GroupCx,
        device: DeviceId,
        epoch: Epoch,
        now: Duration,
    ) -> Option<&mut Resync> {
        if self.epoch() != epoch {
            return None;
        }
        let (resync, heard) = self.resync(device)?;
        *heard = now;
        resync.note_answer(now);
        Some(resync)
    }
}
