//! The store against an executable model, with crashes at any moment.
//!
//! The model is a list of calls. The store's log is a sequence of records, and a crash keeps a prefix of it: so after
//! a crash there must be a prefix, at least as long as what was called durable, with which the model gives what the
//! store has.

#![allow(clippy::unwrap_used)]

pub mod actions;
mod moves;
mod opening;
pub mod state;
mod troubles;
pub mod world;

use crate::common::tiny;
use actions::{action, action_in_trouble, parse};
use azekura_store::Options;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use std::cell::Cell;
use world::World;

/// Histories are the same in every run, so that a failure is of the change at hand. PROPTEST_CASES in the environment
/// asks for so many fresh ones; whoever changes the store runs some thousands.
pub fn config(cases: u32) -> ProptestConfig {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let fresh = number("PROPTEST_CASES");
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: fresh.unwrap_or(cases),
        max_shrink_iters: number("PROPTEST_MAX_SHRINK_ITERS").unwrap_or(1_000),
        failure_persistence: None,
        rng_seed: if fresh.is_some() { default.rng_seed } else { RngSeed::Fixed(1) },
        ..default
    }
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn any_history_with_crashes_gives_what_the_model_gives(actions in prop::collection::vec(action(), 1..400)) {
        let mut world = World::new(tiny());
        for action in &actions {
            world.act(action);
        }
        world.settle();
    }

    #[test]
    fn any_history_with_a_map_in_trouble_gives_what_the_model_gives_or_says_what_is_unknown(
        actions in prop::collection::vec(action_in_trouble(), 1..400),
    ) {
        let mut world = World::new(tiny());
        for action in &actions {
            world.act(action);
        }
        world.settle();
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn any_long_history_on_a_small_device_gives_what_the_model_gives(
        actions in prop::collection::vec(action(), 600..1500),
    ) {
        let mut world = World::new(small());
        for action in &actions {
            world.act(action);
        }
        world.settle();
    }
}

/// Blocks that go into segments of their own in a history on a roomy device, on average: half of what do.
const MOVED_APART_MIN: u64 = 45;
/// Crashes in such a history of a store that has moved some, on average: half of what there are.
const CRASHES_AFTER_MOVES_MIN: u64 = 1;

/// Where much space is kept free, most of what is moved goes into segments of its own (decision 0036).
fn histories_that_move_blocks_apart(options: &Options) {
    let mut runner = TestRunner::new(config(60));
    let (histories, moved, crashes, gathered) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    // The map is well: a leaf that can't be read keeps the cleaner from all segments with blocks of its chunk, and here
    // it is the cleaner that makes room.
    let result = runner.run(&prop::collection::vec(action(), 400..1000), |actions| {
        let mut world = World::new(options.clone());
        world.warm(600);
        for action in &actions {
            world.act(action);
        }
        world.settle();
        histories.set(histories.get() + 1);
        moved.set(moved.get() + world.moved_apart());
        crashes.set(crashes.get() + world.moves.crashes);
        gathered.set(gathered.get() + world.gathered());
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}\n{runner}"));
    let (histories, moved, crashes, gathered) = (histories.get(), moved.get(), crashes.get(), gathered.get());
    println!(
        "{moved} blocks were moved apart in {histories} histories, with {crashes} crashes after that; {gathered} of them \
         because somebody read them"
    );
    assert!(moved >= histories * MOVED_APART_MIN, "{moved} blocks in {histories} histories");
    assert!(crashes >= histories * CRASHES_AFTER_MOVES_MIN, "{crashes} crashes in {histories} histories");
}

#[test]
fn any_long_history_on_a_roomy_device_gives_what_the_model_gives() {
    histories_that_move_blocks_apart(&roomy());
}

#[test]
fn any_long_history_on_a_larger_roomy_device_gives_what_the_model_gives() {
    histories_that_move_blocks_apart(&Options { segments: 28, cleaning_reserve_percent: 40, ..roomy() });
}

/// Memory has room for hardly a leaf: most writes wait for theirs.
fn forgetful() -> Options {
    Options { leaf_cache_bytes_max: 6_000, ..tiny() }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn any_history_with_hardly_a_leaf_in_memory_gives_what_the_model_gives(
        actions in prop::collection::vec(action(), 1..600),
    ) {
        let mut world = World::new(forgetful());
        for action in &actions {
            world.act(action);
        }
        world.settle();
    }

    #[test]
    fn any_history_with_hardly_a_leaf_and_a_map_in_trouble_gives_what_the_model_gives_or_says_what_is_unknown(
        actions in prop::collection::vec(action_in_trouble(), 1..600),
    ) {
        // With room: a leaf that can't be read keeps the cleaner from all segments that have blocks of its chunk.
        let mut world = World::new(Options { segments: 64, ..forgetful() });
        for action in &actions {
            world.act(action);
        }
        world.settle();
    }
}

/// Histories that once failed.
fn replay(history: &str, options: Options) {
    let mut world = World::new(options);
    for line in history.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        world.act(&parse(line));
    }
    world.settle();
}

pub fn small() -> Options {
    Options { segments: 14, segment_blocks: 48, cleaning_blocks_in_flight_max: 24, ..tiny() }
}

pub fn roomy() -> Options {
    Options {
        segments: 24,
        segment_blocks: 48,
        cleaning_blocks_in_flight_max: 24,
        cleaning_reserve_percent: 60,
        ..tiny()
    }
}

#[test]
fn a_gap_that_an_epoch_left_is_no_damage() {
    replay(include_str!("../histories/gap-that-an-epoch-left.txt"), tiny());
}

#[test]
fn a_copy_is_replayed_before_a_relocation_after_it() {
    replay(include_str!("../histories/copy-before-relocation.txt"), small());
}

