//! Deliberate mistakes, to see that tests notice them. Only with the feature `sabotage`, which no release has.

use std::cell::Cell;

thread_local! {
    static TAIL_FORGOTTEN: Cell<bool> = const { Cell::new(false) };
    static HASTY: Cell<bool> = const { Cell::new(false) };
    static TRUSTING: Cell<bool> = const { Cell::new(false) };
}

/// From now on, on this thread, a new primary forgets what was prepared before it.
pub fn forget_tail(on: bool) {
    TAIL_FORGOTTEN.set(on);
}

pub(crate) fn forgets_tail() -> bool {
    TAIL_FORGOTTEN.get()
}

/// From now on, on this thread, a new primary hears nobody but those that answer at once before it begins its reign.
pub fn hurry(on: bool) {
    HASTY.set(on);
}

pub(crate) fn is_hasty() -> bool {
    HASTY.get()
}

/// From now on, on this thread, a copy that has perhaps lost repairs says nothing of it.
pub fn trust(on: bool) {
    TRUSTING.set(on);
}

pub(crate) fn is_trusting() -> bool {
    TRUSTING.get()
}
