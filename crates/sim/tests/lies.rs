//! The checkers notice when a part of the world breaks its promises, each time within the first twenty seeds of a mode;
//! few lies within more.

#![allow(clippy::unwrap_used)]

use azekura_sim::{AckRule, Invariant, Lie, Mode, Plan, Shards, Violation, run};
use clap::ValueEnum;
use std::num::NonZeroU8;
use std::time::Duration;

/// A lie that more seeds are needed for is not noticed, unless its test says so. The seeds are those from 1 on, and
/// none is left out.
const SEEDS_MAX: u64 = 20;

/// The invariants that `seeds` seeds break, each with its own plan.
fn all_caught(plan: impl Fn(u64) -> Plan, seeds: u64) -> Vec<Invariant> {
    assert!(seeds <= SEEDS_MAX);
    (1..=seeds).filter_map(|seed| run(seed, &plan(seed)).err()).map(|violation| violation.invariant).collect()
}

/// What goes on at each seed while something lies.
fn lying(lie: Lie, mode: Mode) -> impl Fn(u64) -> Plan {
    // Only where they are to be seen do devices fail, and nothing else makes the clients wait.
    let devices_fail = mode == Mode::Devices;
    move |seed| {
        let plan = Plan { lie: Some(lie), devices_fail, devices_hang: false, ..Plan::draw(mode, seed) };
        Plan { new_logs: false, ..plan }
    }
}

/// The invariants that `seeds` seeds break while something lies.
fn caught(lie: Lie, mode: Mode, seeds: u64) -> Vec<Invariant> {
    all_caught(lying(lie, mode), seeds)
}

/// One of `seeds` seeds breaks this invariant. Those behind it are not run.
fn catches(plan: impl Fn(u64) -> Plan, seeds: u64, invariant: Invariant) -> bool {
    assert!(seeds <= SEEDS_MAX);
    (1..=seeds).any(|seed| run(seed, &plan(seed)).is_err_and(|violation| violation.invariant == invariant))
}

/// The invariant that the first seed breaks that breaks one.
fn first_caught(plan: impl Fn(u64) -> Plan) -> Option<Invariant> {
    first_caught_within(SEEDS_MAX, plan)
}

/// The same within so many seeds.
fn first_caught_within(seeds: u64, plan: impl Fn(u64) -> Plan) -> Option<Invariant> {
    (1..=seeds).find_map(|seed| run(seed, &plan(seed)).err()).map(|violation| violation.invariant)
}

#[test]
fn every_lie_has_a_test() {
    let tests = include_str!("lies.rs");
    let untested = Lie::value_variants().iter().filter(|lie| !tests.contains(&format!("Lie::{lie:?}")));
    assert_eq!(untested.collect::<Vec<_>>(), Vec::<&Lie>::new());
}

#[test]
fn disks_that_lose_durable_writes_are_noticed() {
    let caught = caught(Lie::LosingDisk, Mode::Crash, 5);
    assert_eq!(caught.len(), 5, "{caught:?}");
}

#[test]
fn acknowledgements_before_a_write_is_durable_are_noticed() {
    assert!(first_caught(lying(Lie::EarlyDurable, Mode::Crash)).is_some());
    assert!(first_caught(lying(Lie::EarlyPrepareOk, Mode::Crash)).is_some());
}

#[test]
fn acknowledgements_on_the_primary_alone_are_noticed() {
    // Sixteen of twenty seeds notice it; where nodes only crash, thirteen.
    assert!(catches(lying(Lie::OneForAll, Mode::Partitions), 5, Invariant::Linearizable));
}

#[test]
fn writes_that_are_applied_twice_are_noticed() {
    let caught = caught(Lie::DoubledWrites, Mode::Crash, 10);
    let linearizable = caught.iter().filter(|invariant| **invariant == Invariant::Linearizable).count();
    // The second write has a session that nobody has. Where groups remember only three, it takes a guest's place before
    // anything is read, and that guest waits for ever; or they are too many in the end.
    let expected = [Invariant::Linearizable, Invariant::Liveness, Invariant::Bounded];
    let others = caught.iter().all(|invariant| expected.contains(invariant));
    assert!(linearizable >= 6 && others, "{caught:?}");
}

