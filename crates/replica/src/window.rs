//! What is on its way to one node that no write waits for, and may be: a [`Window`] for all groups, and the
//! [`Backlog`] of each copy. docs/decisions/0024 has the numbers.

use crate::limits::PENDING_WRITES_MAX;
use azekura_base::{Body, Extent, Sequence};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes on their way to one node for copies that are brought up to date: of all groups, and of copies in sync
/// that lag.
pub const WINDOW_BYTES: usize = 16 << 20;

/// Most bytes on their way to one node that writes need not wait for; copies in sync that lag are left behind then.
pub const LAG_BYTES_MAX: usize = 64 << 20;

/// What a write counts beside its data.
const WRITE_OVERHEAD: usize = 512;

/// How much may be on its way to one node that no write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// See [`WINDOW_BYTES`].
    pub window_bytes: usize,
    /// See [`LAG_BYTES_MAX`].
    pub lag_bytes_max: usize,
}

impl Default for WindowLimits {
    fn default() -> WindowLimits {
        WindowLimits { window_bytes: WINDOW_BYTES, lag_bytes_max: LAG_BYTES_MAX }
    }
}

/// Bytes on their way to one node that no write waits for, of all groups that share this.
///
/// Groups of one node live on one thread; the counters are atomic only so that a node may be made on another.
#[derive(Clone, Debug, Default)]
pub struct Window(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    limits: WindowLimits,
    on_the_way: AtomicUsize,
    unsent: AtomicUsize,
}

impl Window {
    /// Nothing is on its way yet.
    #[must_use]
    pub fn new(limits: WindowLimits) -> Window {
        Window(Arc::new(Counts { limits, ..Counts::default() }))
    }

    /// Bytes that were handed out to be sent and are not known to have arrived.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.on_the_way.load(Ordering::Relaxed)
    }

    /// So many bytes wait in the connection's outbox: also what nobody counts any more, because its copy was given up.
    pub fn set_unsent(&self, bytes: usize) {
        self.0.unsent.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.on_the_way.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: usize) {
        self.0.on_the_way.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn fullness(&self) -> usize {
        self.bytes().max(self.0.unsent.load(Ordering::Relaxed))
    }

    /// Nothing more is to be begun for copies that are brought up to date.
    pub(crate) fn is_full(&self) -> bool {
        self.fullness() >= self.0.limits.window_bytes
    }
}

/// What was sent to a copy that writes need not wait for, and is not durable there. Counts in its node's window while
/// it lives.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pub(crate) window: Window,
    /// Writes, and what each counts.
    pub(crate) writes: VecDeque<(Sequence, usize)>,
    /// For the first so many of them nobody waits: they count.
    pub(crate) needless: usize,
    /// Repairs.
    pub(crate) repairs: BTreeMap<u64, usize>,
    /// What counts.
    pub(crate) bytes: usize,
}

impl Backlog {
    pub(crate) fn new(window: Window) -> Backlog {
        let mut backlog = Backlog::default();
        backlog.window = window;
        backlog
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.window.add(bytes);
    }

    pub(crate) fn discount(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.window.sub(bytes);
    }

    pub(crate) fn sent(&mut self, sequence: Sequence, bytes: usize) {
        self.writes.push_back((sequence, bytes));
    }

    /// Nobody waits for the writes up to here any more.
    pub(crate) fn needless(&mut self, upto: Sequence) {
        while let Some((_, bytes)) = self.writes.get(self.needless).filter(|(sent, _)| *sent <= upto).copied() {
            self.needless += 1;
            self.count(bytes);
        }
    }

    /// The writes up to here are durable there. What that makes room for.
    pub(crate) fn acked(&mut self, sequence: Sequence) -> usize {
        let before = self.bytes;
        while let Some((_, bytes)) = self.writes.front().filter(|(sent, _)| *sent <= sequence).copied() {
            self.writes.pop_front();
            if self.needless > 0 {
                self.needless -= 1;
                self.discount(bytes);
            }
        }
        before - self.bytes
    }

    pub(crate) fn repair_sent(&mut self, id: u64, extents: &[Extent]) {
        let data = |extent: &Extent| match extent {
            Extent::Data { bytes, .. } => bytes.len(),
            Extent::Zero { .. } => 0,
        };
        let bytes = WRITE_OVERHEAD + extents.iter().map(data).sum::<usize>();
        self.repairs.insert(id, bytes);
        self.count(bytes);
    }

    /// A repair is durable there. What that makes room for.
    pub(crate) fn repair_done(&mut self, id: u64) -> usize {
        let bytes = self.repairs.remove(&id).unwrap_or(0);
        self.discount(bytes);
        bytes
    }

    /// More than is to wait for one copy, or for one node.
    pub(crate) fn is_too_long(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::has_no_window() {
            return false;
        }
        self.needless > PENDING_WRITES_MAX
            || self.bytes > 0 && self.window.fullness() > self.window.0.limits.lag_bytes_max
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.window.sub(self.bytes);
    }
}

/// What a write counts.
pub(crate) fn cost(body: Option<&Body>) -> usize {
    let bytes = match body {
        Some(Body::Data { bytes, .. }) => bytes.len(),
        _ => 0,
    };
    WRITE_OVERHEAD + bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_counts_until_it_arrives_or_is_given_up() {
        let window = Window::default();
        let mut first = Backlog::new(window.clone());
        let mut second = Backlog::new(window.clone());
        (1..=10).for_each(|n| first.sent(Sequence(n), 100));
        assert_eq!(window.bytes(), 0, "writes wait for it");
        first.needless(Sequence(6));
        second.sent(Sequence(3), 50);
        second.needless(Sequence(3));
        second.repair_sent(7, &[]);
        assert_eq!(window.bytes(), 650 + WRITE_OVERHEAD);
        assert_eq!(first.acked(Sequence(4)), 400);
        first.needless(Sequence(8));
        assert_eq!(first.acked(Sequence(10)), 400);
        assert_eq!(window.bytes(), 50 + WRITE_OVERHEAD);
        assert_eq!((second.repair_done(7), second.repair_done(7)), (WRITE_OVERHEAD, 0));
        drop(second);
        assert_eq!(window.bytes(), 0);
    }
}
