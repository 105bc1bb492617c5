//! Who is in sync: every change is a proposal that the configuration store accepts or refuses.
//!
//! A copy has at most one proposal under way. What the in-sync set should be is found anew at every
//! [`crate::Group::tick`] from what is known of the copies (`wanted_set.rs`), so a refused proposal needs no memory.
//! Proposals that name another primary are made in `takeover/`.

use super::share::LAGGED_RETRY;
use super::wanted_set::{CopyView, SetView, WantedSet};
use crate::config::GroupConfig;
use crate::context::GroupCx;
use crate::lease::{AFTER_STALL, SILENCE, STUCK, is_recent};
use crate::links::Links;
use crate::primary::peer::{Peer, Standing};
use crate::primary::{Primary, Reign};
use crate::state::GroupState;
use azekura_base::{AckRule, DeviceId, IoStatus, Sequence};
use std::time::Duration;

/// How long a new primary waits for a copy's first word.
const FIRST_WORD: Duration = Duration::from_secs(3);

impl Primary {
    /// Asks the configuration store for a change.
    pub(crate) fn propose(&mut self, cx: &mut GroupCx, config: GroupConfig) {
        if config.in_sync != cx.config.in_sync {
            // 0010, point 1: until the outcome is known, what is enough must be enough in both sets.
            self.proposals_in_doubt.push((config.version, config.in_sync.clone()));
        }
        cx.propose(config);
    }

    /// Another configuration stands: one that this primary has proposed, if it is its `own`.
    pub(crate) fn on_configured(&mut self, cx: &GroupCx, own: bool) {
        let version = cx.config.version;
        self.proposals_in_doubt.retain(|(proposed, _)| *proposed > version);
        if own {
            self.takeover.confirm();
        }
    }

    /// The same primary, other members.
    pub(crate) fn follow_members(&mut self, cx: &mut GroupCx) -> Reign {
        let (me, now) = (cx.me, cx.now);
        for device in cx.config.in_sync.iter().filter(|device| **device != me) {
            self.peer_in_sync(*device, now);
        }
        let config = &cx.config;
        for peer in self.peers.values_mut() {
            // A proposal that would have named it can't be accepted any more.
            peer.named = peer.named.filter(|version| *version > config.version);
        }
        let takeover = &mut self.takeover;
        let retries = &mut self.retries;
        self.peers.retain(|device, peer| match peer.standing {
            Standing::InSync if !config.in_sync.contains(device) => {
                if peer.lags() {
                    retries.put_off(*device, LAGGED_RETRY, now);
                }
                // 0007: nothing is committed without a copy that may still answer readers by itself.
                takeover.wait_for_readers(peer.leases.reads_until());
                false
            }
            Standing::InSync => true,
            // A proposal that names it is of an older version and refused: the device may give its copy up.
            Standing::Joining | Standing::Learning(_) => config.members.contains(device),
        });
        self.repair.follow_members(config);
        if !cx.config.is_writable() {
            // What has no place in the order yet is not to get one.
            self.refuse_unordered(cx, |_| true, IoStatus::ReadOnly);
        }
        self.send_new_epoch_to_all(cx);
        self.try_commit(cx)?;
        self.try_open(cx);
        Ok(())
    }

    /// What is due at every tick: a primary leaves silent copies behind and takes back those that have caught up, asks
    /// those that have not answered, and goes on with what waits for time to pass.
    pub(crate) fn watch_copies(&mut self, cx: &mut GroupCx) -> Reign {
        self.raise_low_watermark(cx);
        self.watch_own_pace(cx);
        self.ask_who_stayed(cx);
        let slow = self.too_slow(cx);
        self.hear_late_answers(cx)?;
        self.note_progress(cx.durable, cx.tail.end(), cx.now);
        self.change_in_sync_set(cx, slow);
        self.hand_over_and_leave(cx);
        self.ask_again(cx);
        self.send_again(cx);
        self.gather(cx);
        self.watch_learners(cx);
        self.give_up_questions(cx);
        self.run_mends(cx);
        self.tick_scrub(cx);
        // What a write waited for may have ended without a word: a copy that was being repaired is gone.
        self.retry_waiting(cx);
        self.try_commit(cx)?;
        self.try_open(cx);
        self.try_invite(cx);
        Ok(())
    }

    /// Asks the copies how far they are that can be reached and have not said so for a while.
    fn ask_again(&mut self, cx: &mut GroupCx) {
        let unanswered = self.unanswered(&cx.links, cx.now);
        unanswered.into_iter().for_each(|device| self.send_new_epoch(cx, device));
    }

