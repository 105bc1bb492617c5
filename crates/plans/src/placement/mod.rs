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
use azekura_model::{AckRule, ClassRecord, DeviceRecord, FailureDomain, MetaError, Model, class_shown};

mod layout;
mod primaries;
mod quota;
mod rendezvous;

use layout::Layout;
pub use primaries::balance_primaries;

/// Groups of a class in a cluster of few devices.
const GROUPS_MIN: u32 = 64;
/// Groups of a class in the largest cluster.
const GROUPS_MAX: u32 = azekura_model::transitions::new_groups::GROUPS_PER_CLASS_MAX;
/// Groups that each device should hold a copy of, about.
const GROUPS_PER_DEVICE: u32 = 32;

/// Groups of a small volume's own.
const OWN_GROUPS_MIN: u32 = 4;
/// Groups of a large volume's own.
const OWN_GROUPS_MAX: u32 = 32;

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
    /// It is at the class's home: a copy of each group is to be on such a device.
    pub home: bool,
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

/// The number of groups that a volume of this size has of its own: a power of two near one for each 8 GiB, 4 to 32. A
/// group is on one device of the home, so more of them use more devices there.
#[must_use]
pub fn own_group_count(size_bytes: u64) -> u32 {
    let wanted = (size_bytes >> 33).clamp(u64::from(OWN_GROUPS_MIN), u64::from(OWN_GROUPS_MAX));
    1 << wanted.ilog2()
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
            let home = class.home.as_ref().is_some_and(|home| node.is_at(home));
            Some(Candidate { id: device.id, weight: device.capacity_bytes, domain, site, takes, home })
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
        return Err(MetaError::InvalidClass { name: class_shown(&class.name).to_owned(), reason: reason.to_owned() });
    }
    if let Some(home) = class.home.as_ref().filter(|_| !candidates.iter().any(|candidate| candidate.home)) {
        let reason = format!("a copy of every block is to be in {home}, and no device in use is there");
        return Err(MetaError::InvalidClass { name: class_shown(&class.name).to_owned(), reason });
    }
    let members =
        place(&candidates, class.copies, count, &class.name, &[]).map_err(|error| MetaError::NotEnoughDevices {
            class: class_shown(&class.name).to_owned(),
            copies: class.copies,
            failure_domain: class.failure_domain,
            found: error.found,
        })?;
    let primaries = balance_primaries(&leaders(&candidates, &members), &[]);
    Ok(members.into_iter().zip(primaries).map(|(members, primary)| NewGroup { members, primary }).collect())
}

/// The members of each group that its primary is to be one of: those at home, where there are some.
fn leaders(candidates: &[Candidate], groups: &[Vec<DeviceId>]) -> Vec<Vec<DeviceId>> {
    let home: BTreeSet<DeviceId> = candidates.iter().filter(|candidate| candidate.home).map(|it| it.id).collect();
    let at_home = |members: &Vec<DeviceId>| members.iter().copied().filter(|id| home.contains(id)).collect::<Vec<_>>();
    groups
        .iter()
        .map(|members| Some(at_home(members)).filter(|some| !some.is_empty()).unwrap_or(members.clone()))
        .collect()
}

/// The devices of each of `count` groups. `current` is the placement so far (empty for a new class): copies on usable
/// devices stay where they are as far as failure domains, quotas and the class's home allow.
///
/// Guarantees: `copies` devices a group, all in different failure domains; one of them at home, while devices there may
/// be given copies; a device's groups near its quota. While some candidates take nothing, a group for which no other
/// device is left keeps fewer.
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
    Ok(Layout::new(candidates, copies as usize, count as usize, class).place(current))
}

#[cfg(test)]
mod home_tests;
#[cfg(test)]
mod tests;
