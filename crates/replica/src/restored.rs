//! With whom a group opens again after the configuration was restored from a backup.
//!
//! The in-sync set of a restored configuration may be long out of date: a copy in that set may have been left behind
//! since, or given up. So nothing is believed but what the copies themselves have recorded. All of them must have
//! spoken, and none of them runs the group meanwhile. Decision 0019 argues why nothing acknowledged is lost.

use crate::config::GroupConfig;
use azekura_base::{AckRule, DeviceId, Epoch, Sequence};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a device holds of a group, as its log has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The last epoch that is recorded.
    pub epoch: Epoch,
    /// Everything up to here is committed.
    pub committed: Sequence,
    /// The last prepared write.
    pub prepared: Sequence,
    /// Nothing is missing up to here; less than `committed` on a copy that was being brought up to date.
    pub complete: Sequence,
}

impl Held {
    fn is_complete(&self) -> bool {
        self.complete >= self.committed
    }

    /// Of two copies of one history, the one with more has the higher place.
    fn place(&self) -> (Epoch, Sequence) {
        (self.epoch, self.prepared)
    }
}

/// What is known when a group is to open again.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The copies that there are, on members or not. Devices that have spoken and hold nothing are left out.
    pub held: BTreeMap<DeviceId, Held>,
    /// Devices that nobody waits for: what they hold does not count, and is to be given up.
    pub without: BTreeSet<DeviceId>,
    /// Nothing shows that the group was opened with the configuration that went back. So the copies are beginnings of
    /// one history, and what a shorter one has is right.
    pub one_history: bool,
}

/// Two copies can't both be right: one has committed what the other, of a later epoch, never had. Or one that lacks
/// something has the end of the order alone, where not all copies have to hold a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The copy of the latest epoch.
    pub latest: DeviceId,
    /// The copy that has committed more, or prepared more.
    pub ahead: DeviceId,
}

