//! What has changed lately: enough for clients that come again, and not more than fits.

use std::collections::VecDeque;
use std::sync::Arc;

use azekura_api::Watched;

/// Most that is kept, bytes.
pub(super) const RING_BYTES_MAX: usize = 4 << 20;
/// Most that one step of the configuration may change, bytes; of a larger one the whole state is told. It bounds what a
/// reader holds that lags behind the ring.
pub(super) const STEP_BYTES_MAX: usize = 1 << 20;
/// Most steps that are kept.
const STEPS_MAX: usize = 8192;
/// What an event takes beside its data, bytes.
const EVENT_BYTES: usize = 64;

/// What has become of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Changed,
    Deleted,
}

impl Change {
    pub(super) fn word(self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Changed => "changed",
            Change::Deleted => "deleted",
        }
    }
}

/// One change that users see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) kind: Watched,
    pub(super) change: Change,
    /// Its name, if it is a volume: not everybody sees all of them.
    pub(super) volume: Option<String>,
    /// The thing as the API shows it, in JSON; of one that is gone, as it was.
    pub(super) data: String,
}

impl Told {
    pub(super) fn bytes(&self) -> usize {
        self.data.len() + EVENT_BYTES
    }
}

/// From one revision that this node has seen to the next. Whoever has been told these events is at `first`, and at each
/// revision until `last`: nothing that users see has changed there.
#[derive(Debug)]
struct Step {
    first: i64,
    last: i64,
    events: Arc<[Told]>,
    bytes: usize,
}

/// What comes after a position.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// Nothing is known of how to get on from there.
    Unknown,
    /// Nothing yet.
    Nothing,
    /// These, which lead to this position.
    Events(i64, Arc<[Told]>),
}

/// The last steps.
///
/// A position is a revision of the configuration. This node may have seen several revisions at once: between them it
/// knows no position, since something may have come and gone there.
#[derive(Debug)]
pub(super) struct Ring {
    /// By revision; never empty. The events of the first one are of no use any more.
    steps: VecDeque<Step>,
    bytes: usize,
}

impl Ring {
    /// At this revision.
    pub(super) fn new(revision: i64) -> Ring {
        let mut ring = Ring { steps: VecDeque::new(), bytes: 0 };
        ring.restart(revision);
        ring
    }

    /// The newest position.
    pub(super) fn last(&self) -> i64 {
        self.steps.back().map_or(0, |step| step.last)
    }

    /// Goes on from this revision, whatever came before.
    pub(super) fn restart(&mut self, revision: i64) {
        self.steps.clear();
        self.steps.push_back(Step { first: revision, last: revision, events: Arc::new([]), bytes: 0 });
        self.bytes = 0;
    }

    /// These events lead to this revision. One that is not newer is another configuration's, and nothing that was known
    /// counts any more.
    pub(super) fn push(&mut self, revision: i64, events: Vec<Told>) {
        let bytes: usize = events.iter().map(Told::bytes).sum();
        if revision == self.last() && events.is_empty() {
            return;
        }
        if revision <= self.last() || bytes > STEP_BYTES_MAX {
            return self.restart(revision);
        }
        match self.steps.back_mut() {
            Some(step) if events.is_empty() && revision == step.last + 1 => step.last = revision,
            _ => self.steps.push_back(Step { first: revision, last: revision, events: events.into(), bytes }),
        }
        self.bytes += bytes;
        while self.steps.len() > 1 && (self.steps.len() > STEPS_MAX || self.bytes > RING_BYTES_MAX) {
            self.bytes -= self.steps.pop_front().map_or(0, |step| step.bytes);
        }
    }

    /// What comes after a position.
    pub(super) fn next(&self, position: i64) -> Next {
        let at = self.steps.partition_point(|step| step.last < position);
        match (self.steps.get(at), self.steps.get(at + 1)) {
            (Some(step), _) if position < step.first => Next::Unknown,
            (Some(_), Some(next)) => Next::Events(next.last, Arc::clone(&next.events)),
            (Some(_), None) => Next::Nothing,
            (None, _) => Next::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(data: &str) -> Told {
        Told { kind: Watched::Volumes, change: Change::Changed, volume: None, data: data.to_owned() }
    }

    /// All that comes after a position.
    fn all(ring: &Ring, mut position: i64) -> Option<Vec<String>> {
        let mut found = Vec::new();
        loop {
            match ring.next(position) {
                Next::Unknown => return None,
                Next::Nothing => return Some(found),
                Next::Events(next, events) => {
                    assert!(next > position);
                    found.extend(events.iter().map(|told| told.data.clone()));
                    position = next;
                }
            }
        }
    }

    fn some(data: &[&str]) -> Option<Vec<String>> {
        Some(data.iter().map(|data| (*data).to_owned()).collect())
    }

    #[test]
    fn whoever_comes_again_is_told_what_he_has_missed() {
        let mut ring = Ring::new(10);
        ring.push(11, vec![told("a"), told("b")]);
        ring.push(12, vec![]);
        ring.push(13, vec![]);
        ring.push(14, vec![told("c")]);
        assert_eq!(all(&ring, 10), some(&["a", "b", "c"]));
        for position in 11..=13 {
            assert_eq!(all(&ring, position), some(&["c"]), "{position}");
        }
        assert_eq!(all(&ring, 14), some(&[]));
        for unknown in [0, 9, 15] {
            assert_eq!(all(&ring, unknown), None, "{unknown}");
        }
    }

    /// Between revisions that were seen at once something may have come and gone.
    #[test]
    fn what_was_not_seen_is_no_position() {
        let mut ring = Ring::new(10);
        ring.push(13, vec![told("a")]);
        ring.push(16, vec![]);
        for (position, known) in
            [(10, true), (11, false), (12, false), (13, true), (14, false), (15, false), (16, true)]
        {
            assert_eq!(all(&ring, position).is_some(), known, "{position}");
        }
    }

    #[test]
    fn another_configuration_begins_anew() {
        let mut ring = Ring::new(10);
        ring.push(11, vec![told("a")]);
        ring.push(11, vec![]);
        assert_eq!(all(&ring, 10), some(&["a"]), "the same was read again");
        ring.push(5, vec![told("b")]);
        assert_eq!((all(&ring, 10), all(&ring, 11), all(&ring, 5)), (None, None, some(&[])));
    }

    #[test]
    fn the_oldest_goes_when_there_is_too_much() {
        let mut ring = Ring::new(0);
        let large = "x".repeat(RING_BYTES_MAX / 8);
        for revision in 1..=20 {
            ring.push(revision, vec![told(&large)]);
            assert!(ring.bytes <= RING_BYTES_MAX);
        }
        assert_eq!(all(&ring, 3), None);
        assert_eq!(all(&ring, 15).map(|all| all.len()), Some(5));
        ring.push(21, vec![told(&"x".repeat(STEP_BYTES_MAX))]);
        assert_eq!((all(&ring, 20), all(&ring, 21), ring.bytes), (None, some(&[]), 0), "more than a step may have");
        for step in 0..2 * STEPS_MAX as i64 {
            ring.push(30 + 2 * step, vec![]);
        }
        assert_eq!(ring.steps.len(), STEPS_MAX);
    }
}
