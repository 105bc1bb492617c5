//! The primary before: until when it may serve, and whether what it has sent may still arrive.

use super::{Claim, TakeOver};
use crate::action::Client;
use azekura_base::{DeviceId, Epoch};
use azekura_wire::NewEpochOk;
use std::collections::BTreeMap;
use std::time::Duration;

/// Answers of copies that have more than this one: the rest is on its way here, perhaps.
pub(super) type LateAnswers = BTreeMap<DeviceId, NewEpochOk>;

/// The primary that the configuration named before this one. That primary may never have reigned: then others, this
/// copy among them, may still follow the primary before that one.
#[derive(Debug)]
pub(super) struct Predecessor {
    device: DeviceId,
    epoch: Epoch,
    /// The connection that the predecessor's writes come on, if the predecessor has invited this copy.
    conn: Option<Client>,
    /// Until when the predecessor, or a primary before it, may count on this copy.
    until: Duration,
    /// The predecessor follows this copy.
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
        // 0013, point 2: the predecessor's word counts for promises to that very primary, and this copy's promise was
        // to the primary of its recorded epoch.
        if before.epoch == recorded {
            before.until = Duration::ZERO;
        }
        let news = self.ended < before.epoch;
        self.ended = self.ended.max(before.epoch);
        news
    }
}
