//! How volumes are attached, fenced and given back.

use super::{CLIENT_WAIT, Ended, Errand, Fence, Holders, LINGERS, LOOK_PAUSE, PATIENCE, Unheard};
use crate::cluster::events::Event;
use crate::cluster::records::CLASS;
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::report::Invariant;
use azekura_base::{Generation, NodeId, PgId};
use azekura_frontend::{Attachment, VolumeUse};
use azekura_model::transitions::attachments::{AttachRequest, Attached, attach, confirm_fenced, detach, give_back};
use azekura_model::{AttachmentRecord, AttachmentsRecord, Ending, InTheWay, MetaError, Outcome, Records};
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
    pub(crate) fn attach_for_clients(&mut self, life: Life, which: VolumeUse) {
        if self.holders.recorded {
            return self.begin_errand(life, which, Errand::Attach(self.now + CLIENT_WAIT));
        }
        let node = self.node_at(life.endpoint());
        let volume = node.and_then(|node| node.gateway().volumes().get(&which.volume)).map(|volume| volume.id);
        let attached = volume.map(|id| (id, Generation(0)).into()).ok_or_else(|| "it is gone".to_owned());
        self.attached(life, &which, false, attached);
    }

    /// A front end has writes for a volume that its process has to read.
    pub(crate) fn attach_to_write(&mut self, life: Life, which: VolumeUse) {
        self.begin_errand(life, which, Errand::AttachToWrite(self.now + CLIENT_WAIT));
    }

    /// A front end gives a volume back.
    pub(crate) fn give_back_for_clients(&mut self, life: Life, which: VolumeUse, attachment: Generation) {
        if self.holders.recorded {
            return self.begin_errand(life, which, Errand::GiveBack(attachment));
        }
        self.front(life, |frontend, _| frontend.volume_given_back(&which));
    }

    fn begin_errand(&mut self, life: Life, which: VolumeUse, errand: Errand) {
        let errands = self.holders.errands.entry((life.process(), which.clone())).or_default();
        errands.push_back((life, errand));
        if errands.len() == 1 {
            self.go_on_with_errand(life, which);
        }
    }

    fn go_on_with_errand(&mut self, life: Life, which: VolumeUse) {
        let at = self.now + self.configuration.delay();
        self.queue.push(at, Event::Errand(life, which));
    }

    fn end_errand(&mut self, life: Life, which: &VolumeUse) {
        let key = (life.process(), which.clone());
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
    pub(crate) fn run_errand(&mut self, life: Life, which: VolumeUse) {
        let key = (life.process(), which);
        let first = self.holders.errands.get(&key).and_then(VecDeque::front);
        let Some((_, errand)) = first.filter(|(whose, _)| *whose == life) else { return };
        let which = key.1;
        if self.configuration.is_former(life) {
            return; // It has not heard that the store was restored, and the store does not answer it any more.
        }
        if let Some(until) = self.configuration.away(life.node, self.now) {
            return self.queue.push(until, Event::Errand(life, which));
        }
        match *errand {
            Errand::Attach(until) => self.attach(life, which, false, until),
            Errand::AttachToWrite(until) => self.attach(life, which, true, until),
            Errand::LetGo(attachment) => {
                if !self.holders.is_held(life, &which, attachment) {
                    let given = |records: &Records<'_>| give_back(records, &which.volume, life.node, attachment);
                    let _ = self.change_attachments(&which.volume, false, given);
                }
                self.end_errand(life, &which);
            }
            Errand::GiveBack(attachment) => {
                self.trace.step(self.now, attachment.0, || format!("{life:?} gives {which} back, {attachment:?}"));
                if self.holders.give_up(life, &which, attachment) {
                    // The volume may be gone.
                    let given = |records: &Records<'_>| give_back(records, &which.volume, life.node, attachment);
                    let _ = self.change_attachments(&which.volume, false, given);
                }
                self.end_errand(life, &which);
                self.front(life, |frontend, _| frontend.volume_given_back(&which));
                self.wake(life);
            }
        }
    }

    /// A process attaches a volume; attachments of processes that are gone end.
    fn attach(&mut self, life: Life, which: VolumeUse, to_write: bool, until: Duration) {
        let (node, incarnation) = life.process();
        let (name, host) = (which.volume.clone(), which.host.clone());
        let wish = AttachRequest { host, to_write, ..AttachRequest::of_node(node, Some(incarnation)) };
        let owner = |entry: &AttachmentRecord| Some(Life::first(entry.node, entry.incarnation?));
        let entries = self.attachments(&name).into_iter().flat_map(|now| now.attachments);
        let owners: Vec<Life> = entries.filter_map(|entry| owner(&entry)).collect();
        for owner in &owners {
            self.tell(Life::first(life.node, life.incarnation), |node| node.ask_about(owner.node, owner.incarnation));
        }
        let gone = owners.into_iter().filter(|owner| !self.is_alive(*owner));
        let gone: BTreeSet<(NodeId, u64)> = gone.map(Life::process).collect();
        self.check_ended(life);
        self.trace.step(self.now, incarnation, || {
            format!("{life:?} attaches {which}, to write: {to_write}; gone are {gone:?}")
        });
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
            Ok(_) => self.fence(life, &which, Some(to_write)),
            Err(MetaError::Attached { .. }) if self.now + LOOK_PAUSE < until => {
                self.queue.push(self.now + LOOK_PAUSE, Event::Errand(life, which));
            }
            Err(error @ (MetaError::Attached { .. } | MetaError::NotFound { .. })) => {
                self.attach_ends(life, &which, to_write, Err(error.to_string()));
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
    /// attaches the volume: if so, whether to write.
    pub(crate) fn fence(&mut self, from: Life, which: &VolumeUse, attaches: Option<bool>) {
        let Some(record) = self.attachments(&which.volume) else {
            return self.attach_failed(from, which, attaches, "it is gone");
        };
        if !record.fence_due {
            let Some(to_write) = attaches else { return };
            let mine = record.of(from.node, which.host.as_ref());
            let mine = mine.filter(|mine| mine.incarnation == Some(from.incarnation));
            let attached = mine.map(|mine| Attachment {
                volume: record.volume,
                generation: mine.generation,
                writes: !mine.reads_only,
            });
            let attached = attached.filter(|has| has.writes || !to_write).ok_or_else(|| "it has ended".into());
            return self.attach_ends(from, which, to_write, attached);
        }
        self.holders.asked += 1;
        let token = self.holders.asked;
        let (volume, generation, standing) = (record.volume, record.generation, record.standing());
        self.holders.fences.insert(token, Fence { from, which: which.clone(), volume, generation, attaches });
        let groups = self.configuration.groups_of(CLASS);
        self.tell(from, |node| node.fence(token, volume, Attachments { generation, standing }, groups, PATIENCE));
    }

    fn attach_failed(&mut self, life: Life, which: &VolumeUse, attaches: Option<bool>, why: &str) {
        if let Some(to_write) = attaches {
            self.attach_ends(life, which, to_write, Err(why.into()));
        }
    }

    /// A fence has come to its end.
    pub(crate) fn fence_ended(&mut self, token: u64, result: &Result<(), Vec<PgId>>) {
        let Some(Fence { from, which, volume, generation, attaches }) = self.holders.fences.remove(&token) else {
            return;
        };
        self.trace.step(self.now, token, || format!("the fence of {which}, {generation:?}, by {from:?}: {result:?}"));
        if result.is_err() {
            self.report.fences_failed += 1;
            return self.attach_failed(from, &which, attaches, "not all groups have confirmed");
        }
        self.report.fences += 1;
        let now = self.stamp();
        let of_volume = self.holders.ended.range_mut((volume, Generation(0))..=(volume, Generation(u64::MAX)));
        for ended in of_volume.map(|(_, ended)| ended).filter(|ended| ended.generation <= generation) {
            ended.confirmed.get_or_insert(now);
        }
        if self.configuration.away(from.node, self.now).is_some() {
            // Nobody learns of it: whoever wants the volume next asks all groups again.
            return self.attach_failed(from, &which, attaches, "the store is out of reach");
        }
        // The volume may be gone.
        let name = &which.volume;
        let _ = self.change_attachments(name, true, |records| confirm_fenced(records, name, generation));
        // Others may have ended since.
        self.fence(from, &which, attaches);
    }

    /// A process has a volume, or not. It is told when it knows the configuration that says so.
    fn attach_ends(&mut self, life: Life, which: &VolumeUse, to_write: bool, attached: Result<Attachment, String>) {
        let revision = self.configuration.view().revision;
        match attached {
            Ok(attached) if self.configuration.known_by(life) < revision => {
                let which = which.clone();
                self.holders.unheard.push(Unheard { life, which, revision, attached, to_write });
                self.inform(life);
            }
            attached => {
                self.end_errand(life, which);
                self.attached(life, which, to_write, attached);
                self.wake(life);
            }
        }
    }

    /// A process knows more of the configuration: perhaps what it has attached.
    pub(crate) fn hear_of_attachments(&mut self, life: Life) {
        let known = self.configuration.known_by(life);
        let heard = |unheard: &mut Unheard| unheard.life == life && unheard.revision <= known;
        let heard: Vec<Unheard> = self.holders.unheard.extract_if(.., heard).collect();
        for Unheard { which, attached, to_write, .. } in heard {
            self.end_errand(life, &which);
            self.attached(life, &which, to_write, Ok(attached));
            self.wake(life);
        }
    }

    /// A front end is told what has become of its wish.
    fn attached(&mut self, life: Life, which: &VolumeUse, to_write: bool, attached: Result<Attachment, String>) {
        if to_write {
            // Who has it to read hears that this has ended, and its clients come again.
            self.count(if attached.is_ok() { "host's writes moved" } else { "host can't write here" });
            if let Ok(has) = attached {
                let at = self.now + LINGERS;
                self.queue.push(at, Event::Lingered(life, which.clone(), has.generation));
            }
            return;
        }
        if let Ok(has) = &attached {
            if !has.writes {
                self.holders.reading.insert((has.volume, has.generation));
            }
            self.holders.attached.insert((life, which.clone()), (has.volume, has.generation));
        }
        self.front(life, |frontend, context| frontend.volume_attached(which, attached, context));
    }

    /// A host has had its time to come again to where it is to write. If it has not, that is given back.
    pub(crate) fn has_lingered(&mut self, life: Life, which: VolumeUse, attachment: Generation) {
        if self.is_alive(life) {
            self.begin_errand(life, which, Errand::LetGo(attachment));
        }
    }

    /// Some writes take long on their way to a group's primary: as what hosts have given up may.
    pub(crate) fn writes_linger(&self) -> bool {
        self.plan.writes_linger || self.holders.hosts
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
        if let Err(error) = self.change_attachments(name, true, |records| detach(records, name, whose, &Ending::All)) {
            return self.violate(Invariant::Protocol, format!("attachments of {name} can't be ended: {error}"));
        }
        self.fence(from, &name.into(), None);
    }
}
