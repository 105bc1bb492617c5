//! Which copy of each group is the primary: every device leads as many of its groups as any other.

use std::collections::{BTreeMap, VecDeque};

use azekura_base::DeviceId;

/// A primary for each group, one of its members; `current` primaries stay where balance allows. Each device gets its
/// number of groups divided by the copies, rounded down or up, wherever the members allow it.
#[must_use]
pub fn balance_primaries(members: &[Vec<DeviceId>], current: &[DeviceId]) -> Vec<DeviceId> {
    let mut targets: BTreeMap<DeviceId, f64> = BTreeMap::new();
    for group in members {
        for device in group {
            *targets.entry(*device).or_default() += 1.0 / group.len() as f64;
        }
    }
    let mut balance =
        Balance { members, primaries: Vec::with_capacity(members.len()), counts: BTreeMap::new(), targets };
    for (index, group) in members.iter().enumerate() {
        let kept = current.get(index).filter(|device| group.contains(device)).copied();
        // The member that is furthest below its target; a group without members can't be led and names device 0.
        let least = group.iter().copied().min_by(|a, b| balance.excess(*a).total_cmp(&balance.excess(*b)));
        let primary = kept.or(least).unwrap_or_default();
        balance.primaries.push(primary);
        *balance.counts.entry(primary).or_default() += 1;
    }
    balance.settle();
    balance.primaries
}

struct Balance<'a> {
    members: &'a [Vec<DeviceId>],
    primaries: Vec<DeviceId>,
    counts: BTreeMap<DeviceId, usize>,
    targets: BTreeMap<DeviceId, f64>,
}

impl Balance<'_> {
    fn count(&self, device: DeviceId) -> usize {
        self.counts.get(&device).copied().unwrap_or(0)
    }

    fn target(&self, device: DeviceId) -> f64 {
        self.targets.get(&device).copied().unwrap_or(0.0)
    }

    fn excess(&self, device: DeviceId) -> f64 {
        self.count(device) as f64 - self.target(device)
    }

    /// Hands primaries on along chains of groups from devices that lead too many to devices that lead too few.
    fn settle(&mut self) {
        const SLACK: f64 = 1e-6;
        let devices: Vec<DeviceId> = self.targets.keys().copied().collect();
        let ceil = |target: f64| (target - SLACK).ceil() as usize;
        let floor = |target: f64| (target + SLACK).floor() as usize;
        // Nobody leads more than its target rounded up: to whoever leads fewer than that.
        for device in &devices {
            while self.count(*device) > ceil(self.target(*device)) {
                let Some(path) = self.path(*device, |balance, to| balance.count(to) < ceil(balance.target(to))) else {
                    break;
                };
                self.shift(&path);
            }
        }
        // Nobody leads fewer than its target rounded down: from whoever leads more than that.
        for device in &devices {
            while self.count(*device) < floor(self.target(*device)) {
                let giver = devices.iter().copied().filter(|from| self.count(*from) > floor(self.target(*from)));
                let path = giver.filter_map(|from| self.path(from, |_, to| to == *device)).min_by_key(Vec::len);
                let Some(path) = path else { break };
                self.shift(&path);
            }
        }
    }

    /// The shortest chain of (group, new primary) from a device to one that is wanted.
    fn path(&self, from: DeviceId, wanted: impl Fn(&Self, DeviceId) -> bool) -> Option<Vec<(usize, DeviceId)>> {
        let mut led: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
        for (group, primary) in self.primaries.iter().enumerate() {
            led.entry(*primary).or_default().push(group);
        }
        let mut reached: BTreeMap<DeviceId, (usize, DeviceId)> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(device) = queue.pop_front() {
            for group in led.get(&device).into_iter().flatten() {
                for to in &self.members[*group] {
                    if *to == from || reached.contains_key(to) || *to == device {
                        continue;
                    }
                    reached.insert(*to, (*group, device));
                    if wanted(self, *to) {
                        let mut path = Vec::new();
                        let mut at = *to;
                        while at != from {
                            let (group, before) = *reached.get(&at)?;
                            path.push((group, at));
                            at = before;
                        }
                        return Some(path);
                    }
                    queue.push_back(*to);
                }
            }
        }
        None
    }

    fn shift(&mut self, path: &[(usize, DeviceId)]) {
        for (group, to) in path {
            let former = std::mem::replace(&mut self.primaries[*group], *to);
            *self.counts.entry(former).or_default() -= 1;
            *self.counts.entry(*to).or_default() += 1;
        }
    }
}
