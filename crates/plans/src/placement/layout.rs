//! A placement that is being made: copies on devices, near their quotas, apart from each other.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use azekura_base::DeviceId;

use super::quota::quotas;
use super::rendezvous::{self, score};
use super::{Candidate, are_in_one_site};

/// A placement under construction. Devices are indices into `candidates`.
pub(super) struct Layout<'a> {
    candidates: &'a [Candidate],
    copies: usize,
    class_seed: u64,
    /// Most groups that a device should have: its quota, rounded up.
    limits: Vec<usize>,
    /// Fewest groups that a device should have: its quota, rounded down.
    floors: Vec<usize>,
    loads: Vec<usize>,
    /// A group's copies must not all be in one site.
    spread: bool,
    groups: Vec<Vec<usize>>,
    /// Groups with a copy at home, which they have to keep.
    bound: Vec<bool>,
}

impl<'a> Layout<'a> {
    pub(super) fn new(candidates: &'a [Candidate], copies: usize, count: usize, class: &str) -> Layout<'a> {
        let quotas = quotas(candidates, copies, count);
        let limits = quotas.iter().map(|quota| (quota - 1e-6).ceil() as usize).collect();
        let floors = quotas.iter().map(|quota| (quota + 1e-6).floor() as usize).collect();
        Layout {
            candidates,
            copies,
            class_seed: rendezvous::seed(class),
            limits,
            floors,
            loads: vec![0; candidates.len()],
            spread: copies > 1 && candidates.iter().all(|c| c.site.is_some()) && !are_in_one_site(candidates),
            groups: vec![Vec::with_capacity(copies); count],
            bound: vec![false; count],
        }
    }

    /// The devices of each group, in order; `current`: where copies are now.
    pub(super) fn place(mut self, current: &[Vec<DeviceId>]) -> Vec<Vec<DeviceId>> {
        let index: BTreeMap<DeviceId, usize> =
            self.candidates.iter().enumerate().map(|(index, candidate)| (candidate.id, index)).collect();
        let devices = |members: &Vec<DeviceId>| members.iter().filter_map(|id| index.get(id)).copied().collect();
        let mut current: Vec<Vec<usize>> = current.iter().map(devices).collect();
        current.resize(self.groups.len(), Vec::new());
        self.bring_home(&current);
        self.keep(current);
        self.fill();
        self.level();
        self.into_groups()
    }

    fn takes(&self, device: usize) -> bool {
        self.candidates[device].takes
    }

    fn domain(&self, device: usize) -> u32 {
        self.candidates[device].domain
    }

    fn score(&self, group: usize, device: usize) -> f64 {
        let candidate = &self.candidates[device];
        score(self.class_seed, group as u64, candidate.id, candidate.weight)
    }

    fn is_home(&self, device: usize) -> bool {
        self.candidates[device].home
    }

    fn is_full(&self, group: usize) -> bool {
        self.groups[group].len() >= self.copies
    }

    /// Whether a group may not have a copy on the device, in the place of `except` if that is one: it has another in
    /// its failure domain, or would have all in one site, or none at home.
    fn is_barred(&self, group: usize, device: usize, except: Option<usize>) -> bool {
        let domain = self.domain(device);
        let mut others = self.groups[group].iter().filter(|member| Some(**member) != except);
        if others.clone().any(|member| self.domain(*member) == domain) {
            return true;
        }
        if self.bound[group] && !self.is_home(device) && !others.clone().any(|member| self.is_home(*member)) {
            return true;
        }
        let site = self.candidates[device].site;
        let is_last = others.clone().count() + 1 >= self.copies;
        self.spread && is_last && others.all(|member| self.candidates[*member].site == site)
    }

    fn add(&mut self, group: usize, device: usize) {
        self.groups[group].push(device);
        self.loads[device] += 1;
    }

    /// Gives every group a copy at home, if there is a home: one that it has there, else on a device that gets on with
    /// its other copies, has room, and likes it.
    fn bring_home(&mut self, current: &[Vec<usize>]) {
        let home: Vec<usize> = (0..self.candidates.len()).filter(|device| self.is_home(*device)).collect();
        for (group, members) in current.iter().enumerate().filter(|_| !home.is_empty()) {
            if let Some(device) = members.iter().find(|device| self.is_home(**device)) {
                self.add(group, *device);
            }
        }
        for (group, members) in current.iter().enumerate() {
            if self.groups[group].is_empty() {
                let is_new = |device: &usize| members.iter().all(|other| self.domain(*other) != self.domain(*device));
                let open = home.iter().copied().filter(|device| self.takes(*device));
                let best = open.max_by(|a, b| is_new(a).cmp(&is_new(b)).then_with(|| self.compare(group, *a, *b)));
                best.into_iter().for_each(|device| self.add(group, device));
            }
            self.bound[group] = !self.groups[group].is_empty();
        }
    }

    /// Takes over what is still allowed of the placement so far. Of groups that have to give a copy up, those are kept
    /// that are on the emptier devices.
    fn keep(&mut self, current: Vec<Vec<usize>>) {
        let is_more = |layout: &Self, group: usize, members: &[usize]| {
            members.iter().filter(|device| !layout.groups[group].contains(device)).count() + layout.groups[group].len()
                > layout.copies
        };
        let (more, fitting): (Vec<_>, Vec<_>) =
            current.into_iter().enumerate().partition(|(group, members)| is_more(self, *group, members));
        for (group, mut members) in fitting.into_iter().chain(more) {
            members.sort_by_key(|device| (self.loads[*device] + 1).saturating_sub(self.limits[*device]));
            for device in members {
                if !self.is_full(group) && !self.is_barred(group, device, None) {
                    self.add(group, device);
                }
            }
        }
    }

    /// Which of two devices a group prefers: one with room, then the one that likes it more.
    fn compare(&self, group: usize, a: usize, b: usize) -> Ordering {
        let key = |device: usize| (self.loads[device] < self.limits[device], self.score(group, device));
        let ((a_room, a_score), (b_room, b_score)) = (key(a), key(b));
        a_room.cmp(&b_room).then(a_score.total_cmp(&b_score))
    }

    /// Gives every group its missing copies: the first of its order with room, else the first at all.
    fn fill(&mut self) {
        for group in 0..self.groups.len() {
            while !self.is_full(group) {
                let open = (0..self.candidates.len())
                    .filter(|device| self.takes(*device) && !self.is_barred(group, *device, None));
                let best = open.max_by(|a, b| self.compare(group, *a, *b));
                // There are at least as many domains as copies, unless some devices take nothing now.
                let Some(device) = best else { break };
                self.add(group, device);
            }
        }
    }

    /// Moves copies from devices above their limit to devices below theirs, through others where there is no direct
    /// way, until there is nothing to move; then from devices above their floor to devices below theirs.
    fn level(&mut self) {
        for from in 0..self.candidates.len() {
            while self.loads[from] > self.limits[from] {
                let Some(path) = self.path_to_room(from) else { break };
                for (group, device, to) in path {
                    let member = self.groups[group].iter().position(|member| *member == device);
                    let Some(member) = member else { break };
                    self.replace(group, member, to);
                }
            }
        }
        for to in 0..self.candidates.len() {
            while self.takes(to) && self.loads[to] < self.floors[to] {
                let Some((group, member)) = self.best_gift(to) else { break };
                self.replace(group, member, to);
            }
        }
    }

    fn replace(&mut self, group: usize, member: usize, to: usize) {
        let device = std::mem::replace(&mut self.groups[group][member], to);
        self.loads[device] -= 1;
        self.loads[to] += 1;
    }

    /// The copy (group and position in it) of a device above its floor that `to` could take, in the group that likes
    /// `to` most.
    fn best_gift(&self, to: usize) -> Option<(usize, usize)> {
        let mut best: Option<(f64, usize, usize)> = None;
        for (group, members) in self.groups.iter().enumerate() {
            if members.contains(&to) {
                continue;
            }
            for (position, member) in members.iter().enumerate() {
                if self.loads[*member] <= self.floors[*member] || self.is_barred(group, to, Some(*member)) {
                    continue;
                }
                let score = self.score(group, to);
                if best.is_none_or(|(former, ..)| score > former) {
                    best = Some((score, group, position));
                }
            }
        }
        best.map(|(_, group, position)| (group, position))
    }

    /// The shortest chain of moves (group, from, to) from a device to one with room; each move in a group of its own.
    fn path_to_room(&self, from: usize) -> Option<Vec<(usize, usize, usize)>> {
        let mut reached: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        let mut frontier = vec![from];
        while !frontier.is_empty() {
            let mut next = Vec::new();
            for device in frontier {
                for to in self.best_moves(device, from, &reached) {
                    reached.insert(to.1, (to.0, device));
                    if self.loads[to.1] < self.limits[to.1] {
                        return self.walk_back(from, to.1, &reached);
                    }
                    next.push(to.1);
                }
            }
            frontier = next;
        }
        None
    }

    /// For each device not reached yet that a copy on `device` could move to: the group that likes the move most.
    /// Devices with room come first.
    fn best_moves(
        &self,
        device: usize,
        origin: usize,
        reached: &BTreeMap<usize, (usize, usize)>,
    ) -> Vec<(usize, usize)> {
        let mut best: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
        for (group, members) in self.groups.iter().enumerate() {
            if !members.contains(&device) {
                continue;
            }
            for to in 0..self.candidates.len() {
                let known = to == origin || reached.contains_key(&to) || members.contains(&to) || !self.takes(to);
                if known || self.is_barred(group, to, Some(device)) {
                    continue;
                }
                let score = self.score(group, to);
                if best.get(&to).is_none_or(|(former, _)| score > *former) {
                    best.insert(to, (score, group));
                }
            }
        }
        let mut moves: Vec<(usize, usize)> = best.into_iter().map(|(to, (_, group))| (group, to)).collect();
        moves.sort_by_key(|(_, to)| self.loads[*to] >= self.limits[*to]);
        moves
    }

    /// The moves of a found chain; `None` when it would change one group twice, which could break its domains.
    fn walk_back(
        &self,
        from: usize,
        end: usize,
        reached: &BTreeMap<usize, (usize, usize)>,
    ) -> Option<Vec<(usize, usize, usize)>> {
        let mut path = Vec::new();
        let mut seen = BTreeSet::new();
        let mut at = end;
        while at != from {
            let (group, before) = *reached.get(&at)?;
            if !seen.insert(group) {
                return None;
            }
            path.push((group, before, at));
            at = before;
        }
        Some(path)
    }

    fn into_groups(self) -> Vec<Vec<DeviceId>> {
        let id = |device: usize| self.candidates[device].id;
        self.groups
            .iter()
            .map(|members| {
                let mut members: Vec<DeviceId> = members.iter().map(|device| id(*device)).collect();
                members.sort_unstable();
                members
            })
            .collect()
    }
}