#[test]
fn groups_that_forget_gateways_are_noticed() {
    // A write must come again after another gateway has written to its group: where one node's links are narrow, most
    // often (in 11 of these twenty seeds; where nodes crash, in two).
    let plan = |seed| Plan { lie: Some(Lie::ForgottenSessions), ..Plan::draw(Mode::Slow, seed) };
    assert_eq!(first_caught(plan), Some(Invariant::AppliedOnce));
}

#[test]
fn groups_that_take_writes_of_nodes_which_they_have_forgotten_are_noticed() {
    // Who is let in again takes a place that others wait for, or what it sends again is applied again.
    // That takes a node which is given up with a write on its way: of sixty seeds four notice it in this mode.
    let plan = |seed| Plan { lie: Some(Lie::UnfencedNodes), ..Plan::draw(Mode::Connections, seed).with_guests() };
    assert!(first_caught_within(40, plan).is_some());
}

#[test]
fn a_primary_that_ignores_the_end_of_its_lease_is_noticed() {
    // Six of thirty seeds notice it, the 19th first.
    assert!(catches(lying(Lie::SlowClock, Mode::Partitions), 20, Invariant::OnePrimary));
}

#[test]
fn a_new_primary_that_forgets_what_was_prepared_is_noticed() {
    assert!(catches(lying(Lie::ForgottenTail, Mode::All), 8, Invariant::Linearizable));
}

#[test]
fn a_new_primary_that_hears_too_few_copies_is_noticed() {
    let plan = |seed| Plan { lie: Some(Lie::HastyClaim), ..Plan::draw(Mode::Partitions, seed) };
    assert!(first_caught_within(12, |seed| plan(seed).with_rule(AckRule::Majority)).is_some());
}

#[test]
fn a_copy_that_forgets_its_vote_is_noticed() {
    let plan = |lie, seed| {
        let plan = Plan {
            lie,
            directed_percent: 90,
            pause_ms_max: 300,
            groups: 1,
            clients: 6,
            ..Plan::draw(Mode::Partitions, seed)
        };
        plan.with_rule(AckRule::Majority)
    };
    let caught = |seed| run(seed, &plan(Some(Lie::ForgottenVotes), seed)).err().map(|violation| (seed, violation));
    // Two serve, or what one of them has acknowledged is read no more, or a copy has committed what the other one,
    // which reigns, has never had: their group stands still then.
    let expected = |(seed, violation): &(u64, Violation)| match violation.invariant {
        Invariant::OnePrimary | Invariant::Linearizable => true,
        Invariant::Liveness => violation.to_string().contains("CopyAhead") && run(*seed, &plan(None, *seed)).is_ok(),
        _ => false,
    };
    // The first of these seeds that notices it is the 39th.
    let first = (1..=40).filter_map(caught).find(expected);
    assert!(first.is_some());
}

#[test]
fn acknowledgements_on_fewer_copies_than_demanded_are_noticed() {
    let plan = |seed| Plan { lie: Some(Lie::TooFewCopies), copies_min: 2, ..Plan::draw(Mode::Partitions, seed) };
    assert!(catches(plan, 20, Invariant::Acknowledged));
}

#[test]
fn what_is_sent_without_bound_is_noticed() {
    // Where all copies are waited for, clients that wait for a narrow link in one group write less in the others.
    let plan = |seed| Plan { lie: Some(Lie::NoWindow), ..Plan::draw(Mode::Slow, seed) }.with_rule(AckRule::Majority);
    assert!(catches(plan, 20, Invariant::Bounded));
}

#[test]
fn hangs_that_nobody_notices_are_noticed() {
    let plan = |seed| Plan { lie: Some(Lie::UnnoticedHang), ..Plan::draw(Mode::Hangs, seed) };
    assert_eq!(first_caught(plan), Some(Invariant::Liveness));
}

#[test]
fn slowness_that_nobody_notices_is_noticed() {
    // Of two copies none is left behind because it is slow. Of three times as many operations more meet such a copy.
    let plan = |seed| {
        let plan = Plan { copies: 3, copies_min: 1, operations: 3000, ..Plan::draw(Mode::Hangs, seed) };
        Plan { lie: Some(Lie::UnnoticedSlowness), ..plan }
    };
    assert_eq!(first_caught(plan), Some(Invariant::Liveness));
}

