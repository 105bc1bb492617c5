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
//! A freeze is the same for the writes to a volume's head layer, whoever they are from (docs/decisions/0011): they are
//! asked to come again. The caller has made sure that the primary's node refuses those that arrive, and that every node
//! which knows of a later claim knows of the freeze.
//!
//! Writes of a node that has left the cluster are refused from when this copy knows of that (decision 0018). Nobody
//! waits for that to be so everywhere.

use crate::action::{Action, Client};
use crate::group::{Group, Role};
use crate::roll::NodeRoll;
use azekura_base::{IoStatus, LayerId, RequestId, Sequence, VolumeId};
use azekura_wire::{Fence, FenceDone, Freeze, Message, WriteRequest};
use std::sync::Arc;

/// Fences of one group that wait for an answer; further ones are asked to come again.
const FENCES_MAX: usize = 1024;

/// Fences that wait until what was ordered before them is committed.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    waiting: Vec<(Sequence, Client, RequestId)>,
}

impl Fences {
    /// Takes out those that wait for nothing after `committed`.
    fn reached(&mut self, committed: Sequence) -> Vec<(Client, RequestId)> {
        let reached = self.waiting.extract_if(.., |(upto, ..)| *upto <= committed);
        reached.map(|(_, client, request)| (client, request)).collect()
    }
}

impl Group {
    /// Attachments of a volume have ended. Answered when no write of theirs can be applied in this group any more, as
    /// far as the caller refuses what arrives from now on.
    pub fn fence(&mut self, client: Client, fence: &Fence) {
        let ends = |write: &WriteRequest| fence.ends(write.volume, write.attachment);
        self.keep_out(client, fence.request, ends, IoStatus::Fenced);
    }

    /// A volume's head layer is frozen. Answered when no write to it can be applied in this group any more, as far as
    /// the caller refuses what arrives from now on.
    pub fn freeze(&mut self, client: Client, freeze: &Freeze) {
        let to_head = |write: &WriteRequest| write.volume == freeze.volume && write.layer == freeze.head;
        self.keep_out(client, freeze.request, to_head, IoStatus::Stale);
    }

    /// Asks the writes without a place whose volume and layer `stale` names to come again: the configuration says that
    /// the layer takes no writes now, or any more.
    pub fn send_back(&mut self, stale: impl Fn(VolumeId, LayerId) -> bool) {
        self.refuse_unordered(|write| stale(write.volume, write.layer), IoStatus::Stale);
        self.retry_waiting();
    }

    /// The nodes that there are, and those that there were: to be told before the configuration of the same moment.
    /// Which writes of nodes that are gone are committed is forgotten; what still comes from those nodes is refused.
    pub fn follow_nodes(&mut self, roll: Arc<NodeRoll>) {
        self.sessions.follow(roll.clone());
        self.refuse_unordered(|write| roll.is_gone(write.session.endpoint().node), IoStatus::Fenced);
        self.retry_waiting();
    }

    /// Remembers the committed writes of so many gateways ([`crate::SESSIONS_MAX`] at most); writes of further ones are
    /// asked to come again.
    pub fn limit_sessions(&mut self, limit: usize) {
        self.sessions.set_limit(limit);
    }

    /// Of how many gateways it is remembered which writes are committed.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    fn keep_out(&mut self, client: Client, request: RequestId, which: impl Fn(&WriteRequest) -> bool, why: IoStatus) {
        // 0009: only who may serve knows that no other primary applies such writes.
        let serving = self.may_serve(self.now);
        let Role::Primary(primary) = &mut self.role else {
            return self.answer_fence(client, request, Err(IoStatus::Redirect));
        };
        if !serving || primary.fences.waiting.len() >= FENCES_MAX {
            primary.clients_wait = true;
            return self.answer_fence(client, request, Err(IoStatus::Redirect));
        }
        self.refuse_unordered(which, why);
        let upto = self.tail.end();
        if let Some(primary) = self.primary_mut() {
            primary.fences.waiting.push((upto, client, request));
        }
        self.answer_fences();
        // What the refused writes were in the way of.
        self.retry_waiting();
    }

    pub(crate) fn refuse_unordered(&mut self, which: impl Fn(&WriteRequest) -> bool, why: IoStatus) {
        let dropped = self.primary_mut().map(|primary| primary.drop_unordered(which));
        for (client, request) in dropped.into_iter().flatten() {
            self.actions.push_back(Action::AnswerWrite(client, request, Err(why)));
        }
    }

    /// Answers the fences that need not wait any longer.
    pub(crate) fn answer_fences(&mut self) {
        let committed = self.tail.committed();
        self.answer_reached(committed, Ok(()));
    }

    /// This copy is primary no more: whoever fences asks the next one.
    pub(crate) fn drop_fences(&mut self) {
        self.answer_reached(Sequence(u64::MAX), Err(IoStatus::Redirect));
    }

    /// Answers the fences that wait for nothing after `upto`.
    fn answer_reached(&mut self, upto: Sequence, result: Result<(), IoStatus>) {
        let reached = self.primary_mut().map(|primary| primary.fences.reached(upto));
        for (client, request) in reached.into_iter().flatten() {
            self.answer_fence(client, request, result);
        }
    }

    fn answer_fence(&mut self, client: Client, request: RequestId, result: Result<(), IoStatus>) {
        self.actions.push_back(Action::Answer(client, Message::FenceDone(FenceDone { request, result })));
    }
}
