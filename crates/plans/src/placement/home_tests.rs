//! Properties of placements with a home.

use proptest::prelude::*;

use super::tests::{candidate, clusters, is_sound, loads, moves};
use super::*;

/// Those in one of the first `domains` failure domains are at home.
fn at_home(mut candidates: Vec<Candidate>, domains: u32) -> Vec<Candidate> {
    candidates.iter_mut().for_each(|candidate| candidate.home = candidate.domain < domains);
    candidates
}

fn has_home(candidates: &[Candidate], members: &[DeviceId]) -> bool {
    candidates.iter().any(|candidate| candidate.home && members.contains(&candidate.id))
}

fn domains(candidates: &[Candidate], which: impl Fn(&&Candidate) -> bool) -> usize {
    candidates.iter().filter(which).map(|candidate| candidate.domain).collect::<BTreeSet<_>>().len()
}

fn equal(nodes: u32, at: u32) -> Vec<Candidate> {
    at_home((0..nodes).map(|id| candidate(id + 1, 1 << 40, id)).collect(), at)
}

#[test]
fn one_copy_is_at_home_and_the_rest_is_by_size() {
    for (nodes, at, copies, expected) in [
        (4, 2, 2, vec![32, 32, 32, 32]),
        (5, 1, 3, vec![64, 32, 32, 32, 32]),
        // Home has more than a copy of each by its size.
        (4, 3, 3, vec![48, 48, 48, 48]),
        (3, 3, 2, vec![43, 43, 42]),
    ] {
        let candidates = equal(nodes, at);
        let groups = place(&candidates, copies, 64, "c", &[]).unwrap();
        assert!(is_sound(&candidates, copies, &groups));
        assert!(groups.iter().all(|members| has_home(&candidates, members)), "{groups:?}");
        let loads: Vec<usize> = loads(&groups).into_values().collect();
        let near = loads.iter().zip(&expected).all(|(load, expected)| load.abs_diff(*expected) <= 1);
        assert!(near && loads.iter().sum::<usize>() == 64 * copies as usize, "{nodes}, {at}, {copies}: {loads:?}");
        assert_eq!(place(&candidates, copies, 64, "c", &groups).unwrap(), groups, "nothing moves twice");
        let primaries = balance_primaries(&leaders(&candidates, &groups), &[]);
        assert!(primaries.iter().all(|primary| has_home(&candidates, &[*primary])));
    }
}

#[test]
fn a_home_that_shares_its_failure_domain_has_one_copy() {
    // Two racks of one site, and another site; copies are in different sites, and home is a rack.
    let mut candidates: Vec<Candidate> =
        [0, 0, 0, 1, 1].iter().enumerate().map(|(id, site)| candidate(id as u32 + 1, 1 << 40, *site)).collect();
    candidates[0].home = true;
    let groups = place(&candidates, 2, 64, "c", &[]).unwrap();
    assert!(is_sound(&candidates, 2, &groups));
    assert_eq!(
        loads(&groups).into_iter().map(|(id, load)| (id.0, load)).collect::<Vec<_>>(),
        [(1, 64), (4, 32), (5, 32)]
    );
}

#[test]
fn a_home_that_is_gone_binds_nobody_until_it_is_back() {
    let all = equal(5, 1);
    let before = place(&all, 2, 64, "c", &[]).unwrap();
    let without = place(&all[1..], 2, 64, "c", &before).unwrap();
    assert!(is_sound(&all, 2, &without));
    assert_eq!(moves(&before, &without), 64, "one copy of each");
    let back = place(&all, 2, 64, "c", &without).unwrap();
    assert!(is_sound(&all, 2, &back) && back.iter().all(|members| has_home(&all, members)));
    assert!((64..68).contains(&moves(&without, &back)), "{}", moves(&without, &back));
}

#[test]
fn a_home_that_is_away_for_a_moment_keeps_its_copies() {
    let mut candidates = equal(5, 2);
    let before = place(&candidates, 2, 64, "c", &[]).unwrap();
    candidates[0].takes = false;
    candidates[1].takes = false;
    assert_eq!(place(&candidates, 2, 64, "c", &before).unwrap(), before);
    // What is lost elsewhere meanwhile is made anew elsewhere.
    let lost = candidates.remove(4).id;
    let after = place(&candidates, 2, 64, "c", &before).unwrap();
    assert!(is_sound(&candidates, 2, &after));
    assert_eq!(moves(&before, &after), loads(&before)[&lost]);
}

#[test]
fn sites_that_acknowledge_are_not_given_up_for_a_home() {
    let on = |id: u32| Candidate { site: Some(u32::from(id > 3)), home: id <= 3, ..candidate(id, 8 << 30, id) };
    let candidates: Vec<Candidate> = (1..=6).map(on).collect();
    for copies in 2..=4 {
        let groups = place(&candidates, copies, 64, "c", &[]).unwrap();
        assert!(is_sound(&candidates, copies, &groups));
        for members in &groups {
            assert!(members.iter().any(|id| id.0 <= 3) && members.iter().any(|id| id.0 > 3), "{members:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_group_has_a_copy_at_home((candidates, copies) in clusters(), at in 1_u32..4, count in 16_u32..130) {
        let candidates = at_home(candidates, at);
        let groups = place(&candidates, copies, count, "c", &[]).unwrap();
        prop_assert!(is_sound(&candidates, copies, &groups));
        prop_assert!(groups.iter().all(|members| has_home(&candidates, members)));
        prop_assert_eq!(place(&candidates, copies, count, "c", &groups).unwrap(), groups);
    }

    #[test]
    fn a_lost_device_moves_little((candidates, copies) in clusters(), at in 1_u32..4, which: prop::sample::Index) {
        let mut left = at_home(candidates, at);
        let before = place(&left, copies, 128, "c", &[]).unwrap();
        let lost = left.remove(which.index(left.len())).id;
        prop_assume!(domains(&left, |_| true) >= copies as usize && left.iter().any(|candidate| candidate.home));
        let after = place(&left, copies, 128, "c", &before).unwrap();
        prop_assert!(is_sound(&left, copies, &after));
        prop_assert!(after.iter().all(|members| has_home(&left, members)));
        // Its copies, and those that make room for them.
        let load = loads(&before).get(&lost).copied().unwrap_or(0);
        prop_assert!(moves(&before, &after) <= 3 * load + 8, "{} for {load}", moves(&before, &after));
    }
}
