//! Invariant 2: a sector is a linearizable register.
//!
//! Every write has its own value, so a history can be checked in O(n log n) (Gibbons and Korach, *Testing Shared
//! Memories*, 1997). The write of a value and the reads that returned it form a cluster. With `first_end` the
//! earliest end in the cluster and `last_start` the latest start, cluster A must come before cluster B if
//! A.first_end < B.last_start. The history is linearizable if and only if no two clusters must come before each
//! other, and no read ends before its write starts. A cluster with first_end < last_start is a forward zone: it
//! holds the value over all of that time. The others are backward zones: one moment inside is enough.

use crate::checks::compared;
use crate::checks::history::{NEVER, Register};
use crate::kernel::time::Stamp;
use crate::workloads::contents::{Value, ZERO};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
pub(super) struct Cluster {
    value: Value,
    write_start: Stamp,
    pub(super) first_end: Stamp,
    pub(super) last_start: Stamp,
    /// Somebody read it, or its write has ended: it happened.
    pub(super) happened: bool,
}

/// Checks one sector, in which nobody has written zeros.
///
/// # Errors
/// Says which operations contradict each other.
pub(crate) fn check(register: &Register) -> Result<(), String> {
    // The register starts with zeros, written before all else.
    let initial = Cluster { value: ZERO, write_start: 0, first_end: 0, last_start: 0, happened: true };
    let mut clusters = BTreeMap::from([(ZERO, initial)]);
    for write in &register.writes {
        let cluster = Cluster {
            value: write.value,
            write_start: write.start,
            first_end: write.end,
            last_start: write.start,
            // One that was overtaken has happened by then, or never.
            happened: write.end != NEVER && !register.overtaken.contains(&write.value),
        };
        if clusters.insert(write.value, cluster).is_some() {
            return Err(format!("operation {} is recorded twice", write.value));
        }
    }
    for read in &register.reads {
        let Some(cluster) = clusters.get_mut(&read.value) else {
            return Err(format!("a read at {}..{} returned {}, which nobody wrote", read.start, read.end, read.value));
        };
        if read.end < cluster.write_start {
            return Err(format!(
                "a read at {}..{} returned {}, whose write started at {}",
                read.start, read.end, read.value, cluster.write_start
            ));
        }
        cluster.first_end = cluster.first_end.min(read.end);
        cluster.last_start = cluster.last_start.max(read.start);
        cluster.happened = true;
    }
    let happened = compared::joined(register, clusters)?.into_values().filter(|cluster| cluster.happened);
    let (mut forward, backward): (Vec<Cluster>, Vec<Cluster>) =
        happened.partition(|cluster| cluster.first_end < cluster.last_start);
    forward.sort_by_key(|cluster| cluster.first_end);
    for pair in forward.windows(2) {
        if pair[1].first_end < pair[0].last_start {
            return Err(contradiction(&pair[0], &pair[1]));
        }
    }
    for cluster in &backward {
        // The last forward zone that starts before this backward zone does: the zones do not overlap, so it is the
        // only one that can hold it.
        let after = forward.partition_point(|zone| zone.first_end < cluster.last_start);
        if let Some(zone) = after.checked_sub(1).map(|at| &forward[at])
            && cluster.first_end < zone.last_start
        {
            return Err(contradiction(zone, cluster));
        }
    }
    Ok(())
}

