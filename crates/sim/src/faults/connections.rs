//! Connections break.

use crate::kernel::random::Random;
use crate::world::World;
use std::time::Duration;

impl World {
    pub(super) fn break_some_connection(&mut self) -> &'static str {
        let whole = self.network().whole();
        if whole.is_empty() {
            return "nothing";
        }
        let random = &mut self.random;
        let conn = *random.pick(&whole);
        let notice = [notice(random), notice(random)];
        self.break_conn(conn, notice);
        "broken connection"
    }
}

/// How long an end takes to notice.
fn notice(random: &mut Random) -> Duration {
    if random.chance(60) { random.micros(0, 2000) } else { random.spread_millis(2, 2000) }
}
