//! The checkers notice when a part of the world breaks its promises.

#![allow(clippy::unwrap_used)]

use azekura_sim::{Invariant, Lie, Mode, Plan, run};

/// The invariants that `seeds` seeds break while something lies.
fn caught(lie: Lie, seeds: u64) -> Vec<Invariant> {
    let violation = |seed| run(seed, &Plan { lie: Some(lie), ..Plan::draw(Mode::Crash, seed) }).err();
    (1..=seeds).filter_map(violation).map(|violation| violation.invariant).collect()
}

#[test]
fn disks_that_lose_durable_writes_are_noticed() {
    let caught = caught(Lie::LosingDisk, 5);
    assert_eq!(caught.len(), 5, "{caught:?}");
}

#[test]
fn acknowledgements_before_a_write_is_durable_are_noticed() {
    assert!(!caught(Lie::EarlyDurable, 20).is_empty());
    assert!(!caught(Lie::EarlyPrepareOk, 20).is_empty());
}

#[test]
fn writes_that_are_applied_twice_are_noticed() {
    let caught = caught(Lie::DoubledWrites, 5);
    assert!(caught.iter().all(|invariant| *invariant == Invariant::Linearizable) && caught.len() >= 4, "{caught:?}");
}
