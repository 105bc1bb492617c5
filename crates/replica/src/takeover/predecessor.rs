//! The primary before: until when it may serve, and what it has sent that has not arrived.
//!
//! What the former primary had sent and not committed is still on its way when it stops. It comes on the connection on
//! which this copy followed it, and is taken up as a part of what was prepared before ([`Group::inherit_write`]).

use super::{Claim, TakeOver};
use crate::action::{Client, Mismatch};
use crate::group::Group;
use azekura_base::{DeviceId, Epoch};
use azekura_wire::{Prepare, SyncOk};
use std::collections::BTreeMap;
use std::time::Duration;

/// Answers of copies that have more than this one: the rest is on its way here, perhaps.
pub(super) type LateAnswers = BTreeMap<DeviceId, SyncOk>;

/// The primary that the configuration named before this one. It may never have reigned: then others, this copy among
/// them, may still follow the one before it.
#[derive(Debug)]
pub(super) struct Predecessor {
    device: DeviceId,
    epoch: Epoch,
    /// The connection that its writes come on, if it has invited this copy.
    conn: Option<Client>,
    /// Until when it, or one before it, may count on this copy.
    until: Duration,
    /// It follows this copy.
    stopped: bool,
}

impl Predecessor {
    pub(super) fn new(claim: &Claim, following: Option<Client>, promised_until: Duration) -> Predecessor {
        let (device, epoch) = claim.former;
        Predecessor {
            device,
            epoch,
            conn: following.filter(|_| claim.invited),
            until: if claim.is_unbound(promised_until) { Duration::ZERO } else { promised_until },
            stopped: false,
        }
    }

    pub(super) fn device(&self) -> DeviceId {
        self.device
    }

    pub(super) fn until(&self) -> Duration {
        self.until
    }

    pub(super) fn has_invited(&self) -> bool {
        self.conn.is_some()
    }

    pub(super) fn is_unheard(&self, now: Duration) -> bool {
        !self.stopped && now >= self.until
    }

    /// A write of `epoch` on connection `from` is one that it had sent before it stopped.
    pub(super) fn has_sent(&self, from: Client, epoch: Epoch) -> bool {
        self.conn == Some(from) && self.epoch == epoch
    }
}

impl TakeOver {
    /// The last epoch that nobody serves in any more, for copies that have promised something to its primary.
    pub(super) fn ended(&self) -> Epoch {
        self.ended
    }

    /// The copy on `device` follows this one, whose device has recorded `recorded`. True when more is known than before
    /// of the epochs that have ended.
    pub(super) fn follows(&mut self, device: DeviceId, recorded: Epoch) -> bool {
        let before = &mut self.predecessor;
        if before.device != device || before.stopped {
            return false;
        }
        before.stopped = true;
        // 0013, point 2: its word counts for promises to that very primary, and this copy's was to the one of its
        // recorded epoch.
        if before.epoch == recorded {
            before.until = Duration::ZERO;
        }
        let news = self.ended < before.epoch;
        self.ended = self.ended.max(before.epoch);
        news
    }
}

impl Group {
    /// The copy on `device` follows this one: if it was primary before, it serves nobody any more.
    pub(crate) fn predecessor_stopped(&mut self, device: DeviceId) {
        let recorded = self.epochs.recorded();
        if self.primary_mut().is_some_and(|primary| primary.takeover.follows(device, recorded)) {
            // Who has promised to follow the former primary need not wait any longer.
            self.greet_all();
        }
    }

    /// A write that the primary before this one had sent, and this copy had not received when it began to reign: it is
    /// a part of what was prepared before. It is not answered, so its sender does not commit it.
    ///
    /// # Errors
    /// When it is damaged: the connection must be closed.
    pub(crate) fn inherit_write(&mut self, from: Client, prepare: Prepare, trusted: bool) -> Result<(), Mismatch> {
        let Some(primary) = self.primary() else { return Ok(()) };
        let inherited = primary.is_gathering() && primary.takeover.predecessor.has_sent(from, prepare.header.epoch);
        if !inherited || prepare.header.sequence != self.tail.end().next() {
            return Ok(());
        }
        if !trusted && !prepare.body.is_undamaged() {
            return Err(Mismatch::Checksum);
        }
        let peers: Vec<DeviceId> = primary.peers.keys().copied().collect();
        let body = prepare.body.clone();
        self.append_prepared(prepare, Some(body));
        peers.into_iter().for_each(|device| self.pump(device));
        self.hear_late_answers();
        Ok(())
    }

    /// Takes up the answers of copies that had more, once this one has as much or waits for it no longer.
    pub(crate) fn hear_late_answers(&mut self) {
        let (now, end) = (self.now, self.tail.end());
        let due = self.primary_mut().map(|primary| primary.takeover.take_due_answers(end, now));
        due.into_iter().flatten().for_each(|(device, ok)| self.sync_ok(device, ok));
    }
}
