//! How volumes are attached, fenced and given back.

use super::{CLIENT_WAIT, Ended, Errand, Fence, Holders, LOOK_PAUSE, PATIENCE, Unheard};
use crate::cluster::events::Event;
use crate::cluster::records::CLASS;
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::report::Invariant;
use azekura_base::{Generation, NodeId, PgId, VolumeId};
use azekura_model::transitions::attachments::{AttachRequest, Attached, attach, confirm_fenced, detach, give_back};
use azekura_model::{AttachmentRecord, AttachmentsRecord, InTheWay, MetaError, Outcome, Records};
use azekura_node::Attachments;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

impl<S: Scene> Cluster<S> {
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
        let node = self.node_at(life.endpoint());
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
        let errands = self.holders.errands.entry((life.process(), name.clone())).or_default();
        errands.push_back((life, errand));
        if errands.len() == 1 {
            self.go_on_with_errand(life, name);
        }
    }

    fn go_on_with_errand(&mut self, life: Life, name: String) {
        let at = self.now + self.configuration.delay();
        self.queue.push(at, Event::Errand(life, name));
    }

    fn end_errand(&mut self, life: Life, name: &str) {
        let key = (life.process(), name.to_owned());
        let Some(errands) = self.holders.errands.get_mut(&key) else { return };
        errands.pop_front();
        if let Some((next, _)) = errands.front() {
            let next = *next;
            self.go_on_with_errand(next, key.1);
        } else {
            self.holders.errands.remove(&key);
        }
    }

    /// The store is asked for what a front end wants.
    pub(crate) fn run_errand(&mut self, life: Life, name: String) {
        let key = (life.process(), name);
        let first = self.holders.errands.get(&key).and_then(VecDeque::front);
        let Some((_, errand)) = first.filter(|(whose, _)| *whose == life) else { return };
        let name = key.1;
        if self.configuration.is_former(life) {
            return; // It has not heard that the store was restored, and the store does not answer it any more.
        }
        if let Some(until) = self.configuration.away(life.node, self.now) {
            return self.queue.push(until, Event::Errand(life, name));
        }
        match *errand {
            Errand::Attach(until) => self.attach(life, name, until),
            Errand::GiveBack(attachment) => {
                self.trace.step(self.now, attachment.0, || format!("{life:?} gives {name} back, {attachment:?}"));
                if self.holders.give_up(life, &name, attachment) {
                    // The volume may be gone.
                    let given = |records: &Records<'_>| give_back(records, &name, life.node, attachment);
                    let _ = self.change_attachments(&name, false, given);
                }
                self.end_errand(life, &name);
                self.front(life, |frontend, _| frontend.volume_given_back(&name));
                self.wake(life);
            }
        }
    }

    /// A process attaches a volume; attachments of processes that are gone end.
    fn attach(&mut self, life: Life, name: String, until: Duration) {
        let (node, incarnation) = life.process();
        let wish = AttachRequest { node, incarnation: Some(incarnation), shared: None, force: false };
        let owner = |entry: &AttachmentRecord| Some(Life::first(entry.node, entry.incarnation?));
        let entries = self.attachments(&name).into_iter().flat_map(|now| now.attachments);
        let owners: Vec<Life> = entries.filter_map(|entry| owner(&entry)).collect();
        for owner in &owners {
            self.tell(Life::first(life.node, life.incarnation), |node| node.ask_about(owner.node, owner.incarnation));
        }
        let gone = owners.into_iter().filter(|owner| !self.is_alive(*owner));
        let gone: BTreeSet<(NodeId, u64)> = gone.map(Life::process).collect();
        self.check_ended(life);
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

    /// No shard of a process takes another process for ended that runs: attachments of such would be given to others.
    fn check_ended(&mut self, life: Life) {
        let running: Vec<Life> = self.machines.keys().filter_map(|node| self.process_on(*node)).collect();
        let asked = self.lives_of(life);
        let wrong = asked.iter().find_map(|asked| {
            let node = self.node_at(asked.endpoint())?;
            let other = running.iter().find(|other| node.has_ended(other.node, other.incarnation))?;
            Some(format!("{asked:?} takes {other:?} for ended, which runs"))
        });
        wrong.into_iter().for_each(|what| self.violate(Invariant::Protocol, what));
    }

    /// The configuration says which attachments stand; those that did before and do not any more have ended.
    pub(crate) fn change_attachments(
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
    pub(crate) fn fence(&mut self, from: Life, name: &str, attaches: bool) {
        let Some(record) = self.attachments(name) else {
            return if attaches {
                self.attach_ends(from, name, Err("it is gone".into()))
            };
        };
        if !record.fence_due {
            let mine = record.of(from.node).filter(|mine| mine.incarnation == Some(from.incarnation));
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
        let now = self.stamp();
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
        if let Ok(attached) = attached {
            self.holders.attached.insert((life, name.to_owned()), attached);
        }
        self.front(life, |frontend, context| frontend.volume_attached(name, attached, context));
    }

    /// Draws whether a client closes its connection.
    pub(crate) fn client_leaves(&mut self) -> bool {
        self.holders.client_leaves()
    }

    /// A process is gone, and its wishes with it.
    pub(crate) fn holders_lose(&mut self, life: Life) {
        let Holders { attached, errands, unheard, fences, .. } = &mut self.holders;
        attached.retain(|(at, _), _| *at != life);
        errands.retain(|(process, _), _| *process != life.process());
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
}
