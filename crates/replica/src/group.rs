//! The group itself: who plays which role, what every message and completion goes to, and how roles change.

mod completions;
mod messages;
mod questions;

use crate::action::Action;
use crate::config::GroupConfig;
use crate::context::GroupCx;
use crate::pace::Yields;
use crate::primary::{Primary, Reign};
use crate::recovered::Recovered;
use crate::roll::NodeRoll;
use crate::secondary::Secondary;
use crate::window::Window;
use azekura_base::{DeviceId, PgId};
use std::sync::Arc;
use std::time::Duration;

/// After a pause of this length between two ticks, silence says more about this process than about others.
const STALL: Duration = Duration::from_millis(400);

/// What a copy is to the others.
enum Role {
    Primary(Box<Primary>),
    Secondary(Box<Secondary>),
}

/// One copy of one placement group.
///
/// # How it is driven
/// The owner calls [`Group::advance`] with the time, then one method: for a message (`group/messages.rs`), for a
/// completion of an earlier action (`group/completions.rs`), for a change of the configuration ([`Group::configure`],
/// [`Group::proposal_done`]) or for the passing of time ([`Group::tick`]). After each it takes the [`Action`]s out
/// ([`Group::next_action`]) and performs them in their order. A group never waits and never calls back; what it has to
/// wait for comes as a later call.
///
/// # Its states
/// ```text
///                 the configuration names this process, as it has claimed
///    Secondary ─────────────────── become_primary ──────────────────────────► Primary
///        ▲                                                                      │
///        └──────────────────────── become_secondary ────────────────────────────┘
///                 a later epoch is heard of, or the configuration names another process;
///                 or the primary itself has proposed another copy (`Deposed`)
/// ```
/// A group begins as a secondary, whatever the configuration says. What each role goes through is drawn at its type,
/// and the way from the one to the other in `takeover/`. What survives a change of roles is in the context: the log's
/// place, the epochs and promises, the configuration, sessions, connections. All else ends with its role, with whoever
/// waits for it sent to ask again.
///
/// # Costs
/// A call is one match on the role and one method of it. Roles are boxed, and made anew only when they change. An
/// action is a value in a queue: blocks in it are shared, not copied.
pub struct Group {
    cx: GroupCx,
    role: Role,
    /// When [`Group::tick`] was last called.
    ticked: Duration,
    /// This process has stood still since then, and others were given time for that.
    stood_still: bool,
}

impl Group {
    /// The copy on device `me`, as the store found it at time `now`; follows `config` from here on. `incarnation` is
    /// one that no earlier process of this copy had, and not 0.
    #[must_use]
    pub fn new(
        pg: PgId,
        me: DeviceId,
        incarnation: u64,
        config: GroupConfig,
        recovered: Recovered,
        now: Duration,
    ) -> Group {
        let cx = GroupCx::recovered(pg, me, incarnation, config, &recovered, now);
        let mut group =
            Group { cx, role: Role::Secondary(Box::new(Secondary::new(now))), ticked: now, stood_still: false };
        if group.cx.config.primary == me && !group.cx.completeness.is_unproven() {
            group.as_secondary(|secondary, cx| secondary.claim(cx, false));
        }
        group
    }

    /// The next thing to do, in order.
    pub fn next_action(&mut self) -> Option<Action> {
        self.cx.next_action()
    }

    /// Lets the primary do something, if this copy is one.
    fn as_primary<R>(&mut self, act: impl FnOnce(&mut Primary, &mut GroupCx) -> R) -> Option<R> {
        match &mut self.role {
            Role::Primary(primary) => Some(act(primary, &mut self.cx)),
            Role::Secondary(_) => None,
        }
    }

