//! Who is in sync: every change is a proposal that the configuration store accepts or refuses.
//!
//! A copy has at most one proposal under way. What the in-sync set should be is found anew at every [`Group::tick`]
//! from what is known of the copies (`wanted_set.rs`), so a refused proposal needs no memory. Proposals that name
//! another primary are made in `takeover/`.

use crate::action::Action;
use crate::config::GroupConfig;
use crate::flow::LAGGED_RETRY;
use crate::group::{Group, Role};
use crate::lease::{AFTER_STALL, SILENCE, STUCK};
use crate::leaving::is_recent;
use crate::peer::{Peer, Standing};
use crate::primary::Primary;
use crate::state::GroupState;
use crate::wanted_set::{CopyView, SetView, WantedSet};
use azekura_base::{AckRule, DeviceId, IoStatus, Sequence};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a new primary waits for a copy's first word.
const FIRST_WORD: Duration = Duration::from_secs(3);
impl Group {
    /// The cluster's configuration of this group, as last read.
    pub fn configure(&mut self, config: GroupConfig) {
        if config.version > self.config.version {
            let own = self.proposal.as_ref() == Some(&config);
            self.adopt(config, own);
        }
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
            self.claim.take_if(|claim| claim.epoch() == proposal.epoch);
        }
    }

    /// Asks the configuration store for a change: the next version, if what stands is still what this copy knows.
    pub(crate) fn propose(&mut self, config: GroupConfig) {
        if let Role::Primary(primary) = &mut self.role
            && config.in_sync != self.config.in_sync
        {
            // 0010, point 1: until the outcome is known, what is enough must be enough in both sets.
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
            if own {
                primary.takeover.confirm();
            }
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
        self.claim.take_if(|claim| claim.epoch() <= self.config.epoch);
        if self.config.primary == self.me && !reigning && self.proposal.is_none() && !self.leaving && !self.hung {
            self.claim(false);
        }
        self.try_inherit();
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
        let takeover = &mut primary.takeover;
        let retries = &mut primary.retries;
        primary.peers.retain(|device, peer| match peer.standing {
            Standing::InSync if !config.in_sync.contains(device) => {
                if peer.lags() {
                    retries.put_off(*device, LAGGED_RETRY, now);
                }
                // 0007: nothing is committed without a copy that may still answer readers by itself.
                takeover.wait_for_readers(peer.reads_until);
                false
            }
            Standing::InSync => true,
            // A proposal that names it is of an older version and refused: the device may give its copy up.
            Standing::Joining | Standing::Learning(_) => config.members.contains(device),
        });
        primary.ahead.retain(|device, _| config.members.contains(device) && !config.in_sync.contains(device));
        if !self.config.is_writable() {
            // What has no place in the order yet is not to get one.
            self.refuse_unordered(|_| true, IoStatus::ReadOnly);
        }
        self.greet_all();
        self.try_commit();
        self.try_open();
    }

    /// What is due at every tick: a primary leaves silent copies behind and takes back those that have caught up, asks
    /// those that have not answered, and goes on with what waits for time to pass.
    pub(crate) fn watch_copies(&mut self, stalled: bool) {
        let (now, durable) = (self.now, self.durable);
        self.raise_low_watermark();
        self.watch_own_pace();
        let Group { role: Role::Primary(primary), config, connected, departed, actions, .. } = self else { return };
        primary.ask_who_stayed(connected, departed, now);
        let slow = primary.too_slow(config, departed, actions, now);
        self.hear_late_answers();
        // What was heard may have made another copy primary.
        let Some(primary) = self.primary_mut() else { return };
        primary.note_progress(stalled, durable, now);
        self.change_in_sync_set(slow);
        self.hand_over_and_leave();
        self.ask_again();
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

    /// Asks the copies how far they are that can be reached and have not said so for a while.
    fn ask_again(&mut self) {
        let unanswered = self.primary().map(|primary| primary.unanswered(&self.connected, self.now));
        unanswered.into_iter().flatten().for_each(|device| self.greet(device));
    }

    /// Proposes the in-sync set that should be, if that is called for. The copy on `slow` may be left behind.
    fn change_in_sync_set(&mut self, slow: Option<DeviceId>) {
        let (now, writes_wait) = (self.now, self.tail.len() > 0);
        let Some(primary) = self.primary_mut() else { return };
        let in_use = std::mem::take(&mut primary.clients_wait) || writes_wait;
        // A former primary that is out of reach, and that no promise binds this copy to any more, is not waited for.
        let unheard = primary.takeover.unheard_predecessor(now).filter(|device| !self.connected.contains(device));
        let wanted = self.set_view([slow, unheard], in_use, now).map(|view| view.wanted());
        if self.proposal.is_some() {
            return;
        }
        let (Some(wanted), Some(primary)) = (wanted, self.primary_mut()) else { return };
        primary.name(&wanted);
        if wanted.is_due {
            self.propose(wanted.config);
        } else {
            primary.drop_failed_joiners(now);
        }
    }

    /// What the in-sync set depends on; `None` on a secondary. The copies on `unfit` may be left behind whatever else
    /// is known of them.
    fn set_view(&self, unfit: [Option<DeviceId>; 2], in_use: bool, now: Duration) -> Option<SetView<'_>> {
        let primary = self.primary()?;
        let open = primary.is_open();
        let copy = |(device, peer): (&DeviceId, &Peer)| {
            let failed = peer.has_failed(patience(open), now) || unfit.contains(&Some(*device));
            (*device, CopyView::of(peer, failed, now))
        };
        Some(SetView {
            config: &self.config,
            me: self.me,
            durable: self.durable,
            committed: self.tail.committed(),
            open,
            gathering: self.config.ack != AckRule::All && primary.is_gathering(),
            in_use,
            busy: is_recent(primary.ordered_at, now) && !self.leaving,
            copies: primary.peers.iter().map(copy).collect(),
        })
    }

    /// How a primary is that waits for the copy on `device`. Perhaps only until somebody wants something: this looks at
    /// what [`Group::watch_copies`] would do then, and does nothing of it.
    pub(crate) fn state_without(&self, device: DeviceId, now: Duration) -> GroupState {
        let view = self.set_view([None; 2], true, now).filter(|view| !view.gathering && self.proposal.is_none());
        match view.and_then(|view| view.when_in_use()) {
            None => GroupState::WaitingForCopy(device),
            Some(config) if config.is_writable() => GroupState::Idle(device),
            Some(_) => GroupState::ReadOnly,
        }
    }
}

