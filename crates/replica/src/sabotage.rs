//! Deliberate mistakes, to see that tests notice them. Only with the feature `sabotage`, which no release has.

use std::cell::Cell;

thread_local! {
    static TAIL_FORGOTTEN: Cell<bool> = const { Cell::new(false) };
    static SESSIONS_FORGOTTEN: Cell<bool> = const { Cell::new(false) };
    static HASTY: Cell<bool> = const { Cell::new(false) };
    static TRUSTING: Cell<bool> = const { Cell::new(false) };
    static VOTES_FORGOTTEN: Cell<bool> = const { Cell::new(false) };
    static ANY_COPIES: Cell<bool> = const { Cell::new(false) };
    static ONE_IS_ENOUGH: Cell<bool> = const { Cell::new(false) };
    static NO_WINDOW: Cell<bool> = const { Cell::new(false) };
    static UNFENCED: Cell<bool> = const { Cell::new(false) };
    static PATIENT: Cell<bool> = const { Cell::new(false) };
    static BESIDE: Cell<bool> = const { Cell::new(false) };
}

/// From now on, on this thread, a new primary forgets what was prepared before it.
pub fn forget_tail(on: bool) {
    TAIL_FORGOTTEN.set(on);
}

pub(crate) fn forgets_tail() -> bool {
    TAIL_FORGOTTEN.get()
}

/// From now on, on this thread, a group remembers the writes of the node that has written last, and no others.
pub fn forget_sessions(on: bool) {
    SESSIONS_FORGOTTEN.set(on);
}

pub(crate) fn forgets_sessions() -> bool {
    SESSIONS_FORGOTTEN.get()
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

/// From now on, on this thread, a copy that starts follows whoever asks first, although the configuration names a newer
/// epoch.
pub fn forget_votes(on: bool) {
    VOTES_FORGOTTEN.set(on);
}

pub(crate) fn forgets_votes() -> bool {
    VOTES_FORGOTTEN.get()
}

/// From now on, on this thread, writes are acknowledged on whatever copies are in sync.
pub fn acknowledge_on_any(on: bool) {
    ANY_COPIES.set(on);
}

pub(crate) fn acknowledges_on_any() -> bool {
    ANY_COPIES.get()
}

/// From now on, on this thread, the ack rule `all` waits for the primary's own copy alone.
pub fn be_content_with_one(on: bool) {
    ONE_IS_ENOUGH.set(on);
}

pub(crate) fn is_content_with_one() -> bool {
    ONE_IS_ENOUGH.get()
}

/// From now on, on this thread, nothing bounds what is on its way to copies that nobody waits for.
pub fn open_windows(on: bool) {
    NO_WINDOW.set(on);
}

pub(crate) fn has_no_window() -> bool {
    NO_WINDOW.get()
}

/// From now on, on this thread, groups forget the sessions of nodes that are gone, and still take their writes.
pub fn let_the_gone_write(on: bool) {
    UNFENCED.set(on);
}

pub(crate) fn lets_the_gone_write() -> bool {
    UNFENCED.get()
}

/// From now on, on this thread, no copy is found to be slow.
pub fn bear_slowness(on: bool) {
    PATIENT.set(on);
}

pub(crate) fn bears_slowness() -> bool {
    PATIENT.get()
}

/// From now on, on this thread, writes are ordered while what they write is compared for another one.
pub fn compare_beside_writes(on: bool) {
    BESIDE.set(on);
}

pub(crate) fn compares_beside_writes() -> bool {
    BESIDE.get()
}
