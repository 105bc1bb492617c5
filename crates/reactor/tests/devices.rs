//! Direct I/O on real files.

#![allow(clippy::unwrap_used)]

use crate::support::{Echo, Random, reactor, turn};
use azekura_base::{BLOCK_SIZE, PageBuf, copy_to_pages};
use azekura_reactor::{DEVICE_DEPTH_MAX, DeviceFile, DeviceOptions, Event, FileId, Reactor, Token};
use bytes::Bytes;
use std::{io, path::PathBuf};

const SIZE: u64 = 16 << 20;
const CREATE: DeviceOptions = DeviceOptions { create: true, size: Some(SIZE) };

struct Fixture {
    folder: tempfile::TempDir,
    reactor: Reactor<Echo>,
    device: FileId,
}

impl Fixture {
    /// An allocated device on the file system that the build writes to, which is not a tmpfs.
    fn new() -> Fixture {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut reactor = reactor();
        let device = reactor.open_device(&folder.path().join("device"), CREATE).unwrap();
        Fixture { folder, reactor, device }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("device")
    }

    fn written(&mut self) -> (u64, io::Result<()>) {
        match turn(&mut self.reactor).pop() {
            Some(Event::DeviceWritten { token, result } | Event::DeviceSynced { token, result }) => {
                (token.number, result)
            }
            event => panic!("unexpected {event:?}"),
        }
    }

