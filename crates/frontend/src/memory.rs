//! The memory of clients' requests and answers: a budget for the node, from which each connection draws before it takes
//! a request's payload, or lets a read be asked.
//!
//! A connection may always take [`MEMORY_SHARE_BYTES`]; what is more comes out of the budget, and waits when there is
//! not enough. What waits longest goes first. Large requests have a half of their own, so that a few of them do not
//! keep the many small ones waiting. And who holds memory that others wait for, and neither sends nor reads, is to be
//! closed (0017).

use crate::{
    LARGE_REQUEST_BYTES, MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, MEMORY_SHARE_BYTES, STALL_BYTES_MIN, STALL_PERIOD,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How much there is.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// Bytes of the budget.
    pub bytes_max: usize,
    /// Bytes that each connection may take besides.
    pub share_bytes: usize,
}

impl Default for MemoryLimits {
    fn default() -> MemoryLimits {
        MemoryLimits { bytes_max: MEMORY_BYTES_MAX, share_bytes: MEMORY_SHARE_BYTES }
    }
}

/// Requests by size; each kind has one half of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Small,
    Large,
}

fn size_of(bytes: usize) -> Size {
    if bytes > LARGE_REQUEST_BYTES { Size::Large } else { Size::Small }
}

/// What one connection has taken, in bytes.
#[derive(Debug, Default)]
struct Held {
    /// For requests that the client is sending, by size.
    receiving: [usize; 2],
    /// For requests that are being carried out, by size.
    carried_out: [usize; 2],
    /// In answers that the client has not taken.
    unsent: usize,
    /// What it waits for.
    wants: Option<usize>,
    /// What the client has moved since when.
    moved: usize,
    since: Duration,
}

impl Held {
    fn by_size(&self) -> [usize; 2] {
        let mut sum = [0, 1].map(|size| self.carried_out[size] + self.receiving[size]);
        sum[size_of(self.unsent) as usize] += self.unsent;
        sum
    }

    fn total(&self) -> usize {
        self.by_size().iter().sum()
    }

    /// What waits for the client, not for this node.
    fn with_client(&self) -> usize {
        self.receiving.iter().sum::<usize>() + self.unsent
    }
}

/// The budget. See the module's description.
#[derive(Debug)]
pub struct Memory<K> {
    limits: MemoryLimits,
    held: BTreeMap<K, Held>,
    used: [usize; 2],
    /// Connections that wait, by the size of what they want, in the order in which they came.
    waiting: [VecDeque<K>; 2],
}

