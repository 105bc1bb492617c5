//! Attachments of the volume: gateways attach before they serve clients, an operator ends attachments by force, and
//! what was written under an ended one must be there when that is confirmed, or never.

use crate::events::{Event, Life};
use crate::history::Stamp;
use crate::random::Random;
use crate::records::CLASS;
use crate::world::{VOLUME, VOLUME_ID, World};
use crate::{Invariant, Mode};
use azekura_base::{Generation, NodeId, PgId};
use azekura_model::transitions::attachments::{AttachRequest, Attached, attach, confirm_fenced, detach};
use azekura_model::{AttachmentRecord, AttachmentsRecord, MetaError, Outcome, Records};
use azekura_node::Attachments;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long groups may take to confirm.
const PATIENCE: Duration = Duration::from_secs(10);
/// A gateway whose fence was not confirmed tries again after this time.
const TRY_AGAIN: Duration = Duration::from_millis(300);
/// The name that nobody refuses, for looking at everything in the end.
pub(crate) const INSPECTOR: Generation = Generation(u64::MAX);

/// A fence that is waited for.
struct Fence {
    from: Life,
    /// Everything that had ended by this generation is kept out when it is confirmed.
    generation: Generation,
    /// The attachment that may be used then, and the process that waits for it.
    for_whom: Option<(Life, Generation)>,
}

/// All attachments.
pub(crate) struct Holders {
    /// In use in this run.
    pub(crate) on: bool,
    /// What each process works under.
    held: BTreeMap<Life, Generation>,
    /// Processes that have asked for an attachment.
    waiting: BTreeSet<Life>,
    /// Ended attachments, the generation that they ended in, and when that was first confirmed.
    ended: BTreeMap<Generation, (Generation, Option<Stamp>)>,
    fences: BTreeMap<u64, Fence>,
    asked: u64,
    random: Random,
}

impl Holders {
    pub(crate) fn new(mode: Mode, random: Random) -> Holders {
        Holders {
            on: matches!(mode, Mode::Attachments | Mode::All),
            held: BTreeMap::new(),
            waiting: BTreeSet::new(),
            ended: BTreeMap::new(),
            fences: BTreeMap::new(),
            asked: 0,
            random,
        }
    }

    /// Has an attachment been ended?
    pub(crate) fn has_ended(&self, attachment: Generation) -> bool {
        self.ended.contains_key(&attachment)
    }

    /// From when on nothing written under an attachment may be applied.
    pub(crate) fn confirmed(&self, attachment: Generation) -> Option<Stamp> {
        self.ended.get(&attachment)?.1
    }

    /// A process learns from a refusal that its attachment has ended.
    pub(crate) fn lose(&mut self, life: Life, attachment: Generation) {
        if self.held.get(&life) == Some(&attachment) {
            self.held.remove(&life);
        }
    }

    /// Nobody waits for a fence.
    pub(crate) fn idle(&self) -> bool {
        self.fences.is_empty()
    }
}

impl World {
    /// The attachment that a process's clients work under; without one it asks for one.
    pub(crate) fn attachment_of(&mut self, life: Life) -> Option<Generation> {
        if !self.holders.on {
            return Some(Generation(0));
        }
        let held = self.holders.held.get(&life).copied();
        if held.is_none() && self.holders.waiting.insert(life) {
            let at = self.now + self.configuration.delay();
            self.queue.push(at, Event::Attach(life));
        }
        held
    }

    /// The record of the volume's attachments.
    fn attachments(&self) -> AttachmentsRecord {
        let record = self.configuration.model().attachments.get(&VOLUME_ID);
        record.map_or_else(|| AttachmentsRecord::none(VOLUME_ID), |record| record.record.clone())
    }

    /// A process attaches the volume; attachments of processes that are gone end.
    pub(crate) fn attach(&mut self, life: Life) {
        if self.life_of(life.node) != Some(life) {
            return;
        }
        if let Some(until) = self.configuration.away(life.node, self.now) {
            self.queue.push(until, Event::Attach(life));
            return;
        }
        let Life { node, incarnation } = life;
        let wish = AttachRequest { node, incarnation: Some(incarnation), shared: Some(true), force: false };
        let owner = |entry: &AttachmentRecord| Life { node: entry.node, incarnation: entry.incarnation };
        let owners = self.attachments().attachments.iter().map(owner).collect::<Vec<_>>();
        let gone = owners.into_iter().filter(|owner| self.life_of(owner.node) != Some(*owner));
        let gone: BTreeSet<(NodeId, u64)> = gone.map(|owner| (owner.node, owner.incarnation)).collect();
        let refusal = |what| MetaError::CutEnded { volume: format!("{VOLUME}: {what:?}") };
        self.trace.step(self.now, incarnation, || format!("{life:?} attaches; gone are {gone:?}"));
        let next = self.change_attachments(|records| attach(records, VOLUME, &wish, &gone, "", refusal));
        let name = next.and_then(|next| next.of(node).map(|mine| mine.generation));
        self.fence(life, name.map(|name| (life, name)));
    }