    fn read(&mut self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.reactor.read(self.device, offset, len, 99);
        match turn(&mut self.reactor).pop() {
            Some(Event::DeviceRead { token: Token { number: 99, .. }, result }) => result,
            event => panic!("unexpected {event:?}"),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let mut f = Fixture::new();
    let data = copy_to_pages(&Random(1).bytes(8 * BLOCK_SIZE));
    for (durable, offset) in [(false, 0), (true, 1 << 20)] {
        f.reactor.write(f.device, offset, vec![data.clone()], durable, 5);
        let (token, result) = f.written();
        result.unwrap();
        assert_eq!(token, 5);
        let read = f.read(offset, data.len()).unwrap();
        assert!(read == data);
        assert!((read.as_ptr() as usize).is_multiple_of(BLOCK_SIZE));
    }
    f.reactor.sync(f.device, 6);
    assert!(matches!(f.written(), (6, Ok(()))));
    assert_eq!(f.reactor.device_len(f.device).unwrap(), SIZE);
}

#[test]
fn pieces_in_any_cut_are_written_in_order() {
    let mut f = Fixture::new();
    let data = copy_to_pages(&Random(2).bytes(512 * BLOCK_SIZE));
    let mut random = Random(3);
    for bound in [10, 2 * BLOCK_SIZE, 200_000] {
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < data.len() {
            let end = (at + 1 + random.below(bound)).min(data.len());
            pieces.push(data.slice(at..end));
            at = end;
        }
        f.reactor.write(f.device, BLOCK_SIZE as u64, vec![PageBuf::zeroed(data.len()).freeze()], false, 0);
        f.written().1.unwrap();
        f.reactor.write(f.device, BLOCK_SIZE as u64, pieces, true, 1);
        f.written().1.unwrap();
        assert!(f.read(BLOCK_SIZE as u64, data.len()).unwrap() == data, "cuts below {bound}");
    }
}

#[test]
fn more_pieces_than_one_system_call_takes() {
    let mut f = Fixture::new();
    let blocks = 2500;
    // Separate buffers, so that none are merged.
    let pieces: Vec<Bytes> = (0..blocks).map(|n| copy_to_pages(&[n as u8; BLOCK_SIZE])).collect();
    let expected = pieces.concat();
    f.reactor.write(f.device, 0, pieces, true, 1);
    f.written().1.unwrap();
    assert!(f.read(0, blocks * BLOCK_SIZE).unwrap() == expected);
}

#[test]
fn many_operations_wait_their_turn() {
    let mut f = Fixture::new();
    let count = 5 * DEVICE_DEPTH_MAX as u64;
    for n in 0..count {
        f.reactor.write(f.device, n << 12, vec![copy_to_pages(&[n as u8; BLOCK_SIZE])], false, n);
    }
    assert_eq!(f.reactor.device_operations(f.device), count as usize);
    let mut done = vec![false; count as usize];
    while done.contains(&false) {
        for event in turn(&mut f.reactor) {
            let Event::DeviceWritten { token, result: Ok(()) } = event else { panic!("unexpected {event:?}") };
            assert!(!std::mem::replace(&mut done[token.number as usize], true), "reported twice");
        }
    }
    assert_eq!(f.reactor.device_operations(f.device), 0);
    let read = f.read(0, count as usize * BLOCK_SIZE).unwrap();
    assert!(read.chunks(BLOCK_SIZE).enumerate().all(|(n, block)| block.iter().all(|byte| *byte == n as u8)));
}

/// However many read: a log write that fails would end the use of the device, and one that waits for all of them would
/// make its copy too late for its group.
#[test]
fn a_write_passes_the_reads_that_wait_and_none_is_refused() {
    let mut f = Fixture::new();
    let reads = 70_000;
    for n in 0..reads {
        f.reactor.read(f.device, (n % 4096) << 12, BLOCK_SIZE, n);
    }
    f.reactor.write(f.device, 0, vec![PageBuf::zeroed(BLOCK_SIZE).freeze()], true, reads);
    let (mut read, mut before) = (0, None);
    while read < reads || before.is_none() {
        for event in turn(&mut f.reactor) {
            match event {
                Event::DeviceRead { result, .. } => {
                    result.unwrap();
                    read += 1;
                }
                Event::DeviceWritten { result, .. } => {
                    result.unwrap();
                    before = Some(read);
                }
                event => panic!("unexpected {event:?}"),
            }
        }
    }
    assert!(before.unwrap() < reads / 2, "the write came after {before:?} reads");
}

#[test]
fn a_closed_device_ends_what_was_queued_and_takes_no_more() {
    let mut f = Fixture::new();
    let block = copy_to_pages(&[8; BLOCK_SIZE]);
    for n in 0..300 {
        f.reactor.write(f.device, n << 12, vec![block.clone()], false, n);
    }
    f.reactor.close_device(f.device);
    f.reactor.close_device(f.device);
    let held = reactor().open_device(&f.path(), DeviceOptions::default());
    assert_eq!(held.unwrap_err().kind(), io::ErrorKind::ResourceBusy, "unlocked with writes under way");
    let mut done = 0;
    while done < 300 {
        for event in turn(&mut f.reactor) {
            assert!(matches!(event, Event::DeviceWritten { result: Ok(()), .. }), "unexpected {event:?}");
            done += 1;
        }
    }
    f.reactor.write(f.device, 0, vec![block.clone()], false, 7);
    assert_eq!(f.written().1.unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(f.read(0, BLOCK_SIZE).unwrap_err().kind(), io::ErrorKind::NotFound);
    f.device = f.reactor.open_device(&f.path(), CREATE).unwrap();
    assert!(f.read(299 << 12, BLOCK_SIZE).unwrap() == block);
}

#[test]
fn a_second_owner_is_refused() {
    let f = Fixture::new();
    let error = reactor().open_device(&f.path(), CREATE).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("in use by another process"), "{error}");
    let Fixture { folder, reactor: first, .. } = f;
    drop(first);
    reactor().open_device(&folder.path().join("device"), CREATE).unwrap();
}

#[test]
fn wrong_requests_are_refused() {
    let mut f = Fixture::new();
    for (offset, len) in [(1, BLOCK_SIZE), (0, 100), (0, 0), (0, 128 << 20), (!4095u64, BLOCK_SIZE)] {
        assert_eq!(f.read(offset, len).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{offset} {len}");
    }
    for (offset, len) in [(512, BLOCK_SIZE), (0, 4097), (0, 0)] {
        f.reactor.write(f.device, offset, vec![PageBuf::zeroed(len).freeze()], false, 3);
        assert_eq!(f.written().1.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{offset} {len}");
    }
    assert_eq!(f.read(SIZE - 4096, 8192).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(f.read(SIZE - 4096, 4096).is_ok());
}

#[test]
fn a_missing_device_is_an_error_that_names_it() {
    let f = Fixture::new();
    let error = reactor().open_device(&f.folder.path().join("absent"), DeviceOptions::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("absent"), "{error}");
    let big = DeviceOptions { create: true, size: Some(1 << 60) };
    let error = reactor().open_device(&f.folder.path().join("big"), big).unwrap_err();
    assert!(error.to_string().contains("can't allocate"), "{error}");
}

#[test]
fn an_existing_device_is_not_made_shorter() {
    let f = Fixture::new();
    let mut second = reactor();
    let path = f.folder.path().join("other");
    let device = second.open_device(&path, CREATE).unwrap();
    second.close_device(device);
    let shorter = DeviceOptions { create: true, size: Some(4096) };
    let device = second.open_device(&path, shorter).unwrap();
    assert_eq!(second.device_len(device).unwrap(), SIZE);
}

#[test]
fn a_device_is_opened_elsewhere_and_taken_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let file = DeviceFile::open(&path, CREATE).unwrap();
    // The lock is held before and after, and given back with the file.
    let error = DeviceFile::open(&path, CREATE).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    let mut first = reactor();
    let device = first.add_device(file).unwrap();
    assert!(DeviceFile::open(&path, CREATE).is_err());
    first.close_device(device);
    drop(DeviceFile::open(&path, CREATE).unwrap());
    DeviceFile::open(&path, CREATE).unwrap();
}
