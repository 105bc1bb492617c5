//! Ack rules: which copies must hold a write before it is acknowledged, and which a new primary must hear.
//!
//! Both are asked of the in-sync copies. What they have in common (flexible quorums: Howard, Malkhi, Spiegelman, 2016)
//! is that a set which is enough to acknowledge a write and one which is enough to begin a reign always share a copy.
//! docs/decisions/0010 argues why nothing acknowledged is lost.

use crate::config::GroupConfig;
use azekura_base::{AckRule, DeviceId, Sequence};
use std::collections::{BTreeMap, BTreeSet};

impl GroupConfig {
    /// Secondaries answer readers by themselves, because each of them has whatever is acknowledged (0010, reads).
    pub(crate) fn has_readers(&self) -> bool {
        self.ack == AckRule::All
    }

    /// How many of `in_sync` a majority is.
    fn majority(&self, in_sync: usize) -> usize {
        ((self.copies as usize).max(in_sync) / 2 + 1).min(in_sync)
    }

    fn site(&self, device: DeviceId) -> &str {
        self.sites.get(&device).map_or("", |site| site)
    }

    /// In-sync copies by site, and how many of them hold something: (copies, holders).
    fn by_site(
        &self,
        in_sync: &BTreeSet<DeviceId>,
        holds: impl Fn(DeviceId) -> bool,
    ) -> BTreeMap<&str, (usize, usize)> {
        let mut sites: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for device in in_sync {
            let (copies, holders) = sites.entry(self.site(*device)).or_default();
            *copies += 1;
            *holders += usize::from(holds(*device));
        }
        sites
    }

    /// Under some primary, those of `in_sync` that `holds` names could be enough to acknowledge a write.
    pub(crate) fn could_acknowledge(&self, in_sync: &BTreeSet<DeviceId>, holds: impl Fn(DeviceId) -> bool) -> bool {
        match self.ack {
            AckRule::All => in_sync.iter().all(|device| holds(*device)),
            AckRule::Majority => {
                in_sync.iter().filter(|device| holds(**device)).count() >= self.majority(in_sync.len())
            }
            AckRule::EachSite => {
                let sites = self.by_site(in_sync, holds);
                let somewhere = sites.values().any(|(copies, holders)| *holders > copies / 2);
                somewhere && sites.values().all(|(_, holders)| *holders > 0)
            }
        }
    }

    /// Whoever has heard these in-sync copies has heard one of each set that could have acknowledged a write (0010,
    /// point 4).
    pub(crate) fn hears_enough(&self, heard: impl Fn(DeviceId) -> bool) -> bool {
        !self.could_acknowledge(&self.in_sync, |device| !heard(device))
    }

    /// Nothing is acknowledged unless every in-sync copy holds it.
    pub(crate) fn waits_for_all(&self) -> bool {
        let without = |one: &DeviceId| self.could_acknowledge(&self.in_sync, |device| device != *one);
        !self.in_sync.iter().any(without)
    }

    /// The last place that may be acknowledged where `in_sync` are in sync: enough of them hold everything up to there,
    /// and as many as the class demands at least (0007). Where fewer are in sync nothing is acknowledged at all, and
    /// the rule alone says what is committed.
    pub(crate) fn held_by_enough(
        &self,
        in_sync: &BTreeSet<DeviceId>,
        primary: DeviceId,
        acked: impl Fn(DeviceId) -> Sequence,
    ) -> Sequence {
        let mut places: Vec<Sequence> = in_sync.iter().map(|device| acked(*device)).collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        let least = (self.copies_min as usize).min(places.len());
        let demanded = least.checked_sub(1).map_or(Sequence::ZERO, |at| places[at]);
        self.held_by_rule(in_sync, primary, acked).min(demanded)
    }