    /// Lets the primary do something that may end its reign: then this copy is a secondary, and the primary has said
    /// all that was to be said (it has resigned).
    fn reign(&mut self, act: impl FnOnce(&mut Primary, &mut GroupCx) -> Reign) {
        if let Role::Primary(primary) = &mut self.role
            && act(primary, &mut self.cx).is_err()
        {
            self.role = Role::Secondary(Box::new(Secondary::after(primary.ordered_at(), self.cx.now)));
        }
    }

    /// Lets the secondary do something, if this copy is one.
    fn as_secondary<R>(&mut self, act: impl FnOnce(&mut Secondary, &mut GroupCx) -> R) -> Option<R> {
        match &mut self.role {
            Role::Primary(_) => None,
            Role::Secondary(secondary) => Some(act(secondary, &mut self.cx)),
        }
    }

    /// This copy is a secondary from here on, and follows nobody yet.
    fn become_secondary(&mut self) {
        let ordered_at = match &mut self.role {
            Role::Primary(primary) => {
                primary.resign(&mut self.cx);
                primary.ordered_at()
            }
            Role::Secondary(secondary) => secondary.ordered_at(),
        };
        self.role = Role::Secondary(Box::new(Secondary::after(ordered_at, self.cx.now)));
    }

    /// The configuration names this process, as it has claimed: the copy is primary from here on, and serves nobody
    /// yet.
    fn become_primary(&mut self) {
        let Role::Secondary(secondary) = &mut self.role else { return };
        let Some((epoch, takeover)) = secondary.take_over(&self.cx) else { return };
        let primary = Primary::new(epoch, takeover, secondary.ordered_at(), &self.cx);
        self.cx.condition.set_yields(Yields::default());
        self.role = Role::Primary(Box::new(primary));
        self.reign(Primary::begin_gathering);
    }

    /// The copy is given up, because its device has failed: whoever waits here is sent to ask again.
    pub fn close(&mut self) {
        self.become_secondary();
    }

    /// The cluster's configuration of this group, as last read.
    pub fn configure(&mut self, config: GroupConfig) {
        if config.version > self.cx.config.version {
            let own = self.cx.proposal() == Some(&config);
            self.adopt(config, own);
        }
    }

    /// The nodes that there are, and those that there were: to be told before the configuration of the same moment.
    /// Which writes of nodes that are gone are committed is forgotten; what still comes from those nodes is refused.
    pub fn follow_nodes(&mut self, roll: Arc<NodeRoll>) {
        self.cx.sessions.follow(roll.clone());
        self.as_primary(|primary, cx| primary.refuse_gone(cx, &roll));
    }

    /// Remembers the committed writes of so many gateways ([`crate::SESSIONS_MAX`] at most); writes of further ones are
    /// asked to come again.
    pub fn limit_sessions(&mut self, limit: usize) {
        self.cx.sessions.set_limit(limit);
    }

    /// The outcome of [`Action::Propose`]: true when the proposed configuration now stands. When false, what stands
    /// instead comes by [`Group::configure`].
    pub fn proposal_done(&mut self, version: u64, accepted: bool) {
        let Some(proposal) = self.cx.take_proposal(version) else { return };
        if !accepted {
            self.as_secondary(|secondary, _| secondary.on_claim_refused(proposal.epoch));
        } else if proposal.version > self.cx.config.version {
            self.adopt(proposal, true);
        }
    }

    fn adopt(&mut self, config: GroupConfig, own: bool) {
        self.cx.adopt(config);
        self.as_primary(|primary, cx| primary.on_configured(cx, own));
        self.cx.follow_completeness();
        let reigning = self.cx.is_named_primary();
        match &mut self.role {
            Role::Primary(primary) if reigning && primary.epoch() == self.cx.config.epoch => {
                self.reign(Primary::follow_members);
            }
            Role::Primary(_) => self.become_secondary(),
            Role::Secondary(_) if reigning => self.become_primary(),
            Role::Secondary(_) => {}
        }
        self.as_secondary(|secondary, cx| secondary.on_configured(cx, reigning));
    }

