//! Properties of placements.

use proptest::prelude::*;

use super::quota::quotas;
use super::*;

pub(super) fn candidate(id: u32, weight: u64, domain: u32) -> Candidate {
    Candidate { id: DeviceId(id), weight, domain, site: None, takes: true, home: false }
}

/// Loads by device id.
pub(super) fn loads(groups: &[Vec<DeviceId>]) -> BTreeMap<DeviceId, usize> {
    let mut loads = BTreeMap::new();
    for device in groups.iter().flatten() {
        *loads.entry(*device).or_default() += 1;
    }
    loads
}

pub(super) fn moves(before: &[Vec<DeviceId>], after: &[Vec<DeviceId>]) -> usize {
    before.iter().zip(after).map(|(b, a)| a.iter().filter(|device| !b.contains(device)).count()).sum()
}

/// Members are distinct, in different domains, and as many as asked for.
pub(super) fn is_sound(candidates: &[Candidate], copies: u32, groups: &[Vec<DeviceId>]) -> bool {
    let domain: BTreeMap<DeviceId, u32> = candidates.iter().map(|c| (c.id, c.domain)).collect();
    groups.iter().all(|members| {
        let domains: BTreeSet<u32> = members.iter().map(|id| domain[id]).collect();
        members.len() == copies as usize && domains.len() == members.len()
    })
}

#[test]
fn group_counts() {
    for (devices, copies, count) in [(1, 1, 64), (3, 2, 64), (3, 3, 64), (12, 3, 128), (50, 2, 1024), (150, 3, 2048)] {
        assert_eq!(group_count(devices, copies), count, "{devices} devices, {copies} copies");
    }
    assert_eq!(group_count(50_000, 3), 8192);
    assert_eq!(group_count(usize::MAX, 0), 8192);
}

#[test]
fn copies_are_in_several_sites_where_that_matters() {
    let on = |id: u32| Candidate { site: Some(u32::from(id > 4)), ..candidate(id, 8 << 30, id) };
    let candidates: Vec<Candidate> = (1..=6).map(on).collect();
    for copies in 2..=4 {
        let groups = place(&candidates, copies, 64, "default", &[]).unwrap();
        assert!(is_sound(&candidates, copies, &groups));
        for members in &groups {
            assert!(members.iter().any(|id| id.0 > 4) && members.iter().any(|id| id.0 <= 4), "{members:?}");
        }
        assert_eq!(place(&candidates, copies, 64, "default", &groups).unwrap(), groups);
    }
}

#[test]
fn three_equal_nodes_share_evenly() {
    let candidates: Vec<Candidate> = (1..=3).map(|id| candidate(id, 8 << 30, id)).collect();
    let groups = place(&candidates, 2, 64, "default", &[]).unwrap();
    assert!(is_sound(&candidates, 2, &groups));
    let mut loads: Vec<usize> = loads(&groups).into_values().collect();
    loads.sort_unstable();
    assert_eq!(loads, [42, 43, 43]);
    let primaries = balance_primaries(&groups, &[]);
    let mut led: Vec<usize> = loads_of(&primaries).into_values().collect();
    led.sort_unstable();
    assert_eq!(led, [21, 21, 22]);
    assert!(place(&candidates, 4, 64, "default", &[]) == Err(NotEnoughDomains { found: 3 }));
}

fn loads_of(primaries: &[DeviceId]) -> BTreeMap<DeviceId, usize> {
    loads(&primaries.iter().map(|primary| vec![*primary]).collect::<Vec<_>>())
}

#[test]
fn a_new_device_takes_its_share_and_nothing_else_moves() {
    let mut candidates: Vec<Candidate> = (1..=12).map(|id| candidate(id, 1 << 40, id / 3)).collect();
    let before = place(&candidates, 3, 128, "default", &[]).unwrap();
    candidates.push(candidate(13, 1 << 40, 9));
    let after = place(&candidates, 3, 128, "default", &before).unwrap();
    assert!(is_sound(&candidates, 3, &after));
    let arrived = loads(&after)[&DeviceId(13)];
    let share = 3.0 * 128.0 / 13.0;
    assert!((arrived as f64 - share).abs() <= 2.0, "{arrived} of {share}");
    // A move to another device than the new one would be a needless one, but for a chain through a full domain.
    assert!(moves(&before, &after) <= arrived + arrived / 4, "{} moves for {arrived}", moves(&before, &after));
}

#[test]
fn a_lost_device_moves_only_its_own_copies() {
    let mut candidates: Vec<Candidate> = (1..=10).map(|id| candidate(id, 1 << 40, id)).collect();
    let before = place(&candidates, 2, 256, "default", &[]).unwrap();
    candidates.remove(4);
    let after = place(&candidates, 2, 256, "default", &before).unwrap();
    assert!(is_sound(&candidates, 2, &after));
    assert_eq!(moves(&before, &after), loads(&before)[&DeviceId(5)]);
    // Placing again changes nothing.
    assert_eq!(place(&candidates, 2, 256, "default", &after).unwrap(), after);
}