    /// The last place up to which as many of `in_sync` hold everything as the ack rule asks for, where `primary` reigns
    /// and each copy holds everything up to `acked`.
    pub(crate) fn held_by_rule(
        &self,
        in_sync: &BTreeSet<DeviceId>,
        primary: DeviceId,
        acked: impl Fn(DeviceId) -> Sequence,
    ) -> Sequence {
        let places = |site: Option<&str>| {
            let there = in_sync.iter().filter(|device| site.is_none_or(|site| self.site(**device) == site));
            let mut places: Vec<Sequence> = there.map(|device| acked(*device)).collect();
            places.sort_unstable_by(|a, b| b.cmp(a));
            places
        };
        let nth = |places: Vec<Sequence>, n: usize| n.checked_sub(1).and_then(|at| places.get(at).copied());
        let enough = match self.ack {
            AckRule::All => places(None).last().copied(),
            AckRule::Majority => nth(places(None), self.majority(in_sync.len())),
            AckRule::EachSite => {
                let sites = self.by_site(in_sync, |_| false);
                let home = self.site(primary);
                let least = |(site, (copies, _)): (&&str, &(usize, usize))| {
                    nth(places(Some(site)), if **site == *home { copies / 2 + 1 } else { 1 })
                };
                sites.iter().map(least).min().flatten()
            }
        };
        enough.unwrap_or(Sequence::ZERO).min(acked(primary))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn config(ack: AckRule, copies: u32, sites: &[&str]) -> GroupConfig {
        let members: BTreeSet<DeviceId> = (1..=sites.len() as u32).map(DeviceId).collect();
        let labels = members.iter().zip(sites).map(|(device, site)| (*device, Arc::from(*site)));
        GroupConfig { ack, copies, sites: labels.collect(), ..GroupConfig::new(DeviceId(1), members) }
    }

    fn place(config: &GroupConfig, acked: &[u64]) -> u64 {
        config.held_by_enough(&config.in_sync, DeviceId(1), |device| Sequence(acked[device.0 as usize - 1])).0
    }

    #[test]
    fn places_that_enough_copies_hold() {
        let all = config(AckRule::All, 3, &["a", "a", "b"]);
        assert_eq!(place(&all, &[9, 7, 8]), 7);
        let majority = config(AckRule::Majority, 3, &["a", "a", "b"]);
        assert_eq!(place(&majority, &[9, 3, 7]), 7);
        assert_eq!(place(&majority, &[5, 9, 9]), 5, "the primary is among them");
        let sites = config(AckRule::EachSite, 5, &["a", "a", "a", "b", "b"]);
        assert_eq!(place(&sites, &[9, 8, 1, 7, 0]), 7);
        assert_eq!(place(&sites, &[9, 8, 1, 9, 9]), 8);
        assert_eq!(place(&sites, &[9, 9, 9, 0, 0]), 0, "nothing is in the other site");
        // Of five copies, three are in sync: all of them are a majority of five.
        assert_eq!(place(&config(AckRule::Majority, 5, &["", "", ""]), &[9, 3, 7]), 3);
        assert_eq!(place(&config(AckRule::Majority, 2, &["", ""]), &[9, 3]), 3, "a majority of two is both");
        assert_eq!(place(&config(AckRule::Majority, 3, &[""]), &[9]), 9);
        // The class may demand more copies than the rule; where fewer are in sync, nothing is acknowledged.
        let three = GroupConfig { copies_min: 3, ..config(AckRule::Majority, 4, &["", "", "", ""]) };
        assert_eq!(place(&three, &[9, 8, 7, 3]), 7);
        assert_eq!(place(&GroupConfig { copies_min: 4, ..three }, &[9, 8, 7, 3]), 3);
        assert_eq!(place(&GroupConfig { copies_min: 2, ..config(AckRule::Majority, 3, &[""]) }, &[9]), 9);
    }

    #[test]
    fn whoever_hears_enough_hears_of_every_write() {
        let layouts: [&[&str]; 5] =
            [&["a"], &["a", "b"], &["a", "a", "b"], &["a", "a", "b", "b"], &["a", "a", "a", "b", "c"]];
        for ack in [AckRule::All, AckRule::Majority, AckRule::EachSite] {
            for sites in layouts {
                for copies in 1..=5 {
                    let config = config(ack, copies, sites);
                    let sets = 1u32 << sites.len();
                    let within = |set: u32, device: DeviceId| set & (1 << (device.0 - 1)) != 0;
                    for acking in 0..sets {
                        let acked = |device| Sequence(u64::from(within(acking, device)));
                        let mut primaries = config.in_sync.iter();
                        if !primaries.any(|primary| config.held_by_enough(&config.in_sync, *primary, acked).0 > 0) {
                            continue;
                        }
                        assert!(config.could_acknowledge(&config.in_sync, |device| within(acking, device)));
                        for heard in 0..sets {
                            let enough = config.hears_enough(|device| within(heard, device));
                            assert!(!enough || heard & acking != 0, "{ack:?} {sites:?}: {heard:b} misses {acking:b}");
                        }
                    }
                    assert!(config.hears_enough(|_| true));
                    assert_eq!(config.waits_for_all(), config.in_sync.iter().all(|d| config.hears_enough(|x| x == *d)));
                }
            }
        }
    }
}
