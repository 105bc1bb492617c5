//! Volumes whose data key is rotated all the time: whatever else happens, what was written is read, also when its key
//! is another one by then, or gone.

#![allow(clippy::unwrap_used)]

use azekura_sim::{AckRule, Mode, Plan, Report, Shards, run};
use std::num::NonZeroU8;
use std::ops::RangeInclusive;

/// Runs seeds of a mode, each under its own rule, every other one with up to three shards.
fn must_hold(mode: Mode, devices_fail: bool, seeds: RangeInclusive<u64>) -> Report {
    let mut total = Report::default();
    for seed in seeds {
        let ack = [AckRule::All, AckRule::All, AckRule::Majority, AckRule::EachSite][seed as usize % 4];
        let shards = if seed % 2 == 0 { Shards::UpTo(NonZeroU8::new(3).unwrap()) } else { Shards::ONE };
        let mut plan = Plan { rekeys: true, ..Plan::draw(mode, seed).with_rule(ack).with_shards(shards) };
        plan.devices_fail |= devices_fail;
        match run(seed, &plan) {
            Ok(report) => total.add(&report),
            Err(violation) => {
                panic!("mode {mode:?}, {ack:?}, {shards:?}, devices fail: {devices_fail}, seed {seed}: {violation}")
            }
        }
    }
    total
}

/// Keys were rotated, volumes passed through, and former keys forgotten, so often at least.
fn has_rotated(report: &Report, least: u64) {
    for kind in ["key rotation", "volume rekeyed", "former keys forgotten"] {
        let count = report.faults.get(kind).copied().unwrap_or_default();
        assert!(count >= least, "{kind}: {count}; {report}");
    }
}

#[test]
fn without_faults_everything_is_answered() {
    let report = must_hold(Mode::Calm, false, 1..=4);
    assert_eq!(report.done, report.operations);
    has_rotated(&report, 8);
}

#[test]
fn nodes_crash_and_links_break() {
    has_rotated(&must_hold(Mode::Crash, false, 1..=4), 10);
    has_rotated(&must_hold(Mode::Partitions, false, 1..=4), 4);
}

#[test]
fn attachments_are_ended_by_force() {
    has_rotated(&must_hold(Mode::Attachments, false, 1..=6), 4);
}

#[test]
fn devices_fail_and_everything_else_happens() {
    has_rotated(&must_hold(Mode::All, true, 1..=6), 4);
}

#[test]
fn snapshots_keep_their_keys() {
    has_rotated(&must_hold(Mode::Snapshots, false, 1..=4), 4);
    has_rotated(&must_hold(Mode::Fsx, true, 1..=6), 4);
}