impl<K: Copy + Ord> Memory<K> {
    /// A budget of which nothing is used. One of less than [`MEMORY_BYTES_MIN`] is taken for that.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Memory<K> {
        let limits = MemoryLimits { bytes_max: limits.bytes_max.max(MEMORY_BYTES_MIN), ..limits };
        Memory { limits, held: BTreeMap::new(), used: [0; 2], waiting: [VecDeque::new(), VecDeque::new()] }
    }

    /// Bytes that are taken, the connections' own shares included.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used.iter().sum()
    }

    /// Takes the bytes of a connection's next request, beside those that it has. When there are not enough, the
    /// connection waits, and [`Memory::next`] will name it.
    #[must_use]
    pub fn take(&mut self, conn: K, bytes: usize, now: Duration) -> bool {
        let size = size_of(bytes) as usize;
        let own = self.held.get(&conn).map_or(0, Held::total) + bytes <= self.limits.share_bytes;
        // Whoever came before and waits goes first, but for what is everybody's own.
        let free = own || self.waiting[size].is_empty() && self.fits(size, bytes);
        let held = self.held.entry(conn).or_default();
        if held.wants.is_some() {
            return false;
        }
        if free {
            self.begin(conn, bytes, now);
            return true;
        }
        held.wants = Some(bytes);
        if held.with_client() == 0 {
            (held.moved, held.since) = (0, now);
        }
        if !self.has_waiting() {
            // From now on somebody minds who is slow.
            self.held.values_mut().for_each(|held| (held.moved, held.since) = (0, now));
        }
        self.waiting[size].push_back(conn);
        false
    }

    fn fits(&self, size: usize, bytes: usize) -> bool {
        self.used[size] == 0 || self.used[size] + bytes <= self.limits.bytes_max / 2
    }

    fn begin(&mut self, conn: K, bytes: usize, now: Duration) {
        self.change(conn, |held| {
            if held.with_client() == 0 {
                (held.moved, held.since) = (0, now);
            }
            held.receiving[size_of(bytes) as usize] += bytes;
        });
    }

    fn change(&mut self, conn: K, change: impl FnOnce(&mut Held)) {
        let held = self.held.entry(conn).or_default();
        let before = held.by_size();
        change(held);
        let after = held.by_size();
        for size in 0..2 {
            self.used[size] = self.used[size] + after[size] - before[size];
        }
    }

    /// A request for which a connection took so many bytes has come, and is carried out.
    pub fn received(&mut self, conn: K, bytes: usize) {
        let size = size_of(bytes) as usize;
        self.change(conn, |held| {
            held.receiving[size] = held.receiving[size].saturating_sub(bytes);
            held.carried_out[size] += bytes;
        });
    }

    /// A request of so many bytes has been answered. What of it is in the answer is counted as unsent.
    pub fn answered(&mut self, conn: K, bytes: usize) {
        let size = size_of(bytes) as usize;
        self.change(conn, |held| held.carried_out[size] = held.carried_out[size].saturating_sub(bytes));
    }

    /// Whatever a connection took bytes for and has not received was answered without being carried out.
    pub fn refused(&mut self, conn: K) {
        self.change(conn, |held| held.receiving = [0; 2]);
    }

    /// The connection does without what it waits for.
    pub fn renounced(&mut self, conn: K) {
        if self.held.get_mut(&conn).and_then(|held| held.wants.take()).is_some() {
            self.waiting.iter_mut().for_each(|waiting| waiting.retain(|other| *other != conn));
        }
    }

    /// So many bytes of answers wait for the client.
    pub fn unsent(&mut self, conn: K, bytes: usize, now: Duration) {
        if self.held.get(&conn).map_or(0, |held| held.unsent) == bytes {
            return;
        }
        self.change(conn, |held| {
            if held.with_client() == 0 {
                (held.moved, held.since) = (0, now);
            }
            held.moved += held.unsent.saturating_sub(bytes);
            held.unsent = bytes;
        });
    }

    /// The client has sent so many bytes.
    pub fn moved(&mut self, conn: K, bytes: usize) {
        self.held.get_mut(&conn).into_iter().for_each(|held| held.moved += bytes);
    }

    /// The connection is gone, and what it held is free.
    pub fn gone(&mut self, conn: K) {
        if let Some(held) = self.held.remove(&conn) {
            for (used, bytes) in self.used.iter_mut().zip(held.by_size()) {
                *used -= bytes;
            }
            if held.wants.is_some() {
                self.waiting.iter_mut().for_each(|waiting| waiting.retain(|other| *other != conn));
            }
        }
    }

    /// True while somebody waits.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.waiting.iter().any(|waiting| !waiting.is_empty())
    }

    /// True while this connection waits.
    #[must_use]
    pub fn is_waiting(&self, conn: K) -> bool {
        self.held.get(&conn).is_some_and(|held| held.wants.is_some())
    }

    /// Connections that hold something, or have.
    pub fn holders(&self) -> impl Iterator<Item = K> + '_ {
        self.held.keys().copied()
    }

    /// A connection that has waited and for which there is enough now: its bytes are taken.
    pub fn next(&mut self, now: Duration) -> Option<K> {
        for size in 0..2 {
            let Some(conn) = self.waiting[size].front().copied() else { continue };
            let held = self.held.get(&conn)?;
            let bytes = held.wants.unwrap_or(0);
            let own = held.total() + bytes <= self.limits.share_bytes;
            if own || self.fits(size, bytes) {
                self.waiting[size].pop_front();
                self.change(conn, |held| held.wants = None);
                self.begin(conn, bytes, now);
                return Some(conn);
            }
        }
        None
    }

    /// Connections whose clients keep others waiting: more than the share is with them, and they hardly move. To be
    /// closed.
    pub fn stalled(&mut self, now: Duration) -> Vec<K> {
        if !self.has_waiting() {
            return Vec::new();
        }
        let mut stalled = Vec::new();
        for (conn, held) in &mut self.held {
            if now < held.since + STALL_PERIOD {
                continue;
            }
            if held.with_client() > self.limits.share_bytes && held.moved < STALL_BYTES_MIN {
                stalled.push(*conn);
            }
            (held.moved, held.since) = (0, now);
        }
        stalled
    }

    /// When [`Memory::stalled`] is to be asked.
    #[must_use]
    pub fn next_look(&self) -> Option<Duration> {
        if !self.has_waiting() {
            return None;
        }
        self.held.values().map(|held| held.since + STALL_PERIOD).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);
    const MIB: usize = 1 << 20;

    fn memory() -> Memory<u32> {
        Memory::new(MemoryLimits::default())
    }

    #[test]
    fn a_connection_holds_several_amounts() {
        let mut memory = memory();
        for bytes in [MIB, 2 * MIB, MIB] {
            assert!(memory.take(1, bytes, NOW));
        }
        assert_eq!(memory.used_bytes(), 4 * MIB);
        memory.received(1, 2 * MIB);
        memory.answered(1, 2 * MIB);
        assert_eq!(memory.used_bytes(), 2 * MIB, "the others are still to come");
        memory.refused(1);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn who_does_without_is_in_nobodys_way() {
        let mut memory = memory();
        let half = MEMORY_BYTES_MAX / 2;
        assert!(memory.take(1, half, NOW));
        assert!(!memory.take(2, half, NOW) && !memory.take(3, 2 * MIB, NOW));
        memory.renounced(2);
        assert!(!memory.is_waiting(2) && memory.is_waiting(3));
        memory.refused(1);
        assert_eq!((memory.next(NOW), memory.next(NOW)), (Some(3), None));
        assert_eq!(memory.used_bytes(), 2 * MIB);
    }

    #[test]
    fn what_is_given_late_is_counted_once_and_its_time_begins_then() {
        let mut memory = memory();
        assert!(memory.take(1, MEMORY_BYTES_MAX / 2, NOW));
        assert!(!memory.take(2, 2 * MIB, NOW) && !memory.take(3, MEMORY_BYTES_MAX / 2, NOW));
        let late = NOW + STALL_PERIOD;
        memory.gone(1);
        assert_eq!(memory.next(late), Some(2));
        assert_eq!(memory.used_bytes(), 2 * MIB);
        assert!(memory.stalled(late).is_empty(), "it has had no time to send anything");
        assert_eq!(memory.stalled(late + STALL_PERIOD), [2]);
    }
}
