//! Deliberate mistakes, to see that tests notice them. Only with the feature `sabotage`, which no release has.

use std::cell::Cell;

thread_local! {
    static ONE_WINDOW: Cell<bool> = const { Cell::new(false) };
    static SETTLES_NOTHING: Cell<bool> = const { Cell::new(false) };
}

/// From now on, on this thread, a gateway has one window for its writes to all groups.
pub fn share_window(on: bool) {
    ONE_WINDOW.set(on);
}

pub(crate) fn shares_window() -> bool {
    ONE_WINDOW.get()
}

/// From now on, on this thread, gateways forget what they give up.
pub fn settle_nothing(on: bool) {
    SETTLES_NOTHING.set(on);
}

pub(crate) fn settles_nothing() -> bool {
    SETTLES_NOTHING.get()
}
