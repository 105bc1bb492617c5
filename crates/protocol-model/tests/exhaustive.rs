//! Every state that can be reached within the bounds keeps the invariants. docs/protocol-model.md says what the bounds
//! leave out.
//!
//! A write together with two restarts includes what has fewer of either; the smaller bounds beside it allow another
//! epoch instead. What takes more than a few seconds is left to `--include-ignored`, for when the rules change.

use azekura_protocol_model::{AckRule, Bounds, Membership};
use stateright::{Checker, Model};
use std::sync::Mutex;
use std::time::Instant;

/// One at a time: what bounds the tests is memory.
static MEMORY: Mutex<()> = Mutex::new(());

fn holds(ack: AckRule, [epochs, versions, writes, restarts]: [u8; 4]) {
    let _one = MEMORY.lock();
    let model = Membership::new(ack, Bounds { epochs, versions, writes, restarts });
    let begun = Instant::now();
    let checker = model.checker().threads(2).spawn_bfs().join();
    // The steps' copies have numbers that change: `cargo run --example explore` with the same bounds tells the story.
    let broken = checker.discoveries().into_keys().collect::<Vec<_>>();
    assert!(broken.is_empty(), "{ack:?} within {epochs} {versions} {writes} {restarts}: {broken:?}");
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!(
        "{ack:?} {epochs} {versions} {writes} {restarts}: {states} states, at most {depth} steps, {:?}",
        begun.elapsed()
    );
}

#[test]
#[ignore = "millions of states"]
fn all_with_a_write_and_two_restarts() {
    holds(AckRule::All, [2, 3, 1, 2]);
}

#[test]
fn all_with_a_write_and_a_restart() {
    holds(AckRule::All, [2, 3, 1, 1]);
}

#[test]
fn majority_with_a_write_and_two_restarts() {
    holds(AckRule::Majority, [2, 3, 1, 2]);
}

#[test]
#[ignore = "millions of states"]
fn each_site_with_a_write_and_two_restarts() {
    holds(AckRule::EachSite, [2, 3, 1, 2]);
}

#[test]
#[ignore = "millions of states"]
fn all_with_two_claims_a_write_and_a_restart() {
    holds(AckRule::All, [3, 3, 1, 1]);
}

#[test]
fn majority_with_two_claims_a_write_and_a_restart() {
    holds(AckRule::Majority, [3, 3, 1, 1]);
}

#[test]
#[ignore = "millions of states"]
fn each_site_with_two_claims_a_write_and_a_restart() {
    holds(AckRule::EachSite, [3, 3, 1, 1]);
}

#[test]
#[ignore = "millions of states"]
fn majority_with_two_claims_that_are_confirmed_and_a_write() {
    holds(AckRule::Majority, [3, 4, 1, 0]);
}

#[test]
fn each_site_with_two_claims_that_are_confirmed_and_a_write() {
    holds(AckRule::EachSite, [3, 4, 1, 0]);
}
