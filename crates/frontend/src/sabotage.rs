//! Deliberate mistakes, to see that tests notice them. Only with the feature `sabotage`, which no release has.

use std::cell::Cell;

thread_local! {
    static ONLY_FIRST: Cell<bool> = const { Cell::new(false) };
}

/// From now on, on this thread, clients that open a volume which is attached already do not count as its users.
pub fn count_only_first(on: bool) {
    ONLY_FIRST.set(on);
}

pub(crate) fn counts_only_first() -> bool {
    ONLY_FIRST.get()
}