/// The configuration with which a group opens again: in sync are the copies of the latest recorded epoch that have
/// everything which the furthest of them has prepared. That one orders writes.
///
/// What is prepared counts, not what is recorded as committed. The furthest copy may have been alone in sync in the
/// configuration that is lost, and then have had a write acknowledged whose commit its log does not tell yet. A copy
/// without that write must not take over alone.
///
/// # Errors
/// When copies contradict each other: people must say which counts.
pub fn reopen(config: &GroupConfig, heard: &Heard) -> Result<GroupConfig, Contradiction> {
    let held: BTreeMap<DeviceId, Held> =
        heard.held.iter().filter(|(device, _)| !heard.without.contains(device)).map(|(d, held)| (*d, *held)).collect();
    let prefers = |device: &DeviceId| (*device == config.primary, config.in_sync.contains(device), Reverse(*device));
    let best = |complete: bool| {
        let usable = held.iter().filter(move |(_, held)| held.is_complete() || !complete);
        usable.max_by_key(|(device, held)| (held.place(), prefers(device)))
    };
    let mut next = config.next();
    next.primary_incarnation = None;
    next.epoch = config.epoch.next();
    next.away.clear();
    next.members.retain(|device| !heard.without.contains(device));
    next.leaving.extend(held.keys().chain(&heard.without));
    // A copy that was being brought up to date is used only if there is no other.
    let Some((primary, furthest)) = best(true).or_else(|| best(false)) else {
        // Nothing was ever written, or what was is with devices that do not count.
        next.in_sync = next.members.clone();
        next.primary = next.in_sync.first().copied().unwrap_or(config.primary);
        next.leaving.retain(|device| !next.members.contains(device));
        return Ok(next);
    };
    // Under other rules than `all`, what a copy has prepared may be acknowledged though the furthest complete one lacks
    // it, and though that copy was named in sync by a configuration that is lost.
    let is_ahead = |other: &Held| {
        other.committed > furthest.prepared || config.ack != AckRule::All && other.place() > furthest.place()
    };
    if let Some((ahead, _)) = held.iter().find(|(_, other)| is_ahead(other)) {
        return Err(Contradiction { latest: *primary, ahead: *ahead });
    }
    let has_all =
        |held: &Held| held.epoch == furthest.epoch && held.is_complete() && held.prepared >= furthest.prepared;
    let is_beginning =
        |held: &Held| held.epoch == furthest.epoch && held.is_complete() && held.prepared >= furthest.committed;
    let in_sync = held.iter().filter(|(device, held)| *device == primary || has_all(held)).map(|(device, _)| *device);
    next.in_sync = in_sync.collect();
    next.primary = *primary;
    next.epoch = config.epoch.max(furthest.epoch).next();
    // A copy that lacks something stays if all that it has is sure to be right; else it is made anew, from nothing.
    let behind = |device: &DeviceId| held.get(device).filter(|_| !next.in_sync.contains(device));
    let stays = |device: &DeviceId| behind(device).is_none_or(|held| heard.one_history || is_beginning(held));
    let others: Vec<DeviceId> =
        next.members.iter().copied().filter(|d| !next.in_sync.contains(d) && stays(d)).collect();
    let room = (config.copies as usize).saturating_sub(next.in_sync.len());
    let others = others.into_iter().take(room);
    let away = |device: DeviceId| behind(&device).map(|held| (device, held.complete.min(held.committed)));
    next.members = next.in_sync.iter().copied().chain(others.clone()).collect();
    next.away = others.filter_map(away).collect();
    next.leaving.retain(|device| !next.members.contains(device));
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(devices: &[u32]) -> BTreeSet<DeviceId> {
        devices.iter().copied().map(DeviceId).collect()
    }

    fn config(members: &[u32]) -> GroupConfig {
        GroupConfig { epoch: Epoch(1000), version: 1000, ..GroupConfig::new(DeviceId(members[0]), set(members)) }
    }

    fn held(epoch: u64, committed: u64, prepared: u64) -> Held {
        let (committed, prepared) = (Sequence(committed), Sequence(prepared));
        Held { epoch: Epoch(epoch), committed, prepared, complete: committed }
    }

    fn heard(held: &[(u32, Held)], one_history: bool) -> Heard {
        let held = held.iter().map(|(device, held)| (DeviceId(*device), *held)).collect();
        Heard { held, without: BTreeSet::new(), one_history }
    }

    #[test]
    fn the_copies_of_the_latest_epoch_with_everything_are_in_sync() {
        // The third had been left behind; the backup does not know.
        let heard = heard(&[(1, held(3, 90, 99)), (2, held(3, 88, 99)), (3, held(3, 50, 60))], true);
        let next = reopen(&config(&[1, 2, 3]), &heard).unwrap();
        assert_eq!((next.primary, &next.in_sync), (DeviceId(1), &set(&[1, 2])));
        assert_eq!((next.members, next.leaving), (set(&[1, 2, 3]), set(&[])));
        assert_eq!(next.away, BTreeMap::from([(DeviceId(3), Sequence(50))]));
        assert_eq!((next.epoch, next.version, next.primary_incarnation), (Epoch(1001), 1001, None));
    }

    #[test]
    fn a_write_that_one_copy_alone_has_may_have_been_acknowledged() {
        // The first had left the second behind; the backup does not know, and neither does the first one's log.
        for one_history in [true, false] {
            let heard = heard(&[(1, held(3, 87, 89)), (2, held(3, 87, 87))], one_history);
            let next = reopen(&config(&[1, 2]), &heard).unwrap();
            assert_eq!((next.primary, next.in_sync), (DeviceId(1), set(&[1])));
            assert_eq!((next.members, next.away), (set(&[1, 2]), BTreeMap::from([(DeviceId(2), Sequence(87))])));
        }
    }

    #[test]
    fn a_copy_of_an_earlier_epoch_has_less_however_much_it_has() {
        let heard = heard(&[(1, held(3, 90, 90)), (2, held(4, 89, 92))], true);
        let next = reopen(&config(&[1, 2]), &heard).unwrap();
        assert_eq!((next.primary, next.in_sync), (DeviceId(2), set(&[2])));
        assert_eq!(next.away, BTreeMap::from([(DeviceId(1), Sequence(90))]));
    }

    #[test]
    fn where_the_older_configuration_was_used_other_copies_are_made_anew() {
        let heard = heard(&[(1, held(3, 90, 90)), (2, held(4, 80, 99))], false);
        let next = reopen(&config(&[1, 2]), &heard).unwrap();
        assert_eq!((&next.members, &next.in_sync), (&set(&[2]), &set(&[2])));
        assert_eq!((next.leaving, next.away), (set(&[1]), BTreeMap::new()));
    }

    #[test]
    fn copies_that_contradict_each_other_are_told() {
        let heard = heard(&[(1, held(3, 90, 95)), (2, held(4, 80, 85))], true);
        let outcome = reopen(&config(&[1, 2]), &heard);
        assert_eq!(outcome, Err(Contradiction { latest: DeviceId(2), ahead: DeviceId(1) }));
        let heard = Heard { without: set(&[2]), ..heard };
        let next = reopen(&config(&[1, 2]), &heard).unwrap();
        assert_eq!((next.in_sync, next.members, next.leaving), (set(&[1]), set(&[1]), set(&[2])));
    }

    #[test]
    fn copies_that_have_moved_since_are_found() {
        let heard = heard(&[(3, held(9, 70, 70)), (4, held(9, 70, 70))], true);
        let next = reopen(&config(&[1, 2]), &heard).unwrap();
        assert_eq!((next.primary, &next.in_sync, &next.members), (DeviceId(3), &set(&[3, 4]), &set(&[3, 4])));
        assert_eq!(next.leaving, set(&[]));
    }

    #[test]
    fn a_copy_that_was_being_brought_up_to_date_is_not_taken_for_one_that_has_everything() {
        let learner = Held { complete: Sequence(10), ..held(5, 90, 95) };
        let both = heard(&[(1, held(5, 90, 92)), (2, learner)], true);
        let next = reopen(&config(&[1, 2]), &both).unwrap();
        assert_eq!((next.primary, next.in_sync), (DeviceId(1), set(&[1])));
        assert_eq!(next.away, BTreeMap::from([(DeviceId(2), Sequence(10))]));
        let alone = reopen(&config(&[1, 2]), &heard(&[(2, learner)], true)).unwrap();
        assert_eq!((alone.primary, alone.in_sync), (DeviceId(2), set(&[2])));
    }

    #[test]
    fn what_a_learner_alone_has_may_have_been_acknowledged_where_not_all_have_to() {
        let learner = Held { complete: Sequence(10), ..held(5, 90, 95) };
        let both = heard(&[(1, held(5, 90, 92)), (2, learner)], true);
        for ack in [AckRule::Majority, AckRule::EachSite] {
            let config = GroupConfig { ack, ..config(&[1, 2]) };
            let outcome = reopen(&config, &both);
            assert_eq!(outcome, Err(Contradiction { latest: DeviceId(1), ahead: DeviceId(2) }));
            let without = Heard { without: set(&[2]), ..both.clone() };
            assert_eq!(reopen(&config, &without).unwrap().in_sync, set(&[1]));
        }
    }

    #[test]
    fn a_group_that_was_never_written_opens_with_all_members() {
        let next = reopen(&config(&[1, 2]), &heard(&[], true)).unwrap();
        assert_eq!((&next.in_sync, &next.members), (&set(&[1, 2]), &set(&[1, 2])));
    }
}
