//! Deliberate mistakes, to see that tests notice them. Only with the feature `sabotage`, which no release has.

use std::cell::Cell;

thread_local! {
    static BLIND: Cell<bool> = const { Cell::new(false) };
}

/// From now on, on this thread, devices that hang are not noticed before they are out of service.
pub fn overlook_hangs(on: bool) {
    BLIND.set(on);
}

pub(crate) fn overlooks_hangs() -> bool {
    BLIND.get()
}
