//! Who reigns and who is in sync: every change is a proposal that the configuration store accepts or refuses.
//!
//! A copy has at most one proposal under way. What it wants is found anew at every [`Group::tick`] from what stands, so
//! a refused proposal needs no memory.
//!
//! A copy that has claimed the group goes on as a secondary until it hears that it reigns: the claim may be refused, or
//! the store be away for a while, and the group must not stop for that. Whom it has promised to follow meanwhile, it
//! waits out before it commits anything (`hand_over.rs`).

use crate::action::Action;
use crate::flow::LAGGED_RETRY;
use crate::group::{Group, GroupConfig, GroupState, Role};
use crate::hand_over::{Claim, is_recent};
use crate::lease::{GRACE, LEASE};
use crate::peer::Standing;
use crate::quorum::AckRule;
use crate::secondary::Secondary;
use azekura_base::{DeviceId, Epoch, IoStatus, Sequence};
use std::time::Duration;

/// A copy that has said nothing for so long is left behind. Less than [`LEASE`]: when the configuration has changed,
/// its lease has almost run out.
pub(crate) const SILENCE: Duration = Duration::from_millis(750);
/// A copy that has made nothing durable for so long, although it was sent something and this copy has made it durable,
/// is left behind.
pub(crate) const STUCK: Duration = Duration::from_secs(3);
/// How long a new primary waits for a copy's first word.
const FIRST_WORD: Duration = Duration::from_secs(3);
/// How long a new primary that has heard enough copies waits for others that it can reach.
const GATHERING: Duration = Duration::from_millis(300);
/// How long it waits for any, if it does not know how far they are at least.
const GATHERING_AT_START: Duration = Duration::from_secs(2);
/// Secondaries try to take over one after the other.
const STAGGER: Duration = Duration::from_millis(100);
/// A primary whose device is a member no more tries to hand over this often.
const HAND_OVER_AGAIN: Duration = Duration::from_secs(1);
/// Time given to others after this process has stood still.
const AFTER_STALL: Duration = Duration::from_millis(400);
/// Clocks of two machines may run apart by this part of a lease.
const SKEW: u32 = 8;

impl Group {
    /// The cluster's configuration of this group, as last read.
    pub fn configure(&mut self, config: GroupConfig) {
        if config.version > self.config.version {
            let own = self.proposal.as_ref() == Some(&config);
            self.adopt(config, own);
        }
    }

    /// True while this copy has proposed to reign, or to begin its reign, and has not heard whether it may.
    #[must_use]
    pub fn is_claiming(&self) -> bool {
        self.claim.is_some() || matches!(&self.role, Role::Primary(primary) if primary.is_gathering())
    }

    /// The outcome of [`Action::Propose`]: true when the proposed configuration now stands. When false, what stands
    /// instead comes by [`Group::configure`].
    pub fn proposal_done(&mut self, version: u64, accepted: bool) {
        let Some(proposal) = self.proposal.take_if(|proposal| proposal.version == version) else { return };
        if accepted {
            if proposal.version > self.config.version {
                self.adopt(proposal, true);
            }
        } else {
            self.claim.take_if(|claim| claim.epoch == proposal.epoch);
        }
    }

    fn propose(&mut self, config: GroupConfig) {
        if let Role::Primary(primary) = &mut self.role
            && config.in_sync != self.config.in_sync
        {
            primary.proposals_in_doubt.push((config.version, config.in_sync.clone()));
        }
        self.proposal = Some(config.clone());
        self.actions.push_back(Action::Propose(config));
    }

    fn adopt(&mut self, config: GroupConfig, own: bool) {
        self.config = config;
        self.epochs.configure(self.config.epoch);
        let version = self.config.version;
        if let Role::Primary(primary) = &mut self.role {
            primary.proposals_in_doubt.retain(|(proposed, _)| *proposed > version);
            primary.confirmed |= own;
        }
        self.follow_completeness();
        let reigning = self.config.primary == self.me && self.config.primary_incarnation == self.incarnation;
        match &mut self.role {
            Role::Primary(primary) if reigning && primary.epoch() == self.config.epoch => self.follow_members(),
            Role::Primary(_) => self.step_down(),
            Role::Secondary(_) if reigning => self.begin_reign(),
            Role::Secondary(_) => {}
        }
        // A claim that is overtaken will be refused, or does not count any more.
        self.claim.take_if(|claim| claim.epoch <= self.config.epoch);
        if self.config.primary == self.me && !reigning && self.proposal.is_none() && !self.leaving && !self.hung {
            self.claim(false);
        }
        self.try_inherit();
    }

