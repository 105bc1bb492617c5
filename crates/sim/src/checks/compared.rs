//! Invariant 2 where clients compare before they write: a value that has replaced an expected one follows it at once.
//!
//! Values that follow each other so stand together in every order of the operations: nothing comes between them. What
//! must come before one of them comes before all, so they are one cluster for the check of `linearizable.rs`.

use super::linearizable::{Cluster, contradiction};
use crate::checks::history::{Compared, Register, Seen};
use crate::workloads::contents::Value;
use std::collections::BTreeMap;

/// Puts clusters together whose values follow each other at once.
///
/// # Errors
/// Says which operations contradict each other.
pub(super) fn joined(
    register: &Register,
    mut clusters: BTreeMap<Value, Cluster>,
) -> Result<BTreeMap<Value, Cluster>, String> {
    register.differed.iter().try_for_each(|seen| differed(&clusters, seen))?;
    let mut next = BTreeMap::new();
    for (value, expected) in happened(register) {
        if let Some(other) = next.insert(expected, value) {
            return Err(format!("operations {other} and {value} have both replaced what operation {expected} wrote"));
        }
    }
    let followers: Vec<Value> = next.values().copied().collect();
    let first = |value: &Value| !followers.contains(value);
    for start in next.keys().filter(|value| first(value)).copied().collect::<Vec<_>>() {
        let Some(mut whole) = clusters.remove(&start) else {
            return Err(format!("something has replaced what operation {start} wrote, and nobody wrote that"));
        };
        let mut at = start;
        while let Some(value) = next.remove(&at) {
            let Some(cluster) = clusters.remove(&value) else { break };
            if cluster.first_end < whole.last_start {
                return Err(contradiction(&whole, &cluster));
            }
            whole.happened = true;
            whole.first_end = whole.first_end.min(cluster.first_end);
            whole.last_start = whole.last_start.max(cluster.last_start);
            at = value;
        }
        clusters.insert(start, whole);
    }
    match next.keys().next() {
        None => Ok(clusters),
        Some(value) => Err(format!("operation {value} has replaced, through others, what itself wrote")),
    }
}