#[test]
fn one_window_for_all_groups_is_noticed() {
    let plan = |seed| Plan { lie: Some(Lie::SharedWindow), ..Plan::draw(Mode::Lost, seed) };
    assert_eq!(first_caught(plan), Some(Invariant::Liveness));
}

#[test]
fn heartbeats_behind_data_are_noticed() {
    assert!(catches(lying(Lie::HeartbeatsBehindData, Mode::Slow), 20, Invariant::Bounded));
}

#[test]
fn copies_that_miss_the_writes_during_their_resync_are_noticed() {
    assert!(catches(lying(Lie::NoLiveWrites, Mode::All), 4, Invariant::CopiesEqual));
}

#[test]
fn a_resync_that_skips_blocks_is_noticed() {
    assert!(catches(lying(Lie::SkippedChanges, Mode::All), 3, Invariant::CopiesEqual));
}

#[test]
fn writes_of_who_has_lost_the_volume_are_noticed() {
    // One seed in nine notices it.
    assert!(catches(lying(Lie::NoFence, Mode::Attachments), 20, Invariant::Fenced));
}

#[test]
fn fences_that_the_primary_has_not_confirmed_are_noticed() {
    assert!(catches(lying(Lie::UnheardFence, Mode::Attachments), 8, Invariant::Fenced));
}

#[test]
fn reservations_that_nobody_was_asked_about_are_noticed() {
    assert!(catches(lying(Lie::UnaskedNodes, Mode::Reservations), 8, Invariant::Fenced));
}

#[test]
fn shards_that_confirm_a_reservation_with_writes_under_way_are_noticed() {
    assert!(catches(lying(Lie::HastyHeeding, Mode::Reservations), 8, Invariant::Fenced));
}

#[test]
fn hosts_that_write_by_several_paths_at_a_time_are_noticed() {
    assert!(first_caught(lying(Lie::EveryPathWrites, Mode::Attachments)).is_some());
}

#[test]
fn what_goes_on_after_its_units_connection_was_closed_is_noticed() {
    assert!(first_caught(lying(Lie::LostGoesOn, Mode::Attachments)).is_some());
}

#[test]
fn writes_that_wait_until_their_unit_is_open_are_noticed() {
    // A write must wait in the moment in which another node's writes go on: few seeds have that.
    let plan = |seed| {
        let plan = Plan { lie: Some(Lie::WaitingWrites), devices_fail: false, ..Plan::draw(Mode::Attachments, seed) };
        Plan { devices_hang: false, new_logs: false, ..plan }
    };
    assert!(first_caught_within(120, plan).is_some());
}

#[test]
fn an_empty_device_that_passes_for_the_one_it_replaces_is_noticed() {
    let caught = caught(Lie::EmptyDevice, Mode::Devices, 20);
    // Its group counts on what it does not have: most seeds notice.
    assert!(caught.len() >= 10, "{caught:?}");
}

#[test]
fn copies_that_have_lost_repairs_and_do_not_say_so_are_noticed() {
    // Repairs must be under way when power fails and a disk lies: so it is in some of these twenty seeds. Who notices
    // is a comparison of the copies at the end, or a reader before.
    let plan = |seed| Plan { lie: Some(Lie::LostRepairs), ..Plan::draw(Mode::All, seed) };
    let first = first_caught(plan);
    assert!(matches!(first, Some(Invariant::CopiesEqual | Invariant::Linearizable)), "{first:?}");
}

#[test]
fn devices_that_are_taken_away_before_they_are_empty_are_noticed() {
    assert!(catches(lying(Lie::HastyRemoval, Mode::Devices), 8, Invariant::Liveness));
}

#[test]
fn layers_that_nodes_do_not_tell_each_other_of_are_noticed() {
    assert!(catches(lying(Lie::UnheardLayers, Mode::Snapshots), 8, Invariant::CopiesEqual));
}

#[test]
fn groups_that_go_on_before_all_have_stopped_are_noticed() {
    assert!(catches(lying(Lie::UnheardFreeze, Mode::Snapshots), 5, Invariant::Snapshot));
}

