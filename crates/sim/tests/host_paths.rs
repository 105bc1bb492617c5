//! Hosts that come through several nodes, turn away from some with writes under way, and go on by others.

#![allow(clippy::unwrap_used)]

use azekura_sim::{Mode, Plan, run};

/// What the mode is to torment happens: else its checks see nothing.
#[test]
fn hosts_turn_to_other_nodes() {
    let reports = (1..=8).map(|seed| run(seed, &Plan::draw(Mode::Attachments, seed)).unwrap().to_string());
    let turning = reports.filter(|report| report.contains("host's writes moved")).count();
    assert!(turning >= 2, "in {turning} of 8 runs");
}
