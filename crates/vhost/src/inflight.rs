//! The record of requests in flight (Protocol, *Inflight I/O tracking*, split virtqueue), in memory that the client
//! keeps. A process that comes after this one, or a connection after another, takes up by it what was taken and not
//! given back, in the order in which it was begun; without it nobody knows which chains these are once they have been
//! given back in another order.
//!
//! | bytes of a queue's region | |
//! |---|---|
//! | 0..8 | features, none |
//! | 8..10, 10..12 | version, 1; entries |
//! | 12..14 | the head that is being given back |
//! | 14..16 | the ring's used index when that was done |
//! | 16 + 16 × head: 0 | 1 while the chain is under way |
//! | 16 + 16 × head: 8..16 | when it was begun, in chains begun |
//!
//! Each step is one store of a word, in this order: the head that is given back; the used ring and its index; the
//! head's mark; the used index here. Where the last one differs from the ring's, the process ended in between, and the
//! chain of that head was given back.

use crate::message::InflightAt;
use azekura_base::SharedMemory;

/// Bytes of the head of a queue's region, and of an entry.
const HEAD: usize = 16;
const ENTRY: usize = 16;
/// Regions begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;
const VERSION: u16 = 1;

/// See the module's description.
pub struct Inflight {
    memory: Box<dyn SharedMemory>,
    entries: u16,
    queues: u16,
}

fn region_bytes(entries: u16) -> usize {
    (HEAD + ENTRY * usize::from(entries)).next_multiple_of(ALIGNMENT)
}

/// Bytes that the record of so many queues takes.
#[must_use]
pub fn bytes(queues: u16, entries: u16) -> u64 {
    u64::from(queues) * region_bytes(entries) as u64
}

impl Inflight {
    /// A record in memory of [`bytes`] that are zeros, or that were such a record's.
    #[must_use]
    pub fn new(at: &InflightAt, memory: Box<dyn SharedMemory>) -> Inflight {
        Inflight { memory, entries: at.entries, queues: at.queues }
    }

    /// Entries of a queue at the most.
    #[must_use]
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// A queue is recorded.
    #[must_use]
    pub fn has(&self, queue: usize) -> bool {
        queue < usize::from(self.queues)
    }

    fn head_at(&self, queue: usize) -> usize {
        queue * region_bytes(self.entries)
    }

    fn entry_at(&self, queue: usize, head: u16) -> usize {
        self.head_at(queue) + HEAD + ENTRY * usize::from(head)
    }

    fn pair(&self, at: usize) -> [u16; 2] {
        let [a, b, c, d] = self.memory.load(at).unwrap_or(0).to_ne_bytes();
        [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])]
    }

    fn set_pair(&self, at: usize, [first, second]: [u16; 2]) {
        let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
        self.memory.store(at, u32::from_ne_bytes([a, b, c, d]));
    }

    /// A chain is taken.
    pub fn begin(&self, queue: usize, head: u16, number: u64) {
        let at = self.entry_at(queue, head);
        self.memory.write(at + 8, &number.to_ne_bytes());
        self.mark(queue, head, true);
    }

    fn mark(&self, queue: usize, head: u16, under_way: bool) {
        // The first of these bytes says so; the others are padding.
        let word = [u8::from(under_way), 0, 0, 0];
        self.memory.store(self.entry_at(queue, head), u32::from_ne_bytes(word));
    }

    /// A chain is about to be given back.
    pub fn ending(&self, queue: usize, head: u16) {
        let at = self.head_at(queue) + 12;
        let [_, used] = self.pair(at);
        self.set_pair(at, [head, used]);
    }

    /// A chain was given back, and this is the ring's used index now.
    pub fn ended(&self, queue: usize, head: u16, used: u16) {
        self.mark(queue, head, false);
        self.set_pair(self.head_at(queue) + 12, [head, used]);
    }

    /// What is under way in a ring of so many entries, whose used index is `used`: heads, the one that was begun first
    /// first; and the number of the last.
    #[must_use]
    pub fn recover(&self, queue: usize, entries: u16, used: u16) -> (Vec<u16>, u64) {
        let head_at = self.head_at(queue);
        let [version, _] = self.pair(head_at + 8);
        if version != VERSION {
            self.set_pair(head_at + 12, [0, used]);
            self.set_pair(head_at + 8, [VERSION, self.entries]);
        }
        let [ending, recorded] = self.pair(head_at + 12);
        if recorded != used && ending < self.entries {
            self.ended(queue, ending, used);
        }
        let mut found = Vec::new();
        for head in 0..entries.min(self.entries) {
            let at = self.entry_at(queue, head);
            let is_under_way = self.memory.load(at).is_some_and(|word| word.to_ne_bytes()[0] == 1);
            let mut number = [0; 8];
            if is_under_way && self.memory.read(at + 8, &mut number).is_some() {
                found.push((u64::from_ne_bytes(number), head));
            }
        }
        found.sort_unstable();
        let last = found.last().map_or(0, |(number, _)| *number);
        (found.into_iter().map(|(_, head)| head).collect(), last)
    }
}
