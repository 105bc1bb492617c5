//! Explores the model within bounds given by hand: `explore RULE EPOCHS VERSIONS WRITES RESTARTS [WITHOUT]`.

use azekura_protocol_model::{AckRule, Bounds, Membership, Rules};
use stateright::{Checker, Model};
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ack = match arguments[0].as_str() {
        "all" => AckRule::All,
        "majority" => AckRule::Majority,
        "each-site" => AckRule::EachSite,
        other => panic!("no ack rule {other}"),
    };
    let number = |at: usize| arguments[at].parse::<u8>().expect("a small number");
    let bounds = Bounds { epochs: number(1), versions: number(2), writes: number(3), restarts: number(4) };
    let mut model = Membership::new(ack, bounds);
    let mut rules = Rules::ALL;
    if let Some(without) = arguments.get(5) {
        model.symmetric = false;
        match without.as_str() {
            "mend" => rules.believes_its_configuration = false,
            "wait" => rules.waits_out_its_promise = false,
            "copywait" => rules.copies_wait_out_their_promise = false,
            "bound" => rules.starts_bound = false,
            "hear" => rules.hears_enough = false,
            "confirm" => rules.confirms = false,
            "level" => rules.joiners_are_level = false,
            "claimant" => rules.claimants_wait_too = false,
            "epoch" => rules.promises_name_their_epoch = false,
            _ => {}
        }
    }
    model.rules = rules;
    println!("state is {} bytes", size_of::<azekura_protocol_model::State>());
    let begun = Instant::now();
    let checker = model
        .checker()
        .threads(1)
        .spawn_bfs()
        .report(&mut stateright::report::WriteReporter::new(&mut std::io::stdout()));
    println!(
        "{} states, {} unique, depth {}, {:?}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        begun.elapsed()
    );
    for (name, path) in checker.discoveries() {
        println!("== {name}");
        for (n, action) in path.into_actions().into_iter().enumerate() {
            println!("{:3} {action:?}", n + 1);
        }
    }
}