    /// The configuration says which attachments stand; those that did before and do not any more have ended.
    fn change_attachments(
        &mut self,
        transition: impl FnOnce(&Records<'_>) -> Outcome<Attached>,
    ) -> Option<AttachmentsRecord> {
        let before = self.attachments();
        let next = match self.configuration.run(transition) {
            Ok(((_, next), _)) => next,
            Err(error) => {
                self.violate(Invariant::Protocol, format!("the attachments can't be changed: {error}"));
                return None;
            }
        };
        let standing = next.standing();
        for name in before.standing().into_iter().filter(|name| !standing.contains(name)) {
            self.holders.ended.insert(name, (next.generation, None));
        }
        if next != before {
            self.trace.step(self.now, next.generation.0, || format!("attachments: {next:?}"));
            self.inform_all();
        }
        Some(next)
    }

    /// Waits until all groups keep out what has ended, if anything has.
    fn fence(&mut self, from: Life, for_whom: Option<(Life, Generation)>) {
        let record = self.attachments();
        if !record.fence_due {
            self.attached(for_whom);
            return;
        }
        self.holders.asked += 1;
        let token = self.holders.asked;
        let (generation, standing) = (record.generation, record.standing());
        self.holders.fences.insert(token, Fence { from, generation, for_whom });
        let groups = self.configuration.groups_of(CLASS);
        self.tell(from, |node| node.fence(token, VOLUME_ID, Attachments { generation, standing }, groups, PATIENCE));
    }

    fn attached(&mut self, whom: Option<(Life, Generation)>) {
        if let Some((life, name)) = whom {
            self.holders.waiting.remove(&life);
            self.holders.held.insert(life, name);
        }
    }

    /// A fence has come to its end.
    pub(crate) fn fence_ended(&mut self, token: u64, result: Result<(), Vec<PgId>>) {
        let Some(Fence { from, generation, for_whom }) = self.holders.fences.remove(&token) else { return };
        self.trace.step(self.now, token, || format!("the fence of {generation:?} by {from:?}: {result:?}"));
        if result.is_err() {
            self.report.fences_failed += 1;
            if let Some((life, _)) = for_whom {
                self.queue.push(self.now + TRY_AGAIN, Event::FenceAgain(life));
            }
            return;
        }
        self.report.fences += 1;
        let now = self.history.stamp();
        for (ended_in, confirmed) in self.holders.ended.values_mut() {
            if *ended_in <= generation {
                confirmed.get_or_insert(now);
            }
        }
        if let Some(until) = self.configuration.away(from.node, self.now) {
            // Nobody learns of it: whoever waits asks all groups again.
            for_whom.into_iter().for_each(|(life, _)| self.queue.push(until, Event::FenceAgain(life)));
            return;
        }
        self.change_attachments(|records| confirm_fenced(records, VOLUME, generation));
        // Others may have ended since.
        self.fence(from, for_whom);
    }

    /// A process that has attached the volume still waits for the fence.
    pub(crate) fn fence_again(&mut self, life: Life) {
        if self.life_of(life.node) != Some(life) {
            return;
        }
        let mine = self.attachments().of(life.node).filter(|mine| mine.incarnation == life.incarnation).cloned();
        match mine {
            Some(mine) => self.fence(life, Some((life, mine.generation))),
            None => drop(self.holders.waiting.remove(&life)),
        }
    }

    /// A process has been told that attachments have ended: what its clients do next needs another one.
    pub(crate) fn look_at_attachment(&mut self, life: Life) {
        let Some(name) = self.holders.held.get(&life).copied() else { return };
        let node = self.machines.get(&life.node).and_then(|machine| machine.node.as_ref());
        if node.is_some_and(|node| node.is_ended(VOLUME_ID, name)) {
            self.holders.held.remove(&life);
        }
    }

    /// A process is gone, and its wishes with it.
    pub(crate) fn holders_lose(&mut self, life: Life) {
        self.holders.held.remove(&life);
        self.holders.waiting.remove(&life);
        self.holders.fences.retain(|_, fence| fence.from != life);
    }

    /// An operator ends some attachments by force, through one of the nodes, and waits for the confirmation.
    pub(crate) fn usurp(&mut self) {
        if !self.working {
            return;
        }
        let pause = if self.plan.mode == Mode::Attachments { 1500 } else { 20_000 };
        let again = self.now + self.holders.random.spread_millis(20, pause);
        self.queue.push(again, Event::Usurp);
        let standing = self.attachments().attachments;
        let reaching = self.reaching();
        if standing.is_empty() || reaching.is_empty() {
            return;
        }
        let random = &mut self.holders.random;
        let from = *random.pick(&reaching);
        let all = random.chance(40);
        let one = random.pick(&standing).node;
        let whose = (!all).then_some(one);
        *self.faults.counts.entry("attachment ended by force").or_default() += 1;
        self.trace.step(self.now, u64::from(one.0), || format!("operator at {from:?} ends attachments of {whose:?}"));
        self.change_attachments(|records| detach(records, VOLUME, whose));
        self.fence(from, None);
    }
}