#[test]
fn no_record_tells_a_commit_ahead_of_a_copy_that_waits() {
    replay(include_str!("../histories/commit-ahead-of-copy.txt"), small());
}

/// Makes the history in the file that HISTORY names as short as it can be while it fails with a message that contains
/// WHY, and prints it: cargo test -p azekura-store --test integration minimise -- --ignored --nocapture
#[test]
#[ignore = "a tool"]
fn minimise() {
    let Ok(file) = std::env::var("HISTORY") else { return };
    let why = std::env::var("WHY").unwrap_or_default();
    let options = if std::env::var("SMALL").is_ok() { small() } else { tiny() };
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let fails = |lines: &[&str]| {
        let (history, options) = (lines.join("\n"), options.clone());
        let error = std::panic::catch_unwind(move || replay(&history, options)).err()?;
        error.downcast_ref::<String>().cloned().filter(|message| message.contains(&why))
    };
    std::panic::set_hook(Box::new(|_| {}));
    let mut size = lines.len();
    while size > 0 {
        let mut at = 0;
        while at < lines.len() {
            let mut shorter = lines.clone();
            shorter.drain(at..(at + size).min(lines.len()));
            if fails(&shorter).is_some() {
                lines = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    println!("# {:?}\n{}", fails(&lines), lines.join("\n"));
}

#[test]
fn a_group_holds_what_it_has_committed_until_its_end_is_durable() {
    replay(include_str!("../histories/end-of-a-group-lost.txt"), tiny());
    replay(include_str!("../histories/end-of-a-group-lost-long.txt"), small());
}

#[test]
fn a_gap_that_the_end_of_a_group_left_is_no_damage() {
    replay(include_str!("../histories/gap-that-the-end-of-a-group-left.txt"), tiny());
}

#[test]
fn a_merge_waits_for_writes_that_may_come_back() {
    replay(include_str!("../histories/merge-before-an-epoch-is-durable.txt"), small());
}

#[test]
fn a_relocation_reaches_a_layer_whose_merge_is_done_again() {
    replay(include_str!("../histories/relocation-after-a-merge.txt"), small());
}

#[test]
fn a_leaf_that_is_made_after_a_copy_does_not_take_it_again() {
    replay(include_str!("../histories/leaf-made-after-a-copy.txt"), tiny());
}

#[test]
fn a_batch_that_was_given_up_does_not_come_back() {
    replay(include_str!("../histories/batch-given-up-comes-back.txt"), tiny());
}

#[test]
fn an_epoch_that_is_durable_counts_while_a_later_one_waits() {
    replay(include_str!("../histories/two-epochs-on-their-way.txt"), tiny());
}

#[test]
fn a_copy_goes_into_a_leaf_that_replay_makes() {
    replay(include_str!("../histories/copy-into-a-new-leaf.txt"), small());
}

#[test]
fn a_relocation_reaches_all_inheritors_whatever_was_saved() {
    replay(include_str!("../histories/leaves-of-different-age.txt"), small());
}

/// The blocks of a layer that is merged wait to be moved under its name meanwhile.
#[test]
fn a_relocation_that_was_queued_before_a_merge_is_found_by_the_next_one() {
    replay(include_str!("../histories/relocation-queued-before-a-merge.txt"), small());
}

/// Checkpoints were saved one after the other while a write to the group waited for a leaf that the map refused.
#[test]
fn no_checkpoint_is_saved_for_the_end_of_a_group_that_waits_for_a_leaf() {
    replay(include_str!("../histories/end-of-a-group-waits-for-a-leaf.txt"), tiny());
}

/// A relocation that names a layer which has ended can't be replayed: nobody knows who inherits from it.
#[test]
fn nothing_is_moved_under_the_name_of_a_layer_that_has_ended() {
    replay(include_str!("../histories/relocation-after-the-end-of-its-layer.txt"), small());
}

/// They stood behind a repair of the same batch, which waited.
#[test]
fn relocations_are_replayed_in_the_order_of_the_log() {
    replay(include_str!("../histories/relocations-behind-a-repair.txt"), small());
}

/// A leaf whose image and index are damaged got the present stamp, and so did the leaf that was made on it, for which a
/// repair waited.
#[test]
fn what_waits_for_a_lost_leaf_is_not_taken_for_done() {
    replay(include_str!("../histories/stamp-of-a-lost-leaf.txt"), tiny());
    replay(include_str!("../histories/stamp-of-a-lost-leaf-that-is-merged.txt"), tiny());
}

/// The model took a record for kept since the leaf that would have shown the loss of the record could not be read.
#[test]
fn a_loss_that_never_reached_the_log_is_not_expected() {
    replay(include_str!("../histories/loss-that-never-reached-the-log.txt"), tiny());
}

/// A repair waited for a leaf until the layer was gone, and made one that nobody removed.
#[test]
fn a_repair_that_waits_finds_that_its_layer_is_gone() {
    replay(include_str!("../histories/repair-after-the-end-of-its-layer.txt"), tiny());
}

/// What the index had said of a leaf was forgotten when the whole map was refused before the leaf was given up.
#[test]
fn what_is_known_of_a_leaf_is_kept_while_the_map_is_refused() {
    replay(include_str!("../histories/leaf-given-up-while-the-map-is-refused.txt"), tiny());
}

#[test]
fn cleaning_in_vain_lets_clients_write() {
    replay(include_str!("../histories/cleaning-in-vain.txt"), tiny());
}

#[test]
fn a_read_of_a_leaf_that_is_refused_ends() {
    replay(include_str!("../histories/read-without-an-end.txt"), tiny());
}
