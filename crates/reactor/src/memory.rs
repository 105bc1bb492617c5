//! Memory of another process, mapped into this one.
#![allow(unsafe_code)]

use azekura_base::SharedMemory;
use rustix::fs::SealFlags;
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    thread::JoinHandle,
};

const WORD: usize = size_of::<u64>();
/// What statfs(2) calls a file system of huge pages.
const HUGETLBFS_MAGIC: rustix::fs::FsWord = 0x9584_58f6;
/// Mappings of so many bytes are given back by a thread of their own: for each GiB that was touched the kernel needs
/// milliseconds, and a machine's memory has hundreds.
const UNMAP_ASIDE_BYTES: usize = 64 << 20;
/// So is that thread called.
const UNMAP_THREAD: &str = "unmap";

/// A part of a memory file (memfd_create(2)) that a client of this machine has handed over, until it is dropped.
///
/// The file can't be made shorter any more ([`MappedMemory::new`] sees to that): else this process would be killed by
/// SIGBUS when it touched what is gone.
#[derive(Debug)]
pub struct MappedMemory {
    start: NonNull<u8>,
    len: usize,
}

impl MappedMemory {
    /// Maps `len` bytes of a memory file from `offset` on, a multiple of the page size.
    ///
    /// # Errors
    /// When `file` is none, has not been sealed against shrinking (`F_SEAL_SHRINK`), is shorter than that, or can't be
    /// mapped.
    pub fn new(file: &OwnedFd, offset: u64, len: usize) -> io::Result<MappedMemory> {
        let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        match rustix::fs::fcntl_get_seals(file) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => {}
            Ok(_) => return refuse("the memory may be made shorter: it is not sealed against that"),
            Err(_) => return refuse("the memory is no memory file"),
        }
        // Its client can give back pages of it although it is sealed, and the kernel may have none in their place.
        if rustix::fs::fstatfs(file)?.f_type == HUGETLBFS_MAGIC {
            return refuse("the memory is of huge pages, which may end under this process: take usual pages");
        }
        let size = rustix::fs::fstat(file)?.st_size.unsigned_abs();
        // The seal is older than this look at the size, so the size only grows.
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return refuse("the memory is shorter than what is to be mapped");
        }
        let Ok(offset) = libc::off_t::try_from(offset) else { return refuse("the memory begins too far behind") };
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a mapping at an address of the kernel's choice changes no memory that this process has.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(MappedMemory { start, len })
    }

    fn place(&self, at: usize, len: usize) -> Option<*mut u8> {
        at.checked_add(len).filter(|end| *end <= self.len)?;
        Some(self.start.as_ptr().wrapping_add(at))
    }

    fn number(&self, at: usize) -> Option<&AtomicU32> {
        let place = self.place(at, size_of::<u32>()).filter(|_| at.is_multiple_of(size_of::<u32>()))?;
        // SAFETY: the place is inside the mapping, which begins at a page, so it is aligned; the mapping lives as long
        // as `self`. This process touches the memory by atomics alone.
        Some(unsafe { AtomicU32::from_ptr(place.cast()) })
    }
}

impl SharedMemory for MappedMemory {
    fn read(&self, at: usize, into: &mut [u8]) -> Option<()> {
        let mut place = self.place(at, into.len())?;
        let (head, words) = into.split_at_mut(place.align_offset(WORD).min(into.len()));
        for byte in head {
            // SAFETY: all places of the loops below are inside the mapping, one after the other from `place` on, and
            // those of words are aligned, since the head ends at a multiple of a word. The other process may write
            // there at any time, so this one reads by atomics.
            *byte = unsafe { AtomicU8::from_ptr(place) }.load(Ordering::Relaxed);
            place = place.wrapping_add(1);
        }
        let mut words = words.chunks_exact_mut(WORD);
        for word in &mut words {
            // SAFETY: see above.
            let value = unsafe { AtomicU64::from_ptr(place.cast()) }.load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
            place = place.wrapping_add(WORD);
        }
        for byte in words.into_remainder() {
            // SAFETY: see above.
            *byte = unsafe { AtomicU8::from_ptr(place) }.load(Ordering::Relaxed);
            place = place.wrapping_add(1);
        }
        Some(())
    }

    fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        let mut place = self.place(at, from.len())?;
        let (head, words) = from.split_at(place.align_offset(WORD).min(from.len()));
        for byte in head {
            // SAFETY: as in `read`.
            unsafe { AtomicU8::from_ptr(place) }.store(*byte, Ordering::Relaxed);
            place = place.wrapping_add(1);
        }
        let words = words.chunks_exact(WORD);
        let tail = words.remainder();
        for word in words {
            let value = u64::from_ne_bytes(word.try_into().expect("a word's bytes"));
            // SAFETY: as in `read`.
            unsafe { AtomicU64::from_ptr(place.cast()) }.store(value, Ordering::Relaxed);
            place = place.wrapping_add(WORD);
        }
        for byte in tail {
            // SAFETY: as in `read`.
            unsafe { AtomicU8::from_ptr(place) }.store(*byte, Ordering::Relaxed);
            place = place.wrapping_add(1);
        }
        Some(())
    }

    fn load(&self, at: usize) -> Option<u32> {
        Some(self.number(at)?.load(Ordering::Acquire))
    }

    fn store(&self, at: usize, number: u32) -> Option<()> {
        self.number(at)?.store(number, Ordering::Release);
        Some(())
    }

    fn set_bits(&self, at: usize, bits: u32) -> Option<()> {
        self.number(at)?.fetch_or(bits, Ordering::AcqRel);
        Some(())
    }
}

