//! `crates/replica/src/quorum.rs` for three copies, of which the third is in a site of its own under `each-site`.

use crate::state::{COPIES, Set, copies_of};

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRule {
    /// Every in-sync copy is durable.
    All,
    /// More than half of the copies, the primary among them; all that are in sync if those are fewer.
    Majority,
    /// More than half of the in-sync copies of the primary's site, the primary among them, and one of every other site.
    EachSite,
}

/// The copies of each site under `each-site`.
pub const SITES: [Set; 2] = [0b011, 0b100];

impl AckRule {
    fn majority(self, in_sync: Set) -> usize {
        let there = in_sync.count_ones() as usize;
        (COPIES.max(there) / 2 + 1).min(there)
    }

    /// `GroupConfig::could_acknowledge`: under some primary, `holders` could be enough to acknowledge a write.
    #[must_use]
    pub fn could_acknowledge(self, in_sync: Set, holders: Set) -> bool {
        let holders = holders & in_sync;
        match self {
            AckRule::All => holders == in_sync,
            AckRule::Majority => holders.count_ones() as usize >= self.majority(in_sync),
            AckRule::EachSite => {
                let mut sites = SITES.iter().filter(|site| *site & in_sync != 0);
                let somewhere =
                    SITES.iter().any(|site| (site & holders).count_ones() > (site & in_sync).count_ones() / 2);
                somewhere && sites.all(|site| site & holders != 0)
            }
        }
    }

    /// `GroupConfig::hears_enough`.
    #[must_use]
    pub fn hears_enough(self, in_sync: Set, heard: Set) -> bool {
        !self.could_acknowledge(in_sync, in_sync & !heard)
    }

    /// `GroupConfig::waits_for_all`.
    #[must_use]
    pub fn waits_for_all(self, in_sync: Set) -> bool {
        !copies_of(in_sync).any(|one| self.could_acknowledge(in_sync, in_sync & !(1 << one)))
    }

    /// `GroupConfig::held_by_enough`: the last place up to which enough of `in_sync` hold everything.
    #[must_use]
    pub fn held_by_enough(self, in_sync: Set, primary: usize, acked: [u8; COPIES]) -> u8 {
        let nth = |set: Set, n: usize| {
            let mut places: Vec<u8> = copies_of(set).map(|copy| acked[copy]).collect();
            places.sort_unstable_by(|a, b| b.cmp(a));
            n.checked_sub(1).and_then(|at| places.get(at).copied())
        };
        let enough = match self {
            AckRule::All => nth(in_sync, in_sync.count_ones() as usize),
            AckRule::Majority => nth(in_sync, self.majority(in_sync)),
            AckRule::EachSite => {
                let sites = SITES.iter().filter(|site| *site & in_sync != 0);
                let least = |site: &Set| {
                    let copies = (site & in_sync).count_ones() as usize;
                    nth(site & in_sync, if site & (1 << primary) != 0 { copies / 2 + 1 } else { 1 })
                };
                sites.map(least).min().flatten()
            }
        };
        enough.unwrap_or(0).min(acked[primary])
    }
}
