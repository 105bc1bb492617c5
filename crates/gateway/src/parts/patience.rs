//! How long a part waits for a group that does not serve it (docs/decisions/0018).
//!
//! A part waits since it began, or since something new gave it another chance: a new primary, a new connection to the
//! primary, or that a copy had it and gave it back. Each part gets [`CHANCES_MAX`] of these, so that the error comes at
//! last where primaries come and go and none serves. A part that a copy has, or that the window has no room for, or a
//! write that its group refuses, may only be one of many: it waits since its group last answered anything of the kind.
//! What is refused for its volume's sake (a snapshot that does not end) has no such excuse.

use std::time::Duration;

/// Times that a part's wait starts anew.
const CHANCES_MAX: u8 = 3;

/// See the module's description.
pub(super) struct Patience {
    /// Since when the part waits, unless its group answers others.
    since: Duration,
    /// How often that started anew.
    chances: u8,
}

impl Patience {
    /// The part begins.
    pub(super) fn new(now: Duration) -> Patience {
        Patience { since: now, chances: 0 }
    }

    /// Something new: the wait starts anew.
    pub(super) fn another_chance(&mut self, now: Duration) {
        if self.chances < CHANCES_MAX && now > self.since {
            self.chances += 1;
            self.since = now;
        }
    }

    /// The group answered others then, and the part waits behind them.
    pub(super) fn is_one_of_many(&mut self, answered: Duration) {
        self.since = self.since.max(answered);
    }

    /// Since when the part waits.
    pub(super) fn since(&self) -> Duration {
        self.since
    }
}
