//! Which devices hold which placement group.
//!
//! Weighted rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998;
//! weights after Schindelhauer and Schomaker, "Weighted distributed hash tables", 2005) orders the devices for a group:
//! the order depends on the group and the device alone, so a new device changes few groups. Hashing by itself spreads a
//! few hundred groups unevenly; therefore each device also has a quota from its weight, and groups take the first
//! devices of their order that have room ("bounded loads", Mirrokni, Thorup and Zadimoghaddam, 2018).
//!
//! Pure functions: the same input gives the same placement.

use std::collections::{BTreeMap, BTreeSet};

use azekura_base::DeviceId;
use azekura_model::transitions::groups::NewGroup;
use azekura_model::{AckRule, ClassRecord, DeviceRecord, FailureDomain, MetaError, Model};

mod primaries;
mod quota;
mod rendezvous;

pub use primaries::balance_primaries;
use quota::quotas;
use rendezvous::score;

/// Groups of a class in a cluster of few devices.
const GROUPS_MIN: u32 = 64;
/// Groups of a class in the largest cluster.
const GROUPS_MAX: u32 = azekura_model::transitions::new_groups::GROUPS_PER_CLASS_MAX;
/// Groups that each device should hold a copy of, about.
const GROUPS_PER_DEVICE: u32 = 32;

/// A device that groups can be placed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The device.
    pub id: DeviceId,
    /// Its share of the data: its size in bytes.
    pub weight: u64,
    /// Its failure domain: two copies never share one.
    pub domain: u32,
    /// Its site, where a group's copies must not all be in one; `None`: they may.
    pub site: Option<u32>,
    /// It may be given copies that it does not hold. One that is away for a moment keeps what it has.
    pub takes: bool,
}

/// Fewer failure domains than copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnoughDomains {
    /// Domains with devices.
    pub found: usize,
}

/// The number of groups for a class: a power of two near 32 a device, 64 to 8192.
#[must_use]
pub fn group_count(devices: usize, copies: u32) -> u32 {
    let devices = u32::try_from(devices).unwrap_or(u32::MAX);
    let wanted = (devices.saturating_mul(GROUPS_PER_DEVICE) / copies.max(1)).clamp(GROUPS_MIN, GROUPS_MAX);
    // The nearer power of two, by ratio: round up from √2 times a power.
    let below = 1 << wanted.ilog2();
    if u64::from(wanted) * u64::from(wanted) > 2 * u64::from(below) * u64::from(below) { below * 2 } else { below }
        .min(GROUPS_MAX)
}

/// The devices that may take copies of a class, with their failure domains numbered.
#[must_use]
pub fn candidates(model: &Model, class: &ClassRecord) -> Vec<Candidate> {
    candidates_where(model, class, |device| device.is_sound().then_some(true))
}

/// Devices as `judge` sees them: `None`, it must hold nothing; else whether it may be given copies.
pub fn candidates_where(
    model: &Model,
    class: &ClassRecord,
    judge: impl Fn(&DeviceRecord) -> Option<bool>,
) -> Vec<Candidate> {
    let mut numbers: BTreeMap<(String, String, u32), u32> = BTreeMap::new();
    let mut sites: BTreeMap<String, u32> = BTreeMap::new();
    let sized = model.devices.values().filter(|device| device.capacity_bytes > 0);
    sized
        .filter_map(|device| {
            let takes = judge(device)?;
            let node = model.nodes.get(&device.node)?;
            let name = match class.failure_domain {
                FailureDomain::Site => (node.site.clone(), String::new(), 0),
                FailureDomain::Rack => (node.site.clone(), node.rack.clone(), 0),
                FailureDomain::Host => (String::new(), String::new(), node.id.0),
                FailureDomain::Device => (String::new(), String::new(), device.id.0),
            };
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            let domain = *numbers.entry(name).or_insert(next);
            let next = u32::try_from(sites.len()).unwrap_or(u32::MAX);
            let site = *sites.entry(node.site.clone()).or_insert(next);
            let site = (class.ack_rule == AckRule::EachSite).then_some(site);
            Some(Candidate { id: device.id, weight: device.capacity_bytes, domain, site, takes })
        })
        .collect()
}

/// There are no two sites to choose from, if sites matter.
fn are_in_one_site(candidates: &[Candidate]) -> bool {
    candidates.iter().map(|candidate| candidate.site).collect::<BTreeSet<_>>().len() < 2
}

