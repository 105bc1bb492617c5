//! Where each part is sent: to the group's primary, or to a copy nearby, again when it was refused or a connection broke.

use crate::gateway::{Ask, Effect, Gateway, Under};
use crate::{ANSWER_WAIT, RETRY_INTERVAL, WRITE_WINDOW, reading};
use azekura_base::{NodeId, RequestId};
use azekura_wire::{Message, ReadRequest, StatusRequest, WriteRequest};
use std::time::Duration;

/// How often it is looked for parts without an answer. Heartbeats call [`Gateway::tick`] more often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The wait for an answer is doubled so often at most.
const DOUBLINGS_MAX: u32 = 5;

impl Gateway {
    /// Numbers and sends as many writes as the window allows.
    pub(crate) fn start_backlog(&mut self) {
        while self.last_write - self.oldest_write().0 + 1 < WRITE_WINDOW {
            let Some(under) = self.backlog.pop_front() else { return };
            self.idle_parts += 1;
            self.last_write += 1;
            self.writes.insert(RequestId(self.last_write), under);
            self.send(RequestId(self.last_write), true);
        }
    }

    /// Sends a part that waits, if there is where to.
    pub(crate) fn send(&mut self, id: RequestId, is_write: bool) {
        let oldest = self.oldest_write();
        let parts = if is_write { &mut self.writes } else { &mut self.reads };
        let Some(under) = parts.get_mut(&id) else { return };
        if under.at.is_some() || self.now < under.retry_at {
            return;
        }
        let Some(current) = self.by_id.get(&under.volume) else { return };
        if is_write && current.cut.is_some() {
            return; // A snapshot is being made: no copy would take it.
        }
        // Where it was refused as stale, it has no place; where it has one, it is known by its number.
        under.layer = current.layer;
        let Some(group) = self.groups.get(&under.pg) else { return };
        let up = |node: &NodeId| self.links.get(node).copied().unwrap_or(false);
        let target = if is_write || under.primary_only {
            Some(group.primary)
        } else {
            let usable = |node: &&NodeId| up(node) && !under.tried.contains(node);
            group
                .copies
                .iter()
                .find(|node| **node == self.me && usable(node))
                .or_else(|| Some(&group.primary).filter(usable))
                .or_else(|| group.copies.iter().find(usable))
                // None could read it, and one has refused since: it may be another device by now.
                .or_else(|| Some(&group.primary).filter(|_| group.copies.iter().all(|c| under.tried.contains(c))))
                .copied()
        };
        let Some(target) = target.filter(up) else { return };
        under.at = Some(target);
        under.sent_at = self.now;
        self.idle_parts -= 1;
        let Under { volume, attachment, layer, pg, part, .. } = *under;
        let chunk = part.chunk;
        let (first, count) = reading::blocks(part);
        let message = match &under.ask {
            Ask::Read => Message::Read(ReadRequest { request: id, pg, volume, attachment, layer, chunk, first, count }),
            Ask::Status => Message::Status(StatusRequest { request: id, pg, volume, attachment, layer, chunk }),
            Ask::Write(body) => Message::Write(WriteRequest {
                session: self.session,
                request: id,
                oldest,
                pg,
                volume,
                attachment,
                layer,
                chunk,
                offset: part.offset,
                len: part.len,
                body: body.clone(),
            }),
        };
        self.effects.push_back(Effect::Send(target, message));
    }

    /// Sends, in their order, the waiting parts that `which` selects.
    pub(crate) fn resend(&mut self, which: impl Fn(&Under) -> bool) {
        for is_write in [true, false] {
            let parts = if is_write { &mut self.writes } else { &mut self.reads };
            let mut waiting = Vec::new();
            for (id, under) in parts.iter_mut().filter(|(_, u)| u.at.is_none() && which(u)) {
                under.retry_at = Duration::ZERO;
                waiting.push(*id);
            }
            waiting.into_iter().for_each(|id| self.send(id, is_write));
        }
    }

    /// The connection to `node` is up; what was sent on an earlier one is void.
    pub fn link_up(&mut self, node: NodeId) {
        self.links.insert(node, true);
        self.resend(|_| true);
    }

    /// The connection to `node` is gone: what it has not answered is sent again, to it or to another copy.
    pub fn link_down(&mut self, node: NodeId) {
        self.links.insert(node, false);
        for under in self.writes.values_mut().chain(self.reads.values_mut()) {
            if under.at == Some(node) {
                under.at = None;
                under.primary_only = false;
                self.idle_parts += 1;
            }
        }
        self.resend(|_| true);
    }

    /// Takes back what is with a copy that is not asked any more: a primary that was replaced may never answer. The new
    /// one knows a write that it has already by its number.
    pub(crate) fn recall(&mut self) {
        for under in self.writes.values_mut() {
            let primary = self.groups.get(&under.pg).map(|group| group.primary);
            if under.at.is_some() && under.at != primary {
                under.at = None;
                self.idle_parts += 1;
            }
        }
        for under in self.reads.values_mut() {
            let copies = self.groups.get(&under.pg).map_or(&[][..], |group| &group.copies);
            if under.at.is_some_and(|node| !copies.contains(&node)) {
                under.at = None;
                under.primary_only = false;
                self.idle_parts += 1;
            }
        }
    }

    /// Takes back what has been without an answer for long, although the connection to whom it was sent stands.
    fn take_back_unanswered(&mut self) {
        let now = self.now;
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_INTERVAL;
        for under in self.writes.values_mut().chain(self.reads.values_mut()) {
            let wait = ANSWER_WAIT * 2u32.pow(under.asked_again.min(DOUBLINGS_MAX));
            if under.at.is_some() && now >= under.sent_at + wait {
                under.at = None;
                under.asked_again += 1;
                self.asked_again += 1;
                self.idle_parts += 1;
            }
        }
    }

    /// Time passes: sends again what was refused, or not answered, a while ago.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
        self.take_back_unanswered();
        if self.idle_parts > 0 {
            self.resend(|under| under.retry_at <= now);
        }
    }

    /// When [`Gateway::tick`] has something to do, if it has.
    #[must_use]
    pub fn next_tick(&self) -> Option<Duration> {
        (self.idle_parts > 0).then(|| self.now + RETRY_INTERVAL)
    }
}
