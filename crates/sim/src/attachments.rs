//! Attachments: what front ends ask for, as the control plane does it for their clients. An operator ends attachments
//! by force, and what was written under an ended one must be there when that is confirmed, or never.

use crate::events::{Event, Life};
use crate::history::Stamp;
use crate::plan::Plan;
use crate::random::Random;
use crate::records::CLASS;
use crate::world::{VOLUME, VOLUME_ID, World};
use crate::{Invariant, Mode};
use azekura_base::{Generation, NodeId, PgId, VolumeId};
use azekura_model::transitions::attachments::{AttachRequest, Attached, attach, confirm_fenced, detach, give_back};
use azekura_model::{AttachmentRecord, AttachmentsRecord, InTheWay, MetaError, Outcome, Records};
use azekura_node::Attachments;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long groups may take to confirm.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client waits for a volume that somebody else has.
const CLIENT_WAIT: Duration = Duration::from_secs(8);
/// So often it is looked whether whoever is in the way has gone.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// See [`Holders::leaves_percent`], in the runs in which clients leave.
const LEAVES_PERCENT: u64 = 4;
/// The name that nobody refuses, for looking at everything in the end.
pub(crate) const INSPECTOR: Generation = Generation(u64::MAX);

/// What a front end wants done with a volume.
enum Errand {
    /// Attach it; clients wait until then.
    Attach(Duration),
    GiveBack(Generation),
}

/// A fence that is waited for.
struct Fence {
    from: Life,
    name: String,
    volume: VolumeId,
    /// Everything that had ended by this generation is kept out when it is confirmed.
    generation: Generation,
    /// The process waits for it with an attachment of its own.
    attaches: bool,
}

/// An attachment that does not stand any more.
struct Ended {
    /// The generation that it ended in.
    generation: Generation,
    /// Whoever had it did not give it back.
    by_force: bool,
    /// When it was first confirmed that nothing comes of it any more.
    confirmed: Option<Stamp>,
}

/// An attachment of which a process does not know yet.
struct Unheard {
    life: Life,
    name: String,
    revision: u64,
    attached: (VolumeId, Generation),
}

/// All attachments.
pub(crate) struct Holders {
    /// The configuration says who has a volume; else anybody has it who wants to.
    pub(crate) recorded: bool,
    /// An operator ends attachments of the volume by force.
    pub(crate) on: bool,
    /// What front ends were told last of the volumes that they have asked for.
    told: BTreeMap<(Life, String), Generation>,
    /// What they have asked for, one thing a volume at a time.
    errands: BTreeMap<(Life, String), VecDeque<Errand>>,
    unheard: Vec<Unheard>,
    ended: BTreeMap<(VolumeId, Generation), Ended>,
    fences: BTreeMap<u64, Fence>,
    asked: u64,
    random: Random,
    /// Of a hundred turns of a client of the volume, in so many it closes its connection, whatever is under way.
    leaves_percent: u64,
    /// Draws which ones.
    leaving: Random,
}

impl Holders {
    pub(crate) fn new(plan: &Plan, random: Random, mut leaving: Random) -> Holders {
        let on = matches!(plan.mode, Mode::Attachments | Mode::All);
        Holders {
            recorded: on || plan.mode == Mode::Fsx,
            on,
            told: BTreeMap::new(),
            errands: BTreeMap::new(),
            unheard: Vec::new(),
            ended: BTreeMap::new(),
            fences: BTreeMap::new(),
            asked: 0,
            random,
            // Who has left can't come back while its node does not reach the store: then nothing is late.
            leaves_percent: if on && leaving.chance(50) { LEAVES_PERCENT } else { 0 },
            leaving,
        }
    }

    /// Draws whether a client closes its connection.
    pub(crate) fn client_leaves(&mut self) -> bool {
        self.leaves_percent > 0 && self.leaving.chance(self.leaves_percent)
    }

