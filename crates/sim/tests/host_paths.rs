//! Hosts that come through several nodes, turn away from some with writes under way, and go on by others.

#![allow(clippy::unwrap_used)]

use azekura_sim::{Mode, Plan, Shards, run};

/// A host had given up a path where it read, with a write there, and wrote elsewhere: the first write took the volume
/// over, and landed on the second.
#[test]
fn a_write_where_its_host_reads_does_not_overtake_it() {
    let seed = 487_300_846;
    let plan = Plan { registered_starts: true, ..Plan::draw(Mode::Attachments, seed) }.with_shards(Shards::draw(seed));
    let report = run(seed, &plan).unwrap();
    assert!(report.to_string().contains("host's writes moved"), "{report}");
}
