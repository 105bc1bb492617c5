//! The log of a guest's pages that this side has written (Protocol, *Migration*): one bit for each page, in memory that
//! the client copies and clears while the guest runs on, so that it knows which pages to copy once more.
//!
//! A page is written first and logged then: whoever clears the bit before copies the page later.

use crate::message::LogAt;
use azekura_base::SharedMemory;
use std::cell::Cell;

/// Bytes of a page (Protocol, `VHOST_LOG_PAGE`).
const PAGE: u64 = 4096;
/// Bits of a word of the log.
const WORD_BITS: u64 = 32;

/// See the module's description.
pub struct Log {
    memory: Box<dyn SharedMemory>,
    /// Words of the log.
    words: u64,
    /// A page that was written has no place in the log.
    missed: Cell<Option<u64>>,
}

impl Log {
    /// A log in memory of so many bytes.
    #[must_use]
    pub fn new(at: &LogAt, memory: Box<dyn SharedMemory>) -> Log {
        Log { memory, words: at.size / 4, missed: Cell::new(None) }
    }

    /// Bytes from a guest's address on were written.
    pub fn mark(&self, address: u64, len: usize) {
        let Some(last) = (len as u64).checked_sub(1) else { return };
        let Some(last) = address.checked_add(last) else { return self.miss(address) };
        let (mut page, last) = (address / PAGE, last / PAGE);
        while page <= last {
            let word = page / WORD_BITS;
            if word >= self.words {
                return self.miss(page * PAGE);
            }
            let end = ((word + 1) * WORD_BITS - 1).min(last);
            // Bytes come in the order of pages, whatever the machine makes of words.
            let mut bits = [0; 4];
            (page..=end).for_each(|page| bits[(page % WORD_BITS / 8) as usize] |= 1 << (page % 8));
            if self.memory.set_bits((word * 4) as usize, u32::from_ne_bytes(bits)).is_none() {
                return self.miss(page * PAGE);
            }
            page = end + 1;
        }
    }

    fn miss(&self, address: u64) {
        self.missed.set(self.missed.get().or(Some(address)));
    }

    /// The first of the guest's addresses that were written and have no place in the log.
    #[must_use]
    pub fn missed(&self) -> Option<u64> {
        self.missed.get()
    }
}