/// Those that have happened, with what each has replaced. One that nobody saw, and whose client knows nothing of it,
/// need not have.
fn happened(register: &Register) -> BTreeMap<Value, Value> {
    let seen = |value: Value| register.reads.iter().any(|read| read.value == value);
    let mut found = BTreeMap::new();
    loop {
        let before = found.len();
        for Compared { value, expected, is_certain } in register.compared.iter().copied() {
            if is_certain || seen(value) || found.values().any(|replaced| *replaced == value) {
                found.insert(value, expected);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// A client was told that something else was there.
fn differed(clusters: &BTreeMap<Value, Cluster>, seen: &Seen) -> Result<(), String> {
    let Some(cluster) = clusters.get(&seen.value).filter(|cluster| cluster.happened) else { return Ok(()) };
    if cluster.first_end < seen.start && seen.end < cluster.last_start {
        let (value, start, end) = (seen.value, seen.start, seen.end);
        return Err(format!("at {start}..{end} a client was told that {value} was not there, which was all that time"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::checks::history::{Compared, NEVER, Register, Seen, Written};
    use crate::checks::linearizable::check;
    use crate::kernel::random::Random;
    use crate::kernel::time::Stamp;
    use crate::workloads::contents::{Value, ZERO};

    /// Writes, and those that replace an expected value: (value, expected, start, end).
    fn register(writes: &[(Value, Stamp, Stamp)], compared: &[(Value, Value, Stamp, Stamp)]) -> Register {
        let mut register = Register::default();
        let all = writes.iter().copied().chain(compared.iter().map(|&(value, _, start, end)| (value, start, end)));
        register.writes = all.map(|(value, start, end)| Written { value, start, end }).collect();
        for &(value, expected, start, end) in compared {
            let is_certain = end != NEVER;
            register.compared.push(Compared { value, expected, is_certain });
            if is_certain {
                register.reads.push(Seen { value: expected, start, end });
            }
        }
        register
    }

    fn saw(mut register: Register, reads: &[(Value, Stamp, Stamp)]) -> Register {
        register.reads.extend(reads.iter().map(|&(value, start, end)| Seen { value, start, end }));
        register
    }

    #[test]
    fn what_was_expected_is_replaced_at_once() {
        assert!(check(&register(&[(1, 1, 2)], &[(2, 1, 3, 4), (3, 2, 5, 6)])).is_ok());
        assert!(check(&register(&[(1, 1, 2), (9, 3, 4)], &[(2, 1, 5, 6)])).is_err(), "another one between");
        assert!(check(&register(&[(1, 1, 2), (9, 3, 8)], &[(2, 1, 5, 6)])).is_ok(), "it may come later");
        let seen_between = saw(register(&[(1, 1, 2), (9, 3, 10)], &[(2, 1, 6, 7)]), &[(9, 4, 5)]);
        assert!(check(&seen_between).is_err());
    }

    #[test]
    fn of_two_that_expect_the_same_one_happens() {
        assert!(check(&register(&[(1, 1, 2)], &[(2, 1, 3, 8), (3, 1, 4, 9)])).is_err());
        assert!(check(&register(&[(1, 1, 2)], &[(2, 1, 3, 8), (3, 1, 4, NEVER)])).is_ok());
        let seen = saw(register(&[(1, 1, 2)], &[(2, 1, 3, 8), (3, 1, 4, NEVER)]), &[(3, 10, 11)]);
        assert!(check(&seen).is_err(), "its outcome was not known, and it has happened");
    }

    #[test]
    fn a_difference_is_told_only_when_there_may_have_been_one() {
        let told = |start, end| {
            let mut register = saw(register(&[(1, 1, 2)], &[]), &[(1, 20, 21)]);
            register.differed.push(Seen { value: 1, start, end });
            check(&register)
        };
        assert!(told(5, 6).is_err());
        assert!(told(1, 6).is_ok() && told(5, 22).is_ok());
    }

    /// Tries all orders.
    fn brute_force(register: &Register) -> bool {
        #[derive(Clone, Copy)]
        enum What {
            Write(Value, Option<Value>),
            Read(Value),
        }
        type Op = (What, Stamp, Stamp);
        let expected = |value| register.compared.iter().find(|c| c.value == value).map(|c| c.expected);
        let writes = register.writes.iter().map(|w| (What::Write(w.value, expected(w.value)), w.start, w.end));
        let ops: Vec<Op> = writes.chain(register.reads.iter().map(|r| (What::Read(r.value), r.start, r.end))).collect();
        fn search(left: &[Op], value: Value) -> bool {
            if left.iter().all(|op| matches!(op.0, What::Write(..)) && op.2 == NEVER) {
                return true;
            }
            (0..left.len()).any(|at| {
                let op = left[at];
                if left.iter().any(|other| other.2 < op.1) {
                    return false;
                }
                let next = match op.0 {
                    What::Read(seen) if seen != value => return false,
                    What::Write(_, Some(expected)) if expected != value => return false,
                    What::Read(_) => value,
                    What::Write(written, _) => written,
                };
                let mut rest = left.to_vec();
                rest.remove(at);
                search(&rest, next)
            })
        }
        search(&ops, ZERO)
    }

    #[test]
    fn joined_zones_agree_with_trying_all_orders() {
        let (mut good, mut bad) = (0, 0);
        for seed in 0..20_000 {
            let mut random = Random::new(seed);
            let (writes, reads) = (random.between(2, 4), random.between(0, 3));
            let mut stamps: Vec<Stamp> = (1..=2 * (writes + reads)).collect();
            let mut interval = |random: &mut Random| {
                let a = stamps.swap_remove(random.below(stamps.len().min(6) as u64) as usize);
                let b = stamps.swap_remove(random.below(stamps.len().min(6) as u64) as usize);
                (a.min(b), a.max(b))
            };
            let (mut plain, mut compared) = (Vec::new(), Vec::new());
            for value in 1..=writes {
                let (start, end) = interval(&mut random);
                let end = if random.chance(15) { NEVER } else { end };
                if random.chance(50) {
                    compared.push((value, random.below(value), start, end));
                } else {
                    plain.push((value, start, end));
                }
            }
            let seen: Vec<_> = (0..reads)
                .map(|_| {
                    let (start, end) = interval(&mut random);
                    (random.below(writes + 1), start, end)
                })
                .collect();
            // What the operations themselves have seen is a part of the register that is checked, not of the orders.
            let checked = saw(register(&plain, &compared), &seen);
            let mut ordered = checked.clone();
            ordered.reads.retain(|read| seen.contains(&(read.value, read.start, read.end)));
            let expected = brute_force(&ordered);
            assert_eq!(check(&checked).is_ok(), expected, "seed {seed}: {checked:?}");
            if expected { good += 1 } else { bad += 1 }
        }
        assert!(good > 500 && bad > 500, "{good} {bad}");
    }
}
