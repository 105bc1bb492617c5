//! Where each part is sent: to the group's primary, or to a copy nearby, again when it was refused or a connection
//! broke.

use crate::gateway::{Ask, Effect, Gateway, Under};
use crate::parts::PartId;
use crate::view::GroupView;
use crate::{ANSWER_WAIT, READ_WAIT, RETRY_INTERVAL, RETRY_INTERVAL_MAX, reading};
use azekura_base::{Endpoint, PgId};
use azekura_wire::{Message, ReadRequest, StatusRequest, WriteRequest};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often it is looked for parts that have waited for too long, or are without an answer. Heartbeats call
/// [`Gateway::tick`] more often.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The wait for an answer is doubled so often at most.
const DOUBLINGS_MAX: u32 = 5;

impl Gateway {
    /// Numbers and sends as many writes of a group as its window allows.
    pub(crate) fn start_backlog(&mut self, pg: PgId) {
        while let Some(id) = self.parts.number_next(pg) {
            let wrote_at = self.parts.lane(pg).wrote_at;
            if let Some(under) = self.parts.get_mut(id) {
                under.in_backlog = false;
                under.waits_since = under.waits_since.max(wrote_at);
                self.room.numbered(under.volume);
            }
            self.send(id);
        }
    }

    /// Sends a part that waits, if there is where to.
    pub(crate) fn send(&mut self, id: PartId) {
        let oldest = match id {
            PartId::Write(pg, _) => self.parts.lane(pg).oldest(),
            PartId::Read(id) => id,
        };
        let is_write = id.is_write();
        let Some(under) = self.parts.get_mut(id) else { return };
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
        let up = |peer: &Endpoint| self.links.get(peer).copied().unwrap_or(false);
        let target = if is_write || under.primary_only {
            Some(group.primary)
        } else {
            let first = reader(group, self.me, |peer| {
                up(&peer) && !under.tried.contains(&peer) && !under.silent.contains(&peer)
            });
            first
                .or_else(|| {
                    // None of them has answered: once more.
                    under.silent.clear();
                    reader(group, self.me, |peer| up(&peer) && !under.tried.contains(&peer))
                })
                // None could read it, and one has refused since: it may be another device by now.
                .or_else(|| Some(group.primary).filter(|_| group.copies.iter().all(|c| under.tried.contains(c))))
        };
        let Some(target) = target.filter(up) else { return };
        under.at = Some(target);
        under.sent_at = self.now;
        let Under { volume, attachment, layer, pg, part, .. } = *under;
        let chunk = part.chunk;
        let request = id.number();
        let message = match &under.ask {
            Ask::Read => {
                let range = reading::blocks(layer, part);
                Message::Read(ReadRequest { request, pg, volume, attachment, range })
            }
            Ask::Status => Message::Status(StatusRequest { request, pg, volume, attachment, layer, chunk }),
            Ask::Write(body) => Message::Write(WriteRequest {
                session: self.session,
                request,
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
        self.parts.idle -= 1;
        self.effects.push_back(Effect::Send(target, message));
    }

    /// Sends, in their order, the waiting parts that `which` selects.
    pub(crate) fn resend(&mut self, which: impl Fn(&Under) -> bool) {
        let mut waiting = Vec::new();
        for (id, under) in self.parts.iter_mut().filter(|(_, under)| under.at.is_none() && which(under)) {
            under.retry_at = Duration::ZERO;
            waiting.push(id);
        }
        waiting.into_iter().for_each(|id| self.send(id));
    }

    /// The part was refused and is sent again a little later; the later, the longer it has waited, so that what waits
    /// for minutes does not fill the links.
    pub(crate) fn send_later(&mut self, id: PartId) {
        let now = self.now;
        let Some(under) = self.parts.get_mut(id) else { return };
        let pause = (now.saturating_sub(under.waits_since) / 16).clamp(RETRY_INTERVAL, RETRY_INTERVAL_MAX);
        under.retry_at = now + pause;
        self.next_retry = self.next_retry.min(under.retry_at);
    }

    /// What comes from `peer` does, or does not, leave this process's memory: before its connection is up.
    pub fn trust(&mut self, peer: Endpoint, trusted: bool) {
        if trusted {
            self.trusted.insert(peer);
        } else {
            self.trusted.remove(&peer);
        }
    }

    /// The connection to `peer` is up; what was sent on an earlier one is void.
    pub fn link_up(&mut self, peer: Endpoint) {
        self.links.insert(peer, true);
        let led: BTreeSet<PgId> = self.groups.iter().filter(|(_, g)| g.primary == peer).map(|(pg, _)| *pg).collect();
        self.new_chance(|pg| led.contains(&pg));
        self.resend(|_| true);
    }

    /// The connection to `peer` is gone: what it has not answered is sent again, to it or to another copy.
    pub fn link_down(&mut self, peer: Endpoint) {
        self.links.insert(peer, false);
        self.take_back(|under| under.at == Some(peer));
        self.resend(|_| true);
    }

    fn take_back(&mut self, which: impl Fn(&Under) -> bool) {
        let now = self.now;
        let mut taken = 0;
        for (_, under) in self.parts.iter_mut().filter(|(_, under)| under.at.is_some() && which(under)) {
            under.at = None;
            under.primary_only = false;
            under.given_back(now);
            taken += 1;
        }
        self.parts.idle += taken;
    }

    /// Takes back what is with a copy that is not asked any more: a primary that was replaced may never answer. The new
    /// one knows a write that it has already by its number.
    pub(crate) fn recall(&mut self) {
        let groups = std::mem::take(&mut self.groups);
        self.take_back(|under| {
            let group = groups.get(&under.pg);
            let may_have = |peer| match group {
                Some(group) if under.is_write() => group.primary == peer,
                Some(group) => group.copies.contains(&peer),
                None => false,
            };
            !under.at.is_some_and(may_have)
        });
        self.groups = groups;
    }

    /// Takes back what has been without an answer for long, although the connection to whom it was sent stands. A read
    /// is sent to another copy then, if there is one that has not been asked.
    fn take_back_unanswered(&mut self) {
        let (now, mut taken) = (self.now, 0);
        let (groups, links) = (&self.groups, &self.links);
        for (id, under) in self.parts.iter_mut() {
            let Some(peer) = under.at else { continue };
            let is_other = |other: &Endpoint| {
                *other != peer
                    && links.get(other).copied().unwrap_or(false)
                    && !under.tried.contains(other)
                    && !under.silent.contains(other)
            };
            let others = groups.get(&under.pg).is_some_and(|group| group.copies.iter().any(is_other));
            let wait = if !id.is_write() && others {
                READ_WAIT
            } else {
                ANSWER_WAIT * 2u32.pow(under.asked_again.min(DOUBLINGS_MAX))
            };
            if now < under.sent_at + wait {
                continue;
            }
            under.at = None;
            under.asked_again += 1;
            if !id.is_write() {
                under.silent.push(peer);
                under.primary_only = false;
            }
            taken += 1;
        }
        self.parts.idle += taken;
        self.asked_again += taken as u64;
    }

    /// Time passes: sends again what was refused, or not answered, a while ago, and ends what has waited for too long.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
        if now >= self.next_look {
            self.next_look = now + LOOK_INTERVAL;
            // What a copy has now may be queued there; who takes it back first would call it refused.
            self.look_for_stuck();
            self.take_back_unanswered();
            self.next_retry = now;
        }
        if self.parts.idle > 0 && now >= self.next_retry {
            self.resend(|under| under.retry_at <= now);
            self.next_retry = now + RETRY_INTERVAL;
        }
    }

    /// When [`Gateway::tick`] has something to do, if it has.
    #[must_use]
    pub fn next_tick(&self) -> Option<Duration> {
        (self.parts.idle > 0).then(|| self.next_retry.max(self.now + RETRY_INTERVAL))
    }
}

/// The copy that a read is sent to: this shard's, else one of this node's, else the primary, else any.
fn reader(group: &GroupView, me: Endpoint, usable: impl Fn(Endpoint) -> bool) -> Option<Endpoint> {
    let copies = || group.copies.iter().copied();
    copies()
        .find(|peer| *peer == me && usable(*peer))
        .or_else(|| copies().find(|peer| peer.node == me.node && usable(*peer)))
        .or_else(|| Some(group.primary).filter(|peer| usable(*peer)))
        .or_else(|| copies().find(|peer| usable(*peer)))
}
