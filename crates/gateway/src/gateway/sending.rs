//! Where each part is sent: to the group's primary, or to a copy nearby, again when it was refused or a connection
//! broke.

use super::{Effect, Gateway};
use crate::RETRY_INTERVAL;
use crate::ciphers::Cipher;
use crate::parts::{InFlight, PartId};
use azekura_base::{Endpoint, PgId};
use std::time::Duration;

/// How often it is looked for parts that have waited for too long, or are without an answer. Heartbeats call
/// [`Gateway::tick`] more often.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

impl Gateway {
    /// Numbers and sends as many writes of a group as its window allows.
    pub(super) fn start_backlog(&mut self, pg: PgId) {
        while let Some((id, volume)) = self.number_next(pg) {
            self.room.numbered(volume);
            self.send(id);
        }
    }

    /// Sends a part that waits, if there is where to.
    pub(super) fn send(&mut self, id: PartId) {
        let (now, directory) = (self.now, &self.directory);
        let oldest = self.parts.oldest(id);
        let Some(mut part) = self.parts.get_mut(id).filter(|part| part.may_go(now)) else { return };
        let Some(volume) = directory.volume(part.wanted().volume) else { return };
        if id.is_write() && volume.cut.is_some() {
            return; // A snapshot is being made: no copy would take it.
        }
        part.follow_head(volume.layer);
        if !id.is_write()
            && volume.key.is_some()
            && let Some(cipher) = Cipher::of(volume, &self.keys)
        {
            part.set_cipher(cipher);
        }
        let Some(group) = directory.group(part.wanted().pg) else { return };
        let Some(target) = part.target(group, directory.me(), |peer| directory.is_up(peer)) else { return };
        part.sent(target, now);
        let message = part.message(id.number(), self.session, oldest);
        self.effects.push_back(Effect::Send(target, message));
    }

    /// Sends, in their order, the waiting parts that `which` selects.
    pub(super) fn resend(&mut self, which: impl Fn(&InFlight) -> bool) {
        self.parts.release(which).into_iter().for_each(|id| self.send(id));
    }

    /// The part was refused and is sent again a little later.
    pub(super) fn send_later(&mut self, id: PartId) {
        let now = self.now;
        let Some(mut part) = self.parts.get_mut(id) else { return };
        self.next_retry = self.next_retry.min(part.send_later(now));
    }

    /// What comes from `peer` does, or does not, leave this process's memory: before its connection is up.
    pub fn trust(&mut self, peer: Endpoint, trusted: bool) {
        self.directory.trust(peer, trusted);
    }

    /// The connection to `peer` is up; what was sent on an earlier one is void.
    pub fn link_up(&mut self, peer: Endpoint) {
        self.directory.link(peer, true);
        let led = self.directory.led_by(peer);
        self.parts.another_chance(self.now, |pg| led.contains(&pg));
        self.resend(|_| true);
    }

    /// The connection to `peer` is gone: what it has not answered is sent again, to it or to another copy.
    pub fn link_down(&mut self, peer: Endpoint) {
        self.directory.link(peer, false);
        self.parts.take_back(self.now, |_, at| at == peer);
        self.resend(|_| true);
    }

    /// Takes back what is with a copy that is not asked any more: a primary that was replaced may never answer. The new
    /// one knows a write that it has already by its number.
    pub(super) fn recall(&mut self) {
        let directory = &self.directory;
        self.parts
            .take_back(self.now, |in_flight, at| !directory.serves(at, in_flight.wanted().pg, in_flight.is_write()));
    }

    /// Takes back what has been without an answer for long, although the connection to whom it was sent stands.
    fn take_back_unanswered(&mut self) {
        let directory = &self.directory;
        let taken = self.parts.take_back_unanswered(self.now, |pg| directory.group(pg), |peer| directory.is_up(peer));
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
            self.settle();
        }
        self.release_held();
        if self.parts.any_idle() && now >= self.next_retry {
            self.resend(|in_flight| in_flight.is_due(now));
            self.next_retry = now + RETRY_INTERVAL;
        }
    }

    /// When [`Gateway::tick`] has something to do, if it has.
    #[must_use]
    pub fn next_tick(&self) -> Option<Duration> {
        (self.parts.any_idle() || self.parts.any_held()).then(|| self.next_retry.max(self.now + RETRY_INTERVAL))
    }
}