    /// Has an attachment been ended otherwise than by being given back?
    pub(crate) fn has_ended(&self, volume: VolumeId, attachment: Generation) -> bool {
        self.ended.get(&(volume, attachment)).is_some_and(|ended| ended.by_force)
    }

    /// From when on nothing written to the volume under an attachment may be applied.
    pub(crate) fn confirmed(&self, attachment: Generation) -> Option<Stamp> {
        self.ended.get(&(VOLUME_ID, attachment))?.confirmed
    }

    /// The attachment under which a process has a volume, as it was told last.
    pub(crate) fn told(&self, life: Life, name: &str) -> Option<Generation> {
        self.told.get(&(life, name.to_owned())).copied()
    }

    /// Nobody waits for anything.
    pub(crate) fn idle(&self) -> bool {
        self.fences.is_empty() && self.errands.is_empty()
    }
}

impl World {
    /// The record of a volume's attachments; `None` when there is no volume of this name.
    pub(crate) fn attachments(&self, name: &str) -> Option<AttachmentsRecord> {
        let model = self.configuration.model();
        let id = model.volumes.get(name)?.id;
        let record = model.attachments.get(&id);
        Some(record.map_or_else(|| AttachmentsRecord::none(id), |record| record.record.clone()))
    }

    /// A front end wants a volume for its clients.
    pub(crate) fn attach_for_clients(&mut self, life: Life, name: String) {
        if self.holders.recorded {
            return self.begin_errand(life, name, Errand::Attach(self.now + CLIENT_WAIT));
        }
        let node = self.machines.get(&life.node).and_then(|machine| machine.node.as_ref());
        let volume = node.and_then(|node| node.gateway().volumes().get(&name)).map(|volume| volume.id);
        let attached = volume.map(|id| (id, Generation(0))).ok_or_else(|| "it is gone".to_owned());
        self.attached(life, &name, attached);
    }

    /// A front end gives a volume back.
    pub(crate) fn give_back_for_clients(&mut self, life: Life, name: String, attachment: Generation) {
        if self.holders.recorded {
            return self.begin_errand(life, name, Errand::GiveBack(attachment));
        }
        self.front(life, |frontend, _| frontend.volume_given_back(&name));
    }

    fn begin_errand(&mut self, life: Life, name: String, errand: Errand) {
        let errands = self.holders.errands.entry((life, name.clone())).or_default();
        errands.push_back(errand);
        if errands.len() == 1 {
            self.go_on_with_errand(life, name);
        }
    }

    fn go_on_with_errand(&mut self, life: Life, name: String) {
        let at = self.now + self.configuration.delay();
        self.queue.push(at, Event::Errand(life, name));
    }

    fn end_errand(&mut self, life: Life, name: &str) {
        let key = (life, name.to_owned());
        let Some(errands) = self.holders.errands.get_mut(&key) else { return };
        errands.pop_front();
        if errands.is_empty() {
            self.holders.errands.remove(&key);
        } else {
            self.go_on_with_errand(life, key.1);
        }
    }

    /// The store is asked for what a front end wants.
    pub(crate) fn run_errand(&mut self, life: Life, name: String) {
        let key = (life, name);
        let Some(errand) = self.holders.errands.get(&key).and_then(VecDeque::front) else { return };
        let name = key.1;
        if let Some(until) = self.configuration.away(life.node, self.now) {
            return self.queue.push(until, Event::Errand(life, name));
        }
        match *errand {
            Errand::Attach(until) => self.attach(life, name, until),
            Errand::GiveBack(attachment) => {
                self.trace.step(self.now, attachment.0, || format!("{life:?} gives {name} back, {attachment:?}"));
                // The volume may be gone.
                let given = |records: &Records<'_>| give_back(records, &name, life.node, attachment);
                let _ = self.change_attachments(&name, false, given);
                self.end_errand(life, &name);
                self.front(life, |frontend, _| frontend.volume_given_back(&name));
                self.wake(life);
            }
        }
    }

