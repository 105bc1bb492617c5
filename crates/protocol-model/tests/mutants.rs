//! Each rule is needed: a model without it has a counter-example. So the model is able to find what it is there to
//! find.

use azekura_protocol_model::{AckRule, Bounds, KEPT, Membership, ONE_SERVES, RETURNS_WHOLE, Rules};
use stateright::{Checker, HasDiscoveries, Model};

/// Finds one of these properties broken.
fn finds(ack: AckRule, [epochs, versions, writes, restarts]: [u8; 4], rules: Rules, properties: &[&str]) {
    assert_ne!(rules, Rules::ALL, "a rule is missing");
    let mut model = Membership::new(ack, Bounds { epochs, versions, writes, restarts });
    (model.rules, model.symmetric) = (rules, false);
    let checker = model.checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let found = checker.discoveries();
    assert!(properties.iter().any(|property| found.contains_key(property)), "{ack:?}: {:?}", found.keys());
    for (name, path) in found {
        println!("{ack:?}: {name}: {:?}", path.into_actions());
    }
}

/// A vote that a restart forgets: the copy follows the former primary again, although it has read a newer epoch.
#[test]
fn a_copy_that_does_not_believe_its_configuration() {
    let rules = Rules { believes_its_configuration: false, ..Rules::ALL };
    finds(AckRule::Majority, [2, 3, 1, 1], rules, &[KEPT, ONE_SERVES]);
    finds(AckRule::EachSite, [2, 3, 1, 1], rules, &[KEPT, ONE_SERVES]);
}

#[test]
fn a_new_primary_that_does_not_wait_out_its_own_promise() {
    let rules = Rules { waits_out_its_promise: false, ..Rules::ALL };
    finds(AckRule::All, [2, 3, 1, 0], rules, &[ONE_SERVES]);
}

#[test]
fn a_bound_copy_that_follows_another_primary_at_once() {
    let rules = Rules { copies_wait_out_their_promise: false, ..Rules::ALL };
    finds(AckRule::Majority, [2, 3, 0, 0], rules, &[ONE_SERVES]);
}

/// It has claimed the group, and promised something to the primary before it heard that its claim stands.
#[test]
fn a_bound_claimant_that_follows_another_primary_at_once() {
    let rules = Rules { claimants_wait_too: false, ..Rules::ALL };
    finds(AckRule::Majority, [3, 4, 0, 0], rules, &[ONE_SERVES]);
    finds(AckRule::EachSite, [3, 4, 0, 0], rules, &[ONE_SERVES]);
}

#[test]
fn a_process_that_starts_and_takes_itself_for_free() {
    let rules = Rules { starts_bound: false, ..Rules::ALL };
    finds(AckRule::Majority, [2, 3, 0, 1], rules, &[ONE_SERVES]);
}

#[test]
fn a_new_primary_that_hears_too_few_copies() {
    let rules = Rules { hears_enough: false, ..Rules::ALL };
    finds(AckRule::Majority, [2, 3, 1, 0], rules, &[KEPT, ONE_SERVES]);
}

/// What was committed between the beginning of its resync and its end is on its way to it, and not durable there.
#[test]
fn a_copy_that_is_named_in_sync_before_it_holds_what_is_committed() {
    let rules = Rules { joiners_are_level: false, ..Rules::ALL };
    finds(AckRule::All, [1, 3, 1, 0], rules, &[KEPT, RETURNS_WHOLE]);
}

/// What was gathered counts as committed while the configuration still names copies in sync that do not hold it.
#[test]
fn a_new_primary_that_commits_before_its_in_sync_set_is_confirmed() {
    let rules = Rules { confirms: false, ..Rules::ALL };
    finds(AckRule::Majority, [2, 3, 1, 1], rules, &[KEPT]);
    finds(AckRule::EachSite, [2, 3, 1, 1], rules, &[KEPT]);
}

/// It reigns for the second time, and counts what copies have promised it in its first reign. Those have followed
/// another primary since, who knew that the first reign had ended.
#[test]
fn a_promise_that_counts_for_a_later_reign() {
    let rules = Rules { promises_name_their_epoch: false, ..Rules::ALL };
    finds(AckRule::All, [4, 4, 0, 0], rules, &[ONE_SERVES]);
}
