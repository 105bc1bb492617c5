//! Groups of a volume are asked, and answer.

use super::{Announcement, Fencing, Question, Run};
use crate::effect::Effect;
use crate::fences::Attachments;
use crate::node::Node;
use azekura_base::{Generation, IoStatus, LayerId, PgId, RequestId, VolumeId};
use azekura_replica::Client;
use azekura_wire::{Fence, FenceDone, Freeze, Message};
use std::time::Duration;

/// A group that could not confirm is asked again after this time.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// And so is one that has not answered for so long.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Freezes that wait for the configuration; further ones are asked to come again.
const FREEZES_MAX: usize = 1024;

impl Node {
    /// Makes sure that no write of the volume's ended attachments is applied any more: every one of `groups`, which are
    /// all that hold something of the volume, has to confirm it within `patience`. [`Effect::Fenced`] with `token`
    /// answers.
    ///
    /// The configuration must say of `attachments` already: a copy that becomes primary later learns of them from
    /// there.
    pub fn fence(
        &mut self,
        token: u64,
        volume: VolumeId,
        attachments: Attachments,
        groups: impl IntoIterator<Item = PgId>,
        patience: Duration,
    ) {
        self.learn_attachments(volume, &attachments);
        self.ask_groups(token, volume, Announcement::Fence(attachments), groups, patience);
    }

    /// Makes sure that no write to the volume's layer `head` is given a place any more and that none is under way:
    /// every one of `groups`, which are all of the volume's class, has to confirm it within `patience`.
    /// [`Effect::Fenced`] with `token` answers.
    ///
    /// The configuration must say so since `revision`: a copy that becomes primary later learns of it from there. It
    /// counts for as long as the configuration goes on to say so.
    pub fn freeze(
        &mut self,
        token: u64,
        volume: VolumeId,
        head: LayerId,
        revision: u64,
        groups: impl IntoIterator<Item = PgId>,
        patience: Duration,
    ) {
        self.ask_groups(token, volume, Announcement::Freeze(head, revision), groups, patience);
    }

    fn ask_groups(
        &mut self,
        token: u64,
        volume: VolumeId,
        what: Announcement,
        groups: impl IntoIterator<Item = PgId>,
        patience: Duration,
    ) {
        let left = groups.into_iter().map(|pg| (pg, None)).collect();
        self.fencing.runs.insert(token, Run { volume, what, left, until: self.now + patience });
        self.fencing.next = self.now;
        self.mesh.needs.changed();
    }

    /// True when this node knows that an attachment of a volume has ended.
    #[must_use]
    pub fn is_ended(&self, volume: VolumeId, attachment: Generation) -> bool {
        self.directory.fences.refuse(volume, attachment)
    }

    /// Learns of a volume's attachments before the configuration tells.
    pub(crate) fn learn_attachments(&mut self, volume: VolumeId, attachments: &Attachments) {
        if self.directory.fences.learn(volume, attachments) {
            self.attachments_ended();
        }
    }

    /// Attachments may have ended: whoever has asked under them is told.
    pub(crate) fn attachments_ended(&mut self) {
        let fences = &self.directory.fences;
        self.gateway.end_attachments(|volume, attachment| fences.refuse(volume, attachment));
        self.effects.push_back(Effect::AttachmentsEnded);
    }

    /// A group has answered.
    pub(crate) fn fence_answered(&mut self, done: &FenceDone) {
        self.fencing.done(done);
        self.end_fencing();
    }