/// A mapping that nobody uses any more, until it is dropped.
struct Unused {
    start: usize,
    len: usize,
}

impl Drop for Unused {
    fn drop(&mut self) {
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: the mapping was a `MappedMemory`'s own, and nothing that was borrowed from that outlives it.
        unsafe { libc::munmap(start.cast(), self.len) };
    }
}

/// Gives a mapping back; the answer is the thread that does it, if this one does not.
fn give_back(unused: Unused) -> Option<JoinHandle<()>> {
    if unused.len < UNMAP_ASIDE_BYTES {
        return None;
    }
    // Without a thread it is dropped with the closure, here.
    std::thread::Builder::new().name(UNMAP_THREAD.into()).spawn(move || drop(unused)).ok()
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        give_back(Unused { start: self.start.as_ptr().expose_provenance(), len: self.len });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn both_sides_see_what_the_other_has_written() {
        let file = file(3 * 4096, SealFlags::SHRINK);
        let (here, there) =
            (MappedMemory::new(&file, 4096, 8192).unwrap(), MappedMemory::new(&file, 0, 3 * 4096).unwrap());
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for (at, len) in [(0, 1000), (1, 1000), (7, 3), (13, 0), (4090, 17), (8192 - 9, 9), (8192, 0)] {
            here.write(at, &bytes[..len]).unwrap();
            let mut seen = vec![0; len];
            there.read(4096 + at, &mut seen).unwrap();
            assert_eq!(seen, bytes[..len], "{len} bytes at {at}");
        }
        here.store(8, 77).unwrap();
        assert_eq!((there.load(4096 + 8), there.load(4096 + 12)), (Some(77), there.load(4096 + 12)));
        here.set_bits(8, 0x102).unwrap();
        assert_eq!(there.load(4096 + 8), Some(77 | 0x102));
    }

    #[test]
    fn what_is_outside_is_not_touched() {
        let memory = MappedMemory::new(&file(4096, SealFlags::SHRINK), 0, 4096).unwrap();
        let mut bytes = [0; 8];
        for at in [4089, 4096, usize::MAX - 3, usize::MAX] {
            assert_eq!((memory.read(at, &mut bytes), memory.write(at, &bytes)), (None, None), "{at}");
        }
        for at in [1, 2, 4094, 4096, usize::MAX] {
            assert_eq!((memory.load(at), memory.store(at, 1)), (None, None), "{at}");
            assert_eq!(memory.set_bits(at, 1), None, "{at}");
        }
    }

    #[test]
    fn memory_that_could_end_under_this_process_is_refused() {
        let why = |file: &OwnedFd, offset, len| MappedMemory::new(file, offset, len).unwrap_err().to_string();
        assert!(why(&file(4096, SealFlags::GROW), 0, 4096).contains("not sealed"));
        let sealed = file(4096, SealFlags::SHRINK);
        for (offset, len) in [(0, 4097), (4096, 1), (0, 0), (u64::MAX, 2), (1 << 63, 4096)] {
            assert!(why(&sealed, offset, len).contains("shorter"), "{len} bytes at {offset}");
        }
        assert!(MappedMemory::new(&sealed, 1, 100).is_err(), "not at a page");
        let usual = tempfile::tempfile().unwrap();
        usual.set_len(4096).unwrap();
        assert!(why(&usual.into(), 0, 4096).contains("no memory file"));
    }

    #[test]
    fn huge_pages_are_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // A kernel without them can't be handed any.
        let Ok(file) = memfd_create("test", flags) else { return };
        ftruncate(&file, 2 << 20).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let error = MappedMemory::new(&file, 0, 2 << 20).unwrap_err();
        assert!(error.to_string().contains("huge pages"), "{error}");
    }

    #[test]
    fn large_memory_is_given_back_by_another_thread() {
        let is_mapped = |start: usize| {
            let start = format!("{start:x}-");
            std::fs::read_to_string("/proc/self/maps").unwrap().lines().any(|line| line.starts_with(&start))
        };
        for (len, is_aside) in [(4096, false), (UNMAP_ASIDE_BYTES, true)] {
            let memory = MappedMemory::new(&file(len as u64, SealFlags::SHRINK), 0, len).unwrap();
            let unused = Unused { start: memory.start.as_ptr().expose_provenance(), len };
            std::mem::forget(memory);
            let start = unused.start;
            assert!(is_mapped(start));
            let thread = give_back(unused);
            assert_eq!(thread.is_some(), is_aside, "{len} bytes");
            thread.into_iter().for_each(|thread| thread.join().unwrap());
            // Another test may have got the place.
            assert!(!is_aside || !is_mapped(start));
        }
    }
}