    /// A process attaches a volume; attachments of processes that are gone end.
    fn attach(&mut self, life: Life, name: String, until: Duration) {
        let Life { node, incarnation } = life;
        let wish = AttachRequest { node, incarnation: Some(incarnation), shared: None, force: false };
        let owner = |entry: &AttachmentRecord| Life { node: entry.node, incarnation: entry.incarnation };
        let owners: Vec<Life> = self.attachments(&name).iter().flat_map(|now| &now.attachments).map(owner).collect();
        let gone = owners.into_iter().filter(|owner| self.life_of(owner.node) != Some(*owner));
        let gone: BTreeSet<(NodeId, u64)> = gone.map(|owner| (owner.node, owner.incarnation)).collect();
        self.trace.step(self.now, incarnation, || format!("{life:?} attaches {name}; gone are {gone:?}"));
        let refusal = |what| match what {
            InTheWay::Holder(holder) => MetaError::Attached {
                volume: name.clone(),
                node: holder.node.to_string(),
                how: String::new(),
                wanted: node.to_string(),
            },
            InTheWay::TooMany => MetaError::CutEnded { volume: name.clone() },
        };
        match self.change_attachments(&name, true, |records| attach(records, &name, &wish, &gone, "", refusal)) {
            Ok(_) => self.fence(life, &name, true),
            Err(MetaError::Attached { .. }) if self.now + LOOK_PAUSE < until => {
                self.queue.push(self.now + LOOK_PAUSE, Event::Errand(life, name));
            }
            Err(error @ (MetaError::Attached { .. } | MetaError::NotFound { .. })) => {
                self.attach_ends(life, &name, Err(error.to_string()));
            }
            Err(error) => self.violate(Invariant::Protocol, format!("{name} can't be attached: {error}")),
        }
    }

