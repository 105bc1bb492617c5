//! Blocks that this copy's device can't read are asked for at another copy: edges of merges, and what clients read.
//!
//! Under `majority` and `each-site` clients read from the primary alone (0010). A device that refuses reads would fail
//! them all until its primary leaves, while other copies have every block. A copy that has everything up to the
//! primary's commit when it is asked gives what the primary itself would have: it applies what the primary has
//! committed and nothing else, and answers only while the primary reigns ([`crate::secondary`]).

use super::peer::Standing;
use crate::action::{Action, Client};
use crate::context::GroupCx;
use crate::primary::Primary;
use crate::repair::is_whole;
use azekura_base::{BlockRange, CHUNK_BLOCKS, DeviceId, Extent, IoStatus, RequestId};
use azekura_wire::{Fetch, Message};
use std::collections::BTreeMap;

/// Blocks that other copies are asked for at once because clients read them, in one group: so many may be in memory.
/// What is read besides comes again a little later.
const READ_BLOCKS_MAX: usize = CHUNK_BLOCKS;

/// Who wants the blocks.
#[derive(Clone, Copy)]
pub(super) enum For {
    /// The merge of this name; the one block is an edge of it.
    Merge(u64),
    /// A client, by this read.
    Reader(Client, RequestId),
}

/// Blocks that this copy can't give.
pub(super) struct Question {
    pub(super) wanted: For,
    pub(super) blocks: BlockRange,
    /// Copies that were asked, the present one last.
    pub(super) asked: Vec<DeviceId>,
}

impl Question {
    /// Nobody was asked yet.
    pub(super) fn new(wanted: For, blocks: BlockRange) -> Question {
        Question { wanted, blocks, asked: Vec::new() }
    }
}

/// What other copies were asked for, by the question's name.
#[derive(Default)]
pub(crate) struct Elsewhere {
    questions: BTreeMap<u64, Question>,
}

impl Elsewhere {
    /// So many blocks more may be asked for, since a client reads them: a read of any size, if it is alone.
    fn has_room_for(&self, blocks: &BlockRange) -> bool {
        let reads = self.questions.values().filter(|question| matches!(question.wanted, For::Reader(..)));
        let asked: usize = reads.map(|question| usize::from(question.blocks.count)).sum();
        asked == 0 || asked + usize::from(blocks.count) <= READ_BLOCKS_MAX
    }

    /// Takes out what was asked of copies that do not answer any more.
    fn in_vain(&mut self, answers: impl Fn(&DeviceId) -> bool) -> Vec<Question> {
        let silent = |question: &Question| !question.asked.last().is_some_and(&answers);
        let gone = self.questions.iter().filter(|(_, question)| silent(question));
        let gone: Vec<u64> = gone.map(|(id, _)| *id).collect();
        gone.iter().filter_map(|id| self.questions.remove(id)).collect()
    }

    /// The reign is over. Gives the clients whose reads nobody answers here.
    pub(super) fn drain_readers(&mut self) -> Vec<(Client, RequestId)> {
        let reader = |question: Question| match question.wanted {
            For::Reader(client, request) => Some((client, request)),
            For::Merge(_) => None,
        };
        std::mem::take(&mut self.questions).into_values().filter_map(reader).collect()
    }
}

impl Primary {
    /// This copy's device could not give blocks that a client reads.
    pub(crate) fn on_read_failed(&mut self, cx: &mut GroupCx, client: Client, request: RequestId, blocks: BlockRange) {
        if !(self.serves(cx, cx.now) && self.elsewhere.has_room_for(&blocks)) {
            return cx.act(Action::Refuse(client, request, IoStatus::Redirect));
        }
        self.ask_elsewhere(cx, Question::new(For::Reader(client, request), blocks), IoStatus::Io);
    }

    /// Asks the next copy. Without one, whoever wants the blocks is told `status`; or is to ask again while there is a
    /// copy in sync that can't be asked now.
    pub(super) fn ask_elsewhere(&mut self, cx: &mut GroupCx, mut question: Question, status: IoStatus) {
        let (pg, commit, now) = (cx.pg, cx.tail.committed(), cx.now);
        let others = self
            .peers
            .iter()
            .filter(|(device, peer)| matches!(peer.standing, Standing::InSync) && !question.asked.contains(device));
        let others: Vec<DeviceId> = others.map(|(device, _)| *device).collect();
        let can_give = |device: &DeviceId| self.answers(device, now) && self.has_all(*device, commit);
        match others.iter().copied().find(can_give) {
            Some(device) => {
                let (epoch, id) = (self.epoch(), self.repair.name());
                let range = question.blocks;
                question.asked.push(device);
                self.elsewhere.questions.insert(id, question);
                cx.act(Action::Send(device, Message::Fetch(Fetch { pg, device, epoch, commit, id, range })));
            }
            // A copy that may have the blocks does not answer now: it will, or is left behind.
            None if !others.is_empty() => self.come_again(cx, question.wanted),
            None => self.nobody_has_it(cx, question.wanted, status),
        }
    }

    /// A copy gives blocks that it was asked for, or can't either.
    pub(crate) fn fetched_elsewhere(&mut self, cx: &mut GroupCx, id: u64, extents: Option<Vec<Extent>>) {
        let Some(question) = self.elsewhere.questions.remove(&id) else { return };
        match (extents.filter(|extents| is_whole(extents, question.blocks.count)), question.wanted) {
            (Some(extents), For::Reader(client, request)) => cx.act(Action::AnswerRead(client, request, extents)),
            (Some(extents), For::Merge(merge)) => {
                if let Some(contents) = extents.into_iter().next() {
                    self.edge_known(cx, merge, question.blocks.first, contents);
                }
            }
            (None, For::Merge(merge)) if !self.merges.has(merge) => {}
            (None, _) => self.ask_elsewhere(cx, question, IoStatus::Io),
        }
        self.retry_waiting(cx);
    }

    /// Whoever wants something from a copy that has fallen silent, or is a member no more, is to ask again.
    pub(crate) fn give_up_elsewhere(&mut self, cx: &mut GroupCx) {
        let now = cx.now;
        let Primary { elsewhere, peers, .. } = self;
        let in_vain = elsewhere.in_vain(|device| peers.get(device).is_some_and(|peer| peer.answers(now)));
        in_vain.into_iter().for_each(|question| self.come_again(cx, question.wanted));
    }

    fn come_again(&mut self, cx: &mut GroupCx, wanted: For) {
        self.clients_wait = true;
        self.nobody_has_it(cx, wanted, IoStatus::Redirect);
    }

    fn nobody_has_it(&mut self, cx: &mut GroupCx, wanted: For, status: IoStatus) {
        match wanted {
            For::Reader(client, request) => cx.act(Action::Refuse(client, request, status)),
            For::Merge(merge) => {
                let Some((client, request)) = self.merges.take(merge) else { return };
                cx.act(Action::AnswerWrite(client, request, Err(status)));
            }
        }
    }
}
