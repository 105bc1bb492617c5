//! Attachments of the volume: gateways attach before they serve clients, an operator ends attachments by force, and
//! what was written under an ended one must be there when that is confirmed, or never.

use crate::Mode;
use crate::events::{Event, Life};
use crate::history::Stamp;
use crate::random::Random;
use crate::world::{VOLUME_ID, World};
use azekura_base::{Generation, PgId};
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
    /// Attachments of processes: also of those that are gone.
    made: BTreeMap<Generation, Life>,
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
            made: BTreeMap::new(),
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

    fn attachments(&self) -> Attachments {
        self.configuration.view().attachments.get(&VOLUME_ID).cloned().unwrap_or_default()
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
        let mut next = self.attachments();
        next.generation.0 += 1;
        let made = &self.holders.made;
        let gone: Vec<Generation> =
            next.standing.iter().copied().filter(|name| self.life_of(made[name].node) != Some(made[name])).collect();
        next.standing.retain(|name| !gone.contains(name));
        next.standing.push(next.generation);
        let name = next.generation;
        self.holders.made.insert(name, life);
        self.trace.step(self.now, name.0, || format!("{life:?} attaches as {name:?}; gone are {gone:?}"));
        self.end_attachments(&gone, next);
        self.fence(life, Some((life, name)));
    }

    /// The configuration says which attachments stand.
    fn end_attachments(&mut self, gone: &[Generation], next: Attachments) {
        for name in gone {
            self.holders.ended.insert(*name, (next.generation, None));
        }
        self.configuration.set_attachments(VOLUME_ID, next);
        self.inform_all();
    }

    /// Waits until all groups keep out what has ended, if anything has.
    fn fence(&mut self, from: Life, for_whom: Option<(Life, Generation)>) {
        let due = self.holders.ended.values().any(|(_, confirmed)| confirmed.is_none());
        if !due {
            self.attached(for_whom);
            return;
        }
        let attachments = self.attachments();
        self.holders.asked += 1;
        let token = self.holders.asked;
        let generation = attachments.generation;
        self.holders.fences.insert(token, Fence { from, generation, for_whom });
        let groups: Vec<PgId> = self.configuration.group_ids();
        self.tell(from, |node| node.fence(token, VOLUME_ID, attachments, groups, PATIENCE));
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
        self.attached(for_whom);
    }

    /// A process that has attached the volume still waits for the fence.
    pub(crate) fn fence_again(&mut self, life: Life) {
        let mine = self.holders.made.iter().rev().find(|(_, owner)| **owner == life).map(|(name, _)| *name);
        let Some(mine) = mine.filter(|_| self.life_of(life.node) == Some(life)) else { return };
        if self.holders.has_ended(mine) {
            self.holders.waiting.remove(&life);
        } else {
            self.fence(life, Some((life, mine)));
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
        let mut next = self.attachments();
        let lives: Vec<Life> =
            self.machines.keys().copied().collect::<Vec<_>>().into_iter().filter_map(|n| self.life_of(n)).collect();
        let reaching: Vec<Life> =
            lives.into_iter().filter(|life| self.configuration.away(life.node, self.now).is_none()).collect();
        if next.standing.is_empty() || reaching.is_empty() {
            return;
        }
        let random = &mut self.holders.random;
        let from = *random.pick(&reaching);
        let all = random.chance(40);
        let one = *random.pick(&next.standing);
        let gone: Vec<Generation> = next.standing.iter().copied().filter(|name| all || *name == one).collect();
        next.standing.retain(|name| !gone.contains(name));
        next.generation.0 += 1;
        *self.faults.counts.entry("attachment ended by force").or_default() += 1;
        self.trace.step(self.now, next.generation.0, || format!("operator at {from:?} ends {gone:?}"));
        self.end_attachments(&gone, next);
        self.fence(from, None);
    }
}