#[test]
fn a_revert_that_one_node_has_not_understood_is_noticed() {
    let caught = caught(Lie::HeadAfterRevert, Mode::Fsx, 3);
    assert!(caught.len() >= 2, "{caught:?}");
}

#[test]
fn merges_that_drop_what_others_inherit_are_noticed() {
    let caught = caught(Lie::DroppingMerge, Mode::Fsx, 3);
    assert!(caught.len() >= 2, "{caught:?}");
}

#[test]
fn a_configuration_that_went_back_and_is_believed_is_noticed() {
    let plan = |seed| Plan::draw(Mode::Partitions, seed);
    let plan = |seed| Plan { lie: Some(Lie::OlderConfiguration), goes_back: true, ..plan(seed) };
    assert!(first_caught(plan).is_some());
}

#[test]
fn clones_of_the_present_instead_of_the_snapshot_are_noticed() {
    let caught = caught(Lie::CloneOfHead, Mode::Fsx, 3);
    assert!(caught.len() >= 2, "{caught:?}");
}

#[test]
fn leases_that_outlast_a_pause_with_the_clock_are_noticed() {
    assert!(catches(lying(Lie::UnnoticedPause, Mode::Stalls), 20, Invariant::OnePrimary));
}

#[test]
fn volumes_that_are_given_back_while_others_have_them_open_are_noticed() {
    assert!(first_caught(lying(Lie::UncountedClients, Mode::Attachments)).is_some());
}

#[test]
fn writes_that_were_given_up_and_land_later_are_noticed() {
    // Two of thirty seeds notice it; where nodes crash, two of 72. Where it comes at the end of a run, the copies
    // differ when they are compared.
    let shards = Shards::Each(NonZeroU8::new(4).unwrap());
    let plan = |seed| {
        let plan = Plan::draw(Mode::Partitions, seed).with_shards(shards);
        let (lie, io_timeout) = (Some(Lie::ForgottenErrors), Some(Duration::from_millis(200)));
        Plan { lie, io_timeout, writes_linger: true, ..plan }
    };
    let first = first_caught(plan);
    assert!(matches!(first, Some(Invariant::CopiesEqual | Invariant::Linearizable)), "{first:?}");
}

#[test]
fn who_goes_on_with_the_next_volume_of_a_name_is_noticed() {
    assert!(catches(lying(Lie::UnheardDeletions, Mode::Fsx), 20, Invariant::Model));
}

#[test]
fn nodes_that_do_not_look_whose_keys_they_are_proved_are_noticed() {
    assert!(catches(lying(Lie::IgnoredKeys, Mode::Keys), 10, Invariant::Keys));
}

#[test]
fn connections_that_stay_when_their_keys_are_taken_away_are_noticed() {
    assert!(catches(lying(Lie::KeptKeys, Mode::Keys), 10, Invariant::Keys));
}

#[test]
fn comparisons_that_are_not_one_with_their_write_are_noticed() {
    let plan = |seed| {
        let plan = Plan { lie: Some(Lie::CompareBesideWrites), compares: true, ..Plan::draw(Mode::Connections, seed) };
        Plan { devices_hang: false, ..plan }
    };
    assert!(catches(plan, 4, Invariant::Linearizable));
}

#[test]
fn keys_that_go_before_all_have_stopped_to_write_under_them_are_noticed() {
    let plan = |seed| {
        let plan = Plan::draw(Mode::Partitions, seed);
        Plan { lie: Some(Lie::HastyRekeying), rekeys: true, devices_hang: false, new_logs: false, ..plan }
    };
    assert!(first_caught(plan).is_some());
}

#[test]
fn answers_for_the_pass_before_are_noticed() {
    let plan = |seed| {
        let plan = Plan { faults: Mode::All, ..Plan::draw(Mode::Fsx, seed).with_rule(AckRule::Majority) };
        Plan { lie: Some(Lie::StaleAnswers), rekeys: true, devices_hang: false, new_logs: false, ..plan }
    };
    // Four of 120 seeds notice it where reads are compared, and one by what never ends.
    assert!(first_caught_within(60, plan).is_some());
}