    /// The time is `now`: to be called before the group is told of anything.
    pub fn advance(&mut self, now: Duration) {
        self.cx.now = self.cx.now.max(now);
        // Before anything that has waited for this process is heard: silence is judged by that, too.
        if !self.stood_still && self.cx.now.saturating_sub(self.ticked) > STALL {
            self.stood_still = true;
            self.excuse_others();
        }
    }

    /// This process has stood still: others are not to blame for what they have not said meanwhile.
    fn excuse_others(&mut self) {
        let now = self.cx.now;
        match &mut self.role {
            Role::Primary(primary) => primary.excuse_copies(now),
            Role::Secondary(secondary) => secondary.excuse_primary(now),
        }
    }

    /// Time passes: to be called every [`crate::TICK`] or so. Silent copies are left behind, a silent primary is
    /// replaced.
    pub fn tick(&mut self, now: Duration) {
        self.advance(now);
        self.ticked = self.cx.now;
        if std::mem::take(&mut self.stood_still) {
            self.excuse_others();
        }
        self.give_way();
        match &mut self.role {
            Role::Primary(_) => self.reign(Primary::watch_copies),
            Role::Secondary(secondary) => secondary.watch_primary(&mut self.cx),
        }
    }

    /// While the device hangs, or is slow: another copy is to reign, and no primary is to wait for this one.
    fn give_way(&mut self) {
        match &mut self.role {
            Role::Primary(_) => self.reign(Primary::give_way),
            Role::Secondary(secondary) => secondary.give_way(&mut self.cx),
        }
    }

    /// What will be on its way to the copy on `device` counts in this window: to be called before [`Group::peer_up`].
    pub fn share_window(&mut self, device: DeviceId, window: Window) {
        self.cx.links.share_window(device, window);
    }

    /// The connection to the node that has `device` is up, and what was sent before is gone.
    pub fn peer_up(&mut self, device: DeviceId) {
        self.cx.links.up(device);
        self.as_primary(|primary, cx| primary.on_peer_up(cx, device));
    }

    /// The connection to the node that has `device` is gone.
    pub fn peer_down(&mut self, device: DeviceId) {
        self.cx.links.down(device);
        self.reign(|primary, cx| primary.on_peer_down(cx, device));
    }

    /// This copy's device does, or does not, take more data.
    pub fn set_full(&mut self, full: bool) {
        self.cx.condition.set_full(full);
    }

    /// This copy's device does not answer, or answers again.
    pub fn set_hung(&mut self, hung: bool) {
        self.cx.condition.set_hung(hung);
        if hung {
            self.as_secondary(|secondary, _| secondary.void_lease());
        }
        self.give_way();
    }

    /// This copy's device, which does not answer, is out of service for that, or is no longer: then nobody waits for
    /// this copy, even where too few stay in sync for writing.
    pub fn set_out(&mut self, out: bool) {
        self.cx.condition.set_out(out);
        self.give_way();
    }

    /// The clock may have stood still (decision 0022), so nothing is known of the time that has passed since the leases
    /// of this copy began: they are over, as primary and for readers.
    pub fn void_leases(&mut self) {
        match &mut self.role {
            Role::Primary(primary) => primary.void_leases(),
            Role::Secondary(secondary) => secondary.void_lease(),
        }
    }

    /// The process is about to end: another copy is to reign, and the primary need not wait until this one is missed.
    /// True while there is something left to do that could succeed.
    pub fn leave(&mut self) -> bool {
        self.cx.condition.leave();
        match &mut self.role {
            Role::Primary(primary) => primary.leave(&mut self.cx),
            Role::Secondary(secondary) => secondary.leave(&mut self.cx),
        }
    }

    /// Asks another in-sync copy to claim the group; until that copy reigns, everything goes on here. False when that
    /// can't be tried now.
    pub fn hand_over(&mut self, to: DeviceId) -> bool {
        self.as_primary(|primary, cx| primary.hand_over(cx, to)).unwrap_or(false)
    }
}