#[test]
fn a_device_that_is_away_keeps_its_copies_and_gets_none() {
    let mut candidates: Vec<Candidate> = (1..=6).map(|id| candidate(id, 1 << 40, id)).collect();
    let before = place(&candidates, 2, 128, "default", &[]).unwrap();
    candidates[1].takes = false;
    assert_eq!(place(&candidates, 2, 128, "default", &before).unwrap(), before);
    candidates.remove(4);
    let after = place(&candidates, 2, 128, "default", &before).unwrap();
    assert!(is_sound(&candidates, 2, &after));
    assert_eq!(loads(&after)[&DeviceId(2)], loads(&before)[&DeviceId(2)]);
    assert_eq!(moves(&before, &after), loads(&before)[&DeviceId(5)]);
    // Nowhere to go: fewer copies rather than a panic.
    candidates.iter_mut().for_each(|candidate| candidate.takes = false);
    assert!(place(&candidates, 2, 128, "default", &before).unwrap().iter().any(|members| members.len() == 1));
}

#[test]
fn a_thousand_nodes() {
    let candidates: Vec<Candidate> = (0..1000).map(|id| candidate(id, 4 << 40, id)).collect();
    let groups = place(&candidates, 3, 8192, "default", &[]).unwrap();
    assert!(is_sound(&candidates, 3, &groups));
    let loads = loads(&groups);
    assert!(loads.len() == 1000 && loads.values().all(|load| (24..=25).contains(load)));
}

prop_compose! {
    /// Up to 8 domains of up to 4 devices of 1 to 4 units, and a number of copies that fits.
    pub(super) fn clusters()(
        domains in prop::collection::vec(prop::collection::vec(1_u64..5, 1..5), 2..8)
    )(
        copies in 1..=domains.len().min(4) as u32,
        domains in Just(domains),
    ) -> (Vec<Candidate>, u32) {
        let mut next = 0;
        let mut candidates = Vec::new();
        for (domain, devices) in domains.iter().enumerate() {
            for weight in devices {
                next += 1;
                candidates.push(candidate(next, weight << 40, domain as u32));
            }
        }
        (candidates, copies)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn placements_are_sound_and_respect_weights((candidates, copies) in clusters(), count in 16_u32..130) {
        let groups = place(&candidates, copies, count, "c", &[]).unwrap();
        prop_assert!(is_sound(&candidates, copies, &groups));
        let loads = loads(&groups);
        for (candidate, quota) in candidates.iter().zip(quotas(&candidates, copies as usize, count as usize)) {
            let load = loads.get(&candidate.id).copied().unwrap_or(0) as f64;
            // Never above the quota by a whole group more than rounding; below by what rounding gives to others.
            prop_assert!(load <= quota + 1.0 + 1e-6, "{candidate:?}: {load} of {quota}");
            prop_assert!(load >= quota - 2.0, "{candidate:?}: {load} of {quota}");
        }
    }

    #[test]
    fn growth_moves_little((candidates, copies) in clusters(), weight in 1_u64..5, own_domain: bool) {
        let before = place(&candidates, copies, 128, "c", &[]).unwrap();
        let mut grown = candidates.clone();
        let domain = if own_domain { 99 } else { candidates[0].domain };
        grown.push(candidate(1_000, weight << 40, domain));
        let after = place(&grown, copies, 128, "c", &before).unwrap();
        prop_assert!(is_sound(&grown, copies, &after));
        // What must move: half of the sum of what devices are off their new quotas. A chain costs a few moves each.
        let old_loads = loads(&before);
        let off: f64 = grown.iter().zip(quotas(&grown, copies as usize, 128)).map(|(candidate, quota)| {
            (old_loads.get(&candidate.id).copied().unwrap_or(0) as f64 - quota).max(0.0)
        }).sum();
        prop_assert!(moves(&before, &after) as f64 <= 1.5 * off + 2.0, "{} for {off}", moves(&before, &after));
        prop_assert_eq!(place(&grown, copies, 128, "c", &after).unwrap(), after);
    }

    #[test]
    fn primaries_are_members_and_balanced((candidates, copies) in clusters(), count in 16_u32..130) {
        let groups = place(&candidates, copies, count, "c", &[]).unwrap();
        let primaries = balance_primaries(&groups, &[]);
        prop_assert!(groups.iter().zip(&primaries).all(|(members, primary)| members.contains(primary)));
        let led = loads_of(&primaries);
        for (device, load) in loads(&groups) {
            let target = load as f64 / f64::from(copies);
            let led = led.get(&device).copied().unwrap_or(0) as f64;
            prop_assert!((led - target).abs() < 1.0 + 1e-6, "{device:?}: {led} of {target}");
        }
        // Balanced primaries stay.
        prop_assert_eq!(balance_primaries(&groups, &primaries), primaries);
    }
}
