//! A copy that is being brought up to date, or whose blocks are repaired: the receiving side of `resync.rs`.

use crate::action::{Action, Client, Mismatch};
use crate::digest;
use crate::group::{Group, Role};
use crate::pending::Tail;
use crate::secondary::Question;
use crate::sessions::Sessions;
use azekura_base::{BlockRange, CHUNK_BLOCKS, Extent, IoStatus, Sequence, checksum};
use azekura_wire::{Compare, CompareOk, DIGEST_SPAN_BLOCKS, Fetch, Learn, LearnOk, Message, Repair, RepairOk, Span};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Repairs and comparisons under way.
#[derive(Default)]
pub(crate) struct Learner {
    /// Repairs that wait until what comes before them is durable.
    repairs: VecDeque<Repair>,
    /// Chunks that are being read, by the question's name.
    compares: BTreeMap<u64, Compare>,
    /// Names the note that says which writes this copy need not apply again: the copy joins only when its device keeps
    /// the note.
    note: u64,
    note_saved: bool,
    /// The answer to the primary, to be sent again when the note is kept.
    learnt: Option<LearnOk>,
    /// Blocks that are being read for the primary, by the question's name.
    pub(crate) fetches: BTreeMap<u64, Fetch>,
}

impl Learner {
    /// Nothing behind the next repair may be committed before it.
    pub(crate) fn commit_limit(&self) -> Option<Sequence> {
        self.repairs.front().map(|repair| repair.commit)
    }
}

impl Group {
    /// The primary starts to bring this copy up to date.
    ///
    /// # Errors
    /// When the note is damaged: the connection must be closed.
    pub fn learn(&mut self, from: Client, learn: Learn) -> Result<(), Mismatch> {
        if checksum(&learn.note) != learn.note_checksum {
            return Err(Mismatch::Checksum);
        }
        if self.refuse_to_learn(from, &learn) || !self.listen_to(from, learn.epoch) {
            return Ok(());
        }
        if learn.base < self.tail.committed() {
            // 0007: the group has lost what this copy has committed, and this copy may be the only one that holds those
            // writes. So they stay, and people must know.
            let (pg, device, base) = (self.pg, self.me, self.tail.committed());
            let refusal = LearnOk { pg, device, epoch: learn.epoch, base, complete: learn.since };
            self.send_to_primary(Message::LearnOk(refusal));
            return Ok(());
        }
        // What was committed when this copy was left behind is durable here, and the same as everywhere. What this copy
        // has prepared after that may have been decided otherwise.
        self.commit(learn.since.min(self.durable));
        let complete = learn.since.min(self.completeness.limit(self.tail.committed()));
        self.completeness.learns();
        let keep = self.tail.committed();
        drop(self.tail.truncate(keep));
        self.start_epoch(learn.epoch, keep);
        if learn.base > keep {
            self.start_epoch(learn.epoch, learn.base);
            self.completeness.jumped(keep);
        }
        self.tail = Tail::new(learn.base);
        self.durable = learn.base;
        if let Some(sessions) = Sessions::from_note(&learn.note) {
            self.sessions.replace(sessions);
        }
        if let Role::Secondary(secondary) = &mut self.role {
            // This copy lacks writes from here on, so it must not answer readers.
            secondary.lease_until = Duration::ZERO;
            secondary.learner.note = self.notes + 1;
            let ok = LearnOk { pg: self.pg, device: self.me, epoch: learn.epoch, base: learn.base, complete };
            secondary.question = Some(Question::Learn(ok));
            self.notes += 1;
            self.actions.push_back(Action::SaveNote(self.notes));
        }
        Ok(())
    }

