//! Which snapshots a protection keeps.
//!
//! A snapshot shows the volume as it was from its time until the next one's. It is kept while that is of use: in the
//! first period, whenever any of that time lies in it; in each later one, when it shows one of the period's ticks
//! (multiples of its pause, counted from 1970) that lie in it. The newest shows the present and is always kept. So, for
//! any time in a period, there is a snapshot that shows the volume as it was at the tick before; thinning again and
//! again, at whatever times, does not change that.

use azekura_model::{MetaError, ProtectionRecord, VOLUME_SNAPSHOTS_MAX};

/// Shortest pause between two snapshots, seconds.
pub const EVERY_SECONDS_MIN: u64 = 1;
/// Longest time that anything is kept, seconds: ten years.
pub const KEEP_SECONDS_MAX: u64 = 10 * 366 * 86_400;
/// Most steps of thinning.
pub const STEPS_MAX: usize = 8;
/// Snapshots that a protection leaves for people to make.
const LEFT_FOR_PEOPLE: u64 = 128;

/// Whether a protection makes sense, and keeps no more snapshots than a volume may have.
pub fn check(protection: &ProtectionRecord) -> Result<(), MetaError> {
    let refused = |reason: String| Err(MetaError::InvalidProtection { reason });
    if protection.every_seconds < EVERY_SECONDS_MIN {
        return refused("there is no pause between two snapshots".to_owned());
    }
    if protection.keep_seconds < protection.every_seconds {
        return refused("snapshots would be deleted before the next one is made".to_owned());
    }
    if protection.then.len() > STEPS_MAX {
        return refused(format!("{STEPS_MAX} steps of thinning are the most"));
    }
    let (mut every, mut keep) = (protection.every_seconds, protection.keep_seconds);
    for step in &protection.then {
        if step.every_seconds <= every || step.keep_seconds <= keep {
            return refused(
                "each step has to keep fewer snapshots, and to go back further, than the one before".to_owned(),
            );
        }
        if step.keep_seconds < step.every_seconds {
            return refused("a step has to go back further than the pause between two of its snapshots".to_owned());
        }
        (every, keep) = (step.every_seconds, step.keep_seconds);
    }
    if keep > KEEP_SECONDS_MAX {
        return refused("ten years are the most that snapshots are kept".to_owned());
    }
    let (count, most) = (count_max(protection), VOLUME_SNAPSHOTS_MAX as u64 - LEFT_FOR_PEOPLE);
    if count > most {
        return refused(format!("it would keep {count} snapshots; {most} are the most"));
    }
    Ok(())
}

/// Most snapshots that a protection keeps at once.
#[must_use]
pub fn count_max(protection: &ProtectionRecord) -> u64 {
    let dense = protection.keep_seconds / protection.every_seconds.max(1) + 3;
    let steps = protection.then.iter().map(|step| step.keep_seconds / step.every_seconds.max(1) + 1);
    dense + steps.sum::<u64>()
}

/// Of snapshots made at these times (seconds since 1970, ascending), which are not kept at `now`.
#[must_use]
pub fn superfluous(protection: &ProtectionRecord, times: &[u64], now: u64) -> Vec<usize> {
    let unneeded = |(index, from): (usize, &u64)| {
        let until = *times.get(index + 1)?;
        (!shows_something(protection, *from, until, now)).then_some(index)
    };
    times.iter().enumerate().filter_map(unneeded).collect()
}

