//! Deliberate mistakes, to see that tests notice them. Only with the feature `sabotage`, which no release has.

use std::cell::Cell;

thread_local! {
    static ONLY_FIRST: Cell<bool> = const { Cell::new(false) };
    static HEEDS_AT_ONCE: Cell<bool> = const { Cell::new(false) };
    static EVERY_PATH_WRITES: Cell<bool> = const { Cell::new(false) };
    static LOST_GOES_ON: Cell<bool> = const { Cell::new(false) };
    static WRITES_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// From now on, on this thread, clients that open a volume which is attached already do not count as its users.
pub fn count_only_first(on: bool) {
    ONLY_FIRST.set(on);
}

pub(crate) fn counts_only_first() -> bool {
    ONLY_FIRST.get()
}

/// From now on, on this thread, front ends say that they heed reservations while writes from before are under way.
pub fn heed_at_once(on: bool) {
    HEEDS_AT_ONCE.set(on);
}

pub(crate) fn heeds_at_once() -> bool {
    HEEDS_AT_ONCE.get()
}

/// From now on, on this thread, what hosts write is let in at each node that they come through.
pub fn write_by_every_path(on: bool) {
    EVERY_PATH_WRITES.set(on);
}

/// From now on, on this thread, what was asked of a branch that is closed is asked of the next one.
pub fn go_on_with_lost(on: bool) {
    LOST_GOES_ON.set(on);
}

pub(crate) fn goes_on_with_lost() -> bool {
    LOST_GOES_ON.get()
}

/// From now on, on this thread, writes wait for their branch to be open.
pub fn wait_with_writes(on: bool) {
    WRITES_WAIT.set(on);
}

pub(crate) fn writes_wait() -> bool {
    WRITES_WAIT.get()
}

pub(crate) fn writes_by_every_path() -> bool {
    EVERY_PATH_WRITES.get()
}
