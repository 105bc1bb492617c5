//! Memory that another process has as well.

/// Memory that another process reads and writes while this one does, at any time and without a word. What is read may
/// be changed right after: whoever decides by something copies it first, and looks at the copy alone.
///
/// Places are bytes from the beginning. `None` comes of one that is not all inside, and then nothing was done: places
/// that the other process gives need no other check.
pub trait SharedMemory {
    /// Copies from the memory.
    fn read(&self, at: usize, into: &mut [u8]) -> Option<()>;

    /// Copies into the memory.
    fn write(&self, at: usize, from: &[u8]) -> Option<()>;

    /// A number in the machine's own order, at a multiple of four bytes: what the other process had written before it
    /// wrote this is seen by whatever is read from now on.
    fn load(&self, at: usize) -> Option<u32>;

    /// The same to write: whatever was written before is seen by the other process when it sees this.
    fn store(&self, at: usize, number: u32) -> Option<()>;

    /// Sets bits of such a number, and leaves the others as they are, also those that the other process changes at the
    /// same time: whatever was written before is seen by the other process when it sees these.
    fn set_bits(&self, at: usize, bits: u32) -> Option<()>;
}
