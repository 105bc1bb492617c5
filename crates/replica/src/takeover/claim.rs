//! From the primary that is missed to the configuration that names this process: a copy claims the group.
//!
//! A copy that has claimed the group goes on as a secondary until it hears that it reigns (decision 0013): the claim
//! may be refused, or the store be away for a while, and the group must not stop for that. Between the moment that the
//! claim stands and the new primary's first word, two copies could take themselves for primary. What keeps invariant 3
//! is the promise of the new primary itself: the former one serves only while this copy follows it, and the new one
//! commits nothing before the former has said that it has stopped, or the promise has run out.

use super::TakeOver;
use crate::group::{Group, Role};
use crate::lease::{AFTER_STALL, GRACE, readers_until};
use crate::primary::Primary;
use crate::sluggish::Yields;
use azekura_base::{DeviceId, Epoch};
use std::time::Duration;

/// Secondaries try to take over one after the other.
const STAGGER: Duration = Duration::from_millis(100);

/// What a copy that has claimed an epoch has to know when the configuration names it primary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(super) epoch: Epoch,
    /// The primary has invited this copy.
    pub(super) invited: bool,
    /// Whom the configuration named before, and for which epoch.
    pub(super) former: (DeviceId, Epoch),
    /// A reign that had ended when this was claimed.
    pub(super) ended: Epoch,
    /// The copy that was to reign before may answer readers.
    pub(super) after_readers: bool,
    /// This copy had promised nothing that counts; and until when its promises went, to see whether it has since.
    pub(super) unbound: Option<Duration>,
}

impl Claim {
    /// The epoch that is claimed.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Nothing that this copy has promised counts, nor has it promised anything since: its promises go until
    /// `promised_until`.
    pub(super) fn is_unbound(&self, promised_until: Duration) -> bool {
        self.unbound == Some(promised_until)
    }
}

impl Group {
    /// True while this copy has proposed to reign, or to begin its reign, and has not heard whether it may.
    #[must_use]
    pub fn is_claiming(&self) -> bool {
        self.claim.is_some() || matches!(&self.role, Role::Primary(primary) if primary.is_gathering())
    }

    /// A secondary whose primary is silent takes over.
    pub(crate) fn watch_primary(&mut self, stalled: bool) {
        self.depart();
        self.cast_deferred_vote();
        let now = self.now;
        let Role::Secondary(secondary) = &mut self.role else { return };
        if stalled {
            secondary.heard = secondary.heard.max((now + AFTER_STALL).saturating_sub(GRACE));
        }
        if self.proposal.is_some() || self.leaving || self.hung {
            return;
        }
        if self.config.primary == self.me {
            // Unless it follows a newer one, of whom the configuration is on its way here.
            if self.epochs.followed() <= self.config.epoch || now >= secondary.heard + GRACE {
                self.claim(false);
            }
            return;
        }
        // 0007: only a copy in sync takes over, since only the in-sync set has every acknowledged write.
        let rank = self.config.in_sync.iter().filter(|d| **d != self.config.primary).position(|d| *d == self.me);
        let Some(rank) = rank else { return };
        if now >= secondary.heard + GRACE + STAGGER * rank as u32 {
            self.claim(false);
        }
    }

    /// Proposes the next epoch, with this copy as primary. A process that starts must not go on in an epoch whose
    /// promises it has forgotten (0004), so it claims the group anew even if the configuration names its copy. The
    /// former primary is left behind, unless that one has `invited` this copy.
    pub(crate) fn claim(&mut self, invited: bool) {
        let own = self.config.primary == self.me;
        let recorded = self.epochs.recorded();
        let mut config = self.config.next();
        config.epoch = self.epochs.next_claim();
        config.primary = self.me;
        config.primary_incarnation = self.incarnation;
        // 0010, point 2: under a rule that waits for fewer copies, the next to claim must count from the same set.
        if !own && !invited && self.config.waits_for_all() {
            // Whatever this copy knows to be committed, the former primary held.
            config.remove(self.config.primary, self.tail.committed());
        }
        // 0013, point 3: a process that finds its own epoch recorded has promised nothing since, and where nothing is
        // recorded nobody ever reigned. A copy that was handed the group has it of one that had claimed the group and
        // did not open its epoch: the primary before that one may be there still.
        let unbound = own && (recorded == Epoch(0) || recorded >= self.config.epoch);
        self.claim = Some(Claim {
            epoch: config.epoch,
            invited,
            former: (self.config.primary, self.config.epoch),
            // A reign of this very device has ended with the process, or when it stepped down.
            ended: if own && self.config.primary_incarnation != 0 { self.config.epoch } else { Epoch(0) },
            // A copy that was handed the group and never took it may still answer readers.
            after_readers: !own && self.config.primary_incarnation == 0,
            unbound: unbound.then_some(self.epochs.promised_until()),
        });
        self.propose(config);
    }

    /// The configuration names this process, as it has claimed: the copy is primary from here on, and serves nobody
    /// yet.
    pub(crate) fn begin_reign(&mut self) {
        let Some(claim) = self.claim.take_if(|claim| claim.epoch == self.config.epoch) else { return };
        let Role::Secondary(secondary) = &self.role else { return };
        if self.epochs.followed() >= claim.epoch {
            return; // Overtaken: the configuration that says so is on its way.
        }
        let mut takeover = TakeOver::new(&claim, secondary.primary, self.epochs.promised_until(), self.now);
        if claim.after_readers && self.config.has_readers() {
            takeover.wait_for_readers(readers_until(self.now));
        }
        let mut primary = Primary::new(claim.epoch, takeover, self.me, &self.config.in_sync, self.now);
        primary.ordered_at = secondary.ordered_at;
        self.yields = Yields::default();
        self.role = Role::Primary(Box::new(primary));
        self.begin_gathering();
    }
}