impl Primary {
    /// Notes which copies are silent or stuck for this process's own sake, or because they have nothing to do.
    fn note_progress(&mut self, stalled: bool, durable: Sequence, now: Duration) {
        for peer in self.peers.values_mut() {
            if stalled {
                peer.heard = peer.heard.max((now + AFTER_STALL).saturating_sub(SILENCE));
                peer.moved = peer.moved.max(now);
            }
            if peer.acked >= durable.min(peer.sent) {
                peer.moved = now;
            }
        }
    }

    /// The copies in reach that were asked how far they are, and have not said so for a while.
    fn unanswered(&self, connected: &BTreeSet<DeviceId>, now: Duration) -> Vec<DeviceId> {
        let due = |peer: &Peer| !peer.synced && now >= peer.asked + SILENCE;
        let silent = self.peers.iter().filter(|(device, peer)| connected.contains(device) && due(peer));
        silent.map(|(device, _)| *device).collect()
    }

    /// A proposal may name these copies in sync from now on.
    fn name(&mut self, wanted: &WantedSet) {
        for device in &wanted.joins {
            if let Some(peer) = self.peers.get_mut(device) {
                peer.named = Some(wanted.config.version);
            }
        }
    }

    /// A copy that was about to join and fell silent starts anew. Only while no proposal could still make it a member.
    fn drop_failed_joiners(&mut self, now: Duration) {
        self.peers.retain(|_, peer| {
            let failed = now >= peer.heard + SILENCE || now >= peer.moved + STUCK || peer.diverged_at.is_some();
            !(matches!(peer.standing, Standing::Joining) && failed && peer.named.is_none())
        });
    }
}

/// How long a copy may say nothing to a primary, whose epoch is `open` or not.
fn patience(open: bool) -> Duration {
    if open { SILENCE } else { FIRST_WORD }
}
