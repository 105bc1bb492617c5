//! How far the log is, for all who have to know: only its writer and replay move it.

use crate::segments::Link;

/// The place of an entry in the log, as a number that orders all entries: batch, then entry inside the batch.
pub(crate) fn log_position(sequence: u64, entry: usize) -> u64 {
    (sequence << 16) | (entry as u64).min(0xffff)
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct LogEnd {
    /// Every batch up to here is on stable storage.
    durable: u64,
    /// At replay, the log position before the entry that is being replayed.
    replayed: u64,
    incarnation: u64,
    /// The log was durable up to here at the last checkpoint before this opening.
    durable_before: u64,
    /// The segment being written, and the next block to write in it.
    head: Option<(Link, u32)>,
    /// The generation of the oldest batch that is on its way to the device.
    under_way: Option<u64>,
    /// The first segment that replay has not done.
    replaying: Option<Link>,
}

impl LogEnd {
    /// As the checkpoint knew it that the store is opened from.
    pub fn new(incarnation: u64, durable_before: u64) -> LogEnd {
        LogEnd { incarnation, durable_before, ..LogEnd::default() }
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The last position that is durable.
    pub fn durable_position(&self) -> u64 {
        log_position(self.durable, usize::MAX)
    }

    /// The stamp for an operation that is asked for now: what is in the log up to here has been asked for before.
    pub fn stamp(&self) -> u64 {
        self.durable_position().max(self.replayed)
    }

    /// Counts the openings of the store.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The log was durable up to here at the last checkpoint before this opening.
    pub fn durable_before(&self) -> u64 {
        self.durable_before
    }

    /// The segment being written, and the next block to write in it; `None` while the log is being replayed.
    pub fn head(&self) -> Option<(Link, u32)> {
        self.head
    }

    /// The segment being written, and the next block to write in it, of a log that has been opened.
    ///
    /// # Panics
    /// While the log is being replayed.
    pub fn open_segment(&self) -> (Link, u32) {
        self.head.expect("replay has ended, so that a segment is open")
    }

    /// The generation being written.
    ///
    /// # Panics
    /// While the log is being replayed.
    pub fn generation(&self) -> u64 {
        self.open_segment().0.generation
    }

    /// Segments of generations before this are whole on the device.
    pub fn whole_before(&self) -> Option<u64> {
        self.under_way.or(self.head.map(|(link, _)| link.generation))
    }

    /// The oldest generation in which something is not durable, or not replayed.
    pub fn oldest_unsettled(&self) -> Option<u64> {
        let replaying = self.replaying.map(|link| link.generation);
        [self.under_way, self.head.map(|(link, _)| link.generation), replaying].into_iter().flatten().min()
    }

    pub fn replaying(&self) -> Option<Link> {
        self.replaying
    }

    pub fn set_durable(&mut self, sequence: u64) {
        self.durable = sequence;
    }

    /// The next record to write goes to this block of `link`.
    pub fn set_head(&mut self, link: Link, block: u32) {
        self.head = Some((link, block));
    }

    pub fn set_under_way(&mut self, generation: Option<u64>) {
        self.under_way = generation;
    }

    pub fn set_replaying(&mut self, link: Option<Link>) {
        self.replaying = link;
    }

    /// The entry at `position` is being replayed.
    pub fn set_replayed(&mut self, position: u64) {
        self.replayed = position - 1;
    }

    pub fn begin_incarnation(&mut self) {
        self.incarnation += 1;
    }
}