/// Whether a snapshot that shows the volume from `from` until before `until` is of use.
fn shows_something(protection: &ProtectionRecord, from: u64, until: u64, now: u64) -> bool {
    let dense = until > now.saturating_sub(protection.keep_seconds);
    dense
        || protection.then.iter().any(|step| {
            let begin = from.max(now.saturating_sub(step.keep_seconds));
            begin.div_ceil(step.every_seconds) * step.every_seconds < until
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::Thinning;
    use proptest::prelude::*;

    fn protection(every: u64, keep: u64, then: &[(u64, u64)]) -> ProtectionRecord {
        let step = |(every_seconds, keep_seconds): &(u64, u64)| Thinning {
            every_seconds: *every_seconds,
            keep_seconds: *keep_seconds,
        };
        ProtectionRecord { every_seconds: every, keep_seconds: keep, then: then.iter().map(step).collect() }
    }

    /// Thins `times` at `now`.
    fn thin(protection: &ProtectionRecord, times: &mut Vec<u64>, now: u64) {
        for index in superfluous(protection, times, now).into_iter().rev() {
            times.remove(index);
        }
    }

    #[test]
    fn a_month_of_protection() {
        let policy = protection(10, 3_600, &[(3_600, 86_400), (86_400, 30 * 86_400)]);
        check(&policy).unwrap();
        let (mut times, mut most) = (Vec::new(), 0);
        let start = 1_790_000_000;
        for step in 0..40 * 8_640 {
            let now = start + step * 10;
            times.push(now);
            // As often as a busy leader would, and not at each.
            if step % 6 == 0 {
                thin(&policy, &mut times, now);
                most = most.max(times.len());
            }
        }
        let now = times[times.len() - 1];
        thin(&policy, &mut times, now);
        let younger = |age: u64| times.iter().filter(|time| now - **time <= age).count();
        assert_eq!(younger(3_600), 361);
        assert!((361 + 22..=361 + 25).contains(&younger(86_400)), "{}", younger(86_400));
        assert!((361 + 22 + 28..=count_max(&policy) as usize).contains(&times.len()), "{}", times.len());
        assert!(most as u64 <= count_max(&policy) + 6, "{most}");
    }

    #[test]
    fn a_volume_that_is_not_written_keeps_what_it_was() {
        let policy = protection(10, 60, &[(600, 6_000)]);
        let mut times = vec![1_000, 1_010, 1_020];
        thin(&policy, &mut times, 1_000_000);
        assert_eq!(times, [1_020], "it is what the volume has been ever since");
        times.push(1_000_000);
        thin(&policy, &mut times, 1_000_050);
        assert_eq!(times, [1_020, 1_000_000], "what it was 60 s ago");
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            protection(0, 60, &[]),
            protection(60, 10, &[]),
            protection(10, 60, &[(10, 600)]),
            protection(10, 60, &[(20, 60)]),
            protection(10, 60, &[(100, 80)]),
            protection(10, 86_400, &[]),
            protection(3_600, 86_400, &[(86_400, u64::MAX)]),
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }

    fn policies() -> impl Strategy<Value = ProtectionRecord> {
        // Each step's pause is a multiple of the one before, as people's are.
        (1_u64..20, 1_u64..20, prop::collection::vec((2_u64..8, 2_u64..8), 0..3)).prop_map(|(every, keep, steps)| {
            let (mut pause, mut reach) = (every, every * keep);
            let mut then = Vec::new();
            for (more, further) in steps {
                (pause, reach) = (pause * more, reach.max(pause * more) * further);
                then.push((pause, reach));
            }
            protection(every, every * keep, &then)
        })
    }

    /// The newest that is not younger than `time`.
    fn shown(times: &[u64], time: u64) -> Option<u64> {
        times.iter().copied().filter(|at| *at <= time).max()
    }

    proptest! {
        #[test]
        fn every_time_in_a_period_is_shown_as_of_the_tick_before(
            policy in policies(),
            pauses in prop::collection::vec((1_u64..60, any::<bool>()), 1..80),
            ahead in 0_u64..200,
            probes in prop::collection::vec(any::<u64>(), 20),
        ) {
            let (mut now, mut all, mut kept) = (1_000, Vec::new(), Vec::new());
            for (pause, thins) in pauses {
                now += pause;
                all.push(now);
                kept.push(now);
                if thins {
                    thin(&policy, &mut kept, now);
                }
            }
            now += ahead;
            thin(&policy, &mut kept, now);
            let mut again = kept.clone();
            thin(&policy, &mut again, now);
            prop_assert_eq!(&again, &kept, "thinning twice is thinning once");
            prop_assert_eq!(kept.last(), all.last());
            let steps = policy.then.iter().map(|step| (step.every_seconds, step.keep_seconds));
            for (every, keep) in std::iter::once((1, policy.keep_seconds)).chain(steps) {
                for probe in &probes {
                    let time = now - probe % (keep + 1).min(now);
                    let tick = time / every * every;
                    if tick + keep >= now {
                        prop_assert_eq!(shown(&kept, tick), shown(&all, tick), "at {} of {}", tick, now);
                    }
                }
            }
        }

        #[test]
        fn no_more_is_kept_than_was_said(policy in policies(), count in 1_u64..600) {
            let mut times: Vec<u64> = (0..count).map(|index| 5_000 + index * policy.every_seconds).collect();
            let now = times[times.len() - 1];
            thin(&policy, &mut times, now);
            prop_assert!(times.len() as u64 <= count_max(&policy), "{} of {}", times.len(), count_max(&policy));
        }
    }
}