    /// Proposes the next epoch, with this copy as primary. A process that starts must not go on in an epoch whose
    /// promises it has forgotten, so it claims the group anew even if the configuration names its copy. The former
    /// primary is left behind, unless it has `invited` this copy.
    pub(crate) fn claim(&mut self, invited: bool) {
        let own = self.config.primary == self.me;
        let recorded = self.epochs.recorded();
        let mut config = self.config.next();
        config.epoch = self.epochs.next_claim();
        config.primary = self.me;
        config.primary_incarnation = self.incarnation;
        if !own && !invited && self.config.waits_for_all() {
            // Whatever this copy knows to be committed, the former primary held.
            config.remove(self.config.primary, self.tail.committed());
        }
        // An earlier life of this process reigned in the last epoch and followed nobody since; or nobody ever reigned. Who was handed
        // the group has it of a copy that had claimed it and did not open its epoch: the primary before may be there still.
        let unbound = own && (recorded == Epoch(0) || recorded >= self.config.epoch);
        self.claim = Some(Claim {
            epoch: config.epoch,
            invited,
            former: self.config.primary,
            former_epoch: self.config.epoch,
            // A reign of this very device has ended with the process, or when it stepped down.
            ended: if own && self.config.primary_incarnation != 0 { self.config.epoch } else { Epoch(0) },
            // A copy that was handed the group and never took it may still answer readers.
            after_readers: !own && self.config.primary_incarnation == 0,
            unbound: unbound.then_some(self.epochs.promised_until()),
        });
        self.propose(config);
    }

    /// Proposes another copy as primary; this one serves nobody from now on.
    pub(crate) fn propose_primary(&mut self, to: DeviceId) {
        let Role::Primary(primary) = &self.role else { return };
        if self.proposal.is_some() {
            return;
        }
        let mut config = self.config.next();
        config.epoch = primary.epoch().next();
        config.primary = to;
        config.primary_incarnation = 0;
        self.step_down();
        self.propose(config);
    }

    pub(crate) fn step_down(&mut self) {
        self.drop_clients();
        self.drop_fences();
        let ordered_at = match &self.role {
            Role::Primary(primary) => {
                self.epochs.step_down(primary.epoch());
                primary.ordered_at
            }
            Role::Secondary(secondary) => secondary.ordered_at,
        };
        let mut secondary = Secondary::new(self.now);
        secondary.ordered_at = ordered_at;
        self.role = Role::Secondary(Box::new(secondary));
    }

    /// Sends everybody who waits here to ask again.
    fn drop_clients(&mut self) {
        let mut waiting = Vec::new();
        if let Role::Primary(primary) = &mut self.role {
            waiting = primary.drain_clients();
        }
        for sequence in self.tail.committed().0 + 1..=self.tail.end().0 {
            if let Some(write) = self.tail.get_mut(Sequence(sequence))
                && let Some(client) = write.client.take()
            {
                waiting.push((client, write.request));
            }
        }
        for (client, request) in waiting {
            self.actions.push_back(Action::AnswerWrite(client, request, Err(IoStatus::Redirect)));
        }
    }

    /// The same primary, other members.
    fn follow_members(&mut self) {
        let Role::Primary(primary) = &mut self.role else { return };
        let (me, now) = (self.me, self.now);
        for device in self.config.in_sync.iter().filter(|device| **device != me) {
            primary.peer_in_sync(*device, now);
        }
        let config = &self.config;
        for peer in primary.peers.values_mut() {
            // A proposal that would have named it can't be accepted any more.
            peer.named = peer.named.filter(|version| *version > config.version);
        }
        let mut readers_until = primary.blocked_until;
        let retries = &mut primary.retries;
        primary.peers.retain(|device, peer| match peer.standing {
            Standing::InSync if !config.in_sync.contains(device) => {
                if peer.lags() {
                    retries.put_off(*device, LAGGED_RETRY, now);
                }
                // Nothing is committed without it while it may still answer readers by itself.
                readers_until = readers_until.max(peer.reads_until);
                false
            }
            Standing::InSync => true,
            // A proposal that names it is of an older version and refused: the device may give its copy up.
            Standing::Joining | Standing::Learning(_) => config.members.contains(device),
        });
        primary.blocked_until = readers_until;
        primary.ahead.retain(|device, _| config.members.contains(device) && !config.in_sync.contains(device));
        if !self.config.is_writable() {
            // What has no place in the order yet is not to get one.
            self.refuse_unordered(|_| true, IoStatus::ReadOnly);
        }
        self.greet_all();
        self.try_commit();
        self.try_open();
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
        let rank = self.config.in_sync.iter().filter(|d| **d != self.config.primary).position(|d| *d == self.me);
        let Some(rank) = rank else { return };
        if now >= secondary.heard + GRACE + STAGGER * rank as u32 {
            self.claim(false);
        }
    }

