//! Page-aligned buffers: received into, checksummed, written to devices with O_DIRECT and sent on, all in place.
//!
//! A [`PageBuf`] has one owner who fills it; [`PageBuf::freeze`] turns it into [`Bytes`], which many may hold.
//! When the last holder lets go, the pages go back to a free list of the thread, so that a busy thread neither
//! asks the allocator for megabytes nor faults fresh pages in on every request. [`trim_free_buffers`] empties the list
//! of what is not needed any more.

use crate::BLOCK_SIZE;
use bytemuck::{Pod, Zeroable};
use bytes::Bytes;
use memmap2::{Advice, MmapMut};
use std::cell::RefCell;
use std::collections::VecDeque;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_SIZE]);

const ZERO_PAGE: Page = Page([0; BLOCK_SIZE]);

/// Size classes: 1, 2, 4 … 16,384 pages (64 MiB).
const CLASSES: usize = 15;
/// Free pages that one thread keeps for later, over all size classes (16 MiB).
const FREE_PAGES_MAX: usize = 4096;
/// Buffers from this size class on (2 MiB) are asked of the kernel in huge pages: one fault where there would be 512.
const HUGE_CLASS: usize = 9;

enum Pages {
    Heap(Vec<Page>),
    Huge(MmapMut),
}

impl Pages {
    fn new(class: usize) -> Pages {
        if class >= HUGE_CLASS
            && let Ok(map) = MmapMut::map_anon(BLOCK_SIZE << class)
        {
            // A kernel without huge pages gives small ones: slower, but the same.
            let _ = map.advise(Advice::HugePage);
            return Pages::Huge(map);
        }
        Pages::Heap(vec![ZERO_PAGE; 1 << class])
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Pages::Heap(pages) => bytemuck::cast_slice(pages),
            Pages::Huge(map) => map,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Pages::Heap(pages) => bytemuck::cast_slice_mut(pages),
            Pages::Huge(map) => map,
        }
    }
}

/// The free buffers of one size.
struct Class {
    /// The one used last is at the back.
    free: VecDeque<Pages>,
    /// The fewest that have been free since the last [`trim_free_buffers`].
    unused: usize,
    /// When a buffer of this size was last asked for, in requests of the thread.
    asked: u64,
}

struct FreeList {
    classes: [Class; CLASSES],
    pages: usize,
    requests: u64,
}

impl FreeList {
    const fn new() -> FreeList {
        FreeList {
            classes: [const { Class { free: VecDeque::new(), unused: 0, asked: 0 } }; CLASSES],
            pages: 0,
            requests: 0,
        }
    }

    fn take(&mut self, class: usize) -> Option<Pages> {
        self.requests += 1;
        let place = &mut self.classes[class];
        place.asked = self.requests;
        let pages = place.free.pop_back();
        place.unused = place.unused.min(place.free.len());
        self.pages -= pages.as_ref().map_or(0, |_| 1 << class);
        pages
    }

    fn put(&mut self, class: usize, pages: Pages) {
        if 1 << class > FREE_PAGES_MAX {
            return; // No room that others could make would be enough.
        }
        while self.pages + (1 << class) > FREE_PAGES_MAX {
            // What was asked for longest ago makes room.
            let others = (0..CLASSES).filter(|other| *other != class && !self.classes[*other].free.is_empty());
            let Some(oldest) = others.min_by_key(|other| self.classes[*other].asked) else { return };
            self.drop_free(oldest, 1);
        }
        self.pages += 1 << class;
        self.classes[class].free.push_back(pages);
    }

    fn drop_free(&mut self, class: usize, count: usize) {
        let place = &mut self.classes[class];
        place.free.drain(..count);
        place.unused = place.unused.min(place.free.len());
        self.pages -= count << class;
    }
}

thread_local! {
    static FREE: RefCell<FreeList> = const { RefCell::new(FreeList::new()) };
}

/// Gives back to the system what this thread has kept free since the last call without once needing it. To be called
/// now and then, so that a thread's memory follows its work.
pub fn trim_free_buffers() {
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        for class in 0..CLASSES {
            let unused = free.classes[class].unused;
            free.drop_free(class, unused);
            free.classes[class].unused = free.classes[class].free.len();
        }
    });
}

/// A uniquely owned, page-aligned buffer. Its contents are unspecified (but initialised) until written.
pub struct PageBuf {
    /// Absent only while it is being dropped.
    pages: Option<Pages>,
    class: u8,
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
        let recycled = FREE.try_with(|free| free.borrow_mut().take(class)).ok().flatten();
        let pages = Some(recycled.unwrap_or_else(|| Pages::new(class)));
        PageBuf { pages, class: class as u8, len }
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
        let Some(pages) = self.pages.take() else { return };
        // A thread that is ending has no free list any more: the pages go back to the system.
        let _ = FREE.try_with(|free| free.borrow_mut().put(usize::from(self.class), pages));
    }
}

impl std::ops::Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], |pages| &pages.bytes()[..self.len])
    }
}

impl std::ops::DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], |pages| &mut pages.bytes_mut()[..self.len])
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
    fn huge_buffers_are_whole_and_recycled() {
        let mut first = PageBuf::new(4 << 20);
        assert!((first.as_ptr() as usize).is_multiple_of(BLOCK_SIZE));
        assert!(crate::is_zero(&first));
        first.fill(1);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(PageBuf::new((2 << 20) + 1).as_ptr(), address);
    }

    fn free_pages() -> usize {
        FREE.with(|free| free.borrow().pages)
    }

    #[test]
    fn what_is_free_is_bounded_and_the_latest_size_is_kept() {
        let small: Vec<PageBuf> = (0..FREE_PAGES_MAX).map(|_| PageBuf::new(1)).collect();
        let large = PageBuf::new(8 << 20);
        let address = large.as_ptr();
        drop(small);
        assert_eq!(free_pages(), FREE_PAGES_MAX);
        drop(large);
        assert_eq!(free_pages(), FREE_PAGES_MAX);
        assert_eq!(PageBuf::new(8 << 20).as_ptr(), address);
    }

    #[test]
    fn a_buffer_larger_than_the_list_leaves_the_others_there() {
        let small: Vec<PageBuf> = (0..8).map(|_| PageBuf::new(100)).collect();
        let huge = PageBuf::new((16 << 20) + 1);
        drop(small);
        drop(huge);
        assert_eq!(free_pages(), 8);
    }

    #[test]
    fn trimming_gives_back_what_was_not_needed() {
        let many: Vec<PageBuf> = (0..8).map(|_| PageBuf::new(100)).collect();
        drop(many);
        trim_free_buffers();
        assert_eq!(free_pages(), 8, "needed since the last call");
        let three: Vec<PageBuf> = (0..3).map(|_| PageBuf::new(100)).collect();
        drop(three);
        trim_free_buffers();
        assert_eq!(free_pages(), 3);
        trim_free_buffers();
        assert_eq!(free_pages(), 0);
    }

    #[test]
    fn zeroed_is_zero_after_recycling() {
        let mut dirty = PageBuf::new(4096);
        dirty.fill(7);
        drop(dirty);
        assert!(crate::is_zero(&PageBuf::zeroed(4096)));
    }
}
