//! Lines that would be logged again and again, logged once in a while.

use std::collections::BTreeMap;
use std::time::Duration;

/// Time between two lines of the same kind.
pub const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// Kinds that are told apart; those above it are not limited any better than each other.
const KINDS_MAX: usize = 1024;

/// Counts lines that say the same, so that one a minute is logged, with the number of those that were not.
#[derive(Debug)]
pub struct Repeats<K> {
    /// When a line of the kind was logged last, and how many have been left out since.
    kinds: BTreeMap<K, (Duration, u64)>,
}

impl<K> Default for Repeats<K> {
    fn default() -> Repeats<K> {
        Repeats { kinds: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Repeats<K> {
    /// A line of this kind is due at `now`. `None` when it is to be left out; else what to put behind it: nothing, or
    /// how many were left out before.
    pub fn note(&mut self, kind: &K, now: Duration) -> Option<String> {
        if let Some((at, left_out)) = self.kinds.get_mut(kind) {
            if now < *at + REPEAT_INTERVAL {
                *left_out += 1;
                return None;
            }
            let before = std::mem::replace(left_out, 0);
            *at = now;
            return Some(if before == 0 {
                String::new()
            } else {
                format!(" ({before} times more in the last minute)")
            });
        }
        if self.kinds.len() >= KINDS_MAX {
            self.kinds.retain(|_, (at, _)| now < *at + REPEAT_INTERVAL);
        }
        if self.kinds.len() >= KINDS_MAX {
            return None;
        }
        self.kinds.insert(kind.clone(), (now, 0));
        Some(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_says_how_many_were_left_out() {
        let mut repeats = Repeats::default();
        let endings: Vec<String> =
            (0..7200).filter_map(|n| repeats.note(&6, Duration::from_secs(1) * n / 60)).collect();
        assert_eq!(endings, ["", " (3599 times more in the last minute)"]);
        assert_eq!(repeats.note(&7, Duration::from_secs(5)), Some(String::new()));
    }

    #[test]
    fn so_many_kinds_are_told_apart() {
        let mut repeats = Repeats::default();
        assert_eq!((0..5000).filter_map(|kind| repeats.note(&kind, Duration::ZERO)).count(), KINDS_MAX);
        assert_eq!(repeats.note(&4999, REPEAT_INTERVAL), Some(String::new()));
    }
}
