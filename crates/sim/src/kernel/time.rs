//! Time: the queue of what is to happen, and the order of moments.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A moment of a run: every start and end of an operation has its own.
pub(crate) type Stamp = u64;

struct Entry<E> {
    at: Duration,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// What is to happen when: in the order of time and, at the same time, of their making.
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    pushed: u64,
}

impl<E> Queue<E> {
    /// An empty queue.
    pub(crate) fn new() -> Queue<E> {
        Queue { heap: BinaryHeap::new(), pushed: 0 }
    }

    /// Something is to happen then.
    pub(crate) fn push(&mut self, at: Duration, event: E) {
        self.pushed += 1;
        self.heap.push(Entry { at, order: self.pushed, event });
    }

    /// What happens next, and when.
    pub(crate) fn pop(&mut self) -> Option<(Duration, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// All that is to happen, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.heap.iter().map(|entry| &entry.event)
    }

    /// When something happens next.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|entry| entry.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_comes_first_and_then_the_order_of_making() {
        let mut queue = Queue::new();
        let at = Duration::from_millis;
        for (ms, event) in [(2, 1), (1, 2), (2, 3), (1, 4)] {
            queue.push(at(ms), event);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(at, event)| (at.as_millis(), event)).collect();
        assert_eq!(order, [(1, 2), (1, 4), (2, 1), (2, 3)]);
    }
}
