//! Attachments of a volume that have ended, and head layers that are frozen: writes under, or to, them are let out of
//! the group.
//!
//! The node refuses what arrives from an ended attachment; here is what had arrived before (decision 0009). A write
//! that waits, or is being merged, has no place in the order yet and is refused. A write that has a place can't be
//! taken back: other copies may have it, and the next primary would commit it. So the answer waits until everything
//! that has a place now is committed.
//!
//! The answer is given only by a primary that may serve when it is told of the fence, and whose node has read of the
//! fence in the configuration (decision 0013, fences). Whoever is named primary later reads the volume's attachments
//! together with, or after, its own claim, and knows of the fence without being told.
//!
//! A freeze is the same for the writes to a volume's head layer, whoever sends them (docs/decisions/0011): those writes
//! are asked to come again. The caller has made sure that the primary's node refuses those that arrive, and that every
//! node which knows of a later claim knows of the freeze.
//!
//! Writes of a node that has left the cluster are refused from when this copy knows that the node has left (decision
//! 0018). Nobody waits until every copy knows.

use crate::action::{Action, Client};
use crate::context::GroupCx;
use crate::primary::Primary;
use crate::roll::NodeRoll;
use azekura_base::{IoStatus, LayerId, RequestId, Sequence, VolumeId};
use azekura_wire::{Fence, Freeze, WriteRequest};

impl Primary {
    /// Attachments of a volume have ended. Answered when no write of theirs can be applied in this group any more, as
    /// far as the caller refuses what arrives from now on.
    pub(crate) fn on_fence(&mut self, cx: &mut GroupCx, client: Client, fence: &Fence) {
        let ends = |write: &WriteRequest| fence.ends(write.volume, write.attachment);
        self.keep_out(cx, client, fence.request, ends, IoStatus::Fenced);
    }

    /// A volume's head layer is frozen. Answered when no write to it can be applied in this group any more, as far as
    /// the caller refuses what arrives from now on.
    pub(crate) fn on_freeze(&mut self, cx: &mut GroupCx, client: Client, freeze: &Freeze) {
        let to_head = |write: &WriteRequest| write.volume == freeze.volume && write.layer == freeze.head;
        self.keep_out(cx, client, freeze.request, to_head, IoStatus::Stale);
    }

    /// Asks the writes without a place whose volume and layer `stale` names to come again: the configuration says that
    /// the layer takes no writes now, or any more.
    pub(crate) fn send_back(&mut self, cx: &mut GroupCx, stale: impl Fn(VolumeId, LayerId) -> bool) {
        self.refuse_unordered(cx, |write| stale(write.volume, write.layer), IoStatus::Stale);
        self.retry_waiting(cx);
    }

    /// Refuses the writes without a place of nodes that are gone.
    pub(crate) fn refuse_gone(&mut self, cx: &mut GroupCx, roll: &NodeRoll) {
        self.refuse_unordered(cx, |write| roll.is_gone(write.session.endpoint().node), IoStatus::Fenced);
        self.retry_waiting(cx);
    }

    fn keep_out(
        &mut self,
        cx: &mut GroupCx,
        client: Client,
        request: RequestId,
        which: impl Fn(&WriteRequest) -> bool,
        why: IoStatus,
    ) {
        // 0009: only who may serve knows that no other primary applies such writes.
        let serving = self.may_serve(cx, cx.now);
        if !serving || self.fences.is_full() {
            self.clients_wait = true;
            return cx.send_fence_done(client, request, Err(IoStatus::Redirect));
        }
        self.refuse_unordered(cx, which, why);
        let upto = cx.tail.end();
        self.fences.wait(upto, client, request);
        self.answer_fences(cx);
        // What the refused writes were in the way of.
        self.retry_waiting(cx);
    }

    pub(crate) fn refuse_unordered(&mut self, cx: &mut GroupCx, which: impl Fn(&WriteRequest) -> bool, why: IoStatus) {
        for (client, request) in self.drop_unordered(which) {
            cx.act(Action::AnswerWrite(client, request, Err(why)));
        }
    }

    /// Answers the fences that need not wait any longer.
    pub(crate) fn answer_fences(&mut self, cx: &mut GroupCx) {
        let committed = cx.tail.committed();
        self.answer_reached(cx, committed, Ok(()));
    }

    /// This copy is primary no more: whoever fences asks the next one.
    pub(crate) fn drop_fences(&mut self, cx: &mut GroupCx) {
        self.answer_reached(cx, Sequence(u64::MAX), Err(IoStatus::Redirect));
    }

    /// Answers the fences that wait for nothing after `upto`.
    fn answer_reached(&mut self, cx: &mut GroupCx, upto: Sequence, result: Result<(), IoStatus>) {
        for (client, request) in self.fences.reached(upto) {
            cx.send_fence_done(client, request, result);
        }
    }
}
