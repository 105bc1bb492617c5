//! One run of each kind, with a seed that nobody knows, or the one that `SIM_SEED` says.

#![allow(clippy::unwrap_used)]

use azekura_sim::{AckRule, Mode, Plan, Shards, run};
use std::hash::{BuildHasher, Hasher, RandomState};

/// The seed that `SIM_SEED` says, or else one that nobody knows.
fn fresh_seed() -> u64 {
    match std::env::var("SIM_SEED") {
        Ok(seed) => seed.parse().expect("SIM_SEED is a number"),
        Err(_) => RandomState::new().build_hasher().finish() % 1_000_000_000,
    }
}

#[test]
fn seeds_that_nobody_knows_lose_nothing() {
    let fresh = fresh_seed();
    let modes = [
        Mode::Crash,
        Mode::Partitions,
        Mode::Attachments,
        Mode::Reservations,
        Mode::Snapshots,
        Mode::Devices,
        Mode::Fsx,
        Mode::Slow,
        Mode::All,
    ];
    for ack in [AckRule::All, AckRule::Majority, AckRule::EachSite] {
        for mode in modes {
            let plan = Plan::draw(mode, fresh).with_rule(ack).with_shards(Shards::draw(fresh));
            let devices_fail = plan.devices_fail || matches!(mode, Mode::Snapshots | Mode::Fsx) && fresh % 2 == 1;
            let writes_lost = devices_fail && fresh.is_multiple_of(3);
            let plan = Plan { devices_fail, writes_lost, compares: fresh.is_multiple_of(2), ..plan };
            if let Err(violation) = run(fresh, &plan) {
                let Plan { mode, ack, shards, .. } = plan;
                let fails = format!("devices fail: {devices_fail}, writes lost: {writes_lost}");
                panic!("mode {mode:?}, {ack:?}, {shards:?}, {fails}, seed {fresh}: {violation}");
            }
        }
    }
}
