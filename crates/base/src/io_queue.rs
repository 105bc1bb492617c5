//! The order in which a device's operations are started: the log's writes before the reads that wait, so that no crowd
//! of readers keeps a write from becoming durable.

use std::collections::VecDeque;

/// Writes that are started while a read waits that could be, before that read is: an endless row of writes does not
/// keep it for ever.
pub const READ_PASSED_OVER_MAX: u32 = 8;

/// What an operation is to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoClass {
    /// It writes, or makes writes durable: others wait for it to be acknowledged.
    Write,
    /// It reads.
    Read,
}

/// Operations of one device, by class in the order in which they came. Its owner performs what [`IoQueue::start`]
/// gives, and says when that has [`ended`](IoQueue::ended).
#[derive(Debug)]
pub struct IoQueue<T> {
    writes: VecDeque<T>,
    reads: VecDeque<T>,
    writes_under_way: usize,
    reads_under_way: usize,
    depth_max: usize,
    reads_max: usize,
    passed_over: u32,
}

impl<T> IoQueue<T> {
    /// A queue for a device that is given `depth_max` operations at a time, at most `reads_max` of them reads: a write
    /// that comes while many read is started at once.
    ///
    /// # Panics
    /// When the reads leave no place for a write, or one of both is 0.
    #[must_use]
    pub fn new(depth_max: usize, reads_max: usize) -> IoQueue<T> {
        assert!(0 < reads_max && reads_max < depth_max, "{reads_max} reads of {depth_max} operations");
        IoQueue {
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            writes_under_way: 0,
            reads_under_way: 0,
            depth_max,
            reads_max,
            passed_over: 0,
        }
    }

    /// Takes an operation in.
    pub fn push(&mut self, class: IoClass, operation: T) {
        match class {
            IoClass::Write => self.writes.push_back(operation),
            IoClass::Read => self.reads.push_back(operation),
        }
    }

    /// The operation that is to be started next, if the device has room for it.
    pub fn start(&mut self) -> Option<T> {
        if self.writes_under_way + self.reads_under_way >= self.depth_max {
            return None;
        }
        let read_waits = !self.reads.is_empty() && self.reads_under_way < self.reads_max;
        if !(read_waits && self.passed_over >= READ_PASSED_OVER_MAX)
            && let Some(write) = self.writes.pop_front()
        {
            self.passed_over = if read_waits { self.passed_over + 1 } else { 0 };
            self.writes_under_way += 1;
            return Some(write);
        }
        let read = if read_waits { self.reads.pop_front() } else { None };
        self.reads_under_way += usize::from(read.is_some());
        self.passed_over = 0;
        read
    }

    /// An operation that was started has ended.
    ///
    /// # Panics
    /// When none of its class is under way.
    pub fn ended(&mut self, class: IoClass) {
        let under_way = match class {
            IoClass::Write => &mut self.writes_under_way,
            IoClass::Read => &mut self.reads_under_way,
        };
        assert!(*under_way > 0, "an operation ends once");
        *under_way -= 1;
    }

    /// Operations that have been started and not ended.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.writes_under_way + self.reads_under_way
    }

    /// Operations that wait to be started.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.writes.len() + self.reads.len()
    }

    /// Forgets everything, as when the device's power fails.
    pub fn clear(&mut self) {
        *self = IoQueue::new(self.depth_max, self.reads_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use IoClass::{Read, Write};

    fn all_started(queue: &mut IoQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.start()).collect()
    }

    #[test]
    fn a_write_is_started_at_once_however_many_read() {
        let mut queue = IoQueue::new(8, 6);
        (0..1000).for_each(|n| queue.push(Read, n));
        assert_eq!(all_started(&mut queue), [0, 1, 2, 3, 4, 5]);
        queue.push(Write, 5000);
        assert_eq!(all_started(&mut queue), [5000]);
        assert_eq!((queue.under_way(), queue.waiting()), (7, 994));
    }

    #[test]
    fn writes_go_before_reads_that_wait_and_do_not_pass_them_for_ever() {
        let mut queue = IoQueue::new(2, 1);
        queue.push(Write, 1000);
        queue.push(Write, 1001);
        assert_eq!(all_started(&mut queue), [1000, 1001]);
        queue.push(Read, 0);
        queue.push(Read, 1);
        (1002..1030).for_each(|n| queue.push(Write, n));
        let mut order = Vec::new();
        while queue.waiting() > 0 {
            queue.ended(if order.last().is_some_and(|last| *last < 1000) { Read } else { Write });
            order.extend(all_started(&mut queue));
        }
        let reads: Vec<usize> = (0..order.len()).filter(|at| order[*at] < 1000).collect();
        assert_eq!(reads, [8, 17], "{order:?}");
        assert!(order.iter().filter(|n| **n >= 1000).is_sorted());
    }

    #[test]
    fn reads_have_a_device_without_writes_to_themselves() {
        let mut queue = IoQueue::new(4, 3);
        (0..9).for_each(|n| queue.push(Read, n));
        let mut order = all_started(&mut queue);
        while queue.under_way() > 0 {
            queue.ended(Read);
            order.extend(all_started(&mut queue));
            assert!(queue.under_way() <= 3);
        }
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