    /// A primary leaves silent copies behind and takes back those that have caught up.
    pub(crate) fn watch_copies(&mut self, stalled: bool) {
        let me = self.me;
        let (now, durable, committed) = (self.now, self.durable, self.tail.committed());
        let waits_for_all = self.config.ack == AckRule::All;
        self.raise_low_watermark();
        self.ask_who_stayed();
        let slow = self.too_slow();
        self.hear_late_answers();
        let Role::Primary(primary) = &mut self.role else { return };
        let gathering = !waits_for_all && primary.is_gathering();
        let open = primary.is_open();
        let mut config = self.config.next();
        let mut greet = Vec::new();
        let mut in_doubt = false;
        let mut lacking = false;
        let mut lost = false;
        let predecessor = primary.predecessor.as_ref().filter(|before| !before.stopped && now >= before.until);
        let unheard = predecessor.map(|before| before.device).filter(|device| !self.connected.contains(device));
        for (device, peer) in &mut primary.peers {
            if stalled {
                peer.heard = peer.heard.max((now + AFTER_STALL).saturating_sub(SILENCE));
                peer.moved = peer.moved.max(now);
            }
            if peer.acked >= durable.min(peer.sent) {
                peer.moved = now;
            }
            if !peer.synced && self.connected.contains(device) && now >= peer.asked + SILENCE {
                greet.push(*device);
            }
            let failed = peer.has_failed(patience(open), now) || [unheard, slow].contains(&Some(*device));
            let known = if waits_for_all { committed } else { peer.acked };
            lost |= peer.diverged_at.is_some();
            lacking |= (failed || peer.diverged_at.is_some()) && peer.acked < committed;
            match &peer.standing {
                // A copy that the configuration does not name answers no readers: its lease ends first. A silent copy's
                // ends on its own, and others get no more of it when it is time.
                Standing::InSync if now < peer.reads_until || gathering => {}
                Standing::InSync if peer.diverged_at.is_some() || failed => {
                    config.remove(*device, peer.diverged_at.unwrap_or(known).min(committed));
                }
                // Invariant 4: what was acknowledged while nothing waited for it must be durable on it, too.
                Standing::Joining if peer.synced && peer.acked >= committed && now < peer.lease_until => {
                    config.in_sync.insert(*device);
                    config.away.remove(device);
                    if self.proposal.is_none() {
                        peer.named = Some(config.version);
                    }
                }
                Standing::Joining if failed && peer.named.is_some() => in_doubt = true,
                _ => {}
            }
        }
        // What is written to now and then would wait for a copy that takes leave when the next write comes.
        let parting =
            primary.peers.values().any(|peer| peer.leaving) && is_recent(primary.ordered_at, now) && !self.leaving;
        let wanted = std::mem::take(&mut primary.clients_wait)
            || self.tail.len() > 0
            || parting
            || lost
            || lacking && !waits_for_all;
        let grows = config.in_sync.difference(&self.config.in_sync).next().is_some();
        // One that is a member no more goes when its replacement is there, whether or not anybody wants anything; and when
        // an epoch can't open without it, since only an open one brings replacements up to date.
        let enough = config.in_sync.len() >= config.members.len() || !open;
        let relieved = enough && self.config.in_sync.difference(&config.in_sync).any(|d| !config.members.contains(d));
        let to_leave = open && !config.members.contains(&me);
        if self.proposal.is_none() {
            // Whether an earlier proposal has named a copy that failed since is known when the next one is decided.
            let changed = config.in_sync != self.config.in_sync && (wanted || grows || relieved);
            if (changed || in_doubt) && self.keeps_what_is_committed(&config) {
                self.propose(config);
            } else {
                self.drop_failed_joiners(now);
            }
        }
        if to_leave {
            self.hand_over_and_leave();
        }
        greet.into_iter().for_each(|device| self.greet(device));
        self.gather();
        self.watch_learners();
        self.give_up_questions();
        self.run_mends();
        self.tick_scrub();
        // What a write waited for may have ended without a word: a copy that was being repaired is gone.
        self.retry_waiting();
        self.try_commit();
        self.try_open();
        self.try_hand_over();
    }

