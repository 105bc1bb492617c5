//! Processes with several shards: these crash, stall and are cut off together, and a later process may have others.

#![allow(clippy::unwrap_used)]

use azekura_sim::{AckRule, Mode, Plan, Report, Shards, run};
use std::num::NonZeroU8;
use std::time::Duration;

fn up_to(count: u8) -> Shards {
    Shards::UpTo(NonZeroU8::new(count).unwrap())
}

fn each(count: u8) -> Shards {
    Shards::Each(NonZeroU8::new(count).unwrap())
}

/// Runs a seed with these shards, under the rule that the command line gives it.
fn must_hold(mode: Mode, shards: Shards, seed: u64) -> Report {
    let ack = [AckRule::All, AckRule::All, AckRule::Majority, AckRule::EachSite][seed as usize % 4];
    let plan = Plan::draw(mode, seed).with_rule(ack).with_shards(shards);
    run(seed, &plan).unwrap_or_else(|violation| panic!("mode {mode:?}, {shards:?}, seed {seed}: {violation}"))
}

/// Four seeds of a mode, one for each ack rule: with two and with four shards, and with up to three or four.
fn must_hold_with_shards(mode: Mode) -> Report {
    let mut total = Report::default();
    for (shards, seed) in [(each(2), 1), (each(4), 2), (up_to(3), 3), (up_to(4), 4)] {
        total.add(&must_hold(mode, shards, seed));
    }
    total
}

fn faults(report: &Report, kind: &str) -> u64 {
    report.faults.get(kind).copied().unwrap_or_default()
}

#[test]
fn without_faults_everything_is_answered() {
    let report = must_hold_with_shards(Mode::Calm);
    assert_eq!(report.done, report.operations);
}

#[test]
fn connections_break_and_processes_crash() {
    must_hold_with_shards(Mode::Connections);
    let report = must_hold_with_shards(Mode::Crash);
    assert!(faults(&report, "crash of a node") > 5 && faults(&report, "crash of all nodes") > 2, "{report}");
}

#[test]
fn bits_flip() {
    let report = must_hold_with_shards(Mode::Flips);
    assert!(faults(&report, "flipped bit") > 5, "{report}");
}

#[test]
fn what_a_shard_gave_up_does_not_land_over_what_another_has_written() {
    let mut total = Report::default();
    for (mode, seed) in
        [(Mode::Crash, 4), (Mode::Crash, 10), (Mode::Crash, 13), (Mode::Partitions, 8), (Mode::Stalls, 10)]
    {
        let plan = Plan::draw(mode, seed).with_shards(each(if seed == 10 { 3 } else { 4 }));
        let plan = Plan { writes_linger: true, io_timeout: Some(Duration::from_millis(200)), ..plan };
        total.add(&run(seed, &plan).unwrap_or_else(|violation| panic!("mode {mode:?}, seed {seed}: {violation}")));
    }
    assert!(total.timed_out > 10, "{total}");
}

#[test]
fn links_are_cut() {
    must_hold_with_shards(Mode::Partitions);
}

#[test]
fn processes_stand_still_and_shards_do_alone() {
    let report = must_hold_with_shards(Mode::Stalls);
    assert!(faults(&report, "stalled process") > 5 && faults(&report, "stalled shard") > 5, "{report}");
}

#[test]
fn an_attachment_is_the_whole_process_s() {
    let report = must_hold_with_shards(Mode::Attachments);
    assert!(report.fences > 50, "{report}");
}

#[test]
fn snapshots_are_of_one_moment() {
    must_hold_with_shards(Mode::Snapshots);
}

#[test]
fn volumes_hold_what_the_model_does() {
    must_hold_with_shards(Mode::Fsx);
}

#[test]
fn devices_fail_hang_and_move() {
    must_hold_with_shards(Mode::Devices);
    must_hold_with_shards(Mode::Hangs);
}

#[test]
fn a_lost_class_and_narrow_links() {
    must_hold_with_shards(Mode::Lost);
    must_hold_with_shards(Mode::Slow);
}

#[test]
fn all_faults_together() {
    must_hold_with_shards(Mode::All);
}

#[test]
fn shards_that_are_peers_on_the_network_lose_nothing() {
    for (mode, seed) in [(Mode::Crash, 5), (Mode::All, 6)] {
        let plan = Plan { joined: false, ..Plan::draw(mode, seed).with_shards(up_to(3)) };
        run(seed, &plan).unwrap();
    }
}

#[test]
fn with_one_shard_a_seed_means_what_it_meant() {
    let plan = Plan { operations: 200, ..Plan::draw(Mode::All, 5) };
    let hash = |plan: &Plan| run(5, plan).map(|report| (report.trace_hash, report.steps)).unwrap();
    assert_eq!(hash(&plan), hash(&plan.clone().with_shards(each(1))));
    assert_eq!(hash(&plan), hash(&plan.clone().with_shards(up_to(1))));
    let more = plan.clone().with_shards(up_to(4));
    assert_eq!(hash(&more), hash(&more));
    assert_ne!(hash(&plan), hash(&more));
}

/// What runs with drawn shards have found, with the mode and rule that the command line gives such a seed.
#[test]
fn seeds_that_found_something() {
    // A process that had just started was taken for ended: the answer that nobody listens there was older than its
    // greeting, and came after it.
    // The check's fault: clients read everything while a drained device was still to be taken away, with a restart.
    for seed in [980_585_766, 820_384_960] {
        must_hold(Mode::All, Shards::draw(seed), seed);
    }
    // The plan's fault: a disk began to lose writes while the shard with the other copy stood still.
    let seed = 921_358_161;
    let plan = Plan::draw(Mode::Devices, seed).with_shards(Shards::draw(seed));
    let result = run(seed, &Plan { devices_fail: true, writes_lost: true, ..plan });
    result.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    // A disk lost what told that a copy was forgotten. The copy that had come since never began again, and was waited
    // for.
    let seed = 572_770_592;
    let plan = Plan::draw(Mode::All, seed).with_shards(Shards::draw(seed));
    let result = run(seed, &Plan { registered_starts: true, ..plan });
    result.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    // A restored volume that the backup had never seen attached gave out generations that fences had been made for.
    let seed = 750_521_124;
    let plan = Plan::draw(Mode::All, seed).with_shards(Shards::draw(seed));
    let result = run(seed, &Plan { registered_starts: true, goes_back: true, devices_fail: false, ..plan });
    result.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    // The check's fault: clients read everything while a node was still to be restarted as planned.
    let seed = 828_450_240;
    let plan = Plan::draw(Mode::Partitions, seed).with_shards(Shards::draw(seed));
    let result = run(seed, &Plan { registered_starts: true, ..plan });
    result.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    // The workload's fault: a volume was to grow while something was wrong with every device.
    let seed = 387_222_217;
    let plan = Plan::draw(Mode::Fsx, seed).with_shards(Shards::draw(seed));
    let result = run(seed, &Plan { registered_starts: true, devices_fail: true, ..plan });
    result.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
}

#[test]
fn limits_that_change_keep_no_request_for_ever() {
    let mut total = Report::default();
    for (mode, seed) in [(Mode::Calm, 1), (Mode::Crash, 2), (Mode::Partitions, 3), (Mode::Attachments, 4)] {
        let plan = Plan { limits_change: true, ..Plan::draw(mode, seed).with_shards(up_to(3)) };
        total.add(&run(seed, &plan).unwrap_or_else(|violation| panic!("mode {mode:?}, seed {seed}: {violation}")));
    }
    assert!(faults(&total, "limits changed") > 20, "{total}");
}