/// Places the first groups of a class.
pub fn place_class(model: &Model, class: &ClassRecord, count: u32) -> Result<Vec<NewGroup>, MetaError> {
    let candidates = candidates(model, class);
    if class.ack_rule == AckRule::EachSite && are_in_one_site(&candidates) {
        let reason = "its writes are acknowledged by each site, and all devices are in one (azekura node --site)";
        return Err(MetaError::InvalidClass { name: class.name.clone(), reason: reason.to_owned() });
    }
    let members =
        place(&candidates, class.copies, count, &class.name, &[]).map_err(|error| MetaError::NotEnoughDevices {
            class: class.name.clone(),
            copies: class.copies,
            failure_domain: class.failure_domain,
            found: error.found,
        })?;
    let primaries = balance_primaries(&members, &[]);
    Ok(members.into_iter().zip(primaries).map(|(members, primary)| NewGroup { members, primary }).collect())
}

/// The devices of each of `count` groups. `current` is the placement so far (empty for a new class): copies on usable
/// devices stay where they are as far as failure domains and quotas allow.
///
/// Guarantees: `copies` devices a group, all in different failure domains; a device's groups near its quota. While some
/// candidates take nothing, a group for which no other device is left keeps fewer.
pub fn place(
    candidates: &[Candidate],
    copies: u32,
    count: u32,
    class: &str,
    current: &[Vec<DeviceId>],
) -> Result<Vec<Vec<DeviceId>>, NotEnoughDomains> {
    let domains: BTreeSet<u32> = candidates.iter().map(|candidate| candidate.domain).collect();
    if domains.len() < copies as usize {
        return Err(NotEnoughDomains { found: domains.len() });
    }
    let mut layout = Layout::new(candidates, copies as usize, count as usize, class);
    layout.keep(current);
    layout.fill();
    layout.level();
    Ok(layout.into_groups())
}

/// A placement under construction. Devices are indices into `candidates`.
struct Layout<'a> {
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
}

impl<'a> Layout<'a> {
    fn new(candidates: &'a [Candidate], copies: usize, count: usize, class: &str) -> Layout<'a> {
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
        }
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

    /// Whether a group has a copy in the device's failure domain, other than `except`, or would have all in one site.
    fn is_domain_used(&self, group: usize, device: usize, except: Option<usize>) -> bool {
        let domain = self.domain(device);
        let mut others = self.groups[group].iter().filter(|member| Some(**member) != except);
        if others.clone().any(|member| self.domain(*member) == domain) {
            return true;
        }
        let site = self.candidates[device].site;
        let full = others.clone().count() + 1 >= self.copies;
        self.spread && full && others.all(|member| self.candidates[*member].site == site)
    }

    fn add(&mut self, group: usize, device: usize) {
        self.groups[group].push(device);
        self.loads[device] += 1;
    }

    /// Takes over what is still allowed of the placement so far.
    fn keep(&mut self, current: &[Vec<DeviceId>]) {
        let index: BTreeMap<DeviceId, usize> =
            self.candidates.iter().enumerate().map(|(index, candidate)| (candidate.id, index)).collect();
        for (group, members) in current.iter().enumerate().take(self.groups.len()) {
            for device in members.iter().filter_map(|id| index.get(id)) {
                if self.groups[group].len() < self.copies && !self.is_domain_used(group, *device, None) {
                    self.add(group, *device);
                }
            }
        }
    }

    /// Gives every group its missing copies: the first of its order with room, else the first at all.
    fn fill(&mut self) {
        for group in 0..self.groups.len() {
            while self.groups[group].len() < self.copies {
                let open = (0..self.candidates.len())
                    .filter(|device| self.takes(*device) && !self.is_domain_used(group, *device, None));
                let best = open.max_by(|a, b| {
                    let key = |device: usize| (self.loads[device] < self.limits[device], self.score(group, device));
                    let ((a_room, a_score), (b_room, b_score)) = (key(*a), key(*b));
                    a_room.cmp(&b_room).then(a_score.total_cmp(&b_score))
                });
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
                if self.loads[*member] <= self.floors[*member] || self.is_domain_used(group, to, Some(*member)) {
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
                if known || self.is_domain_used(group, to, Some(device)) {
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

#[cfg(test)]
mod tests;
