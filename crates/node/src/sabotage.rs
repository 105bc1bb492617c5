//! Deliberate mistakes, to see that tests notice them. Only with the feature `sabotage`, which no release has.

use std::cell::Cell;

thread_local! {
    static BLIND: Cell<bool> = const { Cell::new(false) };
    static CREDULOUS: Cell<bool> = const { Cell::new(false) };
    static FAITHFUL: Cell<bool> = const { Cell::new(false) };
    static FORGETFUL: Cell<bool> = const { Cell::new(false) };
}

/// From now on, on this thread, devices that hang are not noticed before they are out of service.
pub fn overlook_hangs(on: bool) {
    BLIND.set(on);
}

pub(crate) fn overlooks_hangs() -> bool {
    BLIND.get()
}

/// From now on, on this thread, whoever greets is who it says, whatever key it has proved.
pub fn ignore_keys(on: bool) {
    CREDULOUS.set(on);
}

pub(crate) fn ignores_keys() -> bool {
    CREDULOUS.get()
}

/// From now on, on this thread, connections stay whose keys leave the records.
pub fn keep_keys(on: bool) {
    FAITHFUL.set(on);
}

pub(crate) fn keeps_keys() -> bool {
    FAITHFUL.get()
}

/// From now on, on this thread, a pass for another key takes the answer for the pass before as its own.
pub fn take_any_answer(on: bool) {
    FORGETFUL.set(on);
}

pub(crate) fn takes_any_answer() -> bool {
    FORGETFUL.get()
}
