//! Page-aligned buffers: received into, checksummed, written to devices with O_DIRECT and sent on, all in place.
//!
//! A [`PageBuf`] has one owner who fills it; [`PageBuf::freeze`] turns it into [`Bytes`], which many may hold.
//! When the last holder lets go, the pages go back to a free list of the thread, so that a busy thread neither
//! asks the allocator for megabytes nor faults fresh pages in on every request.

use crate::BLOCK_SIZE;
use bytemuck::{Pod, Zeroable};
use bytes::Bytes;
use std::cell::RefCell;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_SIZE]);

const ZERO_PAGE: Page = Page([0; BLOCK_SIZE]);

/// Size classes: 1, 2, 4 … 16,384 pages (64 MiB).
const CLASSES: usize = 15;
/// Free pages that one thread keeps for later, over all size classes (32 MiB).
const FREE_PAGES_MAX: usize = 8192;

struct FreeList {
    classes: [Vec<Vec<Page>>; CLASSES],
    pages: usize,
}

thread_local! {
    static FREE: RefCell<FreeList> =
        const { RefCell::new(FreeList { classes: [const { Vec::new() }; CLASSES], pages: 0 }) };
}

/// A uniquely owned, page-aligned buffer. Its contents are unspecified (but initialised) until written.
pub struct PageBuf {
    pages: Vec<Page>,
    len: usize,
}

impl PageBuf {
    /// A buffer of `len` bytes with unspecified contents.
    ///
    /// # Panics
    /// When `len` is over 64 MiB; callers bound their requests before they ask for memory.
    #[must_use]
    pub fn new(len: usize) -> PageBuf {
        let class = class_of(len);
        let recycled = FREE
            .try_with(|free| {
                let mut free = free.borrow_mut();
                let pages = free.classes[class].pop();
                if let Some(pages) = &pages {
                    free.pages -= pages.len();
                }
                pages
            })
            .ok()
            .flatten();
        let pages = recycled.unwrap_or_else(|| vec![ZERO_PAGE; 1 << class]);
        PageBuf { pages, len }
    }

    /// A buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> PageBuf {
        let mut buf = PageBuf::new(len);
        buf.fill(0);
        buf
    }

    /// Bytes that the buffer holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when the buffer holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the first `len` bytes.
    ///
    /// # Panics
    /// When `len` is more than the buffer holds.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len);
        self.len = len;
    }

    /// Ends the filling: the contents from here on are shared and unchanging.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

fn class_of(len: usize) -> usize {
    let class = len.div_ceil(BLOCK_SIZE).max(1).next_power_of_two().trailing_zeros() as usize;
    assert!(class < CLASSES, "a buffer of {len} bytes is over the limit of 64 MiB");
    class
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        if pages.is_empty() {
            return;
        }
        // A thread that is ending has no free list any more: the pages go to the allocator.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.pages + pages.len() <= FREE_PAGES_MAX {
                free.pages += pages.len();
                let class = pages.len().trailing_zeros() as usize;
                free.classes[class].push(pages);
            }
        });
    }
}

impl std::ops::Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[..self.len]
    }
}

impl std::ops::DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..self.len]
    }
}

impl AsRef<[u8]> for PageBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBuf({} bytes)", self.len)
    }
}

/// A page-aligned copy of `data`.
#[must_use]
pub fn copy_to_pages(data: &[u8]) -> Bytes {
    let mut buf = PageBuf::new(data.len());
    buf.copy_from_slice(data);
    buf.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_recycled() {
        let first = PageBuf::new(5000);
        let address = first.as_ptr() as usize;
        assert_eq!(address % BLOCK_SIZE, 0);
        assert_eq!(first.len(), 5000);
        let shared = first.freeze();
        let part = shared.slice(4096..5000);
        drop(shared);
        assert_ne!(PageBuf::new(8192).as_ptr() as usize, address, "a buffer in use was given out");
        drop(part);
        assert_eq!(PageBuf::new(8192).as_ptr() as usize, address, "a free buffer was not used again");
    }

    #[test]
    fn zeroed_is_zero_after_recycling() {
        let mut dirty = PageBuf::new(4096);
        dirty.fill(7);
        drop(dirty);
        assert!(crate::is_zero(&PageBuf::zeroed(4096)));
    }
}