    /// Proposes the in-sync set that should be, if that is called for. The copy on `slow` may be left behind.
    fn change_in_sync_set(&mut self, cx: &mut GroupCx, slow: Option<DeviceId>) {
        let (now, writes_wait) = (cx.now, cx.tail.len() > 0);
        let in_use = std::mem::take(&mut self.clients_wait) || writes_wait;
        // A former primary that is out of reach, and that no promise binds this copy to any more, is not waited for.
        let unheard = self.takeover.unheard_predecessor(now).filter(|device| !cx.links.is_up(*device));
        if cx.is_proposing() {
            return;
        }
        let wanted = self.set_view(cx, [slow, unheard], in_use, now).wanted();
        self.name(&wanted);
        if wanted.is_due {
            self.propose(cx, wanted.config);
        } else {
            self.drop_failed_joiners(now);
        }
    }

    /// What the in-sync set depends on. The copies on `unfit` may be left behind whatever else
    /// is known of them.
    fn set_view<'a>(&self, cx: &'a GroupCx, unfit: [Option<DeviceId>; 2], in_use: bool, now: Duration) -> SetView<'a> {
        let open = self.is_open();
        let copy = |(device, peer): (&DeviceId, &Peer)| {
            let failed = peer.has_failed(patience(open), now) || unfit.contains(&Some(*device));
            (*device, CopyView::of(peer, failed, now))
        };
        SetView {
            config: &cx.config,
            me: cx.me,
            durable: cx.durable,
            committed: cx.tail.committed(),
            open,
            gathering: cx.config.ack != AckRule::All && self.is_gathering(),
            in_use,
            busy: is_recent(self.ordered_at, now) && !cx.condition.is_leaving(),
            copies: self.peers.iter().map(copy).collect(),
        }
    }

    /// How a primary is that waits for the copy on `device`. Perhaps only until somebody wants something: this looks at
    /// what [`Primary::watch_copies`] would do then, and does nothing of it.
    pub(crate) fn state_without(&self, cx: &GroupCx, device: DeviceId, now: Duration) -> GroupState {
        let view = self.set_view(cx, [None; 2], true, now);
        let may_change = !view.gathering && !cx.is_proposing();
        match may_change.then(|| view.when_in_use()).flatten() {
            None => GroupState::WaitingForCopy(device),
            Some(config) if config.is_writable() => GroupState::Idle(device),
            Some(_) => GroupState::ReadOnly,
        }
    }

    /// Notes which copies are silent or stuck because they have nothing to say or to do.
    fn note_progress(&mut self, durable: Sequence, end: Sequence, now: Duration) {
        // Until the epoch is recorded no copy promises anything, so one that lacks nothing owes no word.
        let gathers = self.takeover.opens_at().is_none();
        for peer in self.peers.values_mut() {
            if gathers && peer.follows && peer.stream.acked >= end {
                peer.signs.heard = now;
            }
            if peer.stream.acked >= durable.min(peer.stream.sent) {
                peer.signs.moved = now;
            }
        }
    }

    /// This process has stood still until `now`: the copies are given time, and none of them is slow for that.
    pub(crate) fn excuse_copies(&mut self, now: Duration) {
        self.pace.excuse();
        for peer in self.peers.values_mut() {
            peer.signs.heard = peer.signs.heard.max((now + AFTER_STALL).saturating_sub(SILENCE));
            peer.signs.moved = peer.signs.moved.max(now);
            peer.stream.pace.excuse();
            peer.stream.share.excuse(now);
        }
    }

    /// The copies in reach that were asked how far they are, and have not said so for a while.
    fn unanswered(&self, links: &Links, now: Duration) -> Vec<DeviceId> {
        let due = |peer: &Peer| !peer.follows && now >= peer.signs.asked + SILENCE;
        let silent = self.peers.iter().filter(|(device, peer)| links.is_up(**device) && due(peer));
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
            let failed =
                now >= peer.signs.heard + SILENCE || now >= peer.signs.moved + STUCK || peer.diverged_at.is_some();
            !(matches!(peer.standing, Standing::Joining) && failed && peer.named.is_none())
        });
    }
}

/// How long a copy may say nothing to a primary, whose epoch is `open` or not.
fn patience(open: bool) -> Duration {
    if open { SILENCE } else { FIRST_WORD }
}