    /// Asks primaries that have not been asked, and ends wishes.
    pub(crate) fn run_fencing(&mut self) {
        let now = self.now;
        if self.fencing.next().is_none_or(|next| now < next) {
            self.end_fencing();
            return;
        }
        self.fencing.next = now + ASK_AGAIN;
        let mut questions = Vec::new();
        let Fencing { runs, questions: open, asked: count, .. } = &mut self.fencing;
        let (me, links) = (self.identity.endpoint, &self.mesh.links);
        for (token, run) in runs {
            for (pg, asked) in &mut run.left {
                let primary = self
                    .directory
                    .view
                    .groups
                    .get(pg)
                    .and_then(|config| self.directory.view.devices.get(&config.primary));
                let Some(primary) = primary.copied() else { continue };
                let waits = |asked: &Question| asked.of == primary && now < asked.at + ANSWER_WAIT;
                // Who is not connected is being dialled.
                let in_reach = primary == me || links.is_up(primary);
                if !in_reach || asked.as_ref().is_some_and(waits) {
                    continue;
                }
                if let Some(before) = asked.take() {
                    open.remove(&before.request);
                }
                *count += 1;
                let request = RequestId(*count);
                open.insert(request, (*token, *pg));
                *asked = Some(Question { request, of: primary, at: now });
                let (pg, volume) = (*pg, run.volume);
                let question = match &run.what {
                    Announcement::Fence(Attachments { generation, standing }) => {
                        let (generation, attachments) = (*generation, standing.clone());
                        Message::Fence(Fence { request, pg, volume, generation, attachments })
                    }
                    Announcement::Freeze(head, revision) => {
                        Message::Freeze(Freeze { request, pg, volume, head: *head, revision: *revision })
                    }
                };
                questions.push((primary, question));
            }
        }
        for (primary, question) in questions {
            self.send_to(primary, question);
        }
        self.end_fencing();
    }

    fn end_fencing(&mut self) {
        let now = self.now;
        let over = |(_, run): &(&u64, &Run)| run.left.is_empty() || now >= run.until;
        let over: Vec<u64> = self.fencing.runs.iter().filter(over).map(|(token, _)| *token).collect();
        for token in over {
            let Some(run) = self.fencing.runs.remove(&token) else { continue };
            let result = if run.left.is_empty() { Ok(()) } else { Err(run.left.into_keys().collect()) };
            self.effects.push_back(Effect::Fenced(token, result));
            self.mesh.needs.changed();
        }
        if self.fencing.runs.is_empty() {
            self.fencing.questions.clear();
        }
    }

    /// Another shard, or this one, says that attachments have ended (0009).
    pub(crate) fn fenced(&mut self, client: Client, fence: Fence) {
        let standing = fence.attachments.clone();
        self.learn_attachments(fence.volume, &Attachments { generation: fence.generation, standing });
        // A copy that claims the group knows what the configuration says at that moment, and the primary serves on
        // until it is told. So the primary answers for what it has read in the configuration itself: there, it was
        // still named when the attachments ended, and any later claim knows of that.
        let read = self
            .directory
            .view
            .attachments
            .get(&fence.volume)
            .is_some_and(|known| known.generation >= fence.generation);
        let key = self.primary_copy(fence.pg).filter(|_| read);
        if key.and_then(|key| self.with_group(key, |group, _| group.fence(client, &fence))).is_none() {
            let done = FenceDone { request: fence.request, result: Err(IoStatus::Redirect) };
            self.answer_later(client, Message::FenceDone(done));
        }
    }

    /// Another shard, or this one, says that a snapshot is being made. Answered when this node knows the configuration
    /// that says so: until then it would take writes that come later.
    pub(crate) fn frozen(&mut self, client: Client, freeze: Freeze) {
        if freeze.revision > self.directory.revision && self.fencing.early_freezes.len() < FREEZES_MAX {
            self.fencing.early_freezes.push((client, freeze));
            return;
        }
        let known =
            freeze.revision <= self.directory.revision && self.directory.heads.is_frozen(freeze.volume, freeze.head);
        let key = self.primary_copy(freeze.pg).filter(|_| known);
        if key.and_then(|key| self.with_group(key, |group, _| group.freeze(client, &freeze))).is_none() {
            let done = FenceDone { request: freeze.request, result: Err(IoStatus::Redirect) };
            self.answer_later(client, Message::FenceDone(done));
        }
    }

    /// Passes on what has waited for the configuration.
    pub(crate) fn run_early_freezes(&mut self) {
        let known = self.directory.revision;
        let due: Vec<(Client, Freeze)> =
            self.fencing.early_freezes.extract_if(.., |(_, freeze)| freeze.revision <= known).collect();
        due.into_iter().for_each(|(client, freeze)| self.frozen(client, freeze));
    }
}
