//! How many groups a device should hold a copy of.

use std::collections::BTreeMap;

use super::Candidate;

/// Each device's share of `count` groups of `copies` copies, by weight; a failure domain never gets more than one copy
/// of a group, and what is too much for it goes to the others. Where the devices at home have less than a copy of each
/// group by their weight, they get that, and the others the rest.
pub(super) fn quotas(candidates: &[Candidate], copies: usize, count: usize) -> Vec<f64> {
    let all = shares(candidates, |_| true, copies * count, |_| count as f64);
    let sum = |shares: &[f64], of: &dyn Fn(&Candidate) -> bool| -> f64 {
        candidates.iter().zip(shares).filter(|(candidate, _)| of(candidate)).map(|(_, share)| share).sum()
    };
    let is_home = |candidate: &Candidate| candidate.home;
    if !candidates.iter().any(is_home) || copies == 0 || sum(&all, &is_home) >= count as f64 {
        return all;
    }
    let home = shares(candidates, is_home, count, |_| count as f64);
    // A failure domain may have devices at home and others.
    let left = |domain: u32| count as f64 - sum(&home, &|candidate| candidate.domain == domain);
    let others = shares(candidates, |candidate| !candidate.home, (copies - 1) * count, left);
    home.into_iter().zip(others).map(|(home, other)| home + other).collect()
}

/// The shares of `copies` copies, by weight, of those devices that `counts`; `most`: what a failure domain may have.
fn shares(
    candidates: &[Candidate],
    counts: impl Fn(&Candidate) -> bool,
    copies: usize,
    most: impl Fn(u32) -> f64,
) -> Vec<f64> {
    let weight = |candidate: &Candidate| if counts(candidate) { candidate.weight as f64 } else { 0.0 };
    let mut weights: BTreeMap<u32, f64> = BTreeMap::new();
    for candidate in candidates {
        *weights.entry(candidate.domain).or_default() += weight(candidate);
    }
    let mut open: Vec<(u32, f64)> = weights.iter().map(|(domain, weight)| (*domain, *weight)).collect();
    let mut shares: BTreeMap<u32, f64> = BTreeMap::new();
    let mut copies_left = copies as f64;
    // What is too much for some is shared by the others, until it is too much for none.
    loop {
        let sum: f64 = open.iter().map(|(_, weight)| weight).sum();
        let share = |weight: f64| if sum > 0.0 { copies_left * weight / sum } else { 0.0 };
        let (full, rest): (Vec<_>, Vec<_>) = open.iter().partition(|(domain, weight)| share(*weight) > most(*domain));
        if full.is_empty() {
            shares.extend(rest.into_iter().map(|(domain, weight): (u32, f64)| (domain, share(weight))));
            break;
        }
        copies_left -= full.iter().map(|(domain, _)| most(*domain)).sum::<f64>();
        shares.extend(full.into_iter().map(|(domain, _): (u32, f64)| (domain, most(domain))));
        open = rest;
    }
    candidates
        .iter()
        .map(|candidate| {
            let of_domain = weights.get(&candidate.domain).copied().unwrap_or(0.0);
            let share = shares.get(&candidate.domain).copied().unwrap_or(0.0);
            if of_domain > 0.0 { share * weight(candidate) / of_domain } else { 0.0 }
        })
        .collect()
}
