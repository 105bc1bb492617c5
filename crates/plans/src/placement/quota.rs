//! How many groups a device should hold a copy of.

use std::collections::BTreeMap;

use super::Candidate;

/// Each device's share of `count` groups of `copies` copies, by weight; a failure domain never gets more than one copy
/// of a group, and what is too much for it goes to the others.
pub(super) fn quotas(candidates: &[Candidate], copies: usize, count: usize) -> Vec<f64> {
    let mut weights: BTreeMap<u32, f64> = BTreeMap::new();
    for candidate in candidates {
        *weights.entry(candidate.domain).or_default() += candidate.weight as f64;
    }
    let mut shares: BTreeMap<u32, f64> = BTreeMap::new();
    let (mut copies_left, mut weight_left) = ((copies * count) as f64, weights.values().sum::<f64>());
    // The heaviest first: once one is not too heavy for its share, no lighter one is.
    let mut order: Vec<(u32, f64)> = weights.iter().map(|(domain, weight)| (*domain, *weight)).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for (domain, weight) in order {
        let share = if weight_left > 0.0 { copies_left * weight / weight_left } else { 0.0 };
        let share = share.min(count as f64);
        shares.insert(domain, share);
        copies_left -= share;
        weight_left -= weight;
    }
    candidates
        .iter()
        .map(|candidate| {
            let weight = weights.get(&candidate.domain).copied().unwrap_or(0.0);
            let share = shares.get(&candidate.domain).copied().unwrap_or(0.0);
            if weight > 0.0 { share * candidate.weight as f64 / weight } else { 0.0 }
        })
        .collect()
}
