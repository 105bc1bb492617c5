//! What the in-sync set should be: a function of what a primary knows of the copies, and of nothing else.
//!
//! `members.rs` looks at the copies ([`SetView`]), asks here, and proposes the outcome; decision 0007 argues for the
//! rules, 0010 for those of rules that do not wait for all copies, and 0008 for copies that are members no more.

use super::peer::{Peer, Standing};
use crate::config::GroupConfig;
use azekura_base::{AckRule, DeviceId, Sequence};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a copy stands to the primary: [`Standing`], without what is under way for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    InSync,
    Joining,
    Learning,
}

/// What the in-sync set depends on of one other copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyView {
    kind: Kind,
    /// The copy follows the epoch on the present connection.
    follows: bool,
    /// The copy may be left behind: it is silent, stuck, slow, about to stop, or lags too far.
    failed: bool,
    /// The copy's log is not the primary's beyond this place.
    diverged_at: Option<Sequence>,
    /// Everything up to here is durable there.
    acked: Sequence,
    /// The copy has promised to follow nobody else.
    leased: bool,
    /// The copy may still answer readers by itself.
    reads: bool,
    /// The copy has said that it is about to stop, or to be given up.
    leaving: bool,
    /// The copy joins, and a proposal whose outcome is not known names it in sync.
    named: bool,
}

impl CopyView {
    /// What a primary knows of `peer` at `now`; `failed` says that the copy may be left behind.
    pub(crate) fn of(peer: &Peer, failed: bool, now: Duration) -> CopyView {
        CopyView {
            kind: match peer.standing {
                Standing::InSync => Kind::InSync,
                Standing::Joining => Kind::Joining,
                Standing::Learning(_) => Kind::Learning,
            },
            follows: peer.follows,
            failed,
            diverged_at: peer.diverged_at,
            acked: peer.stream.acked,
            leased: now < peer.leases.lease_until,
            reads: now < peer.leases.reads_until(),
            leaving: peer.leaving,
            named: peer.named.is_some(),
        }
    }

    /// The copy is of no use as it is.
    fn is_unfit(&self) -> bool {
        self.failed || self.diverged_at.is_some()
    }
}

/// What the in-sync set depends on.
#[derive(Clone, Debug)]
pub(crate) struct SetView<'a> {
    pub(crate) config: &'a GroupConfig,
    pub(crate) me: DeviceId,
    /// Everything up to here is durable on the primary.
    pub(crate) durable: Sequence,
    pub(crate) committed: Sequence,
    /// The epoch is open.
    pub(crate) open: bool,
    /// A take-over decides who stays (`takeover/gathering.rs`): nobody is left behind for another reason meanwhile.
    pub(crate) gathering: bool,
    /// Somebody has asked for something and was not served, or a write waits.
    pub(crate) in_use: bool,
    /// Writes have come until a moment ago, and will again.
    pub(crate) busy: bool,
    pub(crate) copies: BTreeMap<DeviceId, CopyView>,
}

/// The next configuration, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedSet {
    pub(crate) config: GroupConfig,
    /// Copies that it names in sync and that are not so yet.
    pub(crate) joins: Vec<DeviceId>,
    /// The configuration is to be proposed now.
    pub(crate) is_due: bool,
}