    /// How a primary is that waits for the copy on `device`. Perhaps only until somebody wants something: this looks at what
    /// [`Group::watch_copies`] would do then, and does nothing of it.
    pub(crate) fn state_without(&self, device: DeviceId, now: Duration) -> GroupState {
        let waiting = GroupState::WaitingForCopy(device);
        let Role::Primary(primary) = &self.role else { return waiting };
        let gathering = self.config.ack != AckRule::All && primary.is_gathering();
        if gathering || self.proposal.is_some() {
            return waiting;
        }
        let patience = patience(primary.is_open());
        let mut config = self.config.clone();
        for (device, peer) in &primary.peers {
            let in_sync = matches!(peer.standing, Standing::InSync);
            if in_sync && now >= peer.reads_until && peer.has_failed(patience, now) {
                config.in_sync.remove(device);
            } else if peer.counts() && !peer.synced {
                return waiting;
            }
        }
        if !self.keeps_what_is_committed(&config) {
            waiting
        } else if config.is_writable() {
            GroupState::Idle(device)
        } else {
            GroupState::ReadOnly
        }
    }

    /// A primary whose device is a member no more makes one of the members primary.
    fn hand_over_and_leave(&mut self) {
        let now = self.now;
        let Role::Primary(primary) = &mut self.role else { return };
        if now < primary.leave_at {
            return;
        }
        primary.leave_at = now + HAND_OVER_AGAIN;
        let candidates: Vec<DeviceId> = self.config.in_sync.intersection(&self.config.members).copied().collect();
        // Groups that leave a device together go to different ones.
        let first = self.pg.0 as usize % candidates.len().max(1);
        let (later, sooner) = candidates.split_at(first);
        for device in sooner.iter().chain(later) {
            if self.hand_over(*device) {
                return;
            }
        }
    }

    /// Enough of the copies that would be in sync hold what is committed.
    fn keeps_what_is_committed(&self, config: &GroupConfig) -> bool {
        let Role::Primary(primary) = &self.role else { return false };
        if config.ack == AckRule::All || !primary.is_open() {
            return true;
        }
        let acked = |device: DeviceId| match primary.peers.get(&device) {
            Some(peer) => peer.acked,
            None if device == self.me => self.durable,
            None => Sequence::ZERO,
        };
        config.held_by_rule(&config.in_sync, self.me, acked) >= self.tail.committed()
    }

    /// Under a rule that does not wait for all copies, a reign begins with those that have everything that a new primary
    /// has found, once it has heard enough copies to have found every acknowledged write. The others are left behind.
    pub(crate) fn gather(&mut self) {
        let (now, me, end, low_watermark) = (self.now, self.me, self.tail.end(), self.low_watermark);
        let Role::Primary(primary) = &self.role else { return };
        if self.config.ack == AckRule::All
            || !primary.is_gathering()
            || primary.awaits_predecessor(now)
            || self.proposal.is_some()
        {
            return;
        }
        let heard = |device| device == me || primary.peers.get(&device).is_some_and(|peer| peer.answered);
        let enough = self.config.hears_enough(heard);
        #[cfg(feature = "sabotage")]
        let enough = enough || crate::sabotage::is_hasty();
        if !enough || self.durable < end {
            return;
        }
        let mut config = self.config.next();
        for (device, peer) in &primary.peers {
            let usable = peer.diverged_at.is_none() && !peer.leaving;
            if usable && peer.synced && peer.acked >= end {
                continue;
            }
            // Who has just started does not know how far the others are: to leave one behind would be dear.
            let patience = if low_watermark > Sequence::ZERO { GATHERING } else { GATHERING_AT_START };
            let in_reach = self.connected.contains(device) || low_watermark == Sequence::ZERO;
            #[cfg(feature = "sabotage")]
            let in_reach = in_reach && !crate::sabotage::is_hasty();
            if usable && in_reach && now < primary.began + patience {
                return;
            }
            // How far it is has been heard from it now, or from the primary before.
            config.remove(*device, peer.diverged_at.unwrap_or(peer.acked).max(low_watermark));
        }
        self.propose(config);
    }

    /// A copy that was about to join and fell silent starts anew. Only while no proposal could still make it a member.
    fn drop_failed_joiners(&mut self, now: Duration) {
        let Role::Primary(primary) = &mut self.role else { return };
        primary.peers.retain(|_, peer| {
            let failed = now >= peer.heard + SILENCE || now >= peer.moved + STUCK || peer.diverged_at.is_some();
            !(matches!(peer.standing, Standing::Joining) && failed && peer.named.is_none())
        });
    }
}

/// How long a copy may say nothing to a primary, whose epoch is `open` or not.
fn patience(open: bool) -> Duration {
    if open { SILENCE } else { FIRST_WORD }
}

/// True when a copy makes so little progress that it may be left behind soon: it is not to answer readers by then.
pub(crate) fn is_sluggish(moved: Duration, now: Duration) -> bool {
    readers_until(now) >= moved + STUCK
}

/// Until when a copy may answer readers by itself that was last told a stamp of its own which had arrived at
/// `stamp_arrived`.
pub(crate) fn readers_until(stamp_arrived: Duration) -> Duration {
    stamp_arrived + LEASE + LEASE / SKEW
}
