//! The fault matrix in docs/reliability.md is that of the code.

#![allow(clippy::unwrap_used)]

use std::env;
use std::fs;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.md");
const BEGIN: &str = "<!-- faults: begin -->\n";
const END: &str = "<!-- faults: end -->";

/// `GOLDEN=write` writes it.
#[test]
fn the_documented_matrix_is_the_one_that_is_drawn_from() {
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    let now = azekura_sim::fault_matrix();
    if env::var("GOLDEN").is_ok_and(|value| value == "write") {
        fs::write(PAGE, format!("{before}{BEGIN}{now}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(table, now, "GOLDEN=write cargo test -p azekura-sim --test matrix");
}