    /// True when this copy is in sync, as far as it knows: then it has everything that was committed before the
    /// configuration that it knows.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let learns = matches!(self.role, Role::Secondary(_)) && self.completeness.is_learning();
        !learns && self.config.in_sync.contains(&self.me)
    }

    /// [`Action::SaveNote`] is done.
    pub fn note_saved(&mut self, name: u64) {
        if let Role::Secondary(secondary) = &mut self.role
            && secondary.learner.note == name
        {
            secondary.learner.note_saved = true;
            self.confirm_note();
        }
    }

    /// The primary has heard that this copy has begun.
    pub(crate) fn begun(&mut self, ok: LearnOk) {
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.learner.learnt = Some(ok);
            self.confirm_note();
        }
    }

    fn confirm_note(&mut self) {
        if let Role::Secondary(secondary) = &mut self.role
            && secondary.learner.note_saved
            && let Some(ok) = secondary.learner.learnt.take()
        {
            self.send_to_primary(Message::LearnOk(ok));
        }
    }

    /// The primary says what some blocks hold.
    ///
    /// # Errors
    /// When the blocks are damaged: the connection must be closed.
    pub fn repair(&mut self, from: Client, mut repair: Repair) -> Result<(), Mismatch> {
        if !self.is_from_primary(from, repair.epoch) {
            return Ok(());
        }
        if !repair.body.is_undamaged() {
            return Err(Mismatch::Checksum);
        }
        if repair.commit > self.tail.end() {
            return Err(Mismatch::Gap { got: repair.commit, expected: self.tail.end() });
        }
        // A heartbeat may have overtaken it, and told of commits of writes that came before it. None of them is to
        // these blocks: those that were ordered behind its contents have not come yet.
        repair.commit = repair.commit.max(self.tail.committed());
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.learner.repairs.push_back(repair);
        }
        self.run_repairs();
        Ok(())
    }

    /// Appends the repairs before which everything is durable.
    pub(crate) fn run_repairs(&mut self) {
        loop {
            let Role::Secondary(secondary) = &mut self.role else { return };
            if secondary.learner.commit_limit().is_none_or(|commit| commit > self.durable) {
                return;
            }
            let Some(repair) = secondary.learner.repairs.pop_front() else { return };
            self.commit(repair.commit);
            self.actions.push_back(Action::AppendRepair(repair));
        }
    }

    /// [`Action::AppendRepair`] is durable.
    pub fn repair_appended(&mut self, epoch: azekura_base::Epoch, id: Option<std::num::NonZeroU64>) {
        if matches!(&self.role, Role::Secondary(_)) && self.epochs.followed() == epoch {
            let ok = RepairOk { pg: self.pg, device: self.me, epoch, id };
            self.send_to_primary(Message::RepairOk(ok));
        }
    }

    /// A name for what is read to answer a primary: two primaries may use the same name for their questions.
    pub(crate) fn question(&mut self) -> u64 {
        self.questions += 1;
        1 << 63 | self.questions
    }

    /// The primary asks whether a chunk is the same here.
    pub fn compare(&mut self, from: Client, compare: Compare) {
        if !self.is_from_primary(from, compare.epoch) {
            return;
        }
        let Compare { layer, chunk, light, .. } = compare;
        let id = self.question();
        if let Role::Secondary(secondary) = &mut self.role {
            secondary.learner.compares.insert(id, compare);
            self.actions.push_back(if light {
                Action::LoadChecksums { id, layer, chunk }
            } else {
                Action::LoadBlocks { id, range: BlockRange::chunk(layer, chunk) }
            });
        }
    }

    /// The primary asks for a chunk of a layer that this device does not have any more.
    pub fn compare_gone(&mut self, from: Client, compare: &Compare) {
        if self.is_from_primary(from, compare.epoch) {
            let (pg, device, epoch, id) = (self.pg, self.me, compare.epoch, compare.id);
            let ok = CompareOk { pg, device, epoch, id, differing: Vec::new(), unreadable: false, gone: true };
            self.send_to_primary(Message::CompareOk(ok));
        }
    }

    /// What the primary has asked for is read.
    pub(crate) fn question_loaded(&mut self, id: u64, contents: Result<Vec<Extent>, IoStatus>) {
        let Role::Secondary(secondary) = &mut self.role else { return };
        if let Some(fetch) = secondary.learner.fetches.remove(&id) {
            self.answer_fetch(fetch, contents.ok());
            return;
        }
        self.answer_compare(id, contents.map(|extents| digest::blocks(&extents)));
    }

    /// The digests of a chunk's blocks are there, which the primary has asked to compare.
    pub(crate) fn answer_compare(&mut self, id: u64, digests: Result<Vec<u64>, IoStatus>) {
        let Role::Secondary(secondary) = &mut self.role else { return };
        let Some(compare) = secondary.learner.compares.remove(&id) else { return };
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
        let (pg, device, Compare { epoch, id, .. }) = (self.pg, self.me, compare);
        let ok = CompareOk { pg, device, epoch, id, differing, unreadable, gone: false };
        self.send_to_primary(Message::CompareOk(ok));
    }
}