    /// The configuration says which attachments stand; those that did before and do not any more have ended.
    fn change_attachments(
        &mut self,
        name: &str,
        by_force: bool,
        transition: impl FnOnce(&Records<'_>) -> Outcome<Attached>,
    ) -> Result<(), MetaError> {
        let before = self.attachments(name);
        let ((volume, next), _) = self.configuration.run(transition)?;
        let Some(before) = before.filter(|before| *before != next) else { return Ok(()) };
        let standing = next.standing();
        for attachment in before.standing().into_iter().filter(|name| !standing.contains(name)) {
            let ended = Ended { generation: next.generation, by_force, confirmed: None };
            self.holders.ended.insert((volume.id, attachment), ended);
        }
        self.trace.step(self.now, next.generation.0, || format!("attachments of {name}: {next:?}"));
        self.inform_all();
        Ok(())
    }

    /// Waits until all groups keep out what has ended, if anything has; then the process has its own attachment, if it
    /// attaches the volume.
    fn fence(&mut self, from: Life, name: &str, attaches: bool) {
        let Some(record) = self.attachments(name) else {
            return if attaches {
                self.attach_ends(from, name, Err("it is gone".into()))
            };
        };
        if !record.fence_due {
            let mine = record.of(from.node).filter(|mine| mine.incarnation == from.incarnation);
            let attached = mine.map(|mine| (record.volume, mine.generation));
            return if attaches {
                self.attach_ends(from, name, attached.ok_or_else(|| "it has ended".into()))
            };
        }
        self.holders.asked += 1;
        let token = self.holders.asked;
        let (volume, generation, standing) = (record.volume, record.generation, record.standing());
        self.holders.fences.insert(token, Fence { from, name: name.into(), volume, generation, attaches });
        let groups = self.configuration.groups_of(CLASS);
        self.tell(from, |node| node.fence(token, volume, Attachments { generation, standing }, groups, PATIENCE));
    }

    /// A fence has come to its end.
    pub(crate) fn fence_ended(&mut self, token: u64, result: &Result<(), Vec<PgId>>) {
        let Some(Fence { from, name, volume, generation, attaches }) = self.holders.fences.remove(&token) else {
            return;
        };
        self.trace.step(self.now, token, || format!("the fence of {name}, {generation:?}, by {from:?}: {result:?}"));
        if result.is_err() {
            self.report.fences_failed += 1;
            return if attaches {
                self.attach_ends(from, &name, Err("not all groups have confirmed".into()))
            };
        }
        self.report.fences += 1;
        let now = self.history.stamp();
        let of_volume = self.holders.ended.range_mut((volume, Generation(0))..=(volume, Generation(u64::MAX)));
        for ended in of_volume.map(|(_, ended)| ended).filter(|ended| ended.generation <= generation) {
            ended.confirmed.get_or_insert(now);
        }
        if self.configuration.away(from.node, self.now).is_some() {
            // Nobody learns of it: whoever wants the volume next asks all groups again.
            return if attaches {
                self.attach_ends(from, &name, Err("the store is out of reach".into()))
            };
        }
        // The volume may be gone.
        let _ = self.change_attachments(&name, true, |records| confirm_fenced(records, &name, generation));
        // Others may have ended since.
        self.fence(from, &name, attaches);
    }

    /// A process has a volume, or not. It is told when it knows the configuration that says so.
    fn attach_ends(&mut self, life: Life, name: &str, attached: Result<(VolumeId, Generation), String>) {
        let revision = self.configuration.view().revision;
        match attached {
            Ok(attached) if self.configuration.known_by(life) < revision => {
                self.holders.unheard.push(Unheard { life, name: name.into(), revision, attached });
                self.inform(life);
            }
            attached => {
                self.end_errand(life, name);
                self.attached(life, name, attached);
                self.wake(life);
            }
        }
    }

    /// A process knows more of the configuration: perhaps what it has attached.
    pub(crate) fn hear_of_attachments(&mut self, life: Life) {
        let known = self.configuration.known_by(life);
        let heard = |unheard: &mut Unheard| unheard.life == life && unheard.revision <= known;
        let heard: Vec<Unheard> = self.holders.unheard.extract_if(.., heard).collect();
        for Unheard { name, attached, .. } in heard {
            self.end_errand(life, &name);
            self.attached(life, &name, Ok(attached));
            self.wake(life);
        }
    }

    /// A front end is told what has become of its wish.
    fn attached(&mut self, life: Life, name: &str, attached: Result<(VolumeId, Generation), String>) {
        if let Ok((_, attachment)) = attached {
            self.holders.told.insert((life, name.to_owned()), attachment);
        }
        self.front(life, |frontend, context| frontend.volume_attached(name, attached, context));
    }

    /// A process is gone, and its wishes with it.
    pub(crate) fn holders_lose(&mut self, life: Life) {
        let Holders { told, errands, unheard, fences, .. } = &mut self.holders;
        told.retain(|(at, _), _| *at != life);
        errands.retain(|(at, _), _| *at != life);
        unheard.retain(|unheard| unheard.life != life);
        fences.retain(|_, fence| fence.from != life);
    }

    /// An operator ends a volume's attachments, or that of a node, through one of the processes.
    pub(crate) fn end_attachments(&mut self, from: Life, name: &str, whose: Option<NodeId>) {
        if let Err(error) = self.change_attachments(name, true, |records| detach(records, name, whose)) {
            return self.violate(Invariant::Protocol, format!("attachments of {name} can't be ended: {error}"));
        }
        self.fence(from, name, false);
    }

    /// An operator ends some attachments by force, through one of the nodes.
    pub(crate) fn usurp(&mut self) {
        if !self.working {
            return;
        }
        let pause = if self.plan.mode == Mode::Attachments { 1500 } else { 20_000 };
        let again = self.now + self.holders.random.spread_millis(20, pause);
        self.queue.push(again, Event::Usurp);
        let standing = self.attachments(VOLUME).map(|now| now.attachments).unwrap_or_default();
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
        self.end_attachments(from, VOLUME, whose);
    }
}
