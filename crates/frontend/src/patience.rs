//! Connections whose clients are to give signs of life, and when each is to be asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who looks later than this after a period's end has stood still, and may not have heard what has come meanwhile: the
/// client has another period.
const LATE: Duration = Duration::from_secs(1);

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Patience<K> {
    /// Periods, and when each ends.
    periods: BTreeMap<K, (Duration, Duration)>,
    ends: BTreeSet<(Duration, K)>,
}

impl<K> Default for Patience<K> {
    fn default() -> Patience<K> {
        Patience { periods: BTreeMap::new(), ends: BTreeSet::new() }
    }
}

impl<K: Copy + Ord> Patience<K> {
    /// The connection's client is to give a sign of life in each period of this length; `None`: it need not.
    pub fn set(&mut self, conn: K, period: Option<Duration>, now: Duration) {
        if let Some((_, end)) = self.periods.remove(&conn) {
            self.ends.remove(&(end, conn));
        }
        if let Some(period) = period {
            let end = now.saturating_add(period);
            self.periods.insert(conn, (period, end));
            self.ends.insert((end, conn));
        }
    }

    /// The connection is gone.
    pub fn gone(&mut self, conn: K) {
        self.set(conn, None, Duration::ZERO);
    }

    /// When [`Patience::due`] is to be asked.
    pub fn next_look(&self) -> Option<Duration> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// A connection whose period has ended in time, and has begun anew: its client is to be asked for.
    pub fn due(&mut self, now: Duration) -> Option<K> {
        loop {
            let (end, conn) = self.ends.first().copied().filter(|(end, _)| *end <= now)?;
            let period = self.periods.get(&conn).map(|(period, _)| *period);
            self.set(conn, period, now);
            if now <= end + LATE {
                return Some(conn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_is_asked_for_at_the_end_of_its_period() {
        let mut patience = Patience::default();
        patience.set(1, Some(5 * SECOND), SECOND);
        patience.set(2, Some(2 * SECOND), SECOND);
        assert_eq!((patience.next_look(), patience.due(2 * SECOND)), (Some(3 * SECOND), None));
        assert_eq!((patience.due(3 * SECOND), patience.due(3 * SECOND)), (Some(2), None));
        patience.set(2, None, 3 * SECOND);
        assert_eq!((patience.next_look(), patience.due(6 * SECOND)), (Some(6 * SECOND), Some(1)));
        patience.gone(1);
        assert_eq!((patience.next_look(), patience.due(60 * SECOND)), (None, None));
    }

    #[test]
    fn who_has_stood_still_blames_nobody() {
        let mut patience = Patience::default();
        patience.set(1, Some(5 * SECOND), Duration::ZERO);
        assert_eq!(patience.due(9 * SECOND), None);
        assert_eq!((patience.next_look(), patience.due(14 * SECOND)), (Some(14 * SECOND), Some(1)));
    }
}
