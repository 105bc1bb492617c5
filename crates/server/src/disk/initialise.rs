//! A new log's segments are written with zeros once, at a pace that leaves the device to clients.
//!
//! `FALLOC_FL_ZERO_RANGE` would be quicker and of no use: on ext4 and xfs it leaves extents that count as never
//! written, and to end that state is why the segments are initialised.

use crate::disk::device::DeviceDir;
use crate::disk::segments::{is_written, write_zeros};
use crate::driver::commands::Command;
use crate::driver::messages::Handle;
use anyhow::{Context, Result};
use azekura_base::DeviceId;
use azekura_store::{Initialisation, Options};
use std::fs::File;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Segments that are initialised between two notes of how far it is.
const SEGMENTS_PER_NOTE: u32 = 4;
/// While so many initialised segments are free (2 GiB), there is time; with fewer, clients would soon have to wait for
/// more.
const AHEAD_SEGMENTS: u32 = 64;
/// After each write and flush the device is left alone for so many times as long as that took: it has four fifths of
/// its time for clients.
const REST_TIMES: u32 = 4;
/// But not for longer than this, also where a single write hangs.
const REST_MAX: Duration = Duration::from_secs(2);
/// The data plane tells how many segments are free within this time, or there is taken to be no hurry.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// How long the device is left alone after what took `took`, when `free` initialised segments are free.
fn rest(took: Duration, free: Option<u32>) -> Duration {
    match free {
        Some(free) if free < AHEAD_SEGMENTS => Duration::ZERO,
        _ => (took * REST_TIMES).min(REST_MAX),
    }
}

/// The file system is full: this ends when somebody makes room, and is no failure of the device.
fn lacks_room(error: &anyhow::Error) -> bool {
    let is_full = |error: &std::io::Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    error.chain().filter_map(|cause| cause.downcast_ref()).any(is_full)
}

/// Initialises the rest of a device's log.
struct Initialising {
    dir: DeviceDir,
    id: DeviceId,
    data_plane: Handle,
    stop: Arc<AtomicBool>,
}

impl Initialising {
    fn run(&mut self) -> Result<()> {
        let options = self.dir.options();
        let log = self.dir.log()?;
        let mut reported = false;
        while self.dir.file.segments_ready < options.segments && !self.stop.load(Ordering::Relaxed) {
            match self.initialise(&log, self.dir.file.segments_ready, &options) {
                Ok(()) => reported = false,
                // The log has its room from the start, except where a file system copies what is written.
                Err(error) if lacks_room(&error) => {
                    if !std::mem::replace(&mut reported, true) {
                        self.tell(Initialisation::Halted);
                        let id = self.id;
                        tracing::warn!(device = %id, "device {id}: initialising the log waits for room: {error:#}");
                    }
                    std::thread::sleep(REST_MAX);
                }
                Err(error) => return Err(error),
            }
        }
        self.note()
    }

    /// Writes the next segment with zeros and tells of it.
    fn initialise(&mut self, log: &File, segment: u32, options: &Options) -> Result<()> {
        let free = self.free_segments();
        // The store uses the segment already if `device.json` is older than the log.
        if !is_written(log, segment, options)? {
            write_zeros(log, segment, options, |took| std::thread::sleep(rest(took, free)))?;
        }
        let started = Instant::now();
        log.sync_data().context("can't flush the device")?;
        self.dir.file.segments_ready = segment + 1;
        if self.dir.file.segments_ready.is_multiple_of(SEGMENTS_PER_NOTE) {
            self.note()?;
        }
        self.tell(Initialisation::GoesOn);
        std::thread::sleep(rest(started.elapsed(), free));
        Ok(())
    }

    /// Tells the data plane how far the log is initialised, and whether it soon will be further: clients' data waits
    /// for that, and is refused for want of space without.
    fn tell(&self, others: Initialisation) {
        self.data_plane.send(Command::SegmentsReady(self.id, self.dir.file.segments_ready, others));
    }

    /// Notes in `device.json` how far the log is. A note that there is no room for is left out: a start with an older
    /// one looks at the segments behind it once more.
    fn note(&self) -> Result<()> {
        match self.dir.save() {
            Err(error) if lacks_room(&error) => {
                let id = self.id;
                tracing::warn!(device = %id, "device {id}: how far its log is initialised is not noted: {error:#}");
                Ok(())
            }
            saved => saved,
        }
    }

    /// Initialised segments that are free, as the store has it.
    fn free_segments(&self) -> Option<u32> {
        let (answer, answered) = mpsc::channel();
        let id = self.id;
        self.data_plane.send(Command::Inspect(Box::new(move |look| {
            let _ = answer.send(look.node.store(id).map(|store| store.space().free_segments));
        })));
        answered.recv_timeout(ANSWER_MAX).ok().flatten()
    }
}

/// Initialises the rest of a device's log on a thread of its own, which stops when `stop` is set.
pub fn start(dir: DeviceDir, id: DeviceId, data_plane: Handle, stop: Arc<AtomicBool>) {
    let (told, ready) = (data_plane.clone(), dir.file.segments_ready);
    let mut work = Initialising { dir, id, data_plane, stop };
    let run = move || {
        if let Err(error) = work.run() {
            tracing::error!(device = %id, "device {id}: initialising the log stopped: {error:#}");
            work.tell(Initialisation::Halted);
            // Nothing may be written for long: who waited for a client to meet this would be told too late.
            work.data_plane.send(Command::NotInitialised(id, format!("initialising the log stopped: {error:#}")));
        }
    };
    if let Err(error) = std::thread::Builder::new().name(format!("init-{id}")).spawn(run) {
        let why = format!("no thread to initialise the log: {error}");
        tracing::error!(device = %id, "device {id}: {why}");
        told.send(Command::SegmentsReady(id, ready, Initialisation::Halted));
        told.send(Command::NotInitialised(id, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_left_to_clients_unless_they_need_segments() {
        let took = Duration::from_millis(10);
        assert_eq!(rest(took, Some(AHEAD_SEGMENTS - 1)), Duration::ZERO);
        assert_eq!(rest(took, Some(AHEAD_SEGMENTS)), 4 * took);
        assert_eq!(rest(took, None), 4 * took);
        assert_eq!(rest(Duration::from_secs(60), None), REST_MAX);
    }

    #[test]
    fn a_full_file_system_is_no_failure_of_the_device() {
        let error =
            |number| anyhow::Error::new(std::io::Error::from_raw_os_error(number)).context("can't write device.json");
        let (no_space, over_quota, io) = (28, 122, 5);
        assert!(lacks_room(&error(no_space)) && lacks_room(&error(over_quota)));
        assert!(!lacks_room(&error(io)));
        assert!(!lacks_room(&anyhow::anyhow!("No space left on device")));
    }
}