impl SetView<'_> {
    /// What the in-sync set should be, and whether that is to be proposed now.
    pub(crate) fn wanted(&self) -> WantedSet {
        let mut config = self.without_unfit();
        let joins: Vec<DeviceId> =
            self.copies.iter().filter(|(_, copy)| self.may_join(copy)).map(|(device, _)| *device).collect();
        for device in &joins {
            config.in_sync.insert(*device);
            config.away.remove(device);
        }
        // Whether an earlier proposal has named a copy that failed since is known when the next proposal is decided.
        let in_doubt =
            |copy: &CopyView| copy.kind == Kind::Joining && !self.may_join(copy) && copy.failed && copy.named;
        let changes = config.in_sync != self.config.in_sync && self.is_called_for(&config);
        let is_due = (changes || self.copies.values().any(in_doubt)) && self.keeps_what_is_committed(&config);
        WantedSet { config, joins, is_due }
    }

    /// What stays in sync when the next request leaves unfit copies behind; `None` if a copy that would stay is not
    /// there.
    pub(crate) fn when_in_use(&self) -> Option<GroupConfig> {
        let missing = |copy: &CopyView| copy.kind != Kind::Learning && !copy.follows && !self.is_left_behind(copy);
        let config = self.without_unfit();
        (!self.copies.values().any(missing) && self.keeps_what_is_committed(&config)).then_some(config)
    }

    /// The next configuration without the copies that are to be left behind.
    fn without_unfit(&self) -> GroupConfig {
        let mut config = self.config.next();
        for (device, copy) in self.copies.iter().filter(|(_, copy)| self.is_left_behind(copy)) {
            // Under `all`, whatever is committed the copy had acknowledged; under other rules perhaps not.
            let known = if self.waits_for_all() { self.committed } else { copy.acked };
            config.remove(*device, copy.diverged_at.unwrap_or(known).min(self.committed));
        }
        config
    }

    /// 0007: not while the copy may answer readers. A silent copy's lease ends on its own, and other copies get no more
    /// of it when it is time.
    fn is_left_behind(&self, copy: &CopyView) -> bool {
        copy.kind == Kind::InSync && copy.is_unfit() && !copy.reads && !self.gathering
    }

    /// Invariant 4, 0007: what was acknowledged while nothing waited for the copy must be durable on it, too; and the
    /// copy counts for leases from the proposal on, so the copy must have given a lease.
    fn may_join(&self, copy: &CopyView) -> bool {
        let fit = copy.follows && copy.acked >= self.committed && copy.leased && !copy.leaving;
        copy.kind == Kind::Joining && fit
    }

    /// There is a reason to change the in-sync set to the one of `config` now: a cluster that is shut down node by node
    /// keeps all its copies in sync (0007).
    fn is_called_for(&self, config: &GroupConfig) -> bool {
        let grows = config.in_sync.difference(&self.config.in_sync).next().is_some();
        self.is_awaited() || grows || self.relieves(config)
    }

    /// Somebody waits for copies to be left behind, or is about to.
    fn is_awaited(&self) -> bool {
        // What is written to now and then would wait for a copy that takes leave when the next write comes.
        let parting = self.busy && self.copies.values().any(|copy| copy.leaving);
        // Only what is left behind is brought up to date.
        let diverged = self.copies.values().any(|copy| copy.diverged_at.is_some());
        let lacking = self.copies.values().any(|copy| copy.is_unfit() && copy.acked < self.committed);
        self.in_use || parting || diverged || lacking && !self.waits_for_all()
    }

    /// 0008: a copy that is a member no more goes when its replacement is there, whether or not anybody wants anything;
    /// and when an epoch can't open without it, since only an open epoch brings replacements up to date.
    fn relieves(&self, config: &GroupConfig) -> bool {
        let enough = config.in_sync.len() >= config.members.len() || !self.open;
        enough && self.config.in_sync.difference(&config.in_sync).any(|device| !config.members.contains(device))
    }

    /// 0010, point 1: enough of the copies that would be in sync hold what is committed.
    fn keeps_what_is_committed(&self, config: &GroupConfig) -> bool {
        if self.waits_for_all() || !self.open {
            return true;
        }
        let acked = |device: DeviceId| match self.copies.get(&device) {
            Some(copy) => copy.acked,
            None if device == self.me => self.durable,
            None => Sequence::ZERO,
        };
        config.held_by_rule(&config.in_sync, self.me, acked) >= self.committed
    }

    fn waits_for_all(&self) -> bool {
        self.config.ack == AckRule::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const WELL: CopyView = CopyView {
        kind: Kind::InSync,
        follows: true,
        failed: false,
        diverged_at: None,
        acked: Sequence(20),
        leased: true,
        reads: false,
        leaving: false,
        named: false,
    };
    const SILENT: CopyView = CopyView { follows: false, failed: true, leased: false, ..WELL };
    const JOINS: CopyView = CopyView { kind: Kind::Joining, ..WELL };

    fn set(devices: &[u32]) -> BTreeSet<DeviceId> {
        devices.iter().copied().map(DeviceId).collect()
    }

    /// Three copies, the first of them primary and up to place 20; `in_sync` are in sync by the configuration.
    fn config(ack: AckRule, in_sync: &[u32]) -> GroupConfig {
        GroupConfig { ack, in_sync: set(in_sync), ..GroupConfig::new(DeviceId(1), set(&[1, 2, 3])) }
    }

    fn view<'a>(config: &'a GroupConfig, copies: &[(u32, CopyView)]) -> SetView<'a> {
        SetView {
            config,
            me: DeviceId(1),
            durable: Sequence(20),
            committed: Sequence(20),
            open: true,
            gathering: false,
            in_use: false,
            busy: false,
            copies: copies.iter().map(|(device, copy)| (DeviceId(*device), *copy)).collect(),
        }
    }

    /// The in-sync set that is proposed, if one is.
    fn proposed(view: &SetView) -> Option<Vec<u32>> {
        let wanted = view.wanted();
        wanted.is_due.then(|| wanted.config.in_sync.iter().map(|device| device.0).collect())
    }

    #[test]
    fn who_is_wanted_in_sync_under_all() {
        let (three, two) = (config(AckRule::All, &[1, 2, 3]), config(AckRule::All, &[1, 2]));
        let former = GroupConfig { members: set(&[1, 2, 4]), ..config(AckRule::All, &[1, 2, 3, 4]) };
        let lacking = GroupConfig { members: set(&[1, 2, 4]), ..three.clone() };
        let leaves = CopyView { failed: true, leaving: true, ..WELL };
        let diverged = CopyView { diverged_at: Some(Sequence(7)), ..WELL };
        let cases: Vec<(&str, SetView, Option<Vec<u32>>)> = vec![
            ("all are well", SetView { in_use: true, ..view(&three, &[(2, WELL), (3, WELL)]) }, None),
            ("one is silent, and nobody asks", view(&three, &[(2, WELL), (3, SILENT)]), None),
            (
                "one is silent, and somebody asks",
                SetView { in_use: true, ..view(&three, &[(2, WELL), (3, SILENT)]) },
                Some(vec![1, 2]),
            ),
            (
                "it may answer readers",
                SetView { in_use: true, ..view(&three, &[(2, WELL), (3, CopyView { reads: true, ..SILENT })]) },
                None,
            ),
            ("both are silent", SetView { in_use: true, ..view(&three, &[(2, SILENT), (3, SILENT)]) }, Some(vec![1])),
            ("one leaves an idle group", view(&three, &[(2, WELL), (3, leaves)]), None),
            (
                "one leaves a busy group",
                SetView { busy: true, ..view(&three, &[(2, WELL), (3, leaves)]) },
                Some(vec![1, 2]),
            ),
            ("one has lost writes", view(&three, &[(2, WELL), (3, diverged)]), Some(vec![1, 2])),
            ("one joins", view(&two, &[(2, WELL), (3, JOINS)]), Some(vec![1, 2, 3])),
            ("it lacks something", view(&two, &[(2, WELL), (3, CopyView { acked: Sequence(19), ..JOINS })]), None),
            ("it has promised nothing", view(&two, &[(2, WELL), (3, CopyView { leased: false, ..JOINS })]), None),
            ("it takes leave", view(&two, &[(2, WELL), (3, CopyView { leaving: true, ..JOINS })]), None),
            ("it is not there", view(&two, &[(2, WELL), (3, CopyView { follows: false, ..JOINS })]), None),
            ("one joins and one is silent", view(&two, &[(2, SILENT), (3, JOINS)]), Some(vec![1, 3])),
            (
                "one that failed was perhaps named",
                view(&two, &[(2, WELL), (3, CopyView { kind: Kind::Joining, named: true, ..SILENT })]),
                Some(vec![1, 2]),
            ),
            (
                "one that learns is silent",
                SetView { in_use: true, ..view(&two, &[(2, WELL), (3, CopyView { kind: Kind::Learning, ..SILENT })]) },
                None,
            ),
            (
                "a former member leaves, its replacement is there",
                view(&former, &[(2, WELL), (3, leaves), (4, WELL)]),
                Some(vec![1, 2, 4]),
            ),
            ("its replacement is not there", view(&lacking, &[(2, WELL), (3, leaves)]), None),
            (
                "the epoch can't open without it",
                SetView { open: false, ..view(&lacking, &[(2, WELL), (3, SILENT)]) },
                Some(vec![1, 2]),
            ),
        ];
        for (what, view, expected) in cases {
            assert_eq!(proposed(&view), expected, "{what}");
        }
    }

    #[test]
    fn who_is_wanted_in_sync_under_majority() {
        let three = config(AckRule::Majority, &[1, 2, 3]);
        let behind = CopyView { acked: Sequence(15), ..WELL };
        let silent = CopyView { acked: Sequence(15), ..SILENT };
        let cases = [
            ("a silent copy lacks something", view(&three, &[(2, WELL), (3, silent)]), Some(vec![1, 2])),
            ("a silent copy lacks nothing", view(&three, &[(2, WELL), (3, SILENT)]), None),
            ("those that would stay lack something", view(&three, &[(2, behind), (3, SILENT)]), None),
            ("a take-over decides", SetView { gathering: true, ..view(&three, &[(2, WELL), (3, silent)]) }, None),
        ];
        for (what, view, expected) in cases {
            let view = SetView { committed: Sequence(20), ..view };
            assert_eq!(proposed(&view), expected, "{what}");
        }
        let alone = SetView { in_use: true, ..view(&three, &[(2, behind), (3, SILENT)]) };
        assert_eq!(proposed(&alone), None, "the second copy does not hold what is committed");
    }

    #[test]
    fn how_far_a_copy_that_is_left_behind_is_known_to_be() {
        let away = |ack, copy| {
            let config = config(ack, &[1, 2, 3]);
            view(&config, &[(2, WELL), (3, copy)]).wanted().config.away.get(&DeviceId(3)).copied()
        };
        let lags = CopyView { acked: Sequence(15), ..SILENT };
        assert_eq!(away(AckRule::All, lags), Some(Sequence(20)), "nothing was committed without it");
        assert_eq!(away(AckRule::Majority, lags), Some(Sequence(15)));
        let diverged = CopyView { diverged_at: Some(Sequence(7)), ..WELL };
        assert_eq!(away(AckRule::All, diverged), Some(Sequence(7)));
        assert_eq!(away(AckRule::All, CopyView { diverged_at: Some(Sequence(30)), ..WELL }), Some(Sequence(20)));
        assert_eq!(away(AckRule::All, WELL), None);
    }

    #[test]
    fn what_stays_when_somebody_asks() {
        let three = config(AckRule::All, &[1, 2, 3]);
        let stays = |copies: &[(u32, CopyView)]| view(&three, copies).when_in_use().map(|config| config.in_sync);
        assert_eq!(stays(&[(2, WELL), (3, SILENT)]), Some(set(&[1, 2])));
        assert_eq!(stays(&[(2, SILENT), (3, SILENT)]), Some(set(&[1])));
        // Copy 2 has been silent for a moment only.
        assert_eq!(stays(&[(2, CopyView { failed: false, ..SILENT }), (3, SILENT)]), None);
        let majority = config(AckRule::Majority, &[1, 2, 3]);
        let behind = CopyView { acked: Sequence(15), ..WELL };
        assert_eq!(view(&majority, &[(2, behind), (3, SILENT)]).when_in_use(), None, "too few hold what is committed");
    }
}
