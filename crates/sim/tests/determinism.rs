//! A seed decides everything.

#![allow(clippy::unwrap_used)]

use azekura_sim::{Mode, Plan, run};

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    for mode in [Mode::Crash, Mode::Flips] {
        let hash = |seed| {
            let plan = Plan { operations: 400, ..Plan::draw(mode, seed) };
            run(seed, &plan).map(|report| (report.trace_hash, report.steps)).expect("the run breaks nothing")
        };
        let first = hash(3);
        let other = hash(4);
        assert_eq!(first, hash(3), "{mode:?}");
        assert_ne!(first, other, "{mode:?}");
    }
}
