//! From the primary that is missed to the configuration that names this process: a copy claims the group.
//!
//! A copy that has claimed the group goes on as a secondary until it hears that it reigns (decision 0013): the claim
//! may be refused, or the store be away for a while, and the group must not stop for that. Between the moment that the
//! claim stands and the new primary's first word, two copies could take themselves for primary. What keeps invariant 3
//! is the promise of the new primary itself: the former one serves only while this copy follows it, and the new one
//! commits nothing before the former has said that it has stopped, or the promise has run out.

use super::{Claim, TakeOver};
use crate::context::GroupCx;
use crate::lease::{AFTER_STALL, GRACE, readers_until};
use crate::secondary::Secondary;
use azekura_base::Epoch;
use std::time::Duration;

/// Secondaries try to take over one after the other.
const STAGGER: Duration = Duration::from_millis(100);

impl Secondary {
    /// A secondary whose primary is silent takes over.
    pub(crate) fn watch_primary(&mut self, cx: &mut GroupCx) {
        self.depart(cx);
        self.cast_deferred_vote(cx);
        let now = cx.now;
        if cx.is_proposing() || !cx.may_claim() {
            return;
        }
        if cx.config.primary == cx.me {
            // Unless it follows a newer one, of whom the configuration is on its way here.
            if cx.epochs.followed() <= cx.config.epoch || now >= self.heard + GRACE {
                self.claim(cx, false);
            }
            return;
        }
        // 0007: only a copy in sync takes over, since only the in-sync set has every acknowledged write.
        let rank = cx.config.in_sync.iter().filter(|d| **d != cx.config.primary).position(|d| *d == cx.me);
        let Some(rank) = rank else { return };
        if now >= self.heard + GRACE + STAGGER * rank as u32 {
            self.claim(cx, false);
        }
    }

    /// This process has stood still until `now`: the primary is given time.
    pub(crate) fn excuse_primary(&mut self, now: Duration) {
        self.heard = self.heard.max((now + AFTER_STALL).saturating_sub(GRACE));
    }

    /// Proposes the next epoch, with this copy as primary. A process that starts must not go on in an epoch whose
    /// promises it has forgotten (0004), so it claims the group anew even if the configuration names its copy. The
    /// former primary is left behind, unless that one has `invited` this copy.
    pub(crate) fn claim(&mut self, cx: &mut GroupCx, invited: bool) {
        let own = cx.config.primary == cx.me;
        let recorded = cx.epochs.recorded();
        let mut config = cx.claimed(cx.epochs.next_claim());
        // 0010, point 2: under a rule that waits for fewer copies, the next to claim must count from the same set.
        if !own && !invited && cx.config.waits_for_all() {
            // Whatever this copy knows to be committed, the former primary held.
            config.remove(cx.config.primary, cx.tail.committed());
        }
        // 0013, point 3: a process that finds its own epoch recorded has promised nothing since, and where nothing is
        // recorded nobody ever reigned. A copy that was handed the group has it of one that had claimed the group and
        // did not open its epoch: the primary before that one may be there still.
        let unbound = own && (recorded == Epoch::BEFORE_ALL || recorded >= cx.config.epoch);
        let reigned = cx.config.primary_incarnation.is_some();
        // Who claims the group next takes this copy out of the configuration without waiting for its readers, if this
        // claim stands: whether or not this copy ever hears of that.
        self.lease_until = Duration::ZERO;
        self.claim = Some(Claim {
            epoch: config.epoch,
            invited,
            former: (cx.config.primary, cx.config.epoch),
            // A reign of this very device has ended with the process, or when it stepped down.
            ended: if own && reigned { cx.config.epoch } else { Epoch::BEFORE_ALL },
            // A copy that was handed the group and never took it may still answer readers.
            after_readers: !(own || reigned),
            unbound: unbound.then_some(cx.epochs.promised_until()),
        });
        cx.propose(config);
    }

    /// The configuration names this process, as it has claimed: the epoch that it is to reign in, and how it takes
    /// over.
    pub(crate) fn take_over(&mut self, cx: &GroupCx) -> Option<(Epoch, TakeOver)> {
        let claim = self.claim.take_if(|claim| claim.epoch == cx.config.epoch)?;
        if cx.epochs.followed() >= claim.epoch {
            return None; // Overtaken: the configuration that says so is on its way.
        }
        let mut takeover = TakeOver::new(&claim, self.primary, cx.epochs.promised_until(), cx.now);
        if claim.after_readers && cx.config.has_readers() {
            takeover.wait_for_readers(readers_until(cx.now));
        }
        Some((claim.epoch, takeover))
    }

    /// What this copy has claimed is refused.
    pub(crate) fn on_claim_refused(&mut self, epoch: Epoch) {
        self.claim.take_if(|claim| claim.epoch == epoch);
    }

    /// Another configuration stands; this process is the primary that it names if it `reigns`.
    pub(crate) fn on_configured(&mut self, cx: &mut GroupCx, reigns: bool) {
        // A claim that is overtaken will be refused, or does not count any more.
        self.claim.take_if(|claim| claim.epoch <= cx.config.epoch);
        if cx.config.primary == cx.me && !reigns && !cx.is_proposing() && cx.may_claim() {
            self.claim(cx, false);
        }
        self.try_inherit(cx);
    }
}