pub(super) fn contradiction(a: &Cluster, b: &Cluster) -> String {
    let name = |cluster: &Cluster| match cluster.value {
        ZERO => "the initial zeros".to_string(),
        value => format!("operation {value}"),
    };
    format!(
        "{} ({} done by {}, still begun to be read or written at {}) and {} ({} done by {}, begun at {}) must each \
         come before the other",
        name(a),
        name(a),
        a.first_end,
        a.last_start,
        name(b),
        name(b),
        b.first_end,
        b.last_start
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::history::{Seen, Written};
    use crate::kernel::random::Random;

    fn register(writes: &[(Value, Stamp, Stamp)], reads: &[(Value, Stamp, Stamp)]) -> Register {
        Register {
            writes: writes.iter().map(|&(value, start, end)| Written { value, start, end }).collect(),
            reads: reads.iter().map(|&(value, start, end)| Seen { value, start, end }).collect(),
            ..Register::default()
        }
    }

    fn holds(writes: &[(Value, Stamp, Stamp)], reads: &[(Value, Stamp, Stamp)]) -> bool {
        check(&register(writes, reads)).is_ok()
    }

    #[test]
    fn the_latest_write_is_read() {
        assert!(holds(&[(1, 1, 2), (2, 3, 4)], &[(2, 5, 6)]));
        assert!(!holds(&[(1, 1, 2), (2, 3, 4)], &[(1, 5, 6)]), "stale");
        assert!(!holds(&[(1, 1, 2)], &[(0, 3, 4)]), "lost");
        assert!(!holds(&[(1, 5, 6)], &[(1, 3, 4)]), "from the future");
        assert!(!holds(&[], &[(9, 3, 4)]), "from nowhere");
    }

    #[test]
    fn a_concurrent_write_may_be_read_or_not_but_not_unread() {
        assert!(holds(&[(1, 1, 10)], &[(0, 2, 3), (1, 4, 5)]));
        assert!(!holds(&[(1, 1, 10)], &[(1, 2, 3), (0, 4, 5)]), "new, then old");
        assert!(holds(&[(1, 1, 10), (2, 2, 9)], &[(1, 11, 12)]));
        assert!(holds(&[(1, 1, 10), (2, 2, 9)], &[(2, 11, 12)]));
        assert!(!holds(&[(1, 1, 10), (2, 2, 9)], &[(2, 11, 12), (1, 13, 14)]));
    }

    #[test]
    fn a_write_of_unknown_outcome_happens_once_at_most() {
        assert!(holds(&[(1, 1, NEVER)], &[(0, 2, 3)]));
        assert!(holds(&[(1, 1, NEVER), (2, 5, 6)], &[(2, 7, 8), (1, 9, 10)]));
        assert!(!holds(&[(1, 1, NEVER), (2, 5, 6)], &[(1, 3, 4), (2, 7, 8), (1, 9, 10)]), "applied twice");
    }

    /// Tries all orders.
    fn brute_force(register: &Register) -> bool {
        #[derive(Clone, Copy)]
        struct Op(bool, Value, Stamp, Stamp);
        let writes = register.writes.iter().map(|w| Op(true, w.value, w.start, w.end));
        let reads = register.reads.iter().map(|r| Op(false, r.value, r.start, r.end));
        fn search(left: &[Op], value: Value) -> bool {
            // Writes that have not ended need not happen.
            if left.iter().all(|op| op.0 && op.3 == NEVER) {
                return true;
            }
            (0..left.len()).any(|at| {
                let op = left[at];
                if left.iter().any(|other| other.3 < op.2) || (!op.0 && op.1 != value) {
                    return false;
                }
                let mut rest = left.to_vec();
                rest.remove(at);
                search(&rest, if op.0 { op.1 } else { value })
            })
        }
        search(&writes.chain(reads).collect::<Vec<_>>(), ZERO)
    }

    #[test]
    fn zones_agree_with_trying_all_orders() {
        let (mut good, mut bad) = (0, 0);
        for seed in 0..6000 {
            let mut random = Random::new(seed);
            let (writes, reads) = (random.between(1, 3), random.between(1, 4));
            let mut stamps: Vec<Stamp> = (1..=2 * (writes + reads)).collect();
            let mut interval = |random: &mut Random| {
                let a = stamps.swap_remove(random.below(stamps.len().min(6) as u64) as usize);
                let b = stamps.swap_remove(random.below(stamps.len().min(6) as u64) as usize);
                (a.min(b), a.max(b))
            };
            let mut register = Register::default();
            for value in 1..=writes {
                let (start, end) = interval(&mut random);
                let end = if random.chance(15) { NEVER } else { end };
                register.writes.push(Written { value, start, end });
            }
            for _ in 0..reads {
                let (start, end) = interval(&mut random);
                register.reads.push(Seen { value: random.below(writes + 1), start, end });
            }
            let expected = brute_force(&register);
            assert_eq!(check(&register).is_ok(), expected, "seed {seed}: {register:?}");
            if expected { good += 1 } else { bad += 1 }
        }
        assert!(good > 500 && bad > 500, "{good} {bad}");
    }
}
